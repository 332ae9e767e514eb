"""Prices of pods and of a move down the slope of what no plan made of known patterns exceeds (`pricing`).

Each price goes against the mean of what came or left too much of late, in steps as long as this mean is regular: of a class that is in excess one time and short the next time
they are short ones (as in Adam: Kingma and Ba, 2015, https://arxiv.org/abs/1412.6980), and all become shorter by and by. Where many prices turn each time, their mean of late is better
than any of them, so that is looked at, too. All in integers.
"""

import numpy as np

from restow.domain.defragmentation.optimizing.patterns import Prices, Table

STEPS = 200
FIRST, SHORTER = 10, 4
"""A step is one part in `FIRST` of the price at first, and shorter by `SHORTER` parts in all of the steps each time."""
LEAST, LEAST_MOVE = 16, 4
"""Of a price that is lower than one part in so many of the price of a device, it is as if it were that; the same of a move's."""
LATE, LONG, MEAN = 5, 50, 20
"""Times of which a mean is taken: of what is in excess, of its squares, and of prices."""
LOOKED = 5
"""The mean of the prices is looked at every so many times."""
ONE = 1 << 10


def descended(table: Table, centre: Prices, limit: int, device: int, most: int, steps: int = STEPS) -> Prices:
    """The best that are found from these in so many steps, none above `most`. `limit`: on moves; `device`: about the price of one."""
    at = np.append(centre.pods, centre.move)
    least = np.full(len(at), device // LEAST + 1)
    least[-1] = device // LEAST_MOVE + 1
    best, mean = (total(table, centre, limit), centre), at.copy()
    late, squares, part = np.zeros(len(at), np.int64), np.zeros(len(at), np.int64), FIRST * ONE
    for nth in range(1, steps + 1):
        best, slope = _looked_at(table, at, limit, best)
        late += (slope * ONE - late) // min(nth, LATE)
        squares += (slope * slope * ONE - squares) // min(nth, LONG)
        # A root of a float is the same one on every machine.
        regular = late * ONE // np.maximum(np.sqrt(squares * ONE).astype(np.int64), 1)
        at = np.clip(at - np.maximum(at, least) * ONE // part * regular // ONE, 0, most)
        part += part * SHORTER // steps
        mean += (at - mean) // min(nth, MEAN)
        if nth % LOOKED == 0:
            best, _ = _looked_at(table, mean, limit, best)
    return best[1]


def total(table: Table, prices: Prices, limit: int) -> int:
    """What no plan made of these patterns exceeds."""
    return int(np.maximum.reduceat(table.scores(prices), table.first).sum()) + prices.move * limit


def _looked_at(table: Table, at: np.ndarray, limit: int, best: tuple[int, Prices]) -> tuple[tuple[int, Prices], np.ndarray]:
    """The better ones of these and the best so far, and how many more come than leave at these, by class, and at last how many more moves there may be."""
    prices = Prices(at[:-1].copy(), int(at[-1]))
    chosen, reached = table.reached(prices, limit)
    return (best if best[0] <= reached else (reached, prices)), table.slope(chosen, len(at) - 1, limit)
