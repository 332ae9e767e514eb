"""Prices without a solver: by how much of each resource a pod asks for, and then down along the slope.

Where more of a class is in bins than there is, its price falls, and where less is, it rises. That comes near the best prices where one resource
matters, and less so where several do.
"""

from collections.abc import Iterator

import numpy as np

from restow.domain.defragmentation.bound.problem import REST, Problem
from restow.domain.defragmentation.bound.relaxed import Answer, Prices, anything, dearest, relaxed

SHARES = ((10, 0), (8, 2), (6, 4), (4, 6))
"""Tenths of `scale` that the packed resource and all others stand for."""
SCALES = ((10, 0), (8, 0), (9, 2))
"""Tenths of `scale` that a full bin pays, and that a move does: some where their limit matters."""
FIRST, LAST = 0.1, 1e-4
"""How far a step aims below the best value, as a part of it."""
PATIENCE, MEMORY = 5, 0.3


def first(of: Problem) -> Iterator[Prices]:
    """Some prices that may do."""
    groups, others = len(of.admits), of.rest.shape[1]
    for packed, rest in SHARES if others else SHARES[:1]:
        for scale, move in SCALES:
            unit = of.scale * scale // 10 // of.bins_each
            share = unit * rest // 10 // max(others, 1)
            pods = unit * packed // 10 * of.size // of.full + share * of.rest.sum(axis=1) // REST
            for split in _splits(of):
                yield Prices(pods, np.full((groups, others), share, np.int64), of.scale * move // 10, split, anything(of).least)


def _splits(of: Problem) -> Iterator[np.ndarray]:
    """Demands pay for what is packed alone, or for all that they ask for."""
    groups, others = len(of.admits), of.rest.shape[1]
    if of.wants is None:
        yield np.zeros((groups, 0, 1 + others), np.int64)
        return
    for rest in (0.0, 0.5):
        share = np.array([1.0, *[rest] * others]) if of.wants.asks[:, 0].any() else np.ones(1 + others)
        yield of.wants.split(np.broadcast_to(share, (groups, len(of.wants.parts), 1 + others)), anything(of).least)


def descended(of: Problem, limit: int, steps: int) -> int:
    """The lowest value found in so many steps."""
    return min(answer.value for answer, _ in descent(of, limit, steps))


def descent(of: Problem, limit: int, steps: int) -> Iterator[tuple[Answer, Prices]]:
    """Whatever is tried, in so many steps (the first ones at least)."""
    started = []
    for prices in first(of):
        answer = relaxed(of, prices, limit)
        started.append((answer, prices))
        yield answer, prices
    answer, prices = min(started, key=lambda one: one[0].value)
    best, at, split = answer.value, _flat(prices), prices.split
    ways = _ways(of, limit)
    slope, aim, futile = _slope(of, answer, limit), FIRST, 0
    for _ in range(steps - len(started)):
        down = np.where((at <= 0) & (slope > 0), 0, slope)
        norm = float((ways * down * down).sum())
        if norm <= 0 or aim < LAST:
            break
        there = np.clip(at - aim * max(abs(best), of.scale) / norm * ways * down, 0, dearest(of))
        prices = _prices(of, there, split)
        answer = relaxed(of, prices, limit)
        yield answer, prices
        if answer.value < best:
            best, at, futile = answer.value, there, 0
        elif (futile := futile + 1) >= PATIENCE:
            aim, futile = aim * 2 / 3, 0
        slope = MEMORY * _slope(of, answer, limit) + (1 - MEMORY) * slope


def _ways(of: Problem, limit: int) -> np.ndarray:
    """By price, how far it may go: more, the fewer there are of what it is for."""
    one = of.scale / of.bins_each
    sizes = np.maximum(one * of.size / of.full, one * of.rest.sum(axis=1) / REST / 3)
    nodes = np.bincount(of.nodes.group, of.nodes.many, len(of.admits))
    rest = np.repeat(of.scale / 10 / np.maximum(nodes, 1), of.rest.shape[1])
    return np.concatenate([np.maximum(sizes, one / of.full) / np.maximum(of.number, 1), rest, [of.scale / 10 / max(limit, 1)]])


def _flat(prices: Prices) -> np.ndarray:
    return np.concatenate([prices.pods, prices.rest.ravel(), [prices.move]]).astype(float)


def _prices(of: Problem, flat: np.ndarray, split: np.ndarray) -> Prices:
    whole, classes = np.rint(flat).astype(np.int64), len(of.size)
    return Prices(whole[:classes], whole[classes:-1].reshape(len(of.admits), -1), int(whole[-1]), split, anything(of).least)


def _slope(of: Problem, answer: Answer, limit: int) -> np.ndarray:
    pods, spare = answer.inside.sum(axis=0) - of.number, answer.spare.sum(axis=0)
    if of.wants is not None:
        nodes = np.bincount(of.nodes.group, of.nodes.many, len(of.admits))
        spare -= np.array([units[answer.steps[:, r]] * nodes for r, (units, _) in enumerate(of.wants.steps)]).reshape(spare.T.shape).T / REST
    return np.concatenate([pods, spare.ravel(), [limit - answer.moves.sum()]])
