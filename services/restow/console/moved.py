"""What moved: the moves that ended within so long before an instant, and those under way then."""

from __future__ import annotations

from typing import Any

import numpy as np

from restow.console.belts import UNDER_WAY
from restow.console.frames import seq_at, time_at
from restow.console.index import LEFT, NOWHERE, STEPS, Index
from restow.console.tracks import GONE
from restow.domain.records import FINAL, Step

MOST = 500
"""Moves that are told, the latest."""
_FINAL = [STEPS.index(str(step)) for step in FINAL]
_LANDED = STEPS.index(str(Step.LANDED))


def moved(index: Index, at: int, within: int, limit: int = MOST) -> dict[str, Any]:
    """Of (the instant's time - `within`, the instant's time], in ms: how many moves ended how (`steps`), how many are under way, and the latest `limit` of both, those
    under way first. `since` is the last sequence before that, `before` when the last move ended by then (0 for none). Moves that the log has forgotten since count, too.
    Times in ms, of the log: a move counts from the commit that ended it, whatever the descheduler's clock said. `away`: from when a pod that landed was gone or terminated until its successor was ready, by what was seen of both; None of all others, and where it is not known."""
    end = time_at(index, at)
    begin = end - within
    track = index.tracks["moves"]
    rows = track.rows[track.last_until(at)]
    seqs = _seqs(index, at)
    ended = rows[np.isin(rows["step"], _FINAL)]
    times = _times(index, ended, seqs)
    recent = ended[times > begin]
    now = rows[np.isin(rows["step"], list(UNDER_WAY))]
    steps, counts = np.unique(recent["step"], return_counts=True)
    told = [*now[np.argsort(-_times(index, now, seqs), kind="stable")], *recent[np.argsort(-times[times > begin], kind="stable")]]
    before = times[times <= begin]
    return {
        "at": at, "time": end, "from": begin, "since": seq_at(index, begin), "before": int(before.max()) if len(before) else 0,
        "steps": {STEPS[step]: count for step, count in zip(steps.tolist(), counts.tolist(), strict=True)},
        "underWay": len(now), "more": max(0, len(told) - limit), "moves": _told(index, told[:limit], at, seqs),
    }  # fmt: skip


def _seqs(index: Index, at: int) -> np.ndarray:
    """`(moves,) int64`: since which sequence each is in the step in which it was last seen; 0 for not seen yet."""
    track = index.tracks["moves"]
    changes = track.until(at)
    changes = changes[changes["version"] != GONE]
    changes = changes[np.argsort(changes["slot"], kind="stable")]
    slots, steps = changes["slot"], track.rows["step"][changes["version"]]
    another = np.ones(len(changes), bool)
    another[1:] = (slots[1:] != slots[:-1]) | (steps[1:] != steps[:-1])
    begun = np.maximum.accumulate(np.where(another, np.arange(len(changes)), 0))
    found = np.zeros(len(track.keys), np.int64)
    # Of each the last: numpy's assignment keeps the last value.
    found[slots] = changes["seq"][begun]
    return found


def _times(index: Index, rows: np.ndarray, seqs: np.ndarray) -> np.ndarray:
    """`(rows,) int64`: when that was; of what a snapshot had with which the log begins, by its own word."""
    if not len(rows):
        return np.zeros(0, np.int64)
    own = seqs[rows["slot"]]
    return np.where((own <= index.first) & index.from_snapshot, rows["since"].astype(np.int64), index.commits["time"][own - index.first])


def _told(index: Index, rows: list[Any], at: int, seqs: np.ndarray) -> list[dict[str, Any]]:
    if not rows:
        return []
    track = index.tracks["moves"]
    since = dict(zip((int(row["slot"]) for row in rows), _times(index, np.array(rows, track.rows.dtype), seqs).tolist(), strict=True))
    away = _away(index, rows, at)
    nodes, pods = index.tracks["nodes"].keys, index.tracks["pods"].keys

    def pod(slot: int) -> str:
        return "" if slot == NOWHERE else index.labels.get(pods[slot], pods[slot])

    def told(row: Any) -> dict[str, Any]:
        slot, step = int(row["slot"]), STEPS[row["step"]]
        return {
            "migration": track.keys[slot], "plan": index.words[row["plan"]], "pod": pod(row["pod"]), "successor": pod(row["successor"]),
            "source": nodes[row["source"]] if row["source"] != NOWHERE else "", "target": nodes[row["target"]] if row["target"] != NOWHERE else "",
            "step": step, "seq": int(seqs[slot]), "since": since[slot], "away": away.get(slot),
            "reason": index.words[row["reason"]], "message": index.words[row["message"]],
        }  # fmt: skip

    return [told(row) for row in rows]


def _away(index: Index, rows: list[Any], at: int) -> dict[int, int]:
    """By slot, in ms, of those that have landed. When the descheduler came to it says nothing: while it fails over or is behind it says late that a pod has left, or has landed."""
    landed = [(int(row["slot"]), int(row["pod"]), int(row["successor"])) for row in rows if row["step"] == _LANDED]
    track = index.tracks["pods"]
    changes = track.until(at)
    changes = changes[np.isin(changes["slot"], [one for _, *both in landed for one in both if one != NOWHERE])]
    seen, gone = track.rows[changes["version"]], changes["version"] == GONE
    left, ready = dict[int, int](), dict[int, int]()
    for seq, slot, has_left, is_ready in zip(changes["seq"].tolist(), changes["slot"].tolist(), (gone | np.isin(seen["status"], LEFT)).tolist(), seen["ready"].tolist(), strict=True):
        if has_left:
            left.setdefault(slot, seq)
        elif is_ready:
            ready.setdefault(slot, seq)
    # One that terminated before the log begins did so at a time that nobody knows.
    known = {pod: seq for pod, seq in left.items() if seq > index.first or not index.from_snapshot}
    return {slot: max(0, time_at(index, ready[successor]) - time_at(index, known[pod])) for slot, pod, successor in landed if pod in known and successor in ready}
