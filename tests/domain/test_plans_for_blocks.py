"""Whole free blocks are worth something by objective `value`: where gangs are to be near to each other, as many slots as make up whole gangs count once more."""

import random
from itertools import product

import msgspec
import pytest
from domain.build import NOW, given, member, node, pod, pod_group, replica_of, shape
from domain.test_network_topology import SOFT, conf, hard
from effort import examples

from restow.contracts.values import DeviceShare
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.appraisal import Appraisal
from restow.domain.defragmentation.bound import ONE as MILLIONTHS
from restow.domain.defragmentation.bound import bound, judged
from restow.domain.defragmentation.demand_mix import gang_mix, mix
from restow.domain.defragmentation.optimizing import blocks
from restow.domain.defragmentation.optimizing.search import Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.prices import Prices
from restow.domain.kueue import REQUIRED_TOPOLOGY

VALUE = DefragmentationArgs(planner="optimizing", objective="value", protectionThresholds={}, searchSteps=2_000)
SERVER = replica_of("rs")


def world(seed: int, topology=None, racks: int = 3, most: int = 5):
    """Racks of two nodes of two GPUs; pods of one GPU, and a gang of two that takes a rack wholly waits."""
    chance = random.Random(seed)
    names = [f"r{rack}n{i}" for rack in range(racks) for i in range(2)]
    slots = chance.sample([(name, d) for name in names for d in range(2)], chance.randint(2, most))
    ones = [pod(f"p{i}", "one", name, owner=SERVER, devices=(DeviceShare(d, 1_000),)) for i, (name, d) in enumerate(slots)]
    gang = [pod_group("g", need=2, topology=topology), *(member(f"g{i}", "g", "two") for i in range(2))]
    nodes = [node(name, cpu=0, memory=0, gpus=2, labels={"zone": "z", "rack": name[:2]}) for name in names]
    shapes = shape("one", cpu=0, memory=0, gpu=(1, 1_000)), shape("two", cpu=0, memory=0, gpu=(2, 1_000))
    return given(conf(("zone", "rack"), "reserve, allocate", {"name": "reservation"}), *nodes, *shapes, *ones, *gang)


def judge(state, ends: dict[str, str]) -> int:
    """What is free is worth with everybody at these ends, in thousandths of a GPU-hour, in plain words: nodes cost what they have, and a gang of two takes a rack."""
    free = {name: 2 - sum(end == name for end in ends.values()) for name in state.nodes}
    worth = 0
    for one in mix(state, Prices(state, VALUE.prices).sizes):
        worth_of_one = one.part * one.v.devices.count * 24_000 / 1024
        worth += sum(left // one.v.devices.count for left in free.values()) * worth_of_one
        if one.v.devices.count == 2:
            # All pods that ask for two are of the gang.
            racks = [min(left for name, left in free.items() if name[:2] == rack) == 2 for rack in {name[:2] for name in free}]
            worth += 2 * sum(racks) * worth_of_one
    return worth


def best(state, most: int = 2_000) -> float:
    """The most that any arrangement gains beyond what it costs: a GPU-hour a move, and a tenth more by `minimumGain`."""
    homes = {uid: state.charges[uid].node for uid in state.charges}
    found = 0.0
    for ends in product(state.nodes, repeat=len(homes)):
        if max(ends.count(name) for name in ends) <= 2:
            there = dict(zip(homes, ends, strict=True))
            moves = sum(there[uid] != homes[uid] for uid in homes)
            found = max(found, judge(state, there) - judge(state, homes) - 1_100 * moves if moves <= most else 0)
    return found


def planned(state, args=VALUE, **more):
    return defragmentation.plan(state, args, NOW, "p", **more)


def test_what_is_free_is_worth_what_is_said_here_before_and_after():
    for seed in range(examples(30)):
        state = world(seed, hard(1))
        plan = planned(state)
        homes = {uid: state.charges[uid].node for uid in state.charges}
        ends = homes | {move.pod: move.target for move in plan.moves}
        assert plan.worth.before == pytest.approx(judge(state, homes), abs=20)
        assert plan.worth.after == pytest.approx(judge(state, ends), abs=20)
        assert plan.worth.before == Appraisal(state, VALUE, NOW).total()
        again = Appraisal(state, VALUE, NOW)
        assert sum(again.each().values()) + again.whole().total == plan.worth.before


@pytest.mark.parametrize("topology", [hard(1), SOFT], ids=["hard", "soft"])
def test_plans_free_blocks_as_well_as_any_arrangement(topology):
    had = could = 0.0
    for seed in range(examples(40)):
        state = world(seed, topology)
        plan = planned(state)
        had += plan.worth.after - plan.worth.before - 1.1 * plan.worth.cost
        could += best(state)
    assert had == pytest.approx(could, rel=0.01)


@pytest.mark.parametrize("kind", ["LP", "volume"])
@pytest.mark.parametrize("moves", [1, 2, 2_000])
def test_no_arrangement_is_better_than_the_bound(kind, moves):
    for seed in range(examples(25)):
        state = world(seed, hard(1), most=4)
        task = Task(state, VALUE, NOW, "p", moves)
        assert bound(task, kind) >= best(state, moves) * MILLIONTHS, seed
        plan = planned(state, max_moves=moves)
        said = judged(task, plan, kind)
        assert said.gained == MILLIONTHS * (plan.worth.after - plan.worth.before)
        assert said.gained <= said.most


def test_a_plan_made_right_after_the_first_has_no_moves():
    moved = 0
    for seed in range(20):
        state = world(seed, hard(1))
        first = planned(state)
        chance = {uid: (state.charges[uid].node, state.devices_of(uid)) for uid in state.charges}
        ends = chance | {move.pod: (move.target, move.devices) for move in first.moves}
        then = given(*_facts(state), *(pod(uid, "one", name, owner=SERVER, devices=devices) for uid, (name, devices) in ends.items()))
        moved += len(first.moves)
        assert planned(then).moves == (), seed
    assert moved > 10


def _facts(state):
    """The cluster without the pods that run."""
    names = sorted(state.nodes)
    nodes = [node(name, cpu=0, memory=0, gpus=2, labels={"zone": "z", "rack": name[:2]}) for name in names]
    shapes = shape("one", cpu=0, memory=0, gpu=(1, 1_000)), shape("two", cpu=0, memory=0, gpu=(2, 1_000))
    gang = [pod_group("g", need=2, topology=hard(1)), *(member(f"g{i}", "g", "two") for i in range(2))]
    return [conf(("zone", "rack"), "reserve, allocate", {"name": "reservation"}), *nodes, *shapes, *gang]


def machines(*racks: int, gpus: int = 2):
    return [node(f"r{rack}n{i}", cpu=0, memory=0, gpus=gpus, labels={"zone": f"z{rack // 2}", "rack": f"r{rack}"}) for rack, size in enumerate(racks) for i in range(size)]


ONE, TWO = shape("one", cpu=0, memory=0, gpu=(1, 1_000)), shape("two", cpu=0, memory=0, gpu=(2, 1_000))
LEVELS = conf(("zone", "rack"), "reserve, allocate", {"name": "reservation"})


def gangs(state):
    return [(gang.pods, gang.one.v.devices.count, gang.tier) for gang in gang_mix(state, Prices(state, VALUE.prices).sizes)]


@pytest.mark.parametrize(
    ("topology", "pods", "tier"), [(hard(1), 2, 0), (hard(2), 2, 1), (hard(1), 3, None), (hard(2), 4, 1), (hard(2), 5, None), (SOFT, 2, 0), (SOFT, 3, 1), (SOFT, 5, None), (None, 2, None)]
)
def test_a_gang_counts_in_blocks_of_the_tier_that_it_asks_for_if_any_could_hold_it(topology, pods, tier):
    """Tier 0 is the first of the slots: racks of two nodes, two in a zone."""
    state = given(LEVELS, *machines(2, 2, 2, 2), ONE, TWO, pod_group("g", need=pods, topology=topology), *(member(f"g{i}", "g", "two") for i in range(pods)))
    assert gangs(state) == ([] if tier is None else [(pods, 2, tier)])


@pytest.mark.parametrize(("need", "pods"), [(1, 3), (2, 2), (3, 3), (4, 3)])
def test_of_a_gang_as_many_pods_count_as_it_needs_to_start(need, pods):
    state = given(LEVELS, *machines(4), ONE, TWO, pod_group("g", need=need, topology=hard(1)), *(member(f"g{i}", "g", "two") for i in range(3)), member("head", "g", "one"))
    assert gangs(state) == [(pods, 2, 0)]


@pytest.mark.parametrize("first", [True, False])
def test_where_pods_ask_by_kueues_annotation_the_first_one_speaks_for_its_gang_as_in_a_session(first):
    """Also once it has ended."""
    asks = {"annotations": {REQUIRED_TOPOLOGY: "rack"}}
    head = member("head", "g", "one", phase="Succeeded", **asks if first else {})
    state = given(LEVELS, *machines(2), ONE, TWO, pod_group("g", need=2), head, *(member(f"g{i}", "g", "two", **{} if first else asks) for i in range(2)))
    assert gangs(state) == ([(2, 2, 0)] if first else [])


def test_gangs_that_ask_for_the_same_are_one_demand_and_those_that_wait_count_eight_times():
    running = [member(f"a{i}", "a", "two", node=f"r0n{i}", devices=tuple(DeviceShare(d, 1_000) for d in range(2))) for i in range(2)]
    waiting = [member(f"b{i}", "b", "two") for i in range(2)]
    groups = [pod_group(name, need=2, topology=hard(1)) for name in "ab"]
    ones = [pod(f"p{i}", "one", "r1n0", devices=(DeviceShare(i, 1_000),), owner=SERVER) for i in range(2)]
    state = given(LEVELS, *machines(2, 2), ONE, TWO, *groups, *running, *waiting, *ones)
    (gang,) = gang_mix(state, Prices(state, VALUE.prices).sizes)
    assert gang.one.part == 36 * 1024 // 38


def test_without_levels_or_where_free_nodes_are_given_back_blocks_are_worth_nothing():
    facts = [*machines(2, 2), ONE, TWO, pod_group("g", need=2, topology=hard(1)), *(member(f"g{i}", "g", "two") for i in range(2))]
    plain, state = given(*facts), given(LEVELS, *facts)
    assert not Appraisal(plain, VALUE, NOW).blocks.classes
    assert Appraisal(state, VALUE, NOW).blocks.classes
    state.migration_config = msgspec.structs.replace(state.migration_config, emptied="cordon")
    assert not Appraisal(state, VALUE, NOW).blocks.classes


def test_with_few_moves_a_block_is_freed_and_not_two_nodes_of_two_racks():
    """Two moves free a node each in any rack, and only in the last one a block."""
    ones = [pod(f"p{rack}{i}", "one", f"r{rack}n{i}", devices=(DeviceShare(0, 1_000),), owner=SERVER) for rack in range(4) for i in range(3 if rack < 3 else 2)]
    state = given(LEVELS, *machines(3, 3, 3, 3), ONE, TWO, pod_group("g", need=3, topology=hard(1)), *(member(f"g{i}", "g", "two") for i in range(3)), *ones)
    plan = planned(state, max_moves=2)
    assert {move.source for move in plan.moves} == {"r3n0", "r3n1"}
    assert [(one.before, one.after) for one in plan.worth.gangs] == [(0, 1)]
    assert plan.worth.gangs[0].will > plan.worth.gangs[0].was == 0


def test_nobody_comes_to_a_block_that_is_whole():
    """By what nodes are worth one by one the pods of rack 0 would as well go to rack 1."""
    ones = [pod(f"p{i}", "one", f"r0n{i}", devices=(DeviceShare(0, 1_000),), owner=SERVER) for i in range(2)]
    state = given(LEVELS, *machines(2, 2, 1), ONE, TWO, pod_group("g", need=2, topology=hard(1)), *(member(f"g{i}", "g", "two") for i in range(2)), *ones)
    plan = planned(state)
    assert {move.target for move in plan.moves} == {"r2n0"}
    assert [(one.before, one.after) for one in plan.worth.gangs] == [(1, 2)]


def test_a_plan_of_whole_nodes_frees_blocks_too():
    state = world(3, hard(1))
    plan = planned(state, msgspec.structs.replace(VALUE, wholeNodes=True))
    assert plan.worth.gangs[0].after > plan.worth.gangs[0].before or not plan.moves


def test_what_a_small_gang_has_in_every_rack_keeps_nobody_from_making_room_for_a_large_one():
    """Racks of four nodes of eight GPUs. A gang of two times four of them runs: nearly every node is part of what such a one could have, and where nobody came to any of these, three racks that could be freed were one."""
    chance, names = random.Random(3), [f"n{i:02}" for i in range(24)]
    free = {name: set(range(8)) for name in names}
    facts = [LEVELS, *(node(name, cpu=0, memory=0, gpus=8, labels={"zone": "z", "rack": f"r{i // 4}"}) for i, name in enumerate(names))]
    facts += [shape(f"x{count}", cpu=0, memory=0, gpu=(count, 1_000)) for count in (1, 2, 4, 8)]
    facts += [pod_group("large", need=4, topology=SOFT), *(member(f"large{i}", "large", "x8") for i in range(4)), pod_group("small", need=2, topology=SOFT)]

    def devices(name: str, count: int) -> tuple[DeviceShare, ...]:
        found = sorted(free[name])[:count]
        free[name] -= {*found}
        return tuple(DeviceShare(d, 1_000) for d in found)

    facts += [member(f"small{i}", "small", "x4", name, devices=devices(name, 4)) for i, name in enumerate(names[4:6])]
    for i in range(60):
        count, name = chance.choice((1, 1, 1, 2, 2, 4)), chance.choice(names)
        if len(free[name]) > count + 2:
            facts.append(pod(f"p{i}", f"x{count}", name, owner=SERVER, devices=devices(name, count)))
    plan = planned(given(*facts))
    assert [(one.pods, one.before, one.after) for one in plan.worth.gangs] == [(4, 0, 3), (2, 8, 13)]


def test_freeing_blocks_keeps_to_its_steps_also_where_hundreds_of_small_pods_are_to_be_near_to_each_other():
    """In one zone of 60 nodes for hundreds of which each has room: for each number of them it was asked who would have to leave, and looked at all nodes after the steps were used up."""
    chance, names = random.Random(1), [f"n{i:03}" for i in range(60)]
    facts = [LEVELS, *(node(name, cpu=64_000, memory=0, labels={"zone": "z", "rack": name}, pods=700) for name in names), shape("tiny", cpu=250, memory=0)]
    facts += [shape(f"c{cores}", cpu=cores * 1_000, memory=0) for cores in range(1, 8)]
    facts += [pod(f"{name}-{i}", f"c{chance.randint(1, 7)}", name, owner=SERVER) for name in names for i in range(9)]
    state = given(*facts, pod_group("g", need=4_000, topology=hard(2)), *(member(f"g{i}", "g", "tiny") for i in range(4_000)))
    task = Task(state, VALUE, NOW, "p", 2_000)
    with opened(task, "value", Rows(task)) as there:
        blocks.free(Search(there, Limits(2_000, 1_100_000, 1_000, False)))
        assert there.steps < 1_100
