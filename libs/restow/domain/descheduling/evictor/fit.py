"""Whether a pod would find a node: upstream's NodeFit, on the scheduler's own rules.

Upstream looks at node selector and affinity, taints, cordons, requests and the pod's own anti-affinity. Here all rules are asked that
the session asks: also other pods' anti-affinity, ports, spread, volumes, devices, what is held for others. Whoever fails one of
them would wait after its eviction.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.domain import predicates
from restow.domain.state import ClusterState
from restow.domain.topology import Subject, Topology
from restow.domain.volumes import Volumes

MOST_KEPT = 1000

RESERVED = "node(s) were reserved for a job that starves"

Rules = list[tuple[str, np.ndarray]]
"""(reason, `(nodes,) bool` rows that fail), in order."""


class NodeFit:
    """Valid while the state is not folded further. Nothing that is asked leaves a trace in the state's indexes."""

    def __init__(self, state: ClusterState, now: Millis):
        self._state = state
        self._topology = Topology.of(state)
        self._volumes = Volumes.of(state)
        self._volumes.at(now)
        self._room: dict[ShapeId, np.ndarray] = {}
        self._static: dict[ShapeId, Rules] = {}
        self._asked: dict[int, tuple[Sequence[NodeName], np.ndarray]] = {}
        self._reserved = np.zeros(len(state.table.names), bool)
        for name in state.reserved_on:
            if (row := state.table.rows.get(name)) is not None:
                self._reserved[row] = bool(state.reserved_on[name])

    def rows(self, names: Sequence[NodeName]) -> np.ndarray:
        """`(nodes,) bool`: these nodes. Plugins ask for many pods about the same ones: answers are kept, by identity. Neither they nor
        `names` may be written to."""
        known = self._asked.get(id(names))
        if known is not None:
            return known[1]
        mask = np.zeros(len(self._state.table.names), bool)
        mask[[self._state.table.rows[name] for name in names if name in self._state.table.rows]] = True
        if len(self._asked) >= MOST_KEPT:
            self._asked.clear()
        # The names are kept, too, so that nothing else gets their identity.
        self._asked[id(names)] = names, mask
        return mask

    def elsewhere(self, uid: PodUid, among: np.ndarray, spread: bool = True) -> str:
        """Why none of these nodes other than its own would take it; "" where one would. Without `spread` its topology spread
        constraints do not count."""
        pod = self._state.pods[uid]
        among = among & self._state.table.alive
        home = self._state.table.rows.get(self._state.live[uid].node or NodeName(""))
        if home is not None:
            among[home] = False
        company = self._company(pod, spread)
        return "" if _any(self._lasting(pod, among), company) else self._explained(pod, among, company)

    def any_of(self, uid: PodUid, names: Sequence[NodeName]) -> bool:
        """Whether `why_not` says nothing against one of them."""
        among = self.rows(names) & self._state.table.alive
        home = self._state.table.rows.get(self._state.live[uid].node or NodeName(""))
        if home is None or not among[home]:
            return self._somewhere(self._state.pods[uid], among)
        among[home] = False
        return self._somewhere(self._state.pods[uid], among) or not self.why_not(uid, self._state.table.names[home])

    def _somewhere(self, pod: PodObserved, among: np.ndarray) -> bool:
        left = self._lasting(pod, among)
        return bool(left.any()) and _any(left, self._company(pod))

    def _lasting(self, pod: PodObserved, among: np.ndarray) -> np.ndarray:
        """What is left of these by all but the company that the pod would have."""
        return among & self._roomy(pod.shape) & ~self._not_pinned(pod)

    def why_not(self, uid: PodUid, name: NodeName) -> str:
        """The first rule by which the node would not take it. On its own node it needs no more room than it has."""
        state, pod = self._state, self._state.pods[uid]
        row = state.table.rows.get(name)
        if row is None:
            return "the node is gone"
        at_home = state.live[uid].node == name
        rules = self._rules(pod, self._company(pod), room=not at_home)
        return next((reason for reason, failing in rules if failing[row]), "")

    def _roomy(self, shape: ShapeId) -> np.ndarray:
        """Rows that do for the shape by all that depends on nothing but it."""
        known = self._room.get(shape)
        if known is None:
            state = self._state
            fits = state.table.fits(state.vectors[shape])
            known = self._room[shape] = predicates.static_mask(state, shape) & fits & ~self._reserved
        return known

    def _not_pinned(self, pod: PodObserved) -> np.ndarray:
        if not pod.pinned_node:
            return np.zeros(len(self._state.table.names), bool)
        return ~predicates.only(self._state, pod.pinned_node)

    def _rules(self, pod: PodObserved, company: Rules, room: bool) -> Iterator[tuple[str, np.ndarray]]:
        """In the scheduler's order, near enough to say the first."""
        state = self._state
        yield from self._unchanging(pod.shape)
        yield predicates.PINNED, self._not_pinned(pod)
        if room:
            yield RESERVED, self._reserved
            yield from predicates.room_reasons(state, state.vectors[pod.shape])
        yield from company

    def _unchanging(self, shape: ShapeId) -> Rules:
        known = self._static.get(shape)
        if known is None:
            static = predicates.static_reasons(self._state, shape)
            known = self._static[shape] = [
                (reason, np.array([one == reason for one in static], bool)) for reason in dict.fromkeys(static) if reason
            ]
        return known

    def _company(self, pod: PodObserved, spread: bool = True) -> Rules:
        """Rules that depend on what runs, as if the pod itself had gone already."""
        found: Rules = []
        subject = Subject(pod.namespace, pod.labels, pod.shape, pod.pinned_node)
        topology = self._topology
        if topology.concerns(subject):
            topology.remove(pod.pod)
            found += [*topology.ports(subject), *(topology.spread(subject) if spread else ()), *topology.affinity(subject)]
            topology.restore(pod.pod)
        if self._volumes.concerns(pod) and not self._volumes.waits(pod):
            self._volumes.remove(pod.pod)
            found += self._volumes.filters(pod)
            self._volumes.restore(pod.pod)
        return found

    def _explained(self, pod: PodObserved, among: np.ndarray, company: Rules) -> str:
        """Each node counts for the first rule that removes it."""
        counts: Counter[str] = Counter()
        left = among
        for reason, failing in self._rules(pod, company, room=True):
            if count := int((left & failing).sum()):
                counts[reason.replace(predicates.AND, ", ")] += count
                left = left & ~failing
        said = ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts))
        return f"NodeFit: 0 of {int(among.sum())} other nodes would take it" + (f": {said}" if said else "")


def _any(left: np.ndarray, rules: Rules) -> bool:
    for _, failing in rules:
        left = left & ~failing
    return bool(left.any())
