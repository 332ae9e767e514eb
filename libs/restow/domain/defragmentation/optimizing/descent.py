"""Prices at which no plan made of known patterns is worth more than little beyond the best one, and about what part of each pattern that one has (`pricing`).

What no plan exceeds goes down with prices against the mean of what comes and leaves too much of late, from the best prices so far: the volume algorithm (Barahona and Anbil, Mathematical Programming 87, 2000,
https://doi.org/10.1007/s101070050002). The same mean of the patterns that were best is near to the best mixture of patterns of each node. All in integers.
"""

from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.optimizing.patterns import Prices, Table

ONE = 1 << 16
"""Of a pattern, all of it."""
MEAN = 20
"""One in so many parts of the mean is the last one."""
STEP, LONGEST, UNIT = 100_000, 2_000_000, 1_000_000
"""Of what is between the best mixture and what no plan exceeds, the part that a step is to close: at first, and at most, in millionths."""
PATIENCE = 10
"""Steps in vain, one after the other, before they become shorter by a third."""
LEAST = 1_000
"""Of what no plan exceeds a step is to close one in so many parts at least."""


class Descent(NamedTuple):
    """`bound`: what no plan made of the patterns exceeds at these prices. `parts`: `(patterns,) int64`, of `ONE` for each node."""

    prices: Prices
    bound: int
    parts: np.ndarray


def descend(table: Table, prices: Prices, limit: int, most: int, steps: int) -> Descent:
    """From these prices, no price above `most`. `limit`: on moves."""
    centre, classes = [*prices.pods.tolist(), prices.move], len(prices.pods)
    chosen, least = table.reached(prices, limit)
    mean = table.slope(chosen, classes, limit) * ONE
    parts, value, step, vain = np.zeros(len(table.patterns), np.int64), int(table.value[chosen].sum()), STEP, 0
    parts[chosen] = ONE
    for _ in range(steps):
        slope = mean.tolist()
        norm = sum([one * one for at, one in zip(centre, slope, strict=True) if at or one < 0])
        if not norm:
            break
        scale = step * max(abs(least - value), least // LEAST) * ONE // UNIT
        tried = [min(max(at - scale * one // norm, 0), most) for at, one in zip(centre, slope, strict=True)]
        prices_now = Prices(np.array(tried[:-1], np.int64), tried[-1])
        chosen, reached = table.reached(prices_now, limit)
        new = table.slope(chosen, classes, limit)
        parts -= parts // MEAN
        parts[chosen] += ONE // MEAN
        mean += (new * ONE - mean) // MEAN
        value += (int(table.value[chosen].sum()) - value) // MEAN
        if reached < least:
            centre, least, prices, vain = tried, reached, prices_now, 0
            if sum([one * other for one, other in zip(slope, new.tolist(), strict=True)]) > 0:
                step = min(step * 11 // 10, LONGEST)
        elif (vain := vain + 1) >= PATIENCE:
            step, vain = step * 2 // 3, 0
    return Descent(prices, least, parts)
