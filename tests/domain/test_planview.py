"""Plans as people look at them: waves, what became of each move, and what a plan does to each group of nodes."""

import pytest
from domain.build import GIB, NOW, configured, given, node, pod, replica_of, shape, then

from restow.contracts import events as e
from restow.contracts.values import DeviceShare, Move, Packing
from restow.domain import config
from restow.domain.config import DefragmentationArgs, Namespaces, Selector
from restow.domain.fragmentation import packing
from restow.domain.migration.warnings import warnings
from restow.domain.planview import migrations_of, node_groups, numbers, plan_view, waves

NONE = Packing(0, 0, 0, 0, 0, 0)
RS = replica_of("rs")


def move(id: str, pod: str = "p", source: str = "a", target: str = "b", **more) -> Move:
    return Move(id, pod, "default", pod, source, target, **more)


def test_a_move_is_in_the_first_wave_in_which_all_has_landed_that_it_waits_for():
    moves = [move("1"), move("2", after=("1",)), move("3"), move("4", after=("2", "3")), move("5", "", follows="4")]
    assert numbers(moves) == {"1": 1, "2": 2, "3": 1, "4": 3, "5": 4}
    assert [[m.migration for m in wave] for wave in waves(moves)] == [["1", "3"], ["2"], ["4"], ["5"]]


def test_what_a_plan_does_not_have_is_not_waited_for_and_circles_end():
    assert numbers([move("1", after=("elsewhere",))]) == {"1": 1}
    assert set(numbers([move("1", after=("2",)), move("2", after=("1",))]).values()) == {1, 2}
    assert waves([]) == []


def test_a_chain_of_ten_thousand_waves_is_no_problem():
    chain = [move(str(i), after=(str(i - 1),) if i else ()) for i in reversed(range(10_000))]
    assert numbers(chain)["9999"] == 10_000


def cluster():
    return given(
        node("a", gpus=2, labels={"pool": "x"}), node("b", gpus=2, labels={"pool": "x"}), node("c", cpu=4_000),
        shape("g", gpu=(1, 1000)), shape("s"),
        pod("p", "g", "a", owner=RS, devices=(DeviceShare(0, 1000),)), pod("q", "g", "b", owner=RS, devices=(DeviceShare(0, 1000),)),
        pod("r", "s", "c", owner=RS),
    )  # fmt: skip


PLAN = e.Planned("x", "Defragmentation", (move("x-1", devices=(DeviceShare(1, 1000),)),), NONE, NONE, ("a",))


def test_groups_are_machines_alike_or_those_of_a_label():
    state = cluster()
    machines = node_groups(state, PLAN.moves)
    assert [(g.name, g.nodes) for g in machines] == [("2 gpu, 8 cpu, 32Gi", 2), ("4 cpu, 32Gi", 1)]
    assert [(g.name, g.nodes) for g in node_groups(state, PLAN.moves, "pool")] == [("x", 2), ("without the label", 1)]


def test_machines_that_differ_by_what_their_kubelets_keep_are_alike():
    state = given(node("a", cpu=7_910, memory=32 * GIB - 5), node("b", cpu=8_000))
    assert [(g.name, g.nodes) for g in node_groups(state, ())] == [("8 cpu, 32Gi", 2)]
    halves = given(node("a", cpu=7_499, memory=31 * GIB + GIB // 2 - 1), node("b", cpu=7_500, memory=31 * GIB + GIB // 2))
    assert [g.name for g in node_groups(halves, ())] == ["7 cpu, 31Gi", "8 cpu, 32Gi"], "to the nearest"


def test_before_and_after_are_those_of_the_plan_and_add_up():
    state = cluster()
    gpus, cpus = node_groups(state, PLAN.moves)
    assert (gpus.before.free_nodes, gpus.after.free_nodes) == (0, 1)
    assert (gpus.before.free_devices, gpus.after.free_devices) == (2, 2)
    assert (gpus.leaves, gpus.arrives, cpus.leaves) == (1, 1, 0)
    assert cpus.before == cpus.after
    whole = packing(state)
    for field in ("nodes", "free_nodes", "total", "idle", "free_devices"):
        assert sum(getattr(g.before, field) for g in (gpus, cpus)) == getattr(whole, field)


def test_a_pod_that_is_moved_on_leaves_its_first_place_again():
    state = cluster()
    on = Move("x-2", "", "default", "", "b", "a", (DeviceShare(0, 1000),), follows="x-1")
    (group, _) = node_groups(state, (*PLAN.moves, on))
    assert group.before == group.after


def test_a_plan_says_how_far_it_is():
    state = cluster()
    assert plan_view(state, "x") is None
    then(state, PLAN)
    assert (plan_view(state, "x").phase, plan_view(state, "x").steps, plan_view(state, "x").until) == ("waiting", {"planned": 1}, "")
    then(state, e.Holding("x-1", NOW + 1))
    assert plan_view(state, "x").phase == "moving"
    then(state, e.PlanCancelled("x", "enough"))
    assert (plan_view(state, "x").phase, plan_view(state, "x").cancelled) == ("cancelling", "enough")
    then(state, e.MigrationFailed("x-1", "Cancelled", "by hand"), time=NOW + 5_000)
    view = plan_view(state, "x")
    assert (view.phase, view.steps, view.over) == ("cancelled", {"failed": 1}, True)
    assert view.until > view.at
    (one,) = migrations_of(state, "x")
    assert (one.step, one.reason, one.message, one.over, one.wave) == ("failed", "Cancelled", "by hand", True, 1)


def test_a_plan_without_moves_and_moves_that_never_were():
    state = cluster()
    then(state, e.Planned("e", "Defragmentation", (), NONE, NONE), e.Planned("v", "Defragmentation", (move("v-1", "nobody"),), NONE, NONE))
    assert plan_view(state, "e").phase == "empty"
    assert (plan_view(state, "v").phase, plan_view(state, "v").steps) == ("done", {"unknown": 1})
    assert [one.step for one in migrations_of(state, "v")] == ["unknown"]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ({"resourceType": "cpu"}, []),
        ({"resourceType": "nvidia.com/gpu"}, []),
        ({"resourceType": "example.com/fpga"}, ["resourceType: no node has example.com/fpga"]),
        ({"labelSelector": Selector({"no": "such"})}, ["labelSelector: it selects none of 3 pods, so none may move"]),
        ({"labelSelector": Selector({})}, []),
        ({"evictableNamespaces": Namespaces(include=("default", "shop"))}, ["evictableNamespaces: there is no namespace shop"]),
        ({"planner": "claims", "resourceType": "example.com/fpga"}, ["claimNamespaces: names no namespace, so planner claims moves nothing", "planner: claims: no node has devices by claim"]),
        ({"objective": "capacity", "capacity": {"nvidia.com/gpu": "2"}}, []),
        ({"objective": "capacity", "capacity": {"nvidia.com/gpu": "8"}}, ["capacity: no node is large enough for 8 nvidia.com/gpu"]),
    ],
)
def test_a_policy_that_matches_nothing_is_warned_of(args, told):
    state = cluster()
    assert warnings(state) == []  # no policy
    then(state, configured("migration", config.MigrationConfig(defragmentation=DefragmentationArgs(**args))))
    assert warnings(state) == told


def test_namespaces_of_claims_that_are_not_there_are_warned_of():
    """Whatever the planner: no pod of them moves with its devices."""
    state = cluster()
    then(state, configured("migration", config.MigrationConfig(beside=("stock",), claim_namespaces=("default", "shop"))))
    assert warnings(state) == ["claimNamespaces: there is no namespace shop"]

