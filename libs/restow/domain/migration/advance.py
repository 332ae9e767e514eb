"""Every migration as far as it gets: those under way first, then new ones in their waves and within the limits (DESIGN 5)."""

from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, NodeName
from restow.domain.migration import consents, deadlines, demand_slots, emptied, plan_order, saga
from restow.domain.migration.case import Case
from restow.domain.migration.limits import Limits
from restow.domain.migration.other_pods import OtherPods
from restow.domain.migration.saga import Then
from restow.domain.promised_slots import order
from restow.domain.records import Migration, Step
from restow.domain.state import ClusterState

_OVER = (e.Landed, e.MigrationFailed, e.NotRecreated, e.Removed)


def advance(state: ClusterState, now: Millis) -> list[e.Event]:
    """Findings, slots that nobody needs any more, every migration as far as it gets now, then new ones."""
    events: list[e.Event] = [_finding(state, *key, times) for key, times in sorted(state.found.items())]
    for plan, (reason, message) in demand_slots.over(state, now).items():
        events.append(e.PlanCancelled(plan, f"{reason}: {message}"))
    if len(events) > len(state.found):
        # Each of their migrations answers to that: decided on the state that includes it.
        return events
    limits = Limits(state, now)
    with OtherPods(state, now) as others:
        for migration in sorted(map(state.migrations.__getitem__, state.active), key=order):
            then = saga.step(Case(state, migration, now, limits, others))
            events += then
            if then and isinstance(then[-1], _OVER):
                limits.ends(migration)
            elif then and isinstance(then[-1], e.Evicting):
                limits.evicts(migration, now)
        events += _begin(state, now, limits, others)
    return [*_with_others_in_mind(state, events, limits), *emptied.decided(state, now)]


def _finding(state: ClusterState, lineage: str, node: NodeName, times: int) -> e.Bounced:
    known = None if node else state.disturbed.get(lineage)
    return e.Bounced(lineage, node, times, "" if known is None else known.reason)


def _with_others_in_mind(state: ClusterState, events: list[e.Event], limits: Limits) -> list[e.Event]:
    """Nobody leaves in the decision that gives up another move off a node that is emptied wholly: the state that
    includes it says what becomes of the others."""
    given_up = [state.migrations[event.migration] for event in events if isinstance(event, e.MigrationFailed | e.Aborting)]
    nodes = {limits.whole.key(one) for one in given_up if limits.whole.binds(one)}
    if not nodes:
        return events

    def goes_on(event: e.Event) -> bool:
        if not isinstance(event, e.Evicting):
            return True
        one = state.migrations[event.migration]
        return not (limits.whole.binds(one) and limits.whole.key(one) in nodes)

    return [event for event in events if goes_on(event)]


def is_due(state: ClusterState, now: Millis) -> bool:
    """Whether `advance` would do anything that must not wait for the next step of any migration: of what cannot begin yet only
    that it never will is looked at, and not whether its pod is still there. Asked after every fold."""
    if state.found or demand_slots.over(state, now) or (state.emptied and emptied.decided(state, now)):
        return True
    if not state.active and not state.backlog:
        return False
    with OtherPods(state, now) as others:
        return _is_due(state, now, Limits(state, now), others)


def _is_due(state: ClusterState, now: Millis, limits: Limits, others: OtherPods) -> bool:
    def case(migration: Migration) -> Case:
        return Case(state, migration, now, limits, others)

    if any(saga.step(case(state.migrations[id])) for id in state.active):
        return True
    backlog = [state.migrations[id] for id in state.backlog]
    if any(saga.may_end(state, migration) and saga.never(case(migration)) for migration in backlog):
        return True
    if any(limits.whole.binds(migration) for migration in backlog):
        return next(_begin(state, now, limits, others), None) is not None
    if limits.free <= 0:
        return False
    if any(case(migration).may_come and not limits.must_wait(migration, now) for migration in backlog):
        return True
    return not state.active and bool(backlog) and next(_begin(state, now, limits, others), None) is not None


def overdue(state: ClusterState) -> Millis | None:
    """When something is due although nothing happens, None for never."""
    limits = Limits(state, state.time)
    times = [at for id in state.active if (at := _deadline(state, state.migrations[id], limits)) is not None]
    if state.backlog:
        times += [at for id in state.backlog if (at := plan_order.turns_at(state, state.migrations[id])) is not None]
    busy = state.backlog or state.active
    if busy and state.migration_config.evictions_per_minute and (at := limits.next_eviction()) is not None:
        times.append(at)
    if busy and (at := limits.no_longer_late()) is not None:
        times.append(at)
    times += [at for at in (demand_slots.deadline(state), emptied.deadline(state)) if at is not None]
    return min(times, default=None)


def _deadline(state: ClusterState, migration: Migration, limits: Limits) -> Millis | None:
    """None where it waits for others that have theirs."""
    if consents.is_waited_for(state, migration):
        return deadlines.deadline(state, migration)
    if migration.step is not Step.HELD or not limits.is_parked(migration.id):
        return deadlines.deadline(state, migration)
    return None if limits.waits_for_node(migration, state.time) else limits.until(migration)


def _begin(state: ClusterState, now: Millis, limits: Limits, others: OtherPods) -> Iterator[e.Event]:
    """In the order of the plans: of two that want the same capacity the first planned has it."""
    if not state.backlog:
        return
    before, is_full = dict[MigrationId, None](), False
    idle, ends_by_itself = not state.active, False
    blocked: Migration | None = None
    for migration in sorted(map(state.migrations.__getitem__, (*state.active, *state.backlog)), key=order):
        id = migration.id
        if id in state.backlog and (is_full or limits.free <= 0) and not saga.may_end(state, migration):
            ends_by_itself = True  # It waits for its turn.
        elif id in state.backlog:
            case = Case(state, migration, now, limits, others, before, is_full)
            then, events = saga.first(case, saga.SAGA[case.stage])
            if events:
                yield from events
                idle = False
                if then is Then.FAILED:
                    continue
                limits.begins(migration)
                if then is Then.EVICTING:
                    limits.evicts(migration, now)
            elif then is Then.WAITS_FOR_MOVES:
                blocked = blocked or migration
                ends_by_itself = ends_by_itself or plan_order.turns_at(state, migration) is not None or not demand_slots.ready(state, migration)
            else:
                ends_by_itself, is_full = True, is_full or then is Then.WAITS_FIRST
        before[id] = None
    if idle and not ends_by_itself and blocked is not None:
        yield e.MigrationFailed(blocked.id, plan_order.AFTER, "the moves of its plan wait for each other")


def active(state: ClusterState, id: MigrationId) -> Migration | None:
    """None where it is unknown, over or not begun."""
    return state.migrations.get(id) if id in state.active else None
