"""Every migration as far as it gets: those under way first, then new ones in their waves and within the limits (DESIGN 5)."""

from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis
from restow.domain.migration import holds, removal, rooms, waves
from restow.domain.migration.limits import Limits
from restow.domain.migration.promises import Promises
from restow.domain.migration.steps import cancelled, deadline, step, victim_gone
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState

_OVER = (e.Landed, e.MigrationFailed, e.NotRecreated, e.Removed)


def advance(state: ClusterState, now: Millis) -> list[e.Event]:
    """Findings, rooms that nobody needs any more, every migration as far as it gets now, then new ones."""
    events: list[e.Event] = [e.CameBack(lineage, node, times) for (lineage, node), times in sorted(state.found.items())]
    for plan, (reason, message) in rooms.over(state, now).items():
        events.append(e.PlanCancelled(plan, f"{reason}: {message}"))
    if len(events) > len(state.found):
        # Each of their migrations answers to that: decided on the state that includes it.
        return events
    limits = Limits(state)
    for id in sorted(state.active, key=lambda m: order(state.migrations[m])):
        migration = state.migrations[id]
        then = step(state, migration, now, limits)
        events += then
        if then and isinstance(then[-1], _OVER):
            limits.ends(migration)
        elif then and isinstance(then[-1], e.Evicting):
            limits.evicts(migration, now)
    events += _begin(state, now, limits)
    return _with_others_in_mind(state, events, limits)


def _with_others_in_mind(state: ClusterState, events: list[e.Event], limits: Limits) -> list[e.Event]:
    """Nobody leaves in the decision that gives up another move off a node that is emptied wholly: the state that
    includes it says what becomes of the others."""
    given_up = [state.migrations[event.migration] for event in events if isinstance(event, e.MigrationFailed | e.Aborting)]
    nodes = {(one.plan, one.move.source) for one in given_up if limits.whole.binds(one)}
    if not nodes:
        return events

    def goes_on(event: e.Event) -> bool:
        if not isinstance(event, e.Evicting):
            return True
        one = state.migrations[event.migration]
        return not (limits.whole.binds(one) and (one.plan, one.move.source) in nodes)

    return [event for event in events if goes_on(event)]


def is_due(state: ClusterState, now: Millis) -> bool:
    """Whether `advance` would do anything that must not wait for the next step of any migration: of what cannot begin yet only
    that it never will is looked at, and not whether its pod is still there. Asked after every fold."""
    if state.found or rooms.over(state, now):
        return True
    if not state.active and not state.backlog:
        return False
    limits = Limits(state)
    if any(step(state, state.migrations[id], now, limits) for id in state.active):
        return True
    backlog = [state.migrations[id] for id in state.backlog]
    if any(_never(state, migration, limits) for migration in backlog):
        return True
    if any(limits.whole.binds(migration) for migration in backlog):
        return next(_begin(state, now, limits), None) is not None
    if limits.free <= 0:
        return False
    if any(_may_come(state, migration, now, limits) and not limits.must_wait(migration, now) for migration in backlog):
        return True
    return not state.active and bool(backlog) and next(_begin(state, now, limits), None) is not None


def overdue(state: ClusterState) -> Millis | None:
    """When something is due although nothing happens, None for never."""
    limits = Limits(state)
    times = [at for id in state.active if (at := _deadline(state, state.migrations[id], limits)) is not None]
    if state.backlog:
        times += [at for id in state.backlog if (at := waves.turns_at(state, state.migrations[id])) is not None]
    busy = state.backlog or state.active
    if busy and state.migration_config.evictions_per_minute and (at := limits.next_eviction()) is not None:
        times.append(at)
    if (at := rooms.deadline(state)) is not None:
        times.append(at)
    return min(times, default=None)


def _deadline(state: ClusterState, migration: Migration, limits: Limits) -> Millis | None:
    """None where it waits for others that have theirs."""
    if migration.step is not Step.HELD or not limits.is_parked(migration.id):
        return deadline(state, migration)
    return None if limits.waits_for_node(migration, state.time) else limits.until(migration)


def order(migration: Migration) -> tuple[Millis, str, int]:
    """By plan, then as the plan says."""
    _, _, number = migration.id.rpartition("-")
    return (migration.planned, migration.plan, int(number) if number.isdigit() else 0)


def _begin(state: ClusterState, now: Millis, limits: Limits) -> Iterator[e.Event]:
    """In the order of the plans: of two that want the same room the first planned has it."""
    if not state.backlog:
        return
    promises = Promises(state)
    idle = not state.active
    waits = 0
    first: Migration | None = None
    is_full = False
    for id in sorted((*state.active, *state.backlog), key=lambda m: order(state.migrations[m])):
        migration = state.migrations[id]
        if id in state.backlog:
            failure = _never(state, migration, limits)
            if failure is None and limits.whole.holds_first(migration):
                if not rooms.ready(state, migration):
                    waits += 1
                elif limits.may_begin_node(migration, is_full):
                    failure = _hopeless(state, migration) or limits.refuses_for_good(migration) or _no_room(promises, migration)
                    if failure is None:
                        yield e.Holding(id, Millis(now + state.migration_config.hold_deadline))
                        limits.begins(migration)
                        idle = False
                else:
                    # Nobody begins before it, so that smaller ones do not keep it waiting for ever.
                    waits, is_full = waits + 1, True
            elif failure is None and limits.free > 0 and not is_full:
                failure = _hopeless(state, migration)
                if failure is None and removal.is_removal(migration):
                    begun = removal.begin(migration, now, limits, state.migration_config.evicts_for)
                    if begun is None:
                        waits += 1
                    else:
                        yield begun
                        idle = False
                        if isinstance(begun, e.MigrationFailed):
                            continue
                        limits.begins(migration)
                        limits.evicts(migration, now)
                elif failure is None and not _may_come(state, migration, now, limits):
                    first = first or migration
                    waits += _waits_for_time(state, migration)
                elif failure is None and not limits.must_wait(migration, now):
                    failure = limits.refuses(migration) or _no_room(promises, migration)
                    if failure is None:
                        yield e.Holding(id, Millis(now + state.migration_config.hold_deadline))
                        limits.begins(migration)
                        idle = False
                elif failure is None:
                    waits += 1
            if failure is not None:
                yield e.MigrationFailed(id, *failure)
                idle = False
                continue
        promises.tell(migration)
    if idle and not waits and first is not None:
        yield e.MigrationFailed(first.id, waves.AFTER, "the moves of its plan wait for each other")


def _never(state: ClusterState, migration: Migration, limits: Limits) -> tuple[str, str] | None:
    """Why it never begins, whatever the cluster does: somebody else has its pod, its plan was cancelled, or what was to come
    before it has failed."""
    if migration.reason:
        return migration.reason, migration.message
    return cancelled(state, migration) or waves.broken(state, migration) or limits.whole.broken(migration)


def _hopeless(state: ClusterState, migration: Migration) -> tuple[str, str] | None:
    """Why a planned move makes no sense any more. What arrived since the plan may have taken the place: then the pod
    stays, and the next plan finds it another one; nothing waits for a hold that would not come."""
    if removal.is_removal(migration):
        return removal.lost(state, migration)
    if migration.move.pod and (why := victim_gone(state, migration)):
        return why
    return holds.lost(state, migration)


def _may_come(state: ClusterState, migration: Migration, now: Millis, limits: Limits) -> bool:
    """One whose node is emptied wholly waits for the holds of others."""
    if limits.whole.binds(migration) and not limits.whole.all_hold(migration):
        return False
    return bool(migration.move.pod) and waves.is_turn(state, migration, now) and rooms.ready(state, migration)


def _waits_for_time(state: ClusterState, migration: Migration) -> bool:
    """Whether what it waits for comes to an end by itself: a pod that terminates, or a room that is to be held."""
    return waves.turns_at(state, migration) is not None or not rooms.ready(state, migration)


def _no_room(promises: Promises, migration: Migration) -> tuple[str, str] | None:
    if promises.fits(migration):
        return None
    return "NoRoom", f"node {migration.move.target} has no room for the pod any more"


def of(state: ClusterState, id: MigrationId) -> Migration | None:
    """An active migration, None where it is unknown, over or not begun."""
    return state.migrations.get(id) if id in state.active else None
