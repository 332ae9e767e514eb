"""Where shares of devices land: in the gap of which least is wasted."""

import msgspec
import numpy as np
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.planning import cluster
from hypothesis import given as any_of
from hypothesis import strategies as st

from restow.contracts.values import DeviceShare
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.gaps import fillable, wasted, wasted_one
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
