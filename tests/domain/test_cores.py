"""CPUs of its own for a pod: which nodes can give them, and which they are."""

import functools

import numpy as np
import pytest
from domain.build import NOW, configured, given, node, owner, pod, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import CoreRequest, Cpu
from restow.domain import session
from restow.domain.config import ActionConfig, SessionConfig
from restow.domain.cores import FULL, SPREAD, Cores, EmptyCores, Topology, choose
from restow.domain.cores.choose import Wish
from restow.domain.cores.index import CONFLICT, NO_TOPOLOGY, NOT_ALIGNED, NOT_WHOLE, TOO_FEW
from restow.domain.records import Capacity, Charge, Nomination, Slot, SlotPhase


def machine(sockets: int = 1, zones: int = 2, cores: int = 4, threads: int = 2) -> tuple[Cpu, ...]:
    """`zones` a socket, `cores` a zone, `threads` a core, numbered as Linux does it: first thread of every core first."""
    total = sockets * zones * cores
    return tuple(
        Cpu(thread * total + core, core, core // (zones * cores), core // cores) for thread in range(threads) for core in range(total)
    )


EIGHT = machine()
"""CPUs 0–3 and 8–11 are zone 0, 4–7 and 12–15 zone 1; 0 and 8 are one core."""


def chosen(count: int, policy: str = FULL, taken=(), preferred=(), cpus=EIGHT, **more) -> tuple[int, ...] | None:
    free = {cpu.id for cpu in cpus} - set(taken)
    return choose(Topology(cpus), free, Wish(count, policy, **more), set(preferred))


# -- which CPUs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"count": 4}, (0, 1, 8, 9)),
        ({"count": 4, "policy": SPREAD}, (0, 1, 2, 3)),
        ({"count": 6, "policy": SPREAD}, (0, 1, 2, 3, 8, 9)),
        ({"count": 3}, (0, 1, 8)),
        # The fullest zone that suffices; the emptiest where the node says so.
        ({"count": 2, "taken": (4, 12)}, (5, 13)),
        ({"count": 2, "taken": (4, 12), "emptiest": True}, (0, 8)),
        ({"count": 8, "taken": (4, 12)}, (0, 1, 2, 3, 8, 9, 10, 11)),
        # No zone has so many: most of them from one.
        ({"count": 10, "taken": (4, 12)}, (0, 1, 2, 3, 5, 8, 9, 10, 11, 13)),
        # Whole cores in two zones rather than parts of cores in one.
        ({"count": 4, "taken": (0, 1, 2, 4, 5, 6)}, (3, 7, 11, 15)),
        # Where there are no whole cores left, whatever is free, in one zone.
        ({"count": 3, "taken": (8, 9, 10, 11, 12, 13, 14, 15)}, (0, 1, 2)),
        ({"count": 16}, tuple(range(16))),
        ({"count": 17}, None),
    ],
)
def test_cpus_come_from_as_few_zones_as_can_be_and_as_whole_cores_or_one_of_each(asked, expected):
    assert chosen(**asked) == expected


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ({"count": 2, "taken": (0, 1, 2, 3, 4, 5, 6)}, (7, 15)),
        ({"count": 2, "taken": (*range(7), *range(8, 15))}, (7, 15)),
        ({"count": 4, "taken": (0, 1, 2, 3, 4, 5, 6)}, None),
        ({"count": 8, "policy": SPREAD}, (0, 1, 2, 3, 4, 5, 6, 7)),
        ({"count": 9, "policy": SPREAD}, None),
        ({"count": 2, "policy": SPREAD, "taken": (0, 1, 2, 4, 5, 6, 7, 12, 13, 14)}, (8, 9)),
    ],
)
def test_a_required_policy_is_kept_or_there_are_no_cpus(asked, expected):
    assert chosen(required=True, **asked) == expected


def test_what_a_hold_has_is_taken_first_and_the_rest_beside_it():
    assert chosen(2, preferred=(5, 13)) == (5, 13)
    assert chosen(4, preferred=(5, 13)) == (4, 5, 12, 13)
    assert chosen(2, preferred=(4, 5, 12, 13)) == (4, 12)
    # Halves of cores are of no use where whole ones are required.
    assert chosen(2, preferred=(5, 6), required=True) == (5, 13)
    assert chosen(2, SPREAD, preferred=(13,), required=True) == (4, 13)


def test_sockets_come_before_zones_elsewhere():
    cpus = machine(sockets=2, zones=2, cores=2)
    # Two whole zones of either socket, of which one is touched.
    assert chosen(8, cpus=cpus) == (0, 1, 2, 3, 8, 9, 10, 11)
    assert chosen(6, cpus=cpus, taken=(0, 8)) == (1, 2, 3, 9, 10, 11)
    assert chosen(8, cpus=cpus, taken=(0, 8)) == (4, 5, 6, 7, 12, 13, 14, 15)


def test_cores_of_two_sockets_may_have_the_same_number():
    cpus = (Cpu(0, 0, 0, 0), Cpu(1, 0, 1, 1), Cpu(2, 1, 0, 0), Cpu(3, 1, 1, 1))
    assert Topology(cpus).per_core == 1
    assert chosen(2, cpus=cpus) == (0, 2)


def test_a_core_of_which_the_kubelet_keeps_a_cpu_is_never_whole():
    cpus = tuple(cpu for cpu in EIGHT if cpu.id != 0)
    assert chosen(2, cpus=cpus, required=True, taken=range(1, 8)) is None
    assert chosen(2, cpus=cpus) == (1, 9)


# -- which nodes -------------------------------------------------------------------------------------------------------


def wants(count: int, policy: str = "", id: str = "s", **more) -> e.ShapeDeclared:
    return shape(id, cpu=count * 1000, cores=CoreRequest(count, policy, **more))


def numbered(name: str, cpus=EIGHT, **more) -> list[e.Event]:
    """A node whose topology another object tells."""
    return [node(name, cpu=len(cpus) * 1000, **more), e.NumaObserved(name, cpus=cpus)]


def owns(state, name: str, cpus: tuple[int, ...], where: str = "n0", shape: str = "s") -> None:
    """A pod that runs there has these CPUs."""
    then(state, pod(name, shape, where, cores=cpus))
    state.put(state.charges, name, Charge(where, shape, (), False, cores=cpus))


def fails(state, index=Cores, what: str = "s") -> dict[str, list[str]]:
    found = index.of(state).filter(state.shapes[what].cores)
    return {reason: [state.table.names[r] for r in np.flatnonzero(rows)] for reason, rows in found}


def gets(state, row: int = 0, what: str = "s", preferred=()) -> tuple[int, ...] | None:
    return Cores.of(state).choose(state.shapes[what].cores, row, preferred)


def test_a_node_without_a_topology_gives_nobody_cpus_of_its_own():
    state = given([node("n0"), *numbered("n1"), node("n2", cpus=EIGHT), wants(2)])
    assert fails(state) == {NO_TOPOLOGY: ["n0"]}
    assert gets(state) is None
    assert gets(state, 1) == gets(state, 2) == (0, 8)


def test_a_topology_object_says_it_before_the_nodes_annotation():
    state = given([node("n0", cpus=EIGHT), e.NumaObserved("n0", cpus=EIGHT[4:8]), wants(2)])
    assert gets(state) == (4, 5)
    then(state, e.NumaGone("n0"))
    assert gets(state) == (0, 8)


def test_no_whole_number_of_cpus_fits_nowhere():
    assert fails(given([*numbered("n0"), node("n1"), wants(0)])) == {NOT_WHOLE: ["n0", "n1"]}


def test_cpus_that_somebody_has_are_not_there_for_others():
    state = given([*numbered("n0"), wants(4), wants(12, id="big")])
    owns(state, "a", (0, 1, 8, 9))
    assert gets(state) == (2, 3, 10, 11)
    assert fails(state, what="big") == {}
    owns(state, "b", (2,))
    assert fails(state, what="big") == {TOO_FEW: ["n0"]}
    assert fails(state, EmptyCores, what="big") == {}


def test_what_a_required_policy_asks_for_is_counted_as_it_asks():
    state = given([*numbered("n0"), wants(3, FULL, "odd", required=True), wants(4, FULL, "full", required=True),
                   wants(9, SPREAD, "spread", required=True), wants(9, SPREAD, "rather")])  # fmt: skip
    assert fails(state, what="odd") == {NOT_ALIGNED: ["n0"]}
    assert gets(state, what="odd") is None
    assert fails(state, what="spread") == {TOO_FEW: ["n0"]}
    assert fails(state, what="rather") == {}
    owns(state, "a", tuple(range(7)), shape="rather")
    assert fails(state, what="full") == {TOO_FEW: ["n0"]}
    assert gets(state, what="full") is None
    assert fails(state, what="rather") == {}


def test_a_nodes_label_makes_its_policy_everybodys():
    label = {"node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly"}
    state = given([*numbered("n0", labels=label), wants(3), wants(2, SPREAD, "other", required=True), wants(2, SPREAD, "rather")])
    assert fails(state) == {NOT_ALIGNED: ["n0"]}
    assert fails(state, what="other") == {CONFLICT: ["n0"]}
    assert gets(state, what="other") is None
    assert gets(state, what="rather") == (0, 8)


def test_a_nodes_label_says_which_zone_comes_first():
    state = given([*numbered("n0"), wants(2)])
    owns(state, "a", (4, 12))
    assert gets(state) == (5, 13)
    then(state, node("n0", cpu=16_000, labels={"node.koordinator.sh/numa-allocate-strategy": "LeastAllocated"}))
    assert gets(state) == (0, 8)


def test_exclusive_pods_keep_away_from_each_other_where_that_can_be():
    alone = wants(2, SPREAD, "alone", exclusive="PCPULevel")
    state = given([*numbered("n0"), alone, wants(2, SPREAD)])
    owns(state, "a", (0, 1), shape="alone")
    assert gets(state, what="alone") == (2, 3)
    # Those that do not mind come as they would.
    assert gets(state) == (2, 3)
    owns(state, "b", (2, 3), shape="alone")
    assert gets(state, what="alone") == (4, 5)
    owns(state, "c", (4, 5, 6, 7), shape="alone")
    assert gets(state, what="alone") == (8, 9)
    zone = wants(2, FULL, "zone", exclusive="NUMANodeLevel")
    state = given([*numbered("n0"), zone])
    owns(state, "a", (0, 8), shape="zone")
    assert gets(state, what="zone") == (4, 12)


# -- holds and nominations ---------------------------------------------------------------------------------------------


def holds(state, uid: str, cpus: tuple[int, ...], where: str = "n0") -> None:
    """A slot of a Reservation has these CPUs for itself."""
    slot = Slot("s", "t", SlotPhase.HELD, where, cores=cpus, capacity=Capacity((), cores=cpus))
    state.put_in(state.held_on, where, (uid, "t-0"))
    state.put(state.slots, uid, {"t-0": slot})
    state.moved.append((uid, "t-0"))


def test_what_a_hold_has_is_for_those_only_who_take_it():
    state = given([*numbered("n0"), wants(4)])
    holds(state, "r", (0, 1, 8, 9))
    assert gets(state) == (2, 3, 10, 11)
    assert gets(state, preferred=(0, 1, 8, 9)) == (0, 1, 8, 9)
    # Whatever the hold says: what a pod has is the pod's.
    owns(state, "a", (0, 8))
    assert gets(state, preferred=(0, 1, 8, 9)) == (1, 2, 9, 10)


def test_a_session_may_take_a_hold_away_and_bring_it_back():
    state = given([*numbered("n0"), wants(14)])
    holds(state, "r", (0, 1, 8, 9))
    cores = Cores.of(state)
    before = cores.image()
    assert fails(state) == {TOO_FEW: ["n0"]}
    cores.vacate(("r", "t-0"))
    assert fails(state) == {}
    cores.vacate(("r", "t-0"))
    cores.restore(("r", "t-0"))
    assert cores.free(0) == tuple(range(16))
    cores.restore(("r", "t-0"))
    assert cores.image() == before
    cores.add("p", 0, (0, 1))
    cores.vacate(("r", "t-0"))
    cores.close()
    assert cores.image() == before


def test_a_place_that_the_same_session_holds_is_known_as_the_pod_that_it_is():
    cores = Cores.of(given([*numbered("n0"), wants(2)]))
    cores.add("r/t-0", 0, (0, 8))
    cores.vacate(("r", "t-0"))
    assert 0 in cores.free(0)
    cores.restore(("r", "t-0"))
    assert 0 not in cores.free(0)


def test_what_is_kept_for_a_nominated_pod_is_there_for_it_alone():
    state = given([*numbered("n0"), wants(14), pod("p")])
    state.put(state.nominations, "p", Nomination("n0", 0, Capacity((), cores=(0, 1, 8, 9))))
    cores, request = Cores.of(state), state.shapes["s"].cores
    assert fails(state) == {TOO_FEW: ["n0"]}
    assert cores.filter(request, "p") == []
    assert cores.choose(request, 0, own="p") == (0, 1, 2, 3, 4, 5, 6, 8, 9, 10, 11, 12, 13, 14)
    assert fails(state) == {TOO_FEW: ["n0"]}
    state.drop(state.nominations, "p")
    assert fails(state) == {}


def test_the_index_follows_nodes_that_come_and_go():
    state = given([*numbered("n0"), wants(2)])
    owns(state, "a", (0, 8))
    Cores.of(state)
    then(state, e.NodeGone("n0"), numbered("n1"), wants(2))
    assert fails(state) == {}
    assert Cores.of(state).image() == Cores(state).image()
    assert gets(state) == (0, 8)
    then(state, node("n1", cpu=16_000, labels={"a": "b"}), e.NumaGone("n1"))
    assert fails(state) == {NO_TOPOLOGY: ["n1"]}


# -- in the log --------------------------------------------------------------------------------------------------------


def test_cpus_that_an_owner_left_and_others_got_are_not_the_holds_again():
    """Allocated once: what its owner does not take is the node's. Where that was never bound the hold is placed anew."""
    once = reservation("r", ("t", 1, "s"), owners=(owner(app="a"),), match_policy="Owner")
    few = machine(zones=1, cores=4)
    state = given(*numbered("n0", few), *numbered("n1", few), wants(6), wants(2, id="two"), once, e.ReservationAccepted("r", 1, 1))
    decide = functools.partial(run, state, session.decider, c.Schedule(NOW))
    assert [(held.node, held.cores) for held in decide()] == [("n0", (0, 1, 2, 4, 5, 6))]
    then(state, pod("p", "two", labels={"app": "a"}))
    assert [handed.cores for handed in decide()] == [(0, 4)]
    then(state, pod("q", "two", pinned_node="n0"))
    assert [placed.cores for placed in decide()] == [(1, 5)]
    then(state, e.PodGone("p"))
    assert decide() == [e.HoldReleased("r", "t-0", "Unavailable")]
    assert [(held.node, held.cores) for held in decide()] == [("n1", (0, 1, 2, 4, 5, 6))]
    assert state.void == {}


def test_a_pod_that_takes_anothers_capacity_gets_cpus_that_are_free_when_that_is_gone():
    few = machine(zones=1, cores=2)
    conf = configured("session", SessionConfig(actions=tuple(map(ActionConfig, ("enqueue", "allocate", "preempt")))))
    high, low = (shape(id, cpu=4_000, priority=of, cores=CoreRequest(4)) for id, of in (("high", 100), ("low", 0)))
    state = given(conf, *numbered("n0", few), high, low, pod("a", "low", "n0", cores=(0, 1, 2, 3)), pod("p", "high"))
    decide = functools.partial(run, state, session.decider, c.Schedule(NOW))
    events = decide()
    assert [type(event) for event in events] == [e.Preempted, e.Nominated]
    assert events[1].cores == (0, 1, 2, 3)
    assert decide() == []
    then(state, e.PodGone("a"))
    assert decide() == [e.PodPlaced("p", "n0", cores=(0, 1, 2, 3))]
    assert Cores.of(state).free(0) == ()
