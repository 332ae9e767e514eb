"""What a bare API server lacks, over HTTP and no larger than the tests need: ReplicaSets, Deployments, kubelets, volumes.

    Puppet(target, controllers=True)    for an API server alone (envtest, kubesim --no-controllers)
    Puppet(target, controllers=False)   kubelets and a provisioner only: for the tests' nodes in a cluster whose controllers are real

As in a cluster: a replacement is created at the deletionTimestamp of its predecessor, and a bound pod that is being
deleted goes only when its kubelet says so (delete with grace 0). Nodes whose name does not begin with PREFIX, and their
pods, are never touched. It lists and watches, and works from what it has seen; everything it does may be done twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import threading
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any

import aiohttp
from e2e.puppet_volumes import CLAIMS, CLASSES, PATHS, VOLUMES, VolumePuppet
from kubesim.conformance.harness import JSON_PATCH, MERGE, Answer, Api, Target

Obj = dict[str, Any]

PREFIX = "e2e-"
"""Of the names of nodes that are simulated."""
NOT_READY = "node.kubernetes.io/not-ready"
STOP = 0.05
"""Seconds from deletionTimestamp to the end of a pod; a pod's grace period bounds it."""
HEARTBEAT = 10.0
AGAIN = 0.1
"""Seconds until a watch is opened again and failed work is repeated."""

PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
REPLICASETS, DEPLOYMENTS = "/apis/apps/v1/replicasets", "/apis/apps/v1/deployments"
HASH = "pod-template-hash"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"


class Puppet:
    """Runs in a thread of its own between `start` and `stop`."""

    def __init__(self, target: Target, *, controllers: bool):
        self._target, self._controllers = target, controllers
        self._seen: dict[str, dict[str, Obj]] = {
            path: {} for path in (PODS, NODES, REPLICASETS, DEPLOYMENTS, *PATHS)
        }
        self._lists = 0
        """First lists that are complete. Nothing is done before all are: what is not seen yet is not gone."""
        self._busy: dict[str, bool] = {}
        """Key of work under way → whether something changed since it last looked."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._ready = threading.Event()
        self.failures: list[str] = []
        """Answers that nobody expected, for a test to look at."""

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._main(),), daemon=True, name="puppet")
        self._thread.start()
        if not self._ready.wait(30):
            raise RuntimeError("the puppet could not list pods within 30 s")

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(10)

    # -- the loop --------------------------------------------------------------------------------------------------

    async def _main(self) -> None:
        self._stopping = asyncio.Event()
        connector = aiohttp.TCPConnector(limit=32)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(sock_read=90)) as session:
            self._api = Api(self._target, session)
            self._volumes = VolumePuppet(self._api, self._seen, binds=self._controllers)
            wanted = [PODS, NODES, *PATHS, *((REPLICASETS, DEPLOYMENTS) if self._controllers else ())]
            tasks = [asyncio.create_task(self._follow(path, len(wanted))) for path in wanted]
            tasks.append(asyncio.create_task(self._heartbeats()))
            await self._stopping.wait()
            for task in (*tasks, *self._tasks):
                task.cancel()
            await asyncio.gather(*tasks, *self._tasks, return_exceptions=True)

    async def _follow(self, path: str, lists: int) -> None:
        """List, watch, and list again when the watch ends: simple, and never wrong."""
        first = True
        while True:
            with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError, KeyError, ValueError, AssertionError):
                listed = await self._api.ok("GET", path)
                there = {item["metadata"]["uid"]: item for item in listed["items"]}
                before = self._seen[path]
                self._seen[path] = there
                for uid in before.keys() - there.keys():
                    self._look(path, before[uid], gone=True)
                for item in list(there.values()):
                    self._look(path, item)
                if first:
                    first = False
                    self._lists += 1
                    if self._lists == lists:
                        self._ready.set()
                        for place, known in self._seen.items():
                            for one in list(known.values()):
                                self._look(place, one)
                version = listed["metadata"]["resourceVersion"]
                async with self._api.watch(path, resourceVersion=version, timeoutSeconds=60) as watch:
                    while (event := await watch.next(90)) is not None and event["type"] != "ERROR":
                        self._take(path, event["type"], event["object"])
            await asyncio.sleep(AGAIN)

    def _take(self, path: str, kind: str, obj: Obj) -> None:
        if kind == "DELETED":
            self._seen[path].pop(obj["metadata"]["uid"], None)
        elif kind in ("ADDED", "MODIFIED"):
            self._seen[path][obj["metadata"]["uid"]] = obj
        self._look(path, obj, gone=kind == "DELETED")

    def _look(self, path: str, obj: Obj, gone: bool = False) -> None:
        """Work that follows from a change."""
        if not self._ready.is_set():
            return
        uid = obj["metadata"]["uid"]
        match path:
            case "/api/v1/pods":
                if not gone:
                    self._work(f"kubelet {uid}", lambda: self._kubelet(uid))
                owner = _controller(obj)
                if owner and self._controllers:
                    self._work(f"set {owner}", lambda: self._replicaset(owner))
                    above = _controller(self._seen[REPLICASETS].get(owner) or {"metadata": {}})
                    if above:
                        self._work(f"deployment {above}", lambda: self._deployment(above))
            case "/api/v1/nodes":
                if not gone:
                    self._work(f"node {uid}", lambda: self._node(uid))
            case "/apis/apps/v1/replicasets":
                self._work(f"set {uid}", lambda: self._replicaset(uid))
            case "/apis/apps/v1/deployments":
                self._work(f"deployment {uid}", lambda: self._deployment(uid))
            case _:
                self._look_at_volumes(path, uid, gone)

    def _look_at_volumes(self, path: str, uid: str, gone: bool) -> None:
        def claims(*uids: str) -> None:
            for one in uids:
                self._work(f"claim {one}", partial(self._volumes.claim, one))

        def volumes(*uids: str) -> None:
            for one in uids:
                self._work(f"volume {one}", partial(self._volumes.volume, one))

        if path == CLAIMS:
            (volumes(*self._volumes.orphans(uid)) if gone else claims(uid))
        elif path == VOLUMES and not gone:
            volumes(uid)
        if path in (VOLUMES, CLASSES):
            claims(*self._volumes.waiting())

    def _work(self, key: str, step: Callable[[], Awaitable[bool]]) -> None:
        """At most one step a key at a time; `step` looks at what is there then, and says whether to look again."""
        if key in self._busy:
            self._busy[key] = True
            return

        async def run() -> None:
            again = changed = True
            try:
                while again or changed:
                    self._busy[key] = False
                    try:
                        again = await step()
                    except (aiohttp.ClientError, TimeoutError, OSError):
                        again = True
                    if again:
                        await asyncio.sleep(AGAIN)
                    changed = self._busy[key]
            finally:
                del self._busy[key]

        self._busy[key] = False
        task = asyncio.get_running_loop().create_task(run())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _expect(self, answer: Answer, *codes: int) -> bool:
        """True for success; the codes are failures that may happen."""
        if answer.status < 300:
            return True
        if answer.status not in (*codes, 404, 409, 429, 500, 503, 504):
            self.failures.append(f"{answer.status} {answer.body}")
        return False

    # -- kubelets --------------------------------------------------------------------------------------------------

    async def _kubelet(self, uid: str) -> bool:
        pod = self._seen[PODS].get(uid)
        if pod is None or not (pod["spec"].get("nodeName") or "").startswith(PREFIX):
            return False
        meta, phase = pod["metadata"], (pod.get("status") or {}).get("phase")
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        if meta.get("deletionTimestamp"):
            await asyncio.sleep(min(STOP, meta.get("deletionGracePeriodSeconds") or 0))
            options = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
            answer = await self._api.call("DELETE", path, {"apiVersion": "v1", "kind": "DeleteOptions", **options})
            return not self._expect(answer) and answer.status not in (404, 409)
        if phase in (None, "", "Pending"):
            answer = await self._api.call("PATCH", f"{path}/status", _running(pod), media=MERGE)
            if self._expect(answer, 422):
                # The watch may not have told it yet; and a deletion may have come meanwhile.
                self._seen[PODS][uid] = answer.body
                return bool(answer.body["metadata"].get("deletionTimestamp"))
            return answer.status not in (404, 409, 422)
        return False

    async def _node(self, uid: str) -> bool:
        """The API server taints every new node; the node lifecycle controller would take that back."""
        node = self._seen[NODES].get(uid)
        if node is None or not node["metadata"]["name"].startswith(PREFIX):
            return False
        taints = (node.get("spec") or {}).get("taints") or []
        at = next((i for i, taint in enumerate(taints) if taint["key"] == NOT_READY), None)
        if at is None or not self._controllers:
            return False
        patch = [
            {"op": "test", "path": f"/spec/taints/{at}/key", "value": NOT_READY},
            {"op": "remove", "path": f"/spec/taints/{at}"},
        ]
        path = f"{NODES}/{node['metadata']['name']}"
        answer = await self._api.call("PATCH", path, patch, media=JSON_PATCH)
        if self._expect(answer, 422):
            self._seen[NODES][uid] = answer.body
        return False

    async def _heartbeats(self) -> None:
        """Leases of our nodes: without them a real node lifecycle controller takes a node for lost."""
        while True:
            for node in [n["metadata"] for n in self._seen[NODES].values()]:
                if not node["name"].startswith(PREFIX):
                    continue
                now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
                spec = {"holderIdentity": node["name"], "leaseDurationSeconds": 40, "renewTime": now}
                owner = {"apiVersion": "v1", "kind": "Node", "name": node["name"], "uid": node["uid"]}
                lease = {
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": node["name"], "ownerReferences": [owner]}, "spec": spec,
                }  # fmt: skip
                with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                    answer = await self._api.call("PATCH", f"{LEASES}/{node['name']}", {"spec": spec}, media=MERGE)
                    if answer.status == 404:
                        await self._api.call("POST", LEASES, lease)
            await asyncio.sleep(HEARTBEAT)

    # -- controllers -----------------------------------------------------------------------------------------------

    async def _replicaset(self, uid: str) -> bool:
        owned = [pod for pod in self._seen[PODS].values() if _controller(pod) == uid]
        found = self._seen[REPLICASETS].get(uid)
        active = [
            pod for pod in owned
            if not pod["metadata"].get("deletionTimestamp")
            and (pod.get("status") or {}).get("phase") not in ("Succeeded", "Failed")
        ]  # fmt: skip
        gone = found is None or bool(found["metadata"].get("deletionTimestamp"))
        wanted = 0 if gone else found["spec"].get("replicas", 1)
        for pod in active[wanted:]:
            meta = pod["metadata"]
            path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
            answer = await self._api.call("DELETE", path, {"preconditions": {"uid": meta["uid"]}})
            if not self._expect(answer):
                return answer.status not in (404, 409)
            self._note(answer.body, path)
        for _ in range(wanted - len(active)):
            assert found is not None
            meta, template = found["metadata"], found["spec"]["template"]
            owner = {
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": meta["name"], "uid": uid,
                "controller": True, "blockOwnerDeletion": True,
            }  # fmt: skip
            body = {
                "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
                "metadata": {
                    **template.get("metadata", {}), "generateName": f"{meta['name']}-", "ownerReferences": [owner],
                },
            }  # fmt: skip
            answer = await self._api.call("POST", f"/api/v1/namespaces/{meta['namespace']}/pods", body)
            if not self._expect(answer, 403):
                return answer.status != 404
            self._seen[PODS].setdefault(answer.body["metadata"]["uid"], answer.body)
        return False

    def _note(self, pod: Any, path: str) -> None:
        """A deletion's answer is the pod as it is now; one that is gone at once is told by the watch."""
        if isinstance(pod, dict) and pod.get("kind") == "Pod" and pod["metadata"]["uid"] in self._seen[PODS]:
            pod["metadata"].setdefault("deletionTimestamp", "now")
            self._seen[PODS][pod["metadata"]["uid"]] = pod

    async def _deployment(self, uid: str) -> bool:
        """A ReplicaSet per template, scaled as asked; a roll-out is that of `maxSurge: 100%, maxUnavailable: 0`: the old
        pods go when all of the new ones are ready."""
        found = self._seen[DEPLOYMENTS].get(uid)
        owned = [r for r in self._seen[REPLICASETS].values() if _controller(r) == uid]
        if found is None or found["metadata"].get("deletionTimestamp"):
            for one in owned:
                meta = one["metadata"]
                self._expect(await self._api.call("DELETE", f"/apis/apps/v1/namespaces/{meta['namespace']}/replicasets/{meta['name']}"))
            return False
        spec, replicas = found["spec"], found["spec"].get("replicas", 1)
        path = f"/apis/apps/v1/namespaces/{found['metadata']['namespace']}/replicasets"
        digest = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
        new = next((r for r in owned if r["spec"]["selector"]["matchLabels"].get(HASH) == digest), None)
        if new is None:
            self._expect(await self._api.call("POST", path, _revision(found, digest)))
            return False
        await self._scale(path, new, replicas)
        ready = [pod for pod in self._seen[PODS].values() if _controller(pod) == new["metadata"]["uid"] and is_ready(pod)]
        if len(ready) >= replicas:
            for old in owned:
                if old is not new:
                    await self._scale(path, old, 0)
        status = {
            "observedGeneration": found["metadata"]["generation"], "replicas": sum(map(self._alive, owned)), "updatedReplicas": self._alive(new),
        }  # fmt: skip
        if {name: (found.get("status") or {}).get(name, 0) for name in status} != status:
            path = f"/apis/apps/v1/namespaces/{found['metadata']['namespace']}/deployments/{found['metadata']['name']}/status"
            self._expect(await self._api.call("PATCH", path, {"status": status}, media=MERGE), 404)
        return False

    def _alive(self, one: Obj) -> int:
        """Pods of a ReplicaSet that are not on their way out."""
        return sum(_controller(pod) == one["metadata"]["uid"] and not pod["metadata"].get("deletionTimestamp") for pod in self._seen[PODS].values())

    async def _scale(self, path: str, one: Obj, replicas: int) -> None:
        if one["spec"].get("replicas") != replicas:
            patch = {"spec": {"replicas": replicas}}
            self._expect(await self._api.call("PATCH", f"{path}/{one['metadata']['name']}", patch, media=MERGE))


def _revision(deployment: Obj, digest: str) -> Obj:
    """The ReplicaSet of a Deployment's present template."""
    meta, spec, hashed = deployment["metadata"], deployment["spec"], {HASH: digest}
    template = {**spec["template"], "metadata": {**spec["template"].get("metadata", {})}}
    template["metadata"]["labels"] = {**template["metadata"].get("labels", {}), **hashed}
    owner = {
        "apiVersion": "apps/v1", "kind": "Deployment", "name": meta["name"], "uid": meta["uid"],
        "controller": True, "blockOwnerDeletion": True,
    }  # fmt: skip
    return {
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {"name": f"{meta['name']}-{digest}", "labels": template["metadata"]["labels"], "ownerReferences": [owner]},
        "spec": {
            "replicas": spec.get("replicas", 1), "template": template,
            "selector": {"matchLabels": {**spec["selector"]["matchLabels"], **hashed}},
        },
    }  # fmt: skip


def is_ready(pod: Obj) -> bool:
    """Running, ready, and not on its way out."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return not pod["metadata"].get("deletionTimestamp") and any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _controller(obj: Obj) -> str:
    return next((o["uid"] for o in obj["metadata"].get("ownerReferences") or () if o.get("controller")), "")


def _running(pod: Obj) -> Obj:
    """The status that a kubelet writes when all containers are up. The uid is a precondition."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    kinds = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
    containers = [
        {
            "name": c["name"], "image": c["image"], "imageID": c["image"], "ready": True, "started": True,
            "restartCount": 0, "state": {"running": {"startedAt": now}},
        }
        for c in pod["spec"]["containers"]
    ]  # fmt: skip
    conditions = [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in kinds]
    return {
        "metadata": {"uid": pod["metadata"]["uid"]},
        "status": {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": containers},
    }
