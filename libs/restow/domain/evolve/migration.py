"""Plans and the saga of each migration: planned → holding → held → evicting → evicted → landed, or rolled back."""

from collections.abc import Sequence

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid, ReservationUid, ShapeId
from restow.contracts.times import bounded
from restow.contracts.values import Move
from restow.domain import promised_slots, thefts
from restow.domain.beside import STOLEN
from restow.domain.evolve import (
    bounces,
    budgets,
    common,
    consents,
    demand_slots,
    demands,
    group_moves,
    observed,
    pauses,
    proposals,
    schedulers_named,
    searches,
)
from restow.domain.evolve.objects import more_may_go
from restow.domain.evolve.refusals import leave_alone
from restow.domain.evolve.reservation_slots import cancel, note_review
from restow.domain.evolve.rules import Rules, void
from restow.domain.groups import group_of
from restow.domain.held_capacity import MIGRATION_OVER
from restow.domain.pod_controllers import job_of
from restow.domain.records import FINAL, OBSERVE, Emptied, Landing, Migration, Mode, Plan, Step
from restow.domain.state import ClusterState
from restow.domain.verdicts import NO_WORD, WORKLOAD_REFUSED

TAKEN = "Taken"
"""Why a move fails whose pod is part of another migration: the one that was planned first wins."""
REFUSALS = frozenset({"Budget", "EvictTimeout", "Refused", "NotMarked", "HoldFailed", "HoldTimeout", "HoldStolen", "NotGated", WORKLOAD_REFUSED, NO_WORD})
"""Why the API, or the workload, did not let a move happen: nothing in the state says that it would the next time."""
MINUTE = 60_000
SWEEP = 64
"""Old evictions, or landings, are looked for when so many more are known."""
KEEP_MIGRATIONS, KEEP_PLANS = 10_000, 1_000
"""Finished ones that are kept, the newest; older ones are in the log."""
KEEP_MOVES = 20_000
"""Moves that the plans which are kept may have in all."""
SLACK = 10
"""They are dropped when there are this many percent more, so that it costs nothing on average."""

_configured = common.configured("migration")


def configured(state: ClusterState, event: e.MigrationConfigured) -> None:
    before, held_for = state.migration_config, schedulers_named.whose(state)
    _configured(state, event)
    if (mode := state.migration_config.mode) != before.mode:
        state.mode = Mode(mode, Millis(state.time))
    if state.migration_config.beside != before.beside:
        schedulers_named.changed(state, held_for)
    state.timed_from = state.time
    budgets.configured(state, before.budgets)
    searches.configured(state)
    state.touched.nodes |= dict.fromkeys(name for name, node in state.nodes.items() if node.marks)


def planned(state: ClusterState, event: e.Planned) -> None:
    state.put(state.plans, event.plan, Plan(event, Millis(state.time)))
    searches.planned(state, event)
    if not event.demand and event.trigger != bounces.BY_HAND:
        # Timed plans are due as if there were none that is about single pods.
        state.timed_from = state.time
    demands.planned(state, event)
    if event.mode:
        (observed if event.mode == OBSERVE else proposals).planned(state, event)
    else:
        _begin(state, event, event.moves)
    if state.left_alone:
        bounces.forget(state)
    budgets.forget(state)
    _forget_plans(state)


def approved(state: ClusterState, event: e.PlanApproved) -> None:
    """From here on it is as if it had been made now, with these moves."""
    known = proposals.answered(state, event, "approved", event.moves)
    if known is None:
        return
    moves = [move for move in known.planned.moves if not event.moves or move.migration in event.moves]
    declined = [move for move in known.planned.moves if event.moves and move.migration not in event.moves]
    _begin(state, known.planned, moves)
    proposals.decline(state, declined)


def _begin(state: ClusterState, event: e.Planned, moves: Sequence[Move]) -> None:
    """These moves of a plan are to be made."""
    for move in moves:
        record = _record(state, event.plan, move)
        if record is None:
            void(state, event)
            continue
        id = record.id
        state.put(state.migrations, id, record)
        state.put(state.backlog, id, None)
        promised_slots.settle(state, id)
        budgets.begins(state, record)
        state.touched.migrations[id] = None
        if record.reason:
            continue
        if move.pod:
            state.put(state.victims, move.pod, id)
        else:
            state.put(state.followers, move.follows, id)
        for node in filter(None, (move.source, move.target)):
            state.put(state.cooling, NodeName(node), state.time)
    demand_slots.planned(state, event)


def _record(state: ClusterState, plan: PlanId, move: Move) -> Migration | None:
    """A planned move; None where it is about nothing that is known. It has a reason at once where its pod is somebody else's
    already."""
    if move.migration in state.migrations:
        return None
    new = Migration(MigrationId(move.migration), plan, move, ShapeId(""), "", since=state.time, planned=state.time)
    if move.follows and not move.pod:
        before = state.migrations.get(move.follows)
        if before is None or before.step in FINAL or move.follows in state.followers:
            return None
        return replace(new, shape=before.shape, lineage=before.lineage, group=before.group, controller=before.controller, job=before.job)
    pod = state.fact_of(move.pod)
    if pod is None:
        return None
    if not move.target:
        # Nobody takes its place: it has neither a successor nor a say in what its PodGroup tells.
        return _unless_taken(state, replace(new, shape=pod.shape))
    group = group_of(pod)
    new = replace(
        new,
        shape=pod.shape,
        lineage=state.lineage(pod),
        group="/".join(group) if group is not None else "",
        returned=state.returned.get(move.pod, 0),
        controller="" if pod.owner is None else pod.owner.uid,
        job=job_of(pod),
    )
    return _unless_taken(state, new)


def _unless_taken(state: ClusterState, record: Migration) -> Migration:
    first = state.victims.get(record.move.pod) or state.successors.get(record.move.pod)
    if first is None:
        return record
    return replace(record, reason=TAKEN, message=f"the pod is part of migration {first}, which was planned first")


def _follow(state: ClusterState, before: Migration, uid: PodUid) -> None:
    """It has landed as this pod, which another migration of the plan moves on."""
    id = state.drop(state.followers, before.id)
    record, pod = state.migrations.get(id), state.fact_of(uid)
    if record is None or pod is None:
        return
    record = replace(record, move=replace(record.move, pod=uid, namespace=pod.namespace, name=pod.name))
    record = _unless_taken(state, record)
    state.put(state.migrations, record.id, record)
    promised_slots.settle(state, record.id)
    state.touched.migrations[record.id] = None
    if not record.reason:
        state.put(state.victims, uid, record.id)


def plan_cancelled(state: ClusterState, event: e.PlanCancelled) -> None:
    """The saga answers for each of its migrations."""
    if event.plan not in state.plans:
        void(state, event)
        return
    state.put(state.cancelled, event.plan, event.reason)
    state.drop(state.proposals, event.plan)
    for id in (*state.backlog, *state.active):
        if state.migrations[id].plan == event.plan:
            state.touched.migrations[id] = None
    demand_slots.settle(state, event.plan)


def _forget_plans(state: ClusterState) -> None:
    """Keep the newest, and what is under way. Nodes that are gone need no cooldown either."""
    sizes = {plan: len(known.planned.moves) for plan, known in state.plans.items()}
    left = sum(sizes.values())
    if len(state.plans) <= KEEP_PLANS * (100 + SLACK) // 100 and left <= KEEP_MOVES * (100 + SLACK) // 100:
        return
    busy = {*(state.migrations[id].plan for id in (*state.backlog, *state.active)), *state.observed, *state.proposals}
    newest = sorted(state.plans, key=lambda p: (state.plans[p].at, p))
    for at, plan in enumerate(newest, 1):
        if plan not in busy and (len(newest) - at >= KEEP_PLANS or left > KEEP_MOVES) and at < len(newest):
            left -= sizes[plan]
            state.drop(state.plans, plan)
            state.drop(state.cancelled, plan)
            demand_slots.forget(state, plan)
    for node in [n for n in state.cooling if n not in state.nodes]:
        state.drop(state.cooling, node)
    group_moves.forget(state)


def _forget_migrations(state: ClusterState) -> None:
    finished = len(state.migrations) - len(state.backlog) - len(state.active)
    if finished <= KEEP_MIGRATIONS * (100 + SLACK) // 100:
        return
    over = sorted((m for m in state.migrations.values() if m.step in FINAL), key=lambda m: (m.since, m.id))
    for migration in over[:-KEEP_MIGRATIONS]:
        state.drop(state.migrations, migration.id)
        state.drop(state.tellings, migration.id)
        _look_again(state, migration)


def _look_again(state: ClusterState, record: Migration) -> None:
    """Its holds may be collected now: the one that it had, and the one that it gave up when it turned back."""
    for hold in (record.reservation, record.spent):
        if hold:
            state.reviewed.append(hold)
            if hold in state.reservations:
                note_review(state, hold)


def _arm(state: ClusterState, record: Migration) -> Migration:
    """The victim's end is certain, although its fact may not have been seen yet."""
    if not record.armed:
        record = replace(record, armed=state.clock)
        state.capacity_epoch += 1  # pods that wait may be its successors
        if not record.successor:
            state.put_in(state.armed, record.lineage, record.id)
    return record


def _step(to: Step, after: frozenset[Step]):
    name = f"migration.{to}"

    def rule(state: ClusterState, event) -> None:
        record = state.migrations.get(event.migration)
        if record is None or record.step not in after:
            state.void[name] += 1
            return
        record = replace(
            record,
            step=to,
            since=state.time,
            deadline=getattr(event, "deadline", record.deadline),
            reason=getattr(event, "reason", record.reason),
            message=getattr(event, "message", record.message),
        )
        if to is Step.EVICTING:
            record = replace(record, evicting=bounded(event.deadline - state.migration_config.evicts_for))
            _count(state, record)
            _empties(state, record)
        if to is Step.EVICTING and record.lineage and not record.armed:
            record = replace(record, asked=state.clock)
        if to is Step.EVICTED:
            # A step back that was meant, and overtaken by the eviction, is no reason of anything.
            record = replace(_arm(state, record), reason="", message="")
        state.put(state.migrations, record.id, record)
        state.drop(state.backlog, record.id)
        promised_slots.settle(state, record.id)
        state.touched.migrations[record.id] = None
        group_moves.moved_on(state, record)
        budgets.moved_on(state, record)
        if to not in FINAL:
            state.put(state.active, record.id, None)
            return
        state.drop(state.active, record.id)
        if state.victims.get(record.move.pod) == record.id:
            state.drop(state.victims, record.move.pod)
            if record.move.pod in state.pods:
                more_may_go(state)
        if state.successors.get(record.successor) == record.id:
            state.drop(state.successors, record.successor)
        state.drop_in(state.armed, record.lineage, record.id)
        if to is not Step.LANDED and record.reservation in state.reservations:
            cancel(state, record.reservation, MIGRATION_OVER)
        _look_again(state, record)
        if to is Step.FAILED:
            _remember(state, record)
            if record.reason == STOLEN:
                thefts.note(state, record.id)
        state.drop(state.consents, record.id)
        pauses.ended(state, record)
        if to in (Step.FAILED, Step.NOT_RECREATED):
            bounces.not_landed(state, record)
            if bounces.interfered(state, record):
                bounces.disturbed(state, record.lineage, record.shape, record.reason)
        if record.armed and record.move.target:
            _note(state, state.ended_at, record.id, state.time)
        if to is Step.LANDED:
            bounces.moved(state, record, event.pod)
            _follow(state, record, event.pod)
        if state.demand_slots:
            demand_slots.move_ended(state, record)
        state.drop(state.followers, record.id)
        if record.move.follows and state.followers.get(record.move.follows) == record.id:
            state.drop(state.followers, record.move.follows)
        _forget_migrations(state)

    return rule


def _remember(state: ClusterState, record: Migration) -> None:
    """A pod that stays because it was refused is left alone for a while."""
    if record.reason not in REFUSALS or record.armed:
        return
    consent = state.consents.get(record.id)
    # The workload knows best when it may be asked again.
    leave_alone(state, record.move.pod, record.reason, consent.again if consent is not None else Millis(0))


def _is_alive(state: ClusterState, successor: PodUid) -> bool:
    live = state.live_of(successor)
    return live is not None and not live.deleting


def turning_back(state: ClusterState, event: e.TurningBack) -> None:
    """Its slot is at its source now: another Reservation is to hold it, and the one at the target is given up. While the pod is there
    still, what is waited for are its own devices and CPUs."""
    record = state.migrations.get(event.migration)
    if record is None or record.step is not Step.EVICTED or record.back or _is_alive(state, record.successor):
        void(state, event)
        return
    if record.successor:
        # It went with the node that it had been given: the next one is waited for.
        state.drop(state.successors, record.successor)
        record = replace(record, successor=PodUid(""))
        state.put_in(state.armed, record.lineage, record.id)
    spent, source = record.reservation, record.move.source
    own = state.charges.get(record.move.pod)
    own = own if own is not None and own.node == source else None
    move = replace(record.move, target=source, devices=own.devices if own else (), cores=own.cores if own else ())
    record = replace(
        record, move=move, back=state.time, spent=spent, reservation=ReservationUid(""),
        deadline=event.deadline, reason=event.reason, message=event.message,
    )  # fmt: skip
    state.put(state.migrations, record.id, record)
    state.touched.migrations[record.id] = None
    if spent in state.reservations:
        cancel(state, spent, event.reason)
        note_review(state, spent)  # it is not the migration's any more
    state.reviewed.append(spent)
    state.capacity_epoch += 1  # its successor waits for another slot now


def landing_opened(state: ClusterState, event: e.LandingOpened) -> None:
    if event.migration not in state.migrations:
        void(state, event)
        return
    state.put(state.landings, event.migration, Landing(event.controller, event.until))
    state.touched.migrations[event.migration] = None


def landing_closed(state: ClusterState, event: e.LandingClosed) -> None:
    if state.drop(state.landings, event.migration) is None:
        void(state, event)


def _empties(state: ClusterState, record: Migration) -> None:
    """Its node is to be taken away when the plan has emptied it, if the policy says so."""
    known = state.plans.get(PlanId(record.plan))
    if known is None or not known.planned.whole or known.planned.demand or record.move.follows or state.migration_config.emptied == "none":
        return
    node = record.move.source
    if node in state.nodes and (node not in state.emptied or state.emptied[node].plan != record.plan):
        state.put(state.emptied, node, Emptied(PlanId(record.plan)))


def node_emptied(state: ClusterState, event: e.NodeEmptied) -> None:
    if event.node not in state.emptied:
        void(state, event)
        return
    state.put(state.emptied, event.node, Emptied(event.plan, state.time))
    state.touched.nodes[event.node] = None


def node_returned(state: ClusterState, event: e.NodeReturned) -> None:
    if state.drop(state.emptied, event.node) is None:
        void(state, event)
        return
    state.touched.nodes[event.node] = None


def _count(state: ClusterState, record: Migration) -> None:
    _note(state, state.evictions, record.id, record.evicting)


def _note(state: ClusterState, times: dict[MigrationId, Millis], id: MigrationId, at: Millis) -> None:
    """Of these only those of the last minute count: whoever reads them leaves older ones out. These are dropped now and then, for
    looking at all of them at each one costs the square of their number."""
    if len(times) % SWEEP == 0:
        for old in [old for old, then in times.items() if then <= at - MINUTE]:
            state.drop(times, old)
    state.put(times, id, at)


_BEFORE_EVICTION = frozenset({Step.PLANNED, Step.HOLDING, Step.HELD})

RULES: Rules = {
    e.MigrationConfigured: configured,
    e.Planned: planned,
    e.PlanCancelled: plan_cancelled,
    e.SearchBegun: searches.begun,
    e.SearchEnded: searches.ended,
    e.Bounced: bounces.bounced,
    e.LandingOpened: landing_opened,
    e.LandingClosed: landing_closed,
    e.NodeEmptied: node_emptied,
    e.NodeReturned: node_returned,
    **consents.RULES,
    **pauses.RULES,
    **observed.RULES,
    **proposals.RULES,
    e.PlanApproved: approved,
    e.Holding: _step(Step.HOLDING, frozenset({Step.PLANNED})),
    e.Held: _step(Step.HELD, frozenset({Step.HOLDING})),
    # At once where nothing is held (`Move.target`).
    e.Evicting: _step(Step.EVICTING, frozenset({Step.PLANNED, Step.HELD})),
    e.Evicted: _step(Step.EVICTED, frozenset({Step.HOLDING, Step.HELD, Step.EVICTING, Step.ABORTING})),
    # Before the eviction only in older logs, of pods that were to change places.
    e.Aborting: _step(Step.ABORTING, frozenset({Step.HOLDING, Step.HELD, Step.EVICTING})),
    e.TurningBack: turning_back,
    e.Landed: _step(Step.LANDED, frozenset({Step.EVICTED})),
    # Not from EVICTING: the way back leads through ABORTING (DESIGN 5).
    e.MigrationFailed: _step(Step.FAILED, _BEFORE_EVICTION | {Step.ABORTING, Step.EVICTED}),
    e.NotRecreated: _step(Step.NOT_RECREATED, frozenset({Step.EVICTED})),
    e.Removed: _step(Step.REMOVED, frozenset({Step.EVICTING, Step.ABORTING})),
}
