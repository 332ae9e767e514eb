"""Pods that are only evicted (`Move.target` is empty): they have ended, or nobody makes them again, so that nothing can be held for
them. Planned → evicting → removed, with the same preconditions, patience with budgets and way back as any other eviction."""

from restow.contracts import events as e
from restow.contracts.ids import Millis
from restow.domain.migration.holds import Reason
from restow.domain.migration.limits import Limits
from restow.domain.movable import protected
from restow.domain.records import Migration
from restow.domain.state import OVER, ClusterState

Events = tuple[e.Event, ...]


def is_removal(migration: Migration) -> bool:
    return not migration.move.target and bool(migration.move.pod)


def is_gone(state: ClusterState, migration: Migration) -> bool:
    """Whether the pod is terminating or no more. (It may have failed long ago.)"""
    live = state.live.get(migration.move.pod)
    return live is None or live.deleting > 0


def lost(state: ClusterState, migration: Migration) -> Reason | None:
    """Why it must not be evicted any more: it is gone, or it is not what was planned for."""
    move = migration.move
    if is_gone(state, migration):
        return "PodGone", "the pod ended before it was evicted"
    pod, live = state.pods[move.pod], state.live[move.pod]
    if live.node != move.source:
        return "PodMoved", f"the pod is on {live.node or 'no node'}, not on {move.source}"
    if pod.static or (pod.owner is not None and pod.owner.kind == "DaemonSet"):
        return "NotMovable", "only its node's kubelet can end it" if pod.static else "a DaemonSet's pod belongs to its node"
    if pod.owner is not None and live.phase not in OVER:
        return "OwnerChanged", "the pod has a controller, and runs: nothing was held for its successor"
    word, _, why = (protected(pod) if live.phase not in OVER else "").partition(": ")
    return (word, why) if word else None


def begin(migration: Migration, now: Millis, limits: Limits, evicts_for: int) -> e.Event | None:
    """None where too many are under way, or too many were evicted lately; a failure where its workload or its gang cannot spare it,
    whatever of ours is under way."""
    if limits.must_wait(migration, now):
        return None
    if why := limits.refuses(migration):
        return e.MigrationFailed(migration.id, *why)
    return e.Evicting(migration.id, Millis(now + evicts_for))


def step(state: ClusterState, migration: Migration, now: Millis, cancelled: Reason | None) -> Events:
    """What happens next while it is being evicted; nothing where it waits."""
    id = migration.id
    if is_gone(state, migration):
        return (e.Removed(id),)
    if why := cancelled or lost(state, migration):
        return (e.Aborting(id, *why),)
    if now >= migration.deadline:
        return (e.Aborting(id, "EvictTimeout", "the API did not accept the eviction in time"),)
    return ()
