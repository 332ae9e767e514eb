"""What a delete does to an object: at once, gracefully, or after finalizers (k8s.io/apiserver rest.BeforeDelete)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from restow.kubesim.errors import conflict
from restow.kubesim.objects import Obj, dig, later
from restow.kubesim.resources import PODS, Resource

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"


def check_preconditions(resource: Resource, obj: Obj, uid: str | None, resource_version: str | None) -> None:
    """409 unless the object still is what the caller saw."""
    meta = obj["metadata"]
    if uid is not None and uid != meta["uid"]:
        why = (
            f"the UID in the precondition ({uid}) does not match the UID in record ({meta['uid']}). "
            "The object might have been deleted and then recreated"
        )
        raise conflict(resource, meta["name"], why, noun=resource.kind)
    if resource_version is not None and resource_version != meta["resourceVersion"]:
        why = (
            f"the ResourceVersion in the precondition ({resource_version}) does not match the ResourceVersion "
            f"in record ({meta['resourceVersion']}). The object might have been modified"
        )
        raise conflict(resource, meta["name"], why, noun=resource.kind)


def pod_grace(pod: Obj, requested: int | None) -> int:
    """Seconds that the pod may take to stop; 0 removes it at once."""
    if not dig(pod, "spec", "nodeName") or dig(pod, "status", "phase") in ("Failed", "Succeeded"):
        return 0
    grace = requested
    if grace is None:
        grace = dig(pod, "spec", "terminationGracePeriodSeconds", default=30)
    return 1 if grace < 0 else grace


def finalizers_after(current: list[str], propagation: str | None) -> list[str]:
    """The finalizers with those that the propagation policy adds or takes away."""
    if propagation is None:
        return current
    kept = [item for item in current if item not in (ORPHAN, FOREGROUND)]
    if propagation == "Orphan":
        kept.append(ORPHAN)
    elif propagation == "Foreground":
        kept.append(FOREGROUND)
    return kept


def mark_deleted(
    resource: Resource, obj: Obj, now: datetime, *, grace: int | None, propagation: str | None
) -> Obj | None:
    """The object as it waits for its end, or None if it goes now. Returns `obj` itself if nothing changes."""
    meta: dict[str, Any] = dict(obj["metadata"])
    finalizers = finalizers_after(meta.get("finalizers") or [], propagation)
    seconds = 0
    if resource == PODS:
        seconds = pod_grace(obj, grace)
    if seconds == 0 and not finalizers:
        return None
    if finalizers:
        meta["finalizers"] = finalizers
    else:
        meta.pop("finalizers", None)
    if "deletionTimestamp" not in meta:
        meta["deletionTimestamp"] = later(now, seconds)
        meta["deletionGracePeriodSeconds"] = seconds
        if "generation" in meta:
            meta["generation"] += 1
    else:
        _shorten(meta, now, seconds, explicit=grace is not None)
    if meta == obj["metadata"]:
        return obj
    return {**obj, "metadata": meta}


def marked_at_last(resource: Resource, obj: Obj, now: datetime) -> Obj | None:
    """A pod that goes now is first told with a grace period of 0, as kube-apiserver does it; None if it was, or is no pod."""
    meta = obj["metadata"]
    if resource != PODS or meta.get("deletionGracePeriodSeconds") == 0:
        return None
    meta = {**meta, "deletionTimestamp": later(now, 0), "deletionGracePeriodSeconds": 0}
    if "deletionTimestamp" not in obj["metadata"] and "generation" in meta:
        meta["generation"] += 1
    return {**obj, "metadata": meta}


def _shorten(meta: dict[str, Any], now: datetime, seconds: int, *, explicit: bool) -> None:
    """A second delete may only bring the end nearer."""
    before = meta.get("deletionGracePeriodSeconds") or 0
    if (explicit or seconds == 0) and seconds < before:
        # The end moves to the first deletion plus the new period, but never before now.
        meta["deletionTimestamp"] = later(now, seconds)
        meta["deletionGracePeriodSeconds"] = seconds


def is_complete(obj: Obj) -> bool:
    """A deletion was requested and nothing stands in its way any more."""
    meta = obj["metadata"]
    return (
        "deletionTimestamp" in meta
        and not meta.get("finalizers")
        and not meta.get("deletionGracePeriodSeconds")
    )
