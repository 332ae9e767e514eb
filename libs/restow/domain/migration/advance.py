"""The saga of one migration: what follows from the facts, the session's answers and the deadlines (DESIGN 5).

planned → holding → held → evicting → evicted → landed, or rolled back. Two rules carry the promise that no pod is lost:

* Nothing is evicted before the session holds the landing place, and a hold that is lost before the eviction ends it.
* Once an eviction may have been sent (`evicting`), only `aborting` leads back, and only when the victim is marked, so that
  no late eviction can succeed. A victim that ends meanwhile counts as evicted: its successor takes the hold.

After the eviction there is nothing to roll back: `failed` then means that the successor did not come up on its hold in
time; it runs, or waits, like any other pod. A successor that is on its hold keeps the capacity, so nothing leaks.
"""

from collections import Counter
from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, NodeName
from restow.domain.records import Migration, ReservationPhase, Slot, SlotPhase, Step
from restow.domain.state import ClusterState

Events = tuple[e.Event, ...]


def advance(state: ClusterState, now: Millis) -> list[e.Event]:
    """Every migration as far as it gets now, then new ones up to `concurrent` in all and `per_node` per source."""
    events: list[e.Event] = []
    active: Counter[NodeName] = Counter()
    for id in sorted(state.active, key=lambda m: order(state.migrations[m])):
        migration = state.migrations[id]
        then = step(state, migration, now)
        events += then
        if not then or not isinstance(then[-1], _OVER):
            active[migration.move.source] += 1
    events += _begin(state, now, active)
    return events


def is_due(state: ClusterState, now: Millis) -> bool:
    """Whether `advance` would do anything. Looks at what is active, and at the backlog only where a place is free."""
    active: Counter[NodeName] = Counter()
    for id in state.active:
        migration = state.migrations[id]
        if step(state, migration, now):
            return True
        active[migration.move.source] += 1
    config = state.migration_config
    if not state.backlog or active.total() >= config.concurrent:
        return False
    return any(active[state.migrations[id].move.source] < config.per_node for id in state.backlog)


def overdue(state: ClusterState) -> Millis | None:
    """The next deadline of an active migration, None where there is none."""
    times = [m.deadline for m in map(state.migrations.__getitem__, state.active) if m.step is not Step.ABORTING]
    return min(times, default=None)


def order(migration: Migration) -> tuple[Millis, str, int]:
    """By plan, then as the plan says. (The order of a map is not the same after a draft.)"""
    _, _, number = migration.id.rpartition("-")
    return (migration.planned, migration.plan, int(number) if number.isdigit() else 0)


def _begin(state: ClusterState, now: Millis, active: Counter[NodeName]) -> Iterator[e.Event]:
    config = state.migration_config
    free = config.concurrent - active.total()
    if free <= 0:
        return
    for id in sorted(state.backlog, key=lambda m: order(state.migrations[m])):
        migration = state.migrations[id]
        source = migration.move.source
        obstacle = _obstacle(state, migration)
        if obstacle is not None:
            yield e.MigrationFailed(id, *obstacle)
        elif free > 0 and active[source] < config.per_node:
            yield e.Holding(id, Millis(now + config.hold_deadline))
            active[source] += 1
            free -= 1


def _obstacle(state: ClusterState, migration: Migration) -> tuple[str, str] | None:
    """Why a planned move makes no sense any more. What arrived since the plan may have taken the place: then the pod
    stays, and the next plan finds it another one; nothing waits for a hold that would not come."""
    if gone := _victim_gone(state, migration):
        return gone
    target = migration.move.target
    node, row = state.nodes.get(target), state.table.rows.get(target)
    if node is None or row is None or not node.ready or node.unschedulable:
        return "TargetLost", f"node {target} is gone, not ready or unschedulable"
    if not state.table.fits_row(row, state.vectors[migration.shape]):
        return "NoRoom", f"node {target} has no room for the pod any more"
    return None


def step(state: ClusterState, migration: Migration, now: Millis) -> Events:
    """What happens next to an active migration; nothing where it waits."""
    match migration.step:
        case Step.HOLDING | Step.HELD:
            return _holding(state, migration, now)
        case Step.EVICTING:
            return _evicting(state, migration, now)
        case Step.ABORTING:
            return _evicted(state, migration, now) if ended(state, migration) or _taken(migration) else ()
        case Step.EVICTED:
            return _landing(state, migration, now)
    return ()


def _holding(state: ClusterState, migration: Migration, now: Millis) -> Events:
    id = migration.id
    if _taken(migration):
        return _evicted(state, migration, now)
    failure = _victim_gone(state, migration) or _hold_failed(state, migration)
    if failure is not None:
        return (e.MigrationFailed(id, *failure),)
    if held(state, migration):
        evicting = e.Evicting(id, Millis(now + state.migration_config.evict_deadline))
        return (evicting,) if migration.step is Step.HELD else (e.Held(id), evicting)
    if now >= migration.deadline:
        return (e.MigrationFailed(id, "HoldTimeout", f"node {migration.move.target} was not held in time"),)
    return ()


def _evicting(state: ClusterState, migration: Migration, now: Millis) -> Events:
    id = migration.id
    if _taken(migration) or ended(state, migration):
        return _evicted(state, migration, now)
    live = state.live.get(migration.move.pod)
    if live is not None and live.phase == "Succeeded":
        return (e.Aborting(id, "PodFinished", "the pod finished before it was evicted"),)
    if not held(state, migration):
        return (e.Aborting(id, "HoldLost", f"the hold on {migration.move.target} was lost before the pod was evicted"),)
    if now >= migration.deadline:
        return (e.Aborting(id, "EvictTimeout", "the API did not accept the eviction in time"),)
    return ()


def _landing(state: ClusterState, migration: Migration, now: Millis) -> Events:
    id, target = migration.id, migration.move.target
    if not migration.successor:
        if not _hold_is_open(state, migration):
            return (e.MigrationFailed(id, "HoldLost", f"the hold on {target} was lost before a successor took it"),)
        return (e.NotRecreated(id),) if now >= migration.deadline else ()
    live = state.live.get(migration.successor)
    if live is None or live.deleting:
        return (e.MigrationFailed(id, "SuccessorGone", "the successor was deleted before it was ready"),)
    if live.node is not None and live.node != target:
        return (e.MigrationFailed(id, "Elsewhere", f"the successor runs on {live.node}, not on {target}"),)
    if live.node == target and live.ready:
        return (e.Landed(id, migration.successor, target),)
    if live.phase == "Succeeded":
        return (e.MigrationFailed(id, "SuccessorFinished", "the successor ran and finished before it was seen ready"),)
    if now >= migration.deadline:
        return (e.MigrationFailed(id, "NotReady", f"the successor is on {target}, but was not ready in time"),)
    return ()


def _evicted(state: ClusterState, migration: Migration, now: Millis) -> Events:
    return (e.Evicted(migration.id, Millis(now + state.migration_config.land_deadline)),)


def ended(state: ClusterState, migration: Migration) -> bool:
    """The victim is terminating, gone or failed: its controller makes a successor."""
    live = state.live.get(migration.move.pod)
    return live is None or live.deleting > 0 or live.phase == "Failed"


def _taken(migration: Migration) -> bool:
    """A successor took the hold, so the victim's end is a fact (only then a hold is armed)."""
    return bool(migration.successor and migration.armed)


def _victim_gone(state: ClusterState, migration: Migration) -> tuple[str, str] | None:
    move = migration.move
    live = state.live.get(move.pod)
    if ended(state, migration) or live is None:
        return "PodGone", "the pod ended before its landing place was held"
    if live.phase == "Succeeded":
        return "PodFinished", "the pod finished before its landing place was held"
    if live.node != move.source:
        return "PodMoved", f"the pod is on {live.node or 'no node'}, not on {move.source}"
    if state.pods[move.pod].shape != migration.shape:
        return "PodChanged", "the pod's requests or constraints changed after the plan"
    return None


# -- the hold --------------------------------------------------------------------------------------------------------


def _places(state: ClusterState, migration: Migration) -> list[tuple[str, Slot]]:
    return list(state.slots.get(migration.reservation, {}).items())


def held(state: ClusterState, migration: Migration) -> bool:
    """The session holds the promised place and has not been asked to release it."""
    return any(
        slot.phase is SlotPhase.HELD
        and slot.node == migration.move.target
        and (migration.reservation, name) not in state.to_release
        for name, slot in _places(state, migration)
    )


def _hold_is_open(state: ClusterState, migration: Migration) -> bool:
    """A successor can still take the hold, now or when the session has held it anew."""
    coming = (SlotPhase.PENDING, SlotPhase.WAITING)
    return held(state, migration) or any(s.phase in coming for _, s in _places(state, migration))


def _hold_failed(state: ClusterState, migration: Migration) -> tuple[str, str] | None:
    """Why the hold will never come, None where it may. `HoldUnfit` is final here: the plan's promise is broken, and
    waiting would only block others."""
    if not migration.reservation:
        return None
    record = state.reservations.get(migration.reservation)
    if record is None or record.gone or record.fact.deleting or record.collected:
        return "HoldFailed", "its Reservation was deleted"
    phase = state.phases.get(migration.reservation)
    if phase is not None and phase.phase is ReservationPhase.FAILED:
        return "HoldFailed", f"its Reservation failed: {phase.reason} {phase.message}".rstrip()
    target = migration.move.target
    wanted = state.shapes[migration.shape]
    for name, slot in _places(state, migration):
        if slot.phase is SlotPhase.USED:
            return "HoldTaken", f"pod {slot.pod} took the hold before the eviction"
        if slot.phase is SlotPhase.PENDING and slot.reasons:
            return "NoRoom", f"the session found no room on {target}: " + ", ".join(sorted(slot.reasons))
        if slot.phase is SlotPhase.HELD and slot.node != target:
            return "HoldFailed", f"node {slot.node} is held, not {target}"
        if (migration.reservation, name) in state.to_release:
            return "HoldLost", f"the hold on {target} is being released"
        shape = state.shapes[slot.shape]
        if (shape.requests, shape.devices) != (wanted.requests, wanted.devices):
            return "HoldFailed", "its Reservation does not ask for what the pod does"
    return None


_OVER = (e.Landed, e.MigrationFailed, e.NotRecreated)


def of(state: ClusterState, id: MigrationId) -> Migration | None:
    """An active migration, None where it is unknown, over or not begun."""
    return state.migrations.get(id) if id in state.active else None
