"""Volcano's proportional predicate: who does not ask for a scarce resource leaves cpu and memory for those who will."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from restow.contracts.events import PodObserved
from restow.domain.quantity import CPU
from restow.domain.resources import GPU_UNIT, MEMORY, canonical_resource
from restow.domain.session.args import thousandths
from restow.domain.session.framework import Filter
from restow.domain.session.plugins.predicates.args import Args
from restow.domain.state import ClusterState

GIGABYTE_MILLI = 1_000_000
"""Bytes in a thousandth of what `.memory` counts: 10⁹, as Volcano takes it."""
_MOST = 1 << 62


class Proportional(Filter):
    """For each unit of a resource that is idle on a node, its rate of cpu and memory stays idle, too. What is idle the table says, which the
    session has charged."""

    stage, shrinks, of_capacity, for_others = "proportional", False, True, True

    def __init__(self, state: ClusterState, args: Args) -> None:
        self._table = state.table
        self._shapes = state.shapes
        self._vectors = state.vectors
        rates = sorted(args.resources.items())
        self._columns = frozenset(canonical_resource(name) for name, _ in rates)
        self._rates = [
            (
                f"proportional of resource {name} check failed",
                self._table.columns[canonical_resource(name)],
                GPU_UNIT.get(name, 1),
                ((CPU, thousandths(name, rate.cpu)), (MEMORY, thousandths(name, rate.memory) * GIGABYTE_MILLI)),
            )
            for name, rate in rates
            if canonical_resource(name) in self._table.columns
        ]

    def concerns(self, pod: PodObserved) -> bool:
        """Who asks for any of these resources takes what it needs."""
        requests = self._shapes[pod.shape].requests
        return bool(self._rates) and not any(requests.get(column) for column in self._columns)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return self._short(pod, self._table.free)

    def never(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return self._short(pod, self._table.allocatable)

    def _short(self, pod: PodObserved, idle: np.ndarray) -> list[tuple[str, np.ndarray]]:
        """Of idle amounts `(nodes, resources) int64`."""
        asked = dict(self._vectors[pod.shape].items)
        found = []
        for reason, column, unit, rates in self._rates:
            rows = np.zeros(len(idle), bool)
            for resource, rate in rates:
                at = self._table.columns.get(resource)
                if at is None or not rate:
                    continue
                # `rate` a unit against what is left, without fractions; so much that it cannot be counted is too much anyway.
                kept = np.clip(idle[:, column], 0, _MOST // rate) * rate
                rows |= (idle[:, at] - asked.get(at, 0)) * unit < kept
            found.append((reason, rows & self._table.alive))
        return found
