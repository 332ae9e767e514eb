"""RemovePodsViolatingInterPodAntiAffinity: pods whose required anti-affinity is about another one in their topology domain. The
least important goes first; whom nobody is left to reject stays."""

from collections import Counter

from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import PodTerm
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import PodArgs, PodIndex, Subjects, by_priority, evict_unless_full
from restow.domain.topology.terms import Rule, rule_of

NAME = "RemovePodsViolatingInterPodAntiAffinity"
POINTS = ("deschedule",)

class Args(PodArgs, frozen=True):
    """Only pods that these are about are held against each other."""


def run(handle: Handle, args: Args) -> None:
    about = Subjects.from_args(handle, args)
    pods = {node: list(about.pods_on(node)) for node in handle.nodes}
    about.warn()
    rivals = _Rivals(handle, pods)
    for node in handle.nodes:
        for uid in by_priority(handle.state, rivals.touchy(pods[node])):
            term = rivals.rejects(uid, node)
            if term is None or handle.evictable(uid):
                continue
            if evict_unless_full(handle, uid, f"its anti-affinity is about a pod in the same {term.topology_key}"):
                rivals.gone(uid, node)


class _Where:
    """How many pods a term is about, by node and by the node's value of the topology key."""

    def __init__(self) -> None:
        self.nodes: Counter[NodeName] = Counter()
        self.values: Counter[str] = Counter()

    def add(self, node: NodeName, value: str | None, n: int) -> None:
        self.nodes[node] += n
        if value is not None:
            self.values[value] += n


class _Rivals:
    """Who is where, for each term that somebody has, without those that were evicted and those that terminate anyway."""

    def __init__(self, handle: Handle, pods: dict[NodeName, list[PodUid]]):
        self._state = state = handle.state
        self._node = {uid: node for node, there in pods.items() for uid in there if not state.pods[uid].live.deleting}
        self._index = PodIndex(state, self._node)
        self._counts: dict[tuple[Rule, str], _Where] = {}
        self._counted: dict[PodUid, list[tuple[Rule, str]]] = {}

    def touchy(self, pods: list[PodUid]) -> list[PodUid]:
        return [uid for uid in pods if self._terms(uid)]

    def _terms(self, uid: PodUid) -> list[PodTerm]:
        return [term for term in self._state.shapes[self._state.pods[uid].fact.shape].pod_anti_affinity if not term.weight]

    def rejects(self, uid: PodUid, node: NodeName) -> PodTerm | None:
        """Its first term that is about another pod on its node or in its domain."""
        pod = self._state.pods[uid].fact
        labels = self._state.nodes[node].labels
        for term in self._terms(uid):
            rule = rule_of(term, pod.namespace, pod.labels)
            where = self._where(rule, term.topology_key)
            itself = (rule, term.topology_key) in self._counted.get(uid, ())
            value = labels.get(term.topology_key)
            others = where.nodes[node] if value is None else max(where.nodes[node], where.values[value])
            if others > itself:
                return term
        return None

    def _where(self, rule: Rule, key: str) -> _Where:
        where = self._counts.get((rule, key))
        if where is None:
            where = self._counts[rule, key] = _Where()
            for uid in self._index.about(rule):
                node = self._node.get(uid)
                if node is not None:
                    where.add(node, self._state.nodes[node].labels.get(key), 1)
                    self._counted.setdefault(uid, []).append((rule, key))
        return where

    def gone(self, uid: PodUid, node: NodeName) -> None:
        self._node.pop(uid, None)
        labels = self._state.nodes[node].labels
        for rule, key in self._counted.pop(uid, ()):
            self._counts[rule, key].add(node, labels.get(key), -1)
