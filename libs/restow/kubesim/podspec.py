"""Defaults of pods and pod templates, as users see them on a real cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from restow.kubesim.errors import forbidden
from restow.kubesim.objects import Obj
from restow.kubesim.resources import PODS, PRIORITYCLASSES

if TYPE_CHECKING:
    from restow.kubesim.store import Store

_NOT_READY = "node.kubernetes.io/not-ready"
_UNREACHABLE = "node.kubernetes.io/unreachable"


def default_spec(spec: Obj) -> None:
    """Defaults of every PodSpec, in pods and in templates."""
    if spec.get("serviceAccount") and not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"]
    elif spec.get("serviceAccountName"):
        spec["serviceAccount"] = spec["serviceAccountName"]
    for key, value in (
        ("restartPolicy", "Always"),
        ("terminationGracePeriodSeconds", 30),
        ("dnsPolicy", "ClusterFirst"),
        ("schedulerName", "default-scheduler"),
    ):
        if spec.get(key) is None or spec[key] == "":
            spec[key] = value
    if spec.get("securityContext") is None:
        spec["securityContext"] = {}
    for container in spec.get("containers") or ():
        default_container(container)
    for container in spec.get("initContainers") or ():
        default_container(container)
    for volume in spec.get("volumes") or ():
        _default_volume(volume)
    for constraint in spec.get("topologySpreadConstraints") or ():
        constraint.setdefault("whenUnsatisfiable", "DoNotSchedule")


def default_container(container: Obj) -> None:
    image = container.get("image") or ""
    if not container.get("imagePullPolicy"):
        tag = image.rpartition("/")[2].partition("@")[0].partition(":")[2]
        latest = tag == "latest" or (not tag and "@" not in image)
        container["imagePullPolicy"] = "Always" if latest else "IfNotPresent"
    container.setdefault("terminationMessagePath", "/dev/termination-log")
    container.setdefault("terminationMessagePolicy", "File")
    if container.get("resources") is None:
        container["resources"] = {}
    for port in container.get("ports") or ():
        port.setdefault("protocol", "TCP")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if probe := container.get(name):
            for key, value in (("timeoutSeconds", 1), ("periodSeconds", 10), ("successThreshold", 1), ("failureThreshold", 3)):  # fmt: skip
                probe.setdefault(key, value)
            if get := probe.get("httpGet"):
                get.setdefault("path", "/")
                get.setdefault("scheme", "HTTP")
    for variable in container.get("env") or ():
        source = variable.get("valueFrom") or {}
        if field := source.get("fieldRef"):
            field.setdefault("apiVersion", "v1")


def _default_volume(volume: Obj) -> None:
    sources = [key for key in volume if key != "name"]
    if not sources:
        volume["emptyDir"] = {}
    for kind in ("configMap", "secret", "projected", "downwardAPI"):
        if isinstance(volume.get(kind), dict):
            volume[kind].setdefault("defaultMode", 420)
    if isinstance(volume.get("hostPath"), dict):
        volume["hostPath"].setdefault("type", "")
    for source in (volume.get("projected") or {}).get("sources") or ():
        if token := source.get("serviceAccountToken"):
            token.setdefault("expirationSeconds", 3600)


def prepare_pod(store: Store, pod: Obj) -> None:
    """Defaults and the built-in admission of a new pod."""
    spec: Any = pod.get("spec")
    if not isinstance(spec, dict):
        spec = pod["spec"] = {}
    default_spec(spec)
    if spec.get("enableServiceLinks") is None:
        spec["enableServiceLinks"] = True
    for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
        _requests_from_limits(container["resources"])
    if not spec.get("serviceAccountName"):
        spec["serviceAccountName"] = spec["serviceAccount"] = "default"
    _set_priority(store, pod, spec)
    _tolerate_node_problems(spec)
    pod["status"] = {"phase": "Pending", "qosClass": qos_class(spec)}
    if spec.get("schedulingGates"):
        why = {"reason": "SchedulingGated", "message": "Scheduling is blocked due to non-empty scheduling gates"}
        said = {"type": "PodScheduled", "status": "False", "lastProbeTime": None, "lastTransitionTime": store.now()}
        pod["status"]["conditions"] = [said | why]


def _requests_from_limits(resources: Obj) -> None:
    limits = resources.get("limits")
    if not limits:
        return
    requests = dict(resources.get("requests") or {})
    for name, value in limits.items():
        requests.setdefault(name, value)
    resources["requests"] = requests


def _set_priority(store: Store, pod: Obj, spec: Obj) -> None:
    name = spec.get("priorityClassName")
    value, policy = 0, "PreemptLowerPriority"
    if name:
        found = store.find(PRIORITYCLASSES, "", name)
        if found is None:
            why = f"no PriorityClass with name {name} was found"
            raise forbidden(PODS, pod["metadata"].get("name", ""), why)
    else:
        defaults = [item for item in store.list(PRIORITYCLASSES) if item.get("globalDefault")]
        found = min(defaults, key=lambda item: item["value"], default=None)
        if found is not None:
            spec["priorityClassName"] = found["metadata"]["name"]
    if found is not None:
        value, policy = found["value"], found.get("preemptionPolicy", policy)
    given = spec.get("priority")
    if given is not None and given != value:
        why = (
            f"the integer value of priority ({given}) must not be provided in pod spec; "
            f"priority admission controller computed {value} from the given PriorityClass name"
        )
        raise forbidden(PODS, pod["metadata"].get("name", ""), why)
    spec["priority"] = value
    spec["preemptionPolicy"] = spec.get("preemptionPolicy") or policy


def _tolerate_node_problems(spec: Obj) -> None:
    """Admission DefaultTolerationSeconds."""
    tolerations = spec.get("tolerations") or []
    added = []
    for key in (_NOT_READY, _UNREACHABLE):
        covered = any(
            item.get("key", "") in ("", key) and item.get("effect", "") in ("", "NoExecute")
            for item in tolerations
        )
        if not covered:
            added.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    if added:
        spec["tolerations"] = [*tolerations, *added]


def qos_class(spec: Obj) -> str:
    """Guaranteed, Burstable or BestEffort, from cpu and memory of all containers."""
    containers = [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
    wanted: set[str] = set()
    guaranteed = bool(containers)
    for container in containers:
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        for name in ("cpu", "memory"):
            asked, limit = not _zero(requests.get(name)), not _zero(limits.get(name))
            if asked or limit:
                wanted.add(name)
            if not limit or requests.get(name, limits.get(name)) != limits.get(name):
                guaranteed = False
    if not wanted:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _zero(quantity: Any) -> bool:
    return quantity is None or str(quantity).strip("0.") == ""
