"""What each queue used, and how many of its pods waited, over the log's time: read off the index."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np

from restow.console.frames import seq_at, time_at
from restow.console.index import USED, WAITS, Index, Level
from restow.console.tracks import GONE
from restow.domain.session.statuses.queue_status import ancestors

MOST_STEPS = 400
MOST_QUEUES = 50
"""Queues that are told apart: those that have used or waited for most."""
WAITING = "waiting"


def shares(index: Index, at: int, steps: int, lock: AbstractContextManager[Any] | None = None) -> dict[str, Any]:
    """At so many instants, evenly spread from the log's beginning until sequence `at`: by queue what it uses, as it is accounted (`devices` and `cpu` in thousandths, `memory` in bytes): its pods on nodes that do not
    terminate, and slots that Reservations hold, with those of the queues below it; and how many of its own pods wait for a node (`waiting`); and its `levels`: what was said of it then as `guarantee`, `deserved` and `capability`
    of each, None where nothing was, or where a plugin works out what it deserves. Pods that Restow does not place are in no queue. The `lock` of the index is held only until it is clear what is looked at:
    what there is stays as it is, and everybody else waits for it."""
    with lock or nullcontext():
        begin, end = index.began, time_at(index, at)
        times = [begin + (end - begin) * (i + 1) // steps for i in range(steps)] if steps > 1 else [end]
        seqs = np.maximum.accumulate(np.array([*(min(seq_at(index, time), at) for time in times[:-1]), at], np.int64))
        changes, rows, words, used = index.tracks["pods"].until(at), index.tracks["pods"].rows, index.words, index.used
        levels, worked_out = list(index.levels), list(index.worked_out)
    by_queue = defaultdict[str, list[Level]](list)
    for level in levels:
        by_queue[level.queue].append(level)
    sums = _with_those_below(_used(used, words, seqs), by_queue, seqs)
    waits = _waiting(changes, rows, words, seqs)
    found = {
        queue: {name: values.tolist() for name, values in zip((*USED, WAITING), (*sums.get(queue, nobody), waits.get(queue, nobody[0])), strict=True)}
        for queue in {*sums, *waits} for nobody in [np.zeros((len(USED), steps), np.int64)]
    }  # fmt: skip
    found = {queue: series for queue, series in found.items() if any(any(values) for values in series.values())}
    kept = sorted(found, key=lambda name: (-max(found[name]["devices"]), -max(found[name]["cpu"]), -max(found[name][WAITING]), name))[:MOST_QUEUES]
    told = {name: found[name] | {"levels": _levels(by_queue[name], worked_out, seqs.tolist())} for name in sorted(kept)}
    return {"times": times, "queues": told, "queuesInAll": len(found)}


def _used(used: np.ndarray, words: list[str], seqs: np.ndarray) -> dict[str, np.ndarray]:
    """By queue `(resources, steps) int64`: what is accounted to it alone."""
    found = {}
    used = used[np.argsort(used["queue"], kind="stable")]
    for of in np.split(used, np.flatnonzero(np.diff(used["queue"])) + 1):
        if len(of):
            place = np.searchsorted(of["seq"], seqs, side="right")
            found[words[int(of["queue"][0])]] = np.stack([np.concatenate(([0], of[name]))[place] for name in USED])
    return found


def _with_those_below(own: dict[str, np.ndarray], levels: dict[str, list[Level]], seqs: np.ndarray) -> dict[str, np.ndarray]:
    """The same with what the queues below each use, by which one was below which at each step."""
    sums = {queue: values.copy() for queue, values in own.items()}
    at = {queue: [bisect_right(said, seq, key=lambda one: one.seq) for seq in seqs.tolist()] for queue, said in levels.items() if any(one.parent for one in said)}
    # As long as nobody says anything else, the steps are alike.
    same = (np.flatnonzero(np.diff(np.array(list(at.values()), np.int64), axis=1).any(axis=0)) + 1).tolist() if at else list[int]()
    for part in np.split(np.arange(len(seqs)), same):
        parents = defaultdict(str, {queue: levels[queue][place - 1].parent for queue, places in at.items() if (place := places[part[0]])})
        for queue in own:
            for over in ancestors(parents.__getitem__, queue):
                sums.setdefault(over, np.zeros((len(USED), len(seqs)), np.int64))[:, part] += own[queue][:, part]
    return sums


def _levels(said: list[Level], worked_out: list[tuple[int, bool]], seqs: list[int]) -> dict[str, dict[str, list[int | None]]]:
    """By what and by resource, of one queue; without those that are never there."""
    found: dict[str, dict[str, list[int | None]]] = {}
    at = [said[place - 1] if (place := bisect_right(said, seq, key=lambda one: one.seq)) else None for seq in seqs]
    plugin = [worked_out[bisect_right(worked_out, seq, key=lambda one: one[0]) - 1][1] for seq in seqs]
    for what in ("guarantee", "deserved", "capability"):
        for name, resource in USED.items():
            values = [None if level is None or (what == "deserved" and hidden) else getattr(level, what).get(resource) for level, hidden in zip(at, plugin, strict=True)]
            if any(value is not None for value in values):
                found.setdefault(what, {})[name] = values
    return found


def _waiting(changes: np.ndarray, rows: np.ndarray, words: list[str], seqs: np.ndarray) -> dict[str, np.ndarray]:
    """By queue `(steps,) int64`. Each change counts from the first step on that is not before it: who waits from then on is added, and who waited until then is taken away. So the work grows with the
    changes alone, and not with steps times pods."""
    changes = changes[np.argsort(changes["slot"], kind="stable")]
    slot, version = changes["slot"], changes["version"]
    before = np.full(len(version), GONE, np.int64)
    before[1:] = np.where(slot[1:] == slot[:-1], version[:-1], GONE)
    step = np.searchsorted(seqs, changes["seq"], side="left")
    named = np.unique(rows["queue"])
    named = named[named > 0]
    waits = np.zeros((len(named), len(seqs)), np.int64)
    for sign, versions in ((1, version), (-1, before)):
        there = np.flatnonzero(versions != GONE)
        of = rows[versions[there]]
        some = (of["node"] < 0) & np.isin(of["status"], WAITS) & (of["queue"] > 0)
        np.add.at(waits, (np.searchsorted(named, of["queue"][some]), step[there[some]]), sign)
    return dict(zip((words[queue] for queue in named.tolist()), np.cumsum(waits, axis=1), strict=True))
