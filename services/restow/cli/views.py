"""What a state has to show: nodes, pods, groups, queues, reservations, migrations, a summary; each as values with stable keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from restow.cli.amounts import amount, of, span
from restow.cli.batch import podgroup_row, queue_row
from restow.cli.holds import full_name, reservation_row, reservations, wide_row
from restow.contracts.events import NodeObserved
from restow.contracts.ids import MigrationId, Millis, NodeName
from restow.contracts.times import millis, rfc3339
from restow.contracts.values import DeviceShare
from restow.domain import eviction_budgets, migration
from restow.domain.claim_devices import Count, claim_devices, count
from restow.domain.migration import open_hours
from restow.domain.node_table import NO_DEVICE
from restow.domain.other_schedulers import other_scheduler
from restow.domain.planview import plan_view
from restow.domain.resources import GPU_MILLI
from restow.domain.session.statuses import podgroup_status
from restow.domain.state import ClusterState
from restow.domain.too_old import too_old
from restow.replay import breaks
from restow.replay.batch import podgroups, queue_names, queues
from restow.replay.beside import beside_view
from restow.replay.moves import consent_lines
from restow.replay.pod_status import pod_status, why_waits
from restow.replay.sentences import devices_text

Rows = list[dict[str, Any]]


def _amounts(state: ClusterState, values: Any) -> dict[str, int]:
    return {name: int(values[column]) for name, column in state.table.columns.items() if values[column]}


def _shares(devices: tuple[DeviceShare, ...]) -> list[dict[str, int]]:
    return [{"index": d.index, "milli": d.milli} for d in devices]


def _claim_devices(state: ClusterState, node: NodeName) -> dict[str, dict[str, int]]:
    """By driver, what the node has for ResourceClaims."""
    return {driver: _counted(count(devices)) for driver, devices in claim_devices(state).by_driver_on(node).items()}


def _counted(one: Count) -> dict[str, int]:
    return {"devices": one.devices, "allocated": one.allocated, "free": one.free, "wholes": one.wholes, "freeWholes": one.free_wholes}


def nodes(state: ClusterState, namespace: str | None = None) -> Rows:
    """By name. Amounts in canonical units (cpu in thousandths, bytes), devices in thousandths."""
    found = []
    for name, node in sorted(state.nodes.items()):
        row = state.table.rows[name]
        table = state.table
        free = [share for share in table.device_free[row].tolist() if share != NO_DEVICE]
        found.append(
            {
                "name": name,
                "ready": node.ready,
                "unschedulable": node.unschedulable,
                "unreadable": node.unreadable,
                "labels": node.labels,
                "pods": len(state.on_node.get(name, ())),
                "holds": len(state.held_on.get(name, ())),
                "allocatable": _amounts(state, table.allocatable[row]),
                "used": _amounts(state, table.used[row]),
                "reserved": _amounts(state, table.reserved[row]),
                "releasing": _amounts(state, table.releasing[row]),
                "free": _amounts(state, table.free[row]),
                "deviceFree": free,
                "claimDevices": _claim_devices(state, name),
            }
        )
    return found


def pods(state: ClusterState, namespace: str | None = None) -> Rows:
    """By namespace and name. `status` is the phase, or Placed, Nominated, Waiting, Gated, Terminating where that says more."""
    found = []
    for uid, pod in sorted(state.pods.items(), key=lambda item: (item[1].fact.namespace, item[1].fact.name, item[0])):
        if namespace is not None and pod.fact.namespace != namespace:
            continue
        live, charge = pod.live, state.charges.get(uid)
        shape = state.shapes[pod.fact.shape]
        found.append(
            {
                "namespace": pod.fact.namespace,
                "name": pod.fact.name,
                "uid": uid,
                "labels": pod.fact.labels,
                "status": pod_status(state, uid),
                "ready": live.ready,
                "node": state.node_of(uid) or "",
                "shape": pod.fact.shape,
                "requests": shape.requests,
                "unreadable": shape.unreadable,
                "devices": _shares(charge.devices if charge else live.devices),
                "created": rfc3339(pod.fact.created),
                "reason": live.reason,
                "migration": state.victims.get(uid) or state.successors.get(uid) or "",
                "ours": state.ours(pod.fact),
            }
        )
    return found


def migrations(state: ClusterState, namespace: str | None = None) -> Rows:
    """Plan by plan, in the order of their moves."""
    found = []
    for id, record in state.migrations.items():
        move = record.move
        if namespace is not None and move.namespace != namespace:
            continue
        found.append(
            {
                "id": id,
                "plan": record.plan,
                "step": record.step,
                "namespace": move.namespace,
                "name": move.name,
                "pod": move.pod,
                "source": move.source,
                "target": move.target,
                "since": rfc3339(record.since),
                "deadline": rfc3339(migration.until(state, record)),
                "successor": record.successor,
                "reason": record.reason,
                "message": record.message,
                "beside": msgspec.to_builtins(beside_view(state, record)),
                "asked": _asked_until(state, record.id),
                "waits": "; ".join(consent_lines(state, record)),
            }
        )
    plans = {str(plan): at for at, plan in enumerate(state.plans)}
    found.sort(key=lambda m: (plans.get(m["plan"], -1), _number(m["id"])))
    return found


def _asked_until(state: ClusterState, id: MigrationId) -> str:
    """Until when the word of its workload is waited for; empty where it is not."""
    known = state.consents.get(id)
    return rfc3339(known.deadline) if known is not None and not known.given else ""


def plans(state: ClusterState, namespace: str | None = None) -> Rows:
    """In their order. With a namespace those that move its pods."""
    found = []
    for id in sorted(state.plans, key=lambda plan: (state.plans[plan].at, plan)):
        if namespace is not None and not any(m.namespace == namespace for m in state.plans[id].planned.moves):
            continue
        found.append(msgspec.to_builtins(plan_view(state, id)))
    return found


def _number(id: str) -> tuple[int, str]:
    tail = id.rpartition("-")[2]
    return (int(tail) if tail.isdigit() else 0, id)


WAITING_GROUPS = ("Pending", "Inqueue", "Unknown")
"""Phases of PodGroups that lack something."""


def _closed(node: NodeObserved) -> dict[str, str]:
    """A node that takes no new pods."""
    if node.unreadable:
        return {"name": node.name, "status": "Unreadable", "why": f"takes no new pods: its object cannot be read ({node.unreadable})"}
    beside = ", and is cordoned" if node.unschedulable and not node.ready else ""
    return {"name": node.name, "status": "Cordoned" if node.ready else "NotReady", "why": f"takes no new pods{beside}"}


def troubled(state: ClusterState, kind: str) -> list[dict[str, str]]:
    """Pods and gangs that wait, Reservations without their slots, migrations that have not landed, nodes that take no pods, queues
    in which somebody waits: name, status, why."""
    if kind == "pod":
        return [
            {"name": f"{p['namespace']}/{p['name']}", "status": p["status"], "why": why_waits(state, p["uid"])}
            for p in pods(state)
            if p["status"] in ("Waiting", "Pending", "Gated", "Nominated") and p["ours"]
        ]
    if kind == "podgroup":
        return [
            {"name": f"{g['namespace']}/{g['name']}", "status": g["phase"], "why": g["message"] or "no session has looked at it yet"}
            for g in podgroups(state)
            if g["phase"] in WAITING_GROUPS
        ]
    if kind == "reservation":
        return [
            {"name": full_name(r), "status": r["phase"], "why": f"{r['reason']}: {r['message']}".strip(": ")}
            for r in reservations(state)
            if r["phase"] not in ("Available", "Succeeded") and not r["foreign"]
        ]
    if kind == "node":
        return [
            _closed(n)
            for _, n in sorted(state.nodes.items())
            if not n.ready or n.unschedulable
        ]
    if kind == "queue":
        return [
            {"name": q["name"], "status": "Invalid" if q["invalid"] else q["state"] or "Missing", "why": q["invalid"] or _who_waits(q["podGroups"])}
            for q in queues(state)
            if q["invalid"] or any(q["podGroups"].get(phase) for phase in WAITING_GROUPS)
        ]
    return [
        {"name": m["id"], "status": m["step"], "why": f"{m['reason']}: {m['message']}".strip(": ") or m["waits"] or f"until {m['deadline']}"}
        for m in migrations(state)
        if m["step"] != "landed"
    ]


def _who_waits(groups: dict[str, int]) -> str:
    return ", ".join(f"{groups[phase]} PodGroup{'s' * (groups[phase] != 1)} {phase}" for phase in WAITING_GROUPS if groups.get(phase))


def summary(state: ClusterState, namespace: str | None = None) -> dict[str, Any]:
    """Everything in a few numbers."""
    table, alive = state.table, state.table.alive
    totals = {
        name: {
            "allocatable": int(table.allocatable[alive, column].sum()),
            "used": int(table.used[alive, column].sum()),
            "reserved": int(table.reserved[alive, column].sum()),
        }
        for name, column in table.columns.items()
    }
    free = table.device_free[alive]
    return {
        "sequence": state.seq,
        "time": rfc3339(state.time),
        "nodes": len(state.nodes),
        "nodesReady": sum(node.ready for node in state.nodes.values()),
        "pods": len(state.pods),
        "podsByStatus": dict(sorted(Counter(pod_status(state, uid) for uid in state.pods).items())),
        "shapes": len(state.shapes),
        "resources": totals,
        "devices": int((free != NO_DEVICE).sum()),
        "devicesFree": int((free == 1000).sum()),
        "claimDevices": {driver: _counted(one) for driver, one in claim_devices(state).by_driver().items()},
        "resourceClaims": len(state.resource_claims),
        "podGroupsByPhase": dict(sorted(Counter(podgroup_status.phase_of(state, group) for group in state.pod_groups).items())),
        "queues": len(queue_names(state)),
        "reservations": len(state.reservations),
        "reservationsByPhase": dict(sorted(_phases(state).items())),
        "holds": sum(len(held) for held in state.held_on.values()),
        "plans": len(state.plans),
        "broken": breaks.said(state),
        "tooOld": too_old(state),
        "paused": {"since": rfc3339(state.pause.since), "by": state.pause.by, "reason": state.pause.reason} if state.pause.since else None,
        "closed": open_hours.said(state.migration_config, state.time),
        "budgets": msgspec.to_builtins(eviction_budgets.accounts(state, state.time)),
        "mode": {"name": state.mode.name, "since": rfc3339(state.mode.since) if state.mode.since else "", "by": state.mode.by, "reason": state.mode.reason},
        "proposed": list(state.proposals),
        "migrationsByStep": dict(sorted(Counter(str(m.step) for m in state.migrations.values()).items())),
        "leaders": {f: {"epoch": v.epoch, "holder": v.holder} for f, v in state.leaders.items() if v.epoch},
        "last": {family: seq for family, seq in state.last.items() if seq},
        "events": state.events,
        "void": dict(sorted(state.void.items())),
        "unknown": dict(sorted(state.unknown.items())),
    }


def _phases(state: ClusterState) -> Counter[str]:
    """Of Reservations; those for other schedulers have none."""
    return Counter(str(p.phase) for uid, p in state.phases.items() if not other_scheduler(state, state.reservations[uid]))


VIEWS: dict[str, Callable[[ClusterState, str | None], Any]] = {
    "summary": summary,
    "nodes": nodes,
    "pods": pods,
    "podgroups": podgroups,
    "queues": queues,
    "reservations": reservations,
    "plans": plans,
    "migrations": migrations,
}


# -- as tables -------------------------------------------------------------------------------------------------------


def _node_row(n: dict[str, Any], now: Millis) -> tuple:
    status = ("Ready" if n["ready"] else "NotReady") + (",Unreadable" if n["unreadable"] else ",Cordoned" if n["unschedulable"] else "")
    free = sum(share == 1000 for share in n["deviceFree"])
    total = n["allocatable"]
    gpu, idle = of(n["used"], total, GPU_MILLI), f"{free}" if n["deviceFree"] else "-"
    by_claim = n["claimDevices"].values()
    claimed = f"{sum(one['free'] for one in by_claim)}/{sum(one['devices'] for one in by_claim)}" if by_claim else "-"
    return (n["name"], status, n["pods"], n["holds"], of(n["used"], total, "cpu"), of(n["used"], total, "memory"), gpu, idle, claimed)


def _pod_row(p: dict[str, Any], now: Millis) -> tuple:
    requests = p["requests"]
    devices = devices_text(tuple(DeviceShare(d["index"], d["milli"]) for d in p["devices"])).removeprefix("gpu ")
    gpu = amount(GPU_MILLI, requests[GPU_MILLI]) if requests.get(GPU_MILLI) else "-"
    status = p["status"] + (",Moving" if p["migration"] else "") + (",Unreadable" if p["unreadable"] else "")
    # What cannot be read counts as more than any node has, which is nothing to show to people.
    asks = ("?",) * 3 if p["unreadable"] else (amount("cpu", requests.get("cpu", 0)), amount("memory", requests.get("memory", 0)), gpu)
    return (p["namespace"], p["name"], status, p["node"] or "-", *asks, devices or "-")


def _migration_row(m: dict[str, Any], now: Millis) -> tuple:
    beside = (m["beside"] or {}).get("stage", "-")
    return (m["id"], m["step"], f"{m['namespace']}/{m['name']}", m["source"], m["target"], beside, span(now - millis(m["since"])), _reason(m, now))


def _moment(text: str, now: Millis) -> str:
    """Of the present day, in UTC, the time alone."""
    return text[11:19] if text[:10] == rfc3339(now)[:10] else text[:16].replace("T", " ")


def _reason(m: dict[str, Any], now: Millis) -> str:
    """Why it ended, or until when the word of its workload is waited for."""
    return m["reason"] or (f"asked, until {_moment(m['asked'], now)}" if m["asked"] else "-")


def _wide_migration_row(m: dict[str, Any], now: Millis) -> tuple:
    beside = m["beside"] or {}
    placeholder = beside.get("placeholder", "-") + ("" if beside.get("runs") or not beside.get("placeholder") else " (does not run yet)")
    gated = beside.get("controller") or "-"
    successor = beside.get("successor", "-") + (f" on {beside['bound']}" if beside.get("bound") else "")
    told = m["message"] or m["waits"] or beside.get("message", "") or "-"
    parts = (beside.get("scheduler", "-"), placeholder, gated, successor, beside.get("stage", "-"))
    return (m["id"], m["step"], f"{m['namespace']}/{m['name']}", m["source"], m["target"], *parts, m["since"][:19], _reason(m, now), told)


def _plan_row(p: dict[str, Any], now: Millis) -> tuple:
    steps = p["steps"]
    gone = sum(steps.get(step, 0) for step in ("failed", "not_recreated", "unknown"))
    answered = f"{p['answer']} by {p['by']}{': ' * bool(p['why'])}{p['why']}" if p["answer"] else ""
    waits = f"waits for `restow approve` until {_moment(p['waitsUntil'], now)}" if p["waitsUntil"] else ""
    why = p["cancelled"] or waits or answered or p["reason"] or "-"
    done = steps.get("landed", 0) + steps.get("removed", 0)
    rest = p["moves"] - gone - done - steps.get("declined", 0) - steps.get("observed", 0)
    # Of a whole policy each plan is one plugin's.
    by = p["plugin"] if p["planner"] == "policy" else p["planner"]
    return (p["plan"], p["phase"], p["trigger"], by, p["moves"], done, gone, rest, _moment(p["at"], now), why)


Columns = tuple[tuple[str, ...], Callable[[dict[str, Any], Millis], tuple], tuple[str, ...], tuple[str, ...]]

COLUMNS: dict[str, Columns] = {
    "nodes": (
        ("NAME", "STATUS", "PODS", "HOLDS", "CPU", "MEMORY", "GPU", "GPUS FREE", "FREE BY CLAIM"),
        _node_row,
        ("PODS", "HOLDS", "CPU", "MEMORY", "GPU", "GPUS FREE", "FREE BY CLAIM"),
        (),
    ),
    "pods": (
        ("NAMESPACE", "NAME", "STATUS", "NODE", "CPU", "MEMORY", "GPU", "DEVICES"),
        _pod_row,
        ("CPU", "MEMORY", "GPU"),
        ("DEVICES",),
    ),
    "podgroups": (
        ("NAMESPACE", "NAME", "PHASE", "MIN", "READY", "WAIT", "QUEUE", "WHY"),
        podgroup_row,
        ("MIN", "READY", "WAIT"),
        ("WHY",),
    ),
    "queues": (
        ("NAME", "STATE", "PODGROUPS", "CPU USED/DESERVED/CAP", "MEMORY", "GPU"),
        queue_row,
        ("CPU USED/DESERVED/CAP", "MEMORY", "GPU"),
        (),
    ),
    "reservations": (
        ("NAME", "PHASE", "HELD/USED/ALL", "NODES", "CPU", "MEMORY", "GPU", "ENDS", "AGE", "REASON"),
        reservation_row,
        ("HELD/USED/ALL", "CPU", "MEMORY", "GPU"),
        ("NODES", "REASON"),
    ),
    "plans": (
        ("ID", "PHASE", "TRIGGER", "PLANNER", "MOVES", "LANDED", "BACK", "OPEN", "AT", "WHY"),
        _plan_row,
        ("MOVES", "LANDED", "BACK", "OPEN"),
        ("WHY",),
    ),
    "migrations": (
        ("ID", "STEP", "POD", "SOURCE", "TARGET", "BESIDE", "SINCE", "REASON"),
        _migration_row,
        (),
        (),
    ),
}
"""View → titles, a row of a value as of a time, columns to the right, columns that give way. As with kubectl, names never do: they are
copied into the next command."""

WIDE: dict[str, Columns] = {
    "reservations": (
        (
            "NAME", "API", "PHASE", "HELD/USED/ALL", "NODES", "CPU", "MEMORY", "GPU", "ENDS", "AGE", "OWNERS", "MIGRATION",
            "REASON", "MESSAGE",
        ),
        wide_row,
        ("HELD/USED/ALL", "CPU", "MEMORY", "GPU"),
        (),
    ),
    "migrations": (
        (
            "ID", "STEP", "POD", "SOURCE", "TARGET", "SCHEDULER", "PLACEHOLDER", "GATED", "SUCCESSOR", "BESIDE", "SINCE", "REASON", "MESSAGE",
        ),
        _wide_migration_row,
        (),
        (),
    ),
}  # fmt: skip
"""Views that have more to show with -o wide; nothing of that is cut."""

OPTIONAL = {
    "nodes": ("FREE BY CLAIM",),
    "reservations": ("GPU", "MIGRATION", "REASON"),
    "plans": ("WHY",),
    "migrations": ("SCHEDULER", "PLACEHOLDER", "GATED", "SUCCESSOR", "BESIDE"),
}
"""Columns that are left out where no row has anything there."""
