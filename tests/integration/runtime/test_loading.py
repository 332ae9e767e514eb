"""How a service comes to its state: snapshots, the archive, and a broker that goes away at the wrong moment."""

import asyncio
from types import SimpleNamespace

import pytest
from domain.build import NOW, node, pod, shape
from structlog.testing import capture_logs

from restow.contracts.codec import Decision, encode
from restow.contracts.commands import Observe
from restow.contracts.envelope import Envelope
from restow.contracts.events import PodGone
from restow.contracts.times import rfc3339
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION, fold_record
from restow.domain.state import ClusterState
from restow.eventlog.archive import export, open_archive
from restow.eventlog.port import LogMismatch, Truncated, Unavailable
from restow.eventlog.snapshots import MemorySnapshots, Snapshot
from restow.runtime import loading, logs, process, release

from .rig import facts, memory


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(loading, "ASKED_EVERY", 0.01)


async def grown(nodes=20):
    log = memory()
    for i in range(nodes):
        await facts(log, node(f"n{i:02}"))
    await facts(log, shape("s"), pod("p0"))
    return log


async def folded(log, upto=10**9):
    state = ClusterState()
    async for batch in log.read(1):
        for r in batch:
            if r.seq <= upto:
                fold_record(state, r.seq, r.family, r.envelope, r.body, log.log_id)
        return state


def starting(log, snapshots=None, archive=None):
    said = []
    return loading.Loading(log, snapshots, archive, said.append, logs.get()), said


async def began(log, snapshots):
    """The snapshot that the state begins with; it goes on to the log's end."""
    load, _ = starting(log, snapshots)
    assert (await load.state()).seq == await log.tail()
    return load.began


async def test_a_broker_that_goes_away_between_the_connection_and_the_first_answer_is_waited_for():
    log = await grown()
    first, failures = log.first, [Unavailable("no answer"), Unavailable("no answer")]

    async def asked():
        if failures:
            raise failures.pop()
        return await first()

    log.first = asked
    load, said = starting(log, MemorySnapshots(log.log_id))
    assert (await load.state()).seq == 0
    assert said[:2] == ["waiting for the broker: no answer"] * 2
    assert said[-1] == "starting", "what is said is what is waited for now"


async def test_snapshots_that_the_broker_does_not_answer_for_are_asked_for_again():
    log = await grown()
    snapshots = MemorySnapshots(log.log_id)
    await snapshots.put(Snapshot(log.log_id, 8, FOLD_VERSION, snapshot.dump(await folded(log, 8))))
    latest, failures = snapshots.latest, [Unavailable("no answer")]

    async def asked(**at):
        if failures:
            raise failures.pop()
        return await latest(**at)

    snapshots.latest = asked
    assert await began(log, snapshots) == 8


async def test_a_new_fold_on_a_truncated_log_is_folded_anew_from_the_archive_and_the_others_wait_for_that(tmp_path):
    """Otherwise no service starts after such an upgrade, and the log alone cannot be folded any more."""
    log = await grown()
    snapshots = MemorySnapshots(log.log_id)
    await snapshots.put(Snapshot(log.log_id, 15, FOLD_VERSION - 1, b"of another fold"))
    await export(log, tmp_path, to_seq=15)
    await log.truncate(12)
    other, said = starting(log, snapshots)
    waiting = asyncio.create_task(other.state())
    while not any("garbage collector" in one for one in said):
        await asyncio.sleep(0)
    assert not waiting.done()
    state = await starting(log, snapshots, tmp_path)[0].state()
    assert state.seq == await log.tail()
    async with asyncio.timeout(60):
        assert snapshot.dump(await waiting) == snapshot.dump(state)
    await export(log, tmp_path)
    full = await memory_of(tmp_path)
    assert snapshot.dump(full) == snapshot.dump(state)


async def test_who_waits_for_a_collector_of_another_release_says_which_one_it_has():
    log = await grown()
    wrote = Envelope("gc-1", "/test", "2026-01-01T00:00:00.000Z", 0, "gc@1", log=log.log_id, release="0.1.0+abc")
    await log.append("gc", b"{}", wrote, expected_last=0)
    await log.truncate(9)
    other, said = starting(log, MemorySnapshots(log.log_id))
    waiting = asyncio.create_task(other.state())
    async with asyncio.timeout(60):
        while not said or not said[-1].startswith("waiting for the garbage collector"):
            await asyncio.sleep(0)
    waiting.cancel()
    assert said[-1].endswith(f"continues it; this is release {release.name()}, what it wrote last is of 0.1.0+abc: it is to be of this release, too")


async def memory_of(folder):
    state, archive = ClusterState(), open_archive(folder)
    for r in archive.records():
        fold_record(state, r.seq, r.family, r.envelope, r.body, archive.log_id)
    return state


async def test_after_an_upgrade_nobody_waits_for_ever_where_the_archive_had_fallen_behind_the_old_folds_snapshots(tmp_path):
    """Its disk was full. The store keeps the two newest snapshots: one as old as the archive would be gone as soon as it is stored."""
    log = await grown()
    snapshots = MemorySnapshots(log.log_id)
    for seq in (15, 18):
        await snapshots.put(Snapshot(log.log_id, seq, FOLD_VERSION - 1, b"of another fold"))
    await export(log, tmp_path, to_seq=10)
    await log.truncate(8)
    state = await starting(log, snapshots, tmp_path)[0].state()
    async with asyncio.timeout(60):
        assert snapshot.dump(await starting(log, snapshots)[0].state()) == snapshot.dump(state)


async def test_an_older_snapshot_of_our_fold_is_used_where_the_newest_is_of_another():
    """While services are upgraded one by one, the old collector goes on storing snapshots."""
    log = await grown()
    snapshots = MemorySnapshots(log.log_id)
    await snapshots.put(Snapshot(log.log_id, 10, FOLD_VERSION, snapshot.dump(await folded(log, 10))))
    await snapshots.put(Snapshot(log.log_id, 15, FOLD_VERSION - 1, b"of another fold"))
    await log.truncate(9)
    assert await began(log, snapshots) == 10


@pytest.mark.parametrize("name", ["migration.paused", "migration.came_back"])
async def test_a_snapshot_of_an_earlier_release_that_skipped_what_this_one_knows_is_passed_over(tmp_path, name):
    """It is lost in it. One of them has another name by now."""
    log = await grown()
    state = await folded(log, 10)
    state.unknown[name] = 1
    snapshots = MemorySnapshots(log.log_id)
    await snapshots.put(Snapshot(log.log_id, 10, FOLD_VERSION, snapshot.dump(state)))
    assert (await starting(log, snapshots)[0].state()).seq == 0, "the log is whole"
    await export(log, tmp_path)
    await log.truncate(9)
    again = await starting(log, snapshots, tmp_path)[0].state()
    assert (again.seq, dict(again.unknown)) == (await log.tail(), {})


async def test_back_by_one_release_on_a_truncated_log_all_begin_with_the_snapshot_that_the_collector_makes_without_the_later_events(tmp_path):
    """Otherwise nobody but the collector leads, for good: it is the archive's alone, and what it passes over is harmless to all of its release."""
    log = await grown(nodes=10)
    body = encode([Decision(Observe("test", "given"), (PodGone("gone"),))]).replace(b'"cluster.pod_gone"', b'"cluster.of_a_later_version"')
    last = await log.tail()
    await log.append("cluster", body, Envelope("later", "/test", rfc3339(NOW), last, "cluster@1"), expected_last=last)
    for i in range(8):
        await facts(log, node(f"later{i}"))
    snapshots = MemorySnapshots(log.log_id)
    await snapshots.put(Snapshot(log.log_id, 15, FOLD_VERSION + 1, b"of the later release"))
    await export(log, tmp_path)
    await log.truncate(12)
    state = await starting(log, snapshots, tmp_path)[0].state()
    assert dict(state.unknown) == {"cluster.of_a_later_version": 1}
    async with asyncio.timeout(60):
        other = await starting(log, snapshots)[0].state()
    assert snapshot.dump(other) == snapshot.dump(state)


@pytest.mark.parametrize("archived", [0, 5])
async def test_a_log_that_cannot_be_folded_any_more_says_what_is_missing(tmp_path, archived):
    log = await grown()
    if archived:
        await export(log, tmp_path, to_seq=archived)
    await log.truncate(9)
    with pytest.raises(LogMismatch, match=r"the log begins at 10 and no snapshot of fold \d+ continues it;.* Restore the archive"):
        await starting(log, MemorySnapshots(log.log_id), tmp_path)[0].state()


async def test_a_log_that_cannot_be_folded_any_more_names_the_release_that_can(tmp_path):
    log = await grown()
    said = Envelope("gc-1", "/test", "2026-01-01T00:00:00.000Z", 0, "gc@1", log=log.log_id, release="0.1.0+abc")
    await log.append("gc", b"{}", said, expected_last=0)
    await log.truncate(9)
    with pytest.raises(LogMismatch, match=r"stored the newest snapshot \(0.1.0\+abc was the collector's last\); or begin a new log"):
        await starting(log, MemorySnapshots(log.log_id), tmp_path)[0].state()


@pytest.mark.parametrize("body", [b"", b"\xdc\x00\x4d\x05" + bytes(100), b"{}"])
async def test_a_snapshot_whose_content_is_no_state_is_passed_over_for_the_one_before(body):
    log = await grown()
    snapshots = MemorySnapshots(log.log_id)
    await snapshots.put(Snapshot(log.log_id, 8, FOLD_VERSION, snapshot.dump(await folded(log, 8))))
    await snapshots.put(Snapshot(log.log_id, 12, FOLD_VERSION, body))
    assert await began(log, snapshots) == 8


async def stored(log, *sequences, of=None):
    snapshots = MemorySnapshots(log.log_id)
    for seq in sequences:
        await snapshots.put(Snapshot(log.log_id, seq, FOLD_VERSION, snapshot.dump(await folded(of or log, seq))))
    return snapshots


async def cut(log, last):
    """The same log as an old copy has it."""
    copy = memory()
    copy.log_id = log.log_id
    ends = {}
    async for batch in log.read(1):
        for r in batch[:last]:
            ends[r.family] = await copy.append(r.family, r.body, r.envelope, expected_last=ends.get(r.family, 0))
        return copy


async def test_a_snapshot_of_records_that_the_log_has_lost_is_passed_over_for_one_that_it_holds():
    """A broker's volume that was copied while it ran: the log at 10, the snapshots a moment later. Else no service ever starts again."""
    log = await grown()
    snapshots = await stored(log, 8, 15)
    load, _ = starting(await cut(log, 10), snapshots)
    state = await load.state()
    assert (load.began, state.seq) == (8, 10)
    assert len(state.nodes) == 10
    assert load.mark.seq == 15, "somebody has read that far"
    nothing_left = await stored(log, 15)
    assert (await starting(await cut(log, 10), nothing_left)[0].state()).seq == 0


async def test_a_snapshot_whose_last_record_is_let_go_of_just_now_is_as_good_as_before():
    log = await grown()
    first, asked = log.first, []

    async def then_truncated():
        begins = await first()
        asked.append(begins)
        if len(asked) == 2:
            await log.truncate(15)
        return begins

    log.first = then_truncated
    assert await began(log, await stored(log, 15)) == 15


async def test_nor_is_it_taken_when_the_log_has_gone_on_with_other_records():
    """Else a service would know what is not in its log, and not know what is."""
    log = await grown()
    snapshots = await stored(log, 8, 15)
    other = await cut(log, 10)
    for i in range(10):
        await facts(other, node(f"other{i}"), time=77_000 + i)
    assert await began(other, snapshots) == 8


async def test_a_new_snapshot_stays_although_older_history_has_left_newer_ones():
    log = await grown()
    snapshots = await stored(log, 15, 18, 9)
    assert await snapshots.sequences() == [9, 15, 18]
    await snapshots.put(Snapshot(log.log_id, 11, FOLD_VERSION, snapshot.dump(await folded(log, 11))))
    assert await snapshots.sequences() == [11, 15, 18]


def test_who_stood_still_while_the_log_was_truncated_starts_again_and_calls_that_no_error():
    """It was logged as an error that it cannot go on, which the next moment was not so."""

    async def life():
        raise Truncated(7, 9)

    with asyncio.Runner() as runner, capture_logs() as said:
        assert process._lived(runner, SimpleNamespace(life=life), logs.get()) == 3
    assert [(one["log_level"], one["event"]) for one in said] == [("warning", "starts again from a snapshot")]
