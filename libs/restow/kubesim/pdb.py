"""The disruption controller: keeps the status of PodDisruptionBudgets true (pkg/controller/disruption)."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from restow.kubesim.objects import Obj, controller_of, dig, parse_time
from restow.kubesim.resources import (
    DEPLOYMENTS,
    PODDISRUPTIONBUDGETS,
    PODS,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    STATEFULSETS,
)
from restow.kubesim.selectors import label_selector_test

if TYPE_CHECKING:
    from restow.kubesim.shelf import Change
    from restow.kubesim.store import Store

# An approved eviction that did not delete its pod stops counting after this time.
_CONFIRMATION = timedelta(minutes=2)
_SCALED = (DEPLOYMENTS, REPLICASETS, STATEFULSETS, REPLICATIONCONTROLLERS)


def _selects(budget: Obj, labels: Obj) -> bool:
    # policy/v1: an empty selector selects every pod of the namespace, a missing one none.
    selector = dig(budget, "spec", "selector")
    return selector is not None and label_selector_test(selector)(labels)


def matching_budgets(store: Store, pod: Obj) -> list[Obj]:
    """The budgets that select the pod."""
    meta = pod["metadata"]
    labels = meta.get("labels") or {}
    budgets = store.list(PODDISRUPTIONBUDGETS, meta.get("namespace", ""))
    return [budget for budget in budgets if _selects(budget, labels)]


def _scaled(value: int | str, total: int) -> int:
    """An int-or-percentage; percentages round up."""
    if isinstance(value, str):
        return math.ceil(int(value.rstrip("%")) * total / 100)
    return value


def _scale_owner(store: Store, obj: Obj) -> Obj | None:
    """The object whose replicas say how many pods are expected: a ReplicaSet's Deployment, or the owner."""
    ref = controller_of(obj)
    if ref is None:
        return None
    group = ref["apiVersion"].rpartition("/")[0]
    resource = store.registry.by_kind(group, ref["kind"])
    if resource is None or ("scale" not in resource.subresources):
        return None
    owner = store.find(resource, obj["metadata"].get("namespace", ""), ref["name"])
    if owner is None or owner["metadata"]["uid"] != ref["uid"]:
        return None
    return (_scale_owner(store, owner) if resource == REPLICASETS else None) or owner


def _expected_by_scale(store: Store, pods: list[Obj]) -> int:
    one_of_each = {ref["uid"]: pod for pod in pods if (ref := controller_of(pod)) is not None}
    owners: dict[str, int] = {}
    for pod in one_of_each.values():
        owner = _scale_owner(store, pod)
        if owner is not None:
            owners[owner["metadata"]["uid"]] = dig(owner, "spec", "replicas", default=1)
    return sum(owners.values())


def _expectations(store: Store, budget: Obj, pods: list[Obj]) -> tuple[int, int]:
    """(expectedPods, desiredHealthy)."""
    spec = budget.get("spec") or {}
    if (unavailable := spec.get("maxUnavailable")) is not None:
        expected = _expected_by_scale(store, pods)
        return expected, max(0, expected - _scaled(unavailable, expected))
    available = spec.get("minAvailable", 1 if "minAvailable" not in spec else 0)
    if isinstance(available, str):
        expected = _expected_by_scale(store, pods)
        return expected, _scaled(available, expected)
    return len(pods), available


def _healthy(pod: Obj) -> bool:
    conditions = dig(pod, "status", "conditions", default=())
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def status_of(store: Store, budget: Obj, pods: list[Obj]) -> Obj:
    """The status that the budget should have now. `pods`: those that it selects."""
    expected, desired = _expectations(store, budget, pods)
    alive = {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}
    now = store.clock()
    disrupted = {
        name: since
        for name, since in (dig(budget, "status", "disruptedPods", default={})).items()
        if name in alive and parse_time(since) + _CONFIRMATION > now
    }
    healthy = sum(
        1
        for pod in pods
        if pod["metadata"]["name"] in alive and pod["metadata"]["name"] not in disrupted and _healthy(pod)
    )
    allowed = max(0, healthy - desired) if expected > 0 else 0
    status: Obj = {**(budget.get("status") or {})}
    status.pop("disruptedPods", None)
    if disrupted:
        status["disruptedPods"] = disrupted
    status |= {
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        "disruptionsAllowed": allowed,
        "expectedPods": expected,
        "observedGeneration": budget["metadata"].get("generation", 1),
    }
    decide(store, budget, status)
    return status


def decide(store: Store, budget: Obj, status: Obj) -> None:
    """Set the condition DisruptionAllowed from disruptionsAllowed."""
    allowed = status.get("disruptionsAllowed", 0) > 0
    wanted = "True" if allowed else "False"
    reason = "SufficientPods" if allowed else "InsufficientPods"
    generation = budget["metadata"].get("generation", 1)
    conditions = status.get("conditions") or []
    old = next((item for item in conditions if item.get("type") == "DisruptionAllowed"), None)
    since = old["lastTransitionTime"] if old is not None and old.get("status") == wanted else store.now()
    condition: dict[str, Any] = {
        "type": "DisruptionAllowed",
        "status": wanted,
        "observedGeneration": generation,
        "lastTransitionTime": since,
        "reason": reason,
        "message": "",
    }
    status["conditions"] = [item for item in conditions if item.get("type") != "DisruptionAllowed"] + [
        condition
    ]


class _Selected:
    """The pods that one version of a budget's selector selects, by name."""

    def __init__(self, selector: Obj | None) -> None:
        self.selector = selector
        # policy/v1: an empty selector selects every pod of the namespace, a missing one none.
        self._test = label_selector_test(selector)
        self.names: dict[str, None] = {}

    def see(self, pod: Obj, gone: bool) -> bool:
        """Whether this version of the pod, or the one before, is selected."""
        name, was = pod["metadata"]["name"], pod["metadata"]["name"] in self.names
        now = not gone and self._test(pod["metadata"].get("labels") or {})
        if now:
            self.names[name] = None
        elif was:
            del self.names[name]
        return now or was


class DisruptionController:
    """Recomputes budgets whose pods changed. `soon` runs a function later; without it work is done at once.

    Which pods a budget selects is kept, and not searched for: a change of one pod costs the tests of its namespace's budgets.
    """

    def __init__(self, store: Store, soon: Callable[[Callable[[], None]], Any] | None = None):
        self.store = store
        self.soon = soon
        self._selected: dict[str, dict[str, _Selected]] = {}
        self._dirty: dict[tuple[str, str], None] = {}
        self._scheduled = False
        store.subscribe(self._note)

    def _note(self, change: Change) -> None:
        meta = change.stored.obj["metadata"]
        namespace = meta.get("namespace", "")
        if change.resource == PODDISRUPTIONBUDGETS:
            self._budget(change, namespace, meta["name"])
            return
        budgets = self._selected.get(namespace)
        if not budgets:
            return
        if change.resource == PODS:
            for name, selected in budgets.items():
                if selected.see(change.stored.obj, change.type == "DELETED"):
                    self._mark(namespace, name)
        elif change.resource in _SCALED:
            for name in budgets:
                self._mark(namespace, name)

    def _budget(self, change: Change, namespace: str, name: str) -> None:
        budgets = self._selected.setdefault(namespace, {})
        if change.type == "DELETED":
            budgets.pop(name, None)
            return
        selector, known = dig(change.stored.obj, "spec", "selector"), budgets.get(name)
        if known is None or known.selector != selector:
            budgets[name] = fresh = _Selected(selector)
            for pod in self.store.list(PODS, namespace):
                fresh.see(pod, False)
        self._mark(namespace, name)

    def _mark(self, namespace: str, name: str) -> None:
        self._dirty[(namespace, name)] = None
        if self._scheduled:
            return
        self._scheduled = True
        if self.soon is None:
            self.flush()
        else:
            self.soon(self.flush)

    def flush(self) -> None:
        """Bring every marked budget up to date."""
        dirty, self._dirty, self._scheduled = self._dirty, {}, False
        for namespace, name in dirty:
            budget = self.store.find(PODDISRUPTIONBUDGETS, namespace, name)
            selected = self._selected.get(namespace, {}).get(name)
            if budget is None or selected is None:
                continue
            pods = [pod for each in selected.names if (pod := self.store.find(PODS, namespace, each)) is not None]
            status = status_of(self.store, budget, pods)
            if status != budget.get("status"):
                self.store.update(
                    PODDISRUPTIONBUDGETS, {**budget, "status": status}, subresource="status", owned=True
                )
