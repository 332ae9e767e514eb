"""The row of a pod: READY, STATUS and RESTARTS follow the real printer's rules."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from restow.kubesim.ages import age, since
from restow.kubesim.objects import Obj, dig


def _sidecar(container: Obj) -> bool:
    return container.get("restartPolicy") == "Always"


def _initialising(pod: Obj, reason: str) -> tuple[str, bool, int, int, str]:
    """(reason, still initialising, restarts, ready sidecars, last restart)."""
    specs = {item["name"]: item for item in dig(pod, "spec", "initContainers", default=())}
    restarts = ready = 0
    last = ""
    for index, status in enumerate(dig(pod, "status", "initContainerStatuses", default=())):
        spec = specs.get(status.get("name"), {})
        restarts += status.get("restartCount", 0)
        last = max(last, dig(status, "lastState", "terminated", "finishedAt", default=""))
        state = status.get("state") or {}
        terminated, waiting = state.get("terminated"), state.get("waiting")
        if terminated and terminated.get("exitCode", 0) == 0:
            continue
        if _sidecar(spec) and status.get("started"):
            ready += bool(status.get("ready"))
            continue
        if terminated:
            why = terminated.get("reason") or (
                f"Signal:{terminated['signal']}"
                if terminated.get("signal")
                else f"ExitCode:{terminated.get('exitCode', 0)}"
            )
            return f"Init:{why}", True, restarts, ready, last
        if waiting and waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return f"Init:{waiting['reason']}", True, restarts, ready, last
        return f"Init:{index}/{len(specs)}", True, restarts, ready, last
    return reason, False, restarts, ready, last


def _running(pod: Obj, reason: str, restarts: int, ready: int, last: str) -> tuple[str, int, int, str]:
    running = False
    for status in reversed(dig(pod, "status", "containerStatuses", default=())):
        restarts += status.get("restartCount", 0)
        last = max(last, dig(status, "lastState", "terminated", "finishedAt", default=""))
        state = status.get("state") or {}
        waiting, terminated = state.get("waiting"), state.get("terminated")
        if waiting and waiting.get("reason"):
            reason = waiting["reason"]
        elif terminated and terminated.get("reason"):
            reason = terminated["reason"]
        elif terminated:
            signal = terminated.get("signal")
            reason = f"Signal:{signal}" if signal else f"ExitCode:{terminated.get('exitCode', 0)}"
        elif status.get("ready") and "running" in state:
            running = True
            ready += 1
    if reason == "Completed" and running:
        reason = "Running" if _condition(pod, "Ready") else "NotReady"
    return reason, restarts, ready, last


def _condition(pod: Obj, kind: str) -> bool:
    conditions = dig(pod, "status", "conditions", default=())
    return any(item.get("type") == kind and item.get("status") == "True" for item in conditions)


def pod(obj: Obj, now: datetime) -> list[Any]:
    """Cells of a pod."""
    status = obj.get("status") or {}
    spec = obj.get("spec") or {}
    total = len(spec.get("containers") or ()) + sum(map(_sidecar, spec.get("initContainers") or ()))
    reason = status.get("reason") or status.get("phase") or "Unknown"
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("reason") == "SchedulingGated":
            reason = "SchedulingGated"
    reason, initialising, restarts, ready, last = _initialising(obj, reason)
    if not initialising:
        reason, restarts, ready, last = _running(obj, reason, restarts, ready, last)
    if "deletionTimestamp" in obj["metadata"]:
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    shown = str(restarts)
    if restarts and last:
        shown = f"{restarts} ({since(last, now)} ago)"
    ips = status.get("podIPs") or ()
    ip = status.get("podIP") or (ips[0].get("ip") if ips else "") or "<none>"
    gates = spec.get("readinessGates") or ()
    passed = sum(_condition(obj, gate.get("conditionType", "")) for gate in gates)
    return [
        obj["metadata"]["name"],
        f"{ready}/{total}",
        reason,
        shown,
        age(obj, now),
        ip,
        spec.get("nodeName") or "<none>",
        status.get("nominatedNodeName") or "<none>",
        f"{passed}/{len(gates)}" if gates else "<none>",
    ]
