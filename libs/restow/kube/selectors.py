"""Affinity, selectors and spread: wire form → contract, sorted wherever Kubernetes treats a list as a set."""

from collections.abc import Iterable

import msgspec

from restow.contracts import values as v
from restow.kube import wire

_sort = msgspec.json.Encoder(order="deterministic").encode
"""A total order that is the same on every machine."""


class Affinities(msgspec.Struct, frozen=True, omit_defaults=True):
    required: tuple[v.NodeTerm, ...] | None = None
    preferred: tuple[v.PreferredNodeTerm, ...] = ()
    pod: tuple[v.PodTerm, ...] = ()
    anti: tuple[v.PodTerm, ...] = ()


def affinities(affinity: wire.Affinity | None) -> Affinities:
    if affinity is None:
        return Affinities()
    node = affinity.node_affinity or wire.NodeAffinity()
    return Affinities(
        required=node_terms(node.required),
        preferred=tuple(
            sorted(
                (v.PreferredNodeTerm(p.weight, _node_term(p.preference or wire.NodeTerm())) for p in node.preferred or ()),
                key=_sort,
            )
        ),
        pod=_pod_terms(affinity.pod_affinity),
        anti=_pod_terms(affinity.pod_anti_affinity),
    )


def selector(selector: wire.LabelSelector | None) -> v.LabelSelector | None:
    if selector is None:
        return None
    return v.LabelSelector(labels=selector.match_labels or {}, expressions=_expressions(selector.match_expressions))


def node_terms(selector: wire.NodeSelector | None) -> tuple[v.NodeTerm, ...] | None:
    """None where there is no selector: every node. A selector without terms selects none."""
    if selector is None:
        return None
    return tuple(sorted(map(_node_term, selector.node_selector_terms or ()), key=_sort))


def spread(constraints: Iterable[wire.Spread] | None) -> tuple[v.Spread, ...]:
    return tuple(
        sorted(
            (
                v.Spread(
                    max_skew=c.max_skew,
                    topology_key=c.topology_key,
                    when_unsatisfiable=c.when_unsatisfiable,
                    selector=selector(c.label_selector),
                    min_domains=c.min_domains or 0,
                    node_affinity_policy=c.node_affinity_policy or "Honor",
                    node_taints_policy=c.node_taints_policy or "Ignore",
                    match_label_keys=tuple(sorted(c.match_label_keys or ())),
                )
                for c in constraints or ()
            ),
            key=_sort,
        )
    )


def _node_term(term: wire.NodeTerm) -> v.NodeTerm:
    return v.NodeTerm(labels=_expressions(term.match_expressions), fields=_expressions(term.match_fields))


def _pod_terms(affinity: wire.PodAffinity | None) -> tuple[v.PodTerm, ...]:
    if affinity is None:
        return ()
    required = [_pod_term(term, 0) for term in affinity.required or ()]
    preferred = [_pod_term(p.pod_affinity_term or wire.PodTerm(), p.weight) for p in affinity.preferred or ()]
    return tuple(sorted(required + preferred, key=_sort))


def _pod_term(term: wire.PodTerm, weight: int) -> v.PodTerm:
    return v.PodTerm(
        topology_key=term.topology_key,
        selector=selector(term.label_selector),
        namespaces=tuple(sorted(term.namespaces or ())),
        namespace_selector=selector(term.namespace_selector),
        match_label_keys=tuple(sorted(term.match_label_keys or ())),
        mismatch_label_keys=tuple(sorted(term.mismatch_label_keys or ())),
        weight=weight,
    )


def _expressions(expressions: Iterable[wire.Expression] | None) -> tuple[v.Expression, ...]:
    if not expressions:
        return ()
    return tuple(
        sorted((v.Expression(e.key, e.operator, tuple(sorted(e.values or ()))) for e in expressions), key=_sort)
    )
