"""metav1.LabelSelector over labels: the one home of that rule."""

from collections.abc import Mapping

from restow.contracts.events import BudgetObserved, PodObserved
from restow.contracts.values import Expression, LabelSelector


def holds(expression: Expression, labels: Mapping[str, str]) -> bool:
    """One requirement. NotIn holds where the label is absent; an operator that selectors do not have holds nowhere."""
    have = labels.get(expression.key)
    match expression.operator:
        case "In":
            return have is not None and have in expression.values
        case "NotIn":
            return have is None or have not in expression.values
        case "Exists":
            return have is not None
        case "DoesNotExist":
            return have is None
    return False


def selects(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """All of it must hold; an empty one selects everything."""
    for key, value in selector.labels.items():
        if labels.get(key) != value:
            return False
    return all(holds(e, labels) for e in selector.expressions)


def covers(budget: BudgetObserved, pod: PodObserved) -> bool:
    """Whether a PodDisruptionBudget is about the pod."""
    return budget.namespace == pod.namespace and budget.selector is not None and selects(budget.selector, pod.labels)
