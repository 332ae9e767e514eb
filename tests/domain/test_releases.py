"""Placements whose volumes are not what was chosen can never be bound: they are given up, and their pods are placed anew."""

from domain.build import NOW, given, node, pod, reservation, run, shape, then, when
from domain.storage import CLASSES, HOST, WAITING, claim, on, volume

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.effects import Bind, BindClaim
from restow.domain.session.decider import LIMIT

DUE = c.Schedule(NOW, LIMIT)


def user(name: str, *claims: str) -> e.PodObserved:
    return pod(name, claims=claims)


def world(*facts):
    nodes = (node(name, labels={HOST: name}) for name in ("n1", "n2"))
    return given(*CLASSES, *nodes, shape("s"), *facts)


def effects(state):
    return [effect for effect in session.decider.pending(state, None) if isinstance(effect, Bind | BindClaim)]


def test_a_pod_is_bound_only_after_its_claims():
    state = world(claim("c"), volume("v", affinity=on("n2")), user("p", "c"))
    run(state, session.decider, DUE)
    choose = BindClaim("default/c", "v", "n2")
    assert effects(state) == [choose]
    assert session.decider.owed(state, choose)
    assert not session.decider.owed(state, Bind("p", "n2"))
    then(state, volume("v", affinity=on("n2"), claim="c"), claim("c", volume="v"))
    assert not session.decider.owed(state, choose)
    assert effects(state) == [Bind("p", "n2")]
    assert session.decider.owed(state, Bind("p", "n2"))


def test_a_rejected_placement_makes_a_session_due_that_gives_it_up_and_the_next_places_anew():
    state = world(claim("c"), volume("v1", affinity=on("n1")), user("p", "c"))
    (placed,) = run(state, session.decider, DUE)
    assert placed.node == "n1"
    assert session.decider.due(state, NOW) is None
    then(state, volume("v1", affinity=on("n1"), claim="another"), volume("v2", affinity=on("n2")))
    assert session.decider.due(state, NOW) == DUE
    assert session.decider.due(state, NOW) == DUE, "however often it is asked"
    assert effects(state) == []
    (released,) = run(state, session.decider, DUE)
    assert released == e.PodReleased("p", 'persistentvolume "v1" is bound to another persistentvolumeclaim "default/another"')
    (again,) = run(state, session.decider, DUE)
    assert (again.node, again.volumes[0].volume) == ("n2", "v2")
    assert session.decider.due(state, NOW) is None


def test_a_choice_that_facts_have_overtaken_before_it_was_folded_is_seen():
    """The claim is gone after the session's read and before its commit."""
    state = world(claim("c", WAITING), user("p", "c"))
    (placed,) = when(state, session.decider, DUE)
    then(state, e.ClaimGone("default", "c"))
    assert session.decider.due(state, NOW) == DUE
    then(state, placed)
    assert session.decider.due(state, NOW) == DUE
    assert run(state, session.decider, DUE) == [e.PodReleased("p", 'persistentvolumeclaim "c" not found')]


def test_a_placement_that_is_bound_meanwhile_is_nobody_s_to_give_up():
    state = world(claim("c"), volume("v", affinity=on("n1")), user("p", "c"))
    run(state, session.decider, DUE)
    then(state, e.VolumeGone("v"))
    assert session.decider.due(state, NOW) == DUE
    then(state, e.PodChanged("p", node="n1", phase="Running"))
    assert session.decider.due(state, NOW) is None


def test_a_claim_that_vanishes_while_its_pod_waits_for_capacity_stops_nobody():
    state = world(claim("c"), volume("v", affinity=on("n1")), shape("wide", cpu=99_000), pod("p", "wide", claims=("c",)))
    run(state, session.decider, DUE)
    then(state, e.ClaimGone("default", "c"), node("n9", cpu=100), pod("q"))
    told = run(state, session.decider, c.Schedule(NOW + 60_000, 1_000))
    assert e.PodPlaced in [type(event) for event in told]


def test_an_owner_whose_claim_does_not_exist_waits_for_that_and_not_for_its_hold():
    state = world(claim("c"), reservation("r", ("t", 1, "s")))
    run(state, reservations.decider, c.Review(NOW))
    run(state, session.decider, DUE)
    then(state, pod("p", claims=("none",), labels={"app": "owner"}))
    run(state, session.decider, DUE)
    assert "none" in state.waiting[state.parked["p"][0]].message
