"""Defaults of everything but pods."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from restow.kubesim import podspec, storage
from restow.kubesim.objects import Obj, dig
from restow.kubesim.resources import (
    CLUSTERROLEBINDINGS,
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    EVENTS,
    JOBS,
    NAMESPACES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    PRIORITYCLASSES,
    REPLICASETS,
    REPLICATIONCONTROLLERS,
    RESOURCECLAIMS,
    RESOURCECLAIMTEMPLATES,
    ROLEBINDINGS,
    SECRETS,
    SERVICES,
    STATEFULSETS,
    STORAGECLASSES,
    Resource,
)

if TYPE_CHECKING:
    from restow.kubesim.store import Store


def _spec(obj: Obj) -> Obj:
    spec = obj.get("spec")
    if not isinstance(spec, dict):
        spec = obj["spec"] = {}
    return spec


def _fill(target: Obj, **values: Any) -> None:
    for key, value in values.items():
        if target.get(key) is None:
            target[key] = value


def _template(spec: Obj) -> None:
    template = spec.get("template")
    if not isinstance(template, dict):
        return
    metadata = template.setdefault("metadata", {})
    if metadata is None:
        metadata = template["metadata"] = {}
    # A template's creationTimestamp is printed as null by older clients and never means anything.
    metadata.pop("creationTimestamp", None)
    if isinstance(template.get("spec"), dict):
        podspec.default_spec(template["spec"])


def _deployment(obj: Obj) -> None:
    spec = _spec(obj)
    _fill(spec, replicas=1, revisionHistoryLimit=10, progressDeadlineSeconds=600, strategy={})
    strategy = spec["strategy"]
    _fill(strategy, type="RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        _fill(strategy, rollingUpdate={})
        _fill(strategy["rollingUpdate"], maxUnavailable="25%", maxSurge="25%")
    _template(spec)


def _replicaset(obj: Obj) -> None:
    spec = _spec(obj)
    _fill(spec, replicas=1)
    _template(spec)


def _replicationcontroller(obj: Obj) -> None:
    spec = _spec(obj)
    _fill(spec, replicas=1, selector=dict(dig(spec, "template", "metadata", "labels", default={})))
    _template(spec)


def _statefulset(obj: Obj) -> None:
    spec = _spec(obj)
    _fill(spec, replicas=1, revisionHistoryLimit=10, podManagementPolicy="OrderedReady", updateStrategy={})
    _fill(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _fill(spec["updateStrategy"], rollingUpdate={})
        _fill(spec["updateStrategy"]["rollingUpdate"], partition=0)
    _fill(spec, persistentVolumeClaimRetentionPolicy={"whenDeleted": "Retain", "whenScaled": "Retain"})
    _template(spec)
    for claim in spec.get("volumeClaimTemplates") or ():
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
        _fill(_spec(claim), volumeMode="Filesystem")
        claim.setdefault("status", {"phase": "Pending"})


def _daemonset(obj: Obj) -> None:
    spec = _spec(obj)
    _fill(spec, revisionHistoryLimit=10, updateStrategy={})
    _fill(spec["updateStrategy"], type="RollingUpdate")
    if spec["updateStrategy"]["type"] == "RollingUpdate":
        _fill(spec["updateStrategy"], rollingUpdate={})
        _fill(spec["updateStrategy"]["rollingUpdate"], maxUnavailable=1, maxSurge=0)
    _template(spec)


def _job(obj: Obj) -> None:
    spec = _spec(obj)
    if spec.get("completions") is None and spec.get("parallelism") is None:
        spec["completions"] = 1
    _fill(
        spec,
        parallelism=1,
        backoffLimit=6,
        completionMode="NonIndexed",
        suspend=False,
        podReplacementPolicy="TerminatingOrFailed",
        manualSelector=None,
    )
    if spec.get("manualSelector") is None:
        spec.pop("manualSelector", None)
    _template(spec)
    if not spec.get("manualSelector") and isinstance(spec.get("template"), dict) and not spec.get("selector"):
        meta = obj["metadata"]
        uid, name = meta.get("uid", ""), meta.get("name", "")
        labels = spec["template"]["metadata"].setdefault("labels", {})
        labels.update(
            {
                "batch.kubernetes.io/controller-uid": uid,
                "batch.kubernetes.io/job-name": name,
                "controller-uid": uid,
                "job-name": name,
            }
        )
        spec["selector"] = {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}


def _cronjob(obj: Obj) -> None:
    spec = _spec(obj)
    _fill(
        spec, concurrencyPolicy="Allow", suspend=False, successfulJobsHistoryLimit=3, failedJobsHistoryLimit=1
    )
    job_spec = dig(spec, "jobTemplate", "spec")
    if isinstance(job_spec, dict):
        _template(job_spec)


def _service(store: Store, obj: Obj) -> None:
    spec = _spec(obj)
    _fill(spec, type="ClusterIP", sessionAffinity="None")
    for port in spec.get("ports") or ():
        _fill(port, protocol="TCP", targetPort=port.get("port"))
    if spec["type"] != "ExternalName":
        _fill(spec, internalTrafficPolicy="Cluster", ipFamilyPolicy="SingleStack", ipFamilies=["IPv4"])
        if not spec.get("clusterIP"):
            spec["clusterIP"] = _free_address(store)
        spec["clusterIPs"] = [spec["clusterIP"]]
    if spec["type"] in ("NodePort", "LoadBalancer"):
        _fill(spec, externalTrafficPolicy="Cluster")
        used = {p.get("nodePort") for s in store.list(SERVICES) for p in dig(s, "spec", "ports", default=())}
        free = (port for port in range(30000, 32768) if port not in used)
        for port in spec.get("ports") or ():
            if not port.get("nodePort"):
                port["nodePort"] = next(free)
        if spec["type"] == "LoadBalancer":
            _fill(spec, allocateLoadBalancerNodePorts=True)
    obj["status"] = {"loadBalancer": {}}


def _free_address(store: Store) -> str:
    used = {dig(service, "spec", "clusterIP") for service in store.list(SERVICES)}
    for number in range(2, 65_534):
        address = f"10.96.{number >> 8}.{number & 255}"
        if address not in used:
            return address
    return "None"


def _namespace(obj: Obj) -> None:
    spec = _spec(obj)
    _fill(spec, finalizers=["kubernetes"])
    obj["status"] = {"phase": "Active"}
    labels = obj["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = obj["metadata"].get("name", "")


def _claim(obj: Obj) -> None:
    _fill(_spec(obj), volumeMode="Filesystem")
    obj["status"] = {"phase": "Pending"}
    storage.protect(obj, storage.PROTECT_CLAIM)


def _volume(obj: Obj) -> None:
    _fill(_spec(obj), volumeMode="Filesystem", persistentVolumeReclaimPolicy="Retain")
    obj["status"] = {"phase": "Pending"}
    storage.protect(obj, storage.PROTECT_VOLUME)


def _secret(obj: Obj) -> None:
    _fill(obj, type="Opaque")
    plain = obj.pop("stringData", None)
    if isinstance(plain, dict):
        data = obj.setdefault("data", {})
        for key, value in plain.items():
            data[key] = base64.b64encode(str(value).encode()).decode()


def _node(obj: Obj) -> None:
    _spec(obj)
    status = obj.setdefault("status", {})
    if status.get("capacity") and not status.get("allocatable"):
        status["allocatable"] = dict(status["capacity"])


def _priorityclass(obj: Obj) -> None:
    _fill(obj, preemptionPolicy="PreemptLowerPriority")
    _fill(obj, value=0)


def _storageclass(obj: Obj) -> None:
    _fill(obj, reclaimPolicy="Delete", volumeBindingMode="Immediate")


def _resourceclaim(obj: Obj) -> None:
    _requests(_spec(obj))
    obj["status"] = {}


def _requests(spec: Obj) -> None:
    """Of a claim, or of what a template makes."""
    devices = spec.get("devices")
    for request in (devices.get("requests") or ()) if isinstance(devices, dict) else ():
        for one in (request.get("exactly"), *(request.get("firstAvailable") or ())) if isinstance(request, dict) else ():
            if isinstance(one, dict):
                _fill(one, allocationMode="ExactCount")
                if one["allocationMode"] == "ExactCount":
                    _fill(one, count=1)


def _role_binding(obj: Obj) -> None:
    for subject in obj.get("subjects") or ():
        if isinstance(subject, dict) and subject.get("kind") in ("User", "Group"):
            _fill(subject, apiGroup=ROLEBINDINGS.group)


def _event(event: Obj) -> None:
    """What Go writes of times that are not set and of a struct that is empty. `kubectl get events --sort-by=.lastTimestamp` lists nothing where no Event has
    the field."""
    for time in ("firstTimestamp", "lastTimestamp", "eventTime"):
        event.setdefault(time, None)
    event.setdefault("source", {})


_PLAIN: dict[tuple[str, str], Callable[[Obj], None]] = {
    DEPLOYMENTS.key: _deployment,
    REPLICASETS.key: _replicaset,
    REPLICATIONCONTROLLERS.key: _replicationcontroller,
    STATEFULSETS.key: _statefulset,
    DAEMONSETS.key: _daemonset,
    JOBS.key: _job,
    CRONJOBS.key: _cronjob,
    NAMESPACES.key: _namespace,
    PERSISTENTVOLUMECLAIMS.key: _claim,
    PERSISTENTVOLUMES.key: _volume,
    SECRETS.key: _secret,
    NODES.key: _node,
    EVENTS.key: _event,
    PRIORITYCLASSES.key: _priorityclass,
    STORAGECLASSES.key: _storageclass,
    RESOURCECLAIMS.key: _resourceclaim,
    RESOURCECLAIMTEMPLATES.key: lambda obj: _requests(_spec(obj).get("spec") or {}),
    ROLEBINDINGS.key: _role_binding,
    CLUSTERROLEBINDINGS.key: _role_binding,
}


def on_create(store: Store, resource: Resource, obj: Obj) -> None:
    """Fill what the client left out of a new object."""
    if resource == PODS:
        podspec.prepare_pod(store, obj)
    elif resource == SERVICES:
        _service(store, obj)
    elif fill := _PLAIN.get(resource.key):
        fill(obj)


# Defaults that hold again whenever a client replaces the object.
_ON_UPDATE = (
    DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS, CRONJOBS, STORAGECLASSES, PRIORITYCLASSES, ROLEBINDINGS, CLUSTERROLEBINDINGS,
    RESOURCECLAIMTEMPLATES,
)  # fmt: skip


def on_update(resource: Resource, obj: Obj, old: Obj) -> None:
    """Fill what a replacing client left out."""
    if resource == PODS:
        podspec.default_spec(obj["spec"])
        for key in ("enableServiceLinks", "serviceAccountName", "serviceAccount", "priority", "preemptionPolicy", "nodeName"):  # fmt: skip
            if key not in obj["spec"] and key in old["spec"]:
                obj["spec"][key] = old["spec"][key]
    elif resource == SERVICES:
        spec, before = _spec(obj), old.get("spec") or {}
        for key in ("clusterIP", "clusterIPs", "type", "sessionAffinity", "ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):  # fmt: skip
            if spec.get(key) is None and key in before:
                spec[key] = before[key]
        for port in spec.get("ports") or ():
            _fill(port, protocol="TCP", targetPort=port.get("port"))
    elif resource == NAMESPACES:
        if isinstance(old.get("spec"), dict):
            obj["spec"] = old["spec"]
        obj["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = old["metadata"]["name"]
    elif resource == JOBS:
        _template(_spec(obj))
    elif resource in (PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES):
        _fill(_spec(obj), volumeMode="Filesystem")
    elif resource == RESOURCECLAIMS:
        _requests(_spec(obj))
    elif resource == SECRETS:
        _secret(obj)
    elif resource in _ON_UPDATE:
        _PLAIN[resource.key](obj)
