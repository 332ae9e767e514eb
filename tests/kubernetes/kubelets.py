"""Kubelets that judge: they reject what does not fit (OutOf<resource>), as real ones do and kwok's do not.

They run in a thread of their own, for every node without the label `kubelets: kwok`. A bound pod runs RUN seconds after it was admitted, and
a terminating one goes after the seconds in its annotation `kubelets/term`, at once without one.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from datetime import UTC, datetime
from typing import Any

import aiohttp
from kubesim.conformance.harness import STRATEGIC, Api, Target

Obj = dict[str, Any]
RUN = 0.05
JUDGED = ("cpu", "memory", "pods", "nvidia.com/gpu")
TERM = "kubelets/term"
NODES, PODS = "/api/v1/nodes", "/api/v1/pods"
_SUFFIXES = {"m": 1e-3, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "k": 1e3, "M": 1e6, "G": 1e9}


def amount(text: str) -> float:
    """Of a quantity, as the tests write them."""
    for suffix, factor in _SUFFIXES.items():
        if text.endswith(suffix):
            return float(text.removesuffix(suffix)) * factor
    return float(text)


def needs(pod: Obj) -> dict[str, float]:
    """What it takes of its node; each host port is a resource of which there is one."""
    found = {"pods": 1.0}
    for container in pod["spec"]["containers"]:
        for name, text in (container.get("resources", {}).get("requests") or {}).items():
            if name in JUDGED:
                found[name] = found.get(name, 0) + amount(str(text))
        for port in container.get("ports") or ():
            if port.get("hostPort"):
                found[f"port {port['hostPort']}"] = 1.0
    return found


class Kubelets:
    """Runs between `start` and `stop`."""

    def __init__(self, target: Target):
        self._target = target
        self._room: dict[str, dict[str, float]] = {}
        self._early: dict[str, dict[str, Obj]] = {}
        """Pods of nodes of which nothing is known yet, by node and uid: nodes and pods are watched apart, and either may come first. A real kubelet knows its own."""
        self._admitted: dict[str, tuple[str, dict[str, float]]] = {}
        self._ending: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self.rejected: list[str] = []
        """What did not fit: `namespace/name on node: OutOf<resource>`."""
        self.refuse = ""
        """The next pod whose name begins so is rejected, as by a kubelet that knows more of its node than the API says."""

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._main(),), daemon=True, name="kubelets")
        self._thread.start()
        if not self._ready.wait(60):
            raise RuntimeError("the kubelets could not list nodes and pods within 60 s")

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        connector = aiohttp.TCPConnector(limit=64)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(sock_read=90)) as session:
            self._api = Api(self._target, session)
            nodes = asyncio.create_task(self._follow(NODES))
            while not self._listed:
                await asyncio.sleep(0.02)
            pods = asyncio.create_task(self._follow(PODS))
            await self._stopping.wait()
            for task in (nodes, pods, *self._tasks):
                task.cancel()
            await asyncio.gather(nodes, pods, *self._tasks, return_exceptions=True)

    _listed = False

    async def _follow(self, path: str) -> None:
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, KeyError, ValueError, AssertionError):
                listed = await self._api.ok("GET", path)
                if path == PODS:
                    there = {pod["metadata"]["uid"] for pod in listed["items"]}
                    for uid in self._admitted.keys() - there:
                        self._forget(uid)
                    self._ready.set()
                for item in listed["items"]:
                    self._look(path, "ADDED", item)
                self._listed = True
                async with self._api.watch(path, resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
                    while (event := await watch.next(3600)) is not None and event["type"] != "ERROR":
                        self._look(path, event["type"], event["object"])
            await asyncio.sleep(0.1)

    def _look(self, path: str, kind: str, obj: Obj) -> None:
        if path == PODS:
            self._pod(kind, obj)
        elif kind == "DELETED" or (obj["metadata"].get("labels") or {}).get("kubelets") == "kwok":
            self._room.pop(obj["metadata"]["name"], None)
        else:
            said = obj.get("status", {}).get("allocatable") or {}
            node = obj["metadata"]["name"]
            self._room[node] = {name: amount(text) for name, text in said.items() if name in JUDGED}
            if self._room[node]:
                for pod in self._early.pop(node, {}).values():
                    self._pod("MODIFIED", pod)

    def _pod(self, kind: str, pod: Obj) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if kind == "DELETED":
            self._forget(uid)
            self._ending.discard(uid)
            self._early.get(node, {}).pop(uid, None)
            return
        if not self._room.get(node):
            if node:
                self._early.setdefault(node, {})[uid] = pod
            return
        phase = pod["status"].get("phase")
        if phase in ("Failed", "Succeeded"):
            self._forget(uid)
        elif uid not in self._admitted and uid not in self._ending:
            if self.refuse and pod["metadata"]["name"].startswith(self.refuse):
                self.refuse = ""
                self._reject(uid, node, pod, "UnexpectedAdmissionError")
            else:
                self._admit(uid, node, pod)
        if pod["metadata"].get("deletionTimestamp") and uid not in self._ending:
            self._ending.add(uid)
            self._do(self._end(pod))

    def _admit(self, uid: str, node: str, pod: Obj) -> None:
        wanted = needs(pod)
        for name, much in wanted.items():
            used = sum(what.get(name, 0) for where, what in self._admitted.values() if where == node)
            room = 1.0 if name.startswith("port ") else self._room[node].get(name, 0)
            if used + much > room + 1e-9:
                self._reject(uid, node, pod, f"OutOf{name}")
                return
        self._admitted[uid] = node, wanted
        if pod["status"].get("phase") != "Running":
            self._do(self._run(uid, pod))

    def _reject(self, uid: str, node: str, pod: Obj, reason: str) -> None:
        self._ending.add(uid)
        self.rejected.append(f"{pod['metadata']['namespace']}/{pod['metadata']['name']} on {node}: {reason}")
        self._do(self._patch(pod, {"phase": "Failed", "reason": reason, "startTime": _now()}))

    def _forget(self, uid: str) -> None:
        self._admitted.pop(uid, None)

    def _do(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, uid: str, pod: Obj) -> None:
        await asyncio.sleep(RUN)
        if uid in self._admitted and uid not in self._ending:
            now = _now()
            kinds = ("PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
            containers = [
                {
                    "name": c["name"], "image": c["image"], "imageID": c["image"], "ready": True, "started": True, "restartCount": 0,
                    "state": {"running": {"startedAt": now}},
                }
                for c in pod["spec"]["containers"]
            ]  # fmt: skip
            conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
            await self._patch(
                pod, {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": containers}
            )
            if seconds := pod["spec"].get("activeDeadlineSeconds"):
                self._do(self._expire(uid, pod, seconds))

    async def _expire(self, uid: str, pod: Obj, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if uid in self._admitted:
            await self._patch(pod, {"phase": "Failed", "reason": "DeadlineExceeded"})

    async def _end(self, pod: Obj) -> None:
        await asyncio.sleep(float((pod["metadata"].get("annotations") or {}).get(TERM, 0)))
        if pod["metadata"].get("finalizers"):
            # Who keeps the object looks at its phase. A process that SIGTERM ended has failed.
            await self._patch(pod, {"phase": "Failed"})
        options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0}
        await self._call("DELETE", _path(pod), options | {"preconditions": {"uid": pod["metadata"]["uid"]}})

    async def _patch(self, pod: Obj, status: Obj) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self._call("PATCH", f"{_path(pod)}/status", body, media=STRATEGIC)

    async def _call(self, method: str, path: str, body: Obj, **more: Any) -> None:
        """Until the server has said something: it may restart."""
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                answer = await self._api.call(method, path, body, **more)
                if answer.status not in (429, 500, 503, 504):
                    return
            await asyncio.sleep(0.1)


def _path(pod: Obj) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
