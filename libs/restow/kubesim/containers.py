"""The status of a pod as its kubelet reports it. Pure: pod and facts in, status out."""

from __future__ import annotations

from restow.kubesim.objects import Obj
from restow.kubesim.podstate import condition_of, uid_of

READY_AFTER = "kubesim.restow.dev/ready-after"
RUN_FOR = "kubesim.restow.dev/run-for"
FAIL_AFTER = "kubesim.restow.dev/fail-after"
STOP_AFTER = "kubesim.restow.dev/stop-after"

_ORDER = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")


def _conditions(pod: Obj, wanted: dict[str, bool], now: str, reason: str, more: str = "") -> list[Obj]:
    """The kubelet's conditions in its order; conditions of others are kept."""
    before = (pod.get("status") or {}).get("conditions") or []
    fresh: list[Obj] = [c for c in before if c["type"] not in _ORDER]
    for kind in _ORDER:
        status = "True" if wanted[kind] else "False"
        old = condition_of(pod, kind)
        since = old["lastTransitionTime"] if old and old.get("status") == status else now
        condition: Obj = {
            "type": kind, "status": status, "lastProbeTime": None, "lastTransitionTime": since,
        }  # fmt: skip
        if status == "False" and kind != "PodReadyToStartContainers":
            condition["reason"] = reason
            if more:
                condition["message"] = more
        elif kind == "Initialized" and reason == "PodCompleted":
            condition["reason"] = reason
        fresh.append(condition)
    return fresh


def _container(pod: Obj, container: Obj, state: Obj, *, ready: bool, started: bool) -> Obj:
    image = container.get("image", "")
    return {
        "name": container["name"],
        "image": image,
        "imageID": f"kubesim://{image}",
        "containerID": f"kubesim://{uid_of(pod)}/{container['name']}",
        "ready": ready,
        "started": started,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }


def _ended(started: str, now: str, code: int, reason: str) -> Obj:
    return {"terminated": {"exitCode": code, "reason": reason, "startedAt": started, "finishedAt": now}}


def running(pod: Obj, now: str, host_ip: str, pod_ip: str, *, ready: bool) -> Obj:
    """Containers run; `ready` says whether they pass their readiness probes."""
    before, spec = pod.get("status") or {}, pod["spec"]
    started = before.get("startTime") or now
    names = [container["name"] for container in spec.get("containers") or ()]
    wanted = dict.fromkeys(_ORDER, True) | {"Ready": ready, "ContainersReady": ready}
    text = "" if ready else f"containers with unready status: [{' '.join(names)}]"
    state = {"running": {"startedAt": started}}
    status: Obj = {
        **{
            k: v for k, v in before.items() if k in ("qosClass", "nominatedNodeName", "resourceClaimStatuses")
        },
        "phase": "Running",
        "observedGeneration": pod["metadata"].get("generation", 1),
        "conditions": _conditions(pod, wanted, now, "ContainersNotReady", text),
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": started,
        "containerStatuses": [
            _container(pod, c, state, ready=ready, started=True) for c in spec.get("containers") or ()
        ],
    }
    init = spec.get("initContainers") or ()
    if init:
        status["initContainerStatuses"] = [_init(pod, c, started) for c in init]
    return status


def _init(pod: Obj, container: Obj, started: str) -> Obj:
    if container.get("restartPolicy") == "Always":
        return _container(pod, container, {"running": {"startedAt": started}}, ready=True, started=True)
    state = _ended(started, started, 0, "Completed")
    return _container(pod, container, state, ready=True, started=False)


def finished(pod: Obj, now: str, code: int) -> Obj:
    """All containers ended with the exit code: Succeeded for 0, Failed otherwise."""
    before = pod.get("status") or {}
    started = before.get("startTime") or now
    reason = "Completed" if code == 0 else "Error"
    wanted = dict.fromkeys(_ORDER, True)
    wanted |= {"Ready": False, "ContainersReady": False, "PodReadyToStartContainers": False}
    return {
        **before,
        "phase": "Succeeded" if code == 0 else "Failed",
        "conditions": _conditions(pod, wanted, now, "PodCompleted" if code == 0 else "PodFailed"),
        "startTime": started,
        "containerStatuses": [
            _container(pod, c, _ended(started, now, code, reason), ready=False, started=False)
            for c in pod["spec"].get("containers") or ()
        ],
    }


def rejected(pod: Obj, now: str, reason: str, message: str) -> Obj:
    """The kubelet does not run this pod."""
    before = pod.get("status") or {}
    return {**before, "phase": "Failed", "reason": reason, "message": message, "startTime": now}
