"""A service that meets what only a later release understands stands by, and leaves the lead to one of that release."""

import asyncio

import pytest
from domain.build import node, pod

from restow.contracts import reader
from restow.contracts.reader import READER
from restow.domain import too_old
from restow.eventlog.jetstream import connect
from restow.eventlog.testing import running_server, unique_cluster
from restow.kubesim.testing import kubesim
from restow.runtime.leadership import Deposed
from restow.scheduler_session.service import service as scheduler_session

from .rig import cluster, facts, history, idle, memory, running, soon
from .test_services import service

LATER = "9.0.0+0123456789ab"


async def say(log, *events):
    """One commit by the cluster watcher of a later release."""
    await facts(log, *events, release=LATER, reader=READER + 1)


async def test_every_commit_says_which_reader_it_needs():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
    seen = []
    async for batch in log.read(1):
        seen += [record.envelope.reader for record in batch if record.family == "session"]
        break
    assert seen
    assert set(seen) == {reader.needed(())}


async def test_a_leader_that_meets_what_it_does_not_understand_decides_nothing_on_it_and_ends():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        before = len(await history(log))
        await say(log, node("n0"), pod("p0"))
        with pytest.raises(Deposed, match=f"record 2, written by {LATER.replace('+', '.')}, needs reader {READER + 1}"):
            await soon(asyncio.shield(rig.tasks[0]))
        await idle()
        assert len(await history(log)) == before


async def test_who_is_too_old_does_not_take_the_lead():
    log = memory()
    await say(log, node("n0"))
    async with running(log) as rig:
        await soon(rig.follower.known.wait())
        rig.leadership.claim()
        with pytest.raises(Deposed, match=too_old.TOO_OLD):
            rig.leadership.check(rig.state)
        await idle()
        assert not await history(log)


@pytest.mark.parametrize("lease", ["off", "on"])
async def test_a_service_that_is_too_old_is_not_ready_says_what_to_run_and_leaves_the_lease_to_one_that_is_not(lease, monkeypatch):
    name = unique_cluster()
    with running_server() as broker:
        log = await connect(broker.url, name, create=True)
        await say(log, node("n0"))
        async with kubesim() as kube, service(scheduler_session(), broker, name, kube, lease=lease, identity="old") as old:
            await old.until(lambda state: state.seq == 1)
            async with asyncio.timeout(30):
                while (said := await old.get("/readyz"))[0] == 200 or too_old.TOO_OLD not in str(said[1]):
                    await asyncio.sleep(0.02)
            assert f"written by {LATER}" in str(said[1])
            assert await log.last_of("session") == 0
            monkeypatch.setattr(too_old, "READER", READER + 1)
            async with service(scheduler_session(), broker, name, kube, lease=lease, identity="new") as new:
                await new.leading()
                assert not old.task.done()
        await log.close()
