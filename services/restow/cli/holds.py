"""Reservations as `restow get` shows them: values with stable keys, and their rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from restow.cli.amounts import listed, of, span, when
from restow.contracts.ids import Millis, ReservationUid, SlotName
from restow.contracts.times import millis, rfc3339
from restow.domain.other_schedulers import other_scheduler
from restow.domain.records import SlotPhase
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState
from restow.domain.statuses.reservation_status import overallocated
from restow.replay import holds


def reservations(state: ClusterState, namespace: str | None = None) -> list[dict[str, Any]]:
    """By namespace and name. Amounts in canonical units: `allocatable` is held or used, `allocated` what owners use of it, or have
    used up, `beyond` what of that is more than its present size. `foreign`: the scheduler that it is for, where that is not Restow."""
    found = []
    for uid, record in sorted(state.reservations.items(), key=lambda i: (i[1].fact.namespace, i[1].fact.name, i[0])):
        fact, phase = record.fact, state.phases.get(uid)
        if namespace is not None and fact.namespace != namespace:
            continue
        slots = holds.slot_views(state, uid)
        allocatable, allocated = holds.amounts(slots)
        found.append(
            {
                "namespace": fact.namespace,
                "name": fact.name,
                "uid": uid,
                "api": fact.api,
                "phase": phase.phase if phase else "",
                "reason": phase.reason if phase else "",
                "message": phase.message if phase else "",
                "since": rfc3339(phase.since) if phase else "",
                "created": rfc3339(fact.created),
                "expires": rfc3339(record.expires),
                "minAvailable": record.min_available,
                "owners": holds.owners(record.spec or fact.spec),
                "allocatable": allocatable,
                "allocated": allocated,
                "beyond": overallocated(allocatable, allocated),
                "foreign": other_scheduler(state, record),
                "migration": fact.migration,
                "deleting": bool(fact.deleting),
                "slots": [_slot(state, uid, view) for view in slots],
            }
        )
    return found


def _slot(state: ClusterState, uid: ReservationUid, view: holds.SlotView) -> dict[str, Any]:
    slot = state.slots[uid][SlotName(view.name)]
    return {
        "name": view.name,
        "phase": view.phase,
        "node": view.node,
        "devices": [{"index": d.index, "milli": d.milli} for d in view.devices],
        "cores": list(view.cores),
        "held": view.held,
        "allocated": view.allocated,
        "missing": view.missing,
        "pod": slot.pod,
        "pods": list(state.slot_users.get((uid, SlotName(view.name)), ())),
        "placeholder": view.placeholder,
        "reason": view.reason,
        "reasons": slot.reasons,
    }


def reservation_row(r: dict[str, Any], now: Millis) -> tuple:
    nodes = _nodes_of(r)
    on = nodes[0] + (f" +{len(nodes) - 1}" if len(nodes) > 1 else "") if nodes else "-"
    return (full_name(r), _phase(r), _counts(r), on, *_used(r), _ends(r, now), _age(r, now), _reason(r))


def wide_row(r: dict[str, Any], now: Millis) -> tuple:
    on = ",".join(_nodes_of(r)) or "-"
    owners, ends = " or ".join(r["owners"]) or "-", (_ends(r, now), _age(r, now))
    return (full_name(r), r["api"], _phase(r), _counts(r), on, *_used(r), *ends, owners, r["migration"] or "-", _reason(r), r["message"] or "-")


def _phase(r: dict[str, Any]) -> str:
    """That of another scheduler's is not ours to tell."""
    return "-" if r["foreign"] else r["phase"]


def _counts(r: dict[str, Any]) -> str:
    if r["foreign"] and not r["slots"]:
        return "-"
    phases = Counter(view["phase"] for view in r["slots"])
    return f"{phases[SlotPhase.HELD]}/{phases[SlotPhase.USED]}/{len(r['slots'])}"


def _used(r: dict[str, Any]) -> list[str]:
    return [of(r["allocated"], r["allocatable"], name) for name in ("cpu", "memory", GPU_MILLI)]


def _reason(r: dict[str, Any]) -> str:
    if r["foreign"]:
        return f"for scheduler {r['foreign']}"
    if r["beyond"]:
        return f"over by {listed(r['beyond'])}"
    return r["reason"] if r["reason"] and r["phase"] in ("Failed", "Pending", "Waiting") else "-"


def full_name(r: dict[str, Any]) -> str:
    return f"{r['namespace']}/{r['name']}" if r["namespace"] else r["name"]


def _nodes_of(r: dict[str, Any]) -> list[str]:
    return sorted({p["node"] for p in r["slots"] if p["node"] and p["phase"] != SlotPhase.FAILED})


def _ends(r: dict[str, Any], now: Millis) -> str:
    """Of one that has ended otherwise its time says nothing any more, and of one that is not accepted yet nobody has worked it out."""
    if r["foreign"] or r["phase"] == "Succeeded" or (r["phase"] == "Failed" and r["reason"] != "Expired"):
        return "-"
    if not r["expires"]:
        return "never" if r["minAvailable"] else "-"
    at = millis(r["expires"])
    return when(at, now) if at > now and r["reason"] != "Expired" else f"expired {when(min(at, now), now)}"


def _age(r: dict[str, Any], now: Millis) -> str:
    return span(now - millis(r["created"])) if r["created"] else "-"
