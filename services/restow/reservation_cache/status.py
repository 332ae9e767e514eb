"""A Reservation's status as its front door has it (RULES 000-1, 000-3). A pure function of the fold."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from restow.contracts.ids import ReservationUid, ShapeId
from restow.contracts.times import seconds
from restow.domain import resources as r
from restow.domain.records import PhaseSince, ReservationPhase, Slot, SlotPhase
from restow.domain.state import ClusterState


def status(state: ClusterState, uid: ReservationUid) -> dict[str, Any]:
    """What the whole `status` should be."""
    record, slots = state.reservations[uid], state.slots.get(uid, {})
    since = state.phases.get(uid) or PhaseSince(ReservationPhase.PENDING)
    spec = record.fact.spec
    owners = [_owner(state, slot) for slot in slots.values() if slot.phase is SlotPhase.USED]
    amounts = {
        "allocatable": _sum(state, (s.shape for s in slots.values() if s.phase in (SlotPhase.HELD, SlotPhase.USED))),
        "allocated": _sum(state, (s.shape for s in slots.values() if s.phase is SlotPhase.USED)),
    }
    common: dict[str, Any] = {"currentOwners": owners} | {k: v for k, v in amounts.items() if v}
    node = next((s.node for s in slots.values() if s.node), "")
    if record.fact.door == "koordinator":
        return _koordinator(since, common, node)
    if owners:
        common["currentOwner"] = owners[0]
    counts = Counter(s.phase for s in slots.values())
    body = common | {
        "state": _moment(since) | {"phase": str(since.phase)},
        "minAvailable": record.min_available or (spec.min_available if spec else 0),
        "taskStatusCount": _per_task(slots.values()),
        "pending": counts[SlotPhase.PENDING],
        "available": counts[SlotPhase.HELD],
        "succeeded": counts[SlotPhase.USED],
        "failed": counts[SlotPhase.FAILED],
        "conditions": [{"status": str(phase), "lastTransitionTime": seconds(at)} for phase, at in since.history],
        "phase": str(since.phase),
    }
    return body | ({"nodeName": node} if node and len(slots) == 1 else {})


def _koordinator(since: PhaseSince, common: dict[str, Any], node: str) -> dict[str, Any]:
    scheduled = bool(node)
    conditions = [
        _condition("Scheduled", scheduled, since, "Scheduled" if scheduled else since.reason or "Unschedulable"),
        _condition("Ready", since.phase is ReservationPhase.AVAILABLE, since, since.reason or str(since.phase)),
    ]
    return common | {"phase": str(since.phase), "conditions": conditions} | ({"nodeName": node} if node else {})


def _condition(kind: str, holds: bool, since: PhaseSince, reason: str) -> dict[str, Any]:
    return _moment(since) | {"type": kind, "status": "True" if holds else "False", "reason": reason}


def _moment(since: PhaseSince) -> dict[str, str]:
    said = {"reason": since.reason, "message": since.message, "lastTransitionTime": seconds(since.since)}
    return {name: text for name, text in said.items() if text}


def _per_task(slots: Iterable[Slot]) -> dict[str, Any]:
    per: dict[str, Counter[str]] = {}
    for slot in slots:
        per.setdefault(slot.task, Counter())[str(slot.phase)] += 1
    return {task: {"phase": dict(counts)} for task, counts in per.items()}


def _owner(state: ClusterState, slot: Slot) -> dict[str, str]:
    pod = state.pods.get(slot.pod)
    owner = {"apiVersion": "v1", "kind": "Pod", "uid": str(slot.pod)}
    return owner if pod is None else owner | {"namespace": pod.namespace, "name": pod.name}


def _sum(state: ClusterState, shapes: Iterable[ShapeId]) -> dict[str, str]:
    total: Counter[str] = Counter()
    for id in shapes:
        total.update(state.shapes[id].requests)
    del total[r.PODS]
    return r.quantities(total)
