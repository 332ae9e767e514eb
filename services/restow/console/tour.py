"""A tour of a log: the few instants that show what Restow does, found by rule, with a sentence for each. Pure: the same index gives the same tour.

It shows one move from its slot to its landing because that is the promise: the place is held first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np

from restow.console.frames import time_at
from restow.console.index import CLOSED, READY, STEPS, Index, PlanNote
from restow.domain.records import Step
from restow.replay.pod_status import STATUSES
from restow.replay.sentences import worth_text

_WAITS = [STATUSES.index(status) for status in ("Pending", "Waiting")]
_RUNS = STATUSES.index("Running")
_LOST = [STEPS.index(str(step)) for step in (Step.FAILED, Step.NOT_RECREATED)]
_LANDED = STEPS.index(str(Step.LANDED))


class Stop(msgspec.Struct, frozen=True):
    """`show`: the path of what is opened beside the `view`; empty for the instant as a whole."""

    at: int
    title: str
    text: str
    show: str = ""
    view: str = "map"


def tour(index: Index) -> list[Stop]:
    """In the order in which they are to be seen; empty for a log in which nothing has happened. Of a log without a plan that moved anything: the cluster, and who waits."""
    if not index.last:
        return []
    note = _chosen(index)
    begin = max(note.seq - 1, index.first) if note else index.last
    waits = _longest(index, begin)
    stops = [_cluster(index, begin)]
    if waits is not None:
        stops.append(_waiting(index, begin, waits))
    if note is not None:
        stops += [_plan(note), *_move(index, note)]
    if waits is not None and (started := _started(index, waits, begin)) is not None:
        stops.append(started)
    stops += _lost(index)
    if note is not None:
        stops.append(_end(index))
    return stops


def _rows(index: Index, kind: str, at: int) -> np.ndarray:
    track = index.tracks[kind]
    return track.rows[track.versions_at(at)]


def _count(number: int, one: str) -> str:
    return f"{number:,} {one}{'' if number == 1 else 's'}".replace(",", " ")


def _devices(milli: float) -> str:
    return f"{milli / 1000:g}"


# -- the stops -----------------------------------------------------------------------------------------------------------


def _cluster(index: Index, at: int) -> Stop:
    nodes, pods = _rows(index, "nodes", at), _rows(index, "pods", at)
    devices, free = int(nodes["count"].sum()), sum(_free(index, at, closed=True).values())
    has = f" with {_count(devices, 'device')}, {free} of them free" if devices else ""
    said = f"{_count(len(nodes), 'node')}{has}; {_count(int((pods['status'] == _RUNS).sum()), 'pod')} running."
    return Stop(at, "The cluster", f"{said} Every box is a node, its cells are its devices, filled as far as pods use them; the two bars below are cpu and memory. Drag the slider: every instant of the log is here.")


def _longest(index: Index, at: int) -> str | None:
    """The pod that waits for the most devices then, or cpu; its uid."""
    track = index.tracks["pods"]
    rows = [row for row in _rows(index, "pods", at) if row["node"] < 0 and row["status"] in _WAITS]
    most = max(rows, key=lambda row: (row["asked"], row["cpu"], -int(row["slot"])), default=None)
    return None if most is None else str(track.keys[most["slot"]])


def _waiting(index: Index, at: int, uid: str) -> Stop:
    track = index.tracks["pods"]
    row = next(row for row in _rows(index, "pods", at) if row["slot"] == track.slots[uid])
    label = index.labels.get(uid, uid)
    if row["asked"]:
        free = _free(index, at)
        asks = f"It asks for {_devices(row['asked'])} of a node's devices. {_count(sum(free.values()), 'device')} are free, and the most on one node that takes pods is {max(free.values(), default=0)}."
    else:
        asks = f"It asks for {_devices(row['cpu'])} cpu."
    return Stop(at, f"{label} waits", f"{asks} Beside the map is why, as the scheduler wrote it down when it decided.", f"pod/{label}")


def _free(index: Index, at: int, closed: bool = False) -> dict[int, int]:
    """Whole devices that nobody uses or holds, by the slot of a node that is ready and takes pods; with `closed` of every node, as the map counts them."""
    used: dict[int, set[int]] = {}
    unsaid: dict[int, int] = {}
    for kind in ("pods", "holds"):
        for row in _rows(index, kind, at):
            used.setdefault(int(row["node"]), set()).update(_shares(index, row))
            if kind == "pods":
                unsaid[int(row["node"])] = unsaid.get(int(row["node"]), 0) + int(row["unsaid"])
    return {
        slot: max(len(_shares(index, row) - used.get(slot, set())) - unsaid.get(slot, 0), 0)
        for row in _rows(index, "nodes", at)
        if closed or (row["flags"] & READY and not row["flags"] & CLOSED)
        for slot in [int(row["slot"])]
    }


def _shares(index: Index, row: Any) -> set[int]:
    return set(index.shares["index"][row["first"] : row["first"] + row["count"]].tolist())


def _chosen(index: Index) -> PlanNote | None:
    """The plan of which most moves have landed; of several the first, and where none has, the one with the most moves."""
    rows = _rows(index, "moves", index.last)
    landed = [index.words[plan] for plan in rows["plan"][rows["step"] == _LANDED].tolist()]
    able = [note for note in index.plans.values() if note.planned.moves and note.seq > index.first]
    return max(able, key=lambda note: (landed.count(note.planned.plan), len(note.planned.moves)), default=None)


def _plan(note: PlanNote) -> Stop:
    planned, worth = note.planned, note.planned.worth
    gains = f" It promises {worth_text(worth.after - worth.before, sign=True)} {worth.unit} in {worth.hours} h, and costs {worth_text(worth.cost)}." if worth else ""
    reason = f" {planned.reason[:1].upper()}{planned.reason[1:].rstrip('.')}." if planned.reason else ""
    return Stop(
        note.seq, f"A plan of {_count(len(planned.moves), 'move')}", f"Arrows lead from where each pod is to where it is to go.{gains}{reason} Nothing has moved yet.",
        f"plan/{planned.plan}",
    )  # fmt: skip


def _move(index: Index, note: PlanNote) -> Iterator[Stop]:
    """One move, step by step: the first that has landed on a slot that was held for it."""
    for move in note.planned.moves:
        slot = index.tracks["moves"].slots.get(move.migration)
        if slot is None or not move.pod:
            continue
        steps, held = _first_seen(index, slot), _held(index, slot)
        out = steps.get(Step.EVICTING)
        if held is None or out is None or Step.LANDED not in steps:
            continue
        pod, show = index.labels.get(move.pod, f"{move.namespace}/{move.name}"), f"migration/{move.migration}"
        what = f"{_count(len(move.devices), 'device')} of {move.target} {'is' if len(move.devices) == 1 else 'are'}" if move.devices else f"A slot on {move.target} is"
        yield Stop(held, "First the place is held", f"{what} held for the successor of {pod}, and nobody else can take it (hatched). The pod still runs on {move.source}.", show)
        yield Stop(out[0], "Then the pod is evicted", f"{pod} is to leave {move.source}, by the eviction API, so its disruption budgets count. Its controller makes a successor.", show)
        landed, row = steps[Step.LANDED]
        key = index.tracks["pods"].keys[row["successor"]] if row["successor"] >= 0 else ""
        after = (time_at(index, landed) - time_at(index, out[0])) / 1000
        yield Stop(
            landed, "Its successor lands there", f"{index.labels.get(key, 'The successor')} is on {move.target}, {after:.1f} s after the eviction. The hold has done its work; "
            "garbage_collector takes away what is left of it.", show,
        )  # fmt: skip
        return


def _held(index: Index, move: int) -> int | None:
    """Since when there is a slot for a move; by the move's own slot in its track."""
    track = index.tracks["holds"]
    holds = np.unique(track.rows["slot"][track.rows["move"] == move]).tolist()
    return min((seq for slot in holds for seq, row in track.history(slot) if row is not None and row["node"] >= 0), default=None)


def _first_seen(index: Index, slot: int) -> dict[Step, tuple[int, Any]]:
    """When a move was first in each of its steps, and its row then."""
    found: dict[Step, tuple[int, Any]] = {}
    for seq, row in index.tracks["moves"].history(slot):
        if row is not None:
            found.setdefault(Step(STEPS[row["step"]]), (seq, row))
    return found


def _started(index: Index, uid: str, since: int) -> Stop | None:
    """Who waited has a node."""
    track = index.tracks["pods"]
    there = next(((seq, row) for seq, row in track.history(track.slots[uid]) if seq > since and row is not None and row["node"] >= 0), None)
    if there is None:
        return None
    seq, row = there
    label, took = index.labels.get(uid, uid), (time_at(index, seq) - time_at(index, since)) / 1000
    return Stop(seq, f"{label} starts", f"The pod that waited gets {index.tracks['nodes'].keys[row['node']]}, {took:.1f} s after the instant at which this tour began.", f"pod/{label}")


def _lost(index: Index) -> Iterator[Stop]:
    """What went wrong is shown, too: the last move that failed."""
    track, rows = index.tracks["moves"], _rows(index, "moves", index.last)
    failed = rows[np.isin(rows["step"], _LOST)]
    if len(failed):
        row = failed[int(np.argmax(failed["since"]))]
        seq = next(seq for seq, one in track.history(int(row["slot"])) if one is not None and one["step"] == row["step"])
        why = index.words[row["message"]] or index.words[row["reason"]] or "The log has no reason for it"
        yield Stop(seq, f"{_count(len(failed), 'move')} did not land", f"One of them: {why.rstrip('.')}. The log has every step of it.", f"migration/{track.keys[row['slot']]}")


def _end(index: Index) -> Stop:
    rows = index.tracks["moves"].rows
    landed, planned = len(np.unique(rows["slot"][rows["step"] == _LANDED])), sum(_to_be_made(note, index.last) for note in index.plans.values())
    moved = f"{_count(landed, 'move')} of {planned} planned landed" if len(rows) else "Nothing was moved"
    return Stop(
        index.last, "What it came to", f"{moved}. Here is what each plan promised and what was really won and lost. "
        "Every decision in this log can be made again and compared: restow verify.", view="plans",
    )  # fmt: skip


def _to_be_made(note: PlanNote, at: int) -> int:
    """How many of its moves were to be made: none of a plan that was only observed, and of one that was proposed those that a person has approved."""
    return len(note.approved(at) if note.planned.mode else note.planned.moves)
