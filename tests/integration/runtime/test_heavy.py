"""A decision that may take long: made on a copy of the process, on record before it is, and put off and made smaller after one that came to no end."""

import asyncio
import importlib
from contextlib import asynccontextmanager

import pytest
from domain.build import NOW, node, pod, shape
from domain.descheduling_words import policy, profile
from msgspec import structs

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import rfc3339
from restow.descheduler.service import HEAVY
from restow.domain import config
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.decider import Rejected
from restow.domain.deciders import DECIDERS
from restow.domain.descheduling import interpreter
from restow.domain.descheduling.policy import written
from restow.domain.migration import MigrationDecider, search
from restow.eventlog.port import Conflict, TooLarge, Unknown
from restow.replay import why as replayed
from restow.replay.source import ListSource
from restow.replay.verify import verify
from restow.runtime import long_decisions
from restow.runtime.command_queue import Refused
from restow.runtime.offload import CopyFailed, in_copy

from .rig import facts, history, idle, memory, named, records, running, soon, until

DECIDING = importlib.import_module("restow.domain.migration.decider")
"""The module: its package calls the decider so."""
MINUTE = 60_000
STEPS = 20_000


class Counting(MigrationDecider):
    """The descheduler's, noting what it was asked to decide in this process."""

    def __init__(self):
        self.asked = []

    def decide(self, state, command):
        self.asked.append(command)
        return super().decide(state, command)


@asynccontextmanager
async def descheduler(log, **options):
    async with running(log, decider=Counting(), heavy=HEAVY, **options) as rig:
        await rig.lead()
        yield rig


async def world(log, interval=MINUTE):
    """A cluster that is planned for every minute."""
    await facts(log, node("n0"), node("n1"), shape("s"), pod("p0"))
    given = MigrationConfig(interval=interval, defragmentation=DefragmentationArgs(planner="optimizing"))
    text = config.text_of(given)
    await facts(log, e.MigrationConfigured(text, config.digest_of(text)), family="migration")


@asynccontextmanager
async def planner(log):
    """A descheduler that knows such a cluster."""
    async with descheduler(log) as rig:
        await world(log)
        await until(lambda: rig.state.migration_config.defragmentation, rig.follower)
        yield rig


def raising(kind, text):
    """In place of a function."""

    def raises(*_):
        raise kind(text)

    return raises


def dying(monkeypatch, why="its process was killed, most likely for its memory"):
    """Copies of the process, as long as this list is true, are killed."""
    tried = []

    async def killed(work):
        tried.append(work)
        raise CopyFailed(why)

    monkeypatch.setattr(long_decisions, "in_copy", killed)
    return tried


async def searches(log):
    return [event for _, _, events in await history(log, "migration") for event in events if isinstance(event, e.SearchBegun | e.SearchEnded | e.Planned)]


async def test_a_plan_over_many_pods_is_decided_on_a_copy_of_the_process_and_on_record_before_it_is():
    log = memory()
    async with planner(log) as rig:
        outcome = await soon(rig.commander.submit(c.Defragment(NOW, "api", "p1")))
        assert [type(event) for event in outcome.events] == [e.Planned]
        assert [type(event) for event in await searches(log)] == [e.SearchBegun, e.Planned]
        assert not any(isinstance(command, c.Defragment) for command in rig.decider.asked)
        assert rig.state.search.plan == ""


def test_every_plan_is_made_on_a_copy_and_nothing_else_is():
    """Of fifty pods a search took a second, which a loop may not stand still for; and whatever a fault leaves half done is the copy's."""
    assert all(search.is_heavy(one) for one in (c.Defragment(NOW, "api", "p"), c.Deschedule(NOW, "api", "p"), c.MovePod(NOW, "p", "p0"), c.MoveGang(NOW, "p", "default/g")))
    assert not any(search.is_heavy(one) for one in (c.Advance(NOW), c.Approve(NOW, "p", "me"), c.CancelPlan(NOW, "p", ""), c.EndSearch(NOW, "p", "")))


def failing(monkeypatch, plugin="PodLifeTime"):
    """This plugin raises what an odd pod has made plans raise."""

    def run(handle, args):
        raise OverflowError("Python int too large to convert to C long")

    monkeypatch.setattr(interpreter.PLUGINS[plugin], "run", run)


async def policies(log, *profiles, interval=MINUTE):
    await facts(log, node("n0"), node("n1"), shape("s"), pod("p0", "s", "n0"))
    text = config.text_of(MigrationConfig(interval=interval, policy=written(policy(*profiles))))
    await facts(log, e.MigrationConfigured(text, config.digest_of(text)), family="migration")


async def test_a_plugin_that_fails_is_a_plan_without_moves_that_says_why_and_the_others_plan_each_time(monkeypatch):
    """One odd pod has ended the descheduler at each plan: its policy evicted nobody any more, by any plugin."""
    failing(monkeypatch)
    log = memory()
    async with descheduler(log) as rig:
        await policies(log, profile("PodLifeTime", {"maxPodLifeTimeSeconds": 60}, name="old"), profile("RemoveFailedPods", {}, name="failed"))
        await until(lambda: rig.state.migration_config.policy, rig.follower)
        for minute in range(1, 4):
            rig.clock.advance(MINUTE)
            await until(lambda n=minute: len(rig.state.plans) == 2 * n, rig.follower)
        plans = await named(log, e.Planned, "migration")
        assert [(plan.plugin, plan.fault, plan.moves) for plan in plans] == [("PodLifeTime", True, ()), ("RemoveFailedPods", False, ())] * 3
        assert plans[0].reason.startswith("could not be made by a fault of Restow's own, which is worth a report: OverflowError: Python int too large to convert to C long (test_heavy.py:")
        assert plans[0].trigger == "interval"
        assert search.failing(rig.state, rig.clock.now()) == 1
        assert search.note(rig.state, rig.clock.now()) == f"plan {plans[4].plan} of PodLifeTime {plans[4].reason}"
        assert [event.steps for event in await named(log, e.SearchBegun, "migration")] == [0, 0, 0]
        assert not await named(log, e.SearchEnded, "migration")
        monkeypatch.undo()
        rig.clock.advance(MINUTE)
        await until(lambda: len(rig.state.plans) == 8, rig.follower)
        assert search.note(rig.state, rig.clock.now()) == ""
        assert search.failing(rig.state, rig.clock.now()) == 0
    ours = verify(ListSource(await records(log)), DECIDERS).families["migration"]
    assert ours.different == 0
    assert ours.identical > 8


async def test_a_plugin_that_failed_and_that_the_policy_has_no_more_fails_no_more(monkeypatch):
    """The alert stayed for a day after its cause was taken away."""
    failing(monkeypatch)
    log = memory()
    async with descheduler(log) as rig:
        await policies(log, profile("PodLifeTime", {"maxPodLifeTimeSeconds": 60}, name="old"))
        await until(lambda: rig.state.migration_config.policy, rig.follower)
        rig.clock.advance(MINUTE)
        await until(lambda: search.failing(rig.state, rig.clock.now()) == 1, rig.follower)
        given = rig.state.migration_config
        text = config.text_of(structs.replace(given, policy=written(policy(profile("RemoveFailedPods", {}, name="failed")))))
        rig.commander.configuration = text
        rig.commander.wake()
        await until(lambda: rig.state.migration_config != given, rig.follower)
        assert search.failing(rig.state, rig.clock.now()) == 0
        assert search.note(rig.state, rig.clock.now()) == ""


async def test_a_plan_on_demand_that_failed_is_told_for_as_long_as_its_pod_waits(monkeypatch):
    log = memory()
    async with planner(log) as rig:
        monkeypatch.setattr(DECIDING, "defragment", raising(OverflowError, "too large"))
        (planned,) = (await soon(rig.commander.submit(c.Defragment(NOW, "demand", "p1", "p0")))).events
        assert (planned.fault, planned.demand) == (True, "p0")
        rig.state.parked["p0"] = ("s", "")
        assert search.failing(rig.state, rig.clock.now()) == 1
        del rig.state.parked["p0"]
        assert search.failing(rig.state, rig.clock.now()) == 0


async def test_a_plan_of_defragmentation_that_fails_says_why_to_whoever_asked_and_running_moves_are_served_on(monkeypatch):
    log = memory()
    async with planner(log) as rig:
        monkeypatch.setattr(DECIDING, "defragment", raising(OverflowError, "too large"))
        both = rig.commander.submit(c.Defragment(NOW, "api", "p1")), rig.commander.submit(c.ReportHold(NOW, "nobody", "no"))
        (planned,) = (await soon(asyncio.gather(*both)))[0].events
        assert (planned.fault, planned.moves, planned.planner) == (True, (), "optimizing")
        assert "OverflowError: too large (test_heavy.py:" in planned.reason
        assert not rig.tasks[1].done()


async def test_a_fault_outside_of_every_plan_ends_no_process_either_and_takes_no_steps(monkeypatch):
    log = memory()
    async with planner(log) as rig:
        with monkeypatch.context() as patched:
            patched.setattr(DECIDING, "_plan", raising(KeyError, "n7"))
            rig.clock.advance(MINUTE)
            await until(lambda: rig.state.search.failures, rig.follower)
            ended = (await named(log, e.SearchEnded, "migration"))[0]
            assert (ended.reason, ended.failed) == ("Failed", True)
            assert ended.message.startswith("KeyError: 'n7' (test_heavy.py:")
            assert search.note(rig.state, rig.clock.now()).endswith("none is made by itself for 60 s more")
            assert search.failing(rig.state, rig.clock.now()) == 1
            with pytest.raises(Rejected, match=r"defragment failed by a fault of Restow's own, which is worth a report: KeyError: 'n7'"):
                await soon(rig.commander.submit(c.Defragment(NOW, "api", "p1")))
        rig.clock.advance(60 * MINUTE)
        await until(lambda: rig.state.plans, rig.follower)
        assert {event.steps for event in await named(log, e.SearchBegun, "migration")} == {0}
        assert search.failing(rig.state, rig.clock.now()) == 0


async def test_a_move_by_hand_that_fails_is_refused_with_the_reason(monkeypatch):
    log = memory()
    async with planner(log) as rig:
        monkeypatch.setattr(DECIDING, "move_pod", raising(ZeroDivisionError, "division by zero"))
        with pytest.raises(Rejected, match="move_pod failed by a fault of Restow's own, which is worth a report: ZeroDivisionError: division by zero"):
            await soon(rig.commander.submit(c.MovePod(NOW, "p1", "p0")))
        assert not rig.tasks[1].done()
        assert not await searches(log), "nothing of it is put on record, and plans are made at their times"


async def test_why_a_plan_was_not_made_is_in_the_log_and_it_is_tried_later_with_fewer_steps(monkeypatch):
    tried, log = dying(monkeypatch), memory()
    async with planner(log) as rig:
        rig.clock.advance(MINUTE)
        await until(lambda: rig.state.search.failures, rig.follower)
        ended = (await named(log, e.SearchEnded, "migration"))[0]
        assert (ended.reason, ended.message, ended.failed) == ("CopyFailed", "its process was killed, most likely for its memory", True)
        note = search.note(rig.state, rig.clock.now())
        assert note.startswith(f"plan {ended.plan} came to no end (CopyFailed: its process was killed, most likely for its memory); none is made by itself for 60 s more")
        assert note.endswith("with at most 5000 of 20000 searchSteps until 24 h have passed or another configuration is used")
        for minute in range(1, 7):
            rig.clock.advance(MINUTE)
            await idle(100)
            assert len(tried) == (2 if minute < 6 else 3), "after one minute, then after five"
        assert [event.steps for event in await named(log, e.SearchBegun, "migration")] == [0, STEPS // 4, STEPS // 16]


async def test_a_plan_that_was_made_with_fewer_steps_is_made_again_at_its_usual_time(monkeypatch):
    log = memory()
    async with planner(log) as rig:
        with monkeypatch.context() as patched:
            dying(patched)
            rig.clock.advance(MINUTE)
            await until(lambda: rig.state.search.failures, rig.follower)
        for minute in range(3):
            rig.clock.advance(MINUTE)
            await until(lambda n=minute: len(rig.state.plans) == n + 1, rig.follower)
        commands = [d.steps for d in await named(log, e.SearchBegun, "migration")]
        assert commands == [0, STEPS // 4, STEPS // 4, STEPS // 4]
        rig.clock.advance(24 * 60 * MINUTE)
        await until(lambda: len(rig.state.plans) == 4, rig.follower)
        assert (await named(log, e.SearchBegun, "migration"))[-1].steps == 0
        assert search.note(rig.state, rig.clock.now()) == ""


async def test_another_configuration_forgets_what_failed(monkeypatch):
    dying(monkeypatch)
    log = memory()
    async with planner(log) as rig:
        rig.clock.advance(MINUTE)
        await until(lambda: rig.state.search.failures, rig.follower)
        await world(log, interval=2 * MINUTE)
        await until(lambda: not rig.state.search.failures, rig.follower)
        assert search.note(rig.state, rig.clock.now()) == ""


async def killed_in_a_plan(log, holder, clock=None):
    """A descheduler that is killed with the copy that makes its next plan. Its clock."""
    begun = asyncio.Event()

    async def for_ever(work):
        begun.set()
        await asyncio.Event().wait()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(long_decisions, "in_copy", for_ever)
        async with descheduler(log, holder=holder, clock=clock) as rig:
            if clock is None:
                await world(log)
                await until(lambda: rig.state.migration_config.defragmentation, rig.follower)
            rig.clock.advance(MINUTE)
            await soon(begun.wait())
            return rig.clock


async def test_a_service_that_was_killed_with_its_copy_finds_the_attempt_in_the_log_and_puts_it_off(monkeypatch):
    """Its node may have died, or somebody may have killed it: for a day searches had a quarter of their steps, and the alert was raised."""
    log = memory()
    clock = await killed_in_a_plan(log, "one")
    async with descheduler(log, holder="two", clock=clock) as rig:
        await until(lambda: rig.state.search.failures, rig.follower)
        ended = (await named(log, e.SearchEnded, "migration"))[0]
        assert (ended.reason, ended.message) == ("Died", "the service ended before it did, or could not log its end")
        await idle(200)
        assert not rig.state.plans, "not at once: it may end the same way"
        assert search.note(rig.state, clock.now()).endswith("could not log its end); none is made by itself for 60 s more")
        assert search.failing(rig.state, clock.now()) == 0
        clock.advance(MINUTE)
        await until(lambda: rig.state.plans, rig.follower)
        assert [event.steps for event in await named(log, e.SearchBegun, "migration")] == [0, 0]
        clock.advance(24 * 60 * MINUTE)
        await until(lambda: len(rig.state.plans) == 2, rig.follower)
        assert (await named(log, e.SearchBegun, "migration"))[-1].steps == 0


async def test_a_plan_in_which_the_service_was_killed_twice_takes_fewer_steps():
    """The kernel may kill all of a container (`memory.oom.group`): nobody is left to say so."""
    log = memory()
    clock = await killed_in_a_plan(log, "one")
    await killed_in_a_plan(log, "two", clock)
    async with descheduler(log, holder="three", clock=clock) as rig:
        await until(lambda: rig.state.search.failures == 2, rig.follower)
        assert search.failing(rig.state, clock.now()) == 1
        clock.advance(5 * MINUTE)
        await until(lambda: rig.state.plans, rig.follower)
        assert [event.steps for event in await named(log, e.SearchBegun, "migration")] == [0, 0, STEPS // 4]


async def test_whoever_asked_for_a_plan_that_came_to_no_end_is_told_why(monkeypatch):
    dying(monkeypatch)
    log = memory()
    async with planner(log) as rig:
        with pytest.raises(Rejected, match=r"defragment came to no end: its process was killed, .* Ask for less"):
            await soon(rig.commander.submit(c.Defragment(NOW, "api", "p1")))
        await until(lambda: rig.state.search.failures == 1, rig.follower)


async def test_a_plan_that_is_too_large_for_the_log_is_put_off_like_one_that_came_to_no_end(monkeypatch):
    log = memory()
    append = log.append

    async def bounded(family, body, envelope, *, expected_last):
        if b"migration.planned" in body:
            raise TooLarge(family, len(body), 100)
        return await append(family, body, envelope, expected_last=expected_last)

    log.append = bounded
    async with planner(log) as rig:
        rig.clock.advance(MINUTE)
        await until(lambda: rig.state.search.failures, rig.follower)
        await idle(500)
        assert [event.reason for event in await named(log, e.SearchEnded, "migration")] == ["TooLarge"]


async def test_a_plan_that_is_rejected_again_and_again_does_not_fill_the_log():
    class Refusing(Counting):
        def decide(self, state, command):
            if isinstance(command, c.Defragment):
                raise Rejected("not now")
            return super().decide(state, command)

    log = memory()
    async with running(log, decider=Refusing(), heavy=HEAVY) as rig:
        await rig.lead()
        await world(log)
        await until(lambda: rig.state.migration_config.defragmentation, rig.follower)
        rig.clock.advance(MINUTE)
        await until(lambda: rig.state.search.failures, rig.follower)
        await idle(500)
        assert [event.reason for event in await named(log, e.SearchEnded, "migration")] == ["Rejected"]


async def test_a_plan_that_somebody_asked_for_and_that_is_rejected_is_no_failure():
    log = memory()
    async with planner(log) as rig:
        await soon(rig.commander.submit(c.Defragment(NOW, "api", "p1")))
        with pytest.raises(Rejected, match="plan 'p1' exists already"):
            await soon(rig.commander.submit(c.Defragment(NOW, "api", "p1")))
        await until(lambda: not rig.state.search.plan, rig.follower)
        assert rig.state.search.failures == 0


async def test_a_service_that_stops_ends_its_copy_at_once_and_that_is_no_failure(monkeypatch):
    log, begun = memory(), asyncio.Event()

    async def slow(work):
        begun.set()
        await asyncio.sleep(60)

    monkeypatch.setattr(long_decisions, "in_copy", slow)
    async with planner(log) as rig:
        asked = rig.commander.submit(c.Defragment(NOW, "api", "p1"))
        await soon(begun.wait())
        rig.commander.drain()
        await soon(rig.tasks[1])
        with pytest.raises(Refused, match="this service is stopping"):
            await asked
    ended = await named(log, e.SearchEnded, "migration")
    assert [(one.reason, one.failed) for one in ended] == [("Stopped", False)]


async def test_what_waits_beside_a_plan_over_many_pods_is_decided_too():
    log = memory()
    async with planner(log) as rig:
        both = [rig.commander.submit(c.Defragment(NOW, "api", "p1")), rig.commander.submit(c.ReportHold(NOW, "nobody", "no")), rig.commander.submit(c.Defragment(NOW, "api", "p2"))]
        outcomes = await soon(asyncio.gather(*both))
        assert [len(outcome.events) for outcome in outcomes] == [1, 0, 1]


async def test_what_is_due_waits_for_one_plan_over_many_pods_at_most_however_many_are_asked_for(monkeypatch):
    """An eviction that was let go is reported, and a deadline passes, while ten people ask for plans: each of those may take two minutes."""
    made, log = [], memory()

    async def noted(work):
        made.append(list(rig.decider.asked))
        return await in_copy(work)

    async with planner(log) as rig:
        monkeypatch.setattr(long_decisions, "in_copy", noted)
        due = []

        def one_more(state, now):
            # As long as plans wait, there is always something to be done beside them.
            due.append(c.Advance(now))
            return due[-1] if len(due) < 8 else None

        monkeypatch.setattr(rig.decider, "due", one_more)
        plans = [rig.commander.submit(c.Defragment(NOW, "api", f"p{i}")) for i in range(4)]
        reports = [rig.commander.submit(c.ReportHold(NOW, "nobody", "no"))]
        await soon(asyncio.gather(*plans, *reports))
        assert len(made) == 4
        before = [{type(command).__name__ for command in asked} for asked in made]
        assert "ReportHold" in before[0], "it does not wait for any of them"
        advances = [sum(isinstance(command, c.Advance) for command in asked) for asked in made]
        assert advances[1:] == sorted(set(advances[1:])), "each plan lets what is due go first, once"


async def test_a_real_copy_that_is_killed_leaves_its_reason_in_the_log(monkeypatch):
    import os

    async def suicidal(work):
        return await in_copy(lambda: os.kill(os.getpid(), 9) or b"")

    monkeypatch.setattr(long_decisions, "in_copy", suicidal)
    log = memory()
    async with planner(log) as rig:
        with pytest.raises(Rejected):
            await soon(rig.commander.submit(c.Defragment(NOW, "api", "p1")))
        await until(lambda: rig.state.search.failures, rig.follower)
        assert rig.state.search.reason == "CopyFailed"


def refuse(log, error, times: int, *events: type[e.Event]) -> None:
    """So many times the broker does not take a commit with one of these events."""
    append, left = log.append, [times]
    tags = [f'"{one.__struct_config__.tag}"'.encode() for one in events]

    async def refusing(family, body, envelope, *, expected_last):
        if left[0] and any(tag in body for tag in tags):
            left[0] -= 1
            raise error()
        return await append(family, body, envelope, expected_last=expected_last)

    log.append = refusing


@pytest.mark.parametrize("error", [lambda: Conflict("migration", 3, 4), lambda: Unknown("migration", "id", "the broker does not answer")])
async def test_a_plan_that_the_broker_did_not_take_is_made_again_at_once_with_all_its_steps(error):
    """Its leader had changed just then: no plan was made for a minute, searches had a quarter of their steps for a day, and the alert was raised."""
    log = memory()
    async with planner(log) as rig:
        refuse(log, error, 1, e.Planned)
        rig.clock.advance(MINUTE)
        await until(lambda: rig.state.plans, rig.follower)
    _, ended, again, planned = await searches(log)
    assert (ended.reason, ended.failed) == ("NotStored", False)
    assert (again.steps, planned.fault) == (0, False)
    assert search.note(rig.state, rig.clock.now()) == ""


@pytest.mark.parametrize("error", [lambda: Conflict("migration", 3, 4), lambda: Unknown("migration", "id", "the broker does not answer")])
async def test_that_the_broker_did_not_take_a_plan_is_on_record_also_where_it_does_not_take_that_at_first(error):
    """A broker that elects a leader lets several commits go unanswered: that it had no end was taken for what a process had died of."""
    log = memory()
    async with planner(log) as rig:
        refuse(log, error, 3, e.Planned, e.SearchEnded)
        rig.clock.advance(MINUTE)
        await until(lambda: rig.state.plans, rig.follower)
    _, ended, again, _ = await searches(log)
    assert (ended.reason, ended.failed, again.steps) == ("NotStored", False, 0)


async def test_a_plan_that_was_put_on_record_late_has_not_failed():
    """Its answer was lost, and it reached the log only when the next one was to be put on record."""
    log, late = memory(), []
    async with planner(log) as rig:
        append = log.append

        async def losing(family, body, envelope, *, expected_last):
            if late:
                log.append = append
                await append(family, *late, expected_last=expected_last)
            elif b'"migration.search_begun"' in body:
                late.extend((body, envelope))
                rig.clock.advance(50)  # So the next plan has another name.
                raise Unknown(family, envelope.id, "lost on the way")
            return await append(family, body, envelope, expected_last=expected_last)

        log.append = losing
        rig.clock.advance(MINUTE)
        await until(lambda: rig.state.plans, rig.follower)
    begun, ended, again, planned = await searches(log)
    assert (ended.plan, ended.reason, ended.failed) == (begun.plan, "NotStored", False)
    assert (again.plan, again.steps) == (planned.plan, 0)
    assert begun.plan != again.plan


async def test_a_plan_whose_time_is_over_before_anybody_could_make_it_has_not_failed():
    """The broker was away until the policy's window had closed: for a day the search had a quarter of its steps, and the alert was raised."""
    log = memory()
    async with descheduler(log) as rig:
        await facts(log, node("n0"), node("n1"), shape("s"), pod("p0", "s", "n0"))
        window = config.Period(start=rfc3339(NOW - MINUTE), end=rfc3339(NOW + 5 * MINUTE))
        text = config.text_of(MigrationConfig(interval=MINUTE, windows=(window,), policy=written(policy(profile("RemoveFailedPods", {})))))
        await facts(log, e.MigrationConfigured(text, config.digest_of(text)), family="migration")
        await until(lambda: rig.state.migration_config.policy, rig.follower)
        rig.clock.advance(10 * MINUTE)
        await until(lambda: rig.state.last["migration"] == 5 and not rig.state.search.plan, rig.follower)
        (ended,) = await named(log, e.SearchEnded, "migration")
        assert (ended.reason, ended.failed) == ("Stopped", False)
        assert search.failing(rig.state, rig.clock.now()) == 0
        rig.clock.advance(MINUTE)
        await idle()
        assert rig.state.seq == 5, "it is not tried again"


@pytest.mark.parametrize("alone", [False, True])
async def test_why_a_pod_stays_is_told_where_a_plan_could_not_be_made(monkeypatch, alone):
    """`restow why` ended by the same error as the plan."""
    log = memory()
    async with descheduler(log) as rig:
        if alone:
            monkeypatch.setattr(DECIDING, "defragment", raising(OverflowError, "too large"))
            monkeypatch.setattr(replayed, "explain_alone", raising(OverflowError, "too large"))
            await world(log)
        else:
            failing(monkeypatch)
            await policies(log, profile("PodLifeTime", {"maxPodLifeTimeSeconds": 60}, name="old"), profile("RemoveFailedPods", {}, name="failed"))
        await until(lambda: rig.state.configured.get("migration"), rig.follower)
        rig.clock.advance(MINUTE)
        await until(lambda: rig.state.plans and not rig.state.search.plan, rig.follower)
    stays = replayed.why(ListSource(await records(log)), "pod/p0").stays
    assert stays.verdict == "NotLookedAt"
    assert "could not be made by a fault of Restow's own, which is worth a report: OverflowError: " in stays.message
