"""Who could be pushed, for all rows at once, is who could be pushed when each is asked; and what is scarce has a price."""

import random

import msgspec
import numpy as np
import pytest
from domain.build import NOW, given, node, replica_of, shape
from domain.build import pod as pod_fact
from domain.planning import CAPACITY, cluster

from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.optimizing.choices import size
from restow.domain.defragmentation.optimizing.pushing import Pushing
from restow.domain.defragmentation.optimizing.scarcity import PARTS, _dual
from restow.domain.defragmentation.optimizing.search import Limits, Search
from restow.domain.defragmentation.optimizing.world import Rows, World, opened
from restow.domain.defragmentation.plan import Task

ARGS = DefragmentationArgs(planner="optimizing", objective="nodes", resourceType="cpu", protectionThresholds={})


def _one_by_one(world: World, uid: str, banned: set[int]) -> set[str]:
    """Pods that are no larger and without whom this one fits where it did not fit, or on devices that were too full."""
    found = set()
    for other in world.state.charges:
        row = world.spot(other).row
        if other == uid or row in banned or size(world, other) > size(world, uid) or not world.movable(other):
            continue
        free, shares = world.free(row)
        able = [share >= world.vector(uid).devices.milli for share in shares] if world.vector(uid).devices else []
        short = any(free[c] < a for c, a in world.vector(uid).items)
        mark = world.mark()
        world.lift(other)
        now = [share >= world.vector(uid).devices.milli for share in world.free(row)[1]] if world.vector(uid).devices else []
        if (short or able != now) and world.placement.fits_at(uid, row) is not None:
            found.add(other)
        world.undo(mark)
    return found


def _kind(world: World, uid: str) -> tuple:
    return world.vector(uid).items, world.vector(uid).devices


@pytest.mark.parametrize("objective", ["devices", "nodes", "capacity"])
def test_who_could_be_pushed_is_found_for_all_rows_at_once(objective):
    args = msgspec.structs.replace(ARGS, objective=objective, capacity=CAPACITY if objective == "capacity" else {})
    asked = 0
    for seed in range(12):
        state = cluster(seed, objective)
        task = Task(state, args, NOW, "p", 9)
        with opened(task, args.objective, Rows(task)) as world:
            uids = sorted(state.charges)
            world.lift(uids[0])
            pushing = Pushing(world)
            world.undo(0)
            for uid in uids:
                one = state.vectors[state.pods[uid].fact.shape].devices
                if one is not None and one.count > 1:
                    continue
                home = world.lift(uid).row
                expected = _one_by_one(world, uid, {home})
                if any(len(world.spot(other).devices) > 1 for other in expected):
                    world.undo(0)
                    continue  # who has several devices is pushed only for other capacity
                kinds = {_kind(world, other) for other in expected}
                got = pushing.candidates(uid, frozenset({home}), 99)
                assert set(got) <= expected
                assert {_kind(world, other) for other in got} == kinds
                asked += len(got)
                world.undo(0)
    assert asked, "somebody could be pushed"


@pytest.mark.parametrize("objective", ["devices", "nodes", "capacity"])
def test_who_could_be_pushed_is_the_same_after_many_changes_as_when_asked_for_the_first_time(objective):
    """What is kept from the last time is looked at anew where somebody has come or gone, also where that was taken back."""
    args = msgspec.structs.replace(ARGS, objective=objective, capacity=CAPACITY if objective == "capacity" else {})
    asked = 0
    for seed in range(12):
        task, chance = Task(cluster(seed, objective), args, NOW, "p", 9), random.Random(seed)
        with opened(task, args.objective, Rows(task)) as world:
            uids = [uid for uid in sorted(task.state.charges) if world.movable(uid)]
            pushing = Pushing(world)
            for _ in range(60):
                uid, mark = chance.choice(uids), world.mark()
                home = world.lift(uid).row
                got = pushing.candidates(uid, frozenset({home}), 99)
                assert got == Pushing(world).candidates(uid, frozenset({home}), 99)
                asked += len(got)
                spot = world.placement.find(uid, (home,))
                if spot is not None:
                    world.land(uid, spot)
                if spot is None or not chance.randrange(3):
                    world.undo(mark)
    assert asked, "somebody could be pushed"


def _few_moves() -> Task:
    """Two moves are allowed; a slot is 4 cores. `large` has two of them and goes nowhere but to `b`, if `x` makes way there: one slot for two moves. `p`, `q` and `x` keep one slot each, and
    each needs one move."""
    facts = [shape("s1", cpu=1_000), shape("s4", cpu=4_000), shape("s5", cpu=5_000), shape("s8", cpu=8_000), node("a", cpu=8_000), pod_fact("large", "s8", "a", owner=replica_of("rs"))]
    facts += [node("b", cpu=8_000), pod_fact("x", "s1", "b", owner=replica_of("rs"))]
    for name in "pq":
        facts += [node(f"n{name}", cpu=8_000), pod_fact(f"keeps-{name}", "s4", f"n{name}"), pod_fact(name, "s1", f"n{name}", owner=replica_of("rs"))]
    facts += [node("rest", cpu=8_000), pod_fact("keeps-rest", "s5", "rest")]
    return Task(given(*facts), msgspec.structs.replace(ARGS, objective="capacity", capacity={"cpu": "4"}), NOW, "p", 2)


def test_where_moves_are_few_those_are_made_that_gain_most_each():
    task = _few_moves()
    with opened(task, "capacity", Rows(task)) as world:
        search, before = Search(world, Limits(2, 100, 10_000, False)), world.total
        search.run(np.flatnonzero(Rows(task).sources))
        assert sorted(world.away) == ["p", "x"]
        assert world.total == before + 2
        assert search.net() == world.total * 1_000_000 - 100 * world.spent, "what moves were to gain besides is forgotten"


def test_where_one_move_is_left_nobody_is_pushed():
    """Two would go: the steps are for those who can still go."""
    task = _few_moves()
    with opened(task, "capacity", Rows(task)) as world:
        search = Search(world, Limits(1, 100, 10_000, False))
        world.lift("large")
        assert not search.place("large", frozenset(), 2, search.net() - 2_000_000)
        assert search.full
        assert search._pushing is None, "nobody was asked"


def test_nobody_is_pushed_who_is_in_the_air():
    state = given(
        shape("s", cpu=3_000), shape("t", cpu=2_000), node("a", cpu=4_000), node("b", cpu=4_000),
        pod_fact("p", "s", "a", owner=replica_of("rs")), pod_fact("q", "t", "b", owner=replica_of("rs")),
    )  # fmt: skip
    task = Task(state, ARGS, NOW, "p", 9)
    with opened(task, "nodes", Rows(task)) as world:
        world.lift("p")
        pushing = Pushing(world)
        assert pushing.candidates("p", frozenset(), 9) == ["q"]
        world.lift("q")
        assert pushing.candidates("p", frozenset(), 9) == []
        world.undo(0)
        world.lift("p")
        assert pushing.candidates("p", frozenset(), 9) == ["q"]


def test_what_there_is_enough_of_has_no_price():
    nets, uses = np.full(10, 1 << 20), np.full((10, 2), PARTS // 20)
    assert _dual(nets, uses) == [0, 0]
    uses[:, 1] = PARTS // 2
    few, scarce = _dual(nets, uses)
    assert few < scarce // 4
    assert PARTS * scarce > 0


def test_the_small_nodes_are_emptied_where_capacity_is_scarce():
    """All are as cheap to empty. The large one gone, its place is missing for others."""
    facts = [shape("s", cpu=2_000), shape("fix", cpu=6_000), node("large", cpu=16_000), pod_fact("l", "s", "large", owner=replica_of("rs"))]
    for i in range(6):
        facts += [node(f"s{i}", cpu=2_500), pod_fact(f"p{i}", "s", f"s{i}", owner=replica_of("rs"))]
    state = given(*facts, node("keeps", cpu=8_000), pod_fact("f", "fix", "keeps"))
    task = Task(state, ARGS, NOW, "p", 99)
    with opened(task, "nodes", Rows(task)) as world:
        search = Search(world, Limits(99, 1, 10_000, False))
        search.run(np.flatnonzero(Rows(task).sources))
        assert world.total == 6
        assert "l" not in world.away


def test_of_pods_that_all_have_a_place_nobody_is_remembered_as_without_one(monkeypatch):
    """One who was to make way for them may have found none: that is another pod (it ended the whole plan)."""
    state = cluster(0, "nodes")
    task = Task(state, ARGS, NOW, "p", 9)
    with opened(task, ARGS.objective, Rows(task)) as world:
        search = Search(world, Limits(9, 1, 1_000, whole=False))
        uid = min(state.charges)
        home = world.home(uid)

        def place(uid, banned, depth, least):
            search._homeless = "another"
            world.land(uid, home)
            return True

        monkeypatch.setattr(search, "place", place)
        assert not search._tried(home.row, (uid,), 1)
        assert not search._failing
