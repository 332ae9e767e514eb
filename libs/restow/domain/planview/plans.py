"""A plan and its migrations as they are now."""

from collections import Counter
from typing import Literal

import msgspec

from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.times import rfc3339
from restow.contracts.values import Move, Packing
from restow.domain.evolve.demand_slots import key_of
from restow.domain.migration.plan_order import before
from restow.domain.planview.waves import numbers
from restow.domain.records import FINAL, OBSERVE, Plan, Step
from restow.domain.state import ClusterState

Phase = Literal["empty", "observed", "proposed", "rejected", "waiting", "moving", "cancelling", "done", "cancelled"]
"""Of a plan: without moves; never to be carried out; waiting for a person; not allowed by a person; nothing has begun; under way; what was begun comes to its end; over."""
OVER_PHASES = ("empty", "observed", "rejected", "done", "cancelled")
"""Those of a plan of which nothing more comes."""
UNKNOWN = "unknown"
"""Step of a move that was void from the start, or is forgotten: the log has it."""
OBSERVED, PROPOSED, DECLINED = "observed", "proposed", "declined"
"""Steps of moves that are none yet, or never: of a plan that is only observed; waiting for a person; not approved."""


class MigrationView(msgspec.Struct, frozen=True, rename="camel"):
    """`step` is the saga's, `unknown` where there is none. Times in RFC 3339, empty for none. `asked`: until when the word of its workload is
    waited for; `way`: how it was asked."""

    id: MigrationId
    plan: PlanId
    wave: int
    step: str
    namespace: str
    name: str
    pod: PodUid
    source: NodeName
    target: NodeName
    since: str = ""
    deadline: str = ""
    successor: PodUid = PodUid("")
    landed_as: str = ""
    reason: str = ""
    message: str = ""
    after: tuple[MigrationId, ...] = ()
    asked: str = ""
    way: str = ""

    @property
    def over(self) -> bool:
        return self.step in FINAL or self.step in (UNKNOWN, OBSERVED, DECLINED)

    @property
    def under_way(self) -> bool:
        return not self.over and self.step not in (Step.PLANNED, PROPOSED)


class DemandSlotView(msgspec.Struct, frozen=True, rename="camel"):
    """Capacity that the plan makes: `phase` is its Reservation's, empty before that was seen."""

    name: str
    namespace: str
    pod: PodUid
    node: NodeName
    phase: str = ""


class PlanView(msgspec.Struct, frozen=True, rename="camel"):
    """`steps` counts its migrations by step, `search` is how many steps the planner searched. `until` is when its last migration
    ended, empty while there is more to do. `mode` as in `migration.planned`; a proposed one waits for a person until `waits_until`, and has then an `answer`: approved or rejected, `by` whom,
    when (`answered`) and `why`."""

    plan: PlanId
    phase: Phase
    at: str
    until: str
    trigger: str
    plugin: str
    planner: str
    search: int
    reason: str
    cancelled: str
    moves: int
    waves: int
    steps: dict[str, int]
    sources: tuple[NodeName, ...]
    before: Packing
    after: Packing
    kept: dict[str, int]
    slots: int = 0
    profile: str = ""
    mode: str = ""
    waits_until: str = ""
    answer: str = ""
    answered: str = ""
    by: str = ""
    why: str = ""

    @property
    def over(self) -> bool:
        return self.phase in OVER_PHASES


def plan_view(state: ClusterState, id: PlanId) -> PlanView | None:
    plan = state.plans.get(id)
    return None if plan is None else _view(state, plan)


def _view(state: ClusterState, plan: Plan) -> PlanView:
    planned = plan.planned
    records = [state.migrations.get(move.migration) for move in planned.moves]
    steps = Counter(str(m.step) if m is not None else _none(state, plan, move.migration) for m, move in zip(records, planned.moves, strict=True))
    cancelled = state.cancelled.get(planned.plan, "")
    ended = [m.since for m in records if m is not None and m.step in FINAL]
    open_ = any(m is not None and m.step not in FINAL for m in records)
    until = max(ended, default=plan.answered or plan.at) if not open_ and planned.plan not in state.proposals else Millis(0)
    return PlanView(
        planned.plan,
        _unless_waiting(state, plan) or _phase(bool(planned.moves or planned.slots), open_, steps, bool(cancelled)),
        rfc3339(plan.at),
        rfc3339(until) if until else "",
        planned.trigger,
        planned.plugin,
        planned.planner,
        planned.steps,
        planned.reason,
        cancelled,
        len(planned.moves),
        max(numbers(planned.moves).values(), default=0),
        dict(sorted(steps.items())),
        planned.sources,
        planned.before,
        planned.after,
        planned.kept,
        len(planned.slots),
        planned.profile,
        planned.mode,
        rfc3339(state.proposals[planned.plan]) if planned.plan in state.proposals else "",
        plan.answer,
        rfc3339(plan.answered) if plan.answered else "",
        plan.by,
        plan.why,
    )


def _unless_waiting(state: ClusterState, plan: Plan) -> Phase | None:
    """The phase of a plan that is not, or not yet, to be carried out."""
    planned = plan.planned
    if planned.mode == OBSERVE:
        return "observed" if planned.moves or planned.slots else None
    return "proposed" if planned.plan in state.proposals else "rejected" if plan.answer == "rejected" else None


def _none(state: ClusterState, plan: Plan, id: MigrationId) -> str:
    """The step of a move that is no migration."""
    planned = plan.planned
    if not planned.mode:
        return UNKNOWN
    if planned.mode == OBSERVE:
        return OBSERVED
    if planned.plan in state.proposals:
        return PROPOSED
    approved = plan.answer == "approved" and (not plan.chosen or id in plan.chosen)
    return UNKNOWN if approved else DECLINED


def _phase(something: bool, open_: bool, steps: Counter[str], cancelled: bool) -> Phase:
    if not open_:
        return "cancelled" if cancelled else "done" if something else "empty"
    if cancelled:
        return "cancelling"
    return "waiting" if set(steps) <= {Step.PLANNED, UNKNOWN, DECLINED} else "moving"


def migrations_of(state: ClusterState, id: PlanId) -> list[MigrationView]:
    """As planned."""
    plan = state.plans.get(id)
    if plan is None:
        return []
    wave = numbers(plan.planned.moves)
    return [migration_view(state, id, move, wave[move.migration]) for move in plan.planned.moves]


def migration_view(state: ClusterState, plan: PlanId, move: Move, wave: int) -> MigrationView:
    record = state.migrations.get(move.migration)
    if record is None:
        return MigrationView(
            move.migration, plan, wave, _none(state, state.plans[plan], move.migration), move.namespace, move.name, move.pod, move.source, move.target, after=move.after
        )
    # Of a move that follows another one the pod is known once that has landed.
    move = record.move
    return MigrationView(
        record.id,
        plan,
        wave,
        str(record.step),
        move.namespace,
        move.name,
        move.pod,
        move.source,
        move.target,
        rfc3339(record.since) if record.since else "",
        rfc3339(record.deadline) if record.deadline else "",
        record.successor,
        _name(state, record.successor) if record.step is Step.LANDED else "",
        record.reason,
        record.message,
        before(move),
        *_asked(state, record.id),
    )


def _asked(state: ClusterState, id: MigrationId) -> tuple[str, str]:
    known = state.consents.get(id)
    return (rfc3339(known.deadline), known.way) if known is not None and not known.given else ("", "")


def _name(state: ClusterState, uid: PodUid) -> str:
    pod = state.fact_of(uid)
    return pod.name if pod is not None else ""


def demand_slots_of(state: ClusterState, id: PlanId) -> list[DemandSlotView]:
    plan = state.plans.get(id)
    found = []
    for slot in plan.planned.slots if plan is not None else ():
        known = state.demand_slots.get(key_of(slot.namespace, slot.name))
        phase = state.phases.get(known.reservation) if known is not None else None
        found.append(DemandSlotView(slot.name, slot.namespace, slot.pod, slot.node, str(phase.phase) if phase is not None else ""))
    return found
