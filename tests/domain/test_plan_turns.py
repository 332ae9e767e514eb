"""Who takes which place: equal pods exchange theirs, so that moves find an order which they had not."""

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
from domain.build import NOW, given, node, pod, replica_of, shape, then
from domain.planning import cluster

from restow.contracts.ids import PlanId
from restow.contracts.values import DeviceShare
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.order import Ordered, Sequence
from restow.domain.defragmentation.optimizing.plan import _made, _Maker, by_target
from restow.domain.defragmentation.optimizing.turns import in_turn
from restow.domain.defragmentation.optimizing.world import Rows, World, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.simulation import Spot

ARGS = DefragmentationArgs(planner="optimizing", objective="value", protectionThresholds={})
WHOLE = (DeviceShare(0, 1_000),)


def _task(state) -> Task:
    return Task(state, ARGS, NOW, PlanId("p"), 2_000)


def _opened(task: Task):
    return opened(task, "value", Rows(task))


def _ordered(task: Task, wanted, first=None):
    with _opened(task) as world:
        return Sequence(world, "p", 2_000).order(wanted, first or by_target(world, wanted))


def _circle(**shapes: str):
    """One GPU on each of four nodes, all but the third in use. The pod on the fourth is to have the third, and the other two each other's place."""
    state = given(*(node(name, gpus=1) for name in "abcd"), *(shape(kind, cpu=100, memory=0, gpu=(1, 1_000)) for kind in "st"))
    then(state, *(pod(f"p-{name}", shapes.get(name, "s"), name, owner=replica_of("rs"), devices=WHOLE) for name in "abd"))
    rows = state.table.rows
    return _task(state), {"p-a": Spot(rows["b"], WHOLE), "p-b": Spot(rows["a"], WHOLE), "p-d": Spot(rows["c"], WHOLE)}


def test_who_would_wait_in_a_circle_takes_what_is_free_instead_of_another_one():
    task, wanted = _circle()
    assert len(_ordered(task, wanted).stayed) == 2
    with _opened(task) as world:
        turns = in_turn(world, wanted)
    assert [task.state.table.names[spot.row] for spot in turns.values()].index("c") == 0
    ordered = _ordered(task, turns, list(turns))
    assert (ordered.stayed, set(ordered.ends)) == ([], set(wanted))


def test_pods_that_nodes_tell_apart_exchange_nothing():
    state = given(*(node(name, gpus=1, labels={"is": name}) for name in "abcd"), shape("s", cpu=100, memory=0, gpu=(1, 1_000)), shape("t", cpu=100, memory=0, gpu=(1, 1_000), node_selector={"is": "c"}))
    then(state, *(pod(f"p-{name}", "t" if name == "d" else "s", name, owner=replica_of("rs"), devices=WHOLE) for name in "abd"))
    rows, task = state.table.rows, _task(state)
    wanted = {"p-a": Spot(rows["b"], WHOLE), "p-b": Spot(rows["a"], WHOLE), "p-d": Spot(rows["c"], WHOLE)}
    with _opened(task) as world:
        assert in_turn(world, wanted) == wanted


def test_a_plan_has_all_moves_that_find_an_order_once_places_are_exchanged():
    task, wanted = _circle()
    ordered = _Maker(task)._in_turn(wanted, {}, _ordered(task, wanted))
    assert (ordered.stayed, set(ordered.ends)) == ([], set(wanted))


@pytest.mark.parametrize("without", [8, 2])
@pytest.mark.parametrize("lost", [1, 3])
def test_where_much_of_what_prices_find_has_no_order_it_is_made_without_prices_too_and_the_better_one_is_taken(without, lost):
    class Maker:
        """Ten moves are wanted."""

        prices, task = True, Task(given(), ARGS, NOW, PlanId("p"), 0)

        def searched(self, steps, ends):
            away = dict.fromkeys(range(10), "prices" if self.prices else "none")
            return SimpleNamespace(bounded=False, world=SimpleNamespace(steps=5, away=away)), ends

        def order(self, wanted, ends):
            return Ordered([], dict(list(wanted.items())[: 10 - lost if self.prices else without]), [])

        def mended(self, wanted, ordered):
            assert wanted.keys() >= ordered.ends.keys()
            return ordered, 0

        def net(self, ordered):
            return len(ordered.ends)

    _, ordered, steps = _made(Maker(), {})
    again = lost > 1
    assert steps == (10 if again else 5)
    assert ordered.ends[0] == ("none" if again and without > 10 - lost else "prices")


def _wanted(world: World, seed: int) -> dict:
    """Some pods where there is a place for all of them once they have left."""
    chance = np.random.default_rng(seed)
    uids = [uid for uid in sorted(world.state.charges) if world.movable(uid) and chance.random() < 0.6]
    for uid in uids:
        world.lift(uid)
    for uid in chance.permutation(uids).tolist():
        spot = world.placement.find(uid, (world.home(uid).row,))
        if spot is None:
            world.undo(0)
            return {}
        world.land(uid, spot)
    found = dict(world.away)
    world.undo(0)
    return found


def test_the_same_pods_go_to_the_same_places_and_more_of_them_find_an_order():
    tried, before, after = 0, 0, 0
    for seed in range(60):
        task = _task(cluster(seed, "value"))
        with _opened(task) as world:
            if not (wanted := _wanted(world, seed)):
                continue
            turns = in_turn(world, wanted)
            assert not world.away
            assert set(turns) == set(wanted)
            assert all(spot.row != world.home(uid).row for uid, spot in turns.items())
            assert Counter((world.vector(uid), spot) for uid, spot in turns.items()) == Counter((world.vector(uid), spot) for uid, spot in wanted.items())
            assert list(in_turn(world, wanted).items()) == list(turns.items())
        tried += 1
        before += len(_ordered(task, wanted).ends)
        after += len(_ordered(task, turns, list(turns)).ends)
    assert tried > 20
    assert after > before
