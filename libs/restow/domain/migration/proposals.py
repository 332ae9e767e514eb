"""Plans that wait for a person: what that may say of them, and for how long they wait.

An approved plan goes on as if it had been made at that moment: each move is checked again before it begins, and a slot is held before anybody is evicted."""

from collections.abc import Iterator

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.ids import MigrationId, Millis, PlanId
from restow.contracts.times import rfc3339
from restow.contracts.values import Move
from restow.domain import eviction_budgets
from restow.domain.decider import Rejected
from restow.domain.duration import format_milliseconds
from restow.domain.migration import open_hours, pause
from restow.domain.records import PROPOSE
from restow.domain.state import ClusterState


def approve(state: ClusterState, command: c.Approve) -> list[e.Event]:
    """Raises Rejected."""
    planned = _waiting(state, "approve", command.plan)
    pause.heed(state)
    open_hours.heed(state, command.time)
    _in_time(state, command)
    known = {move.migration for move in planned.moves}
    if unknown := [id for id in command.moves if id not in known]:
        raise Rejected(f"approve: plan {command.plan} has no move {unknown[0]!r}; allowed: {_names(planned.moves)}")
    chosen = frozenset(command.moves)
    _in_budget(state, command, planned)
    if not chosen or chosen == known:
        return [e.PlanApproved(command.plan, command.by, command.reason)]
    if planned.slots:
        raise Rejected(f"approve: plan {command.plan} frees capacity for a job that waits, which needs all of its moves; allowed: the whole plan")
    for move in planned.moves:
        if move.migration in chosen:
            for needed, why in needs(planned, move):
                if needed not in chosen:
                    raise Rejected(f"approve: {move.migration} needs {needed}, {why}; allowed: both, or neither")
    return [e.PlanApproved(command.plan, command.by, command.reason, tuple(move.migration for move in planned.moves if move.migration in chosen))]


def reject(state: ClusterState, command: c.Reject) -> list[e.Event]:
    """Raises Rejected."""
    _waiting(state, "reject", command.plan)
    return [e.PlanRejected(command.plan, command.by, command.reason)]


def due(state: ClusterState, now: Millis) -> c.CancelPlan | None:
    """The first that nobody has answered in time."""
    plan = min((plan for plan, until in state.proposals.items() if until <= now), default=None)
    if plan is None:
        return None
    waited = format_milliseconds(state.proposals[plan] - state.plans[plan].at) if plan in state.plans else "its time"
    return c.CancelPlan(now, plan, f"NotApproved: nobody has approved it within {waited}")


def deadline(state: ClusterState) -> Millis | None:
    return min(state.proposals.values(), default=None)


def _waiting(state: ClusterState, what: str, plan: PlanId) -> e.Planned:
    """Raises Rejected where it does not wait for a person."""
    known = state.plans.get(plan)
    if plan in state.proposals and known is not None:
        return known.planned
    waiting = f"one of {', '.join(list(state.proposals)[:5])}" if state.proposals else "none, for no plan waits for a person"
    if known is None:
        raise Rejected(f"{what}: there is no plan {plan!r}; allowed: {waiting}")
    why = f"it was {known.answer} by {known.by}" if known.answer else state.cancelled.get(plan) or "it was not proposed"
    raise Rejected(f"{what}: plan {plan} does not wait for a person ({why}); allowed: {waiting}")


def needs(planned: e.Planned, move: Move) -> Iterator[tuple[MigrationId, str]]:
    """Moves without which this one cannot be made, or must not."""
    for id in (*move.after, *((move.follows,) if move.follows else ())):
        yield id, "which makes its slot free" if id != move.follows else "which brings its pod half of the way"
    for other in planned.moves:
        if other.follows == move.migration:
            yield other.migration, "which brings its pod the rest of the way"
        if move.gang and other.gang == move.gang:
            yield other.migration, f"for gang {move.gang} moves as one"
        if planned.whole and other.source == move.source:
            yield other.migration, f"for the plan empties {move.source} wholly or not at all"


def _in_time(state: ClusterState, command: c.Approve) -> None:
    """Raises Rejected where the plan is to be cancelled, and only nobody has come to it yet."""
    if state.mode.name != PROPOSE:
        raise Rejected(f"approve: plan {command.plan} does not wait for a person any more (the mode is {state.mode.name}); allowed: a plan made in mode {PROPOSE}")
    if (until := state.proposals[command.plan]) <= command.time:
        raise Rejected(f"approve: plan {command.plan} has waited until {rfc3339(until)}; allowed: the next one, which is made from the cluster as it is now")


def _in_budget(state: ClusterState, command: c.Approve, planned: e.Planned) -> None:
    """Raises Rejected where an eviction budget would refuse one of the moves as soon as they are begun."""
    moves = [move for move in planned.moves if not command.moves or move.migration in command.moves]
    if why := eviction_budgets.objection(state, command.time, (eviction_budgets.keys_of(state, move) for move in moves)):
        raise Rejected(f"approve: {why}; allowed: fewer of the moves of plan {command.plan}, or later")


def _names(moves: tuple[Move, ...]) -> str:
    names = [str(move.migration) for move in moves]
    return f"some of {', '.join(names[:5])}" + (f" and {len(names) - 5} more" if len(names) > 5 else "")
