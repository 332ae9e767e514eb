"""pods/eviction: a delete that PodDisruptionBudgets may refuse (pkg/registry/core/pod/storage/eviction.go)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from restow.kubesim import deletion
from restow.kubesim.errors import ApiError, bad_request, forbidden
from restow.kubesim.objects import Obj, dig, member
from restow.kubesim.pdb import decide, matching_budgets
from restow.kubesim.resources import PODDISRUPTIONBUDGETS, PODS

if TYPE_CHECKING:
    from restow.kubesim.routes import RequestInfo
    from restow.kubesim.store import Store

_MAX_DISRUPTED = 2000
SUCCESS = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def evict(store: Store, info: RequestInfo, body: Obj) -> Obj:
    """Evict the pod of the path; returns the Status to answer with.

    429 where a budget does not allow it now, 409 where a precondition fails, 500 where two budgets match.
    """
    name, namespace = info.name, info.namespace
    if dig(body, "metadata", "name", default=name) != name:
        raise bad_request("name in URL does not match name in Eviction object")
    check_namespace(body, namespace)
    version = body.get("apiVersion", "policy/v1")
    if version not in ("policy/v1", "policy/v1beta1", "v1"):
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version (policy/v1)"
        )
    options = member(body, "deleteOptions")
    preconditions = member(options, "preconditions")
    uid, resource_version = preconditions.get("uid"), preconditions.get("resourceVersion")
    dry_run = info.dry_run or bool(options.get("dryRun"))
    pod = store.get(PODS, namespace, name)
    if not _can_ignore_budgets(pod):
        # Preconditions fail before a budget is charged, so that a late request costs nobody anything.
        deletion.check_preconditions(PODS, pod, uid, resource_version)
        _charge(store, pod, dry_run)
    else:
        deletion.check_preconditions(PODS, pod, uid, resource_version)
    if not dry_run and "deletionTimestamp" not in pod["metadata"]:
        pod = _mark(store, pod)
    store.delete(
        PODS,
        namespace,
        name,
        grace_period=options.get("gracePeriodSeconds"),
        uid=uid,
        propagation=options.get("propagationPolicy"),
        dry_run=dry_run,
    )
    return SUCCESS


def check_namespace(body: Obj, namespace: str) -> None:
    """Of a Binding or an Eviction, which may leave it out. 400 where it is another one's than the path's."""
    if dig(body, "metadata", "namespace", default=namespace) not in ("", namespace):
        raise bad_request("the namespace of the provided object does not match the namespace sent on the request")


def _can_ignore_budgets(pod: Obj) -> bool:
    phase = dig(pod, "status", "phase")
    return phase in ("Succeeded", "Failed", "Pending") or "deletionTimestamp" in pod["metadata"]


def _mark(store: Store, pod: Obj) -> Obj:
    """The condition DisruptionTarget says why the pod ends."""
    status = dict(pod.get("status") or {})
    conditions = [item for item in status.get("conditions", ()) if item.get("type") != "DisruptionTarget"]
    target = {
        "type": "DisruptionTarget",
        "status": "True",
        "lastProbeTime": None,
        "lastTransitionTime": store.now(),
        "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting",
    }
    status["conditions"] = [*conditions, target]
    return store.update(PODS, {**pod, "status": status}, subresource="status", owned=True)


def is_ready(pod: Obj) -> bool:
    conditions = dig(pod, "status", "conditions", default=())
    return any(item.get("type") == "Ready" and item.get("status") == "True" for item in conditions)


def _charge(store: Store, pod: Obj, dry_run: bool) -> None:
    """Take one disruption from the pod's budget, if it has one; 429 if none is left."""
    budgets = matching_budgets(store, pod)
    if len(budgets) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        )
        raise ApiError(500, "", text)
    if not budgets:
        return
    budget = budgets[0]
    status = budget.get("status") or {}
    if not is_ready(pod):
        if dig(budget, "spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow":
            return
        desired = status.get("desiredHealthy", 0)
        if status.get("currentHealthy", 0) >= desired > 0:
            return
    _decrement(store, budget, pod["metadata"]["name"], dry_run)


def _refused(cause: str, retry_after: int) -> ApiError:
    details: Obj = {"causes": [{"reason": "DisruptionBudget", "message": cause}]}
    headers = None
    if retry_after:
        details["retryAfterSeconds"] = retry_after
        headers = {"Retry-After": str(retry_after)}
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return ApiError(429, "TooManyRequests", text, details, headers)


def _decrement(store: Store, budget: Obj, pod_name: str, dry_run: bool) -> None:
    meta, status = budget["metadata"], dict(budget.get("status") or {})
    name = meta["name"]
    if status.get("observedGeneration", 0) < meta.get("generation", 0):
        raise _refused(f"The disruption budget {name} is still being processed by the server.", 10)
    allowed = status.get("disruptionsAllowed", 0)
    if allowed < 0:
        raise forbidden(PODDISRUPTIONBUDGETS, name, "pdb disruptions allowed is negative")
    disrupted = dict(status.get("disruptedPods") or {})
    if len(disrupted) > _MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden(PODDISRUPTIONBUDGETS, name, why)
    if allowed == 0:
        needs, has = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        cause = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
        raise _refused(cause, 0)
    if dry_run:
        return
    disrupted[pod_name] = store.now()
    status["disruptedPods"] = disrupted
    status["disruptionsAllowed"] = allowed - 1
    decide(store, budget, status)
    store.update(PODDISRUPTIONBUDGETS, {**budget, "status": status}, subresource="status", owned=True)
