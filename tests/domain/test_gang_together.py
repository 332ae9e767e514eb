"""A gang, or the slots of a Reservation, that fit as a whole are placed as a whole: the best node for one may leave no node for another (RULES G-17)."""

import random
from collections.abc import Sequence

import pytest
from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    member,
    node,
    owner,
    pod_group,
    reservation,
    run,
    shape,
    then,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Taint
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.config import PluginConfig, SessionConfig
from restow.domain.session import gangs
from restow.domain.session.gangs import ALL_STEPS, PODS, STEPS, Bins
from restow.domain.session.verdict.explain import opened
from restow.domain.state import ClusterState

decider = session.decider


def gang(state: ClusterState, *cores: int, need: int = 0, name: str = "g") -> ClusterState:
    """Members of so many cores each."""
    then(state, pod_group(name, need=need or len(cores)))
    return then(state, *(member(f"{name}-{i}", name, f"c{many}", created=NOW + i) for i, many in enumerate(cores)))


def nodes(*cores: int, **more) -> ClusterState:
    return given(*(node(f"n{i}", cpu=many * 1_000, **more) for i, many in enumerate(cores)), *(shape(f"c{n}", cpu=n * 1_000, memory=0) for n in range(1, 9)))


def decided(state: ClusterState, at: int = NOW) -> list[e.Event]:
    return run(state, decider, c.Schedule(at, 1_000))


def test_a_gang_starts_where_it_fits_in_one_way_only():
    state = gang(nodes(6, 6), 3, 3, 2, 2, 2)
    decided(state)
    assert {uid: placement.node for uid, placement in state.placed.items()} == {"g-0": "n0", "g-1": "n0", "g-2": "n1", "g-3": "n1", "g-4": "n1"}


def test_the_first_way_that_is_tried_need_not_do():
    """The largest ones onto the tightest nodes would leave 4 + 2 and 5 + 3 of 6 and 8."""
    state = gang(nodes(8, 4, 6), 4, 4, 3, 3, 3)
    decided(state)
    assert len(state.placed) == 5


def test_those_that_it_does_not_need_may_be_left_out():
    state = gang(nodes(6, 6), 5, 3, 3, 2, 2, 2, need=5)
    decided(state)
    assert state.placed.keys() == {"g-1", "g-2", "g-3", "g-4", "g-5"}


def test_a_gang_that_cannot_fit_waits():
    state = gang(nodes(6, 6), 4, 4, 2, 2, 1)
    assert [type(event) for event in decided(state)] == [e.Withheld]
    assert not state.placed


def test_nodes_that_take_some_of_them_only_are_left_to_those():
    state = given(
        node("n0", cpu=6_000), node("n1", cpu=6_000, taints=(Taint("t", "NoSchedule"),)), *(shape(f"c{n}", cpu=n * 1_000, memory=0) for n in (2, 3))
    )  # fmt: skip
    decided(gang(state, 3, 3, 2, 2, 2))
    assert not state.placed
    then(state, node("n2", cpu=6_000))
    decided(state)
    assert len(state.placed) == 5
    assert "n1" not in {placement.node for placement in state.placed.values()}


def test_a_member_that_goes_anywhere_does_not_hide_the_nodes_of_the_others():
    """Workers are bound to two nodes with little left; a launcher fits on a hundred that are emptier."""
    state = given(
        *(node(f"w{i}", cpu=6_000, labels={"worker": "1"}) for i in range(2)), *(node(f"x{i:03}", cpu=16_000) for i in range(100)),
        *(shape(f"c{n}", cpu=n * 1_000, memory=0, node_selector={"worker": "1"}) for n in (2, 3)), shape("c1", cpu=1_000, memory=0),
    )  # fmt: skip
    decided(gang(state, 1, 3, 3, 2, 2, 2))
    assert len(state.placed) == 6


def test_of_a_gang_that_needs_so_many_of_each_task_the_others_may_be_left_out():
    state = nodes(6, 6)
    then(state, pod_group("g", need=5, min_task_member={"c3": 2, "c2": 3}))
    then(state, *(member(f"g-{i}", "g", f"c{n}", created=NOW + i, annotations={"volcano.sh/task-spec": f"c{n}"}) for i, n in enumerate((3, 3, 3, 2, 2, 2))))
    decided(state)
    assert len(state.placed) == 5


def test_a_member_that_owns_a_hold_takes_it_and_the_others_fit_beside_that():
    """With 6 and 4 free cores, and 2 that are held for one of them."""
    state = nodes(6, 6)
    then(state, reservation("r", ("t", 1, "c2"), owners=(owner(mine="1"),), node="n1", match_policy="Owner"))
    run(state, reservations.decider, c.Review(NOW))
    decided(state)
    then(state, pod_group("g", need=5))
    then(state, *(member(f"g-{i}", "g", f"c{n}", created=NOW + i, labels={"mine": "1"} if i == 4 else {}) for i, n in enumerate((3, 3, 2, 2, 2))))
    decided(state)
    assert len(state.placed) == 5
    assert state.placed["g-4"].node == "n1"


def test_slots_of_a_reservation_too():
    state = nodes(6, 6)
    then(state, reservation("r", ("large", 2, "c3"), ("small", 3, "c2")))
    run(state, reservations.decider, c.Review(NOW))
    held = {event.slot: event.node for event in decided(state) if isinstance(event, e.HoldPlaced)}
    assert sorted(held.values()) == ["n0", "n0", "n1", "n1", "n1"]


def test_within_an_attempt_within_pods_are_meant_for_the_same_rows():
    state = gang(nodes(6, 6), 3, 3)
    with opened(state) as seen:
        best = seen.find(state.pods["g-0"].fact).row
        with seen.attempt({"g-0": 1 - best}):
            with seen.attempt():
                assert seen.find(state.pods["g-0"].fact).row == 1 - best
            assert seen.find(state.pods["g-0"].fact).row == 1 - best
        assert seen.find(state.pods["g-0"].fact).row == best


def exact(free: list[tuple[int, ...]], asked: Sequence[tuple[int, ...]], spare: int) -> bool:
    """By trying everything."""
    if not asked:
        return True
    first, *rest = asked
    for at, there in enumerate(free):
        left = tuple(have - amount for have, amount in zip(there, first, strict=True))
        if min(left) >= 0 and there not in free[:at] and exact([*free[:at], left, *free[at + 1 :]], rest, spare):
            return True
    return spare > 0 and exact(free, rest, spare - 1)


@pytest.mark.parametrize("seed", range(150))
def test_whatever_fits_as_a_whole_starts(seed):
    luck = random.Random(seed)
    two = luck.random() < 0.5
    free = [(luck.choice((4, 6, 8)), luck.choice((4, 8)) if two else 99) for _ in range(luck.randint(2, 3))]
    kinds = [(luck.randint(1, 5), luck.randint(1, 4) if two else 1) for _ in range(luck.randint(2, 3))]
    pods = luck.choices(kinds, k=luck.randint(3, 6))
    need = luck.choice((len(pods), len(pods), luck.randint(2, len(pods))))
    state = given(
        *(node(f"n{i}", cpu=cpu * 1_000, memory=memory * GIB) for i, (cpu, memory) in enumerate(free)),
        *(shape(f"s{cpu}-{memory}", cpu=cpu * 1_000, memory=memory * GIB) for cpu, memory in set(kinds)), pod_group("g", need=need),
        *(member(f"p{i}", "g", f"s{cpu}-{memory}", created=NOW + i) for i, (cpu, memory) in enumerate(pods)),
    )  # fmt: skip
    decided(state)
    assert (len(state.placed) >= need) is exact(free, pods, len(pods) - need)


def test_a_search_ends():
    """Twenty pods of nine and ten into bins of 28 and 29 that have one less in all than would do."""
    bins = [[28]] * 6 + [[29]] * 3
    search = Bins([*bins], [[10], [9]], [[True] * 9, [True] * 9], [12, 15], STEPS)
    assert not search.fits(0)
    assert search.steps <= STEPS + len(bins) * 27


@pytest.fixture
def searches(monkeypatch) -> list[Bins]:
    made: list[Bins] = []

    class Noted(Bins):
        def __init__(self, *args) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(gangs, "Bins", Noted)
    return made


def test_so_do_all_of_a_session(searches):
    """Each has nine cores to spare in all, and one pod too many: a node takes one of four cores. Who comes late gets one descent."""
    state = nodes(*([7] * 12), *([5] * 12))
    for i in range(40):
        gang(state, *[3] * 13, *[4] * 24, name=f"g{i:02}")
    decided(state)
    assert not state.placed
    descent = 24 * 37
    assert len(searches) > 20
    assert all(search.steps <= STEPS + descent for search in searches)
    assert sum(search.steps for search in searches) <= ALL_STEPS + len(searches) * 2 * descent


def test_gangs_that_nothing_helps_leave_a_search_for_those_behind_them(searches):
    """Before, three of them used up the searches of every session, and the fourth gang waited for ever."""
    state = given(
        *(node(f"big{i:02}", cpu=10_000, labels={"for": "others"}) for i in range(12)), *(node(f"n{i}", cpu=6_000, labels={"for": "us"}) for i in range(2)),
        *(shape(f"c{cores}", cpu=cores * 1_000, memory=0, node_selector={"for": "others"}) for cores in (4, 6)),
        *(shape(f"m{cores}", cpu=cores * 1_000, memory=0, node_selector={"for": "us"}) for cores in (2, 3)),
    )  # fmt: skip
    for i in range(20):
        gang(state, *[6] * 3, *[4] * 24, name=f"f{i:02}")
    then(state, pod_group("me", need=5), *(member(f"me-{i}", "me", f"m{cores}", created=NOW + i) for i, cores in enumerate((3, 3, 2, 2, 2))))
    decided(state)
    assert sum(search.steps for search in searches) > ALL_STEPS
    assert state.placed.keys() == {f"me-{i}" for i in range(5)}


def test_nothing_is_searched_for_where_all_are_alike_or_they_are_many(searches):
    decided(gang(nodes(4, 4), 3, 3, 3))
    decided(gang(nodes(*[6] * 50), *[3] * (PODS // 2), *[2] * (PODS // 2 + 1)))
    assert searches == []


@pytest.mark.parametrize("plugins", [(PluginConfig("predicates"),), (PluginConfig("gang", {"enableJobReady": False}), PluginConfig("predicates"))])
def test_what_waited_as_a_whole_starts_one_by_one_once_the_configuration_says_so(plugins):
    """Nobody looked at its pods any more: all of the gang did not fit."""
    state = gang(nodes(4), 1, 8)
    decided(state)
    assert not state.placed
    then(state, configured("session", SessionConfig(tiers=(plugins,))))
    while command := decider.due(state, NOW + 1_000):
        if not run(state, decider, command):
            break
    assert state.placed.keys() == {"g-0"}
