"""A log that takes nothing and a decision that comes to no end: said, tried later and later, and never a loop."""

import asyncio
import os
import time

import pytest
from domain.build import NOW

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain.decider import Rejected
from restow.eventlog.port import Unknown
from restow.runtime import commander, offload
from restow.runtime.offload import CopyFailed, in_copy

from .rig import CountingDecider, cluster, facts, idle, memory, named, running, soon, until


def refusing(log, family, why="the broker's store is full"):
    """The log takes nothing of this family; `tried` grows with each attempt, and `append` comes back with `over()`."""
    append, tried = log.append, []

    async def full(of, body, envelope, *, expected_last):
        if of != family:
            return await append(of, body, envelope, expected_last=expected_last)
        tried.append(asyncio.get_running_loop().time())
        raise Unknown(of, envelope.id, why, full=True)

    log.append = full

    def over():
        log.append = append

    return tried, over


async def test_a_log_that_is_full_is_asked_a_few_times_and_not_thousands_and_the_service_says_why_it_waits():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        tried, over = refusing(log, "session")
        await cluster(log)
        await asyncio.sleep(0.3)
        assert 2 <= len(tried) <= 4
        assert rig.commander.stuck == "the broker's store is full"
        assert rig.commander.full
        over()
        rig.commander.retry()
        await soon(rig.bound.get())
        assert (rig.commander.stuck, rig.commander.full) == ("", False)
    assert len(await named(log, e.PodPlaced)) == 1


async def test_what_need_not_be_said_any_more_leaves_nobody_unready():
    """The commit was for a pod; by the time that the log might take commits again the pod is gone."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        tried, _ = refusing(log, "session")
        await cluster(log)
        await until(lambda: len(tried) > 1, rig.follower)
        assert rig.commander.stuck
        await facts(log, e.PodGone("p0"))
        rig.commander.retry()
        await until(lambda: not rig.commander.stuck, rig.follower)


async def test_a_service_that_stops_does_not_wait_for_a_full_log():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        tried, _ = refusing(log, "session")
        await cluster(log)
        await until(lambda: len(tried) > 2, rig.follower)
        rig.commander.drain()
        await soon(rig.tasks[1])


# -- a decision that comes to no end ------------------------------------------------------------------------------------------


class Endless(CountingDecider):
    """Has something heavy due by itself, for ever, and beside it whatever the session has."""

    def due(self, state, now):
        return c.Schedule(now) if state.queue else c.RefuseBind(now, "nobody", "n0", "no")

    def deadline(self, state):
        return NOW


def failing(monkeypatch):
    asked = []

    async def killed(work):
        asked.append(work)
        raise CopyFailed("its process was killed, most likely for its memory")

    monkeypatch.setattr(commander, "in_copy", killed)
    monkeypatch.setattr(commander, "MANY", 0)
    return asked


async def test_a_heavy_decision_that_was_killed_is_tried_later_and_everything_else_goes_on(monkeypatch):
    asked, log = failing(monkeypatch), memory()
    async with running(log, decider=Endless()) as rig:
        rig.commander._heavy = (c.RefuseBind,)
        await rig.lead()
        await until(lambda: asked, rig.follower)
        await idle(500)
        assert len(asked) == 1
        assert rig.commander.gave_up == (
            "refuse_bind came to no end (its process was killed, most likely for its memory); it is tried again in 1 min"
        )
        await cluster(log)
        assert (await soon(rig.bound.get())).pod == "p0"
        assert len(asked) == 1
        for minute in range(1, 7):
            rig.clock.advance(60_000)
            await idle(100)
            assert len(asked) == (2 if minute < 6 else 3), "after one minute, then after five"


async def test_whoever_asked_for_a_decision_that_came_to_no_end_is_told_why(monkeypatch):
    asked, log = failing(monkeypatch), memory()
    async with running(log) as rig:
        rig.commander._heavy = (c.RefuseBind,)
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        with pytest.raises(Rejected, match=r"refuse_bind came to no end: its process was killed, .* Ask for less"):
            await soon(rig.commander.submit(c.RefuseBind(NOW, "p0", "n0", "no")))
        await idle(200)
        assert len(asked) == 1
        assert rig.commander.gave_up == ""


async def test_a_copy_that_takes_too_long_or_is_killed_is_told_from_one_that_fails(monkeypatch):
    monkeypatch.setattr(offload, "LIMIT", 0.2)
    with pytest.raises(CopyFailed, match=r"it took over 0\.2 s"):
        await in_copy(lambda: time.sleep(5) or b"")
    with pytest.raises(CopyFailed, match="its process was killed, most likely for its memory"):
        await in_copy(die)
    with pytest.raises(RuntimeError, match="ZeroDivisionError") as failed:
        await in_copy(lambda: bytes(1 // 0))
    assert not isinstance(failed.value, CopyFailed)
    assert await in_copy(lambda: b"fine") == b"fine"


def die():
    os.kill(os.getpid(), 9)
