"""The saga's effects for pods of another scheduler: nobody is evicted where the API does not gate the successor, and an entry is of all moves of its
controller."""

from contextlib import suppress
from types import SimpleNamespace

import pytest
from domain import test_beside_reservations as reserved
from domain.build import NOW, configured, pod, replica_of, run, shape, then
from domain.saga import OWNER, advance, decider, evicts, step
from domain.test_beside import STOCK, evicted, holding, opened, stands, world

from restow import machine
from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import rfc3339
from restow.descheduler import landings as subject
from restow.descheduler.effects import executors
from restow.domain import beside, config, gated, hooks, session
from restow.domain.effects import CloseLanding, CreatePlaceholder, Evict, LetGo, ListOwners, OpenLanding
from restow.domain.landing_gate import RENEWED, STRETCH
from restow.domain.migration import gating
from restow.domain.pod_controllers import LWS_GROUP, LWS_INDEX, LWS_NAME
from restow.domain.records import Step
from restow.kube import effects as k
from restow.kube.beside import Beside, Gated, NotGated
from restow.kube.placeholder import IMAGE
from restow.kube.reservation_objects import Created
from restow.runtime.effector import Report, Retry, Wait
from restow.scheduler_session.beside import BesideEffects


class Api:
    """What was asked of it, and what it says."""

    def __init__(self, monkeypatch, said=k.Done()):
        self.entries, self.evicted, self.said, self.now, self.steady = [], [], said, NOW, 1_000.0

        async def landing(_, log, entries):
            self.entries.append(dict(entries))
            return self.said

        async def gated(_, controller):
            return NotGated()

        async def evict(_, pod, *more, **named):
            self.evicted.append(pod)
            return k.Accepted()

        monkeypatch.setattr(Beside, "landing", landing)
        monkeypatch.setattr(Beside, "gated", gated)
        monkeypatch.setattr(k.Effects, "evict", evict)
        monkeypatch.setattr(machine, "steady", lambda: self.steady)

    def executors(self, state):
        clock = SimpleNamespace(now=lambda: self.now)
        return executors(SimpleNamespace(client=None, state=state, clock=clock, recorder=None, metrics=SimpleNamespace(gauges=lambda read: None)))


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
        return Gated()

    monkeypatch.setattr(Beside, "gated", gated)
    return state, api


async def test_where_the_successor_would_not_be_gated_nobody_is_evicted(monkeypatch):
    state, api = evicting(monkeypatch)
    execute = api.executors(state)[Evict].execute
    assert isinstance(await execute(Evict("x-1"), state), Wait), "every API server has heard of the entry"
    api.steady += subject.HEARD
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


async def test_while_its_workload_is_asked_an_entry_is_renewed_before_it_ends_and_made_anew_by_who_was_away(monkeypatch):
    asks = {hooks.BEFORE: "annotation", hooks.DEADLINE: "24h"}
    state = holding(world(pod("p", node="a", owner=OWNER, annotations=asks)))
    opened(state)
    stands(state)
    advance(state)
    api, first = Api(monkeypatch), state.landings["x-1"].until
    execute = api.executors(state)[OpenLanding].execute
    (effect,) = [one for one in decider.pending(state, None) if isinstance(one, OpenLanding)]
    early = await execute(effect, state)
    assert isinstance(early, Wait)
    assert early.after == (first - RENEWED - NOW) / 1000
    assert api.entries == []
    api.now = first + 3 * STRETCH
    said = await execute(effect, state)
    assert isinstance(said, Report)
    assert said.command == c.ReportLanding(api.now, "x-1", effect.controller, api.now + STRETCH)
    assert api.entries == [{effect.controller: api.now + STRETCH}]


async def test_an_entry_that_was_over_is_heard_of_anew(monkeypatch):
    """One of a pod that has waited for others of its node, say: the API server that is asked gates again, others may not yet."""
    state, api = evicting_gated(monkeypatch)
    does, controller = api.executors(state), state.landings["x-1"].controller
    await does[OpenLanding].execute(OpenLanding("x-1", controller, state.landings["x-1"].until), state)
    api.steady += subject.HEARD
    with suppress(AttributeError):  # it tells nobody
        await does[Evict].execute(Evict("x-1"), state)
    assert len(api.evicted) == 1
    api.now = state.landings["x-1"].until
    await does[OpenLanding].execute(OpenLanding("x-1", controller, api.now + STRETCH), state)
    assert await does[Evict].execute(Evict("x-1"), state) == Wait(subject.HEARD)


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


async def test_without_the_definition_the_move_ends_and_says_what_to_do(monkeypatch):
    state = holding(world())
    api = Api(monkeypatch, k.Refused(404, "NotFound"))
    said = await api.executors(state)[OpenLanding].execute(OpenLanding("x-1", OWNER.uid, NOW), state)
    assert said == Report(c.ReportHold(NOW, "x-1", f"{subject.LACKING}: 404 NotFound", landing=True))


async def test_a_later_entry_never_ends_before_an_earlier_one(monkeypatch):
    state = holding(world())
    api = Api(monkeypatch)
    execute = api.executors(state)[OpenLanding].execute
    await execute(OpenLanding("x-1", OWNER.uid, NOW + 9), state)
    await execute(OpenLanding("x-1", OWNER.uid, NOW + 5), state)
    assert api.entries == [{OWNER.uid: NOW + 9}, {OWNER.uid: NOW + 9}]


async def test_the_successor_of_a_worker_whose_group_is_made_anew_is_gated_by_its_name(monkeypatch):
    """LeaderWorkerSet with RecreateGroupOnPodRestart: its StatefulSet is another one then, and its name the same."""
    worker = pod("p", node="a", owner=replica_of("l-1", "StatefulSet"), labels={LWS_NAME: "l", LWS_GROUP: "1", LWS_INDEX: "1"})
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0, beside=(STOCK,), movable_owners=("LeaderWorkerSet.leaderworkerset.x-k8s.io",))
    state = holding(then(world(), configured("migration", conf), worker))
    api, named = Api(monkeypatch), []

    async def owners(_, log, key, namespace, labels, until):
        named.append((key, namespace, labels, until))
        return k.Done()

    monkeypatch.setattr(Beside, "owners", owners)
    execute = api.executors(state)
    (effect,) = [effect for effect in decider.pending(state, None) if isinstance(effect, OpenLanding)]
    said = await execute[OpenLanding].execute(effect, state)
    assert (api.entries, named) == ([{"uid-l-1": effect.until}], [("x-1", "default", [{subject.POD_NAME: "p"}], effect.until)])
    run(state, decider, said.command)
    assert gating.is_named(state, "x-1"), "garbage_collector leaves it"
    run(state, decider, c.CancelPlan(NOW, "x", "by hand"))
    advance(state)
    run(state, decider, (await execute[CloseLanding].execute(CloseLanding("x-1"), state)).command)
    assert named[1:] == [("x-1", "default", [{subject.POD_NAME: "p"}], 0)]
    assert not gating.is_named(state, "x-1")


@pytest.mark.parametrize("said", ["[a, '']", "['']", "[default-scheduler, default-scheduler]"])
def test_a_scheduler_has_a_name_and_is_named_once(said):
    from restow.descheduler.policy import read
    from restow.runtime.config_source import BadConfig, parse

    document = "apiVersion: descheduler/v1alpha2\nkind: DeschedulerPolicy\nrestow: {beside: %s}\n"
    assert read(parse(document % "[default-scheduler]")).beside == ("default-scheduler",)
    with pytest.raises(BadConfig, match="beside"):
        read(parse(document % said))


async def test_a_guard_that_the_api_refuses_ends_a_move_before_the_eviction_and_is_tried_again_after_it(monkeypatch):
    async def guard(_, *said):
        return k.Refused(403, "Forbidden", "by policy")

    monkeypatch.setattr(Beside, "guard", guard)
    occupy = BesideEffects(SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: NOW))).occupy
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
    said = await BesideEffects(context).let_go(LetGo("stranger"), state)
    assert said == Report(c.RefuseLetGo(NOW, "stranger", "403 Forbidden by a webhook"))
    assert [(one.regarding.name, one.reason, one.type) for one in told] == [("stranger", "NotUngated", "Warning")]
    run(state, session.decider, said.command)
    waits = await BesideEffects(context).let_go(LetGo("stranger"), state)
    assert isinstance(waits, Wait)
    assert len(told) == 1


@pytest.mark.parametrize(("allowed", "listed"), [(k.Done(), True), (k.Refused(403, "Forbidden", "cannot patch pods"), False)])
async def test_owners_of_a_reservation_are_gated_only_where_the_gate_could_be_taken_away_again(monkeypatch, allowed, listed):
    state = reserved.held(reserved.world())
    asked, entries = [], []

    async def let_go(_, pod):
        asked.append(pod.uid)
        return allowed

    async def owners(_, log, reservation, namespace, labels, until):
        entries.append(until)
        return k.Done()

    monkeypatch.setattr(Beside, "let_go", let_go)
    monkeypatch.setattr(Beside, "owners", owners)
    effects = BesideEffects(SimpleNamespace(client=None, state=state, clock=SimpleNamespace(now=lambda: NOW)))
    answer = await effects.list_owners(ListOwners("r", NOW + 1), state)
    assert (asked, entries, isinstance(answer, Retry)) == (["h"], [NOW + 1] * listed, not listed)
    await effects.list_owners(ListOwners("r", 0), state)
    assert (asked, entries[-1]) == (["h"], 0), "taking it off asks nobody"


async def test_what_another_installation_has_gated_is_let_go_by_the_clock_on_a_cluster_where_nothing_happens(monkeypatch):
    state, let_go = world(), []
    facts = {"owner": OWNER, "gated": True, "landing": True, "annotations": {beside.GATE: f"another {rfc3339(NOW + 1_000)}"}}
    then(state, pod("q", "s", **facts))

    async def lets_go(_, ref):
        let_go.append(ref.name)
        return k.Done()

    monkeypatch.setattr(Beside, "let_go", lets_go)
    now = NOW
    effects = BesideEffects(SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: now)))
    waited = 0
    while isinstance(answer := await effects.let_go(LetGo("q"), state), Wait):
        assert session.decider.owed(state, LetGo("q"))
        now += int(answer.after * 1_000)
        waited += 1
    assert (let_go, now, state.time) == (["q"], NOW + 1_000 + gated.FORSAKEN, NOW)
    assert waited <= 31


@pytest.mark.parametrize(("said", "image"), [("", IMAGE), ("local/pause", "local/pause")])
async def test_placeholders_and_guards_have_the_image_of_the_settings(monkeypatch, said, image):
    made, state = [], holding(world())

    async def takes(_, manifest, *more):
        made.extend(one.image for one in manifest.spec.containers)
        return Created("made")

    monkeypatch.setattr(Beside, "occupy", takes)
    monkeypatch.setattr(Beside, "guard", takes)
    effects = BesideEffects(SimpleNamespace(client=None, clock=SimpleNamespace(now=lambda: NOW)), said)
    (slot,) = state.slots["hold-x-1"]
    for key in (("hold-x-1", slot), beside.guard_of("x-1")):
        await effects.occupy(CreatePlaceholder(*key), state)
    assert made == [image, image]
