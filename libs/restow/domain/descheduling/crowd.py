"""Pods, found by the terms and constraints that are about them: no term looks at every pod."""

from collections.abc import Iterable

from restow.contracts.ids import PodUid
from restow.domain.state import ClusterState
from restow.domain.topology.kinds import Kind, Kinds
from restow.domain.topology.terms import Rule


class Crowd:
    """A snapshot, in the order in which the pods were given. Pods of one namespace with equal labels are matched once."""

    def __init__(self, state: ClusterState, pods: Iterable[PodUid]):
        self._state = state
        self._kinds = Kinds()
        self._members: dict[Kind, list[tuple[int, PodUid]]] = {}
        self._found: dict[Rule, tuple[PodUid, ...]] = {}
        for order, uid in enumerate(pods):
            pod = state.pods[uid]
            key = frozenset(pod.labels.items())
            kind = self._kinds.get(pod.namespace, key)
            if kind is None:
                kind = Kind(self, pod.namespace, pod.labels, key)
                self._kinds.add(kind)
                self._members[kind] = []
            self._members[kind].append((order, uid))

    def about(self, rule: Rule) -> tuple[PodUid, ...]:
        """Those that the rule is about."""
        found = self._found.get(rule)
        if found is None:
            known = self._state.namespaces
            kinds = [
                kind
                for kind in dict.fromkeys(self._kinds.candidates(rule))
                if rule.about(kind.namespace, kind.labels, known, arriving=False)
            ]
            members = sorted(member for kind in kinds for member in self._members[kind])
            found = self._found[rule] = tuple(uid for _, uid in members)
        return found
