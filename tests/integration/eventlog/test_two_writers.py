"""Two writers of one family: the log decides, whatever leases say (DESIGN 2, Leadership)."""

import asyncio
import os
import signal
import sys

import pytest

from restow.eventlog.port import Conflict, LogMismatch, Record
from restow.eventlog.testing import envelope

from .helpers import BODY, take

WRITER = """
import asyncio, sys
from restow.eventlog.jetstream import connect
from restow.eventlog.port import Conflict, LogMismatch, Record
from restow.eventlog.testing import envelope

async def main(url, cluster):
    log = await connect(url, cluster)
    last = await log.last_of("session")
    print("decided", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        print("stored", await log.append("session", b"{}", envelope("paused"), expected_last=last), flush=True)
    except Conflict:
        print("conflict", flush=True)
    await log.close()

asyncio.run(main(*sys.argv[1:]))
"""


async def test_two_racing_writers_never_share_a_place(nats_server, opened, cluster):
    won = {}

    async def writer(name):
        log = await opened(nats_server.url, cluster)
        wins = 0
        while wins < 50:
            last = await log.last_of("session")
            try:
                seq = await log.append("session", BODY, envelope(f"{name}-{wins}"), expected_last=last)
            except Conflict:
                continue
            assert seq not in won
            won[seq] = f"{name}-{wins}"
            wins += 1

    async with asyncio.timeout(60):
        await asyncio.gather(writer("a"), writer("b"))
    assert sorted(won) == list(range(1, 101))
    log = await opened(nats_server.url, cluster)
    assert {record.seq: record.envelope.id for record in await take(log, 1, 100)} == won


async def test_a_paused_leader_that_wakes_up_gets_a_conflict(nats_server, opened, cluster):
    log = await opened(nats_server.url, cluster)
    first = await log.append("session", BODY, envelope(), expected_last=0)
    old = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, nats_server.url, cluster, stdin=-1, stdout=-1
    )
    try:
        async with asyncio.timeout(60):
            assert await old.stdout.readline() == b"decided\n"
            os.kill(old.pid, signal.SIGSTOP)
            old.stdin.write(b"go\n")
            await old.stdin.drain()
            second = await log.append("session", BODY, envelope("new leader"), expected_last=first)
            os.kill(old.pid, signal.SIGCONT)
            assert await old.stdout.readline() == b"conflict\n"
            await old.communicate()
    finally:
        if old.returncode is None:
            old.kill()
            await old.communicate()
    assert await log.tail() == second


async def test_a_conflict_names_the_place_that_was_taken(nats_server, opened, cluster):
    log = await opened(nats_server.url, cluster)
    await log.append("session", BODY, envelope(), expected_last=0)
    with pytest.raises(Conflict) as conflict:
        await log.append("session", BODY, envelope(), expected_last=0)
    assert conflict.value.actual == 1


@pytest.mark.parametrize("family", ["session", "cluster"])
async def test_an_import_that_is_disturbed_fails_instead_of_mixing_histories(nats_server, opened, cluster, family):
    log, other = await opened(nats_server.url, cluster), await opened(nats_server.url, cluster)

    async def records():
        for seq in range(1, 201):
            if seq == 100:
                await until_stored(99)
                await other.append(family, BODY, envelope("foreign"), expected_last=await other.last_of(family))
            yield Record(seq, "session", envelope(), BODY, 0)

    async def until_stored(seq):
        while await other.tail() < seq:
            await asyncio.sleep(0.002)

    with pytest.raises((Conflict, LogMismatch)):
        await log.bulk_append(records())
    stored = await take(log, 1, 100)
    assert [r.envelope.id for r in stored].index("foreign") == 99
