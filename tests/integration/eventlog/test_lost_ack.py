"""An append whose answer is lost: found by its id, or decided again, never repeated blindly (DESIGN 2)."""

import asyncio

import pytest

from restow.eventlog.port import Closed, Conflict, Unknown
from restow.eventlog.testing import envelope

from .helpers import BODY, take, until


async def test_a_stored_commit_whose_ack_was_lost_is_found_by_its_id(wire, opened, cluster):
    log = await opened(wire.url, cluster, append_timeout=0.3)
    assert await log.append("session", BODY, envelope(), expected_last=0) == 1
    wire.deaf = True
    with pytest.raises(Unknown) as unknown:
        await log.append("session", BODY, envelope("lost"), expected_last=1)
    assert unknown.value.ce_id == "lost"
    wire.cut()
    await until(lambda: log.broker.losses and log.connected)
    tail = await log.tail()
    assert tail == 2
    assert "lost" in [record.envelope.id for record in await take(log, 1, tail)]
    assert await log.append("session", BODY, envelope(), expected_last=2) == 3


async def test_a_commit_that_never_arrived_is_not_there(wire, opened, cluster):
    log = await opened(wire.url, cluster, append_timeout=0.3)
    assert await log.append("session", BODY, envelope(), expected_last=0) == 1
    wire.mute = True
    with pytest.raises(Unknown):
        await log.append("session", BODY, envelope("lost"), expected_last=1)
    wire.cut()
    await until(lambda: log.broker.losses and log.connected)
    assert await log.tail() == 1
    assert await log.append("session", BODY, envelope("again"), expected_last=1) == 2
    assert [record.envelope.id for record in await take(log, 2, 2)] == ["again"]


async def test_a_lost_connection_ends_the_append_at_once(wire, opened, cluster):
    log = await opened(wire.url, cluster, append_timeout=60.0)
    wire.deaf = True
    append = asyncio.create_task(log.append("session", BODY, envelope(), expected_last=0))
    await asyncio.sleep(0.1)
    wire.cut()
    async with asyncio.timeout(20):
        with pytest.raises(Unknown, match="connection to the broker was lost"):
            await append


async def test_an_append_without_connection_is_unknown_at_once(own_server, opened, cluster):
    log = await opened(own_server.url, cluster, append_timeout=60.0)
    own_server.kill()
    await until(lambda: not log.connected)
    async with asyncio.timeout(20):
        with pytest.raises(Unknown, match="not connected"):
            await log.append("session", BODY, envelope(), expected_last=0)


async def test_a_closed_log_no_longer_looks_for_the_broker_even_if_it_was_cancelled_just_when_an_attempt_failed(own_server, opened, cluster):
    log = await opened(own_server.url, cluster)
    client, forgotten = log.broker.client, []

    async def select():
        while True:
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                # As `asyncio.wait_for` of Python 3.11 does, where what it waits for has just failed.
                forgotten.append(True)
                if len(forgotten) > 2:
                    raise

    client._select_next_server = select
    own_server.kill()
    await until(lambda: not log.connected)
    task = client._reconnection_task
    await asyncio.sleep(0.05)
    await log.close()
    assert task.done()
    assert len(forgotten) == 3


async def test_a_late_arrival_loses_against_what_was_decided_meanwhile(wire, nats_server, opened, cluster):
    slow, quick = await opened(wire.url, cluster, append_timeout=0.2), await opened(nats_server.url, cluster)
    wire.mute = True
    with pytest.raises(Unknown):
        await slow.append("session", BODY, envelope("late"), expected_last=0)
    assert await quick.append("session", BODY, envelope("quick"), expected_last=0) == 1
    wire.mute = False
    with pytest.raises(Conflict):
        await quick.append("session", BODY, envelope("late"), expected_last=0)


async def test_waiting_for_the_broker_ends_when_it_is_back_or_the_log_is_closed(own_server, opened, cluster):
    log = await opened(own_server.url, cluster)
    await log.wait_connected()
    own_server.kill()
    await until(lambda: not log.connected)
    waiting = [asyncio.create_task(log.wait_connected()) for _ in range(2)]
    await asyncio.sleep(0.05)
    assert not any(task.done() for task in waiting)
    await own_server.start_async()
    await asyncio.wait_for(asyncio.gather(*waiting), 5)
    own_server.kill()
    await until(lambda: not log.connected)
    waiting = asyncio.create_task(log.wait_connected())
    reading = asyncio.create_task(anext(log.read(1)))
    await asyncio.sleep(0.05)
    await log.close()
    for task in (waiting, reading):
        with pytest.raises(Closed):
            await asyncio.wait_for(task, 5)
