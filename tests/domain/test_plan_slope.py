"""Prices of pods and of a move: at these no plan made of the patterns that are known is worth much more than the best mixture of them, as HiGHS finds it."""

import highspy
import numpy as np
import pytest

from restow.domain.defragmentation.optimizing.descent import descend
from restow.domain.defragmentation.optimizing.patterns import Pattern, Prices, Start, Table, table_of
from restow.domain.defragmentation.optimizing.rounding import rounded
from restow.domain.defragmentation.optimizing.slope import descended, total

DEVICE = 30_000_000_000
"""About the price of one."""
NODES, EACH, CLASSES = 60, 12, 8


@pytest.mark.parametrize("limit", [10, 40, 10_000])
@pytest.mark.parametrize("seed", range(6))
def test_prices_are_near_to_the_best_ones_whether_moves_are_few_or_many(seed, limit):
    table = _table(seed)
    first = Prices(np.full(CLASSES, DEVICE), 0)
    found = descended(table, descended(table, first, limit, DEVICE, DEVICE * 100), limit, DEVICE, DEVICE * 100)
    best = _mixture(table, limit)
    assert best * (1 - 1e-6) <= total(table, found, limit) <= best * 1.001
    assert (found.move > 0) == (limit < 10_000), "a move has a price where moves are few"


@pytest.mark.parametrize("limit", [10, 40, 10_000])
@pytest.mark.parametrize("seed", range(6))
def test_a_pattern_of_each_node_is_nearly_worth_the_best_mixture_with_no_more_moves_than_may_be(seed, limit):
    table = _table(seed)
    found = descend(table, descended(table, Prices(np.full(CLASSES, DEVICE), 0), limit, DEVICE, DEVICE * 100), limit, DEVICE * 100, 200)
    assert found.bound == total(table, found.prices, limit)
    chosen = np.array(rounded(table, found.prices, found.parts, limit, DEVICE // 16))
    assert (table.node[chosen] == np.arange(NODES)).all()
    assert table.moves[chosen].sum() <= limit
    missing = np.maximum(-table.changes(chosen, CLASSES), 0)
    worth = int(table.value[chosen].sum()) - 2 * int((missing * found.prices.pods).sum())
    assert worth <= found.bound
    # Patterns have up to a dozen moves: of ten little can be made.
    assert worth >= _mixture(table, limit) * (0.75 if limit == 10 else 0.9)


def test_none_is_below_nothing_or_above_the_most_and_no_worse_than_the_first():
    table = _table(7)
    for device in (1, DEVICE, DEVICE * 1_000):
        first = Prices(np.full(CLASSES, device), device)
        found = descended(table, first, 10, device, DEVICE)
        assert found.move >= 0
        assert (found.pods >= 0).all()
        assert total(table, found, 10) <= total(table, first, 10)
        if device <= DEVICE:
            assert found.move <= DEVICE
            assert (found.pods <= DEVICE).all()


def test_what_patterns_are_worth_and_change_is_what_is_said_of_each() -> None:
    chance = np.random.default_rng(3)
    table = _table(3)
    prices = Prices(chance.integers(0, DEVICE, CLASSES), DEVICE // 30)
    paid = [sum(int(prices.pods[k]) * n for k, n in one.changes) for one in table.patterns]
    expected = [one.value - len(one.start.gone) * prices.move + more for one, more in zip(table.patterns, paid, strict=True)]
    assert table.scores(prices).tolist() == expected
    chosen = table.best(table.scores(prices))
    changed = np.zeros(CLASSES, np.int64)
    for j in chosen.tolist():
        for k, n in table.patterns[j].changes:
            changed[k] += n
    assert table.changes(chosen, CLASSES).tolist() == changed.tolist()


def _table(seed: int) -> Table:
    """Of each node the pattern in which nothing changes, those in which some of its pods leave, and those in which others come beside."""
    chance = np.random.default_rng(seed)
    patterns = list[Pattern]()
    for node in range(NODES):
        patterns.append(Pattern(Start(node, (), ()), 0, ()))
        for _ in range(EACH):
            leave, come = chance.integers(0, 4, CLASSES), chance.integers(0, 2, CLASSES)
            more = (come - leave) * (chance.random(CLASSES) < 0.4)
            moves = int(np.maximum(-more, 0).sum())
            value = int(-(more * chance.integers(DEVICE // 2, DEVICE * 2, CLASSES)).sum()) - moves * DEVICE // 30
            patterns.append(Pattern(Start(node, tuple(range(moves)), ()), value, tuple((k, int(n)) for k, n in enumerate(more) if n)))
    entries = [(j, k, n) for j, one in enumerate(patterns) for k, n in one.changes or ((0, 0),)]
    at, kind, more = np.array(entries, np.int64).T
    node = np.array([one.start.node for one in patterns])
    value, moves = np.array([one.value for one in patterns], np.int64), np.array([len(one.start.gone) for one in patterns])
    return table_of(patterns, node, value, moves, at, kind, more)


def _mixture(table: Table, limit: int) -> float:
    """The most that patterns are worth of which each node takes one, or parts of several, where nobody leaves without a place."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    parts = [solver.addVariable(0, 1) for _ in table.patterns]

    def sum_of(which) -> object:
        found = highspy.highs.highs_linear_expression(0)
        for j, times in which:
            found += parts[j] * times
        return found

    for node in range(NODES):
        solver.addConstr(sum_of([(j, 1) for j in np.flatnonzero(table.node == node).tolist()]) == 1)
    for k in range(CLASSES):
        some = np.flatnonzero(table.kind == k).tolist()
        solver.addConstr(sum_of([(int(table.at[e]), int(table.more[e])) for e in some]) >= 0)
    solver.addConstr(sum_of(list(enumerate(table.moves.tolist()))) <= limit)
    solver.maximize(sum_of([(j, value / DEVICE) for j, value in enumerate(table.value.tolist())]))
    return solver.getObjectiveValue() * DEVICE
