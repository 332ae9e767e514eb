"""What a pod's place depends on besides the node: pods that it wants near or far, pods that want it far, spread, single-pod claims.

Counted once for an attempt over all pods, then changed by one pod at a time (a nominated one, a victim), as the real scheduler's
AddPod and RemovePod do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from restow.kubesim.objects import Obj
from restow.kubesim.placement import affinity_matches, selector_matches, untolerated
from restow.kubesim.podstate import PodKey, is_deleting, labels_of
from restow.kubesim.storage import claims_of

Labels = Mapping[str, str]
Domain = tuple[str, str]
"""(topology key, value)"""


def required(pod: Obj, kind: str) -> list[Obj]:
    """The hard terms of podAffinity or podAntiAffinity."""
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []


def hard_spread(pod: Obj) -> list[Obj]:
    constraints = pod["spec"].get("topologySpreadConstraints") or ()
    return [c for c in constraints if c.get("whenUnsatisfiable", "DoNotSchedule") == "DoNotSchedule"]


def is_social(pod: Obj) -> bool:
    """Whether other pods decide where it may be."""
    return bool(required(pod, "podAffinity") or required(pod, "podAntiAffinity") or hard_spread(pod))


def _selector(term: Obj, owner: Obj) -> dict[str, Any] | None:
    """The term's labelSelector with what matchLabelKeys and mismatchLabelKeys take from its owner."""
    selector, labels = term.get("labelSelector"), labels_of(owner)
    more = [
        {"key": key, "operator": operator, "values": [labels[key]]}
        for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn"))
        for key in term.get(field) or ()
        if key in labels
    ]
    if selector is None or not more:
        return selector
    return {**selector, "matchExpressions": [*(selector.get("matchExpressions") or ()), *more]}


class Pairs:
    """One attempt's counts. `namespaces` gives a namespace's labels, `single` the ReadWriteOncePod claims of the pod."""

    def __init__(self, pod: Obj, namespaces: Callable[[str], Labels], single: frozenset[PodKey]):
        self._pod, self._namespaces, self._single = pod, namespaces, single
        self._near, self._far = required(pod, "podAffinity"), required(pod, "podAntiAffinity")
        self._spread = hard_spread(pod)
        self._repelled: Counter[Domain] = Counter()
        self._far_count: Counter[Domain] = Counter()
        self._near_count: Counter[Domain] = Counter()
        self._domains: list[Counter[str]] = [Counter() for _ in self._spread]
        self._claimed = 0

    @property
    def wants(self) -> bool:
        """Whether the pod itself looks at others; otherwise only those that repel it matter."""
        return bool(self._near or self._far or self._spread or self._single)

    @property
    def repelled(self) -> bool:
        """Whether some pod wants it far away."""
        return bool(self._repelled)

    def count(self, nodes: Iterable[Obj], pods: Iterable[tuple[Obj, Obj]]) -> None:
        """Takes all nodes, and all pods (with their nodes) that matter."""
        if self._spread:
            for node in nodes:
                for constraint, domain in zip(self._spread, self._domains, strict=True):
                    if self._eligible(constraint, node):
                        domain.setdefault(labels_of(node)[constraint["topologyKey"]], 0)
        for pod, node in pods:
            self.change(pod, node, 1)

    def change(self, other: Obj, node: Obj, sign: int) -> None:
        """Another pod is on the node (1), or no longer (-1)."""
        where = labels_of(node)
        for term in required(other, "podAntiAffinity"):
            self._at(self._repelled, term, where, sign if self._matches(term, other, self._pod) else 0)
        for term in self._far:
            self._at(self._far_count, term, where, sign if self._matches(term, self._pod, other) else 0)
        if self._near and all(self._matches(term, self._pod, other) for term in self._near):
            for term in self._near:
                self._at(self._near_count, term, where, sign)
        for constraint, domain in zip(self._spread, self._domains, strict=True):
            if self._spreads_with(constraint, other) and self._eligible(constraint, node):
                domain[where[constraint["topologyKey"]]] += sign
        if self._single and not self._single.isdisjoint(claims_of(other)):
            self._claimed += sign

    def refusal(self, node: Obj) -> tuple[str, bool] | None:
        """Why the pod may not be on the node, and whether the removal of pods could help."""
        where = labels_of(node)
        if self._claimed > 0:
            return "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod", True
        refused = self._spread_refusal(where)
        if refused is not None:
            return refused
        if self._near and not self._near_ok(where):
            return "node(s) didn't match pod affinity rules", False
        if any(self._count(self._far_count, term, where) > 0 for term in self._far):
            return "node(s) didn't match pod anti-affinity rules", True
        if any(count > 0 and where.get(key) == value for (key, value), count in self._repelled.items()):
            return "node(s) didn't satisfy existing pods anti-affinity rules", True
        return None

    # -- inside -----------------------------------------------------------------------------------

    @staticmethod
    def _at(counter: Counter[Domain], term: Obj, where: Labels, sign: int) -> None:
        key = term["topologyKey"]
        if sign and key in where:
            counter[(key, where[key])] += sign

    @staticmethod
    def _count(counter: Counter[Domain], term: Obj, where: Labels) -> int:
        key = term["topologyKey"]
        return counter[(key, where[key])] if key in where else 0

    def _matches(self, term: Obj, owner: Obj, other: Obj) -> bool:
        namespace, named = other["metadata"]["namespace"], term.get("namespaces") or ()
        selector = term.get("namespaceSelector")
        inside = namespace in named or (selector is not None and selector_matches(selector, dict(self._namespaces(namespace))))
        if not named and selector is None:
            inside = namespace == owner["metadata"]["namespace"]
        return inside and selector_matches(_selector(term, owner), labels_of(other))

    def _near_ok(self, where: Labels) -> bool:
        if any(term["topologyKey"] not in where for term in self._near):
            return False
        if all(self._count(self._near_count, term, where) > 0 for term in self._near):
            return True
        # The first of a group that wants to be together has nobody to be near.
        nobody = not any(count > 0 for count in self._near_count.values())
        return nobody and all(self._matches(term, self._pod, self._pod) for term in self._near)

    def _spreads_with(self, constraint: Obj, other: Obj) -> bool:
        selector = _selector(constraint, self._pod)
        if selector is None or not (selector.get("matchLabels") or selector.get("matchExpressions")):
            # A selector without requirements counts nobody, though the pod itself matches it.
            return False
        same = other["metadata"]["namespace"] == self._pod["metadata"]["namespace"]
        return same and not is_deleting(other) and selector_matches(selector, labels_of(other))

    def _eligible(self, constraint: Obj, node: Obj) -> bool:
        labels = labels_of(node)
        if any(c["topologyKey"] not in labels for c in self._spread):
            return False
        spec = self._pod["spec"]
        if constraint.get("nodeAffinityPolicy", "Honor") == "Honor" and not affinity_matches(spec, node):
            return False
        return constraint.get("nodeTaintsPolicy", "Ignore") == "Ignore" or untolerated(spec, node, ("NoSchedule", "NoExecute")) is None

    def _spread_refusal(self, where: Labels) -> tuple[str, bool] | None:
        text = "node(s) didn't match pod topology spread constraints"
        for constraint, domain in zip(self._spread, self._domains, strict=True):
            key = constraint["topologyKey"]
            if key not in where:
                return f"{text} (missing required label)", False
            least = min(domain.values(), default=0)
            if len(domain) < (constraint.get("minDomains") or 1):
                least = 0
            itself = selector_matches(_selector(constraint, self._pod), labels_of(self._pod))
            if domain.get(where[key], 0) + itself - least > constraint["maxSkew"]:
                return text, True
        return None
