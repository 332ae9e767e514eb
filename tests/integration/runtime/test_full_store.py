"""A store that is really full: the collector can always free capacity, for some is held back, and it finds out by itself."""

import asyncio
import os

import pytest
from domain.build import node

from restow.eventlog import jetstream
from restow.eventlog.archive import open_archive
from restow.eventlog.port import Full, Unknown
from restow.eventlog.server import NatsServer
from restow.eventlog.snapshots import Snapshot
from restow.garbage_collector import snapshot_keeper

from .rig import facts
from .test_keeper import collecting

MIB = 1 << 20


@pytest.fixture
def small_broker(tmp_path):
    """A broker whose store takes 6 MB."""
    folder = tmp_path / "nats"
    store = f'jetstream {{ store_dir: "{folder / "store"}", max_file_store: 6MB }}'
    with NatsServer(folder, jetstream=False, extra=store) as server:
        yield server


@pytest.fixture
async def log(small_broker):
    one = await jetstream.connect(small_broker.url, "full")
    yield one
    await one.close()


@pytest.fixture(autouse=True)
def small_reserve(monkeypatch):
    monkeypatch.setattr(snapshot_keeper, "RESERVE", MIB)
    monkeypatch.setattr(snapshot_keeper, "RESERVE_FROM", 1)



async def fill(log):
    """Facts of 200 KB each, then smaller and smaller ones, until the store takes no more."""
    for size in (200_000, 20_000, 1_000):
        for number in range(10_000):
            if not await takes(log, node(f"n{number % 10}", labels={"large": str(number) * (size // len(str(number)))})):
                break


async def takes(log, fact):
    """Whether the store has capacity for it."""
    try:
        await facts(log, fact)
    except Unknown as error:
        return not error.full
    return True


async def takes_more(log):
    return await takes(log, node("another"))


async def test_a_full_store_of_which_nothing_is_covered_yet_is_helped_by_what_was_held_back(tmp_path, log):
    async with collecting(log, tmp_path / "data", snapshots=await jetstream.open_snapshots(log), keep=100_000) as one:
        await facts(log, node("first"))
        await one.until(lambda: one.keeper._reserve == MIB)
        await fill(log)
        assert not await takes_more(log)
        tail = await log.tail()
        # The log stands still, and nobody can say so: the collector looks for itself.
        one.clock.advance(snapshot_keeper.QUIET)
        one.clock.advance(snapshot_keeper.QUIET + 1)
        await one.until(lambda: one.state.snapshot_seq >= tail and one.keeper._reserve)
        assert await log.first() > tail - 1
        assert open_archive(one.folder, log_id=log.log_id).last >= tail
        assert await takes_more(log)
        assert not one.notes()


async def test_a_collector_that_finds_the_store_full_by_its_own_snapshot_frees_capacity_and_does_not_end(tmp_path, log):
    async with collecting(log, tmp_path / "data", snapshots=await jetstream.open_snapshots(log), keep=100_000, snapshot_every=12) as one:
        await one.until(lambda: one.keeper._reserve == MIB)
        for number in range(60):
            fact = node(f"n{number % 10}", labels={"large": str(number) * 100_000})
            async with asyncio.timeout(60):
                while not await takes(log, fact):
                    one.clock.advance(snapshot_keeper.AGAIN + 1)
                    await asyncio.sleep(0.02)
            one.clock.advance(snapshot_keeper.AGAIN + 1)
        async with asyncio.timeout(60):
            while one.state.snapshot_seq < 36 or await log.first() <= 24 or not await takes_more(log):
                one.clock.advance(snapshot_keeper.AGAIN + 1)
                await asyncio.sleep(0.02)


async def test_a_snapshot_for_which_there_is_no_capacity_is_refused_as_that_and_leaves_nothing_behind(log):
    snapshots = await jetstream.open_snapshots(log)
    with pytest.raises(Full, match=r"the broker's store is full: .* \(error 100"):
        await snapshots.put(Snapshot(log.log_id, 1, 1, os.urandom(8 * MIB)))
    info = await log.broker.api("STREAM.INFO.OBJ_restow-full")
    assert info["state"]["messages"] == 0


async def test_what_is_held_back_is_no_snapshot_and_its_capacity_comes_back(log):
    snapshots = await jetstream.open_snapshots(log)
    await snapshots.hold_back(2 * MIB)
    await snapshots.put(Snapshot(log.log_id, 7, 1, b"state"))
    assert await snapshots.sequences() == [7]
    assert (await snapshots.latest()).body == b"state"
    await snapshots.hold_back(MIB)
    before = (await log.broker.api("STREAM.INFO.OBJ_restow-full"))["state"]["bytes"]
    assert before > 2 * MIB
    assert await snapshots.let_go()
    assert not await snapshots.let_go()
    assert (await log.broker.api("STREAM.INFO.OBJ_restow-full"))["state"]["bytes"] < MIB
