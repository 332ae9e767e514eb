"""What each queue used, and how many of its pods waited, over the log's time: read off the index."""

from __future__ import annotations

from bisect import bisect_right
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from restow.console.frames import seq_at, time_at
from restow.console.index import Index, Level
from restow.console.tracks import GONE
from restow.domain.resources import GPU_MILLI, MEMORY
from restow.replay.pod_status import STATUSES

MOST_STEPS = 400
MOST_QUEUES = 50
"""Queues that are told apart: those that have used or waited for most."""
_OVER = [STATUSES.index(status) for status in ("Succeeded", "Failed")]
_WAIT = [STATUSES.index(status) for status in ("Pending", "Waiting", "Gated", "Nominated")]
_RESOURCES = (("devices", "asked"), ("cpu", "cpu"), ("memory", "memory"))
_LEVELS = (("devices", GPU_MILLI), ("cpu", "cpu"), ("memory", MEMORY))
WAITING = "waiting"
_MOST = 2.0**50
"""Of one pod: whoever asks for more runs nowhere, and sums stay whole numbers."""


def shares(index: Index, at: int, steps: int, lock: AbstractContextManager[Any] | None = None) -> dict[str, Any]:
    """At so many instants, evenly spread from the log's beginning until sequence `at`: by queue what its pods on nodes request (`devices` and `cpu` in thousandths, `memory` in bytes), and how many
    pods wait for a node (`waiting`); and its `levels`: what was said of it then as `guarantee`, `deserved` and `capability` of each, None where nothing was, or where a plugin works out what it deserves. Pods that Restow does not place are in no queue. The `lock` of the index is held only until it is clear what is looked at: what there is stays as it is, and
    everybody else waits for it."""
    with lock or nullcontext():
        begin, end = index.began, time_at(index, at)
        times = [begin + (end - begin) * (i + 1) // steps for i in range(steps)] if steps > 1 else [end]
        seqs = np.array([*(min(seq_at(index, time), at) for time in times[:-1]), at], np.int64)
        changes, rows, words = index.tracks["pods"].changes, index.tracks["pods"].rows, index.words
        levels, worked_out = list(index.levels), list(index.worked_out)
    named, sums = _sums(changes, rows, at, np.maximum.accumulate(seqs))
    found = {words[queue]: {name: sums[name][place].tolist() for name in sums} for place, queue in enumerate(named.tolist())}
    found = {queue: series for queue, series in found.items() if any(any(values) for values in series.values())}
    kept = sorted(found, key=lambda name: (-max(found[name]["devices"]), -max(found[name]["cpu"]), -max(found[name][WAITING]), name))[:MOST_QUEUES]
    told = {name: found[name] | {"levels": _levels([one for one in levels if one.queue == name], worked_out, seqs.tolist())} for name in sorted(kept)}
    return {"times": times, "queues": told, "queuesInAll": len(found)}


def _levels(said: list[Level], worked_out: list[tuple[int, bool]], seqs: list[int]) -> dict[str, dict[str, list[int | None]]]:
    """By what and by resource, of one queue; without those that are never there."""
    found: dict[str, dict[str, list[int | None]]] = {}
    at = [said[place - 1] if (place := bisect_right(said, seq, key=lambda one: one.seq)) else None for seq in seqs]
    plugin = [worked_out[bisect_right(worked_out, seq, key=lambda one: one[0]) - 1][1] for seq in seqs]
    for what in ("guarantee", "deserved", "capability"):
        for name, resource in _LEVELS:
            values = [None if level is None or (what == "deserved" and hidden) else getattr(level, what).get(resource) for level, hidden in zip(at, plugin, strict=True)]
            if any(value is not None for value in values):
                found.setdefault(what, {})[name] = values
    return found


def _sums(changes: np.ndarray, rows: np.ndarray, at: int, seqs: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The words of queues, and by name `(queues, steps) int64`. Each change counts from the first step on that is not before it: what there is from then on is added, and what there was until then is
    taken away. So the work grows with the changes alone, and not with steps times pods."""
    changes = changes[: int(np.searchsorted(changes["seq"], at, side="right"))]
    changes = changes[np.argsort(changes["slot"], kind="stable")]
    slot, version = changes["slot"], changes["version"]
    before = np.full(len(version), GONE, np.int64)
    before[1:] = np.where(slot[1:] == slot[:-1], version[:-1], GONE)
    step = np.searchsorted(seqs, changes["seq"], side="left")
    named = np.unique(rows["queue"])
    named = named[named > 0]
    sums = {name: np.zeros((len(named), len(seqs)), np.int64) for name in (*(name for name, _ in _RESOURCES), WAITING)}
    for sign, versions in ((1, version), (-1, before)):
        for mask, columns in ((True, _RESOURCES), (False, ())):
            some = _those(rows, versions, placed=mask)
            where = np.searchsorted(named, rows["queue"][versions[some]]), step[some]
            for name, column in columns:
                np.add.at(sums[name], where, sign * np.minimum(rows[column][versions[some]], _MOST).astype(np.int64))
            if not columns:
                np.add.at(sums[WAITING], where, sign)
    return named, {name: np.cumsum(values, axis=1) for name, values in sums.items()}


def _those(rows: np.ndarray, versions: np.ndarray, *, placed: bool) -> np.ndarray:
    """Places of versions of pods that are in a queue and on a node, or wait for one."""
    there = np.flatnonzero(versions != GONE)
    of = versions[there]
    status = rows["status"][of]
    counts = (rows["node"][of] >= 0) & ~np.isin(status, _OVER) if placed else (rows["node"][of] < 0) & np.isin(status, _WAIT)
    return there[counts & (rows["queue"][of] > 0)]
