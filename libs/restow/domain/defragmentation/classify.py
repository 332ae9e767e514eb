"""Which nodes are sources and which are targets (seed 000, 2.2, 2.3.1 and 2.3.3; RULES 000-4).

Utilisation is what pods request and holds reserve, over allocatable, of the one resource that classifies. Only nodes that
are ready and schedulable take part: capacity that is freed elsewhere is of no use to anybody.
"""

import numpy as np

from restow.contracts.ids import Millis, NodeName
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.args import THRESHOLDS, threshold
from restow.domain.fragmentation import Room
from restow.domain.resources import canonical_resource
from restow.domain.state import ClusterState

SCALE = 10_000
"""Utilisation is ordered in these parts of one (bounds are compared exactly)."""
CRITICAL = "critical"
_FITS = (1 << 63) // (2 * SCALE)
"""Amounts from here on would overflow when scaled; they are computed with Python's integers."""


class Nodes:
    """`sources` and `targets` are rows: sources by ascending utilisation, ties by name. `column` is the classifying
    resource's; `usage` and `cap` are `(nodes,)`, in its unit: what is requested, and the most that stays below the
    protection threshold."""

    __slots__ = ("cap", "column", "sources", "targets", "usage")

    def __init__(self, column: int, sources: np.ndarray, targets: np.ndarray, usage: np.ndarray, cap: np.ndarray):
        self.column = column
        self.sources = sources
        self.targets = targets
        self.usage = usage
        self.cap = cap


def scaled(usage: np.ndarray, allocatable: np.ndarray) -> np.ndarray:
    """`(nodes,) int64`: utilisation in parts of SCALE, rounded down; 0 where nothing is allocatable."""
    total = np.where(allocatable > 0, allocatable, 1)
    return (usage * SCALE // total).astype(np.int64)


def exact(amounts: np.ndarray) -> np.ndarray:
    """The same amounts, as Python integers where a product with SCALE could overflow."""
    if amounts.size and int(np.abs(amounts).max()) >= _FITS:
        return amounts.astype(object)
    return amounts


def classify(state: ClusterState, args: DefragmentationArgs, time: Millis, room: Room) -> Nodes:
    """`room` has what planned moves have been promised taken out already."""
    table = state.table
    none = np.zeros(0, np.int64)
    column = table.columns.get(canonical_resource(args.resourceType))
    if column is None:
        return Nodes(-1, none, none, none, none)
    low, defragment, protection = (threshold(args, name) for name in THRESHOLDS)
    allocatable = exact(table.allocatable[:, column])
    usage = allocatable - exact(room.free[:, column])
    open_rows = table.alive & (table.allocatable[:, column] > 0) & _usable(state)
    below = open_rows & (usage * 100 < allocatable * low).astype(bool)
    between = (usage * 100 > allocatable * defragment) & (usage * 100 < allocatable * protection)
    sources = np.array([row for row in np.flatnonzero(below) if not _spared(state, args, time, int(row))], np.int64)
    order = np.lexsort((table.rank[sources], scaled(usage, allocatable)[sources]))
    cap = (allocatable * protection - 1) // 100
    return Nodes(
        column, sources[order], np.flatnonzero(open_rows & between.astype(bool)), usage.astype(np.int64), cap.astype(np.int64)
    )


def _usable(state: ClusterState) -> np.ndarray:
    mask = np.zeros(len(state.table.names), bool)
    rows = state.table.rows
    mask[[rows[name] for name, node in state.nodes.items() if node.ready and not node.unschedulable]] = True
    return mask


def _spared(state: ClusterState, args: DefragmentationArgs, time: Millis, row: int) -> bool:
    """Critical, or in its cooldown."""
    name = NodeName(state.table.names[row])
    if state.nodes[name].labels.get(CRITICAL) == "true":
        return True
    last = state.cooling.get(name)
    return last is not None and args.coolDownTime > 0 and time < last + args.coolDownTime * 1000
