"""How many pods of each size could be run besides, against a search that places them one by one."""

from domain.build import GIB, given, node, pod, replica_of, reservation, shape, then
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts import events as e
from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.fragmentation import packing
from restow.domain.fragmentation.demands import heads
from restow.domain.fragmentation.fitting import MOST, sizes


def whole(*indices: int) -> tuple[DeviceShare, ...]:
    return tuple(DeviceShare(i, 1_000) for i in indices)


def big(name: str, gpus: int = 8, cpu: int = 640_000, **more):
    return node(name, cpu=cpu, memory=4_096 * GIB, pods=1_000, gpus=gpus, **more)


def counted(state) -> dict[tuple[int, int], tuple[int, int]]:
    """By size how many ask for it, and how many more fit."""
    return {(one.devices, one.milli): (one.running, one.pods) for one in packing(state).fits}


def test_of_each_size_that_pods_have_as_many_fit_as_whole_nodes_allow_the_largest_first():
    state = given(
        big("a"), big("b"), big("c"),
        shape("eight", gpu=(8, 1_000)), shape("one", gpu=(1, 1_000)), shape("half", gpu=(1, 500)),
        pod("x", "eight", "a", devices=whole(*range(8))),
        pod("y", "one", "b", devices=whole(3)),
        pod("z", "half"),
    )  # fmt: skip
    assert counted(state) == {(8, 1_000): (1, 1), (1, 1_000): (1, 15), (1, 500): (1, 30)}
    assert [one.devices for one in packing(state).fits] == [8, 1, 1]


def test_a_whole_machine_is_a_size_though_nobody_asks_for_one_yet():
    state = given(big("a", 4), big("b", 4), shape("one", gpu=(1, 1_000)), pod("y", "one", "b", devices=whole(0)))
    assert counted(state) == {(4, 1_000): (0, 1), (1, 1_000): (1, 7)}


def test_cores_and_rules_about_nodes_are_those_of_most_pods_of_the_size():
    state = given(
        big("a", cpu=4_000, labels={"pool": "x"}), big("b", cpu=64_000),
        shape("lean", gpu=(1, 1_000), cpu=1_000, node_selector={"pool": "x"}), shape("fat", gpu=(1, 1_000), cpu=32_000),
        pod("p", "lean"), pod("q", "lean"), pod("r", "fat"),
    )  # fmt: skip
    assert counted(state)[1, 1_000] == (3, 4)
    assert packing(state).fits[-1].requests["cpu"] == 1_000


def test_where_no_node_has_devices_the_demands_count_that_together_ask_for_the_most():
    state = given(
        big("a", 0, 10_000), big("b", 0, 3_000), shape("large", cpu=4_000), shape("small", cpu=500),
        pod("p", "large"), pod("q", "small"), pod("r", "small"),
    )  # fmt: skip
    assert [(one.requests["cpu"], one.running, one.pods) for one in packing(state).fits] == [(4_000, 1, 2), (500, 2, 26)]


def test_nothing_fits_on_a_node_that_takes_no_pods_and_a_hold_is_not_free():
    state = given(
        big("a", 2), big("b", 2, unschedulable=True), big("c", 2, ready=False), shape("one", gpu=(1, 1_000)), pod("p", "one"),
        reservation("r", ("t", 1, "one")), e.ReservationAccepted("r", 1, 1),
    )  # fmt: skip
    then(state, e.HoldPlaced("r", "t-0", "a", devices=whole(0)))
    assert counted(state) == {(2, 1_000): (0, 0), (1, 1_000): (1, 1)}


def test_pods_whose_place_no_scheduler_chooses_are_no_demand_and_of_many_sizes_the_largest_demands_are_told():
    shapes = [shape(f"s{i}", gpu=(1, 100 * i)) for i in range(1, 9)]
    pods = [pod(f"p{i}-{n}", f"s{i}") for i in range(1, 9) for n in range(i)]
    state = given(big("a"), *shapes, shape("agent", gpu=(2, 1_000)), pod("daemon", "agent", owner=replica_of("ds", "DaemonSet")), *pods)
    found = sizes(state, heads(state))
    assert len(found) == MOST
    assert [one.request for one in found] == [DeviceRequest(8, 1_000), *(DeviceRequest(1, 100 * i) for i in (8, 7, 6, 5, 4))]


@settings(max_examples=examples(60), deadline=None)
@for_all(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), min_size=1, max_size=4), st.integers(1, 4), st.sampled_from((300, 500, 1_000)), st.integers(0, 3))
def test_as_many_fit_as_can_be_placed_one_by_one(nodes, count, milli, cpu):
    facts = [big(f"n{i}", devices, cores * 1_000) for i, (devices, cores) in enumerate(nodes)]
    state = given(*facts, shape("s", gpu=(count, milli), cpu=cpu * 1_000), pod("p", "s"))
    placed = sum(_one_by_one([1_000] * devices, cores, count, milli, cpu) for devices, cores in nodes)
    found = {(one.devices, one.milli): one.pods for one in packing(state).fits}
    assert found.get((count, milli), placed) == placed


def _one_by_one(shares: list[int], cores: int, count: int, milli: int, cpu: int) -> int:
    """Each copy on the emptiest devices: equal shares are used up evenly, which is best."""
    placed = 0
    while cores >= cpu and placed < 100:
        able = sorted((i for i, share in enumerate(shares) if share >= milli), key=lambda i: -shares[i])[:count]
        if len(able) < count:
            break
        for i in able:
            shares[i] -= milli
        cores -= cpu
        placed += 1
    return placed
