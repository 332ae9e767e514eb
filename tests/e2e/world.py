"""One test's part of the cluster: its namespace, its nodes, and how to wait for what `kubectl` would show."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import yaml
from e2e.puppet import NOT_READY, PREFIX, is_ready
from e2e.stack import Running, environment
from kubesim.conformance.harness import MERGE, Answer, Api, unique

Obj = dict[str, Any]
T = TypeVar("T")

DATA = Path(__file__).parent / "data"
TAG = "restow.dev/e2e"
"""Label of a test's nodes; its pods select it, so that no test sees another's capacity."""
VOLCANO = "/apis/batch.volcano.sh/v1alpha1"
KOORDINATOR = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
APPS = "/apis/apps/v1"
DEADLINE = 90.0
"""Seconds for everything that must happen; it takes a fraction of a second on an idle machine. Backoffs may add up."""
LOOK = 0.03


class World:
    def __init__(self, api: Api, stack: Running, name: str) -> None:
        self.api, self.stack, self.ns = api, stack, name
        self._nodes: list[str] = []
        self._elsewhere: list[str] = []

    # -- waiting ---------------------------------------------------------------------------------------------------

    async def until(self, what: str, probe: Callable[[], Awaitable[T]], seconds: float = DEADLINE) -> T:
        """What `probe` returns once that is true."""
        deadline = time.monotonic() + seconds
        while True:
            found = await probe()
            if found:
                return found
            if time.monotonic() > deadline:
                raise AssertionError(f"{what}: not within {seconds:g} s; pods: {await self._picture()}")
            await asyncio.sleep(LOOK)

    async def _picture(self) -> str:
        rows = []
        for pod in await self.pods():
            meta, status = pod["metadata"], pod.get("status", {})
            said = [f"{c['type']}={c['status']} {c.get('message', '')}" for c in status.get("conditions", ())]
            rows.append(f"{meta['name']} on {pod['spec'].get('nodeName')} {status.get('phase')} {meta.get('deletionTimestamp', '')} {said}")
        found = await self.api.call("GET", f"{VOLCANO}/namespaces/{self.ns}/reservations")
        if found.status == 200:
            rows += [f"{r['metadata']['name']}: {json.dumps(r.get('status', {}))}" for r in found.body["items"]]
        return "\n".join(["", *rows])

    # -- nodes -----------------------------------------------------------------------------------------------------

    async def node(
        self, name: str, cpu: str = "4", memory: str = "8Gi", *, gpus: int = 0, labels: Obj | None = None, taints: Any = ()
    ) -> str:
        """Registers a node as a kubelet does and waits until it takes pods and the log has it, so that pods which are made from now on
        find it; returns its full name."""
        full = f"{PREFIX}{self.ns}-{name}"
        capacity = {"cpu": cpu, "memory": memory, "pods": "110"} | ({"nvidia.com/gpu": str(gpus)} if gpus else {})
        now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        ready = {
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "as a test says",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }  # fmt: skip
        taints = list(taints)
        if self.stack.kind == "bare":
            # A real API server does this itself (admission plugin TaintNodesByCondition).
            taints.append({"key": NOT_READY, "effect": "NoSchedule"})
        node = {
            "apiVersion": "v1", "kind": "Node",
            "metadata": {"name": full, "labels": {TAG: self.ns, "kubernetes.io/hostname": full, **(labels or {})}},
            "spec": {"taints": taints} if taints else {},
            "status": {"capacity": capacity, "allocatable": capacity, "conditions": [ready]},
        }  # fmt: skip
        self._nodes.append(full)
        made = await self.api.ok("POST", "/api/v1/nodes", node)
        if not (made.get("status") or {}).get("allocatable"):
            await self.api.ok("PATCH", f"/api/v1/nodes/{full}/status", {"status": node["status"]}, media=MERGE)

        async def usable() -> bool:
            there = await self.api.ok("GET", f"/api/v1/nodes/{full}")
            return all(taint["key"] != NOT_READY for taint in there["spec"].get("taints") or ())

        async def known() -> bool:
            there = (await self.api.ok("GET", "/api/v1/nodes"))["items"]
            return (await asyncio.to_thread(self.stack.service, "descheduler"))["nodes"] == len(there)

        await self.until(f"node {full} is usable", usable)
        await self.until(f"the log has node {full}", known)
        return full

    # -- objects ---------------------------------------------------------------------------------------------------

    def spec(self, cpu: str = "100m", memory: str = "64Mi", *, gpu: int = 0, more: Obj | None = None, **spec: Any) -> Obj:
        """A pod's spec. `more` are extended resources, which must have limits equal to requests."""
        extended = ({"nvidia.com/gpu": str(gpu)} if gpu else {}) | (more or {})
        resources: Obj = {"requests": {"cpu": cpu, "memory": memory, **extended}}
        if extended:
            resources["limits"] = extended
        return {
            "schedulerName": "restow",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "nodeSelector": {TAG: self.ns},
            "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": resources}],
            **spec,
        }

    async def pod(self, name: str, *args: Any, labels: Obj | None = None, **more: Any) -> Obj:
        body = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}},
            "spec": self.spec(*args, **more),
        }  # fmt: skip
        return await self.api.ok("POST", f"/api/v1/namespaces/{self.ns}/pods", body)

    async def replicaset(self, name: str, replicas: int, *args: Any, labels: Obj | None = None, kind: str = "ReplicaSet", **more: Any) -> Obj:
        chosen = {"app": name, **(labels or {})}
        template = {"metadata": {"labels": chosen}, "spec": self.spec(*args, **more)}
        body = {
            "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
            "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
        }  # fmt: skip
        return await self.api.ok("POST", f"{APPS}/namespaces/{self.ns}/{kind.lower()}s", body)

    async def reservation(self, name: str, tasks: Any, **spec: Any) -> Obj:
        """`tasks`: name → (replicas, spec of a pod)."""
        said = [
            {"name": task, "replicas": replicas, "template": {"spec": template}} for task, (replicas, template) in tasks.items()
        ]
        body = {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name},
            "spec": {"schedulerName": "restow", "tasks": said, **spec},
        }  # fmt: skip
        return await self.api.ok("POST", f"{VOLCANO}/namespaces/{self.ns}/reservations", body)

    async def make(self, path: str, body: Obj) -> Obj:
        """An object that is not the test's namespace's, or that its end would not take along: it is removed afterwards."""
        self._elsewhere.insert(0, f"{path}/{body['metadata']['name']}")
        return await self.api.ok("POST", path, body)

    async def budget(self, name: str, labels: Obj, **spec: Any) -> None:
        body = {
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"selector": {"matchLabels": labels}, **spec},
        }  # fmt: skip
        await self.api.ok("POST", f"/apis/policy/v1/namespaces/{self.ns}/poddisruptionbudgets", body)

    async def patch(self, path: str, body: Obj) -> Obj:
        return await self.api.ok("PATCH", path, body, media=MERGE)

    async def remove(self, path: str, grace: int | None = None) -> None:
        query = "" if grace is None else f"?gracePeriodSeconds={grace}"
        answer = await self.api.call("DELETE", path + query)
        assert answer.status < 300 or answer.status == 404, answer.body

    # -- looking ---------------------------------------------------------------------------------------------------

    async def get(self, name: str) -> Obj | None:
        answer = await self.api.call("GET", f"/api/v1/namespaces/{self.ns}/pods/{name}")
        return answer.body if answer.status == 200 else None

    async def pods(self, app: str = "") -> list[Obj]:
        query = f"?labelSelector=app%3D{app}" if app else ""
        return (await self.api.ok("GET", f"/api/v1/namespaces/{self.ns}/pods{query}"))["items"]

    async def running(self, *names: str) -> list[Obj]:
        """These pods, once all run and are ready."""

        async def probe() -> list[Obj] | None:
            found = [await self.get(name) for name in names]
            return found if all(pod is not None and is_ready(pod) for pod in found) else None  # type: ignore[return-value]

        return await self.until(f"{', '.join(names)} run", probe)

    async def replicas(self, app: str, count: int) -> list[Obj]:
        """Exactly so many pods of this app, all ready, none on its way out."""

        async def probe() -> list[Obj] | None:
            found = await self.pods(app)
            return found if len(found) == count and all(map(is_ready, found)) else None

        return await self.until(f"{count} pods of {app} run", probe)

    async def unschedulable(self, name: str, *reasons: str) -> str:
        """The message of PodScheduled: False, Unschedulable, once it says all of this: what it says first may be of a moment
        at which the pod's siblings or a node's facts were not there yet."""
        return await self._told(name, "Unschedulable", reasons)

    async def undetermined(self, name: str, *reasons: str) -> str:
        """The same of a pod that no node would help."""
        return await self._told(name, "Undetermined", reasons)

    async def _told(self, name: str, word: str, reasons: tuple[str, ...]) -> str:

        async def probe() -> str | None:
            pod = await self.get(name)
            for one in (pod or {}).get("status", {}).get("conditions") or ():
                if one["type"] == "PodScheduled" and one["status"] == "False" and one["reason"] != "SchedulingGated":
                    assert one["reason"] in ("Unschedulable", "Undetermined")
                    said = one["reason"] == word and all(reason in one["message"] for reason in reasons)
                    return one["message"] if said else None
            return None

        return await self.until(f"{name} is told to be {word}: {reasons}", probe)

    async def waits(self, name: str, *reasons: str, undetermined: bool = False) -> str:
        """The message of a pod that waits, once its condition and an Event both say all of this; it has no node."""

        message = await (self.undetermined if undetermined else self.unschedulable)(name, *reasons)
        assert not node_of(await self.get(name) or {"spec": {}})

        async def told() -> bool:
            return any(event["message"] == message and event["type"] == "Warning" for event in await self.events(name, "FailedScheduling"))

        await self.until(f"an Event says {message}", told)
        return message

    async def lands(self, name: str, node: str) -> Obj:
        """The pod, once it runs there, and nothing says any more that it waits."""
        (pod,) = await self.running(name)
        assert node_of(pod) == node, (name, node_of(pod), node)
        assert [c["status"] for c in pod["status"]["conditions"] if c["type"] == "PodScheduled"] == ["True"]
        return pod

    async def held(self, name: str, phase: str, ns: str = "") -> Obj:
        """The status of a Volcano Reservation, once it is in this phase."""

        async def probe() -> Obj | None:
            there = await self.api.call("GET", f"{VOLCANO}/namespaces/{ns or self.ns}/reservations/{name}")
            status = there.body.get("status") or {} if there.status == 200 else {}
            return status if (status.get("state") or {}).get("phase") == phase else None

        return await self.until(f"Reservation {name} is {phase}", probe)

    async def reservations(self) -> list[Obj]:
        return (await self.api.ok("GET", f"{VOLCANO}/namespaces/{self.ns}/reservations"))["items"]

    async def events(self, about: str, reason: str) -> list[Obj]:
        """Events of an object, once there is one with this reason."""
        query = f"fieldSelector=involvedObject.name%3D{about},reason%3D{reason}"

        async def probe() -> list[Obj]:
            return (await self.api.ok("GET", f"/api/v1/namespaces/{self.ns}/events?{query}"))["items"]

        return await self.until(f"an Event {reason} about {about}", probe)

    # -- the other APIs -------------------------------------------------------------------------------------------

    async def kubectl(self, *args: str, stdin: str = "", code: int = 0) -> str:
        if shutil.which("kubectl") is None:
            pytest.skip("kubectl is not installed")
        process = await asyncio.create_subprocess_exec(
            "kubectl", *self.stack.kubectl, *args, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT, env=environment(),
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 60)
        assert process.returncode == code, f"kubectl {' '.join(args)}: {process.returncode}\n{out.decode()}"
        return out.decode()

    async def apply(self, text: str) -> None:
        """With kubectl where there is one, else as `kubectl create` would."""
        for document in yaml.safe_load_all(text):
            ns = document["metadata"].get("namespace", self.ns)
            if ns != self.ns:
                self._elsewhere.append(f"{VOLCANO}/namespaces/{ns}/reservations/{document['metadata']['name']}")
        if shutil.which("kubectl"):
            await self.kubectl("apply", "-f", "-", stdin=text)
            return
        for document in yaml.safe_load_all(text):
            await self.api.ok("POST", f"{VOLCANO}/namespaces/{document['metadata'].get('namespace', self.ns)}/reservations", document)

    def also_remove(self, path: str) -> None:
        """Something outside the namespace, to be removed afterwards."""
        self._elsewhere.append(path)

    async def restow(self, *args: str, code: int = 0) -> str:
        return await asyncio.to_thread(self.stack.restow, *args, code=code)

    async def restow_json(self, *args: str) -> Any:
        return json.loads(await self.restow(*args, "-o", "json"))

    async def defragment(self, dry: bool = False) -> Obj:
        """POST /defragment; the plan's event."""
        url = f"{self.stack.service_url('descheduler')}/defragment{'?dryRun=true' if dry else ''}"
        async with self.api.session.post(url, json={}, headers=self.stack.authorization) as answer:
            body = await answer.json()
            assert answer.status == 200, body
        return next(event for event in body["events"] if "moves" in event)

    async def plannable(self, moves: int) -> Obj:
        """The log has seen enough to plan so many moves: a pod whose readiness is not a fact yet is not moved."""

        async def probe() -> Obj | None:
            plan = await self.defragment(dry=True)
            return plan if len(plan["moves"]) == moves else None

        return await self.until(f"a plan would have {moves} moves", probe)

    async def migrated(self, plan: Obj) -> dict[str, str]:
        """Migration → its last step, once all of the plan are over."""
        wanted = {move["migration"] for move in plan["moves"]}

        async def idle() -> bool:
            state = await asyncio.to_thread(self.stack.service, "descheduler")
            return state["active_migrations"] == 0

        await self.until(f"the migrations of plan {plan['plan']} are over", idle)
        rows = await self.restow_json("get", "migrations")
        return {row["id"]: row["step"] for row in rows["items"] if row["id"] in wanted}

    async def fault(self, action: str, **fields: Any) -> None:
        await self.api.ok("POST", "/kubesim/faults", {"action": action, **fields})

    async def faults(self) -> list[Obj]:
        return (await self.api.ok("GET", "/kubesim/faults"))["rules"]

    async def break_watches(self, action: str, **fields: Any) -> None:
        await self.api.ok("POST", "/kubesim/watches", {"action": action, **fields})

    # -- beginning and end -----------------------------------------------------------------------------------------

    async def open(self) -> None:
        await self.api.ok("POST", "/api/v1/namespaces", {"metadata": {"name": self.ns}})
        await self.account(self.ns)

    async def account(self, ns: str) -> None:
        """Where ServiceAccounts are admitted, pods need this one, and a controller would make it only later."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        answer = await self.api.call("POST", f"/api/v1/namespaces/{ns}/serviceaccounts", account)
        assert answer.status < 300 or answer.status in (404, 409), answer.body

    async def close(self) -> None:
        """Nothing of the test is left for the next one: not in the API, and not in the log's state."""
        if self.stack.simulated:
            await self.api.ok("DELETE", "/kubesim/faults")
        for path in self._elsewhere:
            await self.remove(path)
        base = f"/namespaces/{self.ns}"
        for path in (
            f"{APPS}{base}/deployments", f"{APPS}{base}/replicasets", f"{VOLCANO}{base}/reservations",
            f"/apis/policy/v1{base}/poddisruptionbudgets",
        ):  # fmt: skip
            await self.remove(path)

        async def empty() -> bool:
            await self.remove(f"/api/v1{base}/pods", grace=0)
            return not await self.pods() and not await self.reservations()

        await self.until(f"namespace {self.ns} is empty", empty)
        for node in self._nodes:
            await self.remove(f"/api/v1/nodes/{node}")
        await self.remove(f"/api/v1/namespaces/{self.ns}")
        if self.stack.kind == "apiserver":
            await self.api.call("PUT", f"/api/v1/namespaces/{self.ns}/finalize", {"metadata": {"name": self.ns}, "spec": {"finalizers": []}})

        async def forgotten() -> bool:
            rows = await asyncio.to_thread(self.stack.service, "descheduler")
            return self.stack.kind == "cluster" or (rows["nodes"] == 0 and rows["active_migrations"] == 0 and rows["holds"] == 0)

        await self.until("the log has seen that everything is gone", forgotten)


def node_of(pod: Obj) -> str:
    return pod["spec"].get("nodeName", "")


def uid_of(pod: Obj) -> str:
    return pod["metadata"]["uid"]


def refused(answer: Answer) -> str:
    """Why an API server with schemas and CEL refuses an object."""
    assert answer.status == 422, (answer.status, answer.body)
    return answer.body["message"]


def fresh() -> str:
    return unique("t")
