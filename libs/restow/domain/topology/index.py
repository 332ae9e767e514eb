"""Who occupies which node, counted by what terms and constraints ask: the index under `Topology`.

It follows `state.moved` and `state.changed_rows`, so that opening it costs what has changed since. A session's own
placements are added and removed like facts; the next opening takes them back. As long as no shape says anything about
other pods, nothing is kept at all (`idle`).
"""

from collections.abc import Hashable, Iterable
from itertools import islice

import msgspec

from restow.contracts.events import NamespaceObserved
from restow.contracts.ids import NodeName, ShapeId
from restow.contracts.values import HostPort, PodShape
from restow.domain.node_labels import Chosen
from restow.domain.occupants import Who, everybody, held_as_pod
from restow.domain.state import ClusterState
from restow.domain.topology import ports
from restow.domain.topology.domains import ByRow, Count, Domains, Eligible
from restow.domain.topology.label_classes import Carried, Finder, LabelClass, LabelClasses, Matching
from restow.domain.topology.terms import CarriedTerm, Rule, Subject, Wants, carried, wants

GONE, AS_IT_WAS = -1, -2
"""In place of a row: nowhere, or where the state says."""
SPARE = 4096
"""So many new things of one sort may come before those that nobody needs are swept."""
VIEWS = 1024
"""So many views (an integer a domain each) are kept over an opening."""


class Occupant(msgspec.Struct, frozen=True, gc=False):
    """One that is counted on `row`; `leaving`: terminating. Equal where it is counted equally."""

    row: int
    label_class: LabelClass
    leaving: bool
    carried: tuple[Carried, ...] = ()
    ports: tuple[HostPort, ...] = ()


class Index:
    """`version` grows when a pod may have become of concern, or another sort (`Topology.key`), without a fact about it."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.idle = True
        self.version = 0
        self._wants: dict[ShapeId, Wants] = {}
        self._shapes_seen = 0
        self._changed_at = self._moved_at = -1
        self._serial = 0
        self._forget()

    def _forget(self) -> None:
        self.version += 1
        self.label_classes = LabelClasses()
        self.rows = Domains(None)
        self.used_ports: dict[ports.PortKey, Count] = {}
        self._domains: dict[str, Domains] = {}
        self._eligible: dict[Hashable, Eligible] = {}
        self._matching: dict[tuple[tuple[Rule, ...], bool], Matching] = {}
        self._matching_by_rule: Finder[Matching] = Finder()
        self._carried: dict[CarriedTerm, Carried] = {}
        self._carried_by_rule: Finder[Carried] = Finder()
        self._brought: dict[Hashable, tuple[Carried, ...]] = {}
        self._occupants: dict[Who, Occupant] = {}
        self._tentative: dict[Who, None] = {}
        self._pending: list[tuple[Who, int, Subject | None]] = []
        self._pending_terms = False
        self._namespaces: dict[str, NamespaceObserved] = {}
        self._by_namespace = False
        self._new_label_classes = self._new_carried = 0

    # -- following the state -----------------------------------------------------------------------------------------

    def open(self) -> None:
        """Bring it up to date, and take back what was tentative."""
        state = self.state
        self._pending.clear()
        self._pending_terms = False
        if len(state.shapes) != self._shapes_seen:
            new = islice(state.shapes, self._shapes_seen, None)
            self.idle = self.idle and not any(self.wants(shape).special for shape in new)
            self._shapes_seen = len(state.shapes)
        if self.idle:
            return
        changed, moved = state.changed_rows.since(self._changed_at), state.moved.since(self._moved_at)
        self._changed_at, self._moved_at = state.changed_rows.position, state.moved.position
        if changed is None or moved is None or self._overgrown():
            self._build()
            return
        if changed:
            self._refresh_rows(changed)
        if moved or self._tentative:
            for who in dict.fromkeys((*moved, *self._tentative)):
                self._set(who, self._seen(who))
            self._tentative.clear()
        if self._by_namespace and self._namespaces != state.namespaces:
            self._rename()
        self._sweep()

    def _build(self) -> None:
        self._forget()
        self._extend((self.rows,))
        for who in everybody(self.state):
            self._set(who, self._seen(who))

    def _overgrown(self) -> bool:
        """Numbers of domains are never used again: after enough nodes have come and gone it is better to start anew."""
        most = 2 * len(self.state.table.names) + SPARE
        return len(self._eligible) > SPARE or any(d.size > most for d in self._domains.values())

    def _seen(self, who: Who) -> Occupant | None:
        """The occupant that the state has. Pods count from their charge to its end, so terminating ones still do."""
        state = self.state
        if isinstance(who, tuple):
            pod = held_as_pod(state, who)
            if pod is None:
                return None
            row = state.table.rows[state.slots[who[0]][who[1]].node]
            return self._occupant(row, Subject(pod.namespace, pod.labels, pod.shape), False)
        charge = state.charges.get(who)
        if charge is None:
            return None
        pod = state.pods[who].fact
        row = state.table.rows[charge.node]
        return self._occupant(row, Subject(pod.namespace, pod.labels, pod.shape), charge.releasing)

    def _rename(self) -> None:
        """Namespaces or their labels have changed: who lives there may be meant by other terms."""
        before, self._namespaces = self._namespaces, dict(self.state.namespaces)
        for name in {**before, **self._namespaces}:
            if before.get(name) != self._namespaces.get(name):
                for label_class in self.label_classes.within(name):
                    self._rematch(label_class)
        self.version += 1

    # -- rows --------------------------------------------------------------------------------------------------------

    def domains(self, key: str) -> Domains:
        """The domains of a topology key."""
        found = self._domains.get(key)
        if found is None:
            found = self._domains[key] = Domains(key)
            self._extend((found,))
        return found

    def eligible(self, shape: PodShape, pinned: NodeName, keys: tuple[str, ...], affinity: bool, taints: bool) -> Eligible:
        """One for all shapes that say the same about nodes, as far as the policies ask for it."""
        said = (tuple(sorted(shape.node_selector.items())), shape.node_affinity, pinned) if affinity else None
        known = (keys, said, shape.tolerations if taints else None)
        found = self._eligible.get(known)
        if found is None:
            found = self._eligible[known] = Eligible(shape, pinned, keys, Chosen(self.state, shape) if affinity else None, taints)
            self._extend((found,))
        return found

    def _extend(self, per_row: Iterable[ByRow]) -> None:
        """Give rows that are new to it their value."""
        names, nodes = self.state.table.names, self.state.nodes
        for by_row in per_row:
            for row in range(len(by_row.ids), len(names)):
                by_row.set(row, by_row.value(row, nodes.get(names[row])))

    def _refresh_rows(self, changed: Iterable[int]) -> None:
        per_row: list[ByRow] = [self.rows, *self._domains.values(), *self._eligible.values()]
        self._extend(per_row)
        names, nodes = self.state.table.names, self.state.nodes
        for row in dict.fromkeys(changed):
            node = nodes.get(names[row])
            differing = [(b, value) for b in per_row if (value := b.value(row, node)) != b.ids[row]]
            if not differing:
                continue
            counts: list[Count] = [*self._matching.values(), *self._carried.values(), *self.used_ports.values()]
            views = [(v, n) for c in counts if (n := c.rows.get(row)) for v in c.views.values()]
            for view, n in views:
                view.put(row, -n)
            for by_row, value in differing:
                by_row.set(row, value)
            for view, n in views:
                view.put(row, n)

    # -- occupants ---------------------------------------------------------------------------------------------------

    def add(self, who: Who, row: int, subject: Subject) -> None:
        """Somebody is tentatively on this row. Nothing is counted before somebody asks."""
        if not self.idle:
            self._pending.append((who, row, subject))
            self._pending_terms = self._pending_terms or self.wants(subject.shape).carries

    def remove(self, who: Who) -> None:
        """Somebody is tentatively no more where it was: added before, or in the state (a victim, a hold that is taken)."""
        if not self.idle:
            self._pending.append((who, GONE, None))
            self._pending_terms = True

    def restore(self, who: Who) -> None:
        """Somebody is again what the state says."""
        if not self.idle:
            self._pending.append((who, AS_IT_WAS, None))
            self._pending_terms = True

    def settle(self) -> None:
        """Count what was added and removed."""
        if not self._pending:
            return
        pending, self._pending, self._pending_terms = self._pending, [], False
        for who, row, subject in pending:
            self._tentative[who] = None
            if subject is not None:
                self._set(who, self._occupant(row, subject, False))
            else:
                self._set(who, self._seen(who) if row == AS_IT_WAS else None)

    def occupant(self, who: Who) -> Occupant | None:
        """As what somebody is counted, None where he is not."""
        self.settle()
        return self._occupants.get(who)

    def by_the_state(self, who: Who) -> Occupant | None:
        """As what the state has somebody, whatever the session has added or removed."""
        return self._seen(who)

    def _occupant(self, row: int, subject: Subject, leaving: bool) -> Occupant:
        says = self.wants(subject.shape)
        terms = self._bring(says, subject) if says.carries else ()
        return Occupant(row, self.label_class(subject), leaving, terms, says.ports)

    def _set(self, who: Who, new: Occupant | None) -> None:
        old = self._occupants.get(who)
        if old == new:
            return
        if old is not None:
            self._put(old, -1)
            del self._occupants[who]
        if new is not None:
            self._put(new, 1)
            self._occupants[who] = new

    def _put(self, occupant: Occupant, n: int) -> None:
        row, label_class = occupant.row, occupant.label_class
        _change(label_class.there, row, n)
        if not occupant.leaving:
            _change(label_class.live, row, n)
        for count in label_class.matched:
            if not (occupant.leaving and count.live):
                count.change(row, n)
        for term in occupant.carried:
            term.change(row, n)
        for port in occupant.ports:
            for key in ports.keys(port):
                used = self.used_ports.get(key)
                if used is None:
                    used = self.used_ports[key] = Count(self._next())
                used.change(row, n)
                if not used.rows:
                    del self.used_ports[key]

    # -- label classes and counts --------------------------------------------------------------------------------------------

    def wants(self, shape: ShapeId) -> Wants:
        """What a shape says about other pods."""
        found = self._wants.get(shape)
        if found is None:
            found = self._wants[shape] = wants(self.state.shapes[shape])
        return found

    def label_class(self, subject: Subject) -> LabelClass:
        known = subject.label_class
        if isinstance(known, LabelClass) and known.home is self.label_classes and not known.gone:
            return known
        key = frozenset(subject.labels.items())
        label_class = self.label_classes.get(subject.namespace, key)
        if label_class is None:
            label_class = LabelClass(self.label_classes, subject.namespace, subject.labels, key)
            self.label_classes.add(label_class)
            self._new_label_classes += 1
            label_class.matched = self._matched(label_class)
        subject.label_class = label_class
        return label_class

    def _matched(self, label_class: LabelClass) -> dict[Matching, None]:
        about = self._matching_by_rule.candidates(label_class.namespace, label_class.labels.items())
        return {count: None for count in about if self._meant(count.rules, label_class)}

    def _meant(self, rules: tuple[Rule, ...], label_class: LabelClass) -> bool:
        return all(rule.about(label_class.namespace, label_class.labels, self._namespaces, False) for rule in rules)

    def _rematch(self, label_class: LabelClass) -> None:
        before, label_class.matched = label_class.matched, self._matched(label_class)
        for counts, others, sign in ((before, label_class.matched, -1), (label_class.matched, before, 1)):
            for count in counts:
                if count not in others:
                    for row, n in (label_class.live if count.live else label_class.there).items():
                        count.change(row, n * sign)

    def matching(self, rules: tuple[Rule, ...], live: bool) -> Matching:
        """The count of occupants that all these rules are about; with `live`, without terminating ones."""
        found = self._matching.get((rules, live))
        if found is not None:
            return found
        found = self._matching[rules, live] = Matching(self._next(), rules, live)
        self._watch(rules)
        best = min(rules, key=lambda rule: -1 if rule.selector is None else not rule.selector.pairs)
        self._matching_by_rule.add(found, best)
        for label_class in self.label_classes.candidates(best):
            if self._meant(rules, label_class):
                label_class.matched[found] = None
                for row, n in (label_class.live if live else label_class.there).items():
                    found.change(row, n)
        return found

    def hits(self, label_class: LabelClass) -> tuple[Carried, ...]:
        """The terms of occupants that are about such a pod."""
        if label_class.hits_at != self.version:
            about = self._carried_by_rule.candidates(label_class.namespace, label_class.labels.items())
            meant = (c for c in about if c.term.rule.about(label_class.namespace, label_class.labels, self._namespaces, True))
            label_class.hits = tuple(sorted(meant, key=lambda c: c.serial))
            label_class.hits_at = self.version
        return label_class.hits

    def _bring(self, says: Wants, subject: Subject) -> tuple[Carried, ...]:
        key = (subject.shape, subject.namespace, *map(subject.labels.get, says.label_keys))
        found = self._brought.get(key)
        if found is None:
            terms = carried(says, subject.namespace, subject.labels)
            found = self._brought[key] = tuple(self._carry(term) for term in terms)
        return found

    def _carry(self, term: CarriedTerm) -> Carried:
        found = self._carried.get(term)
        if found is None:
            self._watch((term.rule,))
            found = self._carried[term] = Carried(self._next(), term, self.domains(term.topology_key))
            self._carried_by_rule.add(found, term.rule)
            self._new_carried += 1
            self.version += 1
        return found

    def _watch(self, rules: Iterable[Rule]) -> None:
        """Labels of namespaces are followed once a rule reads them."""
        if not self._by_namespace and any(rule.namespace_selector is not None for rule in rules):
            self._by_namespace = True
            self._namespaces = dict(self.state.namespaces)

    def _next(self) -> int:
        self._serial += 1
        return self._serial

    # -- sweeping ----------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        """Forget what is not needed. Nothing that is asked depends on it."""
        if self._new_label_classes > SPARE:
            self._new_label_classes = 0
            for label_class in [label_class for label_class in self.label_classes if not label_class.there]:
                self.label_classes.discard(label_class)
        if len(self._matching) > SPARE:
            self._forget_matching()
        if self._new_carried > SPARE or len(self._brought) > 2 * SPARE:
            self._new_carried = 0
            self._brought.clear()
            self.version += 1
            for term in [c for c in self._carried.values() if not c.rows]:
                del self._carried[term.term]
                self._carried_by_rule.discard(term)
        per_row = [self.rows, *self._domains.values()]
        if sum(domains.views for domains in per_row) > VIEWS:
            for domains in per_row:
                domains.views = 0
            for count in (*self._matching.values(), *self._carried.values(), *self.used_ports.values()):
                count.views.clear()

    def _forget_matching(self) -> None:
        self._matching.clear()
        self._matching_by_rule = Finder()
        for label_class in self.label_classes:
            label_class.matched.clear()


def _change(rows: dict[int, int], row: int, n: int) -> None:
    left = rows.get(row, 0) + n
    if left:
        rows[row] = left
    else:
        del rows[row]
