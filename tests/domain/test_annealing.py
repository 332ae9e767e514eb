"""Simulated annealing in the optimizing planner: what it makes of a world can be there, is told right, and is taken only where it is better."""

from collections import Counter
from itertools import islice

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.planning import cluster

from restow.contracts.ids import PlanId
from restow.contracts.values import DeviceShare, LabelSelector, PodTerm, Spread
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.annealing import LOSSES, Tries, anneal, numbers
from restow.domain.defragmentation.optimizing.board import Board
from restow.domain.defragmentation.optimizing.improve import take_up
from restow.domain.defragmentation.optimizing.plan import least
from restow.domain.defragmentation.optimizing.search import Limits, Search
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
        board = Board(_search(world, task))
        tries, ends = Tries(board, moves), {}
        assert board.pods
        for _ in range(2_000):
            tries.even(1, HOT)
            # The latest state in which somebody is away.
            ends = board.ends() or ends
            assert len(board.ends()) == board.away <= moves
        assert bool(ends) == bool(moves)
        tries.even(100, HOT)
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
        board, often = Board(_search(world, task)), 0
        tries = Tries(board, task.max_moves)
        while not board.ends() and often < 1_000:
            tries.even(1, HOT)
            often += 1
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
        assert [one.uid for one in Board(_search(world, task)).pods] == ["other"]


def test_half_of_the_tries_may_lose_no_more_than_the_heat():
    heat, parts = 1_000, 1 << 16
    losses = [heat * loss // parts for loss in LOSSES]
    assert abs(sum(loss <= heat for loss in losses) * 2 - len(losses)) < 10
    assert abs(sum(heat < loss <= 2 * heat for loss in losses) * 4 - len(losses)) < 10
    assert min(losses) == 0
    assert max(losses) == 12 * heat


def test_the_numbers_are_the_same_each_time_and_spread_evenly():
    some = list(islice(numbers(), 20_000))
    assert some == list(islice(numbers(), 20_000))
    assert len(set(some)) > 19_990
    for parts in (2, 3, 50):
        counts = Counter(n % parts for n in some)
        assert all(abs(count - 20_000 / parts) < 5 * (20_000 / parts) ** 0.5 for count in counts.values())


@pytest.mark.parametrize("seed", range(6))
def test_what_is_known_of_changes_is_what_they_gain(seed):
    """Held against making each change on another board, before anybody has moved and after many have."""
    state = cluster(seed, "value")
    task = _task(state)
    kinds = Counter()
    with opened(task, "value", Rows(task)) as world:
        for _ in range(3):
            board = Board(_search(world, task))
            for kind, moves, gained in list(_changes(board))[::3]:
                kinds[kind] += 1
                twin = Board(_search(world, task))
                before = sum(twin._worth)
                twin.move([(twin.pods[pod.number], row) for pod, row in moves])
                assert sum(twin._worth) - before == gained, kind
            Tries(board, task.max_moves).even(300, HOT)
            take_up(world, board.ends())
    assert set(kinds) == {"one", "exchanged"}


def _changes(board: Board):
    """Changes that can be made, and what they gain as the board says."""
    for one in board.pods:
        here = one.row
        for row in [row for row in board.rows if row != here and (row == one.home or one.mask[row])]:
            if (come := board.come(one, row)) is not None:
                yield "one", [(one, row)], board.leave(one) + come
            for other in board.on[row]:
                if (other.mask[here] or here == other.home) and (there := board.replace(other, one)) is not None and (back := board.replace(one, other)) is not None:
                    yield "exchanged", [(one, row), (other, here)], there + back
