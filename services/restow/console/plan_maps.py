"""A plan as two maps: the nodes that it touches as they were when it was made, and as they are to be once its moves have landed: all, or those that somebody has approved."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from msgspec.structs import replace

from restow.console.answers import detail
from restow.console.index import CLOSED, READY, Index, PlanNote
from restow.contracts.ids import MigrationId
from restow.contracts.values import Move
from restow.replay.replanned import Replanned

MOST_NODES = 1_000
"""Nodes of one plan that are shown; the rest is counted."""

Occupant = dict[str, Any]
"""One pod on a node: `pod` (namespace/name), `workload`, `cpu` and `memory` as in a frame, `devices` as [index, thousandths], of `unsaid` devices nobody says which they are; `migration` is the move of this plan
that takes it away (before) or has brought it (after), empty where it stays."""


def plan_maps(index: Index, id: str, at: int) -> dict[str, Any] | None:
    """Each node that the plan touches, with its occupants `before` and `after`; None where there was no such plan by then. `known` is false where the plan was made before what is
    known of the log: then there are no nodes. `slots` are waiting pods for which the plan, all of it, makes capacity, with their node. `declined` counts moves that were left out when the
    plan was approved: in `after` their pods stay."""
    note = index.plans.get(id)
    return None if note is None or note.seq > at else maps_of(index, note, at)


def maps_of(index: Index, note: PlanNote, at: int) -> dict[str, Any]:
    """The same of a plan that need not be in the log."""
    planned = note.planned
    moves = note.approved(at) or planned.moves
    names = list(dict.fromkeys(name for name in (*(one for move in planned.moves for one in (move.source, move.target)), *(slot.node for slot in planned.slots)) if name))
    known = note.time >= index.began
    shown = names[:MOST_NODES] if known else []
    nodes = _nodes(index, note.seq, shown)
    before = _occupants(index, note.seq, nodes)
    after = _carried_out(moves, before)
    slots = [{"pod": index.labels.get(slot.pod, slot.pod), "node": slot.node} for slot in planned.slots]
    return {
        "plan": planned.plan, "seq": note.seq, "time": note.time, "known": known, "nodesInAll": len(names), "slots": slots, "declined": len(planned.moves) - len(moves),
        "nodes": [about | {"before": before[name], "after": after[name]} for name, about in nodes.items()],
    }  # fmt: skip


def _nodes(index: Index, seq: int, names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Those that there were, in this order: as in a frame, `devices` are the indices that there are."""
    track = index.tracks["nodes"]
    rows = track.rows[track.versions_at(seq)]
    found = {}
    for name in names:
        for row in rows[rows["slot"] == track.slots.get(name, -1)]:
            devices = [number for number, _ in _shares(index, row)]
            found[name] = {"name": name, "ready": bool(row["flags"] & READY), "closed": bool(row["flags"] & CLOSED), "cpu": float(row["cpu"]), "memory": float(row["memory"]), "devices": devices}
    return found


def _occupants(index: Index, seq: int, nodes: Iterable[str]) -> dict[str, list[Occupant]]:
    """Of each of the nodes, in the order in which the pods were first seen; each has its `uid`, too."""
    slots = {index.tracks["nodes"].slots[name]: name for name in nodes}
    track = index.tracks["pods"]
    rows = track.rows[track.versions_at(seq)]
    found: dict[str, list[Occupant]] = {name: [] for name in slots.values()}
    for row in rows[np.isin(rows["node"], list(slots))]:
        uid = track.keys[row["slot"]]
        found[slots[int(row["node"])]].append(
            {
                "uid": uid, "pod": index.labels.get(uid, uid), "workload": index.words[row["workload"]], "cpu": float(row["cpu"]), "memory": float(row["memory"]),
                "devices": [list(share) for share in _shares(index, row)], "unsaid": int(row["unsaid"]), "migration": "",
            }
        )  # fmt: skip
    return found


def _shares(index: Index, row: Any) -> list[tuple[int, int]]:
    first = int(row["first"])
    return [(int(number), int(milli)) for number, milli in index.shares[first : first + int(row["count"])].tolist()]


def _carried_out(moves: Iterable[Move], before: dict[str, list[Occupant]]) -> dict[str, list[Occupant]]:
    """Everybody where the moves bring them. Marks in `before` who leaves. A move that follows another one takes its pod on from where that has brought it."""
    there = {(name, one["uid"]): one for name, occupants in before.items() for one in occupants}
    brought: dict[MigrationId, tuple[str, Occupant]] = {}
    for move in moves:
        was: tuple[str, Occupant] | None
        if move.follows:
            was = brought.pop(move.follows, None)
        else:
            one = there.get((move.source, move.pod))
            was = (move.source, one) if one is not None and not one["migration"] else None
            if was is not None:
                was[1]["migration"] = move.migration
        if was is not None:
            spread = [[share.index, share.milli] for share in move.devices]
            unsaid = 0 if spread else len(was[1]["devices"]) + was[1]["unsaid"]
            brought[move.migration] = move.target, was[1] | {"devices": spread, "unsaid": unsaid, "migration": move.migration}
    after = {name: [dict(one) for one in occupants if not one["migration"]] for name, occupants in before.items()}
    for target, one in brought.values():
        if target in after:
            after[target].append(one)
    return after


def replanned(index: Index, at: int, made: Replanned) -> dict[str, Any]:
    """Plans that were made at an instant without being in the log: each as `answers.detail` has it, with its `maps` and its `values`."""
    plans = []
    for planned, values in made.plans:
        # As one that is never carried out.
        note = PlanNote(at, made.time, replace(planned, mode="observe"))
        plans.append(detail(index, note, at) | {"maps": maps_of(index, note, at), "values": values})
    return {"at": at, "time": made.time, "plans": plans, "warnings": made.warnings}
