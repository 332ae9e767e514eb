"""RemovePodsViolatingNodeAffinity: pods whose node affinity is not about their node (any more) while it is about another one
that would take them, or that prefer another one that would."""

from collections.abc import Callable, Hashable, Iterator

from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import NodeTerm, PodShape
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import PodArgs, Subjects, evict_until_full
from restow.domain.node_labels import node_labels
from restow.domain.predicates import selected

NAME = "RemovePodsViolatingNodeAffinity"
POINTS = ("deschedule",)

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


class Args(PodArgs, frozen=True):
    """As upstream a kind that does not exist does nothing; ours says so in a warning."""

    node_affinity_type: tuple[str, ...] = ()

    def check(self) -> str:
        if not self.node_affinity_type:
            return f"nodeAffinityType: none; allowed: {REQUIRED}, {PREFERRED}"
        return super().check()


Violations = Callable[[Handle, Subjects, NodeName], Iterator[tuple[PodUid, str]]]


def run(handle: Handle, args: Args) -> None:
    about = Subjects.from_args(handle, args)
    for kind in args.node_affinity_type:
        violations: Violations
        preferences: _Preferences | None = None
        if kind == REQUIRED:
            violations = _required
        elif kind == PREFERRED:
            violations = preferences = _Preferences(handle)
        else:
            handle.warn(f"nodeAffinityType: {kind!r} means nothing; allowed: {REQUIRED}, {PREFERRED}")
            continue
        for node in handle.nodes:
            better = preferences.better if preferences is not None else (lambda uid: None)
            evict_until_full(handle, node, violations(handle, about, node), better)
    about.warn()


def _required(handle: Handle, about: Subjects, node: NodeName) -> Iterator[tuple[PodUid, str]]:
    state = handle.state
    observed = state.nodes[node]
    for uid in about.pods_on(node):
        pod = state.pods[uid].fact
        shape, pinned = state.shapes[pod.shape], pod.pinned_node
        # A term with no more than one node's name (`matchFields`) is a fact of the pod, not of its shape.
        if (shape.node_affinity is None and not pinned) or (selected(shape, observed) and pinned in ("", node)) or handle.evictable(uid):
            continue
        if handle.fits_any(uid, handle.nodes):
            yield uid, "required node affinity is about other nodes"
        else:
            handle.keep(uid, "Affinity: no node that its node affinity is about would take it")


class _Preferences:
    """Sums of weights, once for all pods that prefer alike."""

    def __init__(self, handle: Handle):
        self._nodes = handle.nodes
        self._weights: dict[Hashable, dict[NodeName, int]] = {}
        self._terms: dict[NodeTerm, list[NodeName]] = {}
        self._better: dict[Hashable, tuple[NodeName, ...]] = {}
        self._state = handle.state

    def _weigh(self, shape: PodShape) -> dict[NodeName, int]:
        weights = self._weights.get(shape.node_preferences)
        if weights is None:
            weights = self._weights[shape.node_preferences] = dict.fromkeys(self._nodes, 0)
            for preferred in shape.node_preferences:
                for name in self._matching(preferred.term):
                    weights[name] += preferred.weight
        return weights

    def _matching(self, term: NodeTerm) -> list[NodeName]:
        found = self._terms.get(term)
        if found is None:
            matching, rows = node_labels(self._state).of_term(term), self._state.table.rows
            found = self._terms[term] = [name for name in self._nodes if matching >> rows[name] & 1] if matching else []
        return found

    def _preferred(self, shape: PodShape, node: NodeName) -> tuple[NodeName, ...]:
        """To this node; found once for all nodes of equal weight."""
        weights = self._weigh(shape)
        asked = shape.node_preferences, weights[node]
        better = self._better.get(asked)
        if better is None:
            better = self._better[asked] = tuple(name for name in self._nodes if weights[name] > weights[node])
        return better

    def better(self, uid: PodUid) -> tuple[NodeName, ...] | None:
        """Where it would rather be."""
        node = self._state.pods[uid].live.node
        return None if node is None else self._preferred(self._state.shapes[self._state.pods[uid].fact.shape], node)

    def __call__(self, handle: Handle, about: Subjects, node: NodeName) -> Iterator[tuple[PodUid, str]]:
        """Upstream is content with any node that fits; here one must fit that is preferred, or nothing would be won."""
        state = handle.state
        for uid in about.pods_on(node):
            shape = state.shapes[state.pods[uid].fact.shape]
            if not shape.node_preferences:
                continue
            better = self._preferred(shape, node)
            if not better or handle.evictable(uid):
                continue
            if handle.fits_any(uid, better):
                yield uid, f"prefers {len(better)} other nodes to its own, which weighs {self._weigh(shape)[node]}"
            else:
                handle.keep(uid, "Affinity: no node that it prefers would take it")
