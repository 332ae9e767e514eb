"""Capacity for pods that wait although it is there in pieces: given a cluster, then the cheapest moves that make it."""

import msgspec
import pytest
from domain.build import NOW, configured, given, member, node, pod, pod_group, replica_of, shape
from domain.planning import Doing, carry_out

from restow.contracts import events as e
from restow.contracts.values import DeviceShare, LabelSelector, PodTerm
from restow.domain import config, defragmentation
from restow.domain.config import DefragmentationArgs

OWNER = replica_of("rs")
ARGS = DefragmentationArgs(planner="optimizing", protectionThresholds={})


def gpus(name: str, count: int, on: str, first: int = 0, **more) -> e.PodObserved:
    """A pod of whole GPUs."""
    more.setdefault("owner", OWNER)
    return pod(name, f"g{count}", on, devices=tuple(DeviceShare(first + i, 1000) for i in range(count)), **more)


SHAPES = tuple(shape(f"g{n}", cpu=100, gpu=(n, 1000)) for n in (1, 2, 3, 4, 5, 6, 8))


def capacity(state, demand: str, args=ARGS, **more) -> e.Planned:
    return defragmentation.plan_demand(state, args, NOW, "d", demand, **more)


def pieces(*more) -> object:
    """Two nodes with 4 GPUs free in all, 2 each; big wants 3."""
    return given(
        *SHAPES, node("a", gpus=4), node("b", gpus=4), gpus("p", 1, "a"), gpus("q", 1, "a", 1), gpus("r", 2, "b"), pod("big", "g3"), *more
    )


def test_one_move_puts_the_pieces_together():
    got = capacity(pieces(), "big")
    assert [(m.pod, m.source, m.target, m.after) for m in got.moves] == [("p", "a", "b", ())]
    assert [(r.name, r.pod, r.namespace, r.node) for r in got.slots] == [("restow-slot-d-1", "big", "default", "a")]
    assert got.reason == "capacity for big"
    assert got.planner == "optimizing"


def test_a_whole_device_is_made_of_two_halves_by_moving_who_has_one_of_them():
    """In all there is as much free on the node as it asks for."""
    halves = [pod(f"{n}{i}", "half", n, devices=(DeviceShare(i, 500),), owner=OWNER) for n in "ab" for i in range(2)]
    got = capacity(given(*SHAPES, shape("half", cpu=100, gpu=(1, 500)), node("a", gpus=2), node("b", gpus=2), *halves, pod("big", "g1")), "big")
    assert [(m.source, m.target) for m in got.moves] == [("a", "b")]


def test_the_capacity_is_the_pods_alone():
    """As its hold takes what becomes free first, whoever moves finds a place beside it."""
    state = pieces()
    got = capacity(state, "big")
    doing = carry_out(state, got, 0)
    assert isinstance(doing, Doing)
    assert doing.shares[got.slots[0].node].count(1000) >= 3


def test_the_cheapest_node_is_freed():
    state = pieces(node("c", gpus=4), *(gpus(f"c{i}", 1, "c", i, annotations={"scheduling.k8s.io/group-name": "g"}) for i in range(2)))
    dear = msgspec.structs.replace(ARGS, costs={"gang": 5_000})
    got = capacity(state, "big", dear)
    assert {m.source for m in got.moves} == {"a"}
    assert sum(m.cost for m in got.moves) == 1_000


def test_nobody_is_moved_who_has_nowhere_to_go():
    state = given(*SHAPES, *(node(f"n{i}", gpus=8) for i in range(4)), *(gpus(f"p{i}", 5, f"n{i}") for i in range(4)), pod("big", "g6"))
    got = capacity(state, "big")
    assert (got.moves, got.slots) == ((), ())
    assert got.reason == "no plan for big: no node can be freed for default/big: those who would have to leave have nowhere to go, or must not be moved"
    assert got.kept == {"NoTarget": 4}


def four_nodes_with_capacity_for_two(need: int) -> list:
    """Two nodes of 8 GPUs can be emptied enough for 6 more."""
    facts = [*SHAPES, *(node(f"n{i}", gpus=8) for i in range(4)), *(gpus(f"p{i}", 1, "n0", i) for i in range(3))]
    return [*facts, gpus("q0", 3, "n1"), gpus("q1", 5, "n2"), gpus("q2", 5, "n3"), pod_group("big", need=need)]


def test_a_gang_gets_capacity_for_all_who_wait_or_for_nobody_where_it_needs_all():
    both = given(*four_nodes_with_capacity_for_two(3), member("b0", "big", "g6"), member("b1", "big", "g6"), member("b2", "big", "g6"))
    got = capacity(both, "default/big")
    assert (got.moves, got.slots) == ((), ())
    assert "beside 2 of the 3 pods" in got.reason
    both = given(*four_nodes_with_capacity_for_two(2), member("b0", "big", "g6"), member("b1", "big", "g6"))
    got = capacity(both, "default/big")
    assert got.moves
    assert {r.pod for r in got.slots} == {"b0", "b1"}
    assert len({r.node for r in got.slots}) == 2
    assert got.reason == "capacity for default/big"


def test_where_not_all_of_a_gang_fit_it_gets_capacity_for_as_many_as_it_needs_to_start():
    state = given(*four_nodes_with_capacity_for_two(2), *(member(f"b{i}", "big", "g6") for i in range(4)))
    got = capacity(state, "default/big")
    assert got.moves
    assert [r.pod for r in got.slots] == ["b0", "b1"]
    assert len({r.node for r in got.slots}) == 2
    assert got.kept == {}
    assert got.reason.startswith("capacity for default/big, 2 of its 4 pods that wait; not for all of them: ")
    assert "beside 2 of the 4 pods" in got.reason


def test_where_less_than_it_needs_fit_nobody_gets_capacity():
    state = given(*four_nodes_with_capacity_for_two(3), *(member(f"b{i}", "big", "g6") for i in range(4)))
    got = capacity(state, "default/big")
    assert (got.moves, got.slots) == ((), ())
    assert "beside 2 of the 3 pods that it needs" in got.reason
    assert got.kept


def test_a_gang_that_runs_already_gets_capacity_for_one_more():
    running = gpus("b0", 6, "n0", annotations={"scheduling.k8s.io/group-name": "big"})
    facts = [*SHAPES, *(node(f"n{i}", gpus=8) for i in range(3)), running, gpus("p", 3, "n1"), gpus("q", 5, "n2")]
    got = capacity(given(*facts, pod_group("big", need=1), member("b1", "big", "g8"), member("b2", "big", "g8")), "default/big")
    assert [(m.pod, m.target) for m in got.moves] == [("p", "n2")]
    assert [(r.pod, r.node) for r in got.slots] == [("b1", "n1")]


def test_who_of_a_gang_finds_no_capacity_is_passed_over_while_enough_others_do():
    state = pieces(pod_group("big", need=1), member("b0", "big", "g8"), member("b1", "big", "g3"))
    got = capacity(state, "default/big")
    assert [(r.pod, r.node) for r in got.slots] == [("b1", "a")]


def test_of_each_task_of_a_gang_as_many_get_capacity_as_it_needs():
    def task(name: str) -> dict[str, str]:
        return {"volcano.sh/task-spec": name}

    facts = four_nodes_with_capacity_for_two(2)[:-1]
    group = pod_group("big", need=2, min_task_member={"master": 1, "worker": 1})
    workers = [member(f"b{i}", "big", "g6", annotations=task("worker")) for i in range(3)]
    got = capacity(given(*facts, group, *workers, member("b9", "big", "g6", annotations=task("master"))), "default/big")
    assert [r.pod for r in got.slots] == ["b0", "b9"]


def test_what_is_tried_for_all_and_for_those_that_are_needed_is_bounded_together():
    state = given(*four_nodes_with_capacity_for_two(3), *(member(f"b{i}", "big", "g6") for i in range(4)))
    bounded = msgspec.structs.replace(ARGS, searchSteps=20)
    got = capacity(state, "default/big", bounded)
    assert got.steps <= 20 + 5
    assert capacity(state, "default/big").steps > 40


def test_any_pod_of_a_gang_stands_for_all_of_it():
    state = given(*SHAPES, node("a", gpus=4), node("b", gpus=4), gpus("p", 1, "a"), gpus("q", 1, "a", 1), gpus("r", 2, "b"), pod_group("big"), member("b0", "big", "g3"))
    assert capacity(state, "b0").slots == capacity(state, "default/big").slots != ()


def test_who_frees_capacity_may_push_others():
    """q fits nowhere until s goes from c to d."""
    state = given(
        *SHAPES, *(node(n, gpus=4) for n in "abcd"),
        gpus("p", 2, "a"), gpus("x", 4, "b", owner=None), gpus("s", 1, "c"), gpus("y", 2, "c", 1, owner=None), gpus("z", 3, "d", owner=None),
        pod("big", "g4"),
    )  # fmt: skip
    got = capacity(state, "big")
    assert [(m.pod, m.source, m.target) for m in got.moves] == [("s", "c", "d"), ("p", "a", "c")]
    assert got.moves[1].after == (got.moves[0].migration,)
    assert got.slots[0].node == "a"


def test_rules_about_other_pods_hold_for_who_waits():
    """There is capacity on a and b; on a somebody is in its way who must not be moved, on b somebody who may."""
    apart = {"pod_anti_affinity": (PodTerm("kubernetes.io/hostname", LabelSelector({"app": "x"})),)}
    host = {n: {"labels": {"kubernetes.io/hostname": n}} for n in "abc"}
    state = given(
        shape("s", cpu=1_000), shape("lone", cpu=6_000, **apart), shape("fill", cpu=5_000),
        node("a", **host["a"]), node("b", **host["b"]), node("c", **host["c"]),
        pod("p", "s", "a", labels={"app": "x"}), pod("q", "s", "b", labels={"app": "x"}, owner=OWNER), pod("f", "fill", "c"),
        pod("big", "lone"),
    )  # fmt: skip
    got = capacity(state, "big")
    assert [(m.pod, m.target) for m in got.moves] in ([("q", "a")], [("q", "c")])
    assert got.slots[0].node == "b"


@pytest.mark.parametrize(
    ("demand", "said"),
    [
        ("nobody", "there is no such pod and no such PodGroup"),
        ("default/none", "there is no such pod and no such PodGroup"),
        ("p", "nobody of it waits for a node"),
        ("small", "it fits as it is"),
        ("huge", "all nodes together have nvidia.com/gpu 4 free; default/huge asks for nvidia.com/gpu 5"),
        ("elsewhere", "no node is one that default/elsewhere may run on"),
    ],
)
def test_no_plan_says_why(demand, said):
    state = pieces(pod("small", "g1"), pod("huge", "g5"), shape("x", gpu=(1, 1000), node_selector={"zone": "moon"}), pod("elsewhere", "x"))
    got = capacity(state, demand)
    assert (got.moves, got.slots) == ((), ())
    assert got.reason == f"no plan for {demand}: {said}"


def test_no_more_moves_than_allowed():
    got = capacity(pieces(), "big", max_moves=0)
    assert got.moves == ()
    assert got.reason == "no plan for big: it would take 1 moves; allowed: 0"


def test_what_its_queue_may_not_have_is_not_freed_capacity_for():
    closed = e.QueueObserved("default", "uid-default", NOW, 1, state="Closed")
    got = capacity(pieces(closed), "big")
    assert got.moves == ()
    assert got.reason.startswith("no plan for big: Queue")


def test_the_state_stays_as_it_is_and_the_plan_is_the_same_again():
    state = pieces()
    free, shares = state.table.free.copy(), state.table.device_free.copy()
    assert capacity(state, "big") == capacity(state, "big")
    assert (free == state.table.free).all()
    assert (shares == state.table.device_free).all()


def test_the_greedy_planner_frees_capacity_in_the_same_way():
    assert capacity(pieces(), "big", DefragmentationArgs()).moves == capacity(pieces(), "big", DefragmentationArgs()).moves != ()
    assert configured("migration", config.MigrationConfig(defragmentation=DefragmentationArgs(demand=True)))
