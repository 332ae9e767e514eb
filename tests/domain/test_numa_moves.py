"""Moves of Guaranteed pods to nodes whose kubelets align them with NUMA zones: planned for a zone, held in a zone, and landed in it."""

import msgspec
import pytest
from domain.build import GIB, GPU, NOW, configured, given, node, pod, replica_of, shape, then
from domain.saga import BOLD, advance, evicts, hold, land, move, plan, session_answers, step

from restow.contracts import events as e
from restow.contracts.values import Container, DeviceShare, NumaZone
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs, MigrationConfig
from restow.domain.numa import demands
from restow.domain.records import Step
from restow.kube import wire
from restow.kube.reservation_manifest import hold_manifest
from restow.kube.reservations import reservation_fact

BIG = shape("s", cpu=5_000, memory=GIB, qos="Guaranteed", containers=[Container("c", requests={"cpu": 5_000, "memory": GIB})])


def two_zones(name: str) -> e.NumaObserved:
    """Of eight cores each."""
    return e.NumaObserved(name, "single-numa-node", "container", tuple(NumaZone(f"node-{i}", {"cpu": 8_000, "memory": 32 * GIB}) for i in range(2)))


def moving():
    """The pod p is to move from a, which says nothing of zones, to b, which has two of eight cores. Its slot is held."""
    nodes = [node("a", cpu=16_000), node("b", cpu=16_000), two_zones("b")]
    state = given(configured("migration", MigrationConfig(**BOLD)), *nodes, BIG, pod("p", node="a", owner=replica_of("rs")))
    then(state, plan("x", move("x-1", target="b")))
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]
    return state


def test_a_slot_is_held_in_a_zone_so_that_others_leave_it_to_the_successor():
    """It was held on the node alone, as of a pod that is not Guaranteed: two others got a zone each, and the successor none, though ten and five cores are less than sixteen."""
    state = moving()
    then(state, *(pod(name, pinned_node="b", owner=replica_of("others")) for name in ("q", "r")))
    session_answers(state)
    assert [name in state.placed for name in ("q", "r")] == [True, False]
    land(state, "x-1", "p2")
    assert step(state, "x-1") is Step.LANDED


PARTS = {"cpu": 5_000, "memory": GIB, GPU: 300}


@pytest.mark.parametrize(
    ("more", "each"),
    [({"gpu": (1, 600)}, [Container(name, requests=PARTS) for name in "cd"]), ({}, [Container("c", requests={"memory": GIB}), Container("d")])],
    ids=["containers with parts of one GPU", "resources of the pod as a whole"],
)
def test_a_slot_is_held_on_a_node_where_no_zone_has_all_of_it_if_its_pod_can_run_there(more, each):
    """Ten cores, that two containers have in two zones, or none of them says. One container was held in place of them, in no zone: such a move failed each time."""
    of = shape("s", cpu=10_000, memory=2 * GIB, qos="Guaranteed", containers=each, **more)
    state = given(node("a", cpu=16_000, gpus=1), node("b", cpu=16_000, gpus=1), of, pod("p", node="a", owner=replica_of("rs"), devices=(DeviceShare(0, 600),) if more else ()), two_zones("b"))
    then(state, configured("migration", MigrationConfig(**BOLD)), plan("x", move("x-1", target="b")))
    advance(state)
    assert evicts(hold(state, "x-1")) == ["x-1"]
    land(state, "x-1", "p2")
    assert step(state, "x-1") is Step.LANDED


def test_a_plan_moves_pods_to_zones_that_hold_them_and_every_move_lands():
    """No plan could be made where a Guaranteed pod was to go to such a node: the planner failed."""
    zones = [two_zones(name) for name in "abcd"]
    pods = [pod(f"p{i}", node=name, owner=replica_of("rs")) for i, name in enumerate("abcd")]
    nodes = [node(name, cpu=16_000, memory=64 * GIB) for name in "abcd"]
    state = given(configured("migration", MigrationConfig(**BOLD, concurrent=9, per_node=9)), *nodes, *zones, BIG, *pods)
    made = defragmentation.plan(state, DefragmentationArgs(planner="optimizing", objective="nodes", protectionThresholds={}), NOW, "x")
    assert made.after.free_nodes == 2, "three would have ten cores free, and no zone for the third pod"
    then(state, made)
    advance(state)
    hold(state, *(move.migration for move in made.moves))
    for i, one in enumerate(made.moves):
        land(state, one.migration, f"n{i}")
    assert {step(state, one.migration) for one in made.moves} == {Step.LANDED}


ONE, TWO, FIRST = ({"cpu": cpu, "memory": GIB} for cpu in (1_000, 2_000, 4_000))
WHOLE, SHARE = {GPU: 1_000}, {GPU: 500}


@pytest.mark.parametrize(
    ("more", "each", "apart"),
    [
        ({"cpu": 3_000}, [Container("a", requests=ONE), Container("b", requests=TWO)], True),
        ({"cpu": 4_000}, [Container("a", requests=ONE), Container("b", requests=TWO), Container("i", requests=FIRST, init=True)], True),
        ({"cpu": 3_000, "gpu": (2, 1_000)}, [Container("a", requests=ONE | WHOLE), Container("b", requests=TWO | WHOLE)], True),
        ({"cpu": 3_000, "gpu": (1, 500)}, [Container("a", requests=ONE | SHARE), Container("b", requests=TWO)], True),
        ({"cpu": 3_000, "gpu": (2, 500)}, [Container("a", requests=ONE | SHARE), Container("b", requests=TWO | SHARE)], False),
        ({"cpu": 3_250}, [Container("a", requests=ONE), Container("b", requests=TWO)], True),
        ({"cpu": 3_000}, [Container("a", requests={"cpu": 1_000}), Container("b", requests=TWO)], True),
        ({"cpu": 3_000, "gpu": (1, 600)}, [Container("a", requests=ONE | {GPU: 200}), Container("b", requests=TWO | {GPU: 400})], True),
        ({"cpu": 3_000, "gpu": (1, 1_000)}, [Container("a", requests=ONE | SHARE), Container("b", requests=TWO | SHARE)], True),
    ],
    ids=["two containers", "one before them", "a GPU each", "half a GPU", "half a GPU each", "overhead", "resources of the pod as a whole", "parts of a GPU", "a GPU together"],
)
def test_a_hold_is_read_back_as_a_guaranteed_pod_with_containers_that_are_aligned_alike(more, each, apart):
    """Where they do not say all of it, one has it all."""
    of = shape("s", memory=2 * GIB, qos="Guaranteed", containers=each, **more)
    state = given(node("a", cpu=16_000, gpus=4), node("b", cpu=16_000, gpus=4), of, pod("p", node="a", owner=replica_of("rs")), plan("x", move("x-1")))
    manifest = hold_manifest(state, state.migrations["x-1"])
    shapes, fact = reservation_fact(msgspec.json.decode(msgspec.json.encode(manifest), type=wire.Reservation), "volcano")
    read = shapes[fact.spec.tasks[0].shape]
    assert (read.requests, read.devices, read.qos) == (of.spec.requests, of.spec.devices, "Guaranteed")
    assert demands(read).pod == demands(of.spec).pod
    assert (demands(read) == demands(of.spec)) == apart
