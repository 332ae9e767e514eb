"""What has left one node gives way to what leaves others, where that is worth more: in the optimizing planner, by `value`."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape
from domain.planning import cluster

from restow.contracts.ids import PlanId
from restow.contracts.values import DeviceShare
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing import choices as choosing
from restow.domain.defragmentation.optimizing import exchange as exchanging
from restow.domain.defragmentation.optimizing.exchange import Offers, exchange
from restow.domain.defragmentation.optimizing.improve import take_up
from restow.domain.defragmentation.optimizing.plan import least
from restow.domain.defragmentation.optimizing.search import Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, opened
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.simulation import Spot

OWNER = replica_of("rs")
STEPS = 1_000


def _task(state, moves: int) -> Task:
    args = DefragmentationArgs(planner="optimizing", objective="value", protectionThresholds={})
    return Task(state, args, NOW, PlanId("p"), moves)


def _search(world, task: Task) -> Search:
    return Search(world, Limits(task.max_moves, least(task.args), STEPS, whole=False))


def _two_nodes_could_be_emptied():
    """`a` of two whole GPUs, which take whole ones elsewhere, and `b` of two halves, which come to other halves. Two GPUs together are waited for."""
    return given(
        *(node(name, gpus=2) for name in "abcde"), shape("whole", gpu=(1, 1000)), shape("half", gpu=(1, 500)), shape("two", gpu=(2, 1000)),
        *(pod(f"a{i}", "whole", "a", owner=OWNER, devices=(DeviceShare(i, 1000),)) for i in range(2)),
        *(pod(f"b{i}", "half", "b", owner=OWNER, devices=(DeviceShare(i, 500),)) for i in range(2)),
        *(pod(f"c{i}", "half", "c", devices=(DeviceShare(i, 500),)) for i in range(2)),
        *(pod(name, "whole", name[0], devices=(DeviceShare(0, 1000),)) for name in ("d0", "e0")), pod("waits", "two"),
    )  # fmt: skip


def _a_is_empty(world) -> None:
    rows = {world.name(row): row for row in range(len(world.worth))}
    take_up(world, {f"a{i}": Spot(rows[name], (DeviceShare(1, 1000),)) for i, name in enumerate("de")})


def _rows(world) -> list[int]:
    return [row for row in range(len(world.worth)) if world.counted[row]]


def test_the_moves_go_to_the_node_whose_pods_take_less_where_they_land():
    task = _task(_two_nodes_could_be_emptied(), 2)
    with opened(task, "value", Rows(task)) as world:
        _a_is_empty(world)
        search = _search(world, task)
        before = search.net()
        assert before > 0
        exchange(search, _rows(world), STEPS)
        assert {uid: world.name(spot.row) for uid, spot in world.away.items()} == {"b0": "c", "b1": "c"}
        assert search.net() > before


def test_a_gang_that_is_moved_as_one_stays_where_it_has_come_to():
    task = _task(_two_nodes_could_be_emptied(), 2)
    with opened(task, "value", Rows(task)) as world:
        _a_is_empty(world)
        world.gangs = {"a0": "gang", "a1": "gang"}
        exchange(_search(world, task), _rows(world), STEPS)
        assert {uid: world.name(spot.row) for uid, spot in world.away.items()} == {"a0": "d", "a1": "e"}


def test_of_many_nodes_those_are_looked_at_that_gain_most_where_all_leave(monkeypatch):
    task = _task(_two_nodes_could_be_emptied(), 2)
    with opened(task, "value", Rows(task)) as world:
        search, rows = _search(world, task), _rows(world)
        every = Offers(search, rows).sorted
        assert len({offer.row for offer in every}) > 1
        monkeypatch.setattr(exchanging, "ROWS", 1)
        some = Offers(search, rows)
        assert {world.name(offer.row) for offer in some.sorted} == {"b"}
        assert some.sorted == [offer for offer in every if offer.row == some.sorted[0].row]
        _a_is_empty(world)
        some.update()
        assert {world.name(offer.row) for offer in some.sorted} == {"b"}, "nor are others looked at later"


@pytest.mark.parametrize(("many", "times"), [(1_000, 2), (1, 1)])
def test_of_many_nodes_all_sets_have_their_turn_once(monkeypatch, many, times):
    made = list[Offers]()
    monkeypatch.setattr(exchanging, "ROWS", many)
    monkeypatch.setattr(exchanging, "Offers", lambda search, rows: made.append(Offers(search, rows)) or made[-1])
    task = _task(_two_nodes_could_be_emptied(), 2)
    with opened(task, "value", Rows(task)) as world:
        _a_is_empty(world)
        exchange(_search(world, task), _rows(world), STEPS)
        assert sorted(world.away) == ["b0", "b1"]
    assert len(made) == times


def test_without_steps_nothing_is_exchanged():
    task = _task(_two_nodes_could_be_emptied(), 2)
    with opened(task, "value", Rows(task)) as world:
        _a_is_empty(world)
        exchange(_search(world, task), _rows(world), 0)
        assert sorted(world.away) == ["a0", "a1"]


@pytest.mark.parametrize("moves", [3, 6, 2_000])
def test_a_plan_is_never_worse_for_it_moves_no_more_than_may_and_is_the_same_each_time(moves):
    better = 0
    for seed in range(8):
        task, found = _task(cluster(seed, "value"), moves), []
        for _ in range(2):
            with opened(task, "value", Rows(task)) as world:
                search = _search(world, task)
                search.run(world.sources.nonzero()[0])
                before, stuck = search.net(), dict(search.stuck)
                exchange(search, _rows(world), STEPS)
                assert search.net() >= before
                assert len(world.away) <= moves
                assert not world.in_the_air
                # It says nothing of why others stay.
                assert search.stuck == stuck
                better += search.net() > before
                found.append(dict(world.away))
        assert found[0] == found[1]
    assert better or moves > 6, "few moves are spent better"


def test_what_is_known_of_rows_is_not_worked_out_again_in_the_next_world(monkeypatch):
    task, asked = _task(_two_nodes_could_be_emptied(), 2), list[int]()
    rows, by_gain = Rows(task), choosing._by_gain
    monkeypatch.setattr(choosing, "_by_gain", lambda world, row, *more: asked.append(row) or by_gain(world, row, *more))
    with opened(task, "value", rows) as first:
        found = [choosing.choices(first, row, False, 3, 1) for row in _rows(first)]
    assert asked == _rows(first)
    with opened(task, "value", rows) as world:
        world.recall(first)
        assert [choosing.choices(world, row, False, 3, 1) for row in _rows(world)] == found
        assert asked == _rows(first)
        _a_is_empty(world)
        assert choosing.choices(world, _rows(world)[0], False, 3, 1) != found[0], "who is on the row is others now"


@pytest.mark.parametrize("objective", ["value", "devices", "nodes"])
@pytest.mark.parametrize("seed", range(4))
def test_what_a_return_would_gain_is_told_before_anybody_returns(seed, objective):
    task, told = _task(cluster(seed, "value", 12), 2_000), set[bool | None]()
    with opened(task, objective, Rows(task)) as world:
        search = _search(world, task)
        search.run(world.sources.nonzero()[0])
        world.settle()
        away = sorted(world.away)
        for uids in [[uid] for uid in away] + [[uid for uid in away if world.home(uid).row == row] for row in _rows(world)] + [away]:
            promised, gains, mark, before, spent, net = world.by_return(uids), search.gains_by_return(uids), world.mark(), world.total, world.spent, search.net()
            assert world.total == before, "nobody has moved"
            back = world.send_home(uids)
            assert (promised is not None) == back
            if back:
                assert promised == (world.total - before, spent - world.spent)
                assert gains == (search.net() > net)
            told.add(gains if back else None)
            world.undo(mark)
    assert False in told
