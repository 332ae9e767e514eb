"""Where shares of devices land: in the gap of which least is wasted."""

import random

import msgspec
import numpy as np
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape, then
from domain.planning import cluster
from hypothesis import given as any_of
from hypothesis import strategies as st

from restow.contracts.values import DeviceShare
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.annealing import anneal_gaps
from restow.domain.defragmentation.optimizing.gaps import PIECES, Filled, Vacant, fillable, wasted, wasted_one
from restow.domain.defragmentation.optimizing.improve import improve
from restow.domain.defragmentation.optimizing.plan import least
from restow.domain.defragmentation.optimizing.search import Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.node_table import WHOLE

ARGS = DefragmentationArgs(planner="optimizing", objective="devices", protectionThresholds={})


def _running(*shares: int):
    """Each alone on a device of its own node."""
    facts = [fact for i, milli in enumerate(shares) for fact in (
        node(f"n{i}", gpus=1), pod(f"p{i}", f"s{milli}", f"n{i}", owner=replica_of("rs"), devices=(DeviceShare(0, milli),)),
    )]  # fmt: skip
    return given(*(shape(f"s{milli}", cpu=100, memory=0, gpu=(1, milli)) for milli in sorted(set(shares))), *facts)


def _filled(sizes: set[int], gap: int) -> int:
    """The most that any multiset of these sizes has and still fits."""
    sums = {0}
    for size in sizes:
        sums = {had + size * times for had in sums for times in range((gap - had) // size + 1)}
    return max(sums)


@any_of(st.lists(st.integers(200, 999), min_size=1, max_size=4), st.integers(0, WHOLE))
def test_a_gap_can_be_filled_as_far_as_shares_that_are_there_add_up(shares, gap):
    assert fillable(_running(*shares))[gap] == _filled(set(shares), gap)


def test_a_size_that_few_ask_for_fills_nothing():
    fill = fillable(_running(*[500] * 10, 100))
    assert (fill[499], fill[500], fill[WHOLE]) == (0, 500, WHOLE)


@any_of(st.lists(st.integers(50, 999), min_size=1, max_size=6), st.data())
def test_of_many_gaps_and_of_one_the_same_is_wasted(shares, data):
    fill, milli = fillable(_running(*shares)), data.draw(st.sampled_from(shares))
    gaps = data.draw(st.lists(st.integers(milli, 2 * WHOLE), min_size=1))
    found = wasted(fill, np.array(gaps), milli).tolist()
    assert found == [wasted_one(fill.tolist(), gap, milli) for gap in gaps]
    assert all(0 <= waste <= WHOLE for waste in found)


def test_a_share_lands_where_what_it_leaves_is_of_use():
    """Two nodes have 600 and 700 left: a half leaves 100 of the one, which nobody can use, though less than of the other, where 200 are room for one more."""
    state = _running(400, 300, 500, 200, 200, 200)
    task = Task(state, ARGS, NOW, "p", 9)
    with opened(task, "devices", Rows(task)) as world:
        others = frozenset(state.table.rows[name] for name in ("n2", "n3", "n4", "n5"))
        world.lift("p2")
        spot = world.placement.find("p2", others)
        assert spot is not None
        assert world.name(spot.row) == "n1"


@pytest.mark.parametrize("objective", ["devices", "nodes"])
def test_all_rows_at_once_are_ranked_as_each_alone(objective):
    for seed in range(8):
        state = cluster(seed, "devices")
        task = Task(state, msgspec.structs.replace(ARGS, objective=objective), NOW, "p", 9)
        with opened(task, objective, Rows(task)) as world:
            for uid in sorted(state.charges):
                v = world.vector(uid)
                world.lift(uid)
                rows = [row for row in range(len(state.table.names)) if world.placement.fits_at(uid, row) is not None]
                free, shares = (np.array([world.free(row)[of] for row in rows]) for of in (0, 1))
                together = world.objective.rank(v, free, shares, np.array(rows, np.int64)).tolist() if rows else []
                assert together == [world.objective.rank_one(v, *world.free(row), row) for row in rows]
                world.undo(0)


@any_of(st.lists(st.integers(50, 999), min_size=1, max_size=6), st.integers(1, PIECES))
def test_what_gaps_count_for_is_no_more_by_any_coming_and_less_than_a_free_device(shares, part):
    fill = fillable(_running(*shares))
    gaps = np.arange(WHOLE + 1)
    worth = Filled(fill, part, np.ones(WHOLE + 1, bool)).many(gaps, gaps, gaps[:, None], gaps)
    assert (np.diff(worth) >= 0).all()
    assert worth[WHOLE] == PIECES
    assert (worth[:WHOLE] <= part).all()
    assert worth[min(shares)] >= (min(shares) * part // WHOLE if fill[min(shares)] else 0)


def _crowded(seed: int, nodes: int):
    """Nodes of four devices, on each device what came first of some shares and still fitted."""
    chance, kinds = random.Random(seed), (810, 650, 470, 470, 350, 320, 230, 160)
    state = given(*(node(f"n{i}", cpu=64_000, gpus=4) for i in range(nodes)), *(shape(f"s{milli}", cpu=500, memory=0, gpu=(1, milli)) for milli in sorted(set(kinds))))
    made = 0
    for i in range(nodes):
        for device in range(4):
            free = WHOLE
            for milli in chance.sample(kinds, 3):
                if milli <= free and chance.random() < 0.8:
                    free -= milli
                    then(state, pod(f"p{made:03}", f"s{milli}", f"n{i}", owner=replica_of("rs"), devices=(DeviceShare(device, milli),)))
                    made += 1
    return state


@pytest.mark.parametrize(("objective", "nodes"), [("devices", 20), ("nodes", 20)])
def test_where_gaps_are_made_for_those_who_come_then_plans_are_never_worse_and_some_are_better(objective, nodes):
    better, args = 0, msgspec.structs.replace(ARGS, objective=objective)
    for seed in range(3):
        state = _crowded(seed, nodes)
        task = Task(state, args, NOW, "p", 200)
        rows = np.flatnonzero(Rows(task).sources)
        found = []
        for _ in range(2):
            with opened(task, objective, Rows(task)) as world:
                search = Search(world, Limits(200, least(args), 4_000, False))
                search.run(rows)
                improve(search, rows.tolist())
                net = search.net()
                anneal_gaps(search, rows, fillable(state), 1_000)
                assert search.net() >= net
                assert all(0 <= share <= WHOLE for row in range(nodes) for share in world.free(row)[1][:4])
                better += search.net() > net
                found.append(dict(world.away))
        assert found[0] == found[1]
    assert better


@any_of(st.integers(0, 15_000), st.lists(st.integers(0, WHOLE), min_size=2, max_size=2), st.integers(1, 9))
def test_what_a_node_counts_for_is_no_more_by_any_coming_and_less_than_a_free_one(cpu, shares, loads):
    state = _running(500, 230)
    fill, one = fillable(state), np.zeros(1, np.int64)
    of = Vacant(fill, PIECES // 2, np.ones(1, bool), np.array([[16_000, 2_000]]), np.array([2]), 1)

    def worth(cpu, shares, loads):
        return int(of.many(one, np.array([[cpu, 0]]), np.array([shares]), np.array([loads]))[0])

    assert worth(cpu, shares, loads) == min(cpu * WHOLE // 16_000, int(fill[shares].sum()) // 2) * (PIECES // 2) // WHOLE
    assert worth(cpu, shares, 0) == PIECES
    assert worth(max(cpu - 100, 0), [max(shares[0] - 230, 0), shares[1]], loads + 1) <= worth(cpu, shares, loads) < PIECES
