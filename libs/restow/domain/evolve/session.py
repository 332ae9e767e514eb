"""Who holds and uses capacity. An intent about something that facts have overtaken is void."""

from itertools import islice

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid, ReservationUid
from restow.contracts.values import ClaimChoice
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.evolve.places import drop_place, put_place, tally_of
from restow.domain.evolve.reservations import SUPERSEDED, alive, ask, forget_if_over, places, rephase
from restow.domain.evolve.rules import Rules
from restow.domain.records import (
    FINAL,
    Nomination,
    Placement,
    ReservationPhase,
    Slot,
    SlotPhase,
    Victim,
    Waiting,
)
from restow.domain.state import ClusterState, Under

PREEMPTED = "Preempted"
"""Why a hold is released that had no owner yet when somebody of a higher priority needed its room (RULES G-7)."""
DEADLINE = "Deadline"
"""Why a nomination ends whose victims did not go in time, and with it what was asked of them."""
REFUSED = "Refused"
"""How the reason begins where the API will never evict a victim."""
AGAIN = 600_000
"""Milliseconds after which a pod may be chosen again whose eviction did not come about in time: a budget that has held it up
would most likely do so again, while others may go."""
TOLD_AGAIN = 100
"""At most so many pods of a kind are told anew why they wait when that has changed: each is a write to the API."""
NEVER = Millis(1 << 60)


def _void(state: ClusterState, event: e.Event) -> None:
    state.void[str(event.__struct_config__.tag)] += 1


def pod_placed(state: ClusterState, event: e.PodPlaced) -> None:
    if not state.awaits_placement(event.pod):
        return _void(state, event)
    nomination = state.nominations.get(event.pod)
    if nomination is not None:
        state.denominate(event.pod, placing=True)
    state.put(state.placed, event.pod, Placement(event.node, event.devices, None, state.time, event.volumes))
    _choose_anew(state, event.volumes)
    _settled(state, event.pod)
    if nomination is not None:
        state.top_up(nomination.node)


def _choose_anew(state: ClusterState, choices: tuple[ClaimChoice, ...]) -> None:
    """What a provisioner gave back before counts no longer."""
    for choice in choices:
        state.drop(state.unselected, choice.claim)


def _settled(state: ClusterState, pod) -> None:
    state.settle(pod)
    state.requeue(pod)
    state.touched.pods[pod] = None


def pod_released(state: ClusterState, event: e.PodReleased) -> None:
    if state.drop(state.placed, event.pod) is None:
        return _void(state, event)
    _settled(state, event.pod)


def hold_placed(state: ClusterState, event: e.HoldPlaced) -> None:
    slots = state.slots.get(event.reservation, {})
    slot = slots.get(event.slot)
    if slot is None or slot.phase is not SlotPhase.PENDING or not alive(state.reservations.get(event.reservation)):
        return _void(state, event)
    queue = _queue_of(state, event.reservation)
    held = Slot(slot.shape, slot.task, SlotPhase.HELD, event.node, event.devices, queue=queue)
    put_place(state, event.reservation, event.slot, held)
    state.hold(event.reservation, event.slot, held)
    state.capacity_epoch += 1  # pods that wait may be its owners
    rephase(state, event.reservation)


def _queue_of(state: ClusterState, uid: ReservationUid) -> str:
    """The queue that a hold is accounted to; migration holds are neutral (DESIGN 5)."""
    record = state.reservations[uid]
    if record.fact.migration in state.migrations:
        return ""
    return (record.spec.queue if record.spec is not None else "") or DEFAULT_QUEUE


def handed_over(state: ClusterState, event: e.HandedOver) -> None:
    slots = state.slots.get(event.reservation, {})
    slot = slots.get(event.slot)
    if slot is None or slot.phase is not SlotPhase.HELD or not state.awaits_placement(event.pod):
        return _void(state, event)
    state.unhold(event.reservation, event.slot, slot)
    put_place(state, event.reservation, event.slot, replace(slot, phase=SlotPhase.USED, pod=event.pod))
    nomination = state.nominations.get(event.pod)
    state.denominate(event.pod, placing=True)
    hold = (event.reservation, event.slot)
    state.put(state.placed, event.pod, Placement(event.node, event.devices, hold, state.time, event.volumes))
    _choose_anew(state, event.volumes)
    _settled(state, event.pod)
    state.top_up(slot.node)
    if nomination is not None and nomination.node != slot.node:
        state.top_up(nomination.node)
    record = state.reservations[event.reservation]
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    if migration is not None and migration.reservation == event.reservation and migration.step not in FINAL:
        state.put(state.migrations, migration.id, replace(migration, successor=event.pod))
        state.put(state.successors, event.pod, migration.id)
        state.drop_in(state.armed, migration.lineage, migration.id)
    rephase(state, event.reservation)


def hold_released(state: ClusterState, event: e.HoldReleased) -> None:
    slots = state.slots.get(event.reservation, {})
    slot = slots.get(event.slot)
    if slot is None or slot.phase is not SlotPhase.HELD:
        return _void(state, event)
    uid = event.reservation
    state.unhold(uid, event.slot, slot)
    state.top_up(slot.node)
    record = state.reservations[uid]
    if event.reason == PREEMPTED and alive(record):
        # Its place waits again, in its turn.
        ask(state, uid, event.slot, Slot(slot.shape, slot.task))
    elif event.reason == SUPERSEDED and alive(record) and record.spec is not None:
        # Nothing was lost: the accepted generation asks for it in another shape, or not at all.
        drop_place(state, uid, event.slot)
        asked = places(record.spec).get(event.slot)
        if asked is not None:
            ask(state, uid, event.slot, asked)
    else:
        put_place(state, uid, event.slot, replace(slot, phase=SlotPhase.FAILED, reason=event.reason))
    rephase(state, uid)
    _give_up_the_rest(state, uid)
    forget_if_over(state, uid)


def _give_up_the_rest(state: ClusterState, uid: ReservationUid) -> None:
    """Failed is final: a Reservation that has lost all that it held waits for nothing more."""
    phase = state.phases.get(uid)
    if phase is None or phase.phase is not ReservationPhase.FAILED or not tally_of(state, uid).pending:
        return
    for name, slot in list(state.slots[uid].items()):
        if slot.phase is SlotPhase.PENDING:
            put_place(state, uid, name, replace(slot, phase=SlotPhase.FAILED, reason=phase.reason))


def unfit(state: ClusterState, event: e.Unfit) -> None:
    if event.shape not in state.shapes:
        return _void(state, event)
    key = event.key or event.shape
    for pod in event.pods:
        if pod in state.queue or pod in state.parked:
            state.park(pod, key, ("shape", f"{event.shape}/{state.pods[pod].pinned_node}"))
            state.touched.pods[pod] = None
    state.put(state.waiting, key, Waiting(event.nodes, event.reasons, state.time, state.capacity_epoch))
    if not event.pods:
        _tell_again(state, ("shape", f"{event.shape}/"), key)
    state.touched.shapes[event.shape] = None


def _tell_again(state: ClusterState, under: Under, key: str) -> None:
    """What is said of these pods has changed: the conditions of those that have waited longest follow. Where more of them wait
    for the same, the others keep what they were told first (`restow why` is of the moment)."""
    own = PodUid(key.rpartition("/")[2])
    for pod in (own, *islice(state.parked_under.get(under, ()), TOLD_AGAIN)):
        if pod in state.parked and state.parked[pod][0] == key:
            state.touched.pods[pod] = None


def withheld_key(reason: str, group: str, message: str) -> str:
    """What pods wait under that are withheld for the same: their group, or the sentence."""
    return f"{reason}/{group or message}"


def withheld(state: ClusterState, event: e.Withheld) -> None:
    key = withheld_key(event.reason, event.group, event.message)
    for pod in event.pods:
        if pod in state.queue or pod in state.parked:
            state.park(pod, key, ("group", event.group) if event.group else ("reason", key))
            state.touched.pods[pod] = None
    waiting = Waiting(event.nodes, event.reasons, state.time, state.capacity_epoch, event.reason, event.message)
    state.put(state.waiting, key, waiting)
    if not event.pods:
        _tell_again(state, ("group", event.group) if event.group else ("reason", key), key)
    if event.group:
        namespace, _, name = event.group.partition("/")
        state.touched.groups[namespace, name] = None


def enqueued(state: ClusterState, event: e.Enqueued) -> None:
    group = (event.namespace, event.group)
    if group not in state.pod_groups:
        return _void(state, event)
    state.put(state.enqueued, group, None)
    state.drop(state.unqueued, group)
    state.touched.groups[group] = None
    state.capacity_epoch += 1


def preempted(state: ClusterState, event: e.Preempted) -> None:
    if event.pod not in state.charges:
        return _void(state, event)
    state.put(state.victims_of, event.pod, Victim(event.by, event.action, event.reason, state.time))
    state.touched.pods[event.pod] = None


def preemption_ended(state: ClusterState, event: e.PreemptionEnded) -> None:
    if state.drop(state.victims_of, event.pod) is None:
        return _void(state, event)
    if event.reason == DEADLINE:
        state.put(state.stuck, event.pod, Millis(state.time + AGAIN))
    elif event.reason.startswith(REFUSED):
        state.put(state.stuck, event.pod, NEVER)
    state.touched.pods[event.pod] = None


def nominated(state: ClusterState, event: e.Nominated) -> None:
    if not state.awaits_placement(event.pod) or event.node not in state.table.rows:
        # Facts came in between: nobody is evicted for it.
        for victim in event.victims:
            if victim in state.victims_of and state.victims_of[victim].by == event.pod:
                state.drop(state.victims_of, victim)
        return _void(state, event)
    v = state.vectors[state.pods[event.pod].shape]
    state.nominate(event.pod, Nomination(event.node, event.deadline, v.items, event.devices, event.victims))
    if event.pod in state.nominations:
        state.unpark(event.pod)
        state.drop(state.queue, event.pod)
    state.touched.pods[event.pod] = None


def nomination_ended(state: ClusterState, event: e.NominationEnded) -> None:
    if event.pod not in state.nominations:
        return _void(state, event)
    state.denominate(event.pod)
    state.requeue(event.pod)
    state.touched.pods[event.pod] = None


def task_reserved(state: ClusterState, event: e.TaskReserved) -> None:
    if not state.awaits_placement(event.pod) or event.node not in state.table.rows:
        return _void(state, event)
    state.reserve(event.pod, event.node)
    state.touched.pods[event.pod] = None


def task_unreserved(state: ClusterState, event: e.TaskUnreserved) -> None:
    if event.pod not in state.reserved_tasks:
        return _void(state, event)
    state.unreserve(event.pod)
    state.touched.pods[event.pod] = None


def _waiting(slot: Slot, event: e.HoldUnfit) -> Slot:
    return replace(slot, nodes=event.nodes, reasons=event.reasons, reason=event.reason, message=event.message)


def hold_unfit(state: ClusterState, event: e.HoldUnfit) -> None:
    slots = state.slots.get(event.reservation, {})
    slot = slots.get(event.slot)
    if slot is None or slot.phase is not SlotPhase.PENDING:
        return _void(state, event)
    put_place(state, event.reservation, event.slot, _waiting(slot, event))
    rephase(state, event.reservation)


RULES: Rules = {
    e.PodPlaced: pod_placed,
    e.PodReleased: pod_released,
    e.HoldPlaced: hold_placed,
    e.HandedOver: handed_over,
    e.HoldReleased: hold_released,
    e.Unfit: unfit,
    e.Withheld: withheld,
    e.Enqueued: enqueued,
    e.Preempted: preempted,
    e.PreemptionEnded: preemption_ended,
    e.Nominated: nominated,
    e.NominationEnded: nomination_ended,
    e.TaskReserved: task_reserved,
    e.TaskUnreserved: task_unreserved,
    e.HoldUnfit: hold_unfit,
}
