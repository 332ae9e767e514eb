"""The status and conditions of a Deployment."""

from __future__ import annotations

from restow.kubesim.objects import Obj
from restow.kubesim.podstate import condition_of, is_deleting, seconds_of, set_condition
from restow.kubesim.resources import DEPLOYMENTS
from restow.kubesim.runtime import Runtime, write_status
from restow.kubesim.workloads.rollout import bounds, replicas_of

_NO_DEADLINE = 2**31 - 1


def _sum(sets: list[Obj], field: str) -> int:
    return sum((s.get("status") or {}).get(field) or 0 for s in sets)


def _counts(deployment: Obj, new: Obj | None, sets: list[Obj]) -> dict[str, int]:
    wanted, available = replicas_of(deployment), _sum(sets, "availableReplicas")
    counts = {
        "replicas": _sum(sets, "replicas"),
        "updatedReplicas": _sum([new], "replicas") if new is not None else 0,
        "readyReplicas": _sum(sets, "readyReplicas"),
        "availableReplicas": available,
        "unavailableReplicas": max(sum(replicas_of(s) for s in sets) - available, 0) if sets else wanted,
    }
    return {name: count for name, count in counts.items() if count}


def is_complete(deployment: Obj, new: Obj, sets: list[Obj]) -> bool:
    """Every replica is new and available, and no old one is left (`DeploymentComplete`)."""
    wanted, counts = replicas_of(deployment), _counts(deployment, new, sets)
    return all(counts.get(f, 0) == wanted for f in ("updatedReplicas", "replicas", "availableReplicas"))


def write(runtime: Runtime, deployment: Obj, new: Obj | None, sets: list[Obj]) -> float | None:
    """Write the status if it changed; returns the seconds until the progress deadline while that runs."""
    before = deployment.get("status") or {}
    status: Obj = {
        "observedGeneration": deployment["metadata"].get("generation", 1),
        **_counts(deployment, new, sets),
    }
    if "collisionCount" in before:
        status["collisionCount"] = before["collisionCount"]
    conditions, now = before.get("conditions") or [], runtime.store.now()
    if not is_deleting(deployment):
        conditions = _with_available(conditions, deployment, status, now)
    conditions, deadline = _with_progress(runtime, conditions, deployment, new, sets, status)
    if conditions:
        status["conditions"] = conditions
    write_status(runtime.store, DEPLOYMENTS, deployment, status)
    return deadline


def _set(conditions: list[Obj], kind: str, status: str, reason: str, message: str, now: str) -> list[Obj]:
    return set_condition(conditions, kind, status, reason, message, now, lastUpdateTime=now)


def _with_available(conditions: list[Obj], deployment: Obj, status: Obj, now: str) -> list[Obj]:
    least = replicas_of(deployment) - bounds(deployment)[1]
    if status.get("availableReplicas", 0) >= least:
        return _set(
            conditions, "Available", "True", "MinimumReplicasAvailable",
            "Deployment has minimum availability.", now,
        )  # fmt: skip
    return _set(
        conditions, "Available", "False", "MinimumReplicasUnavailable",
        "Deployment does not have minimum availability.", now,
    )  # fmt: skip


def _with_progress(
    runtime: Runtime, conditions: list[Obj], deployment: Obj, new: Obj | None, sets: list[Obj], status: Obj
) -> tuple[list[Obj], float | None]:
    """The Progressing condition, and the seconds until its deadline."""
    now = runtime.store.now()
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    deadline = 600 if deadline is None else deadline
    current = condition_of({"status": {"conditions": conditions}}, "Progressing")
    if deployment["spec"].get("paused"):
        if current is None or current.get("reason") != "DeploymentPaused":
            conditions = _set(
                conditions, "Progressing", "Unknown", "DeploymentPaused", "Deployment is paused", now
            )
        return conditions, None
    if new is None:
        return conditions, None
    new_name = new["metadata"]["name"]
    if is_complete(deployment, new, sets):
        done = f'ReplicaSet "{new_name}" has successfully progressed.'
        return _set(conditions, "Progressing", "True", "NewReplicaSetAvailable", done, now), None
    if current is not None and current.get("reason") == "DeploymentPaused":
        text = "Deployment is resumed"
        return _set(conditions, "Progressing", "Unknown", "DeploymentResumed", text, now), deadline
    if current is None:
        text = f'Created new replica set "{new_name}"'
        return _set(conditions, "Progressing", "True", "NewReplicaSetCreated", text, now), deadline
    if _progressed(deployment, status, current, new):
        kept = [c for c in conditions if c["type"] != "Progressing"]
        text = f'ReplicaSet "{new_name}" is progressing.'
        fresh = _set(kept, "Progressing", "True", "ReplicaSetUpdated", text, now)
        if current.get("status") == "True":
            fresh[-1]["lastTransitionTime"] = current["lastTransitionTime"]
        return fresh, deadline
    if deadline >= _NO_DEADLINE or current.get("reason") == "NewReplicaSetAvailable":
        return conditions, None
    waited = runtime.now() - seconds_of(current.get("lastUpdateTime"))
    if waited < deadline:
        return conditions, deadline - waited
    text = f'ReplicaSet "{new_name}" has timed out progressing.'
    return _set(conditions, "Progressing", "False", "ProgressDeadlineExceeded", text, now), None


def _progressed(deployment: Obj, status: Obj, current: Obj, new: Obj) -> bool:
    """More new pods, fewer old ones, or more ready or available than before; or the first step of a new template."""
    before = deployment.get("status") or {}

    def old_pods(counts: Obj) -> int:
        return counts.get("replicas", 0) - counts.get("updatedReplicas", 0)

    more = any(
        status.get(f, 0) > before.get(f, 0) for f in ("updatedReplicas", "readyReplicas", "availableReplicas")
    )
    told = f'"{new["metadata"]["name"]}"' in current.get("message", "")
    restarted = current.get("reason") == "NewReplicaSetAvailable" and not told
    return more or old_pods(status) < old_pods(before) or restarted
