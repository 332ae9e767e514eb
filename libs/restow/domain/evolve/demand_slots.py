"""Slots that plans free for pods that wait: which Reservation holds which."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import Millis, PlanId, ReservationUid
from restow.domain.evolve.rules import void
from restow.domain.other_schedulers import other_log
from restow.domain.records import DemandSlot, Migration, Reservation
from restow.domain.state import ClusterState

PLAN = "restow.dev/plan"
"""Label of a Reservation: the plan that it frees capacity for."""


def key_of(namespace: str, name: str) -> str:
    return f"{namespace}/{name}"


def planned(state: ClusterState, event: e.Planned) -> None:
    for slot in event.slots:
        key = key_of(slot.namespace, slot.name)
        if key in state.demand_slots:
            void(state, event)
        else:
            state.put(state.demand_slots, key, DemandSlot(event.plan, slot, state.time))


def observed(state: ClusterState, fact: e.ReservationObserved) -> None:
    key = key_of(fact.namespace, fact.name)
    known = state.demand_slots.get(key)
    if known is not None and not known.reservation and fact.labels.get(PLAN) == known.plan and not other_log(state, fact):
        state.put(state.demand_slots, key, replace(known, reservation=fact.reservation))


def gone(state: ClusterState, uid: ReservationUid) -> None:
    record = state.reservations[uid]
    key = key_of(record.fact.namespace, record.fact.name)
    known = state.demand_slots.get(key)
    if known is None or known.reservation != uid:
        return
    state.put(state.demand_slots, key, replace(known, gone=True))
    settle(state, known.plan)


def move_ended(state: ClusterState, migration: Migration) -> None:
    """The time of its plan's slots begins anew, when the pod has ended that was moved: they are of use then (RULES G-14)."""
    for key, known in list(state.demand_slots.items()):
        record = state.reservations.get(known.reservation) if known.plan == migration.plan else None
        if record is None or record.spec is None or not record.spec.ttl:
            continue
        live = state.live_of(migration.move.pod)
        until = Millis(max(state.time, live.deleting if live is not None else 0) + record.spec.ttl)
        if until > known.until:
            state.put(state.demand_slots, key, replace(known, until=until))
        state.put(state.reservations, known.reservation, replace(record, expires=max(record.expires, until)))
        state.reviewed.append(known.reservation)


def of(state: ClusterState, record: Reservation) -> DemandSlot | None:
    """The capacity that this Reservation holds."""
    if not state.demand_slots:
        return None
    known = state.demand_slots.get(key_of(record.fact.namespace, record.fact.name))
    return known if known is not None and known.reservation == record.fact.reservation else None


def settle(state: ClusterState, plan: PlanId) -> None:
    """Slots of which nothing is left, and nothing is to come, are forgotten."""
    over = plan in state.cancelled or not is_under_way(state, plan)
    for key in [key for key, one in state.demand_slots.items() if one.plan == plan and one.gone and over]:
        state.drop(state.demand_slots, key)


def is_under_way(state: ClusterState, plan: PlanId) -> bool:
    """Whether any of its moves is, or is still to begin."""
    known = state.plans.get(plan)
    moves = known.planned.moves if known is not None else ()
    return any(move.migration in state.active or move.migration in state.backlog for move in moves)


def forget(state: ClusterState, plan: PlanId) -> None:
    for key in [key for key, one in state.demand_slots.items() if one.plan == plan]:
        state.drop(state.demand_slots, key)
