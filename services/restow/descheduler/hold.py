"""The Reservation that holds a migration's landing place (DESIGN 5): pinned to the target, without a ttl, for whatever pod
the same controller makes next. A pure function of the fold."""

from typing import Any

from restow.contracts import values as v
from restow.domain import resources as r
from restow.domain.records import Migration
from restow.domain.state import ClusterState
from restow.kube.annotations import MIGRATION

API = {"volcano": "batch.volcano.sh/v1alpha1", "koordinator": "scheduling.koordinator.sh/v1alpha1"}


def name_of(migration: str) -> str:
    return f"restow-{migration}"


def manifest(state: ClusterState, migration: Migration, door: str) -> dict[str, Any]:
    """Empty capacity on the target in the victim's size. Taints, selectors and affinity are not repeated: the plan has
    checked them, and the successor is checked again when it takes the hold."""
    move, shape = migration.move, state.shapes[migration.shape]
    pod = state.pods.get(move.pod)
    meta: dict[str, Any] = {"name": name_of(migration.id), "labels": {MIGRATION: str(migration.id)}}
    if door == "volcano":
        meta["namespace"] = move.namespace
    requests, annotations = _requests(shape)
    spec: dict[str, Any] = {
        "nodeName": move.target,
        "schedulerName": shape.scheduler,
        "containers": [{"name": "hold", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests, "limits": _limits(requests)}}],
    }
    if shape.priority_class:
        spec["priorityClassName"] = shape.priority_class
    if shape.priority:
        spec["priority"] = shape.priority
    if shape.tolerations:
        spec["tolerations"] = [_toleration(t) for t in shape.tolerations]
    template: dict[str, Any] = {"spec": spec}
    if annotations:
        template["metadata"] = {"annotations": annotations}
    owner = _owner(state, pod, move)
    return {
        "apiVersion": API[door],
        "kind": "Reservation",
        "metadata": meta,
        "spec": {"template": template, "owners": [owner], "allocateOnce": True, "ttl": "0s"},
    }


def _owner(state: ClusterState, pod: Any, move: v.Move) -> dict[str, Any]:
    """The top controller: a Deployment's next pod may come from another ReplicaSet."""
    if pod is None or pod.owner is None:
        return {"object": {"kind": "Pod", "namespace": move.namespace, "name": move.name}}
    above = state.workloads.get(pod.owner.uid)
    owner = pod.owner if above is None else above.owner
    return {
        "controller": {
            "apiVersion": owner.api_version, "kind": owner.kind, "namespace": move.namespace, "name": owner.name,
            "uid": owner.uid,
        }
    }


def _requests(shape: v.PodShape) -> tuple[dict[str, str], dict[str, str]]:
    """Quantities, and annotations for what no quantity of one container can say (shares of several GPUs)."""
    requests = {
        name: f"{amount}m" if name == r.CPU else str(amount)
        for name, amount in shape.requests.items()
        if name not in (r.PODS, r.GPU_MILLI) and amount
    }
    devices = shape.devices
    if devices is None:
        return requests, {}
    if devices.milli == r.WHOLE:
        return requests | {r.NVIDIA_GPU: str(devices.count)}, {}
    return requests, {r.ALIBABA_GPU_COUNT: str(devices.count), r.ALIBABA_GPU_MILLI: str(devices.milli)}


def _limits(requests: dict[str, str]) -> dict[str, str]:
    """Extended resources must have a limit equal to the request."""
    return {name: amount for name, amount in requests.items() if "/" in name}


def _toleration(t: v.Toleration) -> dict[str, Any]:
    said: dict[str, Any] = {"operator": t.operator}
    said |= {name: text for name, text in (("key", t.key), ("value", t.value), ("effect", t.effect)) if text}
    return said if t.seconds is None else said | {"tolerationSeconds": t.seconds}
