"""What a pod asks of others: terms and constraints of its shape, made concrete for its namespace and labels.

A `Rule` says which pods a term is about, as a value: equal rules of different pods are counted once.
"""

from collections.abc import Mapping

import msgspec

from restow.contracts.events import NamespaceObserved
from restow.contracts.ids import NodeName, ShapeId
from restow.contracts.values import Expression, HostPort, LabelSelector, PodShape, PodTerm, Spread
from restow.domain.host_ports import host_ports
from restow.domain.selectors import holds

HARD_AFFINITY_WEIGHT = 1
"""kube-scheduler's default hardPodAffinityWeight: what a running pod's required affinity adds for a pod that it is about."""


class Subject:
    """For whom is asked, or who occupies: a pod, or a slot of a Reservation (its template's labels). `pinned` is the one
    node that a DaemonSet wants it on, which is a part of its node affinity. Made once a pod: it remembers what it is."""

    __slots__ = ("label_class", "labels", "namespace", "pinned", "shape")

    def __init__(self, namespace: str, labels: dict[str, str], shape: ShapeId, pinned: NodeName = NodeName("")) -> None:
        self.namespace = namespace
        self.labels = labels
        self.shape = shape
        self.pinned = pinned
        self.label_class: object = None


class Selector(msgspec.Struct, frozen=True, cache_hash=True):
    """A label selector that can be a key."""

    pairs: tuple[tuple[str, str], ...] = ()
    expressions: tuple[Expression, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        for key, value in self.pairs:
            if labels.get(key) != value:
                return False
        return all(holds(e, labels) for e in self.expressions)


class Rule(msgspec.Struct, frozen=True, cache_hash=True):
    """Pods with these labels (`selector`; None: nobody) in the named or the selected namespaces, or `everywhere`."""

    selector: Selector | None
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector | None = None
    everywhere: bool = False

    def about(self, namespace: str, labels: Mapping[str, str], known: Mapping[str, NamespaceObserved], arriving: bool) -> bool:
        """Whether a pod is meant. Of a namespace that nobody knows, as in kube-scheduler: a waiting pod's selector lists
        namespaces, and it is not among them; a running pod's selector is held against the labels of the `arriving`
        pod's namespace, of which there are none."""
        if self.selector is None:
            return False
        if not (self.everywhere or namespace in self.namespaces):
            if self.namespace_selector is None:
                return False
            seen = known.get(namespace)
            if seen is None and not arriving:
                return False
            if not self.namespace_selector.selects({} if seen is None else seen.labels):
                return False
        return self.selector.selects(labels)


class Wants(msgspec.Struct, frozen=True):
    """What a shape says about other pods. `label_keys` are those whose values its matchLabelKeys and mismatchLabelKeys
    read; `carries`: whether it matters to others once it runs; `special`: whether there is anything at all."""

    affinity: tuple[PodTerm, ...] = ()
    anti: tuple[PodTerm, ...] = ()
    preferred: tuple[tuple[int, PodTerm], ...] = ()
    hard: tuple[Spread, ...] = ()
    soft: tuple[Spread, ...] = ()
    ports: tuple[HostPort, ...] = ()
    label_keys: tuple[str, ...] = ()
    carries: bool = False
    special: bool = False


NOTHING = Wants()


def wants(shape: PodShape) -> Wants:
    terms = (*shape.pod_affinity, *shape.pod_anti_affinity)
    if not (terms or shape.spread or shape.host_ports):
        return NOTHING
    keys = {k for t in terms for k in (*t.match_label_keys, *t.mismatch_label_keys)}
    keys.update(k for s in shape.spread for k in s.match_label_keys)
    ports = host_ports(shape)
    return Wants(
        affinity=tuple(t for t in shape.pod_affinity if not t.weight),
        anti=tuple(t for t in shape.pod_anti_affinity if not t.weight),
        preferred=(
            *((t.weight, t) for t in shape.pod_affinity if t.weight),
            *((-t.weight, t) for t in shape.pod_anti_affinity if t.weight),
        ),
        hard=tuple(s for s in shape.spread if s.is_hard),
        soft=tuple(s for s in shape.spread if s.when_unsatisfiable == "ScheduleAnyway"),
        ports=ports,
        label_keys=tuple(sorted(keys)),
        carries=bool(terms),
        special=bool(terms or shape.spread or ports),
    )


class CarriedTerm(msgspec.Struct, frozen=True, cache_hash=True):
    """A term of a running pod, which is held against those that arrive: required anti-affinity (`weight` 0), or what it adds
    to the score."""

    rule: Rule
    topology_key: str
    weight: int


def carried(shape: Wants, namespace: str, labels: Mapping[str, str]) -> tuple[CarriedTerm, ...]:
    """The terms that such a pod brings along."""
    weighed = (*((0, t) for t in shape.anti), *((HARD_AFFINITY_WEIGHT, t) for t in shape.affinity), *shape.preferred)
    return tuple(CarriedTerm(rule_of(t, namespace, labels), t.topology_key, weight) for weight, t in weighed)


def rule_of(term: PodTerm, namespace: str, labels: Mapping[str, str]) -> Rule:
    """Whom a term of a pod in this namespace and with these labels is about. Neither namespaces nor a selector of them
    means the pod's own; an empty selector means all of them."""
    selector = _merged(term.selector, term.match_label_keys, term.mismatch_label_keys, labels)
    chosen = term.namespace_selector
    if chosen is None:
        return Rule(selector, term.namespaces or (namespace,))
    if not chosen.labels and not chosen.expressions:
        return Rule(selector, everywhere=True)
    return Rule(selector, term.namespaces, _selector(chosen))


def spread_rule(constraint: Spread, namespace: str, labels: Mapping[str, str]) -> Rule:
    """Whom a spread constraint counts: pods of the same namespace."""
    return Rule(_merged(constraint.selector, constraint.match_label_keys, (), labels), (namespace,))


def _selector(selector: LabelSelector) -> Selector:
    return Selector(tuple(sorted(selector.labels.items())), selector.expressions)


def _merged(
    selector: LabelSelector | None, same: tuple[str, ...], other: tuple[str, ...], labels: Mapping[str, str]
) -> Selector | None:
    """The selector with the pod's own values of these keys. The API server has merged them already at the pod's creation
    (affinity since 1.31, spread since 1.34): then the values of that time count, even if the label has changed. A
    template that was never admitted, or an older server, leaves them to us; a key that the pod lacks says nothing."""
    if selector is None:
        return None
    merged = {(e.key, e.operator) for e in selector.expressions if len(e.values) == 1}
    added = [
        Expression(key, operator, (labels[key],))
        for keys, operator in ((same, "In"), (other, "NotIn"))
        for key in keys
        if key in labels and (key, operator) not in merged
    ]
    return _selector(LabelSelector(selector.labels, (*selector.expressions, *added)))
