"""The effect loop: what is owed is done once, again after a crash, and not at all when it is no longer owed (DESIGN 5)."""

import asyncio
from contextlib import asynccontextmanager

from domain.build import NOW, changed, configured, member, node, pod_group, reservation, shape

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain.config import ActionConfig, PluginConfig, ReservationConfig, SessionConfig
from restow.domain.effects import (
    Bind,
    ListOwners,
    TellUnschedulable,
    WritePodGroupStatus,
    WriteReservationStatus,
)
from restow.domain.reservation.decider import ReservationDecider
from restow.domain.session.decider import SessionDecider
from restow.domain.session.reasons import condition_message
from restow.domain.state import ClusterState
from restow.kube import effects as k
from restow.runtime import effector as module
from restow.runtime.commander import Commander
from restow.runtime.effector import Done, Effector, Executor, Report, Retry, Wait
from restow.runtime.follower import Follower
from restow.runtime.leadership import Leadership
from restow.runtime.telemetry import Metrics

from .rig import ManualClock, cluster, facts, idle, memory, named, running, soon, until


def executors(execute, limit=32):
    return {Bind: Executor(execute, limit=limit), TellUnschedulable: Executor(execute, limit=limit)}


async def test_a_crash_between_commit_and_effect_is_healed_by_the_next_process():
    log = memory()
    never = asyncio.Event()

    async def hangs(effect, state):
        never.set()
        await asyncio.Event().wait()

    async with running(log, executors=executors(hangs)) as first:
        await first.lead()
        await cluster(log, pods=3)
        await soon(never.wait())
    async with running(log, holder="two") as second:
        await second.lead()
        assert {(await soon(second.bound.get())).pod for _ in range(3)} == {"p0", "p1", "p2"}
    assert len(await named(log, e.PodPlaced)) == 3


async def test_a_standby_does_nothing():
    log = memory()
    async with running(log) as leader, running(log, holder="standby") as standby:
        await leader.lead()
        await cluster(log)
        await soon(leader.bound.get())
        await idle()
        assert standby.bound.empty()


async def test_a_failed_effect_is_tried_again_until_it_is_done():
    log, attempts = memory(), []
    done = asyncio.Event()

    async def flaky(effect, state):
        attempts.append(effect)
        if len(attempts) < 3:
            return Retry("503 ServiceUnavailable", after=0.001)
        done.set()
        return Done()

    async with running(log, executors=executors(flaky)) as rig:
        await rig.lead()
        await cluster(log)
        await soon(done.wait())
        await idle()
    assert len(attempts) == 3
    assert len(set(attempts)) == 1


async def test_an_effect_of_which_something_is_told_that_changes_nothing_is_tried_again():
    """Between the attempt and the decision the world goes on: a budget that was waited for long enough is to be waited for again. It was forgotten, until a deadline."""
    log, attempts = memory(), []
    done = asyncio.Event()

    async def overtaken(effect, state):
        attempts.append(effect)
        if len(attempts) < 3:
            return Report(c.RefuseBind(NOW, effect.pod, "another", "Forbidden"))
        done.set()
        return Done()

    async with running(log, executors=executors(overtaken)) as rig:
        await rig.lead()
        await cluster(log)
        await soon(done.wait())
    assert len(set(attempts)) == 1


async def test_an_api_that_asks_for_an_hour_is_asked_again_sooner(monkeypatch):
    """A gateway's page while it is serviced: `503`, `Retry-After: 3600`. Binds would wait for an hour, and moves fail for want of the mark that stops
    an eviction; what no timer can say would even be forgotten."""
    monkeypatch.setattr(module, "REFUSED", 0.01)
    asked = [3_600.0, 1e22]
    log, done = memory(), asyncio.Event()

    async def serviced(effect, state):
        if asked:
            return module.later(k.Failed(503, "Service Unavailable", "", int(asked.pop() * 1000)))
        done.set()
        return Done()

    async with running(log, executors=executors(serviced)) as rig:
        await rig.lead()
        await cluster(log)
        await soon(done.wait())


async def test_before_a_retry_it_is_asked_whether_the_effect_is_still_owed():
    log, attempts = memory(), []
    tried = asyncio.Event()

    async def refused(effect, state):
        attempts.append(effect)
        tried.set()
        return Retry("409 Conflict", after=0.001)

    async with running(log, executors=executors(refused)) as rig:
        await rig.lead()
        await cluster(log)
        await soon(tried.wait())
        seq = await facts(log, changed("p0", node="elsewhere"))
        await rig.folded(seq)
        before = len(attempts)
        await asyncio.sleep(0.02)
        assert len(attempts) <= before + 1
        assert rig.effector.owed == 0


async def test_what_is_owed_and_neither_waits_nor_is_under_way_is_found():
    log = memory()
    hangs = asyncio.Event()

    async def execute(effect, state):
        await hangs.wait()
        return Done()

    async with running(log, executors=executors(execute)) as rig:
        await rig.lead()
        await cluster(log)
        await until(lambda: rig.effector.under_way == 1, rig.follower)
        assert rig.effector.forgotten() == []
        (key,) = rig.effector._running
        rig.effector._running.pop(key).task.cancel()
        assert [effect.pod for effect in rig.effector.forgotten()] == ["p0"]


async def test_what_waits_for_others_is_done_later_or_not_at_all():
    log, attempts = memory(), []
    done = asyncio.Event()

    async def waits(effect, state):
        attempts.append(effect.pod)
        if effect.pod == "p0" or attempts.count("p1") < 3:
            return Wait(0.001 if effect.pod == "p1" else 30.0)
        done.set()
        return Done()

    async with running(log, executors=executors(waits)) as rig:
        await rig.lead()
        await cluster(log, pods=2)
        await soon(done.wait())
        assert rig.effector.owed >= 1, "p0 still waits"
        assert (attempts.count("p0"), attempts.count("p1")) == (1, 3)


async def test_how_long_the_oldest_of_a_kind_is_owed_is_shown_and_what_has_to_wait_does_not_count(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(module.machine, "steady", lambda: now[0])
    log, tried = memory(), asyncio.Queue()

    async def execute(effect, state):
        tried.put_nowait(effect.pod)
        return Retry("503", after=0.001) if effect.pod == "p0" else Wait(1_000.0)

    def oldest(rig):
        (one,) = rig.effector.oldest()
        return dict(one.samples)

    async with running(log, executors=executors(execute)) as rig:
        await rig.lead()
        assert oldest(rig)["Bind",] == 0.0
        await cluster(log, pods=2)
        while {await soon(tried.get()), await soon(tried.get())} != {"p0"}:
            pass
        now[0] += 42.0
        assert oldest(rig)["Bind",] == 42.0
        await facts(log, changed("p0", node="elsewhere"))
        await until(lambda: rig.effector.owed == 1, rig.follower)
        assert oldest(rig)["Bind",] == 0.0, "what is left waits for its turn"


async def test_an_executors_bug_is_logged_and_does_not_stop_the_others(monkeypatch):
    monkeypatch.setattr(module, "FIRST", 0.001)
    log, bound = memory(), asyncio.Queue()

    async def buggy(effect, state):
        if effect.pod == "p0":
            raise KeyError("bug")
        bound.put_nowait(effect.pod)
        return Done()

    async with running(log, executors=executors(buggy)) as rig:
        await rig.lead()
        await cluster(log, pods=2)
        assert await soon(bound.get()) == "p1"
        assert not rig.tasks[2].done()


async def test_no_more_than_the_limit_are_under_way_at_once():
    log, running_now, most, done = memory(), 0, 0, asyncio.Queue()

    async def slow(effect, state):
        nonlocal running_now, most
        running_now += 1
        most = max(most, running_now)
        await asyncio.sleep(0)
        running_now -= 1
        done.put_nowait(effect)
        return Done()

    async with running(log, executors=executors(slow, limit=3)) as rig:
        await rig.lead()
        await cluster(log, pods=8)
        for _ in range(8):
            await soon(done.get())
    assert most == 3


async def test_an_outcome_that_matters_becomes_a_command():
    log = memory()
    attempts = []

    async def binds_the_second_time(effect, state):
        attempts.append(effect)
        if len(attempts) == 1:
            return Report(c.RefuseBind(NOW, effect.pod, effect.node, "Forbidden"))
        return Done()

    async with running(log, executors=executors(binds_the_second_time)) as rig:
        await rig.lead()
        await cluster(log)
        await until(lambda: len(attempts) == 2, rig.follower)
    assert attempts[0] == attempts[1]
    assert [r.reason for r in await named(log, e.PodReleased)] == ["Forbidden"]


async def test_done_is_not_repeated_while_its_fact_is_on_the_way():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        for reason in ("a", "b", "c"):
            await rig.folded(await facts(log, changed("p0", reason=reason)))
        await idle()
        assert rig.bound.empty()


@asynccontextmanager
async def writing(log, executor):
    """The reservation cache's loops, with an executor of statuses; a Reservation of five places is there."""
    follower, leadership, metrics = Follower(log, "reservation", ClusterState()), Leadership("reservation", "one"), Metrics("reservation")
    decider = ReservationDecider()
    commander = Commander(log, follower, decider, leadership, ManualClock(), metrics, service="reservation_cache")
    effector = Effector(follower, decider, leadership, commander, {WriteReservationStatus: executor}, metrics)
    tasks = [asyncio.create_task(loop.run()) for loop in (follower, commander, effector)]
    try:
        leadership.claim()
        await facts(log, configured("reservation", ReservationConfig()), family="reservation")
        await facts(log, node("n0"), shape("s"), reservation("r", ("t", 5, "s")))
        yield follower, effector
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def test_of_the_statuses_of_one_reservation_only_the_newest_is_written():
    log, written, go = memory(), [], asyncio.Event()

    async def write(effect, state):
        written.append(effect.version)
        await go.wait()
        return Done()

    async with writing(log, Executor(write, settle=0)) as (follower, effector):
        await until(lambda: len(written) == 1, follower)
        for i in range(5):
            seq = await facts(log, e.HoldPlaced("r", f"t-{i}", "n0"), family="session")
        await soon(follower.folded.reached(seq))
        await idle()
        go.set()
        await until(lambda: len(written) == 2 and effector.owed == 0, follower)
        await idle()
        assert written[1] == seq


def test_that_owners_are_gated_and_that_they_are_not_any_more_is_written_one_after_the_other():
    """At once the first could come to the API last: an entry that nobody takes away before its end."""
    assert module._key(ListOwners("r", NOW + 600_000)) == module._key(ListOwners("r", 0)) != module._key(ListOwners("other", 0))


async def test_what_a_pod_is_told_never_overtakes_what_it_was_told_before():
    """Two answers of the API at once may come in any order, and the older text would stay."""
    log, told, free = memory(), [], asyncio.Event()

    async def slow(effect, state):
        if isinstance(effect, TellUnschedulable) and effect.pod == "m0":
            told.append(effect.message)
            await free.wait()
        return Done()

    gangs = SessionConfig(actions=(ActionConfig("allocate"),), tiers=((PluginConfig("gang"),), (PluginConfig("predicates"),)))
    await facts(log, configured("session", gangs), family="session")
    async with running(log, executors={kind: Executor(slow) for kind in (TellUnschedulable, WritePodGroupStatus)}) as rig:
        await rig.lead()
        synced = e.Synced("podgroups.scheduling.volcano.sh", "1")
        await facts(log, synced, node("n", cpu=2_000), shape("m", cpu=1_000), pod_group("g", need=3), member("m0", "g", "m"))
        await until(lambda: told, rig.follower)
        assert "0 run and 1 wait" in told[0]
        await rig.folded(await facts(log, member("m1", "g", "m"), member("m2", "g", "m")))
        await until(lambda: "together" in condition_message(rig.state, "m0"), rig.follower)
        await idle()
        assert len(told) == 1
        free.set()
        await idle()
        assert "3 wait and do not fit as a whole" in told[-1]


async def test_what_changes_often_is_told_at_once_and_then_once_for_many_changes():
    """`gap`: the first is not delayed; those that follow become one."""
    log, written = memory(), []

    async def write(effect, state):
        written.append(effect.version)
        return Done()

    async with writing(log, Executor(write, settle=0, gap=1.5)) as (follower, effector):
        await until(lambda: len(written) == 1, follower)
        for i in range(5):
            seq = await facts(log, e.HoldPlaced("r", f"t-{i}", "n0"), family="session")
            await soon(follower.folded.reached(seq))
            await idle()
        assert (len(written), effector.owed) == (1, 1)
        await until(lambda: len(written) == 2, follower)
        assert written[1] == seq


async def test_a_drain_finishes_what_is_under_way_and_starts_nothing():
    log, go, begun, finished = memory(), asyncio.Event(), asyncio.Event(), []

    async def slow(effect, state):
        begun.set()
        await go.wait()
        finished.append(effect.pod)
        return Done()

    async with running(log, executors=executors(slow, limit=1), decider=SessionDecider()) as rig:
        await rig.lead()
        await cluster(log, pods=2)
        await soon(begun.wait())
        draining = asyncio.create_task(rig.effector.drain(5))
        await idle()
        go.set()
        await soon(draining)
        await idle()
        assert finished == ["p0"]
