"""Where a pod may run: label selectors, node affinity, taints. As `component-helpers/scheduling` decides it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from restow.kubesim.objects import Obj
from restow.kubesim.podstate import labels_of

Selector = dict[str, Any] | None


def _holds(expression: Obj, labels: dict[str, str]) -> bool:
    """One matchExpressions entry of a label selector or a node selector."""
    key, operator = expression["key"], expression["operator"]
    values: list[str] = expression.get("values") or []
    if operator == "In":
        return key in labels and labels[key] in values
    if operator == "NotIn":
        return key not in labels or labels[key] not in values
    if operator == "Exists":
        return key in labels
    if operator == "DoesNotExist":
        return key not in labels
    if operator in ("Gt", "Lt") and key in labels and len(values) == 1:
        try:
            have, bound = int(labels[key]), int(values[0])
        except ValueError:
            return False
        return have > bound if operator == "Gt" else have < bound
    return False


def selector_matches(selector: Selector, labels: dict[str, str]) -> bool:
    """metav1.LabelSelector; None matches nothing, {} everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    return all(_holds(expression, labels) for expression in selector.get("matchExpressions") or ())


def _term_matches(term: Obj, node: Obj) -> bool:
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = labels_of(node)
    name = {"metadata.name": node["metadata"]["name"]}
    return all(_holds(e, labels) for e in expressions) and all(_holds(f, name) for f in fields)


def any_term_matches(terms: Iterable[Obj], node: Obj) -> bool:
    """nodeSelectorTerms, ORed."""
    return any(_term_matches(term, node) for term in terms)


def required_terms(spec: Obj) -> list[Obj] | None:
    """nodeSelectorTerms of the required node affinity; None without one."""
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity")) or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return None if required is None else required.get("nodeSelectorTerms") or []


def affinity_matches(spec: Obj, node: Obj) -> bool:
    """nodeSelector and required node affinity of a pod spec."""
    labels = labels_of(node)
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    terms = required_terms(spec)
    return terms is None or any_term_matches(terms, node)


def pinned_node(spec: Obj) -> str:
    """The only node that matchFields allow, or ""."""
    terms = required_terms(spec)
    names = set()
    for term in terms or ():
        name = ""
        for entry in term.get("matchFields") or ():
            if entry["key"] == "metadata.name" and entry["operator"] == "In" and len(entry["values"]) == 1:
                name = entry["values"][0]
        names.add(name)
    return names.pop() if len(names) == 1 else ""


def tolerates(toleration: Obj, taint: Obj) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    key = toleration.get("key", "")
    if key and key != taint["key"]:
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    return bool(key) and operator == "Equal" and toleration.get("value", "") == taint.get("value", "")


def untolerated(spec: Obj, node: Obj, effects: Iterable[str]) -> Obj | None:
    """The first taint of these effects that the pod spec does not tolerate."""
    taints = (node.get("spec") or {}).get("taints")
    if not taints:
        return None
    tolerations = spec.get("tolerations") or ()
    for taint in taints:
        if taint.get("effect") in effects and not any(tolerates(t, taint) for t in tolerations):
            return taint
    return None
