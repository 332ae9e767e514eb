"""Moves of a gang that is to be near to each other in the network: its block is a fact (RULES G-13)."""

import pytest
from domain.build import NOW, configured, given, member, pod_group, run, shape, then, when
from domain.saga import OWNER, advance, create, decider, session_answers
from domain.test_network_topology import conf, hard, racks

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import NetworkTopology
from restow.domain import config
from restow.domain.decider import Rejected
from restow.domain.records import SlotPhase


def running(topology: NetworkTopology | None, *nodes: str, need: int = 1, **more) -> list[e.Event]:
    return [pod_group("g", need=need, topology=topology), *(member(f"g{i}", "g", "one", node=on, owner=OWNER, **more) for i, on in enumerate(nodes))]


def world(*facts: e.Event, **more):
    bold = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0, **more)
    return given(conf(("zone", "rack"), "reserve, allocate", {"name": "reservation"}), configured("migration", bold), shape("one", cpu=1_000), *racks(2, 2, 2), *facts)


def moved(state, uid: str, target: str = "") -> str:
    (event,) = when(state, decider, c.MovePod(NOW, "x", uid, target))
    return event.moves[0].target


def test_a_member_of_a_hard_gang_moves_within_its_block():
    state = world(*running(hard(1), "r0n0", "r0n0"))
    assert moved(state, "g0") == "r0n1"


@pytest.mark.parametrize("target", ["r1n0", "r2n1"])
def test_and_never_out_of_it(target):
    state = world(*running(hard(1), "r0n0", "r0n0"))
    with pytest.raises(Rejected, match=r"outside the network block of the gang"):
        when(state, decider, c.MovePod(NOW, "x", "g0", target))


def test_a_higher_tier_lets_it_go_further():
    state = world(*running(hard(2), "r0n0", "r0n0"))
    assert moved(state, "g0", "r1n0") == "r1n0"
    with pytest.raises(Rejected, match=r"outside the network block of the gang"):
        when(state, decider, c.MovePod(NOW, "x", "g0", "r2n0"))


def test_the_only_member_that_runs_stays_in_its_block_too():
    state = world(*running(hard(1), "r0n0", need=0))
    assert moved(state, "g0") == "r0n1"


def test_a_soft_gang_is_moved_as_near_as_can_be_and_may_be_moved_away():
    state = world(*running(NetworkTopology("soft"), "r0n0", "r0n1"))
    assert moved(state, "g0") == "r0n1"
    assert moved(state, "g0", "r2n0") == "r2n0"


def test_the_session_holds_within_the_block_and_not_where_it_is_not():
    state = world(*running(hard(1), "r0n0", "r0n0"))
    run(state, decider, c.MovePod(NOW, "x", "g0", "r0n1"))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    [slot] = [slot for slots in state.slots.values() for slot in slots.values()]
    assert (slot.phase, slot.node) == (SlotPhase.HELD, "r0n1")


def test_a_hold_is_refused_where_the_block_has_become_another_one_since():
    state = world(*running(hard(1), "r0n0", "r0n0"))
    run(state, decider, c.MovePod(NOW, "x", "g0", "r0n1"))
    advance(state)
    create(state, "x-1")
    then(state, *[e.NodeObserved("r0n1", "uid-r0n1", {"cpu": 4_000, "memory": 1 << 35, "pods": 110}, {"zone": "z9", "rack": "r9"})])
    session_answers(state)
    [slot] = [slot for slots in state.slots.values() for slot in slots.values()]
    assert slot.phase is SlotPhase.PENDING
    assert slot.reasons.get("node(s) outside the network block of the gang", 0) >= 1
