"""What `restow reserve` makes of a workload: Reservations that hold capacity for its next pods. Pure: objects in, manifests out."""

from __future__ import annotations

import base64
import hashlib
import json
from typing import Any

import msgspec

from restow.kube.annotations import IN_SHAPE, RESOURCE_SPEC
from restow.kube.reservations import ReservationApi

Obj = dict[str, Any]

LIKE = "restow.dev/like"
"""Annotation: the workload that a Reservation was made after, `deployment/web`."""
DIGEST = "restow.dev/like-digest"
"""Annotation: of all that was asked for. Equal digests, equal Reservations: asking twice makes one."""

API = {"volcano": "batch.volcano.sh/v1alpha1", "koordinator": "scheduling.koordinator.sh/v1alpha1"}
RESOURCE = {"volcano": "reservations.batch.volcano.sh", "koordinator": "reservations.scheduling.koordinator.sh"}
SINGULAR = {"volcano": "reservation.batch.volcano.sh", "koordinator": "reservation.scheduling.koordinator.sh"}

_KINDS = {
    "deployment": ("Deployment", "/apis/apps/v1", "deployments", ("deploy",)),
    "statefulset": ("StatefulSet", "/apis/apps/v1", "statefulsets", ("sts",)),
    "replicaset": ("ReplicaSet", "/apis/apps/v1", "replicasets", ("rs",)),
    "job": ("Job", "/apis/batch/v1", "jobs", ()),
    "pod": ("Pod", "/api/v1", "pods", ("po",)),
}
KINDS = tuple(_KINDS)

_SPEC = (
    "schedulerName", "nodeSelector", "affinity", "tolerations", "topologySpreadConstraints", "overhead", "resources", "resourceClaims",
    "priorityClassName", "priority", "preemptionPolicy", "runtimeClassName", "hostNetwork",
)  # fmt: skip
_CONTAINER = ("name", "image", "resources", "restartPolicy")
_VOLUMES = (
    "persistentVolumeClaim", "csi", "gcePersistentDisk", "awsElasticBlockStore", "azureDisk", "cinder", "fc", "iscsi", "rbd",
)  # fmt: skip
_ANNOTATIONS = (*IN_SHAPE, RESOURCE_SPEC, "scheduling.koordinator.sh/device-allocate-hint", "scheduling.koordinator.sh/numa-topology-spec")
_NAME = 52
"""Letters of a name, so that pods' and slots' names that begin with it stay short of the limits of Kubernetes."""


class LikeError(ValueError):
    """No Reservation can be made like this. Says what to do."""


class Workload(msgspec.Struct, frozen=True):
    """Which one is meant: `kind` as Kubernetes writes it, and where it is read."""

    kind: str
    name: str
    group: str
    plural: str

    @property
    def text(self) -> str:
        """`deployment/web`."""
        return f"{self.kind.lower()}/{self.name}"

    def path(self, namespace: str, one: bool = True) -> str:
        """Of the object, or of all of its kind in the namespace."""
        return f"{self.group}/namespaces/{namespace}/{self.plural}" + (f"/{self.name}" if one else "")


class Asked(msgspec.Struct, frozen=True):
    """What is to be held, but for the workload itself. `ttl` as Go writes durations, `expires` in RFC 3339."""

    namespace: str
    replicas: int = 1
    api: ReservationApi = "volcano"
    name: str = ""
    ttl: str = ""
    expires: str = ""
    node: str = ""
    queue: str = ""
    policy: str = ""
    by_labels: bool = False
    pre_allocation: bool = False


class Template(msgspec.Struct, frozen=True):
    """What a pod of the workload is like, and who its controller is: None where it has none. `labels` are those that the
    workload chooses its pods by, or the pod's own."""

    body: Obj
    controller: Obj | None
    labels: dict[str, str]


def parse(text: str) -> Workload:
    """`deployment/web`, as kubectl writes it. Raises LikeError."""
    said, _, name = text.strip().partition("/")
    kind = said.lower().partition(".")[0]
    for singular, (title, group, plural, short) in _KINDS.items():
        if kind in (singular, plural, *short) and name and "/" not in name:
            return Workload(title, name, group, plural)
    if name and "/" not in name:
        raise LikeError(f"--like {text}: {said!r} is no kind that pods can be taken from; allowed: {', '.join(KINDS)}")
    raise LikeError(f"--like {text!r}; allowed: KIND/NAME, such as deployment/web, with one of the kinds {', '.join(KINDS)}; -n names the namespace")


def template_of(workload: Workload, found: Obj, controller: Obj | None = None) -> Template:
    """Of the object as the API has it. `controller`: of a pod, what stands above its controller (the Deployment of its
    ReplicaSet). Only what scheduling reads is taken over: no env, no arguments, no secrets."""
    spec = found.get("spec") or {}
    if workload.kind == "Pod":
        template: Obj = found
        owner = controller or controller_of(found)
        labels = dict((found.get("metadata") or {}).get("labels") or {})
    else:
        template = spec.get("template") or {}
        owner = {"apiVersion": workload.group.removeprefix("/apis/"), "kind": workload.kind, "name": workload.name}
        owner["uid"] = (found.get("metadata") or {}).get("uid", "")
        labels = dict((spec.get("selector") or {}).get("matchLabels") or {})
    meta, pod = template.get("metadata") or {}, template.get("spec") or {}
    if not pod.get("containers"):
        raise LikeError(f"{workload.text} has no pod template with containers; name another workload")
    labels = labels or dict(meta.get("labels") or {})
    return Template(_slim(meta, pod), owner, labels)


def controller_of(found: Obj) -> Obj | None:
    """The reference to what controls an object."""
    references = (found.get("metadata") or {}).get("ownerReferences") or ()
    return next(({k: r.get(k, "") for k in ("apiVersion", "kind", "name", "uid")} for r in references if r.get("controller")), None)


def _slim(meta: Obj, pod: Obj) -> Obj:
    spec = {key: pod[key] for key in _SPEC if pod.get(key)}
    host = bool(pod.get("hostNetwork"))
    spec["containers"] = [_container(c, host) for c in pod["containers"]]
    if pod.get("initContainers"):
        spec["initContainers"] = [_container(c, host) for c in pod["initContainers"]]
    volumes = [{k: v for k, v in volume.items() if k in ("name", *_VOLUMES)} for volume in pod.get("volumes") or ()]
    if volumes := [volume for volume in volumes if len(volume) > 1]:
        spec["volumes"] = volumes
    kept = {key: meta["annotations"][key] for key in _ANNOTATIONS if key in (meta.get("annotations") or {})}
    slim = {"labels": meta.get("labels") or {}, "annotations": kept}
    return {"metadata": {k: v for k, v in slim.items() if v}, "spec": spec}


def _container(container: Obj, host: bool) -> Obj:
    slim = {key: container[key] for key in _CONTAINER if container.get(key)}
    if ports := [port for port in container.get("ports") or () if host or port.get("hostPort")]:
        slim["ports"] = ports
    return slim


def manifests(workload: Workload, template: Template, asked: Asked) -> list[Obj]:
    """The Reservations to create: one with all slots for Volcano's API, one a slot for Koordinator's. Raises LikeError."""
    owner = _owner(workload, template, asked)
    pod = json.loads(json.dumps(template.body))
    if asked.node:
        pod["spec"]["nodeName"] = asked.node
    common: Obj = {"owners": [owner]}
    if asked.expires:
        common["expires"] = asked.expires
    else:
        common["ttl"] = asked.ttl
    if asked.policy:
        common["allocatePolicy"] = asked.policy
    if asked.pre_allocation:
        common["preAllocation"] = True
    if asked.api == "volcano":
        # Its slots are `pod-0`, `pod-1`, ... in what `restow describe` shows.
        task = {"name": "pod", "replicas": asked.replicas, "template": pod}
        spec = {"queue": asked.queue, "tasks": [task], "matchPolicy": "Owner", **common}
        return [_object(workload, asked, {k: v for k, v in spec.items() if v}, "")]
    spec = {"template": pod, "allocateOnce": True, **common}
    if asked.replicas == 1:
        return [_object(workload, asked, spec, "")]
    return [_object(workload, asked, spec, f"-{i}") for i in range(asked.replicas)]


def _owner(workload: Workload, template: Template, asked: Asked) -> Obj:
    if template.controller is not None and not asked.by_labels:
        controller = {k: v for k, v in template.controller.items() if v}
        if asked.api == "koordinator":
            # Koordinator's own CRD wants the uid; and its Reservations are for all namespaces.
            return {"controller": {**controller, "namespace": asked.namespace}}
        # Without the uid: a workload that is deleted and made anew under its name is still the one that was meant.
        return {"controller": {k: v for k, v in controller.items() if k != "uid"}}
    if not template.labels:
        raise LikeError(
            f"{workload.text} has neither a controller nor labels: nothing tells which pods the capacity is for. Give it a label, or "
            "name the workload that its pods belong to"
        )
    if asked.api == "koordinator":
        return {"object": {"kind": "Pod", "namespace": asked.namespace}, "labelSelector": {"matchLabels": template.labels}}
    return {"labelSelector": {"matchLabels": template.labels}}


def _object(workload: Workload, asked: Asked, spec: Obj, suffix: str) -> Obj:
    digest = _digest(asked.api, asked.namespace, workload.text, spec, asked.replicas)
    name = (asked.name or f"like-{workload.name}"[:_NAME].rstrip("-.") + f"-{digest[:5]}") + suffix
    meta: Obj = {"name": name}
    if asked.api == "volcano":
        meta["namespace"] = asked.namespace
    meta["annotations"] = {LIKE: workload.text, DIGEST: digest}
    return {"apiVersion": API[asked.api], "kind": "Reservation", "metadata": meta, "spec": spec}


def _digest(*said: Any) -> str:
    """In letters and digits that a name may have."""
    text = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return base64.b32encode(hashlib.sha256(text.encode()).digest()).decode().lower()[:12]


def renamed(manifest: Obj, number: int) -> Obj:
    """The same under a further name, for when one of that name is used up."""
    meta = manifest["metadata"]
    return {**manifest, "metadata": {**meta, "name": f"{meta['name']}-{number}"}}


def same(manifest: Obj, found: Obj) -> bool:
    """Whether the object that is there was asked for in the same words."""
    annotations = (found.get("metadata") or {}).get("annotations") or {}
    return annotations.get(DIGEST) == manifest["metadata"]["annotations"][DIGEST]


def phase_of(found: Obj) -> tuple[str, str, str]:
    """Phase, reason and message, as either API's status says them; empty where nobody has looked at it yet."""
    status = found.get("status") or {}
    state = status.get("state") or {}
    phase = state.get("phase") or status.get("phase") or ""
    said = [c for c in status.get("conditions") or () if c.get("status") == "False" and (c.get("message") or c.get("reason"))]
    last = said[-1] if said else {}
    return phase, state.get("reason") or last.get("reason") or "", state.get("message") or last.get("message") or ""

