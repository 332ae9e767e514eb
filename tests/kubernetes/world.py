"""What a test sees and does: nodes, workloads, and all pods as a watch tells them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

import aiohttp
from kubernetes.kubelets import TERM, Kubelets
from kubernetes.lab import Lab
from kubesim.conformance.harness import MERGE, Api

from restow.domain.beside import GATE

Obj = dict[str, Any]
T = TypeVar("T")
NS = "work"
LOW, MID, HIGH = "low", "mid", "high"
PRIORITIES = {LOW: 10, MID: 1000, HIGH: 2000}
APPS = f"/apis/apps/v1/namespaces/{NS}"
WAIT = 15.0
AWAITED = 60.0
"""Seconds within which what a test waits for must be so, also on a busy machine."""
HOLDS = ("restow-holds", "restow-holds-ports")


class World:
    """`pods`: by uid. `at`: (uid, what) → perf_counter; what is seen, bound, running, failed, ending, gone."""

    def __init__(self, lab: Lab, kubelets: Kubelets, api: Api):
        self.lab, self.kubelets, self.api = lab, kubelets, api
        self.pods: dict[str, Obj] = {}
        self.at: dict[tuple[str, str], float] = {}
        self.takers: dict[tuple[str, str], tuple[float, int]] = {}
        """(node, uid) → when and with which priority a pod was first bound or nominated to it; also of pods that have gone."""
        self.told: list[Callable[[str, Obj], None]] = []
        self.nodes: set[str] = set()
        self._changed = asyncio.Event()

    # -- the world -----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        for name, value in PRIORITIES.items():
            body = {"metadata": {"name": name}, "value": value}
            await self.api.call("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", body)
        await self.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": NS}})
        await self.wipe()
        listed = await self.api.ok("GET", "/api/v1/pods")
        self._task = asyncio.create_task(self._follow(listed["metadata"]["resourceVersion"]))

    async def close(self) -> None:
        await self.wipe()
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def wipe(self) -> None:
        """Everything of a test goes."""
        await self.wipe_pods()
        for path in (f"/api/v1/namespaces/{NS}/persistentvolumeclaims", "/api/v1/persistentvolumes", "/api/v1/nodes", "/apis/restow.dev/v1/landings"):
            await self.api.call("DELETE", path)
        self.kubelets.rejected.clear()

    async def wipe_pods(self) -> None:
        for path in (
            *(f"{APPS}/{kind}" for kind in ("deployments", "replicasets", "statefulsets", "daemonsets")),
            f"/apis/batch/v1/namespaces/{NS}/jobs", f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets", f"/api/v1/namespaces/{NS}/resourcequotas",
        ):  # fmt: skip
            await self.api.call("DELETE", path, {"propagationPolicy": "Background"})
        for _ in range(200):
            left = [p for ns in (NS, *HOLDS) for p in (await self.api.call("GET", f"/api/v1/namespaces/{ns}/pods")).body.get("items") or ()]
            if not left:
                break
            for pod in left:
                await self.api.call("DELETE", path_of(pod), {"gracePeriodSeconds": 0})
            await asyncio.sleep(0.05)
        else:
            raise AssertionError(f"pods that do not go: {[path_of(pod) for pod in left]}")

    async def node(self, name: str, *, gpus: int = 8, zone: str = "z0", labels: Obj | None = None, **spec: Any) -> None:
        marks = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": zone, **(labels or {})}
        await self.api.ok("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": marks}, "spec": spec})
        has = {"cpu": "32", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
        now = "2026-01-01T00:00:00Z"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": now, "lastTransitionTime": now}
        status = {"capacity": has, "allocatable": has, "conditions": [ready]}
        await self.api.ok("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, media=MERGE)
        self.nodes.add(name)
        # Admission taints every new node; the controller that would take that back does not run here.
        await self.api.ok("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": spec.get("taints")}}, media=MERGE)

    async def cordon(self, name: str, on: bool = True) -> None:
        await self.api.ok("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on or None}}, media=MERGE)

    async def closed(self, name: str) -> None:
        """Cordoned, and the scheduler has seen it: whoever comes from now on is not placed there. (A scheduler that others keep from running may be behind.)"""
        await self.cordon(name)
        spec = pod_spec(0, nodeSelector={"kubernetes.io/hostname": name}) | {"terminationGracePeriodSeconds": 0}
        for i in range(50):
            probe = await self.api.ok("POST", "/api/v1/namespaces/kube-system/pods", {"metadata": {"name": f"probe-{i}"}, "spec": spec})
            there = await self.until(lambda uid=probe["metadata"]["uid"]: (pod := self.pods.get(uid)) and (pod["spec"].get("nodeName") or refused(pod)) and pod, "a probe is looked at")  # type: ignore[misc]
            await self.api.call("DELETE", path_of(there), {"gracePeriodSeconds": 0})
            await self.gone([there])
            if not there["spec"].get("nodeName"):
                return
        raise AssertionError(f"the scheduler does not see that {name} is cordoned")

    async def replicaset(self, name: str, replicas: int, spec: Obj, *, term: float = 0.2) -> Obj:
        return await self.workload("replicasets", name, replicas, spec, term)

    async def statefulset(self, name: str, replicas: int, spec: Obj, *, term: float = 0.2) -> Obj:
        return await self.workload("statefulsets", name, replicas, spec, term, serviceName=name)

    async def workload(
        self, kind: str, name: str, replicas: int, spec: Obj, term: float, *, namespace: str = NS, annotations: Obj | None = None, **more: Any
    ) -> Obj:
        """`annotations`: of its pods."""
        made = {"labels": {"app": name}, "annotations": {TERM: str(term), **(annotations or {})}}
        body = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": {"metadata": made, "spec": spec}, **more}
        return await self.api.ok("POST", f"/apis/apps/v1/namespaces/{namespace}/{kind}", {"metadata": {"name": name}, "spec": body})

    async def crowd(self, count: int = 50, **more: Any) -> None:
        """Pods of the middle priority wait, all of them looked at by the scheduler."""
        await self.replicaset("crowd", count, pod_spec(**more))
        await self.unschedulable("crowd", count)

    async def budget(self, allowed: int, app: str = "victim") -> None:
        """Whether pods of this workload may be evicted."""
        path = f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets"
        await self.api.call("DELETE", f"{path}/{app}")
        if not allowed:
            body = {"metadata": {"name": app}, "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": app}}}}
            await self.api.ok("POST", path, body)

    async def lose(self, name: str) -> None:
        """A node, with its pods: the controller that would delete those does not run here."""
        self.nodes.discard(name)
        await self.api.ok("DELETE", f"/api/v1/nodes/{name}")
        for pod in [p for p in self.pods.values() if p["spec"].get("nodeName") == name]:
            await self.api.call("DELETE", path_of(pod), {"gracePeriodSeconds": 0})

    async def pod(self, name: str, spec: Obj, **meta: Any) -> Obj:
        body = {"metadata": {"name": name, "labels": {"app": name}, **meta}, "spec": spec}
        return await self.api.ok("POST", f"/api/v1/namespaces/{NS}/pods", body)

    # -- what is there -------------------------------------------------------------------------------------------------

    def of(self, app: str) -> list[Obj]:
        return [p for p in self.pods.values() if (p["metadata"].get("labels") or {}).get("app") == app]

    def placeholders(self) -> list[Obj]:
        return [p for p in self.pods.values() if p["metadata"]["namespace"] in HOLDS]

    def where(self, app: str) -> list[str]:
        """Of those that are not ending: node, `gated`, or `waits`."""
        alive = [p for p in self.of(app) if not p["metadata"].get("deletionTimestamp") and p["status"].get("phase") != "Failed"]
        return sorted(p["spec"].get("nodeName") or ("gated" if p["spec"].get("schedulingGates") else "waits") for p in alive)

    async def stands(self, app: str, where: list[str]) -> None:
        """Soon: what the services have heard this watch may still have to hear."""
        await self.until(lambda: self.where(app) == where, f"{app} stands on {where}")

    async def running(self, app: str, count: int = 1) -> list[Obj]:
        def found() -> list[Obj]:
            run = [p for p in self.of(app) if p["status"].get("phase") == "Running" and not p["metadata"].get("deletionTimestamp")]
            return run if len(run) >= count else []

        return await self.until(found, f"{count} of {app} run")

    async def gone(self, pods: list[Obj], seconds: float = AWAITED) -> None:
        """A successor may be ready before its predecessor has ended."""
        await self.until(lambda: all((pod["metadata"]["uid"], "gone") in self.at for pod in pods), f"{len(pods)} pods have gone", seconds)

    async def unschedulable(self, app: str, count: int) -> None:
        """All of them were looked at by the scheduler."""

        def looked() -> bool:
            return len([p for p in self.of(app) if p["spec"].get("nodeName") or refused(p)]) >= count

        await self.until(looked, f"{count} of {app} were looked at")

    async def until(self, found: Callable[[], T], what: str, seconds: float = AWAITED) -> T:
        got = await self.within(found, seconds)
        assert got, f"not within {seconds:g} s: {what}; pods: {[summary(p) for p in self.pods.values()][:20]}"
        return got

    async def within(self, found: Callable[[], T], seconds: float) -> T | None:
        """What it finds, None when the time is up."""
        end = time.perf_counter() + seconds
        while True:
            self._changed.clear()
            if got := found():
                return got
            left = end - time.perf_counter()
            if left <= 0:
                return None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)

    async def _follow(self, version: str) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                version = version or await self._listed()
                async with self.api.watch("/api/v1/pods", resourceVersion=version) as watch:
                    if watch.status != 200:
                        version = ""
                    while version and (event := await watch.next(3600)) is not None:
                        # An ERROR says that the version is too old: the API server was started again, or etcd compacted.
                        version = "" if event["type"] == "ERROR" else event["object"]["metadata"]["resourceVersion"]
                        if version:
                            self._take(event["type"], event["object"])
            await asyncio.sleep(0.05)

    async def _listed(self) -> str:
        """All pods again, and who has gone meanwhile. Empty where the server is not ready."""
        answer = await self.api.call("GET", "/api/v1/pods")
        if answer.status != 200:
            return ""
        found = {pod["metadata"]["uid"]: pod for pod in answer.body["items"]}
        for uid in self.pods.keys() - found.keys():
            self._take("DELETED", self.pods[uid])
        for uid, pod in found.items():
            self._take("MODIFIED" if uid in self.pods else "ADDED", pod)
        return str(answer.body["metadata"]["resourceVersion"])

    def _take(self, kind: str, pod: Obj) -> None:
        uid, now, phase = pod["metadata"]["uid"], time.perf_counter(), pod["status"].get("phase")
        self.at.setdefault((uid, "seen"), now)
        if kind == "DELETED":
            self.pods.pop(uid, None)
            self.at[uid, "gone"] = now
        else:
            self.pods[uid] = pod
        for what, yes in (
            ("bound", pod["spec"].get("nodeName")), ("ending", pod["metadata"].get("deletionTimestamp")),
            ("running", phase == "Running"), ("failed", phase == "Failed"),
        ):  # fmt: skip
            if yes:
                self.at.setdefault((uid, what), now)
        for node in (pod["spec"].get("nodeName"), pod["status"].get("nominatedNodeName")):
            if node:
                self.takers.setdefault((node, uid), (now, pod["spec"].get("priority", 0)))
        for tell in list(self.told):
            tell(kind, pod)
        self._changed.set()


def pod_spec(gpus: int = 1, priority: str = MID, **more: Any) -> Obj:
    requests = {"cpu": "100m", "memory": "64Mi"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    container = {"name": "main", "image": "main", "resources": {"requests": requests, "limits": limits}}
    if ports := more.pop("host_ports", None):
        container["ports"] = [{"containerPort": port, "hostPort": port} for port in ports]
    if mounts := more.pop("mounts", None):
        container["volumeMounts"] = mounts
    return {"priorityClassName": priority, "terminationGracePeriodSeconds": 30, "containers": [container], **more}


def restricted(spec: Obj) -> Obj:
    """As Pod Security `restricted` asks for it."""
    spec["securityContext"] = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    for container in spec["containers"]:
        container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return spec


def path_of(pod: Obj, subresource: str = "") -> str:
    meta = pod["metadata"]
    return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}{subresource}"


def controller(pod: Obj) -> Obj | None:
    return next((o for o in pod["metadata"].get("ownerReferences") or () if o.get("controller")), None)


def gated(pod: Obj) -> bool:
    """By Restow, whoever else gates it, too."""
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())


def refused(pod: Obj) -> bool:
    return any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in pod["status"].get("conditions") or ())


def summary(pod: Obj) -> str:
    meta = pod["metadata"]
    return f"{meta['name']} {pod['spec'].get('nodeName', '-')} {pod['status'].get('phase')}{' ending' if meta.get('deletionTimestamp') else ''}"
