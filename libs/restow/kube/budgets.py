"""PodDisruptionBudgets → facts. What they mean is the API server's to judge; who plans evictions asks them before."""

from restow.contracts import events as e
from restow.kube import selectors
from restow.kube import wire_objects as w

ALWAYS = "AlwaysAllow"
"""The `unhealthyPodEvictionPolicy` by which pods that are not ready are evicted whatever the budget allows. Any other, also one that we do
not know, is taken for the default, IfHealthyBudget: they are while enough others are healthy."""


def budget_fact(budget: w.Budget) -> e.BudgetObserved:
    meta, spec, status = budget.metadata, budget.spec or w.BudgetSpec(), budget.status or w.BudgetStatus()
    return e.BudgetObserved(
        meta.namespace,
        meta.name,
        meta.uid,
        selectors.selector(spec.selector),
        max(status.disruptions_allowed, 0),
        spec.unhealthy_pod_eviction_policy == ALWAYS or status.current_healthy >= status.desired_healthy > 0,
    )
