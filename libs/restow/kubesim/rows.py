"""The rows of everything but pods."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from restow.kubesim.ages import age, human, since
from restow.kubesim.amounts import cpu_text, memory_text, parse_quantity
from restow.kubesim.objects import Obj, dig, parse_time
from restow.kubesim.subselect import selector_text

_NONE = "<none>"
_UNKNOWN = "<unknown>"
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _name(obj: Obj) -> str:
    return str(obj["metadata"]["name"])


def _status(obj: Obj, field: str, default: Any = 0) -> Any:
    return dig(obj, "status", field, default=default)


def _containers(obj: Obj, *path: str) -> list[str]:
    containers = dig(obj, *(path or ("spec", "template", "spec", "containers")), default=())
    return [
        ",".join(item.get("name", "") for item in containers),
        ",".join(item.get("image", "") for item in containers),
    ]


def _selector(obj: Obj) -> str:
    selector = dig(obj, "spec", "selector")
    if not selector:
        return _NONE
    if "matchLabels" in selector or "matchExpressions" in selector:
        return selector_text(selector) or _NONE
    return _pairs(selector)


def _pairs(labels: Mapping[str, Any] | None) -> str:
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or _NONE


def plain(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), age(obj, now)]


def created_at(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), obj["metadata"].get("creationTimestamp", _UNKNOWN)]


def node_metrics(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), obj["usage"]["cpu"], obj["usage"]["memory"], obj["window"]]


def pod_metrics(obj: Obj, now: datetime) -> list[Any]:
    """What all containers use together."""
    used = [one["usage"] for one in obj["containers"]]
    cpu = sum(parse_quantity(one["cpu"], 10**9) for one in used)
    memory = sum(parse_quantity(one["memory"]) for one in used)
    return [_name(obj), cpu_text(cpu), memory_text(memory), obj["window"]]


def node(obj: Obj, now: datetime) -> list[Any]:
    ready = next((c for c in _status(obj, "conditions", ()) if c.get("type") == "Ready"), None)
    states = ["Unknown"] if ready is None else ["Ready" if ready.get("status") == "True" else "NotReady"]
    if dig(obj, "spec", "unschedulable"):
        states.append("SchedulingDisabled")
    roles = set()
    for key, value in (obj["metadata"].get("labels") or {}).items():
        if key.startswith("node-role.kubernetes.io/") and len(key) > 24:
            roles.add(key[24:])
        elif key == "kubernetes.io/role" and value:
            roles.add(value)
    addresses: dict[str, str] = {}
    for item in _status(obj, "addresses", ()):
        addresses.setdefault(item.get("type", ""), item.get("address", ""))
    info = _status(obj, "nodeInfo", {})
    return [
        _name(obj),
        ",".join(states),
        ",".join(sorted(roles)) or _NONE,
        age(obj, now),
        info.get("kubeletVersion", ""),
        addresses.get("InternalIP", _NONE),
        addresses.get("ExternalIP", _NONE),
        info.get("osImage") or _UNKNOWN,
        info.get("kernelVersion") or _UNKNOWN,
        info.get("containerRuntimeVersion") or _UNKNOWN,
    ]


def namespace(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), _status(obj, "phase", ""), age(obj, now)]


def event(obj: Obj, now: datetime) -> list[Any]:
    first = obj.get("firstTimestamp") or obj.get("eventTime")
    series = obj.get("series") or {}
    last = series.get("lastObservedTime") or obj.get("lastTimestamp") or first
    count = series.get("count") or obj.get("count") or 1
    involved = obj.get("involvedObject") or {}
    target = f"{(involved.get('kind') or '').lower()}/{involved.get('name') or ''}"
    source = obj.get("source") or {}
    parts = [source.get("component") or obj.get("reportingComponent") or "", source.get("host") or ""]
    return [
        since(last, now),
        obj.get("type", ""),
        obj.get("reason", ""),
        target,
        involved.get("fieldPath", ""),
        ", ".join(part for part in parts if part),
        (obj.get("message") or "").strip(),
        since(first, now),
        count,
        _name(obj),
    ]


def configmap(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), len(obj.get("data") or ()) + len(obj.get("binaryData") or ()), age(obj, now)]


def secret(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), obj.get("type", ""), len(obj.get("data") or ()), age(obj, now)]


def service(obj: Obj, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    ports = []
    for item in spec.get("ports") or ():
        number = f"{item.get('port')}:{item['nodePort']}" if item.get("nodePort") else str(item.get("port"))
        ports.append(f"{number}/{item.get('protocol', 'TCP')}")
    external = ",".join(spec.get("externalIPs") or ()) or _NONE
    if spec.get("type") == "LoadBalancer":
        ingress = dig(obj, "status", "loadBalancer", "ingress", default=())
        external = ",".join(item.get("ip") or item.get("hostname", "") for item in ingress) or "<pending>"
    elif spec.get("type") == "ExternalName":
        external = spec.get("externalName", "")
    return [
        _name(obj),
        spec.get("type", ""),
        spec.get("clusterIP") or _NONE,
        external,
        ",".join(ports) or _NONE,
        age(obj, now),
        _pairs(spec.get("selector")),
    ]


def serviceaccount(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), len(obj.get("secrets") or ()), age(obj, now)]


def endpoints(obj: Obj, now: datetime) -> list[Any]:
    found = [
        f"{address.get('ip')}:{port.get('port')}"
        for subset in obj.get("subsets") or ()
        for address in subset.get("addresses") or ()
        for port in subset.get("ports") or ()
    ]
    return [_name(obj), ",".join(found[:3]) + (f" + {len(found) - 3} more..." if len(found) > 3 else "") or _NONE, age(obj, now)]  # fmt: skip


def _modes(modes: Any) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in modes or ())


def volume(obj: Obj, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    claim_ref = spec.get("claimRef") or {}
    claim_name = f"{claim_ref.get('namespace', '')}/{claim_ref.get('name', '')}" if claim_ref else ""
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else _status(obj, "phase", "")
    return [
        _name(obj),
        dig(spec, "capacity", "storage", default=""),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        phase,
        claim_name,
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        _status(obj, "reason", ""),
        age(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def claim(obj: Obj, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    bound = bool(spec.get("volumeName"))
    phase = "Terminating" if "deletionTimestamp" in obj["metadata"] else _status(obj, "phase", "")
    return [
        _name(obj),
        phase,
        spec.get("volumeName", ""),
        dig(obj, "status", "capacity", "storage", default="") if bound else "",
        _modes(dig(obj, "status", "accessModes")) if bound else "",
        spec.get("storageClassName", ""),
        spec.get("volumeAttributesClassName") or "<unset>",
        age(obj, now),
        spec.get("volumeMode") or "<unset>",
    ]


def quota(obj: Obj, now: datetime) -> list[Any]:
    hard, used = _status(obj, "hard", {}), _status(obj, "used", {})
    parts = {name: f"{name}: {used.get(name, '0')}/{value}" for name, value in sorted(hard.items())}
    limits = ", ".join(text for name, text in parts.items() if name.startswith("limits."))
    requests = ", ".join(text for name, text in parts.items() if not name.startswith("limits."))
    return [_name(obj), requests, limits, age(obj, now)]


def deployment(obj: Obj, now: datetime) -> list[Any]:
    wanted = dig(obj, "spec", "replicas", default=0)
    ready = f"{_status(obj, 'readyReplicas')}/{wanted}"
    updated, available = _status(obj, "updatedReplicas"), _status(obj, "availableReplicas")
    return [_name(obj), ready, updated, available, age(obj, now), *_containers(obj), _selector(obj)]


def replicaset(obj: Obj, now: datetime) -> list[Any]:
    wanted = dig(obj, "spec", "replicas", default=0)
    counts = [wanted, _status(obj, "replicas"), _status(obj, "readyReplicas")]
    return [_name(obj), *counts, age(obj, now), *_containers(obj), _selector(obj)]


def statefulset(obj: Obj, now: datetime) -> list[Any]:
    ready = f"{_status(obj, 'readyReplicas')}/{dig(obj, 'spec', 'replicas', default=0)}"
    return [_name(obj), ready, age(obj, now), *_containers(obj)]


def daemonset(obj: Obj, now: datetime) -> list[Any]:
    fields = (
        "desiredNumberScheduled", "currentNumberScheduled", "numberReady", "updatedNumberScheduled", "numberAvailable",
    )  # fmt: skip
    nodes = _pairs(dig(obj, "spec", "template", "spec", "nodeSelector"))
    counts = [_status(obj, field) for field in fields]
    return [_name(obj), *counts, nodes, age(obj, now), *_containers(obj), _selector(obj)]


def revision(obj: Obj, now: datetime) -> list[Any]:
    owner = next((r for r in obj["metadata"].get("ownerReferences") or () if r.get("controller")), None)
    shown = _NONE
    if owner is not None:
        group = owner["apiVersion"].rpartition("/")[0]
        shown = f"{owner['kind'].lower()}{'.' + group if group else ''}/{owner['name']}"
    return [_name(obj), shown, obj.get("revision", 0), age(obj, now)]


def job(obj: Obj, now: datetime) -> list[Any]:
    completions = dig(obj, "spec", "completions")
    parallelism = dig(obj, "spec", "parallelism", default=0)
    succeeded = _status(obj, "succeeded")
    done = f"{succeeded}/{completions}" if completions is not None else f"{succeeded}/1 of {parallelism}"
    if completions is None and parallelism <= 1:
        done = f"{succeeded}/1"
    start, end = _status(obj, "startTime", ""), _status(obj, "completionTime", "")
    duration = ""
    if start:
        until = parse_time(end) if end else now
        duration = human((until - parse_time(start)).total_seconds())
    conditions = {c.get("type") for c in _status(obj, "conditions", ()) if c.get("status") == "True"}
    state = "Running"
    if "Complete" in conditions:
        state = "Complete"
    elif "Failed" in conditions:
        state = "Failed"
    elif "deletionTimestamp" in obj["metadata"]:
        state = "Terminating"
    elif "Suspended" in conditions:
        state = "Suspended"
    elif "FailureTarget" in conditions:
        state = "FailureTarget"
    elif "SuccessCriteriaMet" in conditions:
        state = "SuccessCriteriaMet"
    return [_name(obj), state, done, duration, age(obj, now), *_containers(obj), _selector(obj)]


def cronjob(obj: Obj, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    last = _status(obj, "lastScheduleTime", "")
    return [
        _name(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or _NONE,
        bool(spec.get("suspend")),
        len(_status(obj, "active", ())),
        since(last, now) if last else _NONE,
        age(obj, now),
        *_containers(obj, "spec", "jobTemplate", "spec", "template", "spec", "containers"),
        _NONE,
    ]


def budget(obj: Obj, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    shown = ["N/A" if value is None else str(value) for value in (least, most)]
    return [_name(obj), *shown, _status(obj, "disruptionsAllowed"), age(obj, now)]


def lease(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), dig(obj, "spec", "holderIdentity", default=""), age(obj, now)]


def priorityclass(obj: Obj, now: datetime) -> list[Any]:
    default = bool(obj.get("globalDefault"))
    return [_name(obj), obj.get("value", 0), default, age(obj, now), obj.get("preemptionPolicy", "")]


def storageclass(obj: Obj, now: datetime) -> list[Any]:
    name = _name(obj)
    if dig(obj, "metadata", "annotations", "storageclass.kubernetes.io/is-default-class") == "true":
        name += " (default)"
    return [
        name,
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy", "Delete"),
        obj.get("volumeBindingMode", "Immediate"),
        bool(obj.get("allowVolumeExpansion")),
        age(obj, now),
    ]


def csinode(obj: Obj, now: datetime) -> list[Any]:
    return [_name(obj), len(dig(obj, "spec", "drivers", default=())), age(obj, now)]


def resource_slice(obj: Obj, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    return [_name(obj), spec.get("nodeName") or "<unset>", spec.get("driver", ""), dig(spec, "pool", "name", default=""), age(obj, now)]


def resource_claim(obj: Obj, now: datetime) -> list[Any]:
    going, got = "deletionTimestamp" in obj["metadata"], dig(obj, "status", "allocation") is not None
    words = (going and "deleted", not going and not got and "pending", got and "allocated", got and dig(obj, "status", "reservedFor") and "reserved")
    return [_name(obj), ",".join(word for word in words if word), age(obj, now)]


def csidriver(obj: Obj, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    tokens = ",".join(item.get("audience", "") for item in spec.get("tokenRequests") or ()) or "<unset>"
    modes = ",".join(spec.get("volumeLifecycleModes") or ()) or "Persistent"
    flags = [
        spec.get("attachRequired", True),
        spec.get("podInfoOnMount", False),
        spec.get("storageCapacity", False),
    ]
    return [_name(obj), *flags, tokens, spec.get("requiresRepublish", False), modes, age(obj, now)]


def role_binding(obj: Obj, now: datetime) -> list[Any]:
    role, subjects = obj.get("roleRef") or {}, obj.get("subjects") or ()
    users, groups = (", ".join(s.get("name", "") for s in subjects if s.get("kind") == kind) for kind in ("User", "Group"))
    accounts = ", ".join(f"{s.get('namespace', '')}/{s.get('name', '')}" for s in subjects if s.get("kind") == "ServiceAccount")
    return [_name(obj), f"{role.get('kind', '')}/{role.get('name', '')}", age(obj, now), users, groups, accounts]


def admission_policy(obj: Obj, now: datetime) -> list[Any]:
    """Mutating and validating ones."""
    spec = obj.get("spec") or {}
    kind = spec.get("paramKind")
    parameters = f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else "<unset>"
    return [_name(obj), len(spec.get("mutations") or spec.get("validations") or ()), parameters, age(obj, now)]


def admission_binding(obj: Obj, now: datetime) -> list[Any]:
    spec = obj.get("spec") or {}
    reference = spec.get("paramRef")
    if not reference:
        shown = "<unset>"
    elif reference.get("name"):
        shown = f"{reference.get('namespace') or '*'}/{reference['name']}"
    else:
        shown = _in_go(reference.get("selector") or {})
    return [_name(obj), spec.get("policyName", ""), shown, age(obj, now)]


def _in_go(selector: Obj) -> str:
    """A label selector as Go prints it."""
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    terms = "".join(
        f"LabelSelectorRequirement{{Key:{term.get('key', '')},Operator:{term.get('operator', '')},Values:[{' '.join(term.get('values') or ())}],}},"
        for term in selector.get("matchExpressions") or ()
    )
    return f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},MatchExpressions:[]LabelSelectorRequirement{{{terms}}},}}"
