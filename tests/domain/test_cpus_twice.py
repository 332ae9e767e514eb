"""Facts that come between a session and its commit make some of what it decided void: what it gave to others of that is not given twice."""

from collections import Counter

import pytest
from domain.build import NOW, configured, given, node, owner, pod, reservation, shape, then, when
from domain.saga import move, plan
from domain.test_cores import machine

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import CoreRequest
from restow.domain import session
from restow.domain.config import ActionConfig, SessionConfig
from restow.domain.cores import Cores
from restow.domain.records import SlotPhase
from restow.domain.state import ClusterState

FEW = machine(zones=1, cores=2)
"""CPUs 0 and 2 are one core, 1 and 3 the other."""
MINE = {"app": "a"}


def numbered(name: str, **more) -> e.NodeObserved:
    return node(name, cpu=16_000, cpus=FEW, **more)


def wants(count: int, id: str) -> e.ShapeDeclared:
    return shape(id, cpu=count * 1_000, cores=CoreRequest(count, "FullPCPUs"))


def hold(name: str, kind: str, generation: int = 1, once: bool = True, **more) -> list[e.Event]:
    """Asked for, and accepted."""
    fact = reservation(
        name, ("t", 1, kind), owners=(owner(app="a"),), match_policy="Owner", generation=generation, allocate_once=once, allocate_policy="Aligned", **more
    )
    return [fact, e.ReservationAccepted(name, generation, 1)]


def world(*more: e.Event) -> ClusterState:
    return given(numbered("n0"), shape("plain"), shape("none", cpu=0, memory=0), wants(2, "two"), wants(4, "four"), *more)


def decide(state: ClusterState, *between: e.Event) -> list[e.Event]:
    """A session, facts `between` it and its commit, and the commit."""
    events = when(state, session.decider, c.Schedule(NOW))
    then(state, *between)
    then(state, events)
    return events


def has(state: ClusterState, *names: str, node: str = "n0") -> dict[str, tuple[int, ...]]:
    """CPUs of pods, and of the slots that are held of Reservations."""
    pods = {uid: charge.cores for uid, charge in state.charges.items() if charge.node == node}
    slots = {uid: state.slots[uid][name].capacity.cores for uid, name in state.held_on.get(node, ())}
    found = {**pods, **slots}
    counts = Counter(cpu for cpus in found.values() for cpu in cpus)
    assert all(count == 1 for count in counts.values()), f"given twice: {found}"
    assert Cores.of(state).image() == Cores(state).image()
    return {name: found[name] for name in names}


def rests(state: ClusterState) -> None:
    for _ in range(10):
        if not decide(state):
            return
    raise AssertionError("it never comes to rest")


def first(state: ClusterState, *facts: e.Event) -> None:
    then(state, *facts)
    rests(state)


def test_a_hold_does_not_get_cpus_of_another_whose_hand_over_is_void():
    """Its owner asks for no CPUs, so the session gives them to the next hold; but the owner has gone."""
    state = world(numbered("n1", unschedulable=True))
    first(state, *hold("r", "two"))
    assert has(state, "r") == {"r": (0, 2)}
    then(state, pod("p", "plain", labels=MINE), *hold("q", "two"))
    events = decide(state, e.PodGone("p"))
    assert [type(event) for event in events] == [e.HandedOver, e.HoldPlaced]
    assert events[1].cores == (0, 2)
    assert has(state, "r") == {"r": (0, 2)}
    assert state.slots["q"]["t-0"].phase is SlotPhase.PENDING, "its hold is void with the hand-over, and tried again"
    rests(state)
    assert has(state, "r", "q") == {"r": (0, 2), "q": (1, 3)}
    assert state.slots["q"]["t-0"].phase is SlotPhase.HELD


def test_nor_does_a_hold_that_waits_for_its_capacity():
    state = world()
    first(state, *hold("r", "four"))
    then(state, pod("p", "plain", labels=MINE), pod("x", "plain", "n0"), shape("all", cpu=14_000, cores=CoreRequest(2)))
    then(state, pod("y", "plain", "n0"), *hold("q", "all", pre_allocation=True))
    events = decide(state, e.PodGone("p"))
    assert [event.waiting for event in events if isinstance(event, e.HoldPlaced)] == [True]
    assert has(state, "r") == {"r": (0, 1, 2, 3)}
    assert state.slots["q"]["t-0"].phase is SlotPhase.PENDING


def test_nor_cpus_that_a_pod_has_got_meanwhile():
    state = world()
    then(state, *hold("r", "two"))
    decide(state, pod("x", "two", "n0", cores=(0, 2)))
    assert has(state, "r", "x") == {"r": (), "x": (0, 2)}
    rests(state)
    assert has(state, "r", "x") == {"r": (1, 3), "x": (0, 2)}


def test_a_hold_that_is_resized_does_not_get_them():
    state = world()
    first(state, *hold("r", "two"), *hold("q", "plain"))
    then(state, *hold("q", "two", 2))
    events = decide(state, pod("x", "two", "n0", cores=(1, 3)))
    assert [(type(event), event.cores) for event in events] == [(e.HoldResized, (1, 3))]
    assert has(state, "r", "q", "x") == {"r": (0, 2), "q": (), "x": (1, 3)}


def test_what_a_hold_would_have_left_is_not_given_where_its_resize_is_void():
    """A later generation has come meanwhile, which asks for the old size, or another one."""
    state = world()
    first(state, *hold("r", "four"))
    then(state, *hold("r", "two", 2), *hold("q", "two"))
    events = decide(state, *hold("r", "plain", 3))
    assert [type(event) for event in events] == [e.HoldResized, e.HoldPlaced]
    assert events[1].cores == (1, 3)
    assert has(state, "r") == {"r": (0, 1, 2, 3)}
    assert state.slots["q"]["t-0"].phase is SlotPhase.PENDING
    rests(state)
    assert has(state, "r", "q") == {"r": (), "q": (0, 2)}


def test_the_hold_of_a_move_does_not_get_what_another_holds_of_its_promise():
    state = world(numbered("n1"), pod("x", "two", "n1", cores=(0, 2)))
    first(state, *hold("r", "two"))
    then(state, plan("m", move("m-1", "x", "n1", "n0", cores=(0, 2))), e.Holding("m-1", "h"))
    then(state, *hold("h", "two", migration="m-1", node="n0"))
    rests(state)
    assert has(state, "r", "h") == {"r": (0, 2), "h": (1, 3)}


@pytest.mark.parametrize("meanwhile", ["another pod has them", "another hold has them"])
def test_what_an_owner_has_drawn_and_does_not_use_is_the_holds_again_where_nobody_has_it(meanwhile):
    """Its node says that it runs on other CPUs than it was given."""
    state = world()
    first(state, *hold("r", "two", once=False))
    first(state, pod("p", "two", labels=MINE))
    assert has(state, "p", "r") == {"p": (0, 2), "r": ()}
    then(state, e.PodChanged("p", "n0", "Running", True, cores=(1, 3)))
    if meanwhile == "another pod has them":
        first(state, pod("x", "two"))
        assert has(state, "x", "r", "p") == {"x": (0, 2), "r": (), "p": (1, 3)}
    else:
        first(state, *hold("q", "two"))
        assert has(state, "q", "r", "p") == {"q": (0, 2), "r": (), "p": (1, 3)}
    then(state, e.PodGone("p"))
    assert has(state, "r") == {"r": ()}
    rests(state)
    assert has(state, "r") == {"r": (1, 3)}


def test_a_nominee_is_not_promised_cpus_of_a_hold_whose_hand_over_is_void():
    conf = configured("session", SessionConfig(actions=tuple(map(ActionConfig, ("enqueue", "reserve", "allocate", "preempt")))))
    high = shape("high", cpu=15_000, priority=100, cores=CoreRequest(2, "FullPCPUs"))
    state = world(conf, high)
    first(state, *hold("r", "two"), pod("x", "two", "n0", cores=(1, 3)))
    then(state, pod("p", "plain", labels=MINE), pod("n", "high"))
    events = decide(state, e.PodGone("p"))
    assert [event.cores for event in events if isinstance(event, e.Nominated)] == [(0, 2)]
    assert has(state, "r") == {"r": (0, 2)}
    assert state.nominations["n"].capacity.cores == ()


def test_a_hold_is_not_ready_whose_cpus_a_pod_has_got_meanwhile():
    state = world(pod("y", "plain", "n0"))
    all_of_it = shape("all", cpu=16_000, cores=CoreRequest(2, "FullPCPUs"))
    first(state, all_of_it, *hold("r", "all", pre_allocation=True))
    assert state.slots["r"]["t-0"].phase is SlotPhase.WAITING
    then(state, e.PodGone("y"))
    events = decide(state, pod("x", "none", "n0", cores=(0, 2)))
    assert events == [e.HoldReady("r", "t-0")]
    assert has(state, "r", "x") == {"r": (), "x": (0, 2)}
    rests(state)
    assert has(state, "r", "x") == {"r": (1, 3), "x": (0, 2)}
