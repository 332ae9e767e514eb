"""A plan in one unit: what it wins and what it costs, whichever planner made it and whatever its objective was."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from restow.contracts.ids import Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Dear, GangsWorth, Missed, Move, Worth
from restow.domain.autoscalers import cordoned_for
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.block_worth import BlockWorth, Tally
from restow.domain.defragmentation.costs import PREFERENCES, USUAL, Costs
from restow.domain.defragmentation.demand_mix import Wanted, WantedGang, gang_mix
from restow.domain.defragmentation.prices import Prices
from restow.domain.defragmentation.usable_worth import UsableWorth, loads_of
from restow.domain.fragmentation import FreeCapacity
from restow.domain.fragmentation.fitting import usable
from restow.domain.state import ClusterState

DEAREST = 10
"""Moves whose costs are told in full."""


class Appraisal:
    """For one plan. As the state is when it is made."""

    def __init__(
        self, state: ClusterState, args: DefragmentationArgs, time: Millis, wanted: tuple[Wanted, ...] | None = None, gangs: tuple[WantedGang, ...] | None = None
    ) -> None:
        """`wanted` and `gangs`: by demands of another moment."""
        self.state, self.hours, self._wanted, self._gangs = state, args.horizonHours, wanted, gangs
        self.prices = Prices(state, args.prices)
        self.costs = Costs(state, USUAL | args.costs, time, self.prices)

    @cached_property
    def usable(self) -> UsableWorth:
        """What free capacity is worth. O(pods)."""
        return UsableWorth(self.state, self.prices, self.hours, self._wanted)

    @cached_property
    def blocks(self) -> BlockWorth:
        """What whole free blocks are worth besides; nothing where free nodes are given back. O(pods)."""
        gangs = gang_mix(self.state, self.prices.sizes) if self._gangs is None else self._gangs
        return BlockWorth(self.state, self.prices, self.hours, () if self.state.migration_config.emptied != "none" else gangs)

    def total(
        self, capacity: FreeCapacity | None = None, more: Mapping[NodeName, int] | None = None, only: np.ndarray | None = None, emptied: PlanId | None = None
    ) -> int:
        """Of all nodes that are ready and schedulable, and of whole blocks of them, as they are or with this capacity, and `more` pods on these nodes. `only`, `(nodes,) bool`: of these. `emptied`: also of those
        that were cordoned for this plan, to be taken away."""
        open = self._open(emptied) if only is None else self._open(emptied) & only
        return int(self._worths(open, capacity, more)[1].sum()) + self._tally(open, capacity).total

    def each(self) -> dict[NodeName, int]:
        """Of each node by itself, as they are; whole blocks of them (`whole`) come on top."""
        rows, found = self._worths(self._open(), None, None)
        return dict(zip([self.state.table.names[row] for row in rows.tolist()], found.tolist(), strict=True))

    def whole(self) -> Tally:
        """What whole blocks are worth besides, as they are."""
        return self._tally(self._open(), None)

    def _open(self, emptied: PlanId | None = None) -> np.ndarray:
        """`(nodes,) bool`: the rows that count."""
        table = self.state.table
        open = usable(self.state) & table.alive
        if emptied is not None:
            open |= table.mask(name for name, node in self.state.nodes.items() if node.ready and cordoned_for(node, self.state.log) == emptied)
        return open

    def _worths(self, open: np.ndarray, capacity: FreeCapacity | None, more: Mapping[NodeName, int] | None) -> tuple[np.ndarray, np.ndarray]:
        """Which rows these are, and what each is worth."""
        table, loads, rows = self.state.table, loads_of(self.state), np.flatnonzero(open)
        for name, count in (more or {}).items():
            loads[table.rows[name]] += count
        of = table if capacity is None else capacity
        return rows, self.usable.many(rows, of.free[rows], of.device_free[rows], loads[rows])

    def _tally(self, open: np.ndarray, capacity: FreeCapacity | None) -> Tally:
        of = self.state.table if capacity is None else capacity
        return self.blocks.tally(of.free, of.device_free, open)

    def _gangs_worth(self, capacity: FreeCapacity | None) -> tuple[GangsWorth, ...]:
        """Of each class of gangs that are to be near to each other, before and with this capacity."""
        if not self.blocks.classes:
            return ()
        before = self.whole()
        after, found = before if capacity is None else self._tally(self._open(), capacity), []
        for k, alike in enumerate(self.blocks.classes):
            (had, was), (has, will), v = before.of_class(k), after.of_class(k), alike.gang.one.v
            devices, milli = (v.devices.count, v.devices.milli) if v.devices is not None else (0, 0)
            found.append(GangsWorth(alike.number, alike.name, alike.gang.pods, devices, milli, had, has, was, will))
        return tuple(found)

    def worth(self, moves: Sequence[Move], capacity: FreeCapacity | None, more: Mapping[NodeName, int], missed: Missed | None = None) -> Worth:
        """Of a plan with these moves, which say what they cost (`priced`), and with this capacity afterwards."""
        before = self.total()
        after = before if capacity is None else self.total(capacity, more)
        return Worth(self.prices.unit, self.hours, before, after, sum(move.cost for move in moves), self._dearest(moves), missed, self._gangs_worth(capacity))

    def _dearest(self, moves: Sequence[Move]) -> tuple[Dear, ...]:
        known = [move for move in moves if move.pod in self.state.pods]
        found = sorted(known, key=lambda move: (-move.cost, move.namespace, move.name, move.migration))[:DEAREST]
        return tuple(Dear(move.migration, move.cost, self._parts(move)) for move in found)

    def _parts(self, move: Move) -> dict[str, int]:
        parts = {kind: part for kind, part in self.costs.parts(move.pod, as_one=bool(move.gang)).items() if part}
        # What depends on where it goes, its planner has found out.
        less = move.cost - sum(parts.values())
        return parts | {PREFERENCES: less} if less > 0 else parts

    def priced(self, moves: Sequence[Move]) -> tuple[Move, ...]:
        """With what each costs, where their planner has not said it."""
        return tuple(
            msgspec.structs.replace(move, cost=self.costs.cost(move.pod, as_one=bool(move.gang))) if not move.cost and move.pod in self.state.pods else move for move in moves
        )


def waiting(state: ClusterState) -> frozenset[PodUid]:
    """Who has no node, and for whom nothing is kept: neither decided, nor nominated, nor held by a move."""
    kept = (state.placed, state.nominations, state.successors)
    return frozenset(uid for uid, pod in state.pods.items() if pod.live.node is None and not any(uid in some for some in kept))


def as_if_without(state: ClusterState, pods: Iterable[PodUid]) -> tuple[FreeCapacity, dict[NodeName, int]]:
    """Capacity, and pods that count more (here: fewer) by node, as if these had no node. What those who waited have taken since a plan was made was
    free because of it, or would be: it is won like what nobody has taken yet. So is what its old pods have while they end."""
    capacity, loads = FreeCapacity(state.table), Counter[NodeName]()
    for uid in sorted(pods):
        if uid in state.pods and (charge := state.charges.get(uid)) is not None:
            capacity.take(state.table.rows[charge.node], state.vectors[state.pods[uid].fact.shape], state.devices_of(uid), -1)
            loads[charge.node] -= uid not in state.victims  # Those are no load (`loads_of`).
    return capacity, dict(loads)


def appraisal_of(state: ClusterState) -> Appraisal | None:
    """By the policy that is in force, at the time of the state; None without one."""
    args = state.migration_config.defragmentation
    return None if args is None else Appraisal(state, args, Millis(state.time))
