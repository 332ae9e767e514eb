"""A log that takes nothing and a decision that comes to no end: said, tried later and later, and never a loop."""

import asyncio
import os
import time

import pytest

from restow.contracts import events as e
from restow.eventlog.jetstream.connect import Failure, NotNow
from restow.eventlog.port import Unknown
from restow.runtime import offload
from restow.runtime.log_trouble import SILENT
from restow.runtime.offload import CopyFailed, in_copy

from .rig import cluster, facts, idle, memory, named, running, soon, until


def refusing(log, family, why="the broker's store is full", is_full=True, answered=False):
    """The log takes nothing of this family; `tried` grows with each attempt, and `append` comes back with `over()`."""
    append, tried = log.append, []

    async def full(of, body, envelope, *, expected_last):
        if of != family:
            return await append(of, body, envelope, expected_last=expected_last)
        tried.append(asyncio.get_running_loop().time())
        raise Unknown(of, envelope.id, why, full=is_full, answered=answered)

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
        assert rig.commander.trouble.why == "the broker's store is full"
        assert rig.commander.trouble.full
        over()
        rig.commander.trouble.retry()
        await soon(rig.bound.get())
        await idle()
        assert (rig.commander.trouble.why, rig.commander.trouble.full) == ("", False)
    assert len(await named(log, e.PodPlaced)) == 1


async def test_a_broker_that_says_itself_why_it_cannot_is_not_said_to_have_a_full_disk():
    """As one of three that is alone."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        why = str(NotNow("STREAM.MSG.GET.restow-main", Failure(503, 10008, "JetStream system temporarily unavailable")))
        tried, over = refusing(log, "session", why, is_full=False, answered=True)
        await cluster(log)
        await until(lambda: len(tried) > SILENT, rig.follower)
        assert rig.commander.trouble.why == "the broker cannot do STREAM.MSG.GET.restow-main now: JetStream system temporarily unavailable (error 10008): more than half of its brokers must be there"
        over()
        rig.commander.trouble.retry()
        await soon(rig.bound.get())


async def test_a_broker_that_is_silent_to_commits_alone_is_said_to_need_a_restart():
    """nats-server 2.15 whose disk was full answers no commit any more, whatever space there is by then, and calls itself well."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        _, over = refusing(log, "session", "no answer within 5 s", is_full=False)
        await cluster(log)
        await until(lambda: rig.commander.trouble.why.endswith("start the broker again"), rig.follower)
        assert rig.commander.trouble.why.startswith("no answer within 5 s, though it is read")
        over()
        rig.commander.trouble.retry()
        await soon(rig.bound.get())


async def test_what_need_not_be_said_any_more_leaves_nobody_unready():
    """The commit was for a pod; by the time that the log might take commits again the pod is gone."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        tried, _ = refusing(log, "session")
        await cluster(log)
        await until(lambda: len(tried) > 1, rig.follower)
        assert rig.commander.trouble.why
        await facts(log, e.PodGone("p0"))
        rig.commander.trouble.retry()
        await until(lambda: not rig.commander.trouble.why, rig.follower)


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


async def test_a_copy_that_takes_too_long_or_is_killed_is_told_from_one_that_fails(monkeypatch):
    # Of this one only: on a busy machine also the others may take that long.
    with monkeypatch.context() as patch:
        patch.setattr(offload, "LIMIT", 0.2)
        with pytest.raises(CopyFailed, match=r"it took over 0\.2 s"):
            await in_copy(lambda: time.sleep(60) or b"")
    with pytest.raises(CopyFailed, match="its process was killed, most likely for its memory"):
        await in_copy(die)
    with pytest.raises(RuntimeError, match="ZeroDivisionError") as failed:
        await in_copy(lambda: bytes(1 // 0))
    assert not isinstance(failed.value, CopyFailed)
    assert await in_copy(lambda: b"fine") == b"fine"


def die():
    os.kill(os.getpid(), 9)
