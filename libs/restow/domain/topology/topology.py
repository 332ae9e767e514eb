"""The questions: which nodes host ports, topology spread and inter-pod (anti-)affinity remove for a pod, and how much
they prefer the others. The rules are kube-scheduler's (1.33 and later)."""

from collections.abc import Hashable

import numpy as np

from restow.contracts.values import Spread
from restow.domain.state import ClusterState
from restow.domain.topology import affinity, ports, scores, spread
from restow.domain.topology.asker import Asker, Spreading
from restow.domain.topology.domains import Count, Counted, Domains
from restow.domain.topology.index import SPARE, Index
from restow.domain.topology.label_classes import Carried
from restow.domain.topology.terms import Rule, Selector, Subject, Wants, rule_of, spread_rule

Failing = list[tuple[str, np.ndarray]]
"""(reason, `(nodes,) bool` rows that fail for it) in the order of the rules; a rule that fails nowhere may be left out.
Vacant rows say nothing. Must not be written to."""

HOSTNAME = "kubernetes.io/hostname"


class Topology(Index):
    """Get it by `of`, once a session; nodes must not change before the next `of`."""

    def __init__(self, state: ClusterState) -> None:
        super().__init__(state)
        self._askers: dict[Hashable, Asker] = {}

    @staticmethod
    def of(state: ClusterState) -> "Topology":
        """The index as the state is now. What a session has added or removed is taken back."""
        kept = state.memo.find(Topology)
        if kept is None:
            kept = state.memo.keep(Topology(state))
        kept.open()
        return kept

    def concerns(self, subject: Subject) -> bool:
        """Whether any rule here could matter to it: it says something about others, or a term of an occupant is about it."""
        if self.idle:
            return False
        if self.wants(subject.shape).special:
            return True
        return self._meant_by(subject, weighed=False) or self._meant_by(subject, weighed=True)

    def requires(self, subject: Subject) -> bool:
        """Whether `affinity` could remove a node for it."""
        if self.idle:
            return False
        says = self.wants(subject.shape)
        return bool(says.affinity or says.anti) or self._meant_by(subject, weighed=False)

    def prefers(self, subject: Subject) -> bool:
        """Whether `affinity_score` or `spread_score` could say anything about it."""
        if self.idle:
            return False
        says = self.wants(subject.shape)
        return bool(says.preferred or says.soft) or self._meant_by(subject, weighed=True)

    def _meant_by(self, subject: Subject, weighed: bool) -> bool:
        """Whether a term of an occupant is about it: a required anti-affinity, or one that counts for the score."""
        if self._pending_terms:
            self.settle()
        if not self._carried:
            return False
        return any(term.rows and (term.term.weight != 0) is weighed for term in self.hits(self.label_class(subject)))

    def key(self, subject: Subject) -> Hashable:
        """Equal for subjects that every rule here treats alike, as long as `version` stays."""
        if self.idle:
            return ()
        if self._pending_terms:
            self.settle()
        label_class = self.label_class(subject)
        # A term that nobody carries any more says nothing, however long it is remembered.
        hits = tuple(term.serial for term in self.hits(label_class) if term.rows) if self._carried else ()
        if not self.wants(subject.shape).special:
            return hits
        own = tuple(count in label_class.matched for count in self._asker(subject).counts)
        return self._sort(subject), own, hits

    def ports(self, subject: Subject) -> Failing:
        """Nodes where one of its host ports is taken."""
        wanted = () if self.idle else self.wants(subject.shape).ports
        if not wanted:
            return []
        self.settle()
        return ports.failing(wanted, self.used_ports, self.rows)

    def spread(self, subject: Subject, counted: Counted = Count.per_domain) -> Failing:
        """Nodes that its DoNotSchedule constraints remove."""
        if self.idle or not self.wants(subject.shape).hard:
            return []
        self.settle()
        asker = self._asker(subject)
        return spread.failing(asker, self.label_class(subject), counted)

    def affinity(self, subject: Subject) -> Failing:
        """Nodes that required terms remove, its own and those of occupants."""
        if self.idle:
            return []
        self.settle()
        asker, label_class = self._asker(subject), self.label_class(subject)
        return affinity.failing(asker, label_class, self.hits(label_class) if self._carried else ())

    def unmet(self, subject: Subject, counted: Counted) -> Failing:
        """Of these only the nodes where nobody is whom it is to be near."""
        if self.idle:
            return []
        self.settle()
        return affinity.unmet(self._asker(subject), self.label_class(subject), counted)

    def affinity_score(self, subject: Subject, among: np.ndarray) -> np.ndarray | None:
        """`(nodes,) int64` in 0..10_000 over the rows in `among` `(nodes,) bool`: preferred terms, its own and those of
        occupants. None where it makes no difference."""
        if self.idle:
            return None
        self.settle()
        asker, label_class = self._asker(subject), self.label_class(subject)
        return scores.affinity_score(asker, self.hits(label_class) if self._carried else (), among)

    def spread_score(self, subject: Subject, among: np.ndarray) -> np.ndarray | None:
        """`(nodes,) int64` in 0..10_000 over the rows in `among` `(nodes,) bool`: ScheduleAnyway constraints. None where it
        has none."""
        if self.idle or not self.wants(subject.shape).soft:
            return None
        self.settle()
        return scores.spread_score(self._asker(subject), among)

    # -- for whoever looks ahead -------------------------------------------------------------------------------------

    def asks(self, subject: Subject) -> Asker:
        """What it asks of others, with the counts that answer it. Settled first by whoever reads these."""
        return self._asker(subject)

    def brings(self, subject: Subject) -> tuple[Carried, ...]:
        """The terms that it is counted for once it runs."""
        says = self.wants(subject.shape)
        return self._bring(says, subject) if says.carries else ()

    # -- askers ------------------------------------------------------------------------------------------------------

    def _sort(self, subject: Subject) -> Hashable:
        """What an asker depends on."""
        keys = self.wants(subject.shape).label_keys
        return subject.shape, subject.namespace, subject.pinned, *map(subject.labels.get, keys)

    def _asker(self, subject: Subject) -> Asker:
        says = self.wants(subject.shape)
        if not says.special:
            return _NOTHING
        sort = self._sort(subject)
        found = self._askers.get(sort)
        if found is None:
            found = self._askers[sort] = self._ask(says, subject)
        return found

    def _ask(self, says: Wants, subject: Subject) -> Asker:
        namespace, labels = subject.namespace, subject.labels

        def about(*rules: Rule) -> tuple[Rule, ...]:
            return tuple(dict.fromkeys(rules))

        together = about(*(rule_of(t, namespace, labels) for t in says.affinity))
        keys = dict.fromkeys(t.topology_key for t in says.affinity)
        return Asker(
            affinity=self.matching(together, live=False) if together else None,
            affinity_domains=tuple(map(self.domains, keys)),
            anti=tuple(
                (self.domains(t.topology_key), self.matching(about(rule_of(t, namespace, labels)), live=False))
                for t in says.anti
            ),
            preferred=tuple(
                (weight, self.domains(t.topology_key), self.matching((rule_of(t, namespace, labels),), live=False))
                for weight, t in says.preferred
            ),
            hard=self._spreading(says.hard, subject, hard=True),
            soft=self._spreading(says.soft, subject, hard=False),
            soft_keys=tuple(self.domains(s.topology_key) for s in says.soft),
        )

    def _spreading(self, constraints: tuple[Spread, ...], subject: Subject, hard: bool) -> tuple[Spreading, ...]:
        keys = tuple(sorted({s.topology_key for s in constraints}))
        return tuple(self._spread(s, keys, subject, hard) for s in constraints)

    def _spread(self, s: Spread, keys: tuple[str, ...], subject: Subject, hard: bool) -> Spreading:
        rule = spread_rule(s, subject.namespace, subject.labels)
        # kube-scheduler's `countPodsMatchSelector` counts nobody by a selector without requirements, and yet the pod itself matches it.
        empty = rule.selector == Selector()
        count = self.matching((Rule(None) if empty else rule,), live=True)
        domains: Domains = self.domains(s.topology_key)
        if not hard and s.topology_key == HOSTNAME:
            return Spreading(s.max_skew, s.min_domains, self.rows, None, count, empty)
        shape = self.state.shapes[subject.shape]
        by_affinity, by_taints = s.node_affinity_policy == "Honor", s.node_taints_policy == "Honor"
        eligible = self.eligible(shape, subject.pinned, keys, by_affinity, by_taints)
        return Spreading(s.max_skew, s.min_domains, domains, eligible, count, empty)

    def _forget(self) -> None:
        super()._forget()
        self._askers = {}

    def _sweep(self) -> None:
        super()._sweep()
        if len(self._askers) > 2 * SPARE:
            self._askers.clear()

    def _forget_matching(self) -> None:
        super()._forget_matching()
        self._askers.clear()


_NOTHING = Asker()
