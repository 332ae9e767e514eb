"""Plans by `nodes` from prices: what they promise is what landing there gains, whoever is there has a place, and large clusters gain by them."""

import random
import sys

import numpy as np
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape, then
from domain.planning import afterwards, carry_out, cluster

from restow.contracts.ids import PlanId
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing import patterns as patterns_module
from restow.domain.defragmentation.optimizing import vacating
from restow.domain.defragmentation.optimizing.improve import take_up
from restow.domain.defragmentation.optimizing.patterns import Patterns
from restow.domain.defragmentation.optimizing.plan import FEWEST, _Maker, least
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Limits, Search
from restow.domain.defragmentation.optimizing.vacating import vacated
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task

ARGS = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="cpu", protectionThresholds={})
CORES = 10


def _task(state, moves: int = 2_000) -> Task:
    return Task(state, ARGS, NOW, PlanId("p"), moves)


def _found(task: Task):
    """What prices find, and whether the world says the same of it."""
    with opened(task, "nodes", Rows(task)) as world:
        search = Search(world, Limits(task.max_moves, least(task.args), 1_000, whole=False))
        before, start = world.total, vacated(search)
        assert not world.away, "the world is as it was"
        if start is not None:
            take_up(world, start[0])
            assert world.away == start[0]
            freed = world.total - before
            assert freed * THOUSANDTHS - least(task.args) * world.spent > 0
            return start[0], freed
    return None


def _shelves(nodes: int, seed: int):
    """Nodes of ten cores with pods of several sizes that fill some of each."""
    chance, state = random.Random(seed), given(*(node(f"n{i:03}", cpu=CORES * 1_000) for i in range(nodes)))
    for cores in (2, 3, 4, 5, 6):
        then(state, shape(f"s{cores}", cpu=cores * 1_000, memory=0))
    for i in range(nodes):
        left = chance.choice((5, 6, 7, 8))
        for j in range(3):
            cores = chance.choice((2, 3, 4, 5, 6))
            if cores <= left:
                left -= cores
                then(state, pod(f"p{i:03}-{j}", f"s{cores}", f"n{i:03}", owner=replica_of("rs")))
    return state


@pytest.mark.parametrize("seed", [0, 6, 11])
def test_what_prices_find_lands_and_gains_more_than_it_costs(seed):
    few, many = (_found(_task(cluster(seed, "nodes", many=8), moves)) for moves in (3, 2_000))
    assert many is not None, "these can free a node"
    assert few is None or 0 < len(few[0]) <= 3


def test_who_is_alone_goes_where_there_is_a_place_for_it():
    state = given(*(node(f"n{i}", cpu=4_000) for i in range(4)))
    then(state, shape("one", cpu=1_000, memory=0))
    for i in range(4):
        then(state, pod(f"p{i}", "one", f"n{i}", owner=replica_of("rs")))
    found = _found(_task(state))
    assert found is not None
    assert (len(found[0]), found[1]) == (3, 3)


def test_nobody_goes_where_nothing_can_be_freed():
    state = given(*(node(f"n{i}", cpu=4_000) for i in range(4)))
    then(state, shape("most", cpu=3_000, memory=0))
    for i in range(4):
        then(state, pod(f"p{i}", "most", f"n{i}", owner=replica_of("rs")))
    assert _found(_task(state)) is None


def test_a_large_cluster_gains_more_with_prices_and_the_plan_can_be_carried_out(monkeypatch):
    state, gained = _shelves(FEWEST + 8, 0), {}
    for prices in (False, True):
        with monkeypatch.context() as patch:
            if not prices:
                patch.setattr(sys.modules["restow.domain.defragmentation.optimizing.plan"], "vacated", lambda search: None)
            made = defragmentation.plan(state, ARGS, NOW, PlanId("p"), 2_000)
        then_there = afterwards(state, carry_out(state, made, 0))
        assert int(np.sum(then_there.table.used[:, then_there.table.columns["cpu"]] == 0)) == made.after.free_nodes
        gained[prices] = (made.after.free_nodes - made.before.free_nodes) * THOUSANDTHS - least(ARGS) * sum(move.cost for move in made.moves)
    assert gained[True] > gained[False]


def test_only_large_clusters_without_whole_nodes_ask_for_prices():
    many, few = (_task(_shelves(nodes, 0)) for nodes in (FEWEST + 1, FEWEST))
    assert _Maker(many)._vacates
    assert not _Maker(few)._vacates


def test_nothing_is_looked_for_where_the_first_growth_alone_shows_that_steps_do_not_suffice(monkeypatch):
    """As where nearly each pod asks for something else."""
    monkeypatch.setattr(patterns_module, "TOGETHER", 7)
    monkeypatch.setattr(vacating, "EVALUATED", 1)
    task, made = _task(_shelves(120, 0)), list[Patterns]()
    monkeypatch.setattr(vacating, "Patterns", lambda board: made.append(Patterns(board)) or made[-1])

    def looked_for(steps: int):
        with opened(task, "nodes", Rows(task)) as world:
            return vacated(Search(world, Limits(task.max_moves, least(task.args), steps, whole=False)))

    assert looked_for(1_000_000) is not None
    whole = made[0].weighed
    assert looked_for(2_000) is None
    assert made[1].weighed <= 2_000 < whole, "it ends as soon as that is seen"
