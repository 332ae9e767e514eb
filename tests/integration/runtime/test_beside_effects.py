"""The saga's effects for pods of another scheduler: nobody is evicted where the API does not gate the successor, and an entry is of all moves of its
controller."""

from contextlib import suppress
from types import SimpleNamespace

import pytest
from domain import test_beside_reservations as reserved
from domain.build import NOW, configured, node, pod, replica_of, run, shape, then
from domain.saga import OWNER, advance, create, decider, evicts, move, plan, step
from domain.test_beside import STOCK, evicted, holding, opened, session_answers, stands, world
from domain.test_claim_moves import devices as claims_devices
from domain.test_claim_moves import evicting as evicting_claim
from domain.test_claim_moves import replaced
from domain.test_claim_moves import world as claims_world

from restow import machine
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import rfc3339
from restow.descheduler import landings as subject
from restow.descheduler.effects import executors
from restow.domain import beside, config, gated, session
from restow.domain.effects import (
    CloseLanding,
    CreatePlaceholder,
    Evict,
    Land,
    LetGo,
    ListOwners,
    NominateAgain,
    OpenLanding,
)
from restow.domain.landing_gate import LEASE, RENEWED
from restow.domain.migration import gating
from restow.domain.pod_controllers import LWS_GROUP, LWS_INDEX, LWS_NAME
from restow.domain.records import Step
from restow.domain.snapshot import dump, load
from restow.kube import effects as k
from restow.kube.beside import Beside, Unkept
from restow.kube.gates import Gated, Missing, NotGated, Owned
from restow.kube.gates import Gates as KubeGates
from restow.kube.handover import PATIENCE
from restow.kube.landing_entries import POD_NAME, entries
from restow.kube.placeholder import IMAGE
from restow.kube.reservation_objects import Created
from restow.kube.server_clock import ServerClock
from restow.runtime.effector import Done, Report, Retry, Wait
from restow.scheduler_session.beside import BesideEffects
from restow.scheduler_session.landing_leases import HEARS, LandingLeases


class Api:
    """What was asked of it, and what it says."""

    def __init__(self, monkeypatch, said=k.Done()):
        self.entries, self.evicted, self.said, self.now, self.steady = [], [], said, NOW, 1_000.0
        self.ahead = self.looks = 0
        self.ends = NOW + LEASE
        """Of the entry in the Landing, as a dry run says: by its own clock."""

        async def landing(_, log, entries, owners=None):
            self.entries.append({**entries, **(owners or {})})
            return self.said

        async def ahead(_):
            return self.ahead

        async def look(_):
            self.looks += 1

        async def gated(_, controller):
            return NotGated()

        async def evict(_, pod, *more, **named):
            self.evicted.append(pod)
            return k.Accepted()

        monkeypatch.setattr(KubeGates, "landing", landing)
        monkeypatch.setattr(KubeGates, "gated", gated)
        monkeypatch.setattr(ServerClock, "ahead", ahead)
        monkeypatch.setattr(ServerClock, "look", look)
        monkeypatch.setattr(k.Effects, "evict", evict)
        monkeypatch.setattr(machine, "steady", lambda: self.steady)

    def executors(self, state):
        """Of a process that has just taken the lead."""
        clock = SimpleNamespace(now=lambda: self.now)
        context = SimpleNamespace(client=None, state=state, clock=clock, recorder=None, metrics=SimpleNamespace(gauges=lambda read: None))
        return executors(context, subject.Landings(context))


def effects_of(context, image=""):
    return BesideEffects(context, LandingLeases(context), image)


def evicting(monkeypatch):
    """A move of another scheduler's pod whose eviction is decided, and the API that it meets."""
    state = holding(world())
    opened(state)
    stands(state)
    assert evicts(advance(state)) == ["x-1"]
    return state, Api(monkeypatch)


def evicting_gated(monkeypatch):
    """The same; its successor would be gated."""
    state, api = evicting(monkeypatch)

    async def gated(_, controller):
        return Gated(api.ends)

    monkeypatch.setattr(KubeGates, "gated", gated)
    return state, api


async def test_where_the_successor_would_not_be_gated_nobody_is_evicted(monkeypatch):
    state, api = evicting(monkeypatch)
    execute = api.executors(state)[Evict].execute
    said = await execute(Evict("x-1"), state)
    assert isinstance(said, Retry)
    assert said.after == subject.AGAIN
    api.now = gating.waits_until(state.migrations["x-1"]) - 1
    said = await execute(Evict("x-1"), state)
    assert isinstance(said, Retry), "an API server that has just started may not count the policy for half a minute"
    assert said.after == subject.LATER
    api.now += 1
    said = await execute(Evict("x-1"), state)
    assert isinstance(said, Report)
    run(state, decider, said.command)
    run(state, decider, c.ReportEviction(api.now, "x-1", "Aborted"))
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.FAILED, "NotGated")
    assert api.evicted == []


@pytest.mark.parametrize("ahead", [600_000, -600_000])
async def test_an_entry_ends_by_the_clock_of_the_api_server(monkeypatch, ahead):
    """It is compared with that by the policy: ours may be minutes away."""
    state = holding(world())
    api = Api(monkeypatch)
    api.ahead = ahead
    (effect,) = [one for one in decider.pending(state, None) if isinstance(one, OpenLanding)]
    said = await api.executors(state)[OpenLanding].execute(effect, state)
    assert api.entries == [{OWNER.uid: NOW + LEASE + ahead}]
    assert said == Report(c.ReportLanding(NOW, "x-1", OWNER.uid, NOW + LEASE)), "what is said in the log is by the log's"


@pytest.mark.parametrize("ahead", [0, 600_000, -600_000])
async def test_nobody_is_evicted_whose_entry_the_session_does_not_renew(monkeypatch, ahead):
    """It lets the successor go: with the session away nobody would. And nobody else renews the entries, for new pods of all of their controllers would wait with it."""
    state, api = evicting_gated(monkeypatch)
    api.ahead = ahead
    execute = api.executors(state)[Evict].execute
    api.ends = api.now + subject.ENOUGH - 1 + ahead
    said = await execute(Evict("x-1"), state)
    assert isinstance(said, Retry)
    assert "is not renewed (it ends in 89 s)" in said.reason
    api.ends += 1
    assert await execute(Evict("x-1"), state) == Wait(subject.HEARD), "it is back"
    api.steady, api.now = api.steady + subject.HEARD, gating.waits_until(state.migrations["x-1"])
    said = await execute(Evict("x-1"), state)
    assert (isinstance(said, Report), said.command.reason, "is not renewed" in said.command.message) == (True, "NotGated", True), "its time to be evicted is up"
    assert (api.evicted, api.entries) == ([], [])


async def test_who_takes_the_lead_or_was_away_waits_until_an_entry_is_heard_of(monkeypatch):
    state, api = evicting_gated(monkeypatch)
    does = api.executors(state)
    assert await does[Evict].execute(Evict("x-1"), state) == Wait(subject.HEARD)
    assert (await does[Evict].execute(Evict("x-1"), state), api.looks) == (Wait(subject.HEARD), 0)
    api.steady += subject.HEARD
    with suppress(AttributeError):  # it tells nobody
        await does[Evict].execute(Evict("x-1"), state)
    assert len(api.evicted) == 1
    # A leader that was paused for longer than the lease: the session has made the entry anew a moment ago.
    api.now, api.steady, api.ends = NOW + LEASE, api.steady + LEASE / 1000, NOW + 2 * LEASE
    assert await does[Evict].execute(Evict("x-1"), state) == Wait(subject.HEARD)
    assert len(api.evicted) == 1


async def test_an_end_that_nobody_could_have_written_has_the_clock_of_the_api_server_asked_for_anew(monkeypatch):
    """Somebody has set it while an eviction waited."""
    state, api = evicting_gated(monkeypatch)

    async def look(_):
        api.ahead, api.looks = 300_000, api.looks + 1

    monkeypatch.setattr(ServerClock, "look", look)
    api.ends = NOW + 300_000 + subject.ENOUGH - 1
    said = await api.executors(state)[Evict].execute(Evict("x-1"), state)
    assert (isinstance(said, Retry), api.looks) == (True, 1)


async def test_an_entry_that_another_leader_has_made_a_moment_ago_is_waited_for_by_a_standby_that_is_up_for_hours(monkeypatch):
    """Two API servers: one gates the successor already, the other one may make it."""
    state, api = evicting_gated(monkeypatch)
    execute = api.executors(state)[Evict].execute
    api.steady += 3_600
    assert (await execute(Evict("x-1"), state), api.evicted) == (Wait(subject.HEARD), [])
    api.steady += subject.HEARD
    with suppress(AttributeError):  # The rig has nobody to tell of it.
        await execute(Evict("x-1"), state)
    assert len(api.evicted) == 1


async def test_an_entry_stays_while_a_move_needs_it(monkeypatch):
    state = holding(world())
    opened(state)
    api = Api(monkeypatch)
    close = api.executors(state)[CloseLanding].execute
    await close(CloseLanding("x-1"), state)
    assert api.entries == []
    run(state, decider, c.CancelPlan(NOW, "x", "by hand"))
    advance(state)
    assert await close(CloseLanding("x-1"), state) == Report(c.ReportLanding(NOW, "x-1"))
    assert api.entries == [{OWNER.uid: None}]


async def test_an_entry_that_another_move_may_need_in_a_moment_is_taken_off_by_the_first_where_the_other_ends_before(monkeypatch):
    """Nobody else would take it off, and it stayed until it ended by itself."""
    state = world(pod("q", node="a", owner=OWNER), node("a", cpu=8_000), node("c", cpu=4_000))
    then(state, plan("x", move("x-1")), plan("y", move("y-1", "q", target="c")))
    advance(state)
    create(state, "x-1", "y-1")
    session_answers(state)
    api = Api(monkeypatch)
    run(state, decider, c.ReportLanding(NOW, "x-1", OWNER.uid, NOW + LEASE))
    run(state, decider, c.CancelPlan(NOW, "x", "by hand"))
    advance(state)
    close = api.executors(state)[CloseLanding].execute
    assert gating.is_needed(state, OWNER.uid)
    assert await close(CloseLanding("x-1"), state) == Wait(1.0)
    assert CloseLanding("x-1") in list(decider.pending(state, None))
    both = load(dump(state))
    run(state, decider, c.CancelPlan(NOW, "y", "by hand"))
    advance(state)
    assert await close(CloseLanding("x-1"), state) == Report(c.ReportLanding(NOW, "x-1"))
    assert api.entries == [{OWNER.uid: None}]
    run(both, decider, c.ReportLanding(NOW, "y-1", OWNER.uid, NOW + LEASE))
    assert await close(CloseLanding("x-1"), both) == Report(c.ReportLanding(NOW, "x-1")), "the other one takes it off"
    assert api.entries == [{OWNER.uid: None}]


async def test_without_the_definition_the_move_ends_and_says_what_to_do(monkeypatch):
    state = holding(world())
    api = Api(monkeypatch, k.Refused(404, "NotFound"))
    said = await api.executors(state)[OpenLanding].execute(OpenLanding("x-1", OWNER.uid), state)
    assert said == Report(c.ReportHold(NOW, "x-1", f"{subject.LACKING}: 404 NotFound", landing=True))


async def test_the_successor_of_a_worker_whose_group_is_made_anew_is_gated_by_its_name(monkeypatch):
    """LeaderWorkerSet with RecreateGroupOnPodRestart: its StatefulSet is another one then, and its name the same."""
    worker = pod("p", node="a", owner=replica_of("l-1", "StatefulSet"), labels={LWS_NAME: "l", LWS_GROUP: "1", LWS_INDEX: "1"})
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0, beside=(STOCK,), movable_owners=("LeaderWorkerSet.leaderworkerset.x-k8s.io",))
    state = holding(then(world(), configured("migration", conf), worker))
    api = Api(monkeypatch)
    execute = api.executors(state)
    (effect,) = [effect for effect in decider.pending(state, None) if isinstance(effect, OpenLanding)]
    said = await execute[OpenLanding].execute(effect, state)
    both = {"uid-l-1": NOW + LEASE, "x-1": Owned("default", [{POD_NAME: "p"}], NOW + LEASE)}
    assert api.entries == [both]
    run(state, decider, said.command)
    assert list(entries(gating.listed(state), NOW + LEASE)) == [{"uid-l-1": NOW + LEASE}, {"x-1": both["x-1"]}], "renewed together"
    assert gating.is_named(state, "x-1"), "garbage_collector leaves it"
    run(state, decider, c.CancelPlan(NOW, "x", "by hand"))
    advance(state)
    run(state, decider, (await execute[CloseLanding].execute(CloseLanding("x-1"), state)).command)
    assert api.entries[1:] == [{"uid-l-1": None, "x-1": None}]
    assert not gating.is_named(state, "x-1")


@pytest.mark.parametrize("said", ["[a, '']", "['']", "[default-scheduler, default-scheduler]"])
def test_a_scheduler_has_a_name_and_is_named_once(said):
    from restow.runtime.config_source import BadConfig, parse
    from restow.runtime.policy_file import read

    document = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nrestow: {beside: %s}\n"
    assert read(parse(document % "[default-scheduler]")).beside == ("default-scheduler",)
    with pytest.raises(BadConfig, match="beside"):
        read(parse(document % said))


async def test_a_guard_that_the_api_refuses_ends_a_move_before_the_eviction_and_is_tried_again_after_it(monkeypatch):
    async def guard(_, *said):
        return k.Refused(403, "Forbidden", "by policy")

    monkeypatch.setattr(Beside, "guard", guard)
    occupy = effects_of(SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: NOW))).occupy
    state = holding(world())
    opened(state)
    stands(state)
    advance(state)
    said = await occupy(CreatePlaceholder("guard", "x-1"), state)
    assert said == Report(c.RefusePlaceholder(NOW, "guard", "x-1", "403 Forbidden by policy"))
    state = evicted(world())
    then(state, e.PodGone("g"))
    assert isinstance(await occupy(CreatePlaceholder("guard", "x-1"), state), Retry)


async def test_a_gate_that_the_api_keeps_on_a_pod_is_told_in_the_log_and_by_an_event(monkeypatch):
    async def let_go(_, pod):
        return k.Refused(403, "Forbidden", "by a webhook")

    monkeypatch.setattr(Beside, "let_go", let_go)
    told = []
    context = SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: NOW), recorder=SimpleNamespace(record=told.append))
    state = evicted(world())
    then(state, shape("big", cpu=3_500, scheduler="default-scheduler"), pod("stranger", "big", owner=OWNER, gated=True, landing=True))
    said = await effects_of(context).let_go(LetGo("stranger"), state)
    assert said == Report(c.RefuseLetGo(NOW, "stranger", "403 Forbidden by a webhook"))
    assert [(one.regarding.name, one.reason, one.type) for one in told] == [("stranger", "NotUngated", "Warning")]
    run(state, session.decider, said.command)
    waits = await effects_of(context).let_go(LetGo("stranger"), state)
    assert isinstance(waits, Wait)
    assert len(told) == 1


@pytest.mark.parametrize(
    ("message", "hint"),
    [('pods is forbidden: User "x" cannot create resource "pods" in API group "" in the namespace "default"', "is deploy/beside/claims/rights.yaml applied in this namespace"), ("exceeded quota: q", "")],
)
async def test_a_namespace_of_claims_without_rights_is_told_what_to_apply(monkeypatch, message, hint):
    """A policy can name a namespace that nobody has given rights in."""
    async def occupy(_, *said):
        return k.Refused(403, "Forbidden", message)

    monkeypatch.setattr(Beside, "occupy", occupy)
    state = holding(claims_world(claims_devices("b")))
    (name,) = state.slots["hold-x-1"]
    said = await effects_of(SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: NOW))).occupy(CreatePlaceholder("hold-x-1", name), state)
    assert said.command.reason.startswith(f"403 Forbidden {message}")
    assert hint in said.command.reason
    assert ("rights.yaml" in said.command.reason) == bool(hint)


async def test_a_claim_that_may_not_be_handed_over_is_asked_for_again_soon_and_then_an_event_says_why_not(monkeypatch):
    refused = k.Refused(403, "Forbidden", "by a webhook")
    answers, told = [refused, Unkept(refused)], []

    async def land(_, *said):
        return answers.pop(0)

    monkeypatch.setattr(Beside, "land", land)
    context = SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: NOW), recorder=SimpleNamespace(record=told.append))
    state = replaced(evicting_claim())
    again = await effects_of(context).land(Land("p2", "b"), state)
    assert isinstance(again, Retry)
    assert 0 < again.after < PATIENCE / 3
    assert not told
    assert await effects_of(context).land(Land("p2", "b"), state) == Done()
    assert [(one.regarding.name, one.reason, one.type) for one in told] == [("p2", "NotHandedOver", "Warning")]
    assert "refuses to hand the claim over: 403 Forbidden by a webhook" in told[0].note


@pytest.mark.parametrize(("allowed", "listed"), [(k.Done(), True), (k.Refused(403, "Forbidden", "cannot patch pods"), False)])
async def test_owners_of_a_reservation_are_gated_only_where_the_gate_could_be_taken_away_again(monkeypatch, allowed, listed):
    state = reserved.held(reserved.world())
    asked, entries = [], []

    async def let_go(_, pod):
        asked.append(pod.uid)
        return allowed

    async def landing(_, log, by_uid, owners):
        entries.append(owners["r"])
        return k.Done()

    async def ahead(_):
        return 0

    monkeypatch.setattr(Beside, "let_go", let_go)
    monkeypatch.setattr(KubeGates, "landing", landing)
    monkeypatch.setattr(ServerClock, "ahead", ahead)
    effects = effects_of(SimpleNamespace(client=None, state=state, clock=SimpleNamespace(now=lambda: NOW)))
    answer = await effects.list_owners(ListOwners("r", NOW + 1), state)
    assert (asked, entries, isinstance(answer, Retry)) == (["h"], [Owned("default", [reserved.MINE], NOW + LEASE)] * listed, not listed)
    await effects.list_owners(ListOwners("r", 0), state)
    assert (asked, entries[-1]) == (["h"], None), "taking it off asks nobody"


@pytest.mark.parametrize("ahead", [0, -480_000, 480_000])
async def test_what_another_installation_has_gated_is_let_go_by_the_clock_on_a_cluster_where_nothing_happens(monkeypatch, ahead):
    """By the API server's, as the entry: with that eight minutes behind, everything that another installation gates would be let go at once."""
    state, let_go = world(), []
    facts = {"owner": OWNER, "gated": True, "landing": True, "annotations": {beside.GATE: f"another {rfc3339(NOW + ahead + 1_000)}"}}
    then(state, pod("q", "s", **facts))

    async def lets_go(_, ref):
        let_go.append(ref.name)
        return k.Done()

    async def time(_):
        return now + ahead

    monkeypatch.setattr(Beside, "let_go", lets_go)
    monkeypatch.setattr(ServerClock, "time", time)
    now = NOW
    effects = effects_of(SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: now)))
    waited = 0
    while isinstance(answer := await effects.let_go(LetGo("q"), state), Wait):
        assert session.decider.owed(state, LetGo("q"))
        now += int(answer.after * 1_000)
        waited += 1
    assert (let_go, now, state.time) == (["q"], NOW + 1_000 + gated.FORSAKEN, NOW)
    assert waited <= 31


# -- the session's -----------------------------------------------------------------------------------------------------------


class Gates:
    """What the session wrote of its gates' ends."""

    def __init__(self, monkeypatch, state):
        self.owners, self.kept, self.now = [], [], NOW
        gates = self

        async def landing(_, log, by_uid, owners):
            gates.owners.append(by_uid | {key: one and one.until for key, one in owners.items()})
            return k.Done()

        async def keep_gated(_, pod, log, until):
            gates.kept.append((pod.uid, log, until))
            return k.Done()

        async def none(*_):
            return 0

        async def let_go(*_):
            return k.Done()

        for name, does in (("landing", landing), ("renew", landing), ("keep_gated", keep_gated)):
            monkeypatch.setattr(KubeGates, name, does)
        monkeypatch.setattr(Beside, "let_go", let_go)
        monkeypatch.setattr(ServerClock, "ahead", none)
        monkeypatch.setattr(ServerClock, "look", none)
        self.steady, self.follower = 1_000.0, SimpleNamespace(broken="", heard={"cluster": 1_000.0})
        monkeypatch.setattr(machine, "steady", lambda: self.steady)
        clock = SimpleNamespace(now=lambda: self.now)
        self.leadership = leadership = SimpleNamespace(leading=True)
        self.leases = LandingLeases(SimpleNamespace(client=None, state=state, clock=clock, follower=self.follower, leadership=leadership))


async def test_entries_are_renewed_for_as_long_as_they_are_needed_all_of_them_in_one_write(monkeypatch):
    state = holding(world(node("c", cpu=4_000), pod("q", node="a", owner=replica_of("other"))))
    then(state, plan("y", move("y-1", "q", target="c")))
    advance(state)
    create(state, "y-1")
    session_answers(state)
    opened(state)
    assert len(state.landings) == 2
    gates = Gates(monkeypatch, state)
    for _ in range(2):
        gates.now += RENEWED
        await gates.leases.round()
    assert gates.owners == [dict.fromkeys((OWNER.uid, "uid-other"), NOW + i * RENEWED + LEASE) for i in (1, 2)]
    for name in ("x", "y"):
        run(state, decider, c.CancelPlan(NOW, name, "by hand"))
    advance(state)
    await gates.leases.round()
    assert len(gates.owners) == 2, "none is needed any more"
    does = Api(monkeypatch)
    for id in ("x-1", "y-1"):
        run(state, decider, (await does.executors(state)[CloseLanding].execute(CloseLanding(id), state)).command)
    assert does.entries == [{OWNER.uid: None}, {"uid-other": None}]


async def test_an_entry_that_was_taken_off_is_made_again_only_where_it_is_still_wanted_half_a_minute_later(monkeypatch):
    """Its move was over before the session had read of it; or somebody who had no reason has taken it off."""
    state = holding(world(node("c", cpu=4_000)))
    opened(state)
    gates, made = Gates(monkeypatch, state), []

    async def renew(_, log, by_uid, owners):
        return Missing(frozenset(by_uid))

    async def landing(_, log, by_uid, owners):
        made.append(list(by_uid))
        return k.Done()

    monkeypatch.setattr(KubeGates, "renew", renew)
    monkeypatch.setattr(KubeGates, "landing", landing)
    await gates.leases.round()
    assert made == []
    await gates.leases.round()
    assert made == [[OWNER.uid]]
    await gates.leases.round()
    assert made == [[OWNER.uid]]
    run(state, decider, c.CancelPlan(NOW, "x", "by hand"))
    advance(state)
    await gates.leases.round()
    assert made == [[OWNER.uid]]


def test_nothing_is_renewed_by_a_session_that_does_not_hear_of_what_is_gated(monkeypatch):
    """Nobody would be let go: the watcher or the broker is away, or nothing may be decided on a log that is broken."""
    gates = Gates(monkeypatch, world())
    may = gates.leases._may
    assert may()
    gates.steady += HEARS
    assert may(), "on a cluster where nothing happens the watcher says so each minute or two"
    gates.steady += 1
    assert not may()
    gates.follower.heard["cluster"] = gates.steady
    assert may()
    gates.follower.broken = "the log has lost records"
    assert not may()
    gates.follower.broken, gates.leadership.leading = "", False
    assert not may()


async def test_the_owners_of_a_reservation_are_listed_anew_while_it_holds_anything(monkeypatch):
    state = reserved.held(reserved.world())
    gates = Gates(monkeypatch, state)
    await gates.leases.round()
    assert gates.owners == [], "who takes the lead lists them once it has found that it may let them go"
    await gates.leases.list_owners("r")
    gates.now += RENEWED
    await gates.leases.round()
    assert gates.owners == [{"r": NOW + LEASE}, {"r": NOW + RENEWED + LEASE}]
    then(state, e.Expired("r"))
    reserved.answers(state)
    await gates.leases.round()
    await gates.leases.unlist("r")
    assert gates.owners[2:] == [{"r": None}]


async def test_a_reservation_that_holds_nothing_for_a_moment_is_renewed_again_afterwards(monkeypatch):
    """Its only owner was given its slot, and is not bound there: no effect asks for its entry once more where both are folded before the session decides."""
    state = reserved.held(reserved.world())
    gates = Gates(monkeypatch, state)
    await gates.leases.list_owners("r")
    then(state, pod("p", "s", labels=reserved.MINE, gated=True, landing=True))
    then(state, e.HandedOver("r", "t-0", "p", "a"))
    await gates.leases.round()
    assert (len(gates.owners), state.owner_gates["r"] > 0) == (1, True), "nothing is held, and it was not decided yet that nobody is gated"
    then(state, e.PodReleased("p", beside.GONE))
    await gates.leases.round()
    assert len(gates.owners) == 2


async def test_a_pod_that_waits_long_for_its_turn_says_so_and_whoever_is_let_go_does_not(monkeypatch):
    """Another installation lets go whom nobody wants any more: it has no more to go by than the end that the pod itself names."""
    state = evicted(world())
    said = {beside.GATE: f"log {rfc3339(NOW + LEASE)}"}
    state.log = "log"
    then(state, shape("big", cpu=3_500, scheduler=STOCK))
    then(state, *(pod(uid, kind, owner=OWNER, gated=True, landing=True, annotations=said) for uid, kind in (("p2", "s"), ("stranger", "big"))))
    run(state, session.decider, c.Schedule(NOW))
    assert LetGo("stranger") in session.decider.pending(state, None)
    gates = Gates(monkeypatch, state)
    gates.now += LEASE // 2
    await gates.leases.round()
    assert gates.kept == [], "most have landed by then"
    gates.now += RENEWED
    await gates.leases.round()
    assert gates.kept == [("p2", "log", gates.now + LEASE)]


@pytest.mark.parametrize(("said", "image"), [("", IMAGE), ("local/pause", "local/pause")])
async def test_placeholders_and_guards_have_the_image_of_the_settings(monkeypatch, said, image):
    made, state = [], holding(world())

    async def takes(_, manifest, *more):
        made.extend(one.image for one in manifest.spec.containers)
        return Created("made")

    monkeypatch.setattr(Beside, "occupy", takes)
    monkeypatch.setattr(Beside, "guard", takes)
    effects = effects_of(SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: NOW)), said)
    (slot,) = state.slots["hold-x-1"]
    for key in (("hold-x-1", slot), beside.guard_of("x-1")):
        await effects.occupy(CreatePlaceholder(*key), state)
    assert made == [image, image]


async def test_a_nomination_that_is_taken_away_each_time_is_made_again_later_each_time(monkeypatch):
    """For as long as its move goes on: once a second for five minutes, its scheduler would look at all that wait as often."""
    state = evicted(world())
    then(state, pod("p2", "s", owner=OWNER))
    session_answers(state)
    then(state, e.PodGone("h"))
    assert NominateAgain("p2", "b") in session.decider.pending(state, None)
    api, made = Api(monkeypatch), []

    async def patch(_, ref, on):
        made.append(api.steady - 1_000)
        return k.Done()

    monkeypatch.setattr(Beside, "patch_nominated_node", patch)
    effects = effects_of(SimpleNamespace(client=None, state=state, clock=SimpleNamespace(now=lambda: NOW), recorder=None))
    while api.steady < 1_030:
        said = await effects.nominate_again(NominateAgain("p2", "b"), state)
        api.steady += said.after if isinstance(said, Wait) else 0.1
    assert [round(at, 1) for at in made] == [0, 0.5, 1.5, 3.5, 7.5, 12.5, 17.5, 22.5, 27.5]
