"""Whether a pod would find a node: upstream's NodeFit, on the scheduler's own rules.

Upstream looks at node selector and affinity, taints, cordons, requests and the pod's own anti-affinity. Here all rules are asked that
the session asks: also other pods' anti-affinity, ports, spread, volumes, devices, what is held for others. Whoever fails one of
them would wait after its eviction.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.domain import predicates
from restow.domain.fragmentation import alike
from restow.domain.state import ClusterState
from restow.domain.topology import Subject, Topology
from restow.domain.topology.domains import Domains, Eligible
from restow.domain.volumes import Volumes

MOST_KEPT = 1000
MOST_ANSWERS = 10_000
"""An answer has one or two bytes a node."""

RESERVED = "node(s) were reserved for a job that starves"

Rules = list[tuple[str, np.ndarray]]
"""(reason, `(nodes,) bool` rows that fail), in order."""


class _Counted(NamedTuple):
    """Pods are counted by these domains. `everywhere`: what one domain has matters in all of them."""

    domains: Domains
    everywhere: bool
    eligible: Eligible | None = None


class NodeFit:
    """Valid while the state is not folded further. Nothing that is asked leaves a trace in the state's indexes."""

    def __init__(self, state: ClusterState, now: Millis):
        self._state = state
        self._topology = Topology.of(state)
        self._volumes = Volumes.of(state)
        self._volumes.at(now)
        self._capacity: dict[ShapeId, np.ndarray] = {}
        self._static: dict[ShapeId, Rules] = {}
        self._answers: dict[Hashable, _Answer] = {}
        self._counted: dict[Hashable, list[_Counted]] = {}
        self._companies: dict[Hashable, Rules] = {}
        self._subjects: dict[PodUid, Subject] = {}
        self._sizes: dict[Domains, list[int]] = {}
        self._asked: dict[int, tuple[Sequence[NodeName], np.ndarray]] = {}
        self._reserved = state.table.mask(state.reserved_on)

    def rows(self, names: Sequence[NodeName]) -> np.ndarray:
        """`(nodes,) bool`: these nodes. Plugins ask for many pods about the same ones: answers are kept, by identity. Neither they nor
        `names` may be written to."""
        known = self._asked.get(id(names))
        if known is not None:
            return known[1]
        mask = self._state.table.mask(names)
        if len(self._asked) >= MOST_KEPT:
            self._asked.clear()
            self._answers.clear()
        # The names are kept, too, so that nothing else gets their identity.
        self._asked[id(names)] = names, mask
        return mask

    def why_none_elsewhere(self, uid: PodUid, among: np.ndarray, spread: bool = True) -> str:
        """Why none of these nodes other than its own would take it; "" where one would. Without `spread` its topology spread
        constraints do not count."""
        pod, home = self._state.pods[uid].fact, self._home(uid)
        answer = self._answer(pod, home, among, spread)
        return "" if answer.fits_but(home) else answer.explained_but(home)

    def any_of(self, uid: PodUid, names: Sequence[NodeName]) -> bool:
        """Whether `why_not` says nothing against one of them."""
        among, home = self.rows(names), self._home(uid)
        if self._answer(self._state.pods[uid].fact, home, among, True).fits_but(home):
            return True
        return home is not None and bool(among[home]) and not self.why_not(uid, self._state.table.names[home])

    def _home(self, uid: PodUid) -> int | None:
        return self._state.table.rows.get(self._state.pods[uid].live.node or NodeName(""))

    def _answer(self, pod: PodObserved, home: int | None, among: np.ndarray, spread: bool) -> "_Answer":
        """Pods that no rule tells apart have one answer."""
        alike = self._alike(pod, home, spread)
        known = self._answers.get((alike, id(among))) if alike is not None else None
        if known is not None:
            return known
        rules = self._shared(pod, alike, spread)
        answer = _Answer(among, among & self._state.table.alive, self._lasting(pod, among), rules, self._rules(pod, rules, capacity=True))
        if alike is not None:
            if len(self._answers) >= MOST_ANSWERS:
                self._answers.clear()
            self._answers[alike, id(among)] = answer
        return answer

    def _shared(self, pod: PodObserved, alike: Hashable, spread: bool) -> Rules:
        """Rules about what runs, for all pods that are alike."""
        if alike is None:
            return self._company(pod, spread)
        known = self._companies.get(alike)
        if known is None:
            if len(self._companies) >= MOST_KEPT:
                self._companies.clear()
            known = self._companies[alike] = self._company(pod, spread, gone=alike[-1] != ())  # type: ignore[index]
        return known

    def _alike(self, pod: PodObserved, home: int | None, spread: bool) -> Hashable:
        """Equal for pods to which the rules say the same about every row other than their own; None where there may be no other one. The
        last part says where it is as far as that it leaves from there matters elsewhere, and is () where it does not."""
        if self._volumes.concerns(pod):
            return None
        topology, subject = self._topology, self._subject(pod)
        if not topology.concerns(subject):
            return pod.shape, pod.pinned_node, spread, ()
        topology.settle()
        sort = pod.shape, pod.pinned_node, spread, topology.key(subject)
        counted = self._counted.get(sort)
        if counted is None:
            counted = self._counted[sort] = self._counts_itself(subject, spread)
        if not counted:
            return *sort, ()
        charge, live = self._state.charges.get(pod.pod), self._state.pods[pod.pod].live
        if home is None or charge is None or charge.node != live.node or charge.releasing:
            return None
        wide = [one for one in counted if one.everywhere or not self._is_alone(one.domains, home)]
        if not wide:
            return *sort, ()
        where = [one.domains.ids[home] if one.eligible is None or one.eligible.ids[home] else 0 for one in wide]
        if len(wide) < len(counted) or topology.wants(pod.shape).ports:
            # It also leaves something to its own node alone: nobody else's answer is the same.
            where.append(home)
        return *sort, tuple(where)

    def _counts_itself(self, subject: Subject, spread: bool) -> list["_Counted"]:
        """Rules of its own that count it as well, and those of others like it that it would be in conflict with."""
        topology = self._topology
        asker, label_class = topology.asks(subject), topology.label_class(subject)
        counted: list[_Counted] = []
        if asker.affinity is not None and asker.affinity in label_class.matched:
            counted += [_Counted(domains, True) for domains in asker.affinity_domains]
        counted += [_Counted(domains, False) for domains, count in asker.anti if count in label_class.matched]
        if brought := topology.brings(subject):
            about = topology.hits(label_class)
            counted += [_Counted(term.domains, False) for term in brought if not term.term.weight and term in about]
        if spread:
            counted += [_Counted(one.domains, True, one.eligible) for one in asker.hard if one.count in label_class.matched]
        return counted

    def _is_alone(self, domains: Domains, row: int) -> bool:
        """Whether the row has a domain of its own, or none."""
        sizes = self._sizes.get(domains)
        if sizes is None:
            sizes = self._sizes[domains] = np.bincount(domains.array, minlength=1).tolist()
        return not domains.ids[row] or sizes[domains.ids[row]] == 1

    def _subject(self, pod: PodObserved) -> Subject:
        known = self._subjects.get(pod.pod)
        if known is None:
            known = self._subjects[pod.pod] = Subject(pod.namespace, pod.labels, pod.shape, pod.pinned_node)
        return known

    def _lasting(self, pod: PodObserved, among: np.ndarray) -> np.ndarray:
        """What is left of these by all but the company that the pod would have."""
        return among & self._fitting(pod.shape) & ~self._not_pinned(pod)

    def why_not(self, uid: PodUid, name: NodeName) -> str:
        """The first rule by which the node would not take it. On its own node it needs no more capacity than it has."""
        state, pod = self._state, self._state.pods[uid].fact
        row = state.table.rows.get(name)
        if row is None:
            return "the node is gone"
        at_home = state.pods[uid].live.node == name
        rules = self._rules(pod, self._company(pod), capacity=not at_home)
        return next((reason for reason, failing in rules if failing[row]), "")

    def _fitting(self, shape: ShapeId) -> np.ndarray:
        """Rows that do for the shape by all that depends on nothing but it."""
        known = self._capacity.get(shape)
        if known is None:
            state = self._state
            fits = state.table.fits(state.vectors[shape])
            known = self._capacity[shape] = predicates.static_mask(state, alike(state, shape)) & fits & ~self._reserved
        return known

    def _not_pinned(self, pod: PodObserved) -> np.ndarray:
        if not pod.pinned_node:
            return np.zeros(len(self._state.table.names), bool)
        return ~predicates.only(self._state, pod.pinned_node)

    def _rules(self, pod: PodObserved, company: Rules, capacity: bool) -> Iterator[tuple[str, np.ndarray]]:
        """In the scheduler's order, near enough to say the first."""
        state = self._state
        yield from self._unchanging(pod.shape)
        yield predicates.PINNED, self._not_pinned(pod)
        if capacity:
            yield RESERVED, self._reserved
            yield from predicates.capacity_reasons(state, state.vectors[pod.shape])
        yield from company

    def _unchanging(self, shape: ShapeId) -> Rules:
        shape = alike(self._state, shape)
        known = self._static.get(shape)
        if known is None:
            static = predicates.static_reasons(self._state, shape)
            known = self._static[shape] = [
                (reason, np.array([one == reason for one in static], bool)) for reason in dict.fromkeys(static) if reason
            ]
        return known

    def _company(self, pod: PodObserved, spread: bool = True, gone: bool = True) -> Rules:
        """Rules that depend on what runs, as if the pod itself had `gone` already."""
        found: Rules = []
        subject, topology = self._subject(pod), self._topology
        if topology.concerns(subject):
            if gone:
                topology.remove(pod.pod)
            found += [*topology.ports(subject), *(topology.spread(subject) if spread else ()), *topology.affinity(subject)]
            if gone:
                topology.restore(pod.pod)
        if self._volumes.concerns(pod) and not self._volumes.waits(pod):
            self._volumes.remove(pod.pod)
            found += self._volumes.filters(pod)
            self._volumes.restore(pod.pod)
        return found


class _Answer:
    """Of pods that are alike: which of the nodes in `among` would take them, and why the others would not, each counted for the first rule
    that removes it. `left` `(nodes,) bool`: what is left of them by all rules but `company`; `rules` are all, in order."""

    def __init__(
        self, among: np.ndarray, alive: np.ndarray, left: np.ndarray, company: Rules, rules: Iterable[tuple[str, np.ndarray]]
    ) -> None:
        self._among = among  # kept, for answers are found by its identity
        if left.any():
            for _, failing in company:
                left = left & ~failing
        self._fits = int(left.sum())
        self._left = left if self._fits else None
        self._asked: tuple[np.ndarray, Iterable[tuple[str, np.ndarray]]] | None = (alive, rules)
        self._reasons: list[str] = []
        self._said: dict[int, str] = {}

    def fits_but(self, home: int | None) -> bool:
        """Whether one would do that is not the pod's own."""
        return self._fits > (home is not None and self._left is not None and bool(self._left[home]))

    def explained_but(self, home: int | None) -> str:
        """Why none would."""
        if self._asked is not None:
            self._explain(*self._asked)
            self._asked = None  # many answers are kept: not what they were made of
        mine = -1 if home is None else int(self._first[home])
        said = self._said.get(mine)
        if said is None:
            said = self._said[mine] = self._sentence(mine)
        return said

    def _explain(self, alive: np.ndarray, rules: Iterable[tuple[str, np.ndarray]]) -> None:
        """`first` `(nodes,) int16`: the number of the reason that removes each row; 0 for none, -1 where it was not asked for."""
        self._first = np.where(alive, 0, -1).astype(np.int16)
        self._reasons.append("")
        for reason, failing in rules:
            self._first[failing & (self._first == 0)] = len(self._reasons)
            self._reasons.append(reason.replace(predicates.AND, ", "))
        self._counts = np.bincount(self._first[alive], minlength=len(self._reasons)).tolist()

    def _sentence(self, mine: int) -> str:
        """Without a row that this reason removes."""
        counts = Counter[str]()
        for number, reason in enumerate(self._reasons):
            if (count := self._counts[number] - (number == mine)) and number:
                counts[reason] += count
        said = ", ".join(f"{counts[reason]} {reason}" for reason in sorted(counts))
        return f"NodeFit: 0 of {sum(self._counts) - (mine >= 0)} other nodes would take it" + (f": {said}" if said else "")
