"""However a ranking came about — made anew by NumPy, refreshed row by row in plain integers, kept from an earlier session,
read from what equal nodes scored — it is the same ranking."""

from unittest import mock
from weakref import ref

import numpy as np
from domain.build import GIB, given, node, pod, shape, then
from effort import examples
from hypothesis import given as any_of
from hypothesis import settings
from hypothesis import strategies as st

from restow.contracts.values import Expression, NodeTerm, PreferredNodeTerm, Taint
from restow.domain.session.node_snapshot import NodeSnapshot
from restow.domain.session.placer import MANY, Placer, Rankings
from restow.domain.session.plugins.binpack import Binpack
from restow.domain.session.plugins.nodeorder.resource_scores import NodeAffinity, Resources, TaintToleration
from restow.domain.session.scoring import share, shares

SHAPES = ("small", "large", "shared", "whole", "odd", "picky")
NODES = st.lists(
    st.tuples(st.integers(0, 9_000), st.integers(0, 4), st.booleans(), st.booleans()), min_size=1, max_size=40
)
CHARGES = st.lists(st.tuples(st.integers(0, 999), st.sampled_from(SHAPES), st.booleans()), max_size=40)
WEIGHTS = st.integers(0, 3)
SCORERS = st.tuples(
    st.tuples(
        st.builds(Resources, WEIGHTS, WEIGHTS, WEIGHTS),
        st.just(Binpack(2, (("cpu", 1), ("memory", 3), ("restow.dev/gpu-milli", 5)))),
    ),
    st.tuples(st.builds(NodeAffinity, st.integers(1, 3)), st.builds(TaintToleration, st.integers(1, 3))),
)
SOFT = (Taint("busy", "PreferNoSchedule"),)
LIKES = PreferredNodeTerm(7, NodeTerm((Expression("zone", "In", ("a",)),)))


def cluster(nodes, copies=1):
    return given(
        *(
            node(f"n{i:03}", cpu=cpu, gpus=gpus, unschedulable=closed, taints=SOFT if soft else (), labels={"zone": "ab"[i % 2]})
            for i, (cpu, gpus, closed, soft) in enumerate(nodes * copies)
        ),
        shape("small", cpu=300),
        shape("large", cpu=3_000, memory=9 * GIB),
        shape("shared", cpu=100, gpu=(1, 300)),
        shape("whole", cpu=100, gpu=(2, 1000)),
        shape("odd", requests={"example.com/other": 1}),
        shape("picky", cpu=500, node_preferences=(LIKES,)),
        pod("p", "small"),
    )


def anew(state, scorers, shape):
    """Made by NumPy from the table as it is, without anything kept."""
    kept = state.memo.pop(Rankings, None)
    board = NodeSnapshot(state.table)
    keys = Placer(state, board, scorers).keys(shape).copy()
    state.memo.pop(Rankings)
    if kept is not None:
        state.memo[Rankings] = kept
    return keys


def charge(board, state, row, name, taken):
    v = state.vectors[name]
    devices = state.table.choose_devices(row, v.devices)
    if devices is not None:
        board.take(row, v, devices)
        taken.append((row, v, devices))


@settings(max_examples=examples(150), deadline=None)
@any_of(NODES, CHARGES, SCORERS)
def test_row_by_row_is_all_at_once(nodes, charges, scorers):
    state = cluster(nodes)
    board, taken = NodeSnapshot(state.table), []
    placer = Placer(state, board, scorers)
    for at, name, back in charges:
        if back and taken:
            board.give(*taken.pop())
        else:
            charge(board, state, at % len(nodes), name, taken)
        np.testing.assert_array_equal(placer.keys(name), anew(state, scorers, name))
    for name in SHAPES:
        np.testing.assert_array_equal(placer.keys(name), anew(state, scorers, name))
    board.close()


@settings(max_examples=examples(60), deadline=None)
@any_of(NODES, st.lists(st.one_of(CHARGES, st.integers(0, 999)), max_size=6), SCORERS)
def test_what_is_kept_across_sessions_is_what_would_be_made_anew(nodes, sessions, scorers):
    """Between sessions nodes change, and pods come, seen by the fold alone."""
    state = cluster(nodes)
    for i, what in enumerate(sessions):
        if isinstance(what, int):
            at = what % len(nodes)
            there = f"n{at:03}"
            then(state, node(there, cpu=what * 9, unschedulable=bool(what % 3 == 0), labels={"zone": "a"}), pod(f"q{i}", "small", there))
            continue
        board = NodeSnapshot(state.table)
        placer, taken = Placer(state, board, scorers), []
        for at, name, _ in what:
            charge(board, state, at % len(nodes), name, taken)
            np.testing.assert_array_equal(placer.keys(name), anew(state, scorers, name))
        before = state.table.free.copy()
        board.close()
        for row, v, devices in reversed(taken):
            before[row, v.columns] += v.amounts
            assert len(devices) == (v.devices.count if v.devices else 0)
        np.testing.assert_array_equal(state.table.free, before)
    board = NodeSnapshot(state.table)
    placer = Placer(state, board, scorers)
    for name in SHAPES:
        np.testing.assert_array_equal(placer.keys(name), anew(state, scorers, name))


def test_many_changed_rows_are_ranked_together_and_still_right():
    state = cluster([(8_000, 2, False, False), (4_000, 0, False, True)], copies=MANY)
    scorers = ((Resources(1, 0, 1),), ())
    board = NodeSnapshot(state.table)
    placer = Placer(state, board, scorers)
    placer.keys("small")
    for row in range(2 * MANY):
        board.take(row, state.vectors["small"])
    np.testing.assert_array_equal(placer.keys("small"), anew(state, scorers, "small"))
    board.close()


def test_the_best_node_has_the_highest_score_and_among_equals_the_first_name():
    state = given(node("c"), node("a"), node("b"), shape("s"), pod("p", node="c"))
    placer = Placer(state, NodeSnapshot(state.table), ((Resources(1, 0, 0),), ()))
    assert state.table.names[placer.best("s")] == "a"


@settings(max_examples=examples(150), deadline=None)
@any_of(NODES, CHARGES, SCORERS)
def test_the_best_is_the_best_of_all_also_where_only_the_top_is_kept_in_order(nodes, charges, scorers):
    with mock.patch.multiple("restow.domain.session.placer", TOP=3, FEW=0):
        state = cluster(nodes, copies=2)
        board, taken = NodeSnapshot(state.table), []
        placer = Placer(state, board, scorers)
        for at, name, back in charges:
            if back and taken:
                board.give(*taken.pop())
            else:
                charge(board, state, at % len(nodes), name, taken)
            keys = anew(state, scorers, name)
            best = placer.best(name)
            assert best == (int(keys.argmax()) if keys.max() >= 0 else None)
            if best is not None and at % 2:
                charge(board, state, best, name, taken)
        board.close()


@settings(max_examples=examples(60), deadline=None)
@any_of(NODES, st.lists(st.tuples(st.integers(0, 999), st.integers(1, 9_000), st.integers(0, 3)), max_size=20), SCORERS)
def test_the_best_of_a_shape_that_nobody_has_asked_for_is_the_best_of_its_ranking(nodes, asked, scorers):
    """Whatever has been charged by then: no array is kept for it, and amounts are compared with what any node has left first."""
    state = cluster(nodes)
    then(state, *(shape(f"own-{i}", cpu=cpu, gpu=(gpus, 500) if gpus else None) for i, (_, cpu, gpus) in enumerate(asked)))
    board, taken = NodeSnapshot(state.table), []
    placer = Placer(state, board, scorers)
    for i, (at, _, _) in enumerate(asked):
        keys = anew(state, scorers, f"own-{i}")
        assert placer.best(f"own-{i}") == (int(keys.argmax()) if keys.max() >= 0 else None)
        charge(board, state, at % len(nodes), f"own-{i}", taken)
        if i % 5 == 4 and taken:
            board.give(*taken.pop())
        np.testing.assert_array_equal(placer.keys(f"own-{i}"), anew(state, scorers, f"own-{i}"))
    board.close()


WHOLES = st.one_of(st.lists(st.integers(1, 1 << 60), min_size=1, max_size=4), st.builds(lambda whole: [whole] * 3, st.integers(1, 1 << 60)))


@settings(max_examples=examples(200))
@any_of(WHOLES, st.integers(0, 100))
def test_a_share_is_the_same_for_one_and_for_many_however_vast_all_nodes_are(wholes, percent):
    amounts = [whole * percent // 100 for whole in wholes]
    found = shares(np.array(amounts, np.int64), np.array(wholes, np.int64), (min(wholes), max(wholes)))
    assert found.tolist() == list(map(share, amounts, wholes))


def test_what_a_session_has_charged_is_not_kept_by_its_rankings():
    state = cluster([(8_000, 0, False, False)] * 3)
    placer = Placer(state, NodeSnapshot(state.table), ((Resources(1, 0, 1),), ()))
    placer.best("small")
    placer.keys("small")
    alive = ref(placer)
    del placer
    assert alive() is None
