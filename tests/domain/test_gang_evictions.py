"""A gang that is moved as one: nobody of it is told to leave before all may, and once one has left the others are to follow (RULES G-11)."""

from random import Random

import pytest
from domain.build import NOW, changed, configured, given, node, pod, pod_group, run, shape, then
from domain.saga import OWNER, advance, create, decider, evicts, owed, step, terminate
from domain.test_beside import STOCK, guard, opened, placeholder, session_answers

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import config, session
from restow.domain.effects import Evict
from restow.domain.records import Step
from restow.domain.state import Touched

IN = {"owner": OWNER, "annotations": {"scheduling.k8s.io/group-name": "g", "restow.dev/movable": "gang"}}
SOURCES = {"p1": "a", "p2": "b", "p3": "c"}


def decided(least: int = 3, **conf):
    """Three pods of a gang on nodes of their own; all places are held, and the evictions are decided."""
    names = list(SOURCES)[:least]
    conf = {"max_unavailable": 0, "evictions_per_minute": 0, "beside": (STOCK,)} | conf
    state = given(
        configured("migration", config.MigrationConfig(**conf)), e.NominationsChecked(STOCK, "honoured"), e.Synced("podgroups.scheduling.volcano.sh", "1"),
        *(node(name, cpu=4_000) for name in "abcdef"), shape("s", cpu=3_000, scheduler=STOCK),
        pod_group("g", need=least), *(pod(name, node=SOURCES[name], **IN) for name in names),
    )  # fmt: skip
    (planned,) = run(state, decider, c.MoveGang(NOW, "x", "default/g"))
    moves = [one.migration for one in planned.moves]
    advance(state)
    create(state, *moves)
    session_answers(state)
    for one in planned.moves:
        uid = f"h{one.migration}"
        then(state, placeholder(state, one.migration, uid), changed(uid, node=one.target), changed(uid, node=one.target, phase="Running", ready=True))
        session_answers(state)
    opened(state)
    assert evicts(advance(state)) == moves
    return state, moves


def kept(state, *moves: str) -> None:
    for id in moves:
        then(state, guard(state, f"g{id}", id, state.migrations[id].move.source))


def evictions(state) -> list[str]:
    return sorted(effect.migration for effect in owed(state) if isinstance(effect, Evict))


def owed_by_touched(state) -> list[str]:
    """What the effect loop hears of: of what the last fold has touched alone."""
    return sorted(effect.migration for effect in decider.pending(state, state.touched) if isinstance(effect, Evict))


def test_nobody_leaves_before_the_old_nodes_of_all_are_kept_and_then_all_are_told_at_once():
    state, moves = decided()
    for at, id in enumerate(moves):
        assert evictions(state) == [], f"{at} of 3 guards stand"
        state.touched = Touched()
        kept(state, id)
    assert owed_by_touched(state) == evictions(state) == moves, "by the last guard alone"


def test_a_guard_that_the_api_refuses_keeps_all_of_them():
    state, moves = decided()
    kept(state, *moves[:2])
    run(state, session.decider, c.RefusePlaceholder(NOW, "guard", moves[2], "403 quota"))
    advance(state)
    assert evictions(state) == []
    assert {step(state, id) for id in moves} == {Step.ABORTING}


@pytest.mark.parametrize("what", ["guard gone", "annotation", "hold stolen"])
def test_what_keeps_one_of_them_keeps_all_before_the_log_has_decided_so(what):
    state, moves = decided()
    kept(state, *moves)
    assert evictions(state) == moves
    if what == "guard gone":
        then(state, e.PodGone(f"g{moves[1]}"))
    elif what == "annotation":
        then(state, pod("p2", node="b", **{**IN, "annotations": {**IN["annotations"], "karpenter.sh/do-not-disrupt": "true"}}))
    else:
        then(state, e.PodGone(f"h{moves[1]}"))
    assert evictions(state) == []


@pytest.mark.parametrize("what", ["hold stolen", "budget"])
def test_nobody_leaves_between_the_decision_that_gives_up_one_and_that_about_the_others(what):
    state, moves = decided()
    kept(state, *moves)
    if what == "hold stolen":
        then(state, e.PodGone(f"h{moves[1]}"))
        run(state, decider, c.Advance(NOW))
    else:
        run(state, decider, c.ReportEviction(NOW, moves[1], "Budget", "none is left"))
    assert [step(state, id) for id in moves] == [Step.EVICTING, Step.ABORTING, Step.EVICTING]
    assert evictions(state) == []


def test_once_one_has_left_the_others_follow_whatever_the_old_node_of_one_is():
    state, moves = decided()
    kept(state, *moves)
    state.touched = Touched()
    terminate(state, "p1")
    advance(state)
    assert step(state, moves[0]) is Step.EVICTED
    assert owed_by_touched(state) == moves[1:], "the first to leave is no reason to ask less about the others"
    then(state, e.PodGone(f"g{moves[1]}"))
    assert evictions(state) == moves[2:], "who has no guard waits for one alone"


def test_a_budget_that_refuses_one_when_others_have_left_is_asked_again_until_the_eviction_is_late():
    state, moves = decided()
    kept(state, *moves)
    refused = c.ReportEviction(NOW, moves[2], "Budget", "none is left")
    terminate(state, "p1")
    advance(state)
    assert run(state, decider, refused) == []
    late = c.ReportEviction(state.migrations[moves[2]].deadline, moves[2], "Budget", "none is left")
    assert [type(one) for one in run(state, decider, late)] == [e.Aborting]


def test_a_budget_that_refuses_one_before_anybody_has_left_keeps_all_of_them():
    state, moves = decided()
    kept(state, *moves)
    run(state, decider, c.ReportEviction(NOW, moves[1], "Budget", "none is left"))
    advance(state)
    assert {step(state, id) for id in moves} == {Step.ABORTING}


@pytest.mark.parametrize("seed", range(40))
def test_whatever_happens_all_are_owed_to_leave_or_nobody_before_one_has(seed):
    """Guards come, go and lose their nominations, holds are stolen, nodes are cordoned, pods change, in any order."""
    random = Random(seed)
    state, moves = decided()
    for _ in range(30):
        id = random.choice(moves)
        what = random.randrange(8)
        if what < 4:
            kept(state, id)
        elif what == 4:
            then(state, guard(state, f"g{id}", id, ""))
        elif what == 5:
            then(state, e.PodGone(f"g{id}"))
        elif what == 6 and random.random() < 0.2:
            then(state, e.PodGone(f"h{id}"))
        elif random.random() < 0.2:
            then(state, node(state.migrations[id].move.target, cpu=4_000, unschedulable=True))
        assert evictions(state) in ([], moves)
        if random.random() < 0.5:
            advance(state)
            session_answers(state)
            assert evictions(state) in ([], moves)
    assert len({step(state, id) for id in moves} & {Step.EVICTING, Step.ABORTING}) == 1


def test_it_is_asked_once_about_a_gang_of_hundreds(monkeypatch):
    """As often as there are pods, not as often as there are pairs of them."""
    from restow.domain.migration import eviction

    state, moves = decided()
    kept(state, *moves)
    asked, before = [], eviction._may_be_tried
    monkeypatch.setattr(eviction, "_may_be_tried", lambda state, one: asked.append(one.id) or before(state, one))
    then(state, node("f", cpu=4_001))
    assert evictions(state) == moves
    assert len(asked) == 2 * len(moves)
