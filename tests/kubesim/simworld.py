"""A cluster in virtual time for tests of the controllers: no sleeps, no sockets."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from typing import Any

from restow.kubesim.cluster import Cluster
from restow.kubesim.controllers import Running, start
from restow.kubesim.nodes import NodeShape, create_nodes
from restow.kubesim.objects import Obj, clone
from restow.kubesim.resources import NODES, PODS, Resource
from restow.kubesim.timers import Timings, VirtualLoop

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
GIB = 1 << 30


class World:
    """The store, the controllers and the hands of the clock."""

    def __init__(
        self, *, nodes: int = 0, timings: Timings | None = None, controllers: bool = True, **shape: Any
    ):
        self.loop = VirtualLoop()
        self.cluster = Cluster(
            clock=lambda: EPOCH + timedelta(seconds=self.loop.now),
            rng=random.Random(1),
            soon=self.loop.call_soon,
        )
        self.store = self.cluster.store
        self.timings = timings or Timings(heartbeat=0)
        self.running: Running | None = None
        if controllers:
            self.start()
        self.add_nodes(nodes, **shape)

    def start(self) -> None:
        self.running = start(self.store, self.loop, timings=self.timings, clock=self.loop.time)

    def add_nodes(self, count: int, *, prefix: str = "n", **shape: Any) -> None:
        first = self.store.count(NODES) if prefix == "n" else 0
        for number in range(first, first + count):
            self.add_node(f"{prefix}{number}", **{"cpu": 4000, "memory": 8 * GIB, **shape})

    def add_node(self, name: str, **shape: Any) -> None:
        create_nodes(self.store, [NodeShape(name=name, **shape)])
        self.run()

    def run(self, seconds: float = 0.0) -> None:
        """Let so much time pass, with everything that falls due in it."""
        self.loop.advance(seconds)

    # -- objects --------------------------------------------------------------------------------

    def create(self, resource: Resource, name: str, spec: Obj, **meta: Any) -> Obj:
        body = {"metadata": {"name": name, **meta}, "spec": spec}
        namespace = "default" if resource.namespaced else ""
        obj = self.store.create(resource, body, namespace)
        self.run()
        return obj

    def get(self, resource: Resource, name: str) -> Obj:
        return self.store.get(resource, "default" if resource.namespaced else "", name)

    def find(self, resource: Resource, name: str) -> Obj | None:
        return self.store.find(resource, "default" if resource.namespaced else "", name)

    def change(self, resource: Resource, name: str, **spec: Any) -> Obj:
        """Set fields of the spec; None removes one."""
        obj = clone(self.get(resource, name))
        for field, value in spec.items():
            if value is None:
                obj["spec"].pop(field, None)
            else:
                obj["spec"][field] = value
        return self._update(resource, obj)

    def annotate(self, resource: Resource, name: str, **annotations: str | None) -> Obj:
        obj = clone(self.get(resource, name))
        have = obj["metadata"].setdefault("annotations", {})
        for key, value in annotations.items():
            if value is None:
                have.pop(key, None)
            else:
                have[key] = value
        return self._update(resource, obj)

    def label(self, resource: Resource, name: str, **labels: str) -> Obj:
        obj = clone(self.get(resource, name))
        obj["metadata"].setdefault("labels", {}).update(labels)
        return self._update(resource, obj)

    def _update(self, resource: Resource, obj: Obj) -> Obj:
        obj = self.store.update(resource, obj)
        self.run()
        return obj

    def delete(self, resource: Resource, name: str, **options: Any) -> None:
        self.store.delete(resource, "default" if resource.namespaced else "", name, **options)
        self.run()

    def status(self, resource: Resource, name: str) -> Obj:
        return self.get(resource, name).get("status") or {}

    # -- pods -----------------------------------------------------------------------------------

    def pods(self) -> list[Obj]:
        return self.store.list(PODS, "default")

    def names(self) -> list[str]:
        return [pod["metadata"]["name"] for pod in self.pods()]

    def alive(self) -> list[Obj]:
        """Pods that are not being deleted and not finished."""
        return [p for p in self.pods() if not deleting(p) and phase(p) not in ("Failed", "Succeeded")]

    def pod(self, name: str = "p", node: str | None = "n0", **more: Any) -> Obj:
        """Create a pod, bound if a node is given."""
        meta = {k: more.pop(k) for k in ("labels", "annotations", "ownerReferences") if k in more}
        spec = pod_spec(**more)
        if node:
            spec["nodeName"] = node
        else:
            spec["schedulerName"] = more.get("schedulerName", "restow")
        return self.create(PODS, name, spec, **meta)

    def bind(self, pod: Obj, node: str) -> None:
        live = self.get(PODS, pod["metadata"]["name"])
        self.store.update(PODS, {**live, "spec": {**live["spec"], "nodeName": node}}, subresource="binding")
        self.run()


def pod_spec(cpu: str = "100m", memory: str = "64Mi", **more: Any) -> Obj:
    """A spec with one container; keyword `requests` adds resources, others are fields of the spec."""
    requests = {"cpu": cpu, "memory": memory, **more.pop("requests", {})}
    extended = {k: v for k, v in requests.items() if "/" in k}
    container = {"name": "c", "image": "i", "resources": {"requests": requests, "limits": extended}}
    container.update(more.pop("container", {}))
    return {"containers": [container], **more}


def workload(labels: Obj | None = None, *, spec: Obj | None = None, **more: Any) -> Obj:
    """The spec of a workload with selector and template."""
    labels = labels or {"app": "web"}
    template = {"metadata": {"labels": dict(labels)}, "spec": spec or pod_spec()}
    return {"selector": {"matchLabels": dict(labels)}, "template": template, **more}


def phase(pod: Obj) -> str:
    return pod["status"]["phase"]


def deleting(pod: Obj) -> bool:
    return "deletionTimestamp" in pod["metadata"]


def condition(obj: Obj, kind: str) -> Obj | None:
    for one in (obj.get("status") or {}).get("conditions") or ():
        if one["type"] == kind:
            return one
    return None


def is_ready(pod: Obj) -> bool:
    found = condition(pod, "Ready")
    return found is not None and found["status"] == "True"


def name_of(obj: Obj) -> str:
    return obj["metadata"]["name"]
