"""Which nodes can give a Guaranteed pod all that it asks for from one NUMA zone."""

import numpy as np
import pytest
from domain.build import (
    GIB,
    NOW,
    given,
    member,
    node,
    pod,
    pod_group,
    reservation,
    run,
    shape,
    then,
)
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Container, NumaZone
from restow.domain import session
from restow.domain.numa import CONTAINER, INIT_CONTAINER, POD, Numa

GPU = "nvidia.com/gpu"


def topology(name: str, *zones: dict[str, int], scope: str = "container", policy: str = "single-numa-node") -> e.NumaObserved:
    """Zones with amounts in canonical units; memory and CPUs that are not said are plenty."""
    said = [{"cpu": 64_000, "memory": 64 * GIB} | zone for zone in zones]
    return e.NumaObserved(name, policy, scope, tuple(NumaZone(f"node-{i}", z) for i, z in enumerate(said)))


def cores(*each: float, qos: str = "Guaranteed", id: str = "s", **more) -> e.ShapeDeclared:
    """A shape with one container for each number of cores."""
    containers = [Container(f"c{i}", requests={"cpu": int(n * 1000)}) for i, n in enumerate(each)]
    return containing(*containers, qos=qos, id=id, **more)


def containing(*containers: Container, id: str = "s", qos: str = "Guaranteed", **more) -> e.ShapeDeclared:
    total = sum(c.requests.get("cpu", 0) for c in containers if not c.init)
    return shape(id, cpu=total, memory=0, qos=qos, containers=containers, **more)


def fails(state, what="s") -> dict[str, list[str]]:
    index = Numa.of(state)
    if not index.concerns(what):
        return {}
    return {reason: [state.table.names[r] for r in np.flatnonzero(rows)] for reason, rows in index.filter(what)}


def two(*zones, **more):
    """One node with these zones, one without a topology."""
    return [node("n0", cpu=64_000), node("n1", cpu=64_000), topology("n0", *zones, **more)]


@pytest.mark.parametrize(
    ("asked", "scope", "reasons"),
    [
        ((4,), "container", {}),
        ((5,), "container", {CONTAINER: ["n0"]}),
        ((4, 4), "container", {}),
        ((4, 4, 1), "container", {CONTAINER: ["n0"]}),
        # The first takes from the lowest zone that fits: what is left does for no more.
        ((2, 4, 3), "container", {CONTAINER: ["n0"]}),
        ((2, 3, 2), "container", {}),
        ((2, 2), "pod", {}),
        ((2, 3), "pod", {POD: ["n0"]}),
    ],
)
def test_each_container_or_the_whole_pod_must_fit_one_zone(asked, scope, reasons):
    assert fails(given(two({"cpu": 4_000}, {"cpu": 4_000}, scope=scope), cores(*asked))) == reasons


@pytest.mark.parametrize("policy", ["", "none", "best-effort", "restricted"])
def test_other_policies_filter_nothing(policy):
    assert fails(given(two({"cpu": 1_000}, policy=policy), cores(8))) == {}


def test_only_guaranteed_pods_are_aligned():
    assert fails(given(two({"cpu": 1_000}), cores(8, qos=""))) == {}


def test_cpus_are_aligned_where_whole_cores_are_asked_for():
    assert fails(given(two({"cpu": 1_000}), cores(1.5))) == {}
    assert fails(given(two({"cpu": 1_000}, scope="pod"), cores(1.5))) == {}
    assert fails(given(two({"cpu": 1_000}), cores(2))) == {CONTAINER: ["n0"]}


def test_all_resources_of_a_container_come_from_the_same_zone():
    wanted = containing(Container("c", requests={"cpu": 4_000, "memory": 4 * GIB}))
    apart = two({"cpu": 4_000, "memory": GIB}, {"cpu": 1_000, "memory": 8 * GIB})
    assert fails(given(apart, wanted)) == {CONTAINER: ["n0"]}


def test_devices_are_aligned_where_zones_report_them():
    wanted = containing(Container("c", requests={"cpu": 1_000, "restow.dev/gpu-milli": 2_000}))
    assert fails(given(two({GPU: 1}, {GPU: 1}), wanted)) == {CONTAINER: ["n0"]}
    assert fails(given(two({GPU: 1}, {GPU: 2}), wanted)) == {}
    # No zone says where the devices are: they are the node's.
    assert fails(given(two({}, {}), wanted)) == {}


def test_what_must_be_aligned_and_no_zone_reports_keeps_the_pod_off():
    wanted = containing(Container("c", requests={"hugepages-2Mi": GIB, "ephemeral-storage": GIB}))
    assert fails(given(two({}, {}), wanted)) == {CONTAINER: ["n0"]}
    assert fails(given(two({}, {"hugepages-2Mi": GIB}), wanted)) == {}


def test_init_containers_run_one_after_the_other():
    init = [Container(f"i{n}", requests={"cpu": 4_000}, init=True) for n in range(3)]
    state = given(two({"cpu": 4_000}), containing(*init, Container("c", requests={"cpu": 1_000})))
    assert fails(state) == {}
    too_big = containing(Container("i", requests={"cpu": 5_000}, init=True), Container("c"), id="t")
    assert fails(then(state, too_big), "t") == {INIT_CONTAINER: ["n0"]}


# -- what is in use --------------------------------------------------------------------------------------------------------


def test_pods_take_the_lowest_zone_that_fits_in_the_order_in_which_they_were_seen():
    state = given(two({"cpu": 4_000}, {"cpu": 4_000}), cores(3), cores(2, id="t"), pod("a", "s", "n0"), pod("b", "t", "n0"))
    # a in zone 0, b in zone 1: 1 and 2 cores are left.
    assert fails(state) == {CONTAINER: ["n0"]}
    assert fails(state, "t") == {}
    assert fails(then(state, pod("c", "t", "n0")), "t") == {CONTAINER: ["n0"]}
    assert fails(then(state, e.PodGone("a"))) == {}


def test_what_fits_no_zone_takes_what_is_left_of_them():
    state = given(two({"cpu": 4_000}, {"cpu": 4_000}), cores(6), cores(2, id="t"), cores(3, id="u"), pod("old", "s", "n0"))
    assert fails(state, "t") == {}
    assert fails(state, "u") == {CONTAINER: ["n0"]}


def test_a_hold_is_in_a_zone_as_its_pod_would_be():
    held = [reservation("r", ("t", 1, "s")), e.ReservationAccepted("r", 1, 1), e.HoldPlaced("r", "t-0", "n0")]
    state = given(two({"cpu": 4_000}), cores(3), *held)
    assert fails(state) == {CONTAINER: ["n0"]}
    assert fails(then(state, e.HoldReleased("r", "t-0", "Deleted"))) == {}


@pytest.mark.parametrize("scope", ["container", "pod"])
def test_of_a_hold_that_owners_have_drawn_from_only_the_rest_is_in_a_zone(scope):
    held = [reservation("r", ("t", 1, "s")), e.ReservationAccepted("r", 1, 1), e.HoldPlaced("r", "t-0", "n0")]
    state = given(two({"cpu": 4_000}, scope=scope), cores(4), cores(1, id="one"), *held)
    assert fails(state, "one") == {POD if scope == "pod" else CONTAINER: ["n0"]}
    slot = state.slots["r"]["t-0"]
    left = tuple((column, min(amount, 2_000)) for column, amount in slot.capacity.wanted)
    state.put(state.slots["r"], "t-0", replace(slot, capacity=replace(slot.capacity, wanted=left, held=left)))
    then(state, pod("owner", "one", "n0"))
    state.moved.append(("r", "t-0"))
    assert fails(state, "one") == {}
    assert fails(then(state, pod("other", "one", "n0")), "one") == {POD if scope == "pod" else CONTAINER: ["n0"]}
    assert Numa.of(state).image() == Numa(state).image()


def test_a_topology_may_change_and_go():
    state = given(two({"cpu": 4_000}), cores(8))
    assert fails(state) == {CONTAINER: ["n0"]}
    state = then(state, topology("n1", {"cpu": 4_000}), topology("n0", {"cpu": 8_000}, {"cpu": 1_000}, {}))
    assert fails(state) == {CONTAINER: ["n1"]}
    assert fails(then(state, e.NumaGone("n1"))) == {}
    state = then(state, topology("n0", {"cpu": 1_000}), e.NodeGone("n0"), node("other"))
    assert fails(state) == {}


def test_a_gang_that_cannot_be_complete_leaves_its_zones_to_the_next_one():
    zones = topology("a", {"cpu": 4_000}, {"cpu": 4_000})
    gang = [member(f"m{i}", "g", "s") for i in range(3)]
    state = given(node("a", cpu=16_000), zones, cores(3), cores(4, id="four"), pod_group("g", need=3), *gang, *(pod(f"p{i}", "four") for i in range(2)))
    run(state, session.decider, c.Schedule(NOW))
    assert list(state.placed) == ["p0", "p1"]


def test_a_session_adds_and_removes_occupants_and_leaves_no_trace():
    state = given(two({"cpu": 4_000}), cores(3), pod("a", "s", "n0"), pod("b"))
    index, before = Numa.of(state), Numa(state).image()
    index.remove("a")
    assert fails(state) == {}
    index.add("b", 0, state.pods["b"].fact)
    assert fails(state) == {CONTAINER: ["n0"]}
    index.close()
    assert index.image() == before
