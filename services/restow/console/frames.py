"""An instant as typed arrays: all of it, or what differs from another instant.

Bytes of a frame: `RSTW`, the length of the header (u32), the header (JSON), then the arrays, each at a multiple of 8 from the beginning; all little-endian.
The header's `arrays` says of each its name (`pods.node`), type (numpy's, such as `<i4`), position and length. Rows of a kind are in the order
of their slots. `count` of a row says how many device shares it has; they stand one after the other in `shareIndex` and `shareMilli`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from restow.console.index import DTYPES, KINDS, PHASES, STEPS, Index
from restow.replay.pod_status import STATUSES

MAGIC = b"RSTW"
_ALIGNED = 8


class Frame(msgspec.Struct, frozen=True):
    """`about` says which instant, arrays are by `kind.column`."""

    about: dict[str, Any]
    arrays: Mapping[str, np.ndarray]


def frame(index: Index, at: int, since: int | None = None) -> Frame:
    """What the map shows after sequence `at`; with `since` only the rows that may be others than after that one (it may be later), and as `gone`
    the slots of those that are no more."""
    arrays: dict[str, np.ndarray] = {}
    for kind in KINDS:
        track = index.tracks[kind]
        versions = track.versions_at(at)
        rows = track.rows
        if since is not None:
            changed = track.changed(since, at)
            versions = versions[changed[rows["slot"][versions]]]
            changed[rows["slot"][versions]] = False
            arrays[f"{kind}.gone"] = np.flatnonzero(changed).astype("<u4")
        chosen = rows[versions]
        for column, _ in DTYPES[kind]:
            if column != "first":
                arrays[f"{kind}.{column}"] = np.ascontiguousarray(chosen[column])
        if "first" in (chosen.dtype.names or ()):
            shares = index.shares[_stretches(chosen["first"], chosen["count"])]
            arrays[f"{kind}.shareIndex"], arrays[f"{kind}.shareMilli"] = (np.ascontiguousarray(shares[name]) for name in ("index", "milli"))
    about = {
        "at": at,
        "since": since,
        "time": time_at(index, at),
        "first": index.first,
        "last": index.last,
        "words": len(index.words),
        "statuses": STATUSES,
        "phases": PHASES,
        "steps": STEPS,
    }
    return Frame(about, arrays)


def _stretches(first: np.ndarray, count: np.ndarray) -> np.ndarray:
    """The positions first, first + 1, ... of each stretch, one after the other."""
    counts = count.astype(np.int64)
    ends = np.cumsum(counts)
    return np.repeat(first.astype(np.int64) - (ends - counts), counts) + np.arange(int(ends[-1]) if len(ends) else 0)


def time_at(index: Index, seq: int) -> int:
    """When that commit was made, in ms; 0 where there is none."""
    place = seq - index.first
    return int(index.commits["time"][place]) if index.first and 0 <= place < len(index.commits) else 0


def seq_at(index: Index, time: int) -> int:
    """The last sequence that was committed by then; the first one where that is later."""
    return max(index.first, index.first + int(np.searchsorted(index.commits["time"], time, side="right")) - 1)


def as_bytes(found: Frame) -> bytes:
    """See above."""
    places, at = [], 0
    for name, values in found.arrays.items():
        places.append({"name": name, "type": values.dtype.str, "at": at, "length": len(values)})
        at += _padded(values.nbytes)
    header = msgspec.json.encode({**found.about, "arrays": places})
    begin = _padded(len(MAGIC) + 4 + len(header))
    parts = [MAGIC, struct.pack("<I", len(header)), header, bytes(begin - len(MAGIC) - 4 - len(header))]
    for values in found.arrays.values():
        parts += [values.tobytes(), bytes(_padded(values.nbytes) - values.nbytes)]
    return b"".join(parts)


def _padded(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


def as_values(found: Frame) -> dict[str, Any]:
    """The same for JSON: columns as lists, kind by kind."""
    values: dict[str, Any] = dict(found.about)
    for name, array in found.arrays.items():
        kind, column = name.split(".")
        values.setdefault(kind, {})[column] = array.tolist()
    return values
