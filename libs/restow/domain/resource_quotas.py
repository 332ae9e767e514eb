"""Whether a namespace would let another pod in: its ResourceQuotas, as Kubernetes' admission asks them.

Who follows a pod that goes asks for what that leaves. So a quota that is used up is no obstacle, one of which more is in use than it allows is:
it was lowered, or made for pods that were there already. (A pod that terminates is counted until its grace period is over; a controller
that is refused meanwhile tries again.)
"""

from restow.contracts.events import PodObserved
from restow.contracts.values import Expression, PodShape
from restow.domain.resources import GPU_MILLI, GPU_NAMES, PODS
from restow.domain.state import ClusterState


def over_quota(state: ClusterState, pod: PodObserved) -> str:
    """Why another pod like this one would not be made; empty where it would. O(quotas that are exceeded)."""
    shape = state.shapes[pod.shape]
    for quota in state.exceeded.values():
        if quota.namespace != pod.namespace or not all(_in_scope(one, shape) for one in quota.scopes):
            continue
        if asked := [name for name in quota.exceeded if _asks(shape, name)]:
            return f"ResourceQuota {quota.namespace}/{quota.name} has more of {', '.join(asked)} in use than it allows, so that no other pod is let in"
    return ""


def _asks(shape: PodShape, name: str) -> bool:
    """Whether the quota counts anything of the pod by this name. Limits are not in the log: who is counted by them is not known, and stays."""
    if name in (PODS, "count/pods") or name.startswith("limits."):
        return True
    resource = name.removeprefix("requests.")
    return shape.requests.get(GPU_MILLI if resource in GPU_NAMES else resource, 0) > 0


def _in_scope(scope: Expression, shape: PodShape) -> bool:
    """Whether the quota may be about the pod. Of what is not in the log (activeDeadlineSeconds) it may."""
    match scope.key:
        case "BestEffort":
            return not _asks_for_anything(shape)
        case "NotBestEffort":
            return _asks_for_anything(shape)
        case "CrossNamespacePodAffinity":
            return any(term.namespaces or term.namespace_selector is not None for term in (*shape.pod_affinity, *shape.pod_anti_affinity))
        case "PriorityClass":
            return _selects(scope, shape.priority_class)
    return True


def _selects(scope: Expression, name: str) -> bool:
    match scope.operator:
        case "In":
            return name in scope.values
        case "NotIn":
            return name not in scope.values
        case "DoesNotExist":
            return not name
    return bool(name)


def _asks_for_anything(shape: PodShape) -> bool:
    return any(amount for name, amount in shape.requests.items() if name != PODS)
