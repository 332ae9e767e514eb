"""Selectors, tolerations and terms: does this match that? Operators as in the Kubernetes API reference."""

from collections.abc import Mapping, Sequence

from oracle.world import World
from restow.contracts import events as e
from restow.contracts.values import Expression, LabelSelector, NodeTerm, PodTerm, Taint, Toleration


def label_expression(want: Expression, labels: Mapping[str, str]) -> bool:
    """metav1.LabelSelectorRequirement. A key that is not there is not in any list."""
    has = want.key in labels
    match want.operator:
        case "In":
            return has and labels[want.key] in want.values
        case "NotIn":
            return not has or labels[want.key] not in want.values
        case "Exists":
            return has
        case "DoesNotExist":
            return not has
    return False


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """None selects nothing, an empty selector everything."""
    if selector is None:
        return False
    for key, value in selector.labels.items():
        if labels.get(key) != value:
            return False
    return all(label_expression(want, labels) for want in selector.expressions)


def integer(text: str) -> int | None:
    """As Go's ParseInt with base 10: an optional sign and digits, 64 bits."""
    digits = text[1:] if text[:1] in ("+", "-") else text
    if not digits or any(c not in "0123456789" for c in digits):
        return None
    number = int(text)
    return number if -(1 << 63) <= number < (1 << 63) else None


def node_expression(want: Expression, labels: Mapping[str, str]) -> bool:
    """v1.NodeSelectorRequirement: as for labels, and Gt and Lt on integers."""
    if want.operator not in ("Gt", "Lt"):
        return label_expression(want, labels)
    have = integer(labels[want.key]) if want.key in labels else None
    limit = integer(want.values[0]) if len(want.values) == 1 else None
    if have is None or limit is None:
        return False
    return have > limit if want.operator == "Gt" else have < limit


def node_term(term: NodeTerm, node: e.NodeObserved) -> bool:
    """All of its expressions; a term without any matches nothing."""
    if not term.labels and not term.fields:
        return False
    if not all(node_expression(want, node.labels) for want in term.labels):
        return False
    return all(label_expression(want, {"metadata.name": node.name}) for want in term.fields)


def node_terms(terms: Sequence[NodeTerm] | None, node: e.NodeObserved) -> bool:
    """Any of the terms; None is no restriction."""
    return terms is None or any(node_term(term, node) for term in terms)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """An empty key or effect stands for all of them; Exists does not look at the value."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in ("Equal", "") and toleration.value == taint.value


def tolerated(tolerations: Sequence[Toleration], taint: Taint) -> bool:
    return any(tolerates(t, taint) for t in tolerations)


def untolerated(tolerations: Sequence[Toleration], taints: Sequence[Taint]) -> Taint | None:
    """The first taint that keeps a pod away: PreferNoSchedule never does."""
    for taint in taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerated(tolerations, taint):
            return taint
    return None


def with_own_labels(
    selector: LabelSelector | None, own: Mapping[str, str], same: Sequence[str], other: Sequence[str] = ()
) -> LabelSelector | None:
    """matchLabelKeys and mismatchLabelKeys: the selector also asks for (or refuses) the pod's own values. Keys that the
    pod does not have are passed over."""
    if selector is None:
        return None
    more = [Expression(key, "In", (own[key],)) for key in same if key in own]
    more += [Expression(key, "NotIn", (own[key],)) for key in other if key in own]
    return LabelSelector(selector.labels, selector.expressions + tuple(more))


def namespace_selected(world: World, term: PodTerm, name: str) -> bool:
    """A namespace that nobody has seen is selected only by the selector of all namespaces."""
    if name not in world.namespaces:
        return term.namespace_selector == LabelSelector()
    return selects(term.namespace_selector, world.namespaces[name].labels)


def pod_term(world: World, term: PodTerm, owner: e.PodObserved, target: e.PodObserved) -> bool:
    """Whether `owner`'s inter-pod term is about `target` (topology aside). Namespaces are those named and those selected;
    where neither is said, the owner's own."""
    if not term.namespaces and term.namespace_selector is None:
        if target.namespace != owner.namespace:
            return False
    elif target.namespace not in term.namespaces and not namespace_selected(world, term, target.namespace):
        return False
    selector = with_own_labels(term.selector, owner.labels, term.match_label_keys, term.mismatch_label_keys)
    return selects(selector, target.labels)
