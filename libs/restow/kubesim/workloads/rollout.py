"""How many replicas each ReplicaSet of a Deployment should have. Pure arithmetic on objects."""

from __future__ import annotations

from restow.kubesim.objects import Obj
from restow.kubesim.podstate import annotations_of, int_or_percent, seconds_of, uid_of

HASH_LABEL = "pod-template-hash"
REVISION = "deployment.kubernetes.io/revision"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MAX = "deployment.kubernetes.io/max-replicas"

Sizes = list[tuple[Obj, int]]


def replicas_of(obj: Obj) -> int:
    replicas = obj["spec"].get("replicas")
    return 1 if replicas is None else replicas


def is_recreate(deployment: Obj) -> bool:
    return (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"


def bounds(deployment: Obj) -> tuple[int, int]:
    """(maxSurge, maxUnavailable) in pods: surge rounds up, unavailable down, and never are both 0."""
    if is_recreate(deployment):
        return 0, 0
    rolling = (deployment["spec"].get("strategy") or {}).get("rollingUpdate") or {}
    wanted = replicas_of(deployment)
    surge = int_or_percent(rolling.get("maxSurge", "25%"), wanted, up=True)
    unavailable = int_or_percent(rolling.get("maxUnavailable", "25%"), wanted, up=False)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, min(unavailable, wanted)


def size_annotations(deployment: Obj) -> dict[str, str]:
    wanted = replicas_of(deployment)
    return {DESIRED: str(wanted), MAX: str(wanted + bounds(deployment)[0])}


def first_size(deployment: Obj, sets: list[Obj]) -> int:
    """Replicas of a new ReplicaSet beside the existing ones (`NewRSNewReplicas`)."""
    return _grown(deployment, 0, sum(replicas_of(s) for s in sets))


def _grown(deployment: Obj, current: int, total: int) -> int:
    wanted = replicas_of(deployment)
    if is_recreate(deployment):
        return wanted
    surge = wanted + bounds(deployment)[0] - total
    return current if surge <= 0 else current + min(surge, wanted - current)


def new_size(deployment: Obj, new: Obj, sets: list[Obj]) -> int:
    """The next size of the newest ReplicaSet in a rolling update."""
    wanted, current = replicas_of(deployment), replicas_of(new)
    if current >= wanted:
        return wanted
    return _grown(deployment, current, sum(replicas_of(s) for s in sets))


def old_sizes(deployment: Obj, new: Obj, sets: list[Obj]) -> Sizes:
    """The next sizes of the older ReplicaSets: unhealthy replicas go first, then as many as may be missing."""
    old = [s for s in sets if uid_of(s) != uid_of(new) and replicas_of(s) > 0]
    old.sort(key=lambda s: seconds_of(s["metadata"]["creationTimestamp"]))
    wanted = replicas_of(deployment)
    least = wanted - bounds(deployment)[1]
    missing_new = replicas_of(new) - _available(new)
    budget = sum(replicas_of(s) for s in sets) - least - missing_new
    if not old or budget <= 0:
        return []
    sizes = {uid_of(s): replicas_of(s) for s in old}
    for replicaset in old:
        unhealthy = max(replicas_of(replicaset) - _available(replicaset), 0)
        step = min(unhealthy, budget)
        sizes[uid_of(replicaset)] -= step
        budget -= step
    spare = sum(_available(s) for s in sets) - least
    for replicaset in old:
        step = max(min(sizes[uid_of(replicaset)], spare), 0)
        sizes[uid_of(replicaset)] -= step
        spare -= step
    return [(s, sizes[uid_of(s)]) for s in old if sizes[uid_of(s)] != replicas_of(s)]


def _available(replicaset: Obj) -> int:
    return (replicaset.get("status") or {}).get("availableReplicas") or 0


def scaled(deployment: Obj, sets: list[Obj], new: Obj | None) -> Sizes:
    """Sizes after `spec.replicas` changed, without progress of a rollout (`deployment.scale`).

    The only active ReplicaSet takes the new size; if all replicas are in the newest one, the others go to 0; in
    the middle of a rollout the difference is spread in proportion, largest first.
    """
    wanted = replicas_of(deployment)
    active = [s for s in sets if replicas_of(s) > 0]
    if len(active) <= 1:
        only = active[0] if active else new or _latest(sets)
        return [] if only is None else [(only, wanted)]
    if new is not None and replicas_of(new) == wanted == _available(new):
        return [(s, 0) for s in active if uid_of(s) != uid_of(new)]
    if is_recreate(deployment):
        return []
    total = sum(replicas_of(s) for s in active)
    allowed = wanted + bounds(deployment)[0] if wanted > 0 else 0
    difference = allowed - total
    active.sort(key=lambda s: seconds_of(s["metadata"]["creationTimestamp"]), reverse=difference > 0)
    active.sort(key=replicas_of, reverse=True)
    sizes, left = [], difference
    for replicaset in active:
        share = _share(replicaset, allowed, left, difference)
        sizes.append(replicas_of(replicaset) + share)
        left -= share
    if left and sizes:
        sizes[0] = max(sizes[0] + left, 0)
    return list(zip(active, sizes, strict=True))


def _latest(sets: list[Obj]) -> Obj | None:
    return max(sets, key=lambda s: seconds_of(s["metadata"]["creationTimestamp"]), default=None)


def _share(replicaset: Obj, allowed: int, left: int, difference: int) -> int:
    """The part of the difference that is this ReplicaSet's (`GetReplicaSetProportion`)."""
    current = replicas_of(replicaset)
    if not left or not current:
        return 0
    before = int(annotations_of(replicaset).get(MAX, "0") or 0) or allowed - difference
    share = round(current * allowed / before) - current if before else 0
    return min(share, left) if difference > 0 else max(share, left)
