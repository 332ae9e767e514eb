"""Questions that every controller asks of a pod or of object metadata. Nothing here changes an object."""

from __future__ import annotations

from typing import Any

from restow.kubesim.objects import Obj, parse_time

PodKey = tuple[str, str]
"""(namespace, name)"""

TERMINAL = ("Succeeded", "Failed")
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def key_of(obj: Obj) -> PodKey:
    meta = obj["metadata"]
    return (meta.get("namespace", ""), meta["name"])


def uid_of(obj: Obj) -> str:
    return obj["metadata"].get("uid", "")


def labels_of(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("labels") or {}


def annotations_of(obj: Obj) -> dict[str, str]:
    return obj["metadata"].get("annotations") or {}


def is_deleting(obj: Obj) -> bool:
    return obj["metadata"].get("deletionTimestamp") is not None


def phase_of(pod: Obj) -> str:
    return (pod.get("status") or {}).get("phase") or "Pending"


def node_of(pod: Obj) -> str:
    return (pod.get("spec") or {}).get("nodeName") or ""


def is_terminal(pod: Obj) -> bool:
    return phase_of(pod) in TERMINAL


def is_active(pod: Obj) -> bool:
    """Counts as a replica: neither finished nor being deleted (`controller.IsPodActive`)."""
    return not is_deleting(pod) and not is_terminal(pod)


def condition_of(obj: Obj, kind: str) -> Obj | None:
    for condition in (obj.get("status") or {}).get("conditions") or ():
        if condition.get("type") == kind:
            return condition
    return None


def is_ready(pod: Obj) -> bool:
    condition = condition_of(pod, "Ready")
    return condition is not None and condition.get("status") == "True"


def owner_reference(owner: Obj, api_version: str, kind: str) -> Obj:
    """The controller reference that points to `owner`."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": uid_of(owner),
        "controller": True,
        "blockOwnerDeletion": True,
    }


def seconds_of(text: str | None) -> float:
    """Seconds since 1970 of an RFC 3339 time; 0 for None."""
    if not text:
        return 0.0
    return parse_time(text).timestamp()


def duration_of(text: str) -> float:
    """Seconds of `1500ms`, `2s`, `1m30s`, `0.5h`; ValueError for anything else."""
    units = (("ms", 0.001), ("h", 3600.0), ("m", 60.0), ("s", 1.0))
    rest, total = text.strip(), 0.0
    if not rest:
        raise ValueError("an empty duration; write for example 1500ms, 2s or 1m30s")
    while rest:
        size = 0
        while size < len(rest) and (rest[size].isdigit() or rest[size] == "."):
            size += 1
        number, rest = rest[:size], rest[size:]
        for unit, factor in units:
            if number and rest.startswith(unit):
                total += float(number) * factor
                rest = rest[len(unit) :]
                break
        else:
            raise ValueError(f"{text!r} is not a duration; write for example 1500ms, 2s or 1m30s")
    return total


def available_in(pod: Obj, min_ready: int, now: float) -> float | None:
    """Seconds until the pod is available (0 or less: it is); None while it is not ready."""
    condition = condition_of(pod, "Ready")
    if condition is None or condition.get("status") != "True":
        return None
    if min_ready <= 0:
        return 0.0
    return seconds_of(condition.get("lastTransitionTime")) + min_ready - now


def int_or_percent(value: Any, total: int, *, up: bool) -> int:
    """`intstr.GetScaledValueFromIntOrPercent`."""
    if isinstance(value, str) and value.endswith("%"):
        scaled = int(value[:-1]) * total
        return -(-scaled // 100) if up else scaled // 100
    return int(value)


def set_condition(
    conditions: list[Obj], kind: str, status: str, reason: str, message: str, now: str, **more: Any
) -> list[Obj]:
    """The conditions with that one set; the same list if nothing about it changes."""
    fresh: Obj = {"type": kind, "status": status, **more}
    fresh["lastTransitionTime"] = now
    if reason:
        fresh["reason"] = reason
    if message:
        fresh["message"] = message
    kept: list[Obj] = []
    found = False
    for condition in conditions:
        if condition.get("type") != kind:
            kept.append(condition)
            continue
        found = True
        same = condition.get("status") == status
        if same and condition.get("reason", "") == reason and condition.get("message", "") == message:
            return conditions
        if same:
            fresh["lastTransitionTime"] = condition.get("lastTransitionTime", now)
        kept.append(fresh)
    if not found:
        kept.append(fresh)
    return kept
