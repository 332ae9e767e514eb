"""Simulated nodes: build them, create them, make them fail and come back."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from restow.kubesim.devices import COUNT, NVIDIA
from restow.kubesim.discovery import VERSION
from restow.kubesim.objects import Obj, clone, rfc3339
from restow.kubesim.podstate import annotations_of, condition_of
from restow.kubesim.resources import NODES
from restow.kubesim.store import Store, utc_now

READY = "kubesim.restow.dev/ready"
"""Annotation of a node: "true" (or none), "false" (kubelet unwell: Ready=False) or "unknown" (gone silent)."""
GPU_MODEL = "alibabacloud.com/gpu-card-model"


@dataclass(frozen=True, slots=True)
class NodeShape:
    """One node. `cpu` in millicores, `memory` in bytes, `gpus` whole devices."""

    name: str
    cpu: int
    memory: int
    pods: int = 110
    gpus: int = 0
    gpu_model: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Mapping[str, str], ...] = ()
    zone: str = ""
    extended: Mapping[str, str] = field(default_factory=dict)
    gpu_resources: tuple[str, ...] = (NVIDIA, COUNT)
    """Under which names the devices are advertised."""


def build_node(shape: NodeShape, *, number: int = 0, now: str = "") -> Obj:
    """The Node object as a kubelet registers it; `number` makes its address, `now` stamps its conditions, by default the time that it is."""
    labels = {
        "kubernetes.io/hostname": shape.name,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
    }
    if shape.zone:
        labels["topology.kubernetes.io/zone"] = shape.zone
    if shape.gpu_model:
        labels[GPU_MODEL] = shape.gpu_model
    labels.update(shape.labels)
    capacity = {
        "cpu": str(shape.cpu // 1000) if shape.cpu % 1000 == 0 else f"{shape.cpu}m",
        "memory": f"{shape.memory // 1024}Ki" if shape.memory % 1024 == 0 else str(shape.memory),
        "pods": str(shape.pods),
        "ephemeral-storage": "100Gi",
        **shape.extended,
    }
    if shape.gpus:
        capacity.update(dict.fromkeys(shape.gpu_resources, str(shape.gpus)))
    node: Obj = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": shape.name, "labels": labels},
        "spec": {"providerID": f"kubesim://{shape.name}"},
        "status": {
            "capacity": capacity,
            "allocatable": dict(capacity),
            "conditions": _healthy(now or rfc3339(utc_now())),
            "addresses": [
                {"type": "InternalIP", "address": _address(number)},
                {"type": "Hostname", "address": shape.name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": _info(shape.name),
        },
    }
    if shape.taints:
        node["spec"]["taints"] = [dict(taint) for taint in shape.taints]
    return node


def _address(number: int) -> str:
    return f"10.{number >> 16 & 127}.{number >> 8 & 255}.{number & 255}"


def _info(name: str) -> Obj:
    return {
        "machineID": name, "systemUUID": name, "bootID": name,
        "kernelVersion": "6.1.0", "osImage": "kubesim", "containerRuntimeVersion": "kubesim://1",
        "kubeletVersion": VERSION["gitVersion"], "kubeProxyVersion": VERSION["gitVersion"], "operatingSystem": "linux", "architecture": "amd64",
    }  # fmt: skip


def _healthy(now: str) -> list[Obj]:
    kinds = (
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    )
    return [
        {"type": kind, "status": status, "reason": reason, "message": message,
         "lastHeartbeatTime": now, "lastTransitionTime": now}
        for kind, status, reason, message in kinds
    ]  # fmt: skip


def create_nodes(store: Store, shapes: Iterable[NodeShape]) -> list[Obj]:
    """Create the nodes in the store; 409 if one exists."""
    first = store.count(NODES) + 1
    return [
        store.create(NODES, build_node(shape, number=first + i, now=store.now()), owned=True)
        for i, shape in enumerate(shapes)
    ]


def set_ready(store: Store, name: str, ready: bool | None) -> Obj:
    """Make a node Ready (True), NotReady (False) or silent (None: Ready=Unknown). 404 if there is none."""
    node = clone(store.get(NODES, "", name))
    text = {True: "true", False: "false", None: "unknown"}[ready]
    node["metadata"].setdefault("annotations", {})[READY] = text
    return store.update(NODES, node, owned=True)


def liveness_of(node: Obj) -> str:
    """True, False or Unknown: what the annotation says, otherwise the Ready condition, otherwise True."""
    text = annotations_of(node).get(READY, "").strip().lower()
    if text:
        return {"true": "True", "false": "False"}.get(text, "Unknown")
    condition = condition_of(node, "Ready")
    if condition is None or is_ours(condition):
        return "True"
    return condition.get("status", "True")


def is_ours(condition: Obj) -> bool:
    """The condition was set because of the annotation, and goes with it."""
    return READY in condition.get("message", "")


def address_of(node: Obj) -> str:
    for address in (node.get("status") or {}).get("addresses") or ():
        if address.get("type") == "InternalIP":
            return address["address"]
    return "10.0.0.1"
