"""Simulated annealing in the optimizing planner: what it makes of a world can be there, is told right, and is taken only where it is better."""

import tracemalloc
from collections import Counter

import numpy as np
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.planning import cluster

from restow.contracts.ids import PlanId
from restow.contracts.values import DeviceShare, LabelSelector, PodTerm, Spread
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing import swaps
from restow.domain.defragmentation.optimizing.annealing import (
    HEAT_NODE,
    LOSSES,
    MEMBERS,
    Tries,
    anneal,
    losses,
    numbers,
)
from restow.domain.defragmentation.optimizing.board import NEVER, Board, sign
from restow.domain.defragmentation.optimizing.improve import take_up
from restow.domain.defragmentation.optimizing.plan import least
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.prices import OWN_PRICE
from restow.domain.defragmentation.simulation import Spot
from restow.domain.device_choice import choose

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
@pytest.mark.parametrize("seed", range(3))
def test_wherever_pods_are_brought_there_is_place_for_them_and_no_more_move_than_may(seed, moves):
    state = cluster(seed, "value")
    task = _task(state, moves)
    with opened(task, "value", Rows(task)) as world:
        board = Board(_search(world, task))
        tries, ends = Tries(board, moves), {}
        assert board.uids
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
            assert board.worth[row] == world.worth[row]
            assert (board.free[row].tolist(), board.shares[row].tolist(), board.loads[row]) == (free, shares, int(world.loads[row]))
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


def test_where_prices_came_before_few_tries_are_made_at_first_and_all_only_where_these_gain(monkeypatch):
    task, cooled, parts, gained = _task(cluster(1, "value")), [], [], []
    cool = Tries.cool
    monkeypatch.setattr(Tries, "cool", lambda self, first, tries: cooled.append(tries) or cool(self, first, tries))
    with opened(task, "value", Rows(task)) as world:
        search = _search(world, task)
        anneal(search, 200, fresh=False)
        all_tries, best = sum(cooled), dict(world.away)
        assert len(cooled) == 1
        assert best
        for away in ({}, best):
            take_up(world, {})
            board = Board(search)
            take_up(world, away)
            cooled.clear()
            before, steps = search.net(), world.steps
            anneal(search, 200, fresh=False, board=board)
            gained.append(search.net() > before)
            parts.append((len(cooled), sum(cooled) == all_tries, world.steps - steps < 200 // 4))
    assert gained == [True, False]
    assert parts == [(2, True, False), (1, False, True)]


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
        assert Board(_search(world, task)).uids == ["other"]


def test_half_of_the_tries_may_lose_no_more_than_the_heat():
    heat, parts = 1_000, 1 << 16
    losses = [heat * loss // parts for loss in LOSSES]
    assert abs(sum(loss <= heat for loss in losses) * 2 - len(losses)) < 10
    assert abs(sum(heat < loss <= 2 * heat for loss in losses) * 4 - len(losses)) < 10
    assert min(losses) == 0
    assert max(losses) == 12 * heat


def test_the_numbers_are_the_same_each_time_and_spread_evenly():
    some = numbers(0)
    assert some.tolist() == numbers(0).tolist()
    assert len(np.unique(np.concatenate((some, numbers(len(some)))))) == 2 * len(some)
    for bits in (0, 12, 24, 44):
        for parts in (2, 3, 50):
            counts = Counter(((some >> np.uint64(bits)).astype(np.int64) % (1 << 12) * parts >> 12).tolist())
            assert all(abs(count - len(some) / parts) < 5 * (len(some) / parts) ** 0.5 for count in counts.values())


def _alike(board: Board, fresh: Board) -> None:
    for one in ("row", "home", "used", "come", "leave", "own", "free", "shares", "loads", "worth", "on", "many"):
        assert (getattr(board, one) == getattr(fresh, one)).all(), one
    assert (board.away, board.ends()) == (fresh.away, fresh.ends())


@pytest.mark.parametrize(("seed", "lazy"), [(0, False), (1, False), (2, True)])
def test_a_board_that_follows_a_world_there_and_back_is_as_one_that_is_made_there(seed, lazy):
    task = _task(cluster(seed, "value"))
    with opened(task, "value", Rows(task)) as world:
        board, other = Board(_search(world, task), lazy=lazy), Board(_search(world, task))
        tries = Tries(other, task.max_moves)
        for often in range(3):
            while other.away < 2:
                tries.even(10, HOT)
            tries.even(10 * often, HOT)
            take_up(world, {} if often == 1 else other.ends())
            board.follow(world)
            _alike(board, Board(_search(world, task)))
        fresh = Board(_search(world, task))
        assert Tries(board, task.max_moves).even(64, HOT) == Tries(fresh, task.max_moves).even(64, HOT)
        assert board.ends() == fresh.ends()


def test_a_board_follows_those_who_take_no_part_in_it_too():
    state = given(
        *(node(name, labels={HOST: name}) for name in "ab"), shape("plain"), shape("spread", spread=(Spread(1, HOST, "ScheduleAnyway", LabelSelector({"app": "web"})),)),
        *(pod(name, name, "a", owner=OWNER, labels={"app": "web"}) for name in ("plain", "spread")),
    )  # fmt: skip
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        board = Board(_search(world, task))
        assert (board.uids, len(board.others) > 0) == (["plain"], True)
        take_up(world, {"spread": Spot(1 - world.home("spread").row)})
        board.follow(world)
        assert board.away == 1
        _alike(board, Board(_search(world, task)))


def test_what_a_board_knew_of_exchanges_is_forgotten_when_those_who_take_no_part_have_moved():
    state = given(
        *(node(name, cpu=4_000, labels={HOST: name}) for name in "ab"), shape("small", cpu=1_000), shape("large", cpu=2_000),
        shape("spread", cpu=2_000, spread=(Spread(1, HOST, "ScheduleAnyway", LabelSelector({"app": "web"})),)),
        pod("p", "small", "a", owner=OWNER), pod("q", "large", "b", owner=OWNER), pod("spread", "spread", "b", owner=OWNER, labels={"app": "web"}),
    )  # fmt: skip
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        board = Board(_search(world, task))
        p, q = (np.array([board.uids.index(one)]) for one in "pq")
        first = board.replace(p, q)[0]
        take_up(world, {"spread": Spot(world.home("p").row)})
        board.follow(world)
        assert board.replace(p, q)[0] == Board(_search(world, task)).replace(p, q)[0] != first


def test_a_board_takes_no_memory_for_each_pod_with_each_request(monkeypatch):
    """Where nearly each pod asks for something else that would be gigabytes."""
    monkeypatch.setattr(swaps, "KEPT", 1)
    pods, nodes = 1_600, 20
    state = given(
        *(node(f"n{i}", cpu=1_000_000) for i in range(nodes)),
        [one for i in range(pods) for one in (shape(f"s{i}", cpu=100 + i, memory=0), pod(f"p{i}", f"s{i}", f"n{i % nodes}", owner=OWNER))],
    )  # fmt: skip
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        search = _search(world, task)
        tracemalloc.start()
        try:
            board = Board(search)
            kept = tracemalloc.get_traced_memory()[0]
            tries = Tries(board, task.max_moves)
            for _ in range(3):
                tries.even(200, HOT)
            assert board.away
            assert tracemalloc.get_traced_memory()[0] < 8 * pods * pods / 2
        finally:
            tracemalloc.stop()
        assert kept < 8 * pods * pods / 2


@pytest.mark.parametrize("seed", range(3))
def test_what_is_known_of_changes_is_what_they_gain(seed):
    """Held against making each change in the world itself, before anybody has moved and after many have."""
    state = cluster(seed, "value")
    task = _task(state)
    kinds = Counter()
    with opened(task, "value", Rows(task)) as world:
        board = Board(_search(world, task))
        tries = Tries(board, task.max_moves)
        for _ in range(3):
            # What the board has worked out step by step, and what another says that begins there.
            take_up(world, board.ends())
            fresh = Board(_search(world, task))
            for one in ("row", "come", "leave", "free", "shares", "worth"):
                assert (getattr(board, one) == getattr(fresh, one)).all(), one
            gone = board.row != board.home
            assert (board.own[gone] == fresh.own[gone]).all()
            for kind, moves, gained in list(_changes(board))[::3]:
                kinds[kind] += 1
                assert _gained(world, board, moves) == gained, kind
            for _ in range(5):
                tries.even(100, HOT)
    assert set(kinds) == {"one", "exchanged", "without"}


def _gained(world, board: Board, moves: list[tuple[int, int | None]]) -> int | None:
    """What the world gains by these moves (None: into the air); None where somebody has no place. One at home has what it had there, elsewhere the fullest devices."""
    mark, before = world.mark(), world.total
    for i, _ in moves:
        world.lift(board.uids[i])
    for i, row in moves:
        if row is None:
            continue
        uid = board.uids[i]
        if row == world.home(uid).row:
            spot = world.home(uid) if world.home_fits(uid) else None
        else:
            free, shares = world.free(row)
            v = world.vector(uid)
            devices = choose(shares, v.devices) if v.devices is not None else ()
            spot = Spot(row, devices) if devices is not None and all(free[c] >= a for c, a in v.items) else None
        if spot is None:
            world.undo(mark)
            return None
        world.land(uid, spot)
    gained = world.total - before
    world.undo(mark)
    return gained


def _changes(board: Board):
    """Changes, and what they gain as the board says; None where there is no place for somebody."""
    known = lambda gain: None if gain == NEVER else int(gain)  # noqa: E731
    for one in range(len(board.uids)):
        here, home = int(board.row[one]), int(board.home[one])
        for row in [row for row in board.rows.tolist() if row != here and (row == home or board.masks[board.may[one], row])]:
            come = known(board.own[one] if row == home else board.come[board.kind[one], row])
            yield "one", [(one, row)], None if come is None else int(board.leave[one]) + come
            for other in board.on[row, : board.many[row]].tolist():
                if board.masks[board.may[other], here] or here == board.home[other]:
                    there, back = (known(board.replace(np.array([a]), np.array([b]))[0]) for a, b in ((other, one), (one, other)))
                    yield "exchanged", [(one, row), (other, here)], None if there is None or back is None else there + back
        some = board.on[here, : min(board.many[here], 3)]
        padded = np.full((1, 3), len(board.uids))
        padded[0, : len(some)] = some
        yield "without", [(int(i), None) for i in some], int(board.gains_without(padded)[0])


def test_all_who_share_a_device_are_tried_as_one_where_they_are_few():
    share = [DeviceShare(0, 200)]
    state = given(
        node("a", gpus=3), node("b", gpus=1), shape("small", gpu=(1, 200)), shape("whole", gpu=(1, 1000)),
        *(pod(name, "small", "a", owner=OWNER, devices=tuple(share)) for name in ("p", "q", "r")),
        pod("w", "whole", "a", owner=OWNER, devices=(DeviceShare(1, 1000),)), pod("alone", "small", "a", owner=OWNER, devices=(DeviceShare(2, 200),)),
        *(pod(f"m{i}", "small", "b", owner=OWNER, devices=tuple(share)) for i in range(MEMBERS + 1)),
    )  # fmt: skip
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        board = Board(_search(world, task))
        sets = Tries(board, task.max_moves).together(np.arange(len(board.uids)))
        names = [sorted(board.uids[i] for i in some if i < len(board.uids)) for some in sets.tolist()]
        assert dict(zip(board.uids, names, strict=True)) == {
            **{name: ["p", "q", "r"] for name in "pqr"}, "w": ["w"], "alone": ["alone"], **{f"m{i}": [f"m{i}"] for i in range(MEMBERS + 1)},
        }  # fmt: skip


def test_where_no_more_may_move_a_move_gives_way_to_one_that_gains_more():
    """Without heat: only the price of a move sends home who has moved."""
    state = given(
        node("a", gpus=1), node("b", gpus=1), node("c", gpus=1, labels={OWN_PRICE: "10"}), shape("small", gpu=(1, 200)), shape("whole", gpu=(1, 1000)),
        pod("p", "small", "a", owner=OWNER, devices=(DeviceShare(0, 200),)), pod("q", "small", "c", owner=OWNER, devices=(DeviceShare(0, 200),)),
        pod("stays", "small", "b", devices=(DeviceShare(0, 200),)), *(pod(f"w{n}", "whole") for n in range(20)),
    )  # fmt: skip
    task = _task(state, 1)
    with opened(task, "value", Rows(task)) as world:
        take_up(world, {"p": Spot(state.table.rows["b"], (DeviceShare(0, 200),))})
        board = Board(_search(world, task))
        tries = Tries(board, 1)
        for _ in range(100):
            tries.even(2_048, 0)
        assert list(board.ends()) == ["p"]
        tries.cool(0, 1_500_000)
        assert list(board.ends()) == ["q"]


def test_nodes_without_devices_are_annealed_too():
    state = given(
        *(node(name, cpu=64_000) for name in "abc"), shape("small"), shape("large", cpu=64_000), *(pod(name, "small", name, owner=OWNER) for name in "abc"),
        *(pod(f"w{n}", "large") for n in range(9)),
    )  # fmt: skip
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        search = _search(world, task)
        anneal(search, 100, True)
        assert len(world.away) == 2
        assert len({world.spot(uid).row for uid in "abc"}) == 1


def test_what_a_try_may_lose_is_an_int64_whatever_nodes_cost():
    """The dearest node (`prices.MOST` units an hour), counted for a year."""
    dearest = 10**4 * 10**6 * 24 * 366 // 1000 * THOUSANDTHS
    heat = dearest // HEAT_NODE
    found = losses(heat, np.arange(1 << 12))
    assert found.min() >= 0
    assert abs(int(found.max()) - 12 * heat) * 1_000 < heat


def test_a_device_is_emptied_by_one_try_although_nothing_is_gained_before_all_have_left():
    """Without heat. A single pod leaves a quarter of a device for nobody to use; both together leave a whole one."""
    state = given(
        node("a", gpus=1), node("b", gpus=1), node("c", gpus=1), shape("quarter", gpu=(1, 250)), shape("half", gpu=(1, 500)), shape("whole", gpu=(1, 1000)),
        pod("p", "quarter", "a", owner=OWNER, devices=(DeviceShare(0, 250),)), pod("q", "quarter", "a", owner=OWNER, devices=(DeviceShare(0, 250),)),
        pod("h", "half", "b", devices=(DeviceShare(0, 500),)), pod("i", "whole", "c", devices=(DeviceShare(0, 1000),)), *(pod(f"w{n}", "whole") for n in range(40)),
    )  # fmt: skip
    task = _task(state)
    with opened(task, "value", Rows(task)) as world:
        board = Board(_search(world, task))
        tries = Tries(board, task.max_moves)
        for _ in range(20):
            tries.even(64, 0)
        assert {uid: world.name(spot.row) for uid, spot in board.ends().items()} == {"p": "b", "q": "b"}


def test_what_a_row_has_is_told_apart_where_two_pods_have_changed_devices():
    """Signs of pods on a row are added up. When two that ask for unequal shares have changed devices, other shares fit, and what was known of the row holds no more."""
    sums = Counter(sign(one, 1 << d) + sign(other, 1 << e) for one in range(24) for other in range(one) for d in range(4) for e in range(4))
    assert max(sums.values()) == 1
