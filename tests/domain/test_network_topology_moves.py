"""Moves of a gang that is to be near to each other in the network: its block is a fact (RULES G-13)."""

import pytest
from domain.build import (
    NOW,
    configured,
    given,
    member,
    owner,
    pod,
    pod_group,
    reservation,
    run,
    shape,
    then,
    when,
)
from domain.saga import OWNER, advance, create, decider, session_answers, terminate
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


def test_a_hold_goes_where_it_was_promised_although_a_soft_gang_would_be_nearer_elsewhere():
    state = world(*running(NetworkTopology("soft"), "r0n0", "r0n1"))
    run(state, decider, c.MovePod(NOW, "x", "g0", "r2n0"))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    assert held(state) == {"r2n0"}


def held(state) -> set[str]:
    return {slot.node for slots in state.slots.values() for slot in slots.values() if slot.phase is SlotPhase.HELD}


def as_one(topology: NetworkTopology | None, *fills: e.Event):
    """Two pods that take a whole node each run in rack 0."""
    again = {"restow.dev/movable": "gang"}
    members = [member(f"g{i}", "g", "whole", node=f"r0n{i}", owner=OWNER, annotations=again) for i in range(2)]
    return world(shape("whole", cpu=4_000), pod_group("g", need=2, topology=topology), *members, *fills)


def moved_as_one(state) -> dict[str, str]:
    (planned,) = when(state, decider, c.MoveGang(NOW, "x", "default/g"))
    return {move.pod: move.target for move in planned.moves}


def test_a_hard_gang_that_is_moved_as_one_may_go_to_another_block_and_stays_together():
    half = pod("fill", "whole", node="r1n1")
    assert set(moved_as_one(as_one(hard(1), half)).values()) == {"r2n0", "r2n1"}


def test_and_not_where_no_block_holds_all_of_it():
    half = [pod("fill1", "whole", node="r1n1"), pod("fill2", "whole", node="r2n1")]
    with pytest.raises(Rejected, match=r"cannot be moved as one: .*outside the network block of the gang"):
        moved_as_one(as_one(hard(1), *half))
    assert len(moved_as_one(as_one(NetworkTopology("soft"), *half))) == 2


def test_what_is_held_for_a_gang_that_is_moved_as_one_is_in_one_block():
    state = as_one(hard(1), pod("fill", "whole", node="r1n1"))
    run(state, decider, c.MoveGang(NOW, "x", "default/g"))
    advance(state)
    create(state, "x-1", "x-2")
    session_answers(state)
    assert held(state) == {"r2n0", "r2n1"}


def follows(name: str, **more) -> e.PodObserved:
    return member(name, "g", "whole", owner=OWNER, annotations={"restow.dev/movable": "gang"}, **more)


def test_successors_of_a_gang_that_is_moved_as_one_land_on_holds_that_take_all_of_their_nodes():
    state = as_one(hard(1), pod("fill", "whole", node="r1n1"))
    run(state, decider, c.MoveGang(NOW, "x", "default/g"))
    advance(state)
    create(state, "x-1", "x-2")
    session_answers(state)
    advance(state)
    terminate(state, "g0", "g1")
    advance(state)
    then(state, follows("n0"), follows("n1"))
    session_answers(state)
    assert {state.placed[uid].node for uid in ("n0", "n1")} == {"r2n0", "r2n1"}


def test_the_successor_of_one_member_of_a_gang_that_needs_all_lands_on_a_hold_that_takes_all_of_its_node():
    members = [member(f"g{i}", "g", "whole", node=f"r0n{i}", owner=OWNER) for i in range(2)]
    state = world(shape("whole", cpu=4_000), pod_group("g", need=1, topology=hard(2)), *members)
    run(state, decider, c.MovePod(NOW, "x", "g0", "r1n0"))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    advance(state)
    then(state, pod_group("g", need=2, topology=hard(2)))
    terminate(state, "g0")
    advance(state)
    then(state, member("n0", "g", "whole", owner=OWNER))
    session_answers(state)
    assert state.placed["n0"].node == "r1n0"


def test_a_gang_that_waits_already_takes_the_hold_of_a_reservation_that_has_all_of_a_node():
    whole = shape("whole", cpu=4_000)
    fills = [pod(f"f{i}", "whole", node=name) for i, name in enumerate(("r0n1", "r1n0", "r1n1", "r2n0", "r2n1"))]
    running = member("g0", "g", "whole", node="r0n0")
    waiting = member("g1", "g", "whole", labels={"app": "g"})
    state = world(whole, *fills, pod_group("g", need=2, topology=hard(1)), running, waiting)
    session_answers(state)
    assert state.parked["g1"]
    then(state, reservation("r", ("t", 1, "whole"), owners=(owner(app="g"),), node="r0n1"))
    session_answers(state)
    then(state, e.PodGone("f0"))
    for _ in range(2):
        session_answers(state)
    assert state.placed["g1"].node == "r0n1"
