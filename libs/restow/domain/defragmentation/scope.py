"""What a policy lets a plan of Defragmentation do: whose pods may go, which nodes take part, and how many may go at most.

Who may go is the business of the profile's filter plugins, and which limits there are that of the policy: both are asked here as they
are (`descheduling.interpreter` makes one of a policy). Without a policy everything is allowed that the rules of `evictable` allow.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from restow.contracts.ids import NodeName, PodUid
from restow.domain.eviction_budgets import Left
from restow.domain.state import ClusterState
from restow.domain.verdicts import PER_NAMESPACE, PER_NODE


class Quota:
    """Pods that may be taken from one node, and of one namespace; None for any number; and what the eviction budgets have left. `on_node` and `in_namespace` are what
    others of the same pass have taken."""

    def __init__(
        self,
        per_node: int | None,
        per_namespace: int | None,
        on_node: Mapping[NodeName, int] | None = None,
        in_namespace: Mapping[str, int] | None = None,
        budgets: Left | None = None,
    ) -> None:
        self.per_node, self.per_namespace = per_node, per_namespace
        self._on_node, self._in_namespace = Counter(on_node or {}), Counter(in_namespace or {})
        self._budgets = budgets.copy() if budgets is not None and budgets.bounds else None

    @property
    def bounds(self) -> bool:
        return self.per_node is not None or self.per_namespace is not None or self.has_budgets

    @property
    def has_budgets(self) -> bool:
        return self._budgets is not None

    def copy(self) -> "Quota":
        return Quota(self.per_node, self.per_namespace, self._on_node, self._in_namespace, self._budgets)

    def charged(self, pod: PodUid, node: NodeName) -> tuple[str, ...]:
        """The eviction budgets that are charged where it leaves this node."""
        return self._budgets.charged(pod, node) if self._budgets is not None else ()

    def nothing_left(self, pod: PodUid, node: NodeName) -> str:
        """The eviction budget that allows no move of this pod, as a verdict; "" where none."""
        return self._budgets.reached(self._budgets.charged(pod, node)) if self._budgets is not None else ""

    def over_budget(self, charged: Mapping[str, int]) -> str:
        """The eviction budget that is broken where so many are charged, as a verdict; "" where none."""
        return self._budgets.exceeded(charged) if self._budgets is not None else ""

    def reached(self, node: NodeName, namespace: str, charged: Sequence[str] = ()) -> str:
        """The limit that one more would break, as a verdict; "" where none."""
        if self.per_node is not None and self._on_node[node] >= self.per_node:
            return PER_NODE
        if self.per_namespace is not None and self._in_namespace[namespace] >= self.per_namespace:
            return PER_NAMESPACE
        return self.over_budget(dict.fromkeys(charged, 1))

    def take(self, node: NodeName, namespace: str, charged: Sequence[str] = ()) -> None:
        self._on_node[node] += 1
        self._in_namespace[namespace] += 1
        if self._budgets is not None:
            self._budgets.take(charged)

    def exceeded(self, node: NodeName, leaving: int, namespace: str, going: int) -> str:
        """The limit that is broken where so many leave the node, and go of the namespace; "" where none."""
        if self.per_node is not None and self._on_node[node] + leaving > self.per_node:
            return PER_NODE
        if self.per_namespace is not None and self._in_namespace[namespace] + going > self.per_namespace:
            return PER_NAMESPACE
        return ""


class Scope:
    """`why_not` is the filter's word on a pod, `Word: sentence`, "" where it may go. `sources` and `targets` are the only nodes that
    pods may leave and land on, None for all. `gangs`: whether those that start again may be moved as one."""

    def __init__(
        self,
        why_not: Callable[[PodUid], str] | None = None,
        sources: frozenset[NodeName] | None = None,
        targets: frozenset[NodeName] | None = None,
        quota: Quota | None = None,
        gangs: bool = True,
    ) -> None:
        self.why_not, self.sources, self.targets = why_not, sources, targets
        self.quota, self.gangs = quota or Quota(None, None), gangs

    def without_gangs(self) -> "Scope":
        return Scope(self.why_not, self.sources, self.targets, self.quota, gangs=False)

    def open_rows(self, state: ClusterState) -> np.ndarray:
        """`(nodes,) bool`: rows that pods may land on."""
        return _mask(state, self.targets)

    def leavable_rows(self, state: ClusterState) -> np.ndarray:
        """`(nodes,) bool`: rows that pods may leave."""
        return _mask(state, self.sources)


EVERYTHING = Scope()


def _mask(state: ClusterState, names: frozenset[NodeName] | None) -> np.ndarray:
    return np.ones(len(state.table.names), bool) if names is None else state.table.mask(names)
