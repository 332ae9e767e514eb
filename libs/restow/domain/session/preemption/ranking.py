"""Which nodes could be freed for a request, and at what cost, by amounts alone: all nodes at once.

What plugins and rules add can only make a node's highest victim more important, so this is where a search begins.
"""

from collections.abc import Iterable

import numpy as np

from restow.contracts.events import PodObserved
from restow.domain.occupants import Who
from restow.domain.session.preemption.coming import Coming
from restow.domain.session.preemption.crowd import VACANT, Crowd
from restow.domain.session.run import Session

Key = tuple[int, int, int, int, int]
"""What it costs to free a node, the cheapest first, as kube-scheduler orders them: the highest priority among the victims,
the sum of their priorities (each from the least that there is, so that more victims cost more), how many they are, when the
first of the highest ones started (the latest is the cheapest), and the node's name."""

FREE = -(1 << 62)
"""In place of a priority, where there is no victim."""
LEAST_PRIORITY = -(1 << 31)


class Line:
    """Those of the crowd who come into question for a claimer, row by row, in each the most important first."""

    def __init__(self, crowd: Crowd, chosen: np.ndarray) -> None:
        at = np.flatnonzero(chosen)
        # A priority has 32 bits: row and priority are one key.
        place = (crowd.row[at] << 33) + (1 << 32) - crowd.priority[at]
        at = at[np.lexsort((crowd.order[at], crowd.since[at], place))]
        self.priority, self.since, self.amounts = crowd.priority[at], crowd.since[at], crowd.amounts[at]
        self.rows, self.first, self.count = np.unique(crowd.row[at], return_index=True, return_counts=True)

    @staticmethod
    def of(crowd: Crowd, queue: str, other_queues: bool, below: int | None, holds_below: int, spared: Iterable[Who]) -> "Line":
        """Of the same queue or of all others; `below`: only whose job may have a lower priority. Holds of the same queue that are
        below `holds_below` come into question, too. Who is `spared` does not, whatever it is."""
        number = crowd.number(queue)
        chosen = (crowd.row != VACANT) & ~crowd.kept
        chosen &= (crowd.queue != number) if other_queues else (crowd.queue == number)
        pods = ~crowd.hold if below is None else ~crowd.hold & (crowd.least < below)
        chosen &= pods if other_queues else pods | (crowd.hold & (crowd.priority < holds_below))
        slots = [slot for who in spared if (slot := crowd.slot(who)) is not None]
        chosen[slots] = False
        return Line(crowd, chosen)


def ranked(session: Session, coming: Coming, pod: PodObserved, line: Line, open_rows: np.ndarray) -> list[tuple[Key, int]]:
    """(key, row), the cheapest first, of the rows in `open_rows` `(nodes,) bool` where there is room enough once all of the
    line have gone. Of devices only those that are asked for together are counted, as amounts."""
    table, v = session.state.table, session.state.vectors[pod.shape]
    columns = v.columns
    room = table.free[:, columns] + table.releasing[:, columns] + coming.dense()[:, columns]
    amounts = line.amounts[:, columns]
    if len(line.rows):
        room[line.rows] += np.add.reduceat(amounts, line.first, axis=0)
    able = open_rows & (room >= v.amounts).all(axis=1)
    nodes = len(able)
    worst = np.full(nodes, FREE, np.int64)
    total, count, since = (np.zeros(nodes, np.int64) for _ in range(3))
    here = able[line.rows] if len(line.rows) else np.zeros(0, bool)
    rows, first, many = line.rows[here], line.first[here], line.count[here]
    for nth in range(int(many.max()) if len(many) else 0):
        still = many > nth
        row, at = rows[still], first[still] + nth
        stays = (room[row] - amounts[at] >= v.amounts).all(axis=1)
        room[row[stays]] -= amounts[at[stays]]
        row, at = row[~stays], at[~stays]
        highest = count[row] == 0
        worst[row[highest]], since[row[highest]] = line.priority[at[highest]], line.since[at[highest]]
        total[row] += line.priority[at] - LEAST_PRIORITY
        count[row] += 1
    found = np.flatnonzero(able)
    keys = (worst[found], total[found], count[found], -since[found], table.rank[found])
    order = np.lexsort(keys[::-1])
    columns_of = [key[order].tolist() for key in keys]
    return list(zip(zip(*columns_of, strict=True), found[order].tolist(), strict=True))  # type: ignore[arg-type]
