"""What the API says of an instant beside the frame: plans, search, the timeline, names, what happened."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np

from restow.console.frames import seq_at, time_at
from restow.console.index import KINDS, STEPS, Index, PlanNote
from restow.contracts import events as e
from restow.contracts.ids import FAMILIES, MigrationId
from restow.contracts.values import MoveSeen
from restow.domain.evolve.observed import FREE, LOOKS, THERE
from restow.domain.planview.waves import numbers
from restow.replay.sentences import command_text, sentence
from restow.replay.source import Source
from restow.replay.state_at import decode_record, time_of

MOST_NAMES = 10_000
MOST_BUCKETS = 2_000
MOST_MARKS = 2_000
LATEST_EVENTS = 12
"""Events of one commit that are told; the rest is counted."""


def names(index: Index, kind: str, first: int, upto: int) -> dict[str, Any]:
    """Keys of slots first..upto-1, as they are known now: names of nodes, `[uid, namespace/name]` of pods, `[uid, slot, namespace/name]` of holds, ids
    of moves; of `words` the words."""
    if kind == "words":
        known: list[Any] = index.words[first:upto]
        count = len(index.words)
    else:
        keys = index.tracks[kind].keys
        count, known = len(keys), keys[first:upto]
        if kind == "pods":
            known = [[uid, index.labels.get(uid, "")] for uid in known]
        elif kind == "holds":
            known = [[uid, slot, index.labels.get(uid, "")] for uid, slot in known]
    return {"kind": kind, "from": first, "count": count, "names": known}


def timeline(index: Index, buckets: int) -> dict[str, Any]:
    """How many events each family has told in each of so many equal stretches of the log's time, and what one may want to jump to."""
    commits = index.commits
    if not len(commits):
        return {"first": 0, "last": 0, "from": 0, "to": 0, "buckets": 0, "events": {}, "marks": []}
    begin, end = int(commits["time"][0]), int(commits["time"][-1])
    place = ((commits["time"] - begin) * buckets // max(end - begin + 1, 1)).astype(np.int64)
    counts = {
        family: np.bincount(place[mask], commits["events"][mask], buckets).astype(np.int64).tolist()
        for number, family in enumerate(FAMILIES)
        if (mask := commits["family"] == number).any()
    }
    marks = _thinned(index.marks, MOST_MARKS)
    return {
        "first": index.first, "last": index.last, "from": begin, "to": end, "buckets": buckets, "events": counts,
        "marks": [msgspec.to_builtins(mark) for mark in marks], "marksInAll": len(index.marks),
    }  # fmt: skip


def _thinned(marks: list[Any], most: int) -> list[Any]:
    """At most so many: plans before anything else, then evenly spread."""
    if len(marks) <= most:
        return marks
    first = _spread([mark for mark in marks if mark.what == "plan"], most)
    rest = _spread([mark for mark in marks if mark.what != "plan"], most - len(first))
    return sorted([*first, *rest], key=lambda mark: mark.seq)


def _spread(marks: list[Any], most: int) -> list[Any]:
    return marks[:: -(-len(marks) // most)] if marks and most > 0 else []


def moment(index: Index, at: int) -> dict[str, Any]:
    """A sequence, and the marks before and after it."""
    earlier = next((mark for mark in reversed(index.marks) if mark.seq < at), None)
    later = next((mark for mark in index.marks if mark.seq > at), None)
    return {"at": at, "time": time_at(index, at), "earlier": earlier, "later": later}


def plans(index: Index, at: int, empty: bool = True) -> list[dict[str, Any]]:
    """Plans that there were by then, the latest first, with how far their moves were: also those that the log has forgotten since. Without `empty` those that found something to do, and the latest."""
    track = index.tracks["moves"]
    rows = track.rows[track.last_until(at)]
    steps: dict[str, dict[str, int]] = {}
    for plan, step in zip(rows["plan"].tolist(), rows["step"].tolist(), strict=True):
        known = steps.setdefault(index.words[plan], {})
        known[STEPS[step]] = known.get(STEPS[step], 0) + 1
    notes = sorted((note for note in index.plans.values() if note.seq <= at), key=lambda note: (-note.seq, -note.time))
    told = [note for place, note in enumerate(notes) if empty or place == 0 or note.planned.moves or note.planned.slots]
    return [_plan(note, at, steps.get(note.planned.plan, {})) for note in told]


def _plan(note: PlanNote, at: int, steps: dict[str, int]) -> dict[str, Any]:
    planned, worth = note.planned, note.planned.worth
    return {
        "plan": planned.plan,
        "seq": note.seq,
        "time": note.time,
        "trigger": planned.trigger,
        "plugin": planned.plugin,
        "planner": planned.planner,
        "reason": planned.reason,
        "moves": len(planned.moves),
        "slots": len(planned.slots),
        "steps": steps,
        "cancelled": note.why if note.cancelled and note.cancelled <= at else "",
        "mode": planned.mode or "automatic",
        "looked": _looked(note, at),
        "answer": _answer(note, at),
        "waitsUntil": note.until if _waits(note, at) else 0,
        "kept": planned.kept,
        "unit": worth.unit if worth else "",
        "hours": worth.hours if worth else 0,
        "promised": worth.after - worth.before if worth else None,
        "cost": worth.cost if worth else None,
        "freeNodes": [planned.before.free_nodes, planned.after.free_nodes],
        "freeDevices": [planned.before.free_devices, planned.after.free_devices],
    }


def _waits(note: PlanNote, at: int) -> bool:
    """Whether it waited for a person then."""
    return note.planned.mode == "propose" and not (note.cancelled and note.cancelled <= at) and _answer(note, at) is None


def _answer(note: PlanNote, at: int) -> dict[str, Any] | None:
    """What a person had said by then of a plan that was proposed; None while nobody had."""
    said = note.answer(at)
    if said is None:
        return None
    _, time, event = said
    chosen = event.moves if isinstance(event, e.PlanApproved) else None
    return {"said": "rejected" if chosen is None else "approved", "by": event.by, "time": time, "reason": event.reason, "moves": len(chosen or ())}


def _looked(note: PlanNote, at: int) -> dict[str, int] | None:
    """What was seen by then of a plan that was only observed: `slots` looked at, `free` ones, pods that had ended `early`; and, an hour after the plan, how many
    pods (`aged`) had `ended`. None before the first look, and where nobody was there in time."""
    seen = {look.look: look.moves for seq, look in note.looks if seq <= at and look.moves}
    if not seen:
        return None
    first, last = seen.get(1, ()), seen.get(LOOKS, ())
    there = [move for move in first if move.pod == THERE]
    return {
        "slots": len(there), "free": sum(move.slot == FREE for move in there), "early": len(first) - len(there),
        "aged": len(last), "ended": sum(move.pod != THERE for move in last),
    }  # fmt: skip


def _none(note: PlanNote, at: int, move: MigrationId) -> str:
    """The step of a move that is no migration; `unknown` for one that was to be made and was void by then."""
    if note.planned.mode != "propose":
        return "observed" if note.planned.mode else "unknown"
    said = note.answer(at)
    if said is not None and isinstance(said[2], e.PlanApproved):
        return "unknown" if not said[2].moves or move in said[2].moves else "declined"
    return "declined" if said is not None or (note.cancelled and note.cancelled <= at) else "proposed"


def _seen(one: MoveSeen | None) -> str:
    """Of a move that was only observed, what has become of it as far as somebody has looked."""
    if one is None:
        return ""
    if one.pod != THERE:
        return "its pod has ended"
    return f"its slot is {one.slot}{': ' * bool(one.why)}{one.why}" if one.slot else ""


def plan(index: Index, id: str, at: int) -> dict[str, Any] | None:
    """One plan with its moves; None where there was none by then. `parts` of a cost are known of the dearest moves only."""
    note = index.plans.get(id)
    return None if note is None or note.seq > at else detail(index, note, at)


def detail(index: Index, note: PlanNote, at: int) -> dict[str, Any]:
    """The same of a plan that need not be in the log."""
    track = index.tracks["moves"]
    rows = {str(track.keys[row["slot"]]): row for row in track.rows[track.last_until(at)]}
    waves = numbers(note.planned.moves)
    parts = {one.migration: one.parts for one in note.planned.worth.dearest} if note.planned.worth is not None else {}
    seen = {one.migration: one for seq, look in note.looks if seq <= at for one in look.moves if look.look == 1 or one.pod != THERE}
    moves, steps = [], dict[str, int]()
    for move in note.planned.moves:
        row = rows.get(move.migration)
        step = STEPS[row["step"]] if row is not None else _none(note, at, move.migration)
        steps[step] = steps.get(step, 0) + 1
        moves.append(
            {
                "migration": move.migration,
                "pod": f"{move.namespace}/{move.name}",
                "uid": move.pod,
                "source": move.source,
                "target": move.target,
                "wave": waves[move.migration],
                "after": list(move.after),
                "follows": move.follows,
                "cost": move.cost,
                "parts": parts.get(move.migration, {}),
                "why": move.reason,
                "step": step,
                "since": int(row["since"]) if row is not None else 0,
                "reason": index.words[row["reason"]] if row is not None else "",
                "message": index.words[row["message"]] if row is not None else "",
                "seen": _seen(seen.get(move.migration)),
            }
        )
    return {**_plan(note, at, steps), "moves": moves}


def search(index: Index, text: str, at: int, limit: int) -> list[dict[str, Any]]:
    """What has these letters in its name (any case), of what there was at that instant: exact first, then what begins so."""
    wanted = text.lower()
    found: list[tuple[int, str, str, str]] = []

    def look(kind: str, name: str, path: str) -> None:
        low = name.lower()
        if wanted in low:
            short = low.rpartition("/")[2]
            rank = 0 if wanted in (low, short) else 1 if low.startswith(wanted) or short.startswith(wanted) else 2
            found.append((rank, kind, name, path))

    nodes, pods, moves = (_present(index, kind, at) for kind in ("nodes", "pods", "moves"))
    for name in nodes:
        look("node", name, f"node/{name}")
    for uid in pods:
        name = index.labels.get(uid, uid)
        look("pod", name, f"pod/{name}")
    for id in moves:
        look("move", id, f"migration/{id}")
    for id, note in index.plans.items():
        if note.seq <= at:
            look("plan", id, f"plan/{id}")
    rows = index.tracks["pods"].rows[index.tracks["pods"].versions_at(at)]
    for uid in dict.fromkeys(uid for uid, _ in _present(index, "holds", at)):
        name = index.labels.get(uid, uid)
        look("reservation", name, f"reservation/{name}")
    for column in ("workload", "queue", "podgroup"):
        for number in np.unique(rows[column]).tolist():
            if word := index.words[number]:
                look(column, word, f"{column}/{word}")
    found.sort(key=lambda one: (one[0], one[2]))
    return [{"kind": kind, "name": name, "path": path} for _, kind, name, path in found[:limit]]


def find(index: Index, path: str, at: int) -> dict[str, Any]:
    """The slot of `node/NAME`, `pod/NAMESPACE/NAME` (the one there is at that instant, else the last one of that name) or `migration/ID`; -1 for none. What
    else has a path, has no slot."""
    kind, _, name = path.partition("/")
    found = -1
    if kind == "node":
        found = index.tracks["nodes"].slots.get(name, -1)
    elif kind == "migration":
        found = index.tracks["moves"].slots.get(name, -1)
    elif kind == "pod":
        slots = index.tracks["pods"].slots
        named = [slots[uid] for uid, label in index.labels.items() if name in (label, uid) and uid in slots]
        there = {slots[uid] for uid in _present(index, "pods", at)}
        found = next((slot for slot in reversed(named) if slot in there), named[-1] if named else -1)
    return {"path": path, "kind": kind, "slot": found}


def _present(index: Index, kind: str, at: int) -> Iterable[Any]:
    track = index.tracks[kind]
    return [track.keys[slot] for slot in track.rows["slot"][track.versions_at(at)].tolist()]


def happened(source: Source, labels: dict[str, str], upto: int, count: int) -> list[dict[str, Any]]:
    """The last so many commits up to that one, the latest first, in sentences. Facts that nothing has changed (`synced`) are left out."""
    found: list[dict[str, Any]] = []
    for batch in source.batches(max(source.first, upto - count + 1), upto):
        for record in batch:
            for decision in decode_record(record, source.log_id):
                told = [event for event in decision.events if type(event).__name__ not in _SILENT]
                if told:
                    lines = [sentence(event, labels) for event in told[:LATEST_EVENTS]]
                    found.append(
                        {
                            "seq": record.seq, "time": time_of(record), "family": record.family, "command": command_text(decision.command),
                            "events": lines, "more": len(told) - len(lines),
                        }
                    )  # fmt: skip
    return found[::-1]


_SILENT = ("Synced", "ShapeDeclared")

__all__ = ["KINDS", "MOST_NAMES", "happened", "moment", "names", "plan", "plans", "search", "seq_at", "timeline"]
