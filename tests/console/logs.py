"""What a client of the API does with what it gets: unpack a frame, and lay it over what it has."""

import json
import struct

import numpy as np

from restow.console.view import HoldRow, MoveRow, NodeRow, PodRow, View


def unpacked(body):
    """(header, arrays by name), by the description in `restow.console.frames` alone."""
    assert body[:4] == b"RSTW"
    (length,) = struct.unpack("<I", body[4:8])
    about = json.loads(body[8 : 8 + length])
    begin = -(-(8 + length) // 8) * 8
    arrays = {}
    for one in about["arrays"]:
        assert (begin + one["at"]) % 8 == 0
        arrays[one["name"]] = np.frombuffer(body, one["type"], one["length"], begin + one["at"])
    return about, arrays


def shown(index, frame, before=None):
    """The rows of a frame; laid over those `before`, where it says what differs."""
    kinds = {kind: dict(getattr(before, kind)) if before is not None else {} for kind in ("nodes", "pods", "holds", "moves")}
    for kind, rows in kinds.items():
        track = index.tracks[kind]
        for slot in frame.arrays[f"{kind}.gone"].tolist() if before is not None else ():
            rows.pop(track.keys[slot], None)
        for key, row in _rows(index, frame, kind):
            rows[key] = row
    return View(**kinds)


def _rows(index, frame, kind):
    arrays, prefix = frame.arrays, f"{kind}."
    columns = {name.removeprefix(prefix): array.tolist() for name, array in arrays.items() if name.startswith(prefix)}
    shares = list(zip(columns.pop("shareIndex", ()), columns.pop("shareMilli", ()), strict=True))
    columns.pop("gone", None)
    taken = 0
    for values in zip(*columns.values(), strict=True):
        said = dict(zip(columns, values, strict=True))
        devices = tuple(shares[taken : taken + said.get("count", 0)])
        taken += said.get("count", 0)
        key = index.tracks[kind].keys[said["slot"]]
        yield key, _MADE[kind](index, frame.about, key, said, devices)
    assert taken == len(shares)


def _key(index, kind, slot):
    return index.tracks[kind].keys[slot] if slot >= 0 else ""


def _node(index, about, key, said, devices):
    words = (index.words[said[name]] for name in ("kind", "rack", "zone"))
    return NodeRow(bool(said["flags"] & 1), bool(said["flags"] & 2), int(said["cpu"]), int(said["memory"]), tuple(i for i, _ in devices), *words)


def _pod(index, about, uid, said, devices):
    namespace, _, name = index.labels[uid].partition("/")
    return PodRow(
        namespace, name, about["statuses"][said["status"]], bool(said["ready"]), _key(index, "nodes", said["node"]), int(said["cpu"]),
        int(said["memory"]), devices, said["unsaid"], int(said["asked"]), index.words[said["queue"]], said["priority"], index.words[said["workload"]],
        index.words[said["podgroup"]],
    )  # fmt: skip


def _hold(index, about, key, said, devices):
    return HoldRow(
        index.labels[key[0]], _key(index, "nodes", said["node"]), about["phases"][said["phase"]], int(said["cpu"]), int(said["memory"]),
        devices, _key(index, "moves", said["move"]),
    )  # fmt: skip


def _move(index, about, id, said, devices):
    uid = _key(index, "pods", said["pod"])
    namespace, _, name = index.labels.get(uid, "/").partition("/")
    return MoveRow(
        index.words[said["plan"]], uid, namespace, name, _key(index, "nodes", said["source"]), _key(index, "nodes", said["target"]),
        about["steps"][said["step"]], int(said["since"]), _key(index, "pods", said["successor"]), index.words[said["reason"]],
        index.words[said["message"]],
    )  # fmt: skip


_MADE = {"nodes": _node, "pods": _pod, "holds": _hold, "moves": _move}
