"""A plan in one unit: what it wins and what it costs, whichever planner made it and whatever its objective was."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec
import numpy as np

from restow.contracts.ids import Millis, NodeName, PlanId, PodUid
from restow.contracts.values import Dear, Missed, Move, Worth
from restow.domain.autoscalers import cordoned_for
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.costs import PREFERENCES, USUAL, Costs
from restow.domain.defragmentation.demand_mix import Wanted
from restow.domain.defragmentation.prices import Prices
from restow.domain.defragmentation.usable_worth import UsableWorth, loads_of
from restow.domain.fragmentation import FreeCapacity
from restow.domain.fragmentation.fitting import usable
from restow.domain.state import ClusterState

DEAREST = 10
"""Moves whose costs are told in full."""


class Appraisal:
    """For one plan. As the state is when it is made."""

    def __init__(self, state: ClusterState, args: DefragmentationArgs, time: Millis, wanted: tuple[Wanted, ...] | None = None) -> None:
        """`wanted`: by demands of another moment."""
        self.state, self.hours, self._wanted = state, args.horizonHours, wanted
        self.prices = Prices(state, args.prices)
        self.costs = Costs(state, USUAL | args.costs, time, self.prices)

    @cached_property
    def usable(self) -> UsableWorth:
        """What free capacity is worth. O(pods)."""
        return UsableWorth(self.state, self.prices, self.hours, self._wanted)

    def total(
        self, capacity: FreeCapacity | None = None, more: Mapping[NodeName, int] | None = None, only: np.ndarray | None = None, emptied: PlanId | None = None
    ) -> int:
        """Of all nodes that are ready and schedulable, as they are or with this capacity, and `more` pods on these nodes. `only`, `(nodes,) bool`: of these. `emptied`: also of those
        that were cordoned for this plan, to be taken away."""
        return int(self._rows(capacity, more, only, emptied)[1].sum())

    def each(self) -> dict[NodeName, int]:
        """The same of each node, as they are."""
        rows, found = self._rows(None, None, None, None)
        return dict(zip([self.state.table.names[row] for row in rows.tolist()], found.tolist(), strict=True))

    def _rows(
        self, capacity: FreeCapacity | None, more: Mapping[NodeName, int] | None, only: np.ndarray | None, emptied: PlanId | None
    ) -> tuple[np.ndarray, np.ndarray]:
        table, loads = self.state.table, loads_of(self.state)
        for name, count in (more or {}).items():
            loads[table.rows[name]] += count
        open = usable(self.state) & table.alive
        if emptied is not None:
            open |= table.mask(name for name, node in self.state.nodes.items() if node.ready and cordoned_for(node, self.state.log) == emptied)
        rows = np.flatnonzero(open if only is None else open & only)
        free, shares = (table.free, table.device_free) if capacity is None else (capacity.free, capacity.device_free)
        return rows, self.usable.many(rows, free[rows], shares[rows], loads[rows])

    def worth(self, moves: Sequence[Move], capacity: FreeCapacity | None, more: Mapping[NodeName, int], missed: Missed | None = None) -> Worth:
        """Of a plan with these moves, which say what they cost (`priced`), and with this capacity afterwards."""
        before = self.total()
        after = before if capacity is None else self.total(capacity, more)
        return Worth(self.prices.unit, self.hours, before, after, sum(move.cost for move in moves), self._dearest(moves), missed)

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
