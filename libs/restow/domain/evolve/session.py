"""Who holds and uses capacity. An intent about something that facts have overtaken is void."""

from itertools import islice
from typing import Any

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import LATEST, MigrationId, Millis, NodeName, PodUid, ReservationUid, ShapeId
from restow.contracts.times import doubled
from restow.contracts.values import ClaimChoice
from restow.domain import nomination_checks
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.allocations import after, taken_of
from restow.domain.beside import (
    LET_GO_AGAIN,
    LET_GO_AGAIN_LONGEST,
    PLACEHOLDER,
    is_embodied,
    needs_placeholder,
)
from restow.domain.evolve.reservation_slots import SUPERSEDED, ask, forget_if_over, rephase, slots_of
from restow.domain.evolve.rules import Rules
from restow.domain.groups import named
from restow.domain.held_capacity import OVERCOMMITTED, PRE_ALLOCATION, UNAVAILABLE
from restow.domain.node_table import lowered, shares_up_to
from restow.domain.records import (
    FINAL,
    NO_CAPACITY,
    ON_NODE,
    Allocation,
    Capacity,
    Nomination,
    Placement,
    Refusal,
    Slot,
    SlotPhase,
    Victim,
    Waiting,
)
from restow.domain.reservation.allocate_once import is_once
from restow.domain.resources import GPU_MILLI
from restow.domain.slots import SlotKey
from restow.domain.state import NODE_LOST, ClusterState, Under
from restow.domain.unsaid_devices import of_hold

PREEMPTED = "Preempted"
"""Why a hold is released that had no owner yet when somebody of a higher priority needed its capacity (RULES G-7)."""
DEADLINE = "Deadline"
"""Why a nomination ends whose victims did not go in time, and with it what was asked of them."""
REFUSED = "Refused"
"""How the reason begins where the API will never evict a victim."""
AGAIN = 600_000
"""Milliseconds after which a pod may be chosen again whose eviction did not come about in time: a budget that has held it up
would most likely do so again, while others may go."""
TOLD_AGAIN = 100
"""At most so many equal pods are told anew why they wait when that has changed: each is a write to the API."""
NEVER = Millis(LATEST)
"""The latest time that a state may hold."""


def _void(state: ClusterState, event: e.Event) -> None:
    state.void[str(event.__struct_config__.tag)] += 1


def _overtaken(state: ClusterState, event: e.HandedOver | e.HoldResized) -> None:
    """It is void, and its slot keeps what another hold on the node may have been given in the same commit: such are void, too, for what
    is no amount, a host port or who may run beside whom, nobody could tell from the table."""
    slot = state.slots.get(event.reservation, {}).get(event.slot)
    if slot is not None and (event.reservation, event.slot) in state.held_on.get(slot.node, ()):
        state.overtaken.add(slot.node)
    _void(state, event)


def _counted_on_void(state: ClusterState, event: e.HoldPlaced | e.HoldResized, node: NodeName) -> bool:
    """Whether it is void with an earlier one of its commit. It is asked for still, and tried again at once."""
    if node not in state.overtaken:
        return False
    state.capacity_epoch += 1
    _void(state, event)
    return True


def pod_placed(state: ClusterState, event: e.PodPlaced) -> None:
    if not state.awaits_placement(event.pod):
        return _void(state, event)
    nomination = state.nominations.get(event.pod)
    if nomination is not None:
        state.denominate(event.pod, placing=True)
    placement = Placement(event.node, event.devices, None, state.time, event.volumes, event.cores)
    state.put(state.placed, event.pod, placement)
    _choose_anew(state, event.volumes)
    _settled(state, event.pod)
    if nomination is not None and nomination.node != event.node:
        state.top_up(nomination.node)
    state.top_up(event.node)


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


def _slot_of(state: ClusterState, event: Any, *phases: SlotPhase, lost: bool = False) -> tuple[SlotKey, Slot] | None:
    """The slot that an event is about, None where it is not in one of these phases (any more), or, unless `lost` ones count,
    was lost with its node: it holds nothing there, even if there is another node of that name by now."""
    key = (event.reservation, event.slot)
    slot = state.slots.get(event.reservation, {}).get(event.slot)
    if slot is None or slot.phase not in phases or (not lost and state.to_release.get(key) == NODE_LOST):
        return None
    return key, slot


def hold_placed(state: ClusterState, event: e.HoldPlaced) -> None:
    found = _slot_of(state, event, SlotPhase.PENDING)
    if found is None or (event.shape and event.shape != found[1].shape):
        # It may have ended, with what waited of it (`cancel`), or a later generation may ask for something else by now.
        return _void(state, event)
    if _counted_on_void(state, event, event.node):
        return None
    key, slot = found
    wanted = state.vectors[slot.shape].items
    state.cut_off(key)
    # Who had left them to it may have them still, for facts have overtaken that: it waits, and is to get other ones (`releases`).
    cores = state.nobodys_cores(key, event.node, event.cores)
    if event.waiting:
        capacity = Capacity(wanted, devices=event.devices, cores=cores)
    else:
        capacity = Capacity.full(wanted, event.devices, cores)
    short = len(cores) < len(event.cores)
    empty = not event.waiting and needs_placeholder(state, key, slot)
    held = Slot(
        slot.shape,
        slot.task,
        SlotPhase.WAITING if event.waiting or empty or short else SlotPhase.HELD,
        event.node,
        event.devices,
        reason=PRE_ALLOCATION if event.waiting else PLACEHOLDER if empty else OVERCOMMITTED if short else "",
        queue=_queue_of(state, event.reservation),
        cores=cores,
        capacity=capacity,
    )
    state.put_slot(key, held)
    state.occupy(key, held)
    state.squeeze(event.node)
    state.top_up(event.node)
    state.capacity_epoch += 1  # pods that wait may be its owners


def hold_ready(state: ClusterState, event: e.HoldReady) -> None:
    found = _slot_of(state, event, SlotPhase.WAITING)
    if found is None or not found[1].capacity.complete or state.lacks_cores(found[1]) or found[0] in state.to_release or not is_embodied(state, *found):
        return _void(state, event)
    key, slot = found
    state.drop_in(state.waiting_on, slot.node, key)
    state.drop(state.whole, key)
    state.put_slot(key, replace(slot, phase=SlotPhase.HELD, reason="", message=""))
    state.moved.append(key)
    state.capacity_epoch += 1


def hold_borrowed(state: ClusterState, event: e.HoldBorrowed) -> None:
    """The pod is placed next; what it leaves is the hold's again."""
    found = _slot_of(state, event, SlotPhase.HELD, SlotPhase.WAITING)
    if found is None or not state.awaits_placement(event.pod) or found[1].node not in state.table.rows:
        return _void(state, event)
    key, slot = found
    state.borrow_from(key, slot, event.pod)


def hold_resized(state: ClusterState, event: e.HoldResized) -> None:
    found = _slot_of(state, event, SlotPhase.HELD, SlotPhase.WAITING)
    if found is None or found[1].asked != event.shape or found[1].node not in state.table.rows:
        return _overtaken(state, event)
    if _counted_on_void(state, event, found[1].node):
        return None
    key, slot = found
    state.drop(state.resizes, key)
    full = state.nobodys_cores(key, slot.node, event.cores)
    wanted, devices, cores = state.unallocated(key, state.vectors[event.shape].items, event.devices, full)
    held_devices = shares_up_to(devices, {d.index: d.milli for d in slot.capacity.held_devices})
    capacity = Capacity(wanted, lowered(slot.capacity.held, wanted), devices, held_devices, cores)
    state.change_capacity(
        key, capacity, len(full) < len(event.cores), shape=event.shape, devices=event.devices, cores=full, asked=ShapeId(""), reasons={}, nodes=0,
        message="",
    )  # fmt: skip
    state.top_up(slot.node)
    state.capacity_epoch += 1


def _queue_of(state: ClusterState, uid: ReservationUid) -> str:
    """The queue that a hold is accounted to; migration holds are neutral (DESIGN 5)."""
    record = state.reservations[uid]
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    if migration is not None and migration.reservation == uid:
        return ""
    return (record.spec.queue if record.spec is not None else "") or DEFAULT_QUEUE


def handed_over(state: ClusterState, event: e.HandedOver) -> None:
    found = _slot_of(state, event, SlotPhase.HELD)
    if found is None or found[1].node != event.node or not state.awaits_placement(event.pod):
        return _overtaken(state, event)
    key, slot = found
    record, pod = state.reservations[event.reservation], state.pods[event.pod].fact
    wanted = state.vectors[pod.shape].items
    takes = event.devices or of_hold(state.shapes[pod.shape].devices, slot.capacity.held_devices)
    items, devices, cores = taken_of(slot.capacity, wanted, takes, event.cores, state.table.columns.get(GPU_MILLI))
    if is_once(record):
        state.vacate(key, slot)
        # What was allocated is remembered longer than the pod is there (RULES 004-1).
        capacity = Capacity(items, devices=devices, cores=cores)
        used = replace(slot, phase=SlotPhase.USED, pod=event.pod, owner=f"{pod.namespace}/{pod.name}", capacity=capacity)
        state.put_slot(key, used)
    else:
        state.change_capacity(key, after(slot.capacity, items, devices, cores))
    state.allocate(event.pod, Allocation(*key, slot.node, items, devices, cores))
    nomination = state.nominations.get(event.pod)
    state.denominate(event.pod, placing=True)
    placement = Placement(event.node, event.devices, key, state.time, event.volumes, event.cores)
    state.put(state.placed, event.pod, placement)
    _choose_anew(state, event.volumes)
    _settled(state, event.pod)
    state.top_up(slot.node)
    if nomination is not None and nomination.node != slot.node:
        state.top_up(nomination.node)
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    if migration is not None and migration.reservation == event.reservation and migration.step not in FINAL:
        _leave_behind(state, event.pod, migration.id)
        state.put(state.migrations, migration.id, replace(migration, successor=event.pod))
        state.put(state.successors, event.pod, migration.id)
        state.drop_in(state.armed, migration.lineage, migration.id)
    state.unsettled[event.reservation] = None


def _leave_behind(state: ClusterState, pod: PodUid, taken: MigrationId) -> None:
    """One pod is the successor in one migration. Where it had taken another hold, and lost that (its Reservation and its node went),
    that migration waits for the next one."""
    id = state.successors.get(pod)
    before = state.migrations.get(id) if id is not None else None
    if before is None or id == taken:
        return
    state.put(state.migrations, before.id, replace(before, successor=PodUid("")))
    state.put_in(state.armed, before.lineage, before.id)


def hold_released(state: ClusterState, event: e.HoldReleased) -> None:
    found = _slot_of(state, event, SlotPhase.HELD, SlotPhase.WAITING, lost=True)
    if found is None:
        return _void(state, event)
    key, slot = found
    uid, name = key
    record = state.reservations[uid]
    state.vacate(key, slot)
    if event.reason in (PREEMPTED, UNAVAILABLE) and record.alive:
        # Its slot waits again, in its turn.
        ask(state, uid, name, Slot(slot.asked or slot.shape, slot.task))
    elif event.reason == SUPERSEDED and record.alive and record.spec is not None:
        # Nothing was lost: the accepted generation asks for it in another shape, or not at all.
        state.drop_slot(key)
        asked = slots_of(record.spec).get(name)
        if asked is not None:
            ask(state, uid, name, asked)
    else:
        state.put_slot(key, replace(slot, phase=SlotPhase.FAILED, reason=event.reason, capacity=NO_CAPACITY))
    state.top_up(slot.node)
    rephase(state, uid)
    forget_if_over(state, uid)


def unfit(state: ClusterState, event: e.Unfit) -> None:
    if event.shape not in state.shapes:
        return _void(state, event)
    key = event.key or event.shape
    for pod in event.pods:
        if pod in state.queue or pod in state.parked:
            state.park(pod, key, ("shape", f"{event.shape}/{state.pods[pod].fact.pinned_node}"))
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
        state.touched.groups[named(event.group)] = None


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
    v = state.vectors[state.pods[event.pod].fact.shape]
    # CPUs of its victims are theirs still; those of a hold whose hand-over was void are not for it.
    theirs = state.held_cores(event.node) if event.cores else ()
    cores = tuple(core for core in event.cores if core not in theirs)
    capacity = Capacity(v.items, devices=event.devices, cores=cores)
    state.nominate(event.pod, Nomination(event.node, event.deadline, capacity, event.victims))
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
    reason = event.reason if slot.phase is SlotPhase.PENDING else slot.reason
    return replace(slot, nodes=event.nodes, reasons=event.reasons, reason=reason, message=event.message)


def hold_unfit(state: ClusterState, event: e.HoldUnfit) -> None:
    found = _slot_of(state, event, SlotPhase.PENDING, *ON_NODE)
    if found is None or (found[1].phase in ON_NODE and not found[1].asked):
        return _void(state, event)
    key, slot = found
    state.put_slot(key, _waiting(slot, event))
    rephase(state, event.reservation)


def owners_gated(state: ClusterState, event: e.OwnersGated) -> None:
    if event.until and event.reservation not in state.reservations:
        return _void(state, event)
    state.put(state.owner_gates, event.reservation, event.until)
    state.touched.reservations[event.reservation] = None


def owners_unlisted(state: ClusterState, event: e.OwnersUnlisted) -> None:
    if state.owner_gates.get(event.reservation) != 0:
        return _void(state, event)
    state.drop(state.owner_gates, event.reservation)


def pod_let_go(state: ClusterState, event: e.PodLetGo) -> None:
    if event.pod not in state.gated:
        return _void(state, event)
    state.put(state.passed, event.pod, None)
    state.touched.pods[event.pod] = None


def let_go_refused(state: ClusterState, event: e.LetGoRefused) -> None:
    if event.pod not in state.gated:
        return _void(state, event)
    known = state.not_let_go.get(event.pod)
    times = known.times + 1 if known is not None else 1
    until = Millis(state.time + doubled(LET_GO_AGAIN, times, LET_GO_AGAIN_LONGEST))
    state.put(state.not_let_go, event.pod, Refusal(times, until, event.reason))
    state.touched.pods[event.pod] = None


RULES: Rules = {
    e.OwnersGated: owners_gated,
    e.OwnersUnlisted: owners_unlisted,
    e.PodLetGo: pod_let_go,
    e.LetGoRefused: let_go_refused,
    e.PodPlaced: pod_placed,
    e.PodReleased: pod_released,
    e.HoldPlaced: hold_placed,
    e.HoldReady: hold_ready,
    e.HoldBorrowed: hold_borrowed,
    e.HoldResized: hold_resized,
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
    e.NominationsChecked: nomination_checks.checked,
}
