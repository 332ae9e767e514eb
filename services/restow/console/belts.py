"""What one thing was over the whole log: a row of stretches, each from the commit that began it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from restow.console.answers import find
from restow.console.frames import time_at
from restow.console.index import CLOSED, LEFT, NOWHERE, PHASES, READY, STEPS, WAITS, Index
from restow.console.tracks import GONE
from restow.domain.records import SlotPhase, Step
from restow.replay.pod_status import STATUSES

MOST = 500
"""Stretches that are told, the latest."""
UNDER_WAY = frozenset(STEPS.index(str(step)) for step in (Step.HOLDING, Step.HELD, Step.EVICTING, Step.EVICTED, Step.ABORTING))
_WAITING = PHASES.index(str(SlotPhase.WAITING))
_NAMED = 3
"""Nodes of a Reservation that are named."""
Said = tuple[str, str]
"""What it was, in a word, and more of it; both empty where there was none."""


def belt(index: Index, path: str, at: int) -> dict[str, Any] | None:
    """Of a node, a pod, a move, a Reservation's slots, a PodGroup or a queue; of several pods or Reservations of one name that of this instant, or the last one. None where there is none. `earlier` counts
    stretches before those that are told."""
    kind, _, name = path.partition("/")
    if kind == "reservation":
        changes = _reservation(index, name, at)
    elif kind in ("podgroup", "queue"):
        changes = {"podgroup": _gang, "queue": _queue}[kind](_tally(index, kind, name))
    elif (slot := find(index, path, at)["slot"]) >= 0:
        changes = {"node": _node, "pod": _pod, "migration": _move}[kind](index, slot)
    else:
        return None
    told = list(_merged(changes))
    if not told:
        return None
    ends = [time_at(index, seq) for seq, *_ in told[1:]] + [index.latest]
    spans = [{"seq": seq, "time": time_at(index, seq), "until": until, "what": what, "text": text} for (seq, what, text), until in zip(told, ends, strict=True) if what]
    return {"path": path, "kind": kind, "first": index.first, "last": index.last, "earlier": max(0, len(spans) - MOST), "spans": spans[-MOST:]}


def _merged(told: Iterable[tuple[int, Said]]) -> Iterator[tuple[int, str, str]]:
    """Without those that say what the one before has said."""
    last: Said | None = None
    for seq, said in told:
        if said != last:
            yield (seq, *said)
        last = said


def _changes(index: Index, kind: str, slots: Iterable[int]) -> list[tuple[int, str, int, Any]]:
    """(sequence, kind, slot, row or None) of these, as they came; several of one commit as if the last alone had been."""
    track = index.tracks[kind]
    changes, rows = track.changes, track.rows
    chosen = changes[np.isin(changes["slot"], list(slots))]
    last = {(seq, slot): version for seq, slot, version in chosen.tolist()}
    return [(seq, kind, slot, None if version == GONE else rows[version]) for (seq, slot), version in last.items()]


def _pod(index: Index, slot: int) -> Iterator[tuple[int, Said]]:
    rows = index.tracks["moves"].rows
    moves = set(rows["slot"][(rows["pod"] == slot) | (rows["successor"] == slot)].tolist())
    now: Any = None
    moving: dict[int, Any] = {}
    for seq, changes in _by_commit([*_changes(index, "pods", [slot]), *_changes(index, "moves", moves)]):
        for kind, of, row in changes:
            if kind == "pods":
                now = row
            elif row is not None and int(row["step"]) in UNDER_WAY and slot in (row["pod"], row["successor"]):
                moving[of] = row
            else:
                moving.pop(of, None)
        yield seq, _pod_said(index, now, next(iter(moving.values()), None))


def _pod_said(index: Index, row: Any, move: Any) -> Said:
    if row is None:
        return "", ""
    if move is not None:
        return "moving", f"{STEPS[move['step']]}: {_name(index, move['source'])} → {_name(index, move['target'])}"
    status, node = STATUSES[row["status"]], _name(index, row["node"])
    if row["node"] == NOWHERE:
        return ("gated" if status == "Gated" else "ended" if status in ("Succeeded", "Failed") else "nominated" if status == "Nominated" else "waiting"), status
    if status == "Running":
        return ("running", f"on {node}") if row["ready"] else ("not ready", f"on {node}")
    return {"Terminating": "terminating", "Succeeded": "ended", "Failed": "ended"}.get(status, "bound"), f"{status}, on {node}"


def _name(index: Index, node: Any) -> str:
    return str(index.tracks["nodes"].keys[node]) if node >= 0 else "nowhere"


def _node(index: Index, slot: int) -> Iterator[tuple[int, Said]]:
    found: list[tuple[int, str, int, Any]] = _changes(index, "nodes", [slot])
    for kind in ("pods", "holds"):
        rows = index.tracks[kind].rows
        found += _changes(index, kind, np.unique(rows["slot"][rows["node"] == slot]).tolist())
    now: Any = None
    there: dict[str, set[int]] = {"pods": set(), "holds": set()}
    for seq, changes in _by_commit(found):
        for kind, of, row in changes:
            if kind == "nodes":
                now = row
            elif row is not None and row["node"] == slot:
                there[kind].add(of)
            else:
                there[kind].discard(of)
        yield seq, _node_said(now, there)


def _node_said(row: Any, there: dict[str, set[int]]) -> Said:
    if row is None:
        return "", ""
    if not row["flags"] & READY:
        return "not ready", ""
    if row["flags"] & CLOSED:
        return "cordoned", "takes no new pods"
    if there["holds"]:
        return "held", "a slot is held on it"
    return ("in use", "") if there["pods"] else ("empty", "no pod is on it")


def _move(index: Index, slot: int) -> Iterator[tuple[int, Said]]:
    for seq, changes in _by_commit(_changes(index, "moves", [slot])):
        row = changes[-1][2]
        step = "" if row is None else STEPS[row["step"]].replace("_", " ")
        yield seq, (step, "" if row is None else f"{index.words[row['reason']]} {index.words[row['message']]}".strip())


def _reservation(index: Index, name: str, at: int) -> Iterator[tuple[int, Said]]:
    """As long as slots of it hold a node. What owners have taken of it is on the nodes as their pods."""
    track = index.tracks["holds"]
    slots: dict[str, list[int]] = {}
    for slot, (uid, _) in enumerate(track.keys):
        if name in (index.labels.get(uid), uid):
            slots.setdefault(uid, []).append(slot)
    there = {track.keys[slot][0] for slot in track.rows["slot"][track.versions_at(at)].tolist()}
    chosen = next((uid for uid in reversed(slots) if uid in there), next(reversed(slots), None))
    now: dict[int, Any] = {}
    for seq, changes in _by_commit(_changes(index, "holds", slots[chosen])) if chosen is not None else ():
        for _, slot, row in changes:
            if row is None:
                now.pop(slot, None)
            else:
                now[slot] = row
        yield seq, _held_said(index, list(now.values()))


def _held_said(index: Index, rows: list[Any]) -> Said:
    if not rows:
        return "", ""
    waits = sum(row["phase"] == _WAITING for row in rows)
    nodes = list(dict.fromkeys(_name(index, row["node"]) for row in rows))
    where = f"{len(rows)} slot{'s' * (len(rows) > 1)} on {', '.join(nodes[:_NAMED])}{f' and {len(nodes) - _NAMED} more nodes' if len(nodes) > _NAMED else ''}"
    return ("waiting", f"{where}, where capacity is not free yet for {waits}") if waits else ("held", where)


Tally = tuple[int, dict[str, int]]
"""A sequence, and how many pods there are from then on, by what they do: `there`, `waiting`, `placed`, `ready`."""


def _tally(index: Index, column: str, name: str) -> Iterator[Tally]:
    """Of the pods of a PodGroup or a queue; those that have ended are only `there`. Without a loop over changes, of which a queue has most of the log's."""
    track, number = index.tracks["pods"], index.number(name)
    if not number:
        return
    rows = track.rows
    of = rows[column] == number
    changes = track.changes
    changes = changes[np.isin(changes["slot"], np.unique(rows["slot"][of]))]
    changes = changes[np.argsort(changes["slot"], kind="stable")]
    before = np.full(len(changes), GONE, np.int64)
    before[1:] = np.where(changes["slot"][1:] == changes["slot"][:-1], changes["version"][:-1], GONE)
    leaves = np.isin(rows["status"], LEFT)
    placed = of & (rows["node"] != NOWHERE) & ~leaves
    counted = {"there": of, "waiting": of & (rows["node"] == NOWHERE) & np.isin(rows["status"], WAITS), "placed": placed, "ready": placed & (rows["ready"] > 0)}
    order = np.argsort(changes["seq"], kind="stable")
    seqs = changes["seq"][order]
    last = np.flatnonzero(np.append(np.diff(seqs) != 0, True)) if len(seqs) else np.empty(0, np.int64)
    sums = {}
    for what, which in counted.items():
        delta = (which[changes["version"]] & (changes["version"] != GONE)).astype(np.int64) - (which[before] & (before != GONE))
        sums[what] = np.cumsum(delta[order])[last].tolist()
    for seq, *counts in zip(seqs[last].tolist(), *sums.values(), strict=True):
        yield seq, dict(zip(sums, counts, strict=True))


def _gang(tally: Iterable[Tally]) -> Iterator[tuple[int, Said]]:
    for seq, pods in tally:
        alive = pods["waiting"] + pods["placed"]
        if not pods["there"]:
            yield seq, ("", "")
        elif not alive:
            yield seq, ("ended", "all of its pods have ended, or are on their way out")
        elif pods["waiting"]:
            yield seq, ("waiting", f"{pods['placed']} of {alive} pods have a node")
        elif pods["ready"] == alive:
            yield seq, ("running", f"all of {alive} pods are ready")
        else:
            yield seq, ("bound" if not pods["ready"] else "not ready", f"{pods['ready']} of {alive} pods are ready")


def _queue(tally: Iterable[Tally]) -> Iterator[tuple[int, Said]]:
    for seq, pods in tally:
        if pods["waiting"]:
            yield seq, ("waiting", "pods of it wait for a node")
        else:
            yield seq, ("in use", "nobody waits") if pods["placed"] else ("empty", "nobody waits, and no pod of it has a node")


def _by_commit(found: list[tuple[int, str, int, Any]]) -> Iterator[tuple[int, list[tuple[str, int, Any]]]]:
    """Changes of one commit together, in the order of the commits."""
    commits: dict[int, list[tuple[str, int, Any]]] = {}
    for seq, kind, slot, row in found:
        commits.setdefault(seq, []).append((kind, slot, row))
    for seq in sorted(commits):
        yield seq, commits[seq]
