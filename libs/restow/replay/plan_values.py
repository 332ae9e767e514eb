"""What each move of a plan is worth to it: how much less it would win without that move.

The worth of what is free belongs to a plan as a whole, so these do not add up to it: of two moves that free one node together, the plan loses the node without either of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from restow.contracts import events as e
from restow.contracts.ids import MigrationId, PlanId
from restow.domain.defragmentation.appraisal import appraisal_of
from restow.domain.migration.proposals import needs
from restow.domain.planview import carried_out
from restow.domain.state import ClusterState
from restow.replay.source import Source
from restow.replay.state_at import ReplayError, decode_record, state_at

MOST_MOVES = 500
"""Of a plan: its moves are valued one by one, and each takes as long as the plan is."""


class MoveValue(msgspec.Struct, frozen=True):
    """By how much less what is free would be worth without the move, in thousandths of the plan's unit; below 0 where it would be worth more. `along`: other moves that cannot be, or must not be,
    without it, and are left out with it."""

    migration: MigrationId
    loses: int
    along: tuple[MigrationId, ...] = ()


class PlanValues(msgspec.Struct, frozen=True):
    """`moves` in the plan's order; none where `unknown` says why that cannot be said."""

    moves: tuple[MoveValue, ...] = ()
    unknown: str = ""


def plan_values(source: Source, seq: int, plan: PlanId) -> PlanValues:
    """Of the plan that was made by the commit `seq`, on the state that its decider had read, by the planner's own appraisal, where that says what the plan says of itself. Raises ReplayError."""
    read, planned = _planned(source, seq, plan)
    return values_of(state_at(source, seq=read), planned)


def values_of(state: ClusterState, planned: e.Planned) -> PlanValues:
    """The same of a plan that was made on this state."""
    if planned.worth is None:
        return PlanValues(unknown="the plan does not say what it is worth")
    if len(planned.moves) > MOST_MOVES:
        return PlanValues(unknown=f"the plan has {len(planned.moves)} moves; of at most {MOST_MOVES} it is worked out what it is worth without each")
    appraisal = appraisal_of(state)
    if appraisal is None or (appraisal.total(), appraisal.total(*carried_out(state, planned.moves))) != (planned.worth.before, planned.worth.after):
        return PlanValues(unknown="the plan is worth something else by the log and this release of Restow, so what its moves are worth is not known")
    found, wants = list[MoveValue](), _wants(planned)
    for move in planned.moves:
        out = _without(wants, move.migration)
        rest = [one for one in planned.moves if one.migration not in out]
        loses = planned.worth.after - appraisal.total(*carried_out(state, rest))
        found.append(MoveValue(move.migration, loses, tuple(one.migration for one in planned.moves if one.migration in out and one is not move)))
    return PlanValues(tuple(found))


def _planned(source: Source, seq: int, plan: PlanId) -> tuple[int, e.Planned]:
    """What its decider had read, and the plan. Raises ReplayError."""
    for batch in source.batches(seq, seq):
        for record in batch:
            told: list[e.Event] = [event for decision in decode_record(record, source.log_id) for event in decision.events]
            for event in told:
                if isinstance(event, e.Planned) and event.plan == plan:
                    return max(0, min(record.envelope.read, seq - 1)), event
    raise ReplayError(f"plan {plan} is not in commit {seq}: it was made before what is known of this log")


def _wants(planned: e.Planned) -> dict[MigrationId, list[MigrationId]]:
    """Of each move those that cannot be, or must not be, without it."""
    found: dict[MigrationId, list[MigrationId]] = {}
    for move in planned.moves:
        for needed, _ in needs(planned, move):
            found.setdefault(needed, []).append(move.migration)
    return found


def _without(wants: Mapping[MigrationId, Sequence[MigrationId]], move: MigrationId) -> set[MigrationId]:
    """The move, and all that goes with it."""
    out, left = {move}, [move]
    while left:
        for other in wants.get(left.pop(), ()):
            if other not in out:
                out.add(other)
                left.append(other)
    return out
