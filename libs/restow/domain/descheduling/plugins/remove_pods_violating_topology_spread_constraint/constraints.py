"""Spread constraints made concrete: equal ones of different pods are balanced once."""

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.contracts.values import PodShape, Spread
from restow.domain.descheduling.framework import Handle
from restow.domain.predicates import selected, tolerated
from restow.domain.topology.terms import Rule, spread_rule

HONOR = "Honor"
FEW = 100


class Choice(NamedTuple):
    """What of a pod decides which nodes are eligible; None where a policy ignores it."""

    affinity: Hashable
    tolerations: Hashable


class Constraint(NamedTuple):
    """Whom it counts (`rule`), where (`eligible`), and how far domains may differ."""

    rule: Rule
    topology_key: str
    max_skew: int
    when: str
    min_domains: int
    eligible: Choice


class Grid(NamedTuple):
    """The eligible nodes, and by domain."""

    eligible: frozenset[NodeName]
    domains: dict[str, tuple[NodeName, ...]]


class Constraints:
    """Remembers what was made of a shape."""

    def __init__(self, handle: Handle):
        self._handle = handle
        self._known: dict[Hashable, tuple[Constraint, ...]] = {}
        self._shapes: dict[Choice, PodShape] = {}
        self._grids: dict[tuple[Choice, str], Grid] = {}
        self._unions: dict[tuple[Choice, str, tuple[str, ...]], tuple[NodeName, ...]] = {}
        self._nodes: dict[Choice, frozenset[NodeName]] = {}
        self._keys: dict[ShapeId, tuple[str, ...]] = {}

    def of(self, uid: PodUid) -> tuple[Constraint, ...]:
        """All of a pod, soft ones too."""
        state = self._handle.state
        pod = state.pods[uid]
        keys = self._keys.get(pod.shape)
        if keys is None:
            spread = state.shapes[pod.shape].spread
            keys = self._keys[pod.shape] = tuple(dict.fromkeys(key for s in spread for key in s.match_label_keys))
        asked = pod.shape, pod.namespace, tuple(pod.labels.get(key) for key in keys)
        found = self._known.get(asked)
        if found is None:
            shape = state.shapes[pod.shape]
            found = self._known[asked] = tuple(self._made(shape, s, pod.namespace, pod.labels) for s in shape.spread)
        return found

    def _made(self, shape: PodShape, spread: Spread, namespace: str, labels: dict[str, str]) -> Constraint:
        affinity = spread.node_affinity_policy == HONOR
        taints = spread.node_taints_policy == HONOR
        eligible = Choice(
            (tuple(sorted(shape.node_selector.items())), shape.node_affinity) if affinity else None,
            shape.tolerations if taints else None,
        )
        self._shapes.setdefault(eligible, shape)
        return Constraint(
            spread_rule(spread, namespace, labels),
            spread.topology_key,
            spread.max_skew,
            spread.when_unsatisfiable,
            max(spread.min_domains, 1),
            eligible,
        )

    def grid(self, constraint: Constraint) -> Grid:
        asked = constraint.eligible, constraint.topology_key
        grid = self._grids.get(asked)
        if grid is None:
            nodes = self._handle.state.nodes
            eligible = self._eligible(constraint.eligible)
            domains: dict[str, list[NodeName]] = {}
            for name in self._handle.nodes:
                value = nodes[name].labels.get(constraint.topology_key)
                if value is not None and name in eligible:
                    domains.setdefault(value, []).append(name)
            grid = self._grids[asked] = Grid(eligible, {value: tuple(domains[value]) for value in sorted(domains)})
        return grid

    def nodes(self, constraint: Constraint, domains: Sequence[str]) -> tuple[NodeName, ...]:
        """Of these domains. Where they are few the same answer comes again for other constraints."""
        asked = constraint.eligible, constraint.topology_key, tuple(domains)
        nodes = self._unions.get(asked)
        if nodes is None:
            by_domain = self.grid(constraint).domains
            nodes = tuple(node for domain in domains for node in by_domain.get(domain, ()))
            if len(domains) <= FEW:
                self._unions[asked] = nodes
        return nodes

    def _eligible(self, asked: Choice) -> frozenset[NodeName]:
        eligible = self._nodes.get(asked)
        if eligible is None:
            shape, nodes = self._shapes[asked], self._handle.state.nodes
            eligible = self._nodes[asked] = frozenset(
                name
                for name in self._handle.nodes
                if (asked.affinity is None or selected(shape, nodes[name]))
                and (asked.tolerations is None or tolerated(shape, nodes[name]))
            )
        return eligible
