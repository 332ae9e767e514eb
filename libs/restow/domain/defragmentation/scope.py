"""What a policy lets a plan of Defragmentation do: whose pods may go, which nodes take part, and how many may go at most.

Who may go is the business of the profile's filter plugins, and which limits there are that of the policy: both are asked here as they
are (`descheduling.interpreter` makes one of a policy). Without a policy everything is allowed that the rules of `evictable` allow.
"""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from restow.contracts.ids import NodeName, PodUid
from restow.domain.state import ClusterState
from restow.domain.verdicts import PER_NAMESPACE, PER_NODE


class Quota:
    """Pods that may be taken from one node, and of one namespace; None for any number. `on_node` and `in_namespace` are what others of
    the same pass have taken."""

    def __init__(
        self,
        per_node: int | None,
        per_namespace: int | None,
        on_node: Mapping[NodeName, int] | None = None,
        in_namespace: Mapping[str, int] | None = None,
    ) -> None:
        self.per_node, self.per_namespace = per_node, per_namespace
        self._on_node, self._in_namespace = Counter(on_node or {}), Counter(in_namespace or {})

    @property
    def bounds(self) -> bool:
        return self.per_node is not None or self.per_namespace is not None

    def copy(self) -> "Quota":
        return Quota(self.per_node, self.per_namespace, self._on_node, self._in_namespace)

    def reached(self, node: NodeName, namespace: str) -> str:
        """The limit that one more would break, as a verdict; "" where none."""
        if self.per_node is not None and self._on_node[node] >= self.per_node:
            return PER_NODE
        if self.per_namespace is not None and self._in_namespace[namespace] >= self.per_namespace:
            return PER_NAMESPACE
        return ""

    def take(self, node: NodeName, namespace: str) -> None:
        self._on_node[node] += 1
        self._in_namespace[namespace] += 1

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
