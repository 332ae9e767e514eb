"""What moved: the moves that ended within so long before an instant, and those under way then."""

from __future__ import annotations

from typing import Any

import numpy as np

from restow.console.belts import UNDER_WAY
from restow.console.frames import seq_at, time_at
from restow.console.index import NOWHERE, STEPS, Index
from restow.console.tracks import GONE
from restow.domain.records import FINAL, Step

MOST = 500
"""Moves that are told, the latest."""
_FINAL = [STEPS.index(str(step)) for step in FINAL]
_EVICTED = STEPS.index(str(Step.EVICTED))
_BEGUN = STEPS.index(str(Step.HOLDING))


def moved(index: Index, at: int, within: int, limit: int = MOST) -> dict[str, Any]:
    """Of (the instant's time - `within`, the instant's time], in ms: how many moves ended how (`steps`), how many are under way, and the latest `limit` of both, those
    under way first. `since` is the last sequence before that, `before` when the last move ended by then (0 for none). Moves that the log has forgotten since count, too.
    Times in ms. `away`: from the decision that a pod had left to the one that its successor had landed; None of all others."""
    end = time_at(index, at)
    begin = end - within
    track = index.tracks["moves"]
    rows = track.rows[track.last_until(at)]
    ended = rows[np.isin(rows["step"], _FINAL) & (rows["since"] <= end)]
    recent = ended[ended["since"] > begin]
    now = rows[np.isin(rows["step"], list(UNDER_WAY))]
    steps, counts = np.unique(recent["step"], return_counts=True)
    told = [*now[np.argsort(-now["since"], kind="stable")], *recent[np.argsort(-recent["since"], kind="stable")]]
    before = ended["since"][ended["since"] <= begin]
    return {
        "at": at, "time": end, "from": begin, "since": seq_at(index, begin), "before": int(before.max()) if len(before) else 0,
        "steps": {STEPS[step]: count for step, count in zip(steps.tolist(), counts.tolist(), strict=True)},
        "underWay": len(now), "more": max(0, len(told) - limit), "moves": _told(index, told[:limit], at),
    }  # fmt: skip


def _told(index: Index, rows: list[Any], at: int) -> list[dict[str, Any]]:
    if not rows:
        return []
    track = index.tracks["moves"]
    changes = track.changes[: np.searchsorted(track.changes["seq"], at, side="right")]
    changes = changes[np.isin(changes["slot"], [row["slot"] for row in rows]) & (changes["version"] != GONE)]
    steps = track.rows["step"][changes["version"]]
    since = track.rows["since"][changes["version"]]
    begun, evicted, seqs, last = dict[int, int](), dict[int, int](), dict[int, int](), dict[int, int]()
    for seq, slot, step, time in zip(changes["seq"].tolist(), changes["slot"].tolist(), steps.tolist(), since.tolist(), strict=True):
        if step == _BEGUN:
            begun.setdefault(slot, int(time))
        elif step == _EVICTED:
            evicted[slot] = int(time)
        if last.get(slot) != step:
            last[slot], seqs[slot] = step, seq
    nodes, pods = index.tracks["nodes"].keys, index.tracks["pods"].keys

    def pod(slot: int) -> str:
        return "" if slot == NOWHERE else index.labels.get(pods[slot], pods[slot])

    def told(row: Any) -> dict[str, Any]:
        slot, time, step = int(row["slot"]), int(row["since"]), STEPS[row["step"]]
        away = time - evicted[slot] if step == Step.LANDED and slot in evicted else None
        return {
            "migration": track.keys[slot], "plan": index.words[row["plan"]], "pod": pod(row["pod"]), "successor": pod(row["successor"]),
            "source": nodes[row["source"]] if row["source"] != NOWHERE else "", "target": nodes[row["target"]] if row["target"] != NOWHERE else "",
            "step": step, "seq": seqs[slot], "since": time, "begun": begun.get(slot, 0), "away": away,
            "reason": index.words[row["reason"]], "message": index.words[row["message"]],
        }  # fmt: skip

    return [told(row) for row in rows]
