"""A broker that has lost what it had acknowledged: everybody finds out, nobody decides, and a repair is on record."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import msgspec
import pytest
from domain.build import NOW, node, pod, shape

from restow.cli import log_repair
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.contracts.times import rfc3339
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION, fold_record
from restow.domain.history import Mark
from restow.domain.state import ClusterState
from restow.eventlog.port import Conflict, OtherHistory
from restow.eventlog.snapshots import MemorySnapshots, Snapshot
from restow.runtime import commander, logs
from restow.runtime.follower import Follower
from restow.runtime.loading import Loading
from restow.runtime.process import Process
from restow.runtime.settings import Settings

from .chained import Writer
from .rig import cluster, facts, history, idle, memory, named, running, soon, until


async def forget(log, last):
    """The broker has lost everything behind `last`; readers are told when they next ask."""
    del log._records[last + 1 - log._first :]
    log._last_of = {}
    for record in log._records:
        log._last_of[record.family] = record.seq


async def test_every_commit_says_what_its_writer_had_read():
    log = memory()
    async with scheduler(log):
        pass
    state = ClusterState()
    async for batch in log.read(1):
        for r in batch:
            if r.family == "session":
                assert r.envelope.digest == f"{r.seq - 1}:{state.history.digest.hex()}"
            fold_record(state, r.seq, r.family, r.envelope, r.body, log.log_id)
        break
    assert state.broken == 0


async def test_nothing_is_decided_on_a_broken_log_until_it_is_repaired_and_what_waited_is_decided_then():
    log = memory()
    others = Writer(log)
    await others.write(node("n0"), shape("s"))
    stale = await Writer(log).fold()
    stale.state.history.add(2, "cluster", Envelope.of({}), b"lost")
    stale.state.seq = 2
    async with running(log) as rig:
        await rig.lead()
        await stale.say(node("lost"))
        await others.write(pod("p0"))
        await rig.folded(await log.tail())
        await idle()
        assert "record 3 is missing, or follows from another history" in rig.follower.broken
        assert not await named(log, e.PodPlaced)
        await others.repair()
        await soon(rig.bound.get())
        assert rig.follower.broken == ""
    assert len(await named(log, e.PodPlaced)) == 1
    assert rig.state.repairs == 1
    assert list(rig.state.nodes) == ["n0"]


async def test_nobody_leads_a_broken_log():
    log = memory()
    others = Writer(log)
    await others.write(node("n0"))
    others.state.seq += 5
    others.state.history.seq += 5
    await others.say(node("lost"))
    async with running(log) as rig:
        await soon(rig.follower.known.wait())
        rig.leadership.claim()
        await idle()
        assert not rig.leadership.leading
        assert not await history(log)
        await Writer(log).repair()
        await until(lambda: rig.leadership.leading, rig.follower)


async def test_who_has_read_what_the_log_holds_no_more_says_so_in_it_before_it_ends():
    """Whoever starts next folds a log that is whole, but for this record."""
    log = memory()
    async with scheduler(log) as rig:
        read, tail = log.read, rig.state.seq
        await forget(log, 1)

        async def other(_):
            raise OtherHistory("it ends at 1")
            yield

        log.read = other
        with pytest.raises(OtherHistory):
            await rig.follower.run()
        log.read = read
    assert await log.tail() == 2
    late = await Writer(log).fold()
    assert late.state.broken == 2
    assert late.state.void == {"record.other_history": 1}
    async with running(log) as rig:
        await soon(rig.follower.known.wait())
        rig.leadership.claim()
        await idle()
        assert not rig.leadership.leading
        assert "record 2 is missing" in rig.follower.broken
    assert tail > 2


@pytest.mark.parametrize("found", ["shorter", "other", "same", "later"])
async def test_a_mark_that_the_log_does_not_meet_is_a_loss_until_a_repair(found):
    log = memory()
    others = Writer(log)
    for i in range(3):
        await others.write(node(f"n{i}"))
    await others.fold()
    right = others.state.history
    mark = {
        "shorter": Mark(0, 9, b"x" * 16), "other": Mark(0, 2, b"x" * 16), "same": Mark(0, 2, right.at(2)), "later": Mark(0, 4, b""),
    }[found]  # fmt: skip
    if found == "later":
        ahead = await Writer(log).fold()
        given = Envelope("cluster-3", "/test", rfc3339(NOW), 3, "cluster@1", log=log.log_id, digest=right.said())
        fold_record(ahead.state, 4, "cluster", given, encode([Decision(c.Observe("test", "given"), (node("n9"),))]), log.log_id)
        mark = Mark(0, 4, ahead.state.history.digest)
    async with running(log) as rig:
        rig.follower.expect(mark)
        await soon(rig.follower.known.wait())
        await rig.folded(3)
        rig.leadership.claim()
        await idle()
        assert rig.leadership.leading == (found == "same")
        assert bool(rig.follower.broken) == (found != "same")
        if found == "same":
            return
        assert rig.follower.mark == mark, "whoever comes next must find it, too"
        if found == "later":
            await others.write(node("n9"))  # it only came late
        else:
            await others.repair()
        await until(lambda: rig.leadership.leading, rig.follower)
        assert rig.follower.broken == ""
        assert rig.follower.mark.repairs == (found != "later")


async def test_a_snapshot_of_what_is_lost_is_a_mark_and_one_of_before_a_repair_is_none():
    log = memory()
    others = Writer(log)
    for i in range(6):
        await others.write(node(f"n{i}"))
    await others.fold()
    snapshots = MemorySnapshots(log.log_id)
    await snapshots.put(Snapshot(log.log_id, 6, FOLD_VERSION, snapshot.dump(others.state)))
    await forget(log, 4)
    load = Loading(log, snapshots, None, lambda said: None, logs.get())
    state = await load.state()
    async with running(log, state=state) as rig:
        rig.follower.expect(load.mark)
        await soon(rig.follower.known.wait())
        await idle()
        assert rig.follower.broken == "the log is broken: it has lost records; it ends at 4, and 6 was read of it before"
        again = Writer(log)
        await again.repair()
        await rig.folded(5)
        assert rig.follower.broken == ""
    for i in range(6):
        await again.write(node(f"m{i}"))
    load = Loading(log, snapshots, None, lambda said: None, logs.get())
    late = await load.state()
    assert late.seq == 0
    async with running(log, state=late) as rig:
        rig.follower.expect(load.mark)
        await soon(rig.follower.known.wait())
        await rig.folded(await log.tail())
        await idle()
        assert rig.follower.broken == ""


async def test_who_knows_another_history_than_a_repair_ends_and_does_not_say_it_again():
    """Else there would be two histories for good, each with its own readers."""
    log = memory()
    others = Writer(log)
    for i in range(3):
        await others.write(node(f"n{i}"))
    async with running(log) as rig:
        await rig.lead()
        await rig.folded(await log.tail())
        fresh = await Writer(log).fold()
        fresh.state.history._recent[-1] = b"of another bit.."
        tail = await fresh.say(e.LogRepaired(2), family="gc", command=c.RepairLog(NOW))
        done, _ = await asyncio.wait({task for task in rig.tasks if task.get_name() == "Follower"}, timeout=30)
        (task,) = done
        with pytest.raises(Exception, match="repairs a log that is not the one that was read here"):
            task.result()
    assert await log.tail() == tail


async def test_a_snapshot_behind_which_the_log_is_broken_is_passed_over_for_one_from_which_it_is_not():
    """A bit has flipped on the broker's disk. Who had read the record before that goes on with what it was, and so does his snapshot."""
    log = memory()
    others = Writer(log)
    for i in range(8):
        await others.write(node(f"n{i}"))
    await others.fold()
    snapshots = MemorySnapshots(log.log_id)
    before = await Writer(log).fold()
    await snapshots.put(Snapshot(log.log_id, 8, FOLD_VERSION, snapshot.dump(before.state)))
    for i in range(2):
        await others.write(node(f"m{i}"))
    early = Loading(log, None, None, lambda said: None, logs.get())
    changed = log._records[4]
    log._records[4] = msgspec.structs.replace(changed, body=changed.body.replace(b'"n4"', b'"x4"'))
    load = Loading(log, snapshots, None, lambda said: None, logs.get())
    state = await load.state()
    assert (load.began, state.seq, state.broken) == (8, 10, 0)
    assert "n4" in state.nodes
    whole = await early.state()
    await early.follow(whole)
    assert whole.broken == 6


@asynccontextmanager
async def scheduler(log):
    """A session that has placed a pod."""
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        yield rig


async def test_a_broker_that_knows_no_more_of_our_last_commit_is_found_out_and_not_asked_for_ever(monkeypatch):
    """A page of its file was zeroed while all ran: it said that the family ends earlier and took no commit. The watcher listed everything anew ten times a second, for ever."""
    monkeypatch.setattr(commander, "LACKS", 0.05)
    log = memory()
    async with scheduler(log) as rig:
        await rig.follower.to_tail()
        before, last = await log.tail(), log._last_of["session"]
        log._last_of["session"] = 1
        await facts(log, node("n1"), pod("p1"))
        done, _ = await soon(asyncio.wait(rig.tasks, return_when=asyncio.FIRST_COMPLETED))
        error = done.pop().exception()
    assert isinstance(error, OtherHistory)
    assert str(error) == f"the broker says that the last record of family 'session' is 1, and {last} was read of it before: it has lost commits"
    assert await log.tail() > before


async def test_a_replica_that_was_behind_for_a_moment_twice_in_an_hour_is_no_broker_that_has_lost_anything(monkeypatch):
    """What was to be committed the first time was needed no more: the service counted from then on, and testified the second time that the log is broken."""
    monkeypatch.setattr(commander, "LACKS", 0.05)
    log = memory()
    async with scheduler(log) as rig:
        append, last_of = log.append, log.last_of

        async def behind(family, body, envelope, *, expected_last):
            if family != "session":
                return await append(family, body, envelope, expected_last=expected_last)
            log.append, log.last_of = append, known
            await facts(log, e.PodGone("p1"))
            raise Conflict(family, expected_last, 1)

        async def known(family):
            if family != "session":
                return await last_of(family)
            log.last_of = last_of
            return 1

        for _ in range(2):
            log.append = behind
            await facts(log, pod("p1"))
            await until(lambda: log.append == append and log.last_of == last_of, rig.follower)
            await rig.follower.to_tail()
            await asyncio.sleep(0.1)
        assert not any(task.done() for task in rig.tasks)
        assert not rig.state.broken


async def test_of_two_repairs_at_once_the_second_finds_the_first():
    log = memory()
    others = Writer(log)
    await others.write(node("n0"))
    others.state.seq += 5
    others.state.history.seq += 5
    await others.say(node("lost"))
    both = [await log_repair.look(log, None, None) for _ in range(2)]
    assert [(await log_repair.write(log, found, "ann", "")).seq for found in both] == [3, 0]
    assert await log.tail() == 3


@pytest.mark.parametrize(("lost", "there"), [(9, "it ends at 2, and 9 was read of it before"), (1, "record 1 was another one before")])
async def test_a_repair_of_a_log_that_shows_no_break_says_whose_word_it_goes_by(lost, there):
    """A wrong number is noticed before anything is written: `it ends at 2, and 1 was read of it before` was said."""
    log = memory()
    for i in range(2):
        await Writer(log).write(node(f"n{i}"))
    assert (await log_repair.look(log, None, None)).what == ""
    found = await log_repair.look(log, None, None, lost=lost)
    assert found.what == f"The log shows no break, but you say (--lost) that it has lost records: {there}"


async def test_a_repair_that_is_lost_counts_for_the_next_one():
    """Else a snapshot that was stored after the first repair is a mark still, and the log is as broken after the second as it was before."""
    log = memory()
    others = Writer(log)
    for i in range(4):
        await others.write(node(f"n{i}"))
    others.state.seq += 5
    others.state.history.seq += 5
    await others.say(node("lost"))
    assert (await log_repair.write(log, await log_repair.look(log, None, None), "ann", "")).seq == 6
    again = await Writer(log).fold()
    await again.write(node("m0"), node("m1"))
    await again.fold()
    snapshots = MemorySnapshots(log.log_id)
    await snapshots.put(Snapshot(log.log_id, again.state.seq, FOLD_VERSION, snapshot.dump(again.state)))
    await forget(log, 2)
    found = await log_repair.look(log, snapshots, None)
    assert (found.state.broken, found.lost, found.repairs) == (0, again.state.seq, 1)
    await log_repair.write(log, found, "ann", "")
    load = Loading(log, snapshots, None, lambda said: None, logs.get())
    state = await load.state()
    async with running(log, state=state) as rig:
        rig.follower.expect(load.mark)
        await soon(rig.follower.known.wait())
        await rig.folded(await log.tail())
        rig.leadership.claim()
        await until(lambda: rig.leadership.leading, rig.follower)
        assert rig.follower.broken == ""
        assert rig.state.repairs == 2


def test_alerts_of_old_breaks_and_foreign_records_wait_until_a_service_has_caught_up():
    """They fire at once, and whoever starts folds a break before its repair, and counts old records anew."""
    state = ClusterState()
    state.broken, state.void = 7, {"record.other_history": 3, "record.undecodable": 2}
    follower = Follower(memory(), "gc", state)
    context = SimpleNamespace(state=state, follower=follower, leadership=SimpleNamespace(leading=False), commander=None)
    process = SimpleNamespace(context=context, settings=Settings(identity="a"), health=SimpleNamespace(report=lambda: SimpleNamespace(ready=False)), _effector=None, _log_clock=None)
    behind = Process._gauges(process)
    assert (behind["log_broken"], "state_foreign_records" in behind, behind["state_void"]) == (0.0, False, 5)
    follower.tail = 0
    there = Process._gauges(process)
    assert (there["log_broken"], there["state_foreign_records"] > 0) == (1.0, True)
