"""Simulated annealing in the optimizing planner: what it makes of a world can be there, is told right, and is taken only where it is better."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.planning import cluster

from restow.contracts.ids import PlanId
from restow.contracts.values import DeviceShare, LabelSelector, PodTerm, Spread
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.annealing import _Board, anneal, slack
from restow.domain.defragmentation.optimizing.improve import take_up
from restow.domain.defragmentation.optimizing.plan import least
from restow.domain.defragmentation.optimizing.search import Chance, Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task

HOST = "kubernetes.io/hostname"
OWNER = replica_of("rs")
HOT = 50_000_000_000
"""Nearly everything that fits is done."""


def _task(state, moves: int = 2_000) -> Task:
    args = DefragmentationArgs(planner="optimizing", objective="value", protectionThresholds={})
    return Task(state, args, NOW, PlanId("p"), moves)


def _search(world, task: Task) -> Search:
    return Search(world, Limits(task.max_moves, least(task.args), 1_000, whole=False))


@pytest.mark.parametrize("moves", [0, 2, 2_000])
@pytest.mark.parametrize("seed", range(6))
def test_wherever_pods_are_brought_there_is_place_for_them_and_no_more_move_than_may(seed, moves):
    state = cluster(seed, "value")
    task = _task(state, moves)
    with opened(task, "value", Rows(task)) as world:
        board, chance = _Board(_search(world, task)), Chance()
        assert board.pods
        ends = {}
        for _ in range(2_000):
            board.try_one(chance, HOT)
            # The latest state in which somebody is away.
            ends = board.ends() or ends
            assert len(ends) <= moves
        assert bool(ends) == bool(moves)
        for _ in range(100):
            board.try_one(chance, HOT)
        ends = board.ends()
        take_up(world, ends)
        for name, row in state.table.rows.items():
            free, shares = world.free(row)
            assert min(free) >= 0
            assert all(share >= 0 for share in shares[: state.nodes[name].devices])
            # What the board has counted is what the world says.
            assert board._worth[row] == world.worth[row]
            assert (board._free[row], board._shares[row], board._loads[row]) == (free, shares, int(world.loads[row]))
        for uid, spot in ends.items():
            request = state.vectors[state.pods[uid].fact.shape].devices
            assert spot.row != world.home(uid).row
            assert [d.milli for d in spot.devices] == ([request.milli] * request.count if request else [])


@pytest.mark.parametrize("fresh", [True, False])
def test_a_plan_is_never_worse_for_it_and_the_same_each_time(fresh):
    for seed in range(6):
        task, found = _task(cluster(seed, "value")), []
        for _ in range(2):
            with opened(task, "value", Rows(task)) as world:
                search = _search(world, task)
                search.run(world.sources.nonzero()[0])
                before = search.net()
                anneal(search, 200, fresh)
                assert search.net() >= before
                found.append(dict(world.away))
        assert found[0] == found[1]


def test_pods_change_places_where_neither_fits_beside_the_other():
    state = given(
        node("a", gpus=1), node("b", gpus=1), shape("p6", gpu=(1, 600)), shape("p7", gpu=(1, 700)),
        pod("p", "p6", "a", owner=OWNER, devices=(DeviceShare(0, 600),)), pod("q", "p7", "b", owner=OWNER, devices=(DeviceShare(0, 700),)),
    )  # fmt: skip
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        board, chance, tries = _Board(_search(world, task)), Chance(), 0
        while not board.ends() and tries < 1_000:
            board.try_one(chance, HOT)
            tries += 1
        assert {uid: (world.name(spot.row), spot.devices) for uid, spot in board.ends().items()} == {"p": ("b", (DeviceShare(0, 600),)), "q": ("a", (DeviceShare(0, 700),))}


def test_who_stays_prefers_nodes_or_is_kept_from_others_takes_no_part():
    web = LabelSelector({"app": "web"})
    state = given(
        *(node(name, labels={HOST: name}) for name in "ab"), shape("plain"),
        shape("spread", spread=(Spread(1, HOST, "ScheduleAnyway", web),)), shape("alone", pod_anti_affinity=(PodTerm(HOST, web),)),
        *(pod(name, name, "a", owner=OWNER, labels={"app": "web"}) for name in ("plain", "spread", "alone")), pod("bare", "plain", "a"),
        pod("other", "plain", "b", owner=OWNER),
    )  # fmt: skip
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        # `plain` is one of those that `alone` is not to be beside.
        assert [one.uid for one in _Board(_search(world, task)).pods] == ["other"]


def test_half_of_the_tries_may_lose_no_more_than_the_heat():
    chance = Chance()
    losses = [slack(chance, 1_000) for _ in range(4_000)]
    assert 1_900 < sum(loss <= 1_000 for loss in losses) < 2_100
    assert 900 < sum(1_000 < loss <= 2_000 for loss in losses) < 1_100
    assert min(losses) >= 0
    assert slack(chance, 0) == 0
