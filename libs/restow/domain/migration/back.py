"""The way back of a pod that was evicted and whose landing place is of no use any more: room at its old node is held for its successor.

It turns back as soon as that is known, also while the pod terminates: what that leaves then goes to the hold, and to nobody else. A
successor that fits anywhere meanwhile goes there, and the hold is given up.
"""

from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.domain.migration import holds
from restow.domain.migration.holds import Reason
from restow.domain.migration.times import lands_until
from restow.domain.records import Migration
from restow.domain.state import ClusterState

Events = tuple[e.Event, ...]


def place_lost(state: ClusterState, migration: Migration) -> Reason | None:
    """Why no successor can land on the target any more."""
    if not holds.is_open(state, migration):
        return "HoldLost", f"the hold on {migration.move.target} was lost before a successor took it"
    return holds.lost(state, migration)


def turn(state: ClusterState, migration: Migration, now: Millis, why: Reason) -> Events:
    """Back to its old node, where that takes its successor, unless that has a place already."""
    reason, message = why
    failed = (e.MigrationFailed(migration.id, reason, message),)
    if has_found_a_place(state, migration) or now >= lands_until(state, migration):
        return failed
    if holds.target_lost(state, migration.move.source, migration.shape):
        return failed
    if pattern(state, migration) is None:
        # Its controller has not made it yet: until then nobody can say what is to be held.
        return ()
    return (e.TurningBack(migration.id, Millis(now + state.migration_config.land_deadline), reason, message),)


def step(state: ClusterState, migration: Migration, now: Millis) -> Events:
    """It has turned back, and no successor has taken the place at the old node yet."""
    source, said = migration.move.source, migration.message
    if why := holds.target_lost(state, source, migration.shape):
        return _failed(migration, f"{said}, and {why[1]}")
    if migration.reservation and not holds.is_open(state, migration) and not holds.is_new(state, migration):
        return _failed(migration, f"{said}, and its room on {source} was lost")
    if has_found_a_place(state, migration):
        return _failed(migration, f"{said}; its successor found a place, or is gone")
    if now >= until(state, migration):
        return _failed(migration, f"{said}, and its room on {source} did not come free")
    return ()


def until(state: ClusterState, migration: Migration) -> Millis:
    """Until when the room at the old node is waited for."""
    if not migration.reservation:
        return Millis(migration.back + state.migration_config.hold_deadline)
    return lands_until(state, migration)


def arrived(migration: Migration) -> Events:
    """Its successor is ready there."""
    return _failed(migration, f"{migration.message}; its successor is back on {migration.move.source}")


def not_held(migration: Migration, why: str) -> e.MigrationFailed:
    """The API refuses the Reservation."""
    return e.MigrationFailed(migration.id, migration.reason, f"{migration.message}, and its room could not be held again: {why}")


def pattern(state: ClusterState, migration: Migration) -> PodUid | None:
    """The pod that says what is to be held at the old node: the one that was evicted, while it is there, or who waits for its place."""
    return migration.move.pod if migration.move.pod in state.pods else waiting_successor(state, migration)


def has_found_a_place(state: ClusterState, migration: Migration) -> bool:
    """Whether somebody who may follow it has a node, and nobody waits for one."""
    found = list(followers(state, migration))
    return any(state.node_of(uid) is not None for uid in found) and waiting_successor(state, migration) is None


def waiting_successor(state: ClusterState, migration: Migration) -> PodUid | None:
    """A pod that may follow it and waits for a place: the first one."""
    waiting = [uid for uid in followers(state, migration) if state.node_of(uid) is None and uid not in state.successors]
    return min(waiting, key=state.order.__getitem__, default=None)


def followers(state: ClusterState, migration: Migration) -> Iterator[PodUid]:
    """Pods that may follow it, and have not ended."""
    alive = state.alive_under(migration.lineage.partition("/")[0])
    return (uid for uid in alive if state.may_follow(state.pods[uid], migration))


def _failed(migration: Migration, why: str) -> Events:
    return (e.MigrationFailed(migration.id, migration.reason, why),)
