"""Which nodes are sources and which are targets (seed 000, 2.2, 2.3.1 and 2.3.3; RULES 000-4).

Utilisation is what pods request and holds reserve, over allocatable, of the one resource that classifies. Only nodes that
are ready and schedulable take part: capacity that is freed elsewhere is of no use to anybody.
"""

from typing import NamedTuple

import numpy as np

from restow.contracts.ids import Millis, NodeName
from restow.domain.autoscalers import may_go
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.args import THRESHOLDS, threshold
from restow.domain.defragmentation.cooling import rests
from restow.domain.defragmentation.scope import EVERYTHING, Scope
from restow.domain.fragmentation.fitting import usable
from restow.domain.node_table import NO_DEVICE, WHOLE
from restow.domain.protection import is_revocable
from restow.domain.resources import canonical_resource
from restow.domain.session.window_nodes import closed
from restow.domain.state import ClusterState
from restow.domain.verdicts import COOLDOWN, CRITICAL_NODE

SCALE = 10_000
"""Utilisation is ordered in these parts of one (bounds are compared exactly)."""
CRITICAL = "critical"
_FITS = (1 << 63) // (2 * SCALE)
"""Amounts from here on would overflow when scaled; they are computed with Python's integers."""


class Nodes(NamedTuple):
    """`sources` and `targets` are rows: sources by ascending utilisation, ties by name. `column` is the classifying
    resource's; `floor` `(nodes,)`, in its unit: what must stay free, so that a node stays below the protection threshold.

    With `share` (per device; -1 where that is not asked for) utilisation is of the devices in use only, and protected is not
    the node but each device that pods share: at most `share` thousandths of it are used."""

    column: int
    sources: np.ndarray
    targets: np.ndarray
    floor: np.ndarray
    share: int = -1


def in_use(device_free: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """`(nodes,) int64` each: thousandths that are used of the devices in use, and what these have in all. `device_free`
    `(nodes, devices)`."""
    used = np.where(device_free > NO_DEVICE // 2, np.clip(WHOLE - device_free, 0, WHOLE), 0)
    return used.sum(axis=1), (used > 0).sum(axis=1) * WHOLE


def scaled(usage: np.ndarray, allocatable: np.ndarray) -> np.ndarray:
    """`(nodes,) int64`: utilisation in parts of SCALE, rounded down, up to twice what is allocatable; 0 where nothing is."""
    total = np.where(allocatable > 0, allocatable, 1)
    # Whoever binds a pod may write any number into it.
    return np.minimum(usage * SCALE // total, 2 * SCALE).astype(np.int64)


def exact(amounts: np.ndarray) -> np.ndarray:
    """The same amounts, as Python integers where a product with SCALE could overflow."""
    if amounts.size and int(np.abs(amounts).max()) >= _FITS:
        return amounts.astype(object)
    return amounts


def classify(state: ClusterState, args: DefragmentationArgs, time: Millis, scope: Scope = EVERYTHING) -> Nodes:
    """What planned moves have been promised is charged already."""
    table = state.table
    none = np.zeros(0, np.int64)
    column = table.columns.get(canonical_resource(args.resourceType))
    if column is None:
        return Nodes(-1, none, none, np.zeros(len(table.names), np.int64))
    low, defragment, protection = (threshold(args, name) for name in THRESHOLDS)
    allocatable = exact(table.allocatable[:, column])
    usage = allocatable - exact(table.free[:, column])
    open_rows = table.alive & (table.allocatable[:, column] > 0) & usable(state)
    if args.perDevice:
        usage, allocatable = in_use(table.device_free)
        open_rows &= allocatable > 0
    below = open_rows & scope.leavable_rows(state) & (usage * 100 < allocatable * low).astype(bool)
    between = (usage * 100 > allocatable * defragment) & (usage * 100 < allocatable * protection)
    sources = np.array([row for row in np.flatnonzero(below) if not spared(state, args, time, int(row))], np.int64)
    order = np.lexsort((table.rank[sources], scaled(usage, allocatable)[sources]))
    cap = (allocatable * protection - 1) // 100
    targets = np.flatnonzero(open_rows & scope.open_rows(state) & between.astype(bool))
    share = (WHOLE * protection - 1) // 100 if args.perDevice else -1
    return Nodes(column, sources[order], targets, (allocatable - cap).astype(np.int64), share)


def promised_to_others(state: ClusterState, time: Millis) -> np.ndarray:
    """`(nodes,) bool`: rows that tasks of starving jobs wait for, or that a window keeps: no hold would be placed there (RULES G-8); and those that
    an autoscaler takes away, or would like to, or that Volcano gives by the clock."""
    return state.table.mask(state.reserved_on) | closed(state, time) | state.table.mask(name for name, node in state.nodes.items() if may_go(node) or is_revocable(node))


def spared(state: ClusterState, args: DefragmentationArgs, time: Millis, row: int) -> str:
    """Why nothing leaves the node: critical, or in its cooldown; empty where something may."""
    name = NodeName(state.table.names[row])
    if state.nodes[name].labels.get(CRITICAL) == "true":
        return CRITICAL_NODE
    last = state.cooling.get(name)
    return COOLDOWN if last is not None and rests(args, last, time) else ""
