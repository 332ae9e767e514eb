"""Which sets of pods are offered to leave a node, and that nobody is asked whose leaving is refused in any case."""

import numpy as np
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.planning import CAPACITY, cluster

from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.choices import choices
from restow.domain.defragmentation.optimizing.search import Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task

ARGS = DefragmentationArgs(planner="optimizing", objective="capacity", capacity=CAPACITY, protectionThresholds={})


def _task(state, moves=9):
    return Task(state, ARGS, NOW, "p", moves)


@pytest.mark.parametrize("seed", range(40))
def test_who_is_offered_does_not_hang_on_what_was_asked_before(seed):
    """Sets of one are looked for once, whether larger ones were asked for first, later, or alone."""
    state = cluster(seed, "capacity")
    task = _task(state)
    for asked in ((1, 3), (3, 1), (2, 1, 3)):
        with opened(task, "capacity", Rows(task)) as world:
            rows = range(len(state.table.names))
            found = {pods: [choices(world, row, False, 4, pods) for row in rows] for pods in asked}
        for pods in asked:
            with opened(task, "capacity", Rows(task)) as world:
                assert found[pods] == [choices(world, row, False, 4, pods) for row in rows]


def _half_full(nodes: int):
    """Each pod's leaving makes its node worth one more, and there is room for all of them elsewhere."""
    facts = [fact for i in range(nodes) for fact in (node(f"n{i:02}", cpu=16_000), pod(f"p{i:02}", "small", f"n{i:02}", owner=replica_of("rs")))]
    spare = [fact for i in range(nodes) for fact in (node(f"s{i:02}", cpu=3_900), pod(f"q{i:02}", "fixed", f"s{i:02}"))]
    return given(shape("small", cpu=1_000, memory=0), shape("fixed", cpu=100, memory=0), *facts, *spare)


def test_once_no_move_is_left_only_those_are_asked_who_would_take_none(monkeypatch):
    state, refused = _half_full(20), []
    task, attempt = _task(state, moves=3), Search.attempt

    def counted(search, row, pods, *depth):
        done = attempt(search, row, pods, *depth)
        refused.extend([row] * (not done))
        return done

    monkeypatch.setattr(Search, "attempt", counted)
    with opened(task, "capacity", Rows(task)) as world:
        search = Search(world, Limits(3, 1, 10_000, False))
        search.run(np.arange(len(state.table.names)))
        assert len(world.away) == 3
        assert search.full
        # The first that is refused says that the limit keeps more from moving.
        assert len([row for row in refused if not world.come(row)]) == 1
