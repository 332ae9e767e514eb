"""Plans say how many gangs fit in one block of each tier, before and after."""

from domain.build import NOW, given, node, pod, replica_of, shape
from domain.test_network_topology import conf

from restow.contracts.values import DeviceShare, GangFitting
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.fragmentation import packing

ARGS = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="nvidia.com/gpu", protectionThresholds={}, searchSteps=2_000)


def machines(*racks: int) -> list:
    """So many nodes of 8 GPUs in each rack; two racks in a zone."""
    return [node(f"r{rack}n{i}", cpu=64_000, gpus=8, labels={"zone": f"z{rack // 2}", "rack": f"r{rack}"}) for rack, size in enumerate(racks) for i in range(size)]


def told(packed) -> dict[str, int]:
    assert all((one.pods, one.devices, one.milli) == (4, 8, 1000) for one in packed.gangs)
    return {f"{one.tier} {one.name}": one.gangs for one in packed.gangs}


def test_gangs_of_four_whole_machines_are_counted_block_by_block():
    state = given(conf(), *machines(8, 3, 5, 3))
    assert told(packing(state)) == {"1 rack": 3, "2 zone": 4}, "2 + 0 + 1 + 0 in racks, 11 // 4 and 8 // 4 in zones"


def test_one_pod_in_the_way_is_a_gang_less():
    small = pod("p", "s", "r0n0", devices=(DeviceShare(0, 1000),), owner=replica_of("rs"))
    state = given(conf(), *machines(4, 4), shape("s", cpu=1_000, gpu=(1, 1000)), small)
    assert told(packing(state)) == {"1 rack": 1, "2 zone": 1}


def test_without_levels_nothing_is_said():
    assert packing(given(*machines(4))).gangs == ()


def test_a_plan_says_it_before_and_after():
    ones = [pod(f"p{i}", "s", name, devices=(DeviceShare(0, 1000),), owner=replica_of("rs")) for i, name in enumerate(("r0n0", "r1n0"))]
    state = given(conf(("zone", "rack"), "reserve, allocate", {"name": "reservation"}), *machines(4, 4), shape("s", cpu=1_000, gpu=(1, 1000)), *ones)
    plan = defragmentation.plan(state, ARGS, NOW, "p")
    assert told(plan.before) == {"1 rack": 0, "2 zone": 1}
    assert told(plan.after) == {"1 rack": 1, "2 zone": 1}
    assert GangFitting(1, "rack", 4, 8, 1000, 1) in plan.after.gangs
