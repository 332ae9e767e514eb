"""The command loop: one commit in flight, lost answers, conflicts, nothing spins (DESIGN 2)."""

import asyncio

import pytest
from domain.build import NOW, node, pod, shape

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision, encode
from restow.contracts.envelope import Envelope
from restow.domain import config
from restow.domain.decider import Rejected
from restow.domain.gc.decider import GcDecider
from restow.eventlog.port import Unknown
from restow.runtime.command_queue import Refused, Unsure
from restow.runtime.commander import Commander, NotFolded
from restow.runtime.follower import Follower
from restow.runtime.leadership import Deposed, Leadership
from restow.runtime.telemetry import Metrics

from .rig import (
    ManualClock,
    Rig,
    cluster,
    facts,
    history,
    idle,
    lose_answer,
    memory,
    named,
    running,
    soon,
    until,
)


async def test_a_pod_in_the_log_is_placed_and_bound():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        bound = await soon(rig.bound.get())
    assert (bound.pod, bound.node) == ("p0", "n0")
    assert [p.pod for p in await named(log, e.PodPlaced)] == ["p0"]


async def test_leadership_and_then_configuration_come_before_any_decision():
    log = memory()
    await cluster(log)
    rig = Rig(log)
    rig.commander.configuration = config.text_of(config.SessionConfig(scheduler_names=("restow", "volcano")))
    rig.start()
    await rig.lead()
    await soon(rig.bound.get())
    await rig.end()
    kinds = [type(event) for _, _, events in await history(log) for event in events]
    assert kinds == [e.SessionLed, e.SessionConfigured, e.PodPlaced]
    assert rig.state.session_config.scheduler_names == ("restow", "volcano")


async def test_a_commit_whose_answer_was_lost_is_not_decided_twice():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        lose_answer(log, "session", stored=True)
        await cluster(log)
        await soon(rig.bound.get())
        await idle()
        assert len(await named(log, e.PodPlaced)) == 1
        assert rig.commander.trouble.why == ""


async def test_a_commit_that_was_lost_is_decided_again_under_a_new_id():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        lose_answer(log, "session", stored=False)
        await cluster(log)
        await soon(rig.bound.get())
    ids = [ce_id for _, ce_id, _ in await history(log)]
    assert len(ids) == len(set(ids)) == 2
    assert len(await named(log, e.PodPlaced)) == 1


async def test_whoever_submitted_a_command_is_told_its_events_although_the_answer_was_lost():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        lose_answer(log, "session", stored=True)
        outcome = await soon(rig.commander.submit(c.RefuseBind(NOW, "p0", "n0", "no")))
        assert [type(event) for event in outcome.events] == [e.PodReleased]
        assert outcome.seq


async def test_a_lost_lead_is_recognised_and_does_not_depose_its_own_process():
    log = memory()
    lose_answer(log, "session", stored=True)
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
    assert [event.epoch for event in await named(log, e.SessionLed)] == [1]


async def test_after_a_conflict_the_command_is_decided_again_on_the_new_state():
    """Somebody else's commit in our family lands between our read and our append."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        append, foreign = log.append, asyncio.Event()

        async def overtaken(family, body, envelope, *, expected_last):
            if family == "session" and not foreign.is_set():
                foreign.set()
                await facts(log, e.PodPlaced("p0", "n1"), family="session")
            return await append(family, body, envelope, expected_last=expected_last)

        log.append = overtaken
        await cluster(log, pods=2, nodes=2)
        assert {(await soon(rig.bound.get())).pod for _ in range(2)} == {"p0", "p1"}
    placed = await named(log, e.PodPlaced)
    assert sorted(p.pod for p in placed) == ["p0", "p1"]
    assert next(p.node for p in placed if p.pod == "p0") == "n1"


async def test_what_arrives_while_a_commit_is_in_flight_is_one_next_commit():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        append, go, started = log.append, asyncio.Event(), asyncio.Event()

        async def slow(family, body, envelope, *, expected_last):
            if family == "session":
                started.set()
                await go.wait()
            return await append(family, body, envelope, expected_last=expected_last)

        log.append = slow
        await cluster(log, pods=1)
        await soon(started.wait())
        for i in range(1, 6):
            await facts(log, pod(f"p{i}"))
        await idle()
        go.set()
        for _ in range(6):
            await soon(rig.bound.get())
    sizes = [len([x for x in events if isinstance(x, e.PodPlaced)]) for _, _, events in await history(log)]
    assert sizes == [0, 1, 5]


async def test_an_empty_decision_is_not_tried_again_before_the_state_changes_or_its_deadline_comes():
    log = memory()

    class Stubborn(GcDecider):
        """Always has something due, and decides nothing."""

        asked = 0

        def due(self, state, now):
            return c.Collect(now)

        def deadline(self, state):
            return NOW - 1

        def decide(self, state, command):
            self.asked += 1
            return ()

    decider, clock = Stubborn(), ManualClock()
    follower, leadership = Follower(log, "gc", Rig(log).state), Leadership("gc", "one")
    commander = Commander(log, follower, decider, leadership, clock, Metrics("gc"), service="garbage_collector")
    tasks = [asyncio.create_task(loop.run()) for loop in (follower, commander)]
    leadership.claim()
    await until(lambda: leadership.leading and decider.asked, follower)
    await idle(500)
    assert decider.asked == 1
    clock.advance(2_000)
    await idle()
    assert decider.asked == 2
    await facts(log, node("n0"))
    await idle()
    assert decider.asked == 3
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_deadline_that_passes_while_nothing_is_due_is_not_asked_about_over_and_over():
    """The next eviction within the rate, say, while the pods that are on the way take long to land, and nothing happens."""

    class Idle(GcDecider):
        asked = 0

        def due(self, state, now):
            self.asked += 1

        def deadline(self, state):
            return NOW + 100

    decider = Idle()
    async with running(memory(), decider=decider) as rig:
        await rig.lead()
        await idle()
        rig.clock.advance(100)
        await idle()
        known = decider.asked
        for _ in range(900):
            rig.clock.advance(1)
            await idle(3)
        assert decider.asked == known
        rig.clock.advance(101)
        await idle()
        assert decider.asked == known + 1


async def test_what_is_due_is_not_forgotten_for_a_command_that_leads_to_nothing():
    """A second report of what is known already came with the fact for which a pod was to be placed: it waited for the next fact, or deadline."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        empty = []
        rig.follower.listeners.append(lambda: empty or empty.append(rig.commander.submit(c.RefuseBind(NOW, "nobody", "n0", "late"))))
        await facts(log, node("n0"), shape("s"), pod("p"))
        assert (await soon(rig.bound.get())).pod == "p"
        assert empty[0].result().seq == 0


async def test_a_session_that_is_too_large_for_one_commit_is_decided_in_parts():
    log = memory()
    log.max_body = 2_000
    async with running(log) as rig:
        await rig.lead()
        log.max_body = 4 << 20
        await cluster(log, pods=40, nodes=10)
        log.max_body = 2_000
        for _ in range(40):
            await soon(rig.bound.get())
    sizes = [len(events) for _, _, events in await history(log)]
    assert max(sizes) < 40
    assert sum(sizes) == 41


async def test_a_decision_that_no_reader_could_read_is_refused_and_not_lost_in_the_log():
    log = memory()

    class Unreadable(Rig(log).decider.__class__):
        def decide(self, state, command):
            return [e.PodPlaced("p0", "n0", cores=(1 << 63,))] if isinstance(command, c.RefuseBind) else super().decide(state, command)

    async with running(log, decider=Unreadable()) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        with pytest.raises(Rejected, match="a commit of family 'session' would be void: it cannot be read"):
            await soon(rig.commander.submit(c.RefuseBind(NOW, "p0", "n0", "no")))
        assert rig.state.seq == await log.tail()
        assert not rig.state.void


async def test_a_commit_that_the_log_made_void_ends_the_service_instead_of_counting_as_committed():
    """Somebody, or something, between us and the log's records has changed what we said."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        append = log.append

        async def spoiling(family, body, envelope, *, expected_last):
            return await append(family, body[:-1] if family == "session" else body, envelope, expected_last=expected_last)

        log.append = spoiling
        await cluster(log)
        with pytest.raises(NotFolded, match="record 3 is void"):
            await soon(rig.tasks[1])
        assert rig.bound.empty()


async def test_a_rejected_command_is_told_to_its_submitter_and_the_others_are_decided():
    log = memory()

    class Picky(Rig(log).decider.__class__):
        def decide(self, state, command):
            if isinstance(command, c.RefuseBind) and command.pod == "bad":
                raise Rejected("bad; allowed: good")
            return super().decide(state, command)

    async with running(log, decider=Picky()) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        bad = rig.commander.submit(c.RefuseBind(NOW, "bad", "n0", "x"))
        good = rig.commander.submit(c.RefuseBind(NOW, "p0", "n0", "x"))
        with pytest.raises(Rejected, match="allowed: good"):
            await soon(bad)
        outcome = await soon(good)
        assert [type(event) for event in outcome.events] == [e.PodReleased]


@pytest.mark.parametrize("has_lease", [False, True])
async def test_two_leaders_the_deposed_one_stops_deciding_and_acting(has_lease):
    """Where it has the Lease all the while the other one is another cluster's, which uses the same log: that is said."""
    log = memory()
    first, second = Rig(log, holder="first").start(), Rig(log, holder="second").start()
    first.leadership.holds_lease = lambda: has_lease
    await first.lead()
    await second.lead()
    await until(lambda: first.tasks[0].done(), first.follower)
    assert isinstance(first.tasks[0].exception(), Deposed)
    assert "second leads session since epoch 2" in str(first.tasks[0].exception())
    assert ("a RESTOW_CLUSTER of its own" in str(first.tasks[0].exception())) is has_lease
    await cluster(log)
    assert (await soon(second.bound.get())).pod == "p0"
    await idle()
    assert first.bound.empty()
    assert first.decider.decided == 0
    for rig in (first, second):
        await rig.end()


async def test_a_drained_commander_refuses_what_comes_later():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        rig.commander.drain()
        await soon(rig.tasks[1])
        with pytest.raises(Refused):
            await rig.commander.submit(c.Schedule(NOW))


async def test_whoever_waits_for_a_commit_that_gets_no_answer_while_the_service_stops_is_told_so():
    """Over HTTP that is a status with a reason, and no connection that is closed without a word. It may be in the log, for the next leader: nobody is to ask for it twice."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await facts(log, node("a"), shape("s"), pod("p"))
        await until(lambda: rig.state.placed, rig.follower)
        appending, lost, append = asyncio.Event(), asyncio.Event(), log.append

        async def unanswered(family, body, envelope, *, expected_last):
            appending.set()
            await lost.wait()
            raise Unknown(family, envelope.id, "no answer")

        log.append = unanswered
        outcome = rig.commander.submit(c.RefuseBind(NOW, "p", "a", "Terminating"))
        await soon(appending.wait())
        log.append = append
        rig.commander.drain()
        lost.set()
        with pytest.raises(Unsure, match="stopping"):
            await soon(outcome)


@pytest.mark.parametrize("taken", [True, False])
async def test_whoever_waits_while_another_process_takes_over_is_told_whether_it_was_taken(taken):
    """A deposed leader ends at once, in the middle of its commit. What it had not begun with another one may be asked for."""
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await facts(log, node("a"), shape("s"), pod("p"))
        await until(lambda: rig.state.placed, rig.follower)
        appending = asyncio.Event()

        async def hangs(family, body, envelope, *, expected_last):
            appending.set()
            await asyncio.Event().wait()

        log.append = hangs
        first = rig.commander.submit(c.RefuseBind(NOW, "p", "a", "Terminating"))
        await soon(appending.wait())
        second = rig.commander.submit(c.RefuseBind(NOW, "p", "a", "Terminating"))
        # As a process does whose other task has failed.
        rig.tasks[1].cancel()
        with pytest.raises(Refused, match="stopping") as told:
            await soon(first if taken else second)
        assert isinstance(told.value, Unsure) == taken
        with pytest.raises(Refused):
            await rig.commander.submit(c.Schedule(NOW))


@pytest.mark.parametrize(
    ("family", "written", "body"),
    [
        ("cluster", Envelope("x", "/t", "2026-01-01T00:00:00.000Z", 0, "cluster@1"), b"{not json"),
        ("cluster", Envelope("x", "/t", "2026-01-01T00:00:00.000", 0, "cluster@1"), encode([Decision(c.Observe("nodes", "list"), ())])),
        ("session", Envelope.of({}), b'{"type":"io.nats.jetstream.api.v1.stream_info_response"}'),
        ("cluster", Envelope("x", "/t", "2026-01-01T00:00:00.000Z", 0, "cluster@1", log="another"), encode([])),
        ("gc", Envelope("x", "/t", "2026-01-01T00:00:00.000Z", 0, "gc@1"), encode([Decision(c.Observe("a", "b"), (e.NodeGone("n0"),))])),
    ],
    ids=["not JSON", "no zone", "no envelope", "another log", "another family"],
)
async def test_a_record_that_is_not_ours_stops_no_service(family, written, body):
    """Before and after its leader came, whoever's family it is in: the service leads, decides and appends (RULES G-16)."""
    log = memory()
    await log.append(family, body, written, expected_last=0)
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        assert (await soon(rig.bound.get())).pod == "p0"
        await log.append(family, body, written, expected_last=await log.last_of(family))
        await facts(log, pod("p9"))
        assert (await soon(rig.bound.get())).pod == "p9"
        assert sum(rig.state.void.values()) == rig.state.counts()["foreign_records"] == 2


async def test_after_the_whole_family_was_truncated_away_it_goes_on():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        await log.truncate(await log.tail())
        await facts(log, pod("p9"))
        assert (await soon(rig.bound.get())).pod == "p9"


async def test_each_fact_begins_a_trace_and_what_it_leads_to_joins_it():
    log = memory()
    async with running(log) as rig:
        await rig.lead()
        await cluster(log)
        await soon(rig.bound.get())
        parent = rig.commander._tracer.span("fact").traceparent
        await facts(log, pod("p9"), traceparent=parent)
        await soon(rig.bound.get())
        records = [record async for batch in _until_tail(log) for record in batch if record.family == "session"]
    traces = [record.envelope.traceparent[3:35] for record in records]
    assert traces[-1] == parent[3:35]
    assert len(set(traces)) == len(traces)


async def _until_tail(log):
    tail = await log.tail()
    async for batch in log.read(1):
        yield batch
        if batch[-1].seq >= tail:
            return
