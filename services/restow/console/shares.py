"""What each queue used, and how many of its pods waited, over the log's time: read off the index."""

from __future__ import annotations

from typing import Any

import numpy as np

from restow.console.frames import seq_at, time_at
from restow.console.index import Index
from restow.replay.pod_status import STATUSES

MOST_STEPS = 400
MOST_QUEUES = 50
"""Queues that are told apart: those that have used or waited for most."""
_OVER = [STATUSES.index(status) for status in ("Succeeded", "Failed")]
_WAIT = [STATUSES.index(status) for status in ("Pending", "Waiting", "Gated", "Nominated")]
_RESOURCES = ("devices", "cpu", "memory")


def shares(index: Index, at: int, steps: int) -> dict[str, Any]:
    """At so many instants, evenly spread from the log's beginning until sequence `at`: by queue what its pods on nodes request (`devices` and `cpu` in thousandths, `memory` in bytes), and how many
    pods wait for a node (`waiting`). Pods that Restow does not place are in no queue."""
    begin, end = index.began, time_at(index, at)
    times = [begin + (end - begin) * (i + 1) // steps for i in range(steps)] if steps > 1 else [end]
    found: dict[str, dict[str, list[float]]] = {}
    last, sums = 0, dict[int, dict[str, float]]()
    for i, time in enumerate(times):
        seq = min(seq_at(index, time), at) if i < len(times) - 1 else at
        if seq != last:
            last, sums = seq, _sums(index, seq)
        for queue, amounts in sums.items():
            series = found.setdefault(index.words[queue], {name: [0.0] * steps for name in (*_RESOURCES, "waiting")})
            for name, amount in amounts.items():
                series[name][i] = amount
    kept = sorted(found, key=lambda name: (-max(found[name]["devices"]), -max(found[name]["cpu"]), -max(found[name]["waiting"]), name))[:MOST_QUEUES]
    return {"times": times, "queues": {name: found[name] for name in sorted(kept)}, "queuesInAll": len(found)}


def _sums(index: Index, seq: int) -> dict[int, dict[str, float]]:
    """By the word of a queue."""
    track = index.tracks["pods"]
    rows = track.rows[track.versions_at(seq)]
    rows = rows[(rows["queue"] > 0) & ~np.isin(rows["status"], _OVER)]
    if not len(rows):
        return {}
    on = rows["node"] >= 0
    queues, place = np.unique(rows["queue"], return_inverse=True)
    used = {name: np.bincount(place[on], rows[column][on], len(queues)) for name, column in (("devices", "asked"), ("cpu", "cpu"), ("memory", "memory"))}
    used["waiting"] = np.bincount(place[~on & np.isin(rows["status"], _WAIT)], minlength=len(queues)).astype(float)
    return {int(queue): {name: float(values[i]) for name, values in used.items()} for i, queue in enumerate(queues.tolist())}
