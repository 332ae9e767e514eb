"""Successors that another scheduler binds to each other's slots: they have landed, each by the other's move, and nothing is held or charged twice."""

from itertools import permutations

import pytest
from domain.build import changed, node, pod, replica_of, shape, then
from domain.saga import advance, failed, step, terminate
from domain.test_beside import STOCK, session_answers
from domain.test_gang_evictions import IN, decided, kept

from restow.contracts import events as e
from restow.domain import session
from restow.domain.beside import placeholder_of
from restow.domain.effects import Land
from restow.domain.records import SlotPhase, Step
from restow.domain.snapshot import dump, load


def handed_over(names=("n1", "n2", "n3"), **of):
    """All three of a gang have left, and a slot was handed over to each successor; their placeholders have gone, and their gates are off."""
    state, moves = decided()
    kept(state, *moves)
    terminate(state, "p1", "p2", "p3")
    advance(state)
    then(state, *(e.PodGone(uid) for uid in ("p1", "p2", "p3")))
    for uid in names:
        then(state, pod(uid, of.get(uid, "s"), gated=True, landing=True, **IN))
        session_answers(state)
    let_go(state, *names)
    return state, moves, {state.migrations[id].successor: state.migrations[id].move.target for id in moves}


def let_go(state, *names):
    for uid in names:
        if (body := placeholder_of(state, uid)) is not None:
            then(state, e.PodGone(body))
        then(state, pod(uid, state.pods[uid].fact.shape, nominated=state.placed[uid].node, **IN))
        session_answers(state)


def runs(state, uid: str, on: str) -> None:
    then(state, changed(uid, node=on))
    session_answers(state)
    advance(state)
    then(state, changed(uid, node=on, phase="Running", ready=True))
    session_answers(state)


def free(state) -> dict[str, int]:
    column = state.table.columns["cpu"]
    return {name: int(state.table.free[row, column]) for name, row in state.table.rows.items()}


@pytest.mark.parametrize("order", list(permutations(range(3))))
@pytest.mark.parametrize("places", list(permutations(range(3))))
def test_whoever_of_a_gang_is_bound_to_whichever_of_its_slots_all_have_landed(order, places):
    state, moves, targets = handed_over()
    pods, nodes = list(targets), list(targets.values())
    for at in order:
        runs(state, pods[at], nodes[places[at]])
        assert state.fact_of(pods[at]) is not None
        assert min(free(state).values()) >= 0, "nothing is counted twice on the way"
    advance(state)
    assert {id: (step(state, id), state.migrations[id].reason) for id in moves} == dict.fromkeys(moves, (Step.LANDED, ""))
    for id in moves:
        record = state.migrations[id]
        assert state.node_of(record.successor) == record.move.target
    assert free(state) == {"a": 4_000, "b": 4_000, "c": 4_000, "d": 1_000, "e": 1_000, "f": 1_000}
    assert not state.missed, "no miss of auto-pause"
    assert not state.to_land
    assert not state.successors


def test_a_slot_says_who_has_it_and_the_next_is_awaited_where_its_node_is_now():
    state, moves, targets = handed_over()
    (n1, t1), (n2, t2), _ = targets.items()
    then(state, changed(n1, node=t2))
    assert not failed(advance(state))
    by_target = {state.migrations[id].move.target: state.migrations[id] for id in moves}
    assert (by_target[t2].successor, by_target[t1].successor) == (n1, n2)
    for target, uid in ((t2, n1), (t1, n2)):
        ((name, slot),) = state.slots[by_target[target].reservation].items()
        assert (slot.phase, slot.pod, slot.owner) == (SlotPhase.USED, uid, f"default/{uid}")
        assert list(state.slot_users[by_target[target].reservation, name]) == [uid]
        assert state.allocations[uid].node == target
    assert state.node_of(n2) == t1
    assert state.allocations[n1].bound
    assert not state.allocations[n2].bound


def test_a_snapshot_in_the_middle_changes_nothing():
    state, _, targets = handed_over()
    (n1, t1), (n2, t2), (n3, t3) = targets.items()
    then(state, changed(n1, node=t2))
    other = load(dump(state))
    for one in (state, other):
        runs(one, n2, t1)
        runs(one, n3, t3)
        runs(one, n1, t2)
        advance(one)
        assert {record.step for record in one.migrations.values()} == {Step.LANDED}
    assert dump(other) == dump(state)


def test_one_that_its_kubelet_rejects_there_leaves_that_slot_to_the_next():
    state, moves, targets = handed_over()
    (n1, _), (_, t2), _ = targets.items()
    then(state, changed(n1, node=t2))
    then(state, changed(n1, node=t2, phase="Failed", reason="OutOfcpu"))
    (waits,) = [state.migrations[id] for id in moves if not state.migrations[id].successor]
    assert waits.move.target == t2


def test_where_one_goes_off_the_slots_of_its_gang_it_is_elsewhere_and_the_others_are_not():
    state, moves, targets = handed_over()
    (n1, t1), (n2, t2), (n3, t3) = targets.items()
    runs(state, n1, t2)
    runs(state, n2, "a")
    runs(state, n3, t3)
    advance(state)
    said = {state.migrations[id].move.target: (step(state, id), state.migrations[id].reason) for id in moves}
    assert said == {t1: (Step.FAILED, "Elsewhere"), t2: (Step.LANDED, ""), t3: (Step.LANDED, "")}


def test_one_whose_place_is_still_kept_for_it_changes_it_with_nobody():
    """There is enough for both: who has the placeholder goes where it stands."""
    state, moves, targets = handed_over()
    (n1, t1), (n2, t2), _ = targets.items()
    then(state, pod("h9", "s", namespace="restow-holds", labels={"restow.dev/log": state.log}, annotations=dict(state.pods[n1].fact.annotations)))
    key = state.placed[n2].hold
    state.put(state.stand_ins, key, "h9")
    state.put(state.placeholders, "h9", key)
    then(state, node(t2, cpu=8_000), changed("h9", node=t2), changed(n1, node=t2))
    assert failed(advance(state)) == {next(id for id in moves if state.migrations[id].move.target == t1): "Elsewhere"}


@pytest.mark.parametrize("what", ["another owner's", "asks for more"])
def test_nobody_lands_by_the_move_of_somebody_else(what):
    state, _, targets = handed_over()
    (n1, _), (_, t2), _ = targets.items()
    fact = state.pods[n1].fact
    if what == "asks for more":
        then(state, shape("more", cpu=3_500, scheduler=STOCK), pod(n1, "more", **IN))
    else:
        then(state, pod(n1, "s", owner=replica_of("other"), annotations=fact.annotations))
    then(state, changed(n1, node=t2))
    assert list(failed(advance(state)).values()) == ["Elsewhere"]


def test_one_that_still_has_its_gate_is_landed_where_it_is_to_go_now():
    """Its scheduler had forgotten the nomination, and had bound another one there."""
    state, _, targets = handed_over()
    (n1, t1), (n2, t2), _ = targets.items()
    then(state, pod(n2, "s", gated=True, landing=True, nominated=t2, **IN))
    then(state, changed(n1, node=t2))
    assert Land(n2, t1) in list(session.decider.pending(state, None))
