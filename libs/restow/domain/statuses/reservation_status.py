"""A Reservation's status as its API has it (RULES 000-1, 000-3, G-9): a pure function of the fold, bounded in all its
lists.

Three shapes. Volcano's tasks form: state and counts of seed 000. Volcano's template form: phase, conditions and nodeName of seed
003, with 000's state beside them, for both share their columns in kubectl. Koordinator's: seed 004, with the words that
Koordinator itself writes.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from itertools import chain
from typing import Any

import msgspec

from restow.contracts.ids import Millis, ReservationUid, SlotName
from restow.contracts.times import seconds
from restow.contracts.values import DeviceShare, ReservationSpec
from restow.domain import resources as r
from restow.domain.cores import cpuset
from restow.domain.evolve.phases import fit_message
from restow.domain.records import ON_NODE, Items, PhaseSince, Reservation, ReservationPhase, Slot, SlotPhase
from restow.domain.state import ClusterState

MAX_OWNERS = 1_000
"""Of `currentOwners`, first by namespace and name; the message says how many there are in all."""
MAX_SLOTS = 100
"""Of `slots`, first by task and number; the counts are of all."""
TEMPLATE_TASK = "reservation"
"""What the reader calls the one task of a template form (`restow.kube.reservations`); one of the tasks form may be called so, too."""

PRESENT = (*ON_NODE, SlotPhase.USED)
"""Slots that are of a node. So is one that has ended, for as long as pods use what they have taken of it."""


class Owner(msgspec.Struct, frozen=True, order=True):
    """A pod that uses, or of a hold that is allocated once has used, capacity of the Reservation."""

    namespace: str
    name: str
    uid: str


def status(state: ClusterState, uid: ReservationUid) -> dict[str, Any]:
    """What the whole `status` should be."""
    record = state.reservations[uid]
    slots = dict(sorted(state.slots.get(uid, {}).items(), key=_turn))
    since = state.phases.get(uid) or PhaseSince(ReservationPhase.PENDING)
    who = owners(state, uid)
    spec = record.spec or record.fact.spec
    gpu = spec.gpu if spec is not None else ""
    there, used = allocatable(state, uid), allocated(state, uid)
    beyond = r.quantities(overallocated(there, used), gpu)
    since = msgspec.structs.replace(since, message=_in_full(since.message, slots.values(), beyond, len(who)))
    amounts = {"allocatable": r.quantities(there, gpu), "allocated": r.quantities(used, gpu)}
    body: dict[str, Any] = {"phase": str(since.phase)} | {name: said for name, said in amounts.items() if said}
    if record.fact.api == "koordinator":
        named = [{"namespace": o.namespace, "name": o.name, "uid": o.uid} for o in who[:MAX_OWNERS]]
        return body | {"currentOwners": named, "conditions": _conditions(since)} | _where(state, uid, slots)
    named = [{"apiVersion": "v1", "kind": "Pod", "namespace": o.namespace, "name": o.name, "uid": o.uid} for o in who[:MAX_OWNERS]]
    body |= {"state": _moment(since) | {"phase": str(since.phase)}, "currentOwners": named}
    if named:
        body["currentOwner"] = named[0]
    if is_template_form(spec):
        return body | {"conditions": _conditions(since)} | _where(state, uid, slots)
    return body | _counts(record, slots) | {
        "conditions": [{"status": str(phase), "lastTransitionTime": seconds(at)} for phase, at in since.history],
        "slots": [_slot(name, slot) for name, slot in list(slots.items())[:MAX_SLOTS]],
    }


def is_template_form(spec: ReservationSpec | None) -> bool:
    """Whether it was asked for by `spec.template`: one slot, whose task nobody has named."""
    if spec is None or spec.form:
        return spec is not None and spec.form == "template"
    return len(spec.tasks) == 1 and spec.tasks[0].name == TEMPLATE_TASK  # a log from before the form was said


def owners(state: ClusterState, uid: ReservationUid) -> list[Owner]:
    """Every pod that uses it now; of a slot that is used once, the one that got it, also when that pod is gone
    (RULES 003-1, 004-1). By namespace, name and uid."""
    found = []
    for name, slot in state.slots.get(uid, {}).items():
        if slot.phase is SlotPhase.USED:
            namespace, _, called = slot.owner.rpartition("/")
            found.append(Owner(namespace, called, slot.pod))
            continue
        pods = (state.fact_of(pod) for pod in state.slot_users.get((uid, name), ()))
        found += [Owner(pod.namespace, pod.name, pod.pod) for pod in pods if pod is not None]
    return sorted(found)


def allocatable(state: ClusterState, uid: ReservationUid) -> Counter[str]:
    """What its slots are of, also where that is used or still waited for: the requests of their templates, in canonical
    units."""
    total: Counter[str] = Counter()
    for name, slot in state.slots.get(uid, {}).items():
        if is_present(state, uid, name, slot):
            total.update(state.shapes[slot.shape].requests)
    del total[r.PODS]
    return total


def is_present(state: ClusterState, uid: ReservationUid, name: SlotName, slot: Slot) -> bool:
    """Whether the slot is of a node: `allocatable` and `allocated` are of the same slots."""
    return slot.phase in PRESENT or (uid, name) in state.slot_users


def overallocated(there: Mapping[str, int], used: Mapping[str, int]) -> dict[str, int]:
    """What pods use beyond the size that it has now: they drew it before it was made smaller, and what they leave of it is the
    node's."""
    return {name: amount - there.get(name, 0) for name, amount in used.items() if amount > there.get(name, 0)}


def allocated(state: ClusterState, uid: ReservationUid) -> Counter[str]:
    """What pods have taken of it, in canonical units. Of a slot that is used once that stays when its pod is gone
    (RULES 004-1)."""
    slots = state.slots.get(uid, {}).items()
    allocated = (state.allocations[pod].items for name, slot in slots if slot.phase is not SlotPhase.USED for pod in state.slot_users.get((uid, name), ()))
    return _named(state, chain(allocated, (slot.capacity.wanted for _, slot in slots if slot.phase is SlotPhase.USED)))


def in_use(state: ClusterState, uid: ReservationUid) -> Counter[str]:
    """What pods that are there have taken of it, in canonical units."""
    slot_users = (state.slot_users.get((uid, name), ()) for name in state.slots.get(uid, {}))
    return _named(state, (state.allocations[pod].items for pods in slot_users for pod in pods))


def unallocated(state: ClusterState, uid: ReservationUid) -> Counter[str]:
    """What its slots are to hold now, without what was allocated, in canonical units."""
    return _named(state, (slot.capacity.wanted for slot in state.slots.get(uid, {}).values() if slot.phase in ON_NODE))


def _named(state: ClusterState, many: Iterable[Items]) -> Counter[str]:
    total: Counter[str] = Counter()
    for items in many:
        for column, amount in items:
            total[state.table.resources[column]] += amount
    del total[r.PODS]
    return total


def _turn(item: tuple[SlotName, Slot]) -> tuple[str, int, str]:
    name, slot = item
    number = name.rpartition("-")[2]
    return slot.task, int(number) if number.isdecimal() else 0, name


def _in_full(message: str, slots: Collection[Slot], beyond: Mapping[str, str], owners: int) -> str:
    """With what is not worth a change of the phase's record."""
    said = [message] if message else []
    former = [slot for slot in slots if slot.asked]
    if former:
        why = next((slot for slot in former if slot.message or slot.reasons), None)
        reason = "" if why is None else f": {why.message or fit_message(why.nodes, why.reasons)}"
        keep = "it keeps its" if len(slots) == 1 else "1 slot keeps its" if len(former) == 1 else f"{len(former)} slots keep their"
        said.append(f"{keep} former size for now{reason}")
    if beyond:
        amounts = " and ".join(f"{amount} {name}" for name, amount in beyond.items())
        said.append(f"of that, {amounts} is beyond its present size")
    if owners > MAX_OWNERS:
        said.append(f"currentOwners has the first {MAX_OWNERS} of {owners}")
    return "; ".join(said)


# -- parts of the shapes -------------------------------------------------------------------------------------------------


def _counts(record: Reservation, slots: Mapping[SlotName, Slot]) -> dict[str, Any]:
    counts = Counter(slot.phase for slot in slots.values())
    per: dict[str, Counter[str]] = {}
    for slot in slots.values():
        per.setdefault(slot.task, Counter())[str(slot.phase)] += 1
    spec = record.spec or record.fact.spec
    return {
        "minAvailable": record.min_available or (spec.min_available if spec else 0),
        "taskStatusCount": {task: {"phase": dict(count)} for task, count in per.items()},
        "pending": counts[SlotPhase.PENDING],
        "available": counts[SlotPhase.HELD],
        "waiting": counts[SlotPhase.WAITING],
        "succeeded": counts[SlotPhase.USED],
        "failed": counts[SlotPhase.FAILED],
    }


def _where(state: ClusterState, uid: ReservationUid, slots: Mapping[SlotName, Slot]) -> dict[str, Any]:
    """The node of the only slot, and what it has there. Of one that has ended, where it was."""
    name, slot = next(iter(slots.items()), (SlotName(""), None))
    if slot is None or not slot.node:
        return {}
    return {"nodeName": slot.node} | (_concrete(slot) if is_present(state, uid, name, slot) else {})


def _slot(name: SlotName, slot: Slot) -> dict[str, Any]:
    message = slot.message or (fit_message(slot.nodes, slot.reasons) if slot.reasons else "")
    said = {"nodeName": slot.node, "owner": slot.owner, "reason": slot.reason, "message": message}
    body: dict[str, Any] = {"name": name, "phase": str(slot.phase)} | {key: text for key, text in said.items() if text}
    return body | (_concrete(slot) if slot.phase in PRESENT else {})


def _concrete(slot: Slot) -> dict[str, Any]:
    """The very devices and CPUs of a slot, as Koordinator's annotations `device-allocated` and `resource-status` have them."""
    body: dict[str, Any] = {"devices": {"gpu": [_gpu(share) for share in slot.devices]}} if slot.devices else {}
    return body | ({"cpuset": cpuset(slot.cores)} if slot.cores else {})


def _gpu(share: DeviceShare) -> dict[str, Any]:
    percent = str(-(-share.milli // 10))
    amounts = {r.KOORDINATOR_GPU_CORE: percent, r.KOORDINATOR_GPU_MEMORY_RATIO: percent, r.ALIBABA_GPU_MILLI: str(share.milli)}
    return {"minor": share.index, "resources": amounts}


_WORDS = {ReservationPhase.AVAILABLE: "Available", ReservationPhase.SUCCEEDED: "Succeeded"}


def _conditions(since: PhaseSince) -> list[dict[str, str]]:
    """Scheduled and Ready, one of each, in Koordinator's words where it has one. Neither is there before anybody has looked."""
    found = []
    if since.scheduled:
        found.append(_condition("Scheduled", True, "Scheduled", "", since.scheduled, since.changed))
    elif since.reason:
        reason = "Unschedulable" if since.phase is ReservationPhase.PENDING else since.reason
        found.append(_condition("Scheduled", False, reason, since.message, since.since, since.changed))
    if since.ready or since.phase is not ReservationPhase.PENDING:
        ready, reason = since.phase is ReservationPhase.AVAILABLE, _WORDS.get(since.phase) or since.reason or str(since.phase)
        found.append(_condition("Ready", ready, reason, since.message, since.ready or since.since, since.changed))
    return found


def _condition(kind: str, holds: bool, reason: str, message: str, since: Millis, probed: Millis) -> dict[str, str]:
    said = {"reason": reason, "message": message, "lastProbeTime": seconds(probed), "lastTransitionTime": seconds(since)}
    return {"type": kind, "status": "True" if holds else "False"} | {name: text for name, text in said.items() if text}


def _moment(since: PhaseSince) -> dict[str, str]:
    said = {"reason": since.reason, "message": since.message, "lastTransitionTime": seconds(since.since)}
    return {name: text for name, text in said.items() if text}
