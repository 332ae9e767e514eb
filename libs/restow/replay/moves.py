"""Why a pod was moved, why it was to be moved and stays, and what was tried for one that waits, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

from restow.contracts.ids import PlanId, PodUid
from restow.contracts.times import rfc3339, seconds
from restow.domain import nomination_checks
from restow.domain.beside import GUARD, guard_of, guards, is_beside, stands
from restow.domain.evolve.bounces import BY_HAND
from restow.domain.evolve.demands import TRIGGER, job_name, job_of
from restow.domain.landing_gate import LEASE
from restow.domain.migration.consents import MOVED
from restow.domain.migration.demand import paused_until
from restow.domain.migration.deschedule import PLANNER
from restow.domain.records import FINAL, Migration, Step
from restow.domain.state import ClusterState
from restow.replay.beside import controller_name


def move_lines(state: ClusterState, uid: PodUid, migrations: Iterable[str]) -> list[str]:
    """Of each migration that concerns the pod, as the victim or as the successor."""
    found = (state.migrations.get(id) for id in migrations)  # type: ignore[call-overload]
    return [_line(state, record, uid) for record in found if record is not None]


def _line(state: ClusterState, record: Migration, uid: PodUid) -> str:
    move, why = record.move, because(state, record)
    if record.move.pod != uid:
        ending = "" if record.step is Step.LANDED else f"; the migration is {record.step}"
        return f"came from {move.source}, where it was {move.namespace}/{move.name}, to {move.target}, {why}{ending}"
    if not move.target:
        return _removal(record, why)
    what = f"from {move.source} to {move.target}, {why}"
    if record.step is Step.LANDED:
        successor = state.fact_of(record.successor)
        return f"moved {what}" + (f"; its successor is {successor.name}" if successor is not None else "")
    if record.step is Step.NOT_RECREATED:
        return f"evicted to be moved {what}; no successor came"
    if record.step in FINAL:
        return f"was to be moved {what}, and stayed: {reason(record)}"
    waits = "".join(f"; {line}" for line in consent_lines(state, record))
    return f"{'is to be' if record.step is Step.PLANNED else 'is being'} moved {what}; {record.step} now{waits}"


def _removal(record: Migration, why: str) -> str:
    """It had ended, or nobody makes it again."""
    what = f"from {record.move.source}, {why}"
    if record.step is Step.REMOVED:
        return f"evicted {what}; nothing was held for it"
    if record.step in FINAL:
        return f"was to be evicted {what}, and stayed: {reason(record)}"
    return f"is to be evicted {what}; {record.step} now"


def reason(record: Migration) -> str:
    return f"{record.reason}: {record.message}".strip(": ")


def consent_lines(state: ClusterState, record: Migration) -> list[str]:
    """Of one whose workload was asked, or is to be told of its end."""
    found = []
    if (known := state.consents.get(record.id)) is not None:
        whom = f"its workload ({known.way})"
        then = "is taken for assent" if known.evicts_on_silence else "keeps the pod where it is"
        found.append(
            f"{whom} has agreed, {rfc3339(known.given)}" if known.given
            else f"waits for the word of {whom} until {rfc3339(known.deadline)}; silence {then}"
        )  # fmt: skip
    if (telling := state.tellings.get(record.id)) is not None:
        found.append(f"its workload ({telling.way}) is still to be told that its pod {'has moved' if telling.what == MOVED else 'stays'}")
    return found


def beside_lines(state: ClusterState, record: Migration) -> list[str]:
    """Of one whose pod another scheduler places: who stands in its slot, what is gated, and who is not bound yet."""
    found = []
    for key, uid in state.stand_ins.items():
        slot = state.slots.get(key[0], {}).get(key[1])
        if key[0] == record.reservation and slot is not None:
            waits = "" if stands(state.live_of(uid), slot) else ", which does not run there"
            found.append(f"placeholder {_name(state, uid)} holds its slot on {slot.node}{waits}")
    if (guard := state.stand_ins.get(guard_of(record.id))) is not None:
        waits = "" if guards(state, record) else ", once it is nominated there"
        found.append(f"placeholder {_name(state, guard)} keeps {record.move.source} for it{waits}")
    if record.id in state.landings:
        found.append(f"what {controller_name(state, record.id)} makes is gated: Landing {state.log} lists it, for {LEASE // 60_000} minutes at a time")
    if is_beside(state, record.shape) and record.step not in FINAL:
        found += filter(None, (nomination_checks.sentence(state, state.shapes[record.shape].scheduler),))
    if record.successor in state.to_land:
        found.append(f"its successor has not been bound yet by {_scheduler(state, record.successor)}")
    return found


def stranger_lines(state: ClusterState, uid: PodUid) -> list[str]:
    """Of a pod of another scheduler: what it has to do with moves."""
    if (key := state.placeholders.get(uid)) is not None:
        if key[0] == GUARD:
            return [f"a placeholder that is never bound: it keeps the old node of migration {key[1]} for {_scheduler(state, uid)} to see"]
        record = state.reservations.get(key[0])
        whose = f" of migration {record.fact.migration}" if record is not None and record.fact.migration else ", which is known no more"
        return [f"a placeholder: it holds slot {key[1]}{whose} for {_scheduler(state, uid)} to see"]
    if (known := state.not_let_go.get(uid)) is not None:
        again = f"tried {known.times} times, again at {rfc3339(known.until)}"
        return [f"Restow's gate restow.dev/landing keeps it from its scheduler, and the API refuses to take it off ({again}): {known.reason}"]
    if uid in state.gated and state.ours(state.pods[uid].fact):
        return ["Restow's gate, which is for pods of other schedulers, is on it in vain: it is let go"]
    if uid in state.gated and state.pods[uid].fact.landing:
        return ["only Restow's gate keeps it from its scheduler: it gets the slot of the pod that it follows, or is let go"]
    if uid in state.to_land:
        return [f"a slot on {state.placed[uid].node} was handed over to it; {_scheduler(state, uid)} has not bound it yet"]
    return []


def _name(state: ClusterState, uid: PodUid) -> str:
    pod = state.pods[uid].fact
    return f"{pod.namespace}/{pod.name}"


def _scheduler(state: ClusterState, uid: PodUid) -> str:
    return state.shapes[state.pods[uid].fact.shape].scheduler


def because(state: ClusterState, record: Migration) -> str:
    """What the plan was made for, who asked for it, and which migration it is."""
    plan = state.plans.get(record.plan)  # type: ignore[call-overload]
    trigger = plan.planned.trigger if plan is not None else ""
    by = f"{trigger}, " if trigger not in ("", BY_HAND, TRIGGER) else ""
    return f"{purpose(state, record)} ({by}migration {record.id})"


def purpose(state: ClusterState, record: Migration) -> str:
    """What its plan was made for."""
    plan = state.plans.get(record.plan)  # type: ignore[call-overload]
    if plan is None:
        return "by a plan that is forgotten"
    planned = plan.planned
    if planned.trigger == BY_HAND:
        return "because somebody asked for it"
    if planned.planner == PLANNER:
        who = f"by {planned.plugin} (profile {planned.profile})" if planned.profile else f"by {planned.plugin}"
        return f"{who}: {record.move.reason}" if record.move.reason else who
    return f"to free capacity for {job_name(state, planned.demand)}" if planned.demand else "to pack nodes tighter"


def demand_line(state: ClusterState, uid: PodUid) -> str:
    """What was tried to free capacity for a pod that waits; empty for nothing."""
    job, _ = job_of(state, uid)
    tried = state.demands.get(job)
    if tried is None:
        return ""
    last = max((p for p in state.plans.values() if p.planned.demand == job), key=lambda p: (p.at, p.planned.plan), default=None)
    times = "once" if tried.tries == 1 else f"{tried.tries} times"
    line = f"capacity was looked for by moving others, {times}, last at {seconds(tried.at)}"
    if last is None:
        return line
    planned = last.planned
    if cancelled := state.cancelled.get(PlanId(planned.plan)):
        what = f"plan {planned.plan} was cancelled: {cancelled}"
    elif planned.slots:
        what = f"plan {planned.plan} makes it on {', '.join(dict.fromkeys(slot.node for slot in planned.slots))}"
        return f"{line}: {what}"
    else:
        what = planned.reason
    return f"{line}: {what}; again at {seconds(paused_until(tried))} at the earliest"
