"""The saga of one migration: what follows from the facts, the session's answers and the deadlines (DESIGN 5).

planned → holding → held → evicting → evicted → landed, or rolled back. Two rules carry the promise that no pod is lost:

* Nothing is evicted before the session holds the landing place, and a hold that is lost before the eviction ends it.
* Once an eviction may have been sent (`evicting`), only `aborting` leads back, and only when the victim is marked, so that
  no late eviction can succeed. A victim that ends meanwhile counts as evicted: its successor takes the hold. Where the API
  does not take the mark for `abort_deadline`, it ends as `NotMarked`: that is longer than a request lives, so that
  only a process that was frozen in between could still evict the pod, and then its controller makes it again.

After the eviction the pod cannot be had back; where its landing place is lost then, its successor gets the room at its old node
(`back`). `failed` then means that the successor did not come up on its hold in
time, which counts from when the victim has gone (RULES G-14); it runs, or waits, like any other pod. A successor that is on its hold keeps the capacity, so nothing leaks.
"""

from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName
from restow.domain.migration import back, company, holds, limits, removal
from restow.domain.migration.holds import Reason
from restow.domain.migration.times import lands_until
from restow.domain.migration.whole import Whole
from restow.domain.movable import unmovable
from restow.domain.records import Migration, Step
from restow.domain.spare import not_admitted
from restow.domain.state import ClusterState

Events = tuple[e.Event, ...]

CANCELLED = "Cancelled"
NOT_MARKED = "NotMarked"
LAST_WORD = 30_000
"""Milliseconds after the time for the mark is up, in which whoever tries it may still say why it was not taken."""


def step(state: ClusterState, migration: Migration, now: Millis, counts: limits.Limits) -> Events:
    """What happens next to an active migration; nothing where it waits."""
    if removal.is_removal(migration):
        aborts = migration.step is Step.ABORTING and not removal.is_gone(state, migration)
        return gives_up(state, migration, now) if aborts else removal.step(state, migration, now, cancelled(state, migration))
    match migration.step:
        case Step.HOLDING | Step.HELD:
            return _holding(state, migration, now, counts)
        case Step.EVICTING:
            return _evicting(state, migration, now, counts.whole)
        case Step.ABORTING:
            if ended(state, migration) or taken(migration):
                return _evicted(state, migration, now)
            return gives_up(state, migration, now)
        case Step.EVICTED:
            return _landing(state, migration, now)
    return ()


def _holding(state: ClusterState, migration: Migration, now: Millis, counts: limits.Limits) -> Events:
    id, target = migration.id, migration.move.target
    if taken(migration):
        return _evicted(state, migration, now)
    failure = cancelled(state, migration) or victim_gone(state, migration) or holds.failure(state, migration)
    failure = failure or counts.whole.broken(migration)
    if failure is not None:
        return _given_up(migration, failure)
    events: list[e.Event] = []
    why: Reason = "HoldTimeout", f"node {target} was not held in time"
    if may_evict(state, migration):
        if migration.step is not Step.HELD:
            events.append(e.Held(id))
        if counts.is_parked(id) and (migration.step is not Step.HELD or counts.waits_for_node(migration, now)):
            # Its place is kept for as long as that takes.
            return tuple(events)
        blocked = counts.before_eviction(migration, now) or company.refuses(state, migration, now, counts.going)
        if blocked is None:
            return (*events, e.Evicting(id, Millis(now + state.migration_config.evicts_for)))
        why = blocked
    elif migration.step is Step.HELD:
        # It was held, and waited for its turn.
        return _given_up(migration, ("HoldLost", f"the hold on {target} was lost before the pod was evicted"))
    waited = migration.step is Step.HELD and counts.is_parked(id)
    if now >= (counts.until(migration) if waited else company.until(state, migration)):
        return _given_up(migration, why)
    return tuple(events)


def _given_up(migration: Migration, why: Reason) -> Events:
    """Before its eviction was decided."""
    return (e.MigrationFailed(migration.id, *why),)


def may_be_tried(state: ClusterState, migration: Migration) -> bool:
    """Whether an eviction that was decided may be sent, now and each time anew: nothing has come in between for which it will be given
    up as soon as that is decided."""
    if cancelled(state, migration) is not None:
        return False
    if removal.is_removal(migration):
        return removal.lost(state, migration) is None
    return may_evict(state, migration) and victim_gone(state, migration) is None and holds.failure(state, migration) is None


def may_evict(state: ClusterState, migration: Migration) -> bool:
    """Whether the pod has its landing place, if it needs one, on a node that takes its successor. Asked in the decision, and before
    every attempt: a hold stays on a node that is cordoned or not ready, and is of no use there."""
    return removal.is_removal(migration) or (holds.held(state, migration) and holds.lost(state, migration) is None)


def _evicting(state: ClusterState, migration: Migration, now: Millis, node: Whole) -> Events:
    id = migration.id
    if taken(migration) or ended(state, migration):
        return _evicted(state, migration, now)
    live = state.live.get(migration.move.pod)
    if live is not None and live.phase == "Succeeded":
        return (e.Aborting(id, "PodFinished", "the pod finished before it was evicted"),)
    failure = cancelled(state, migration) or changed_hands(state, migration) or node.broken(migration)
    if failure is not None:
        return (e.Aborting(id, *failure),)
    if not holds.held(state, migration):
        return (e.Aborting(id, "HoldLost", f"the hold on {migration.move.target} was lost before the pod was evicted"),)
    if why := holds.failure(state, migration):
        return (e.Aborting(id, *why),)
    if now >= migration.deadline:
        return (e.Aborting(id, "EvictTimeout", "the API did not accept the eviction in time"),)
    return ()


def _landing(state: ClusterState, migration: Migration, now: Millis) -> Events:
    id, target = migration.id, migration.move.target
    if not migration.successor:
        if migration.back:
            return back.step(state, migration, now)
        if why := back.place_lost(state, migration):
            return back.turn(state, migration, now, why)
        return (e.NotRecreated(id),) if now >= lands_until(state, migration) else ()
    if migration.arrived and migration.back:
        return back.arrived(migration)
    if migration.arrived:
        return (e.Landed(id, migration.successor, target),)
    live = state.live.get(migration.successor)
    if live is None or live.deleting:
        if not migration.back and (why := holds.lost(state, migration)):
            # Its node took it along: whoever comes next has the way back, too.
            return back.turn(state, migration, now, why)
        return (e.MigrationFailed(id, "SuccessorGone", "the successor was deleted before it was ready"),)
    if live.node is not None and live.node != target:
        return (e.MigrationFailed(id, "Elsewhere", f"the successor runs on {live.node}, not on {target}"),)
    if live.phase == "Succeeded":
        return (e.MigrationFailed(id, "SuccessorFinished", "the successor ran and finished before it was seen ready"),)
    if now >= lands_until(state, migration):
        return (e.MigrationFailed(id, "NotReady", f"the successor is on {target}, but was not ready in time"),)
    return ()


def _evicted(state: ClusterState, migration: Migration, now: Millis) -> Events:
    return (e.Evicted(migration.id, Millis(now + state.migration_config.land_deadline)),)


# -- the way back ----------------------------------------------------------------------------------------------------


def aborts_until(state: ClusterState, migration: Migration) -> Millis:
    """Until when the mark is tried."""
    return Millis(migration.since + state.migration_config.abort_deadline)


def deadline(state: ClusterState, migration: Migration) -> Millis:
    """When its step ends although nothing happens."""
    if migration.step is Step.ABORTING:
        return Millis(aborts_until(state, migration) + LAST_WORD)
    if migration.step is Step.EVICTED and migration.back and not migration.successor:
        return back.until(state, migration)
    if migration.step is Step.EVICTED:
        return lands_until(state, migration)
    return company.until(state, migration)


def until(state: ClusterState, migration: Migration) -> Millis:
    """What people are told: `deadline` of one that is under way, 0 before it begins; of one that has ended, what it had last."""
    return deadline(state, migration) if migration.id in state.active else migration.deadline


def gives_up(state: ClusterState, migration: Migration, now: Millis) -> Events:
    """Nobody has said that the victim is marked, nor why it is not."""
    return (not_marked(migration, "nobody has answered"),) if now >= deadline(state, migration) else ()


def not_marked(migration: Migration, why: str) -> e.MigrationFailed:
    said = f"{migration.reason}: {migration.message}".rstrip(": ")
    return e.MigrationFailed(migration.id, NOT_MARKED, f"{said}; the pod could not be marked, so that a late eviction is not ruled out: {why}")


# -- the victim ------------------------------------------------------------------------------------------------------


def ended(state: ClusterState, migration: Migration) -> bool:
    """The victim is terminating, gone or failed: its controller makes a successor."""
    live = state.live.get(migration.move.pod)
    return live is None or live.deleting > 0 or live.phase == "Failed"


def taken(migration: Migration) -> bool:
    """A successor took the hold, so the victim's end is a fact (only then a hold is armed)."""
    return bool(migration.successor and migration.armed)


def cancelled(state: ClusterState, migration: Migration) -> Reason | None:
    """Whether somebody has cancelled its plan."""
    said = state.cancelled.get(migration.plan)  # type: ignore[call-overload]
    return None if said is None else (CANCELLED, said)


def victim_gone(state: ClusterState, migration: Migration) -> Reason | None:
    """Why there is nothing to move any more, or nothing that may be moved."""
    move = migration.move
    live = state.live.get(move.pod)
    if ended(state, migration) or live is None:
        return "PodGone", "the pod ended before its landing place was held"
    if live.phase == "Succeeded":
        return "PodFinished", "the pod finished before its landing place was held"
    if live.node != move.source:
        return "PodMoved", f"the pod is on {live.node or 'no node'}, not on {move.source}"
    return changed_hands(state, migration)


def changed_hands(state: ClusterState, migration: Migration) -> Reason | None:
    """Whether nobody, or somebody else than when it was planned, would make the pod again, or what is made would not be let in. Whatever
    made the plan: a pod that no controller makes again elsewhere is never moved."""
    pod = state.pods.get(migration.move.pod)
    if pod is None:
        return None
    if pod.static or pod.owner is None or pod.owner.kind == "DaemonSet":
        what = "a static pod" if pod.static else "a bare pod" if pod.owner is None else "a DaemonSet's pod"
        return "NotMovable", f"it is {what}: nobody would make it again on {NodeName(migration.move.target)}"
    if pod.shape != migration.shape:
        return "PodChanged", "the pod's requests or constraints changed after the plan"
    if state.lineage(pod) != migration.lineage:
        return "OwnerChanged", "the pod's controller is another one than when the move was planned"
    word, _, why = (unmovable(state, migration.move.pod) or not_admitted(state, migration.move.pod)).partition(": ")
    return (word, why) if word else None
