"""PodDisruptionBudgets → facts. What they mean is the API server's to judge; who plans evictions asks them before."""

from restow.contracts import events as e
from restow.kube import selectors
from restow.kube import wire_objects as w


def budget_fact(budget: w.Budget) -> e.BudgetObserved:
    meta, spec, status = budget.metadata, budget.spec or w.BudgetSpec(), budget.status or w.BudgetStatus()
    return e.BudgetObserved(
        meta.namespace, meta.name, meta.uid, selectors.selector(spec.selector), max(status.disruptions_allowed, 0)
    )
