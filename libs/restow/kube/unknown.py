"""Fields of a Reservation that mean nothing: misspelt, of the other form or API, or of a newer API.

A CRD's schema prunes them silently, but one that is not ours may keep them, and pod templates keep every field.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from restow.kube.decode import BAD_JSON, pruned

LIMIT = 16
"""Paths that are reported of one Reservation."""
_LONGEST = 200
_TEMPLATE = frozenset({"metadata", "spec"})
_TASK = frozenset({"name", "replicas", "template", "reservationNodeNames"})
_OWNER = frozenset({"object", "controller", "labelSelector"})
_REFERENCE = frozenset({"apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"})
_CONTROLLER = frozenset({"apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "namespace", "uid"})
_SELECTOR = frozenset({"matchLabels", "matchExpressions"})
_TAINT = frozenset({"effect", "key", "timeAdded", "value"})
_KOORDINATOR = frozenset(
    {
        "allocateOnce", "allocatePolicy", "expires", "matchPolicy", "owners", "preAllocation", "taints", "template", "ttl",
        "unschedulable",
    }
)  # fmt: skip
FIELDS = {
    "koordinator": _KOORDINATOR,
    "volcano": _KOORDINATOR | {"minAvailable", "queue", "schedulerName", "tasks"},
}
"""What `spec` has in each API."""
_POD = frozenset(
    {
        "activeDeadlineSeconds", "affinity", "automountServiceAccountToken", "containers", "dnsConfig", "dnsPolicy",
        "enableServiceLinks", "ephemeralContainers", "evictionResponders", "hostAliases", "hostIPC", "hostNetwork", "hostPID", "hostUsers",
        "hostname", "hostnameOverride", "imagePullSecrets", "initContainers", "nodeName", "nodeSelector", "os", "overhead",
        "preemptionPolicy", "priority", "priorityClassName", "readinessGates", "resourceClaims", "resources",
        "restartPolicy", "runtimeClassName", "schedulerName", "schedulingGates", "schedulingGroup", "securityContext",
        "serviceAccount", "serviceAccountName", "setHostnameAsFQDN", "shareProcessNamespace", "subdomain",
        "terminationGracePeriodSeconds", "tolerations", "topologySpreadConstraints", "volumes", "workloadRef",
    }
)  # fmt: skip
"""core/v1 PodSpec, as of Kubernetes 1.37."""
_CONTAINER = frozenset(
    {
        "args", "command", "env", "envFrom", "image", "imagePullPolicy", "lifecycle", "livenessProbe", "name", "ports",
        "readinessProbe", "resizePolicy", "resources", "restartPolicy", "restartPolicyRules", "securityContext", "startupProbe",
        "stdin", "stdinOnce", "targetContainerName", "terminationMessagePath", "terminationMessagePolicy", "tty",
        "volumeDevices", "volumeMounts", "workingDir",
    }
)  # fmt: skip
_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")


def unknown_fields(raw: msgspec.Raw, api: str) -> tuple[str, ...]:
    """Paths, in their alphabetical order, at most LIMIT of them. Names only, never values. Never raises."""
    body = bytes(raw)
    try:
        spec = msgspec.json.decode(body)
    except RecursionError:
        spec = msgspec.json.decode(pruned(body))
    except BAD_JSON:
        return ()
    found = sorted({path if len(path) <= _LONGEST else path[: _LONGEST - 3] + "..." for path in _walk(spec, FIELDS[api])})
    return tuple(found[:LIMIT])


def _walk(spec: Any, known: frozenset[str]) -> Iterator[str]:
    yield from _others(spec, known, "spec")
    if not isinstance(spec, dict):
        return
    yield from _template(spec.get("template"), "spec.template")
    for path, task in _each(spec.get("tasks") if "tasks" in known else None, "spec.tasks"):
        yield from _others(task, _TASK, path)
        yield from _template(task.get("template"), f"{path}.template")
    for path, owner in _each(spec.get("owners"), "spec.owners"):
        yield from _others(owner, _OWNER, path)
        yield from _others(owner.get("object"), _REFERENCE, f"{path}.object")
        yield from _others(owner.get("controller"), _CONTROLLER, f"{path}.controller")
        yield from _others(owner.get("labelSelector"), _SELECTOR, f"{path}.labelSelector")
    for path, taint in _each(spec.get("taints"), "spec.taints"):
        yield from _others(taint, _TAINT, path)


def _template(template: Any, path: str) -> Iterator[str]:
    yield from _others(template, _TEMPLATE, path)
    pod: Any = template.get("spec") if isinstance(template, dict) else None
    yield from _others(pod, _POD, f"{path}.spec")
    if isinstance(pod, dict):
        for field in _CONTAINERS:
            for at, container in _each(pod.get(field), f"{path}.spec.{field}"):
                yield from _others(container, _CONTAINER, at)


def _others(value: Any, known: Iterable[str], path: str) -> Iterator[str]:
    for name in value if isinstance(value, dict) else ():
        if name not in known:
            yield f"{path}.{name}"


def _each(values: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for i, value in enumerate(values if isinstance(values, list) else ()):
        if isinstance(value, dict):
            yield f"{path}[{i}]", value
