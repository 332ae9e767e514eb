"""The Kubernetes objects that plans speak of, as a user would write them."""

from typing import Any

from restow.kubesim.nodes import NodeShape, build_node
from simulation.plan import NodeSpec, Workload

Obj = dict[str, Any]
NS = "play"
PRIORITIES = {"low": 10, "high": 1_000, "urgent": 100_000}
"""PriorityClasses of a run, beside the system's."""
PLURALS = {
    "Deployment": ("apps", "deployments"),
    "ReplicaSet": ("apps", "replicasets"),
    "StatefulSet": ("apps", "statefulsets"),
    "Job": ("batch", "jobs"),
    "Gang": ("batch", "jobs"),
    "Pod": ("", "pods"),
}
"""Kind of a workload → group and plural of the object that makes its pods."""


def node(spec: NodeSpec, number: int, now: str) -> Obj:
    shape = NodeShape(
        spec.name, spec.cpu, spec.memory << 20, gpus=spec.gpus, gpu_model=spec.model, zone=spec.zone
    )  # fmt: skip
    return build_node(shape, number=number, now=now)


def requests(workload: Workload) -> Obj:
    """Of its one container."""
    asked: Obj = {"cpu": f"{workload.cpu}m", "memory": f"{workload.memory}Mi"}
    extended: Obj = {}
    if workload.gpus:
        extended = {"nvidia.com/gpu": str(workload.gpus)}
    elif workload.milli:
        extended = {"alibabacloud.com/gpu-milli": str(workload.milli), "alibabacloud.com/gpu-count": "1"}
    return {"requests": asked | extended} | ({"limits": extended} if extended else {})


def pod_spec(workload: Workload) -> Obj:
    spec: Obj = {
        "schedulerName": workload.scheduler,
        "terminationGracePeriodSeconds": workload.grace,
        "automountServiceAccountToken": False,
        "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": requests(workload)}],
    }
    if workload.priority:
        spec["priorityClassName"] = workload.priority
    if workload.kind in ("Job", "Gang"):
        spec["restartPolicy"] = "Never"
    return spec


WORD = "8s"
"""How long a workload may take to say whether a pod of it may be moved."""


def template(workload: Workload) -> Obj:
    annotations: Obj = {}
    if workload.kind == "Gang":
        annotations["scheduling.k8s.io/group-name"] = workload.name
    if workload.stops:
        annotations["kubesim.restow.dev/stop-after"] = f"{workload.stops}s"
    if workload.runs:
        annotations["kubesim.restow.dev/run-for"] = f"{workload.runs}s"
    if workload.hook:
        annotations |= {"restow.dev/before-move": "annotation", "restow.dev/move-deadline": WORD}
    if workload.hook == "assents":
        annotations["restow.dev/on-silence"] = "evict"
    return {"metadata": {"labels": {"app": workload.name}, "annotations": annotations}, "spec": pod_spec(workload)}


def workload(what: Workload) -> Obj:
    """The object that makes its pods, or the pod."""
    meta: Obj = {"name": what.name, "namespace": NS, "labels": {"app": what.name}}
    made = template(what)
    if what.kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", "metadata": meta | {"annotations": made["metadata"]["annotations"]}, "spec": made["spec"]}
    if what.kind in ("Job", "Gang"):
        spec: Obj = {"parallelism": what.replicas, "completions": what.replicas, "backoffLimit": 1000, "template": made}
        return {"apiVersion": "batch/v1", "kind": "Job", "metadata": meta, "spec": spec}
    spec = {"replicas": what.replicas, "selector": {"matchLabels": {"app": what.name}}, "template": made}
    if what.kind == "StatefulSet":
        spec |= {"serviceName": what.name, "podManagementPolicy": "Parallel"}
    return {"apiVersion": "apps/v1", "kind": what.kind, "metadata": meta, "spec": spec}


def group(what: Workload) -> Obj:
    """The PodGroup of a gang."""
    spec: Obj = {"minMember": what.minimum}
    if what.queue:
        spec["queue"] = what.queue
    if what.priority:
        spec["priorityClassName"] = what.priority
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": what.name, "namespace": NS}, "spec": spec}


def budget(name: str, most: str) -> Obj:
    """A PodDisruptionBudget of a workload; `most` may be unavailable."""
    spec = {"selector": {"matchLabels": {"app": name}}, "maxUnavailable": int(most) if most.isdecimal() else most}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": NS}, "spec": spec}


def priority_class(name: str, value: int) -> Obj:
    return {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value}


def queue(name: str, weight: int, cpu: int, gpus: int) -> Obj:
    """`cpu` in millicores; 0 for no bound."""
    capability = ({"cpu": f"{cpu}m"} if cpu else {}) | ({"nvidia.com/gpu": gpus} if gpus else {})
    spec: Obj = {"weight": weight} | ({"capability": capability} if capability else {})
    return {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def owners(what: Workload, how: str) -> list[Obj]:
    """The pods of a workload, said in one of OWNERS."""
    selector: Obj = {"matchLabels": {"app": what.name}}
    if how == "expression":
        selector = {"matchExpressions": [{"key": "app", "operator": "In", "values": [what.name]}]}
    return [{"labelSelector": selector}]


OWNERS = ("labels", "expression")


def reservation(name: str, what: Workload, replicas: int, ttl: int, how: str = "labels") -> Obj:
    """Seed 000's: capacity for so many pods of this workload."""
    made = template(what)
    said = {"name": "t", "replicas": replicas, "template": {"metadata": {"labels": made["metadata"]["labels"]}, "spec": made["spec"]}}
    spec: Obj = {"schedulerName": "restow", "ttl": f"{ttl}s", "tasks": [said], "owners": owners(what, how), "matchPolicy": "Owner"}
    return {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name, "namespace": NS}, "spec": spec}


def koordinator(name: str, what: Workload, once: bool, ttl: int, how: str = "labels", waits: bool = False) -> Obj:
    """Seed 004's: capacity for a pod of this workload."""
    made = template(what)
    spec: Obj = {
        "template": {"metadata": {"namespace": NS, "labels": made["metadata"]["labels"]}, "spec": made["spec"]},
        "owners": owners(what, how), "ttl": f"{ttl}s", "allocateOnce": once,
    }  # fmt: skip
    if waits:
        spec["preAllocation"] = True
    return {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name}, "spec": spec}


SCHEDULERS = (
    "schedulerNames: [restow, volcano, koord-scheduler]\n",
    """\
schedulerNames: [restow, volcano, koord-scheduler]
actions: "enqueue, reserve, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
  - name: proportion
  - name: nodeorder
    arguments:
      leastrequested.weight: 0
      balancedresource.weight: 0
  - name: binpack
    arguments:
      binpack.weight: 10
      binpack.resources: nvidia.com/gpu
      binpack.resources.nvidia.com/gpu: 2
  - name: reservation
""",
    """\
schedulerNames: [restow, volcano, koord-scheduler]
actions: "enqueue, reserve, allocate, preempt, reclaim, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
  - name: reservation
""",
)
"""Volcano's defaults; packing; preemption and reclaim."""

_POLICY = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: restow
    pluginConfig:
      - name: Defragmentation
        args:
          ResourceType: {resource}
          lowThresholds: {{{resource}: {low}}}
          defragmentThresholds: {{{resource}: {defragment}}}
          protectionThresholds: {{{resource}: 95}}
          coolDownTime: {cooldown}
{args}    plugins:
      balance:
        enabled: [Defragmentation]
restow:
  interval: {interval}
  concurrent: {concurrent}
  holdDeadline: 20s
  evictDeadline: 20s
  landDeadline: {land}
  budgetPatience: 10s
  abortDeadline: 30s
{bounds}"""

_SEARCH = "          planner: optimizing\n          objective: nodes\n          searchSteps: 400\n"
_OFTEN = {"resource": "cpu", "low": 60, "defragment": 65, "cooldown": 0, "interval": "5s", "concurrent": 8, "land": "30s", "args": _SEARCH}

POLICIES = (
    {"resource": "nvidia.com/gpu", "low": 60, "defragment": 65, "cooldown": 0, "interval": "15s", "concurrent": 8, "land": "40s"},
    {"resource": "cpu", "low": 60, "defragment": 65, "cooldown": 0, "interval": "15s", "concurrent": 8, "land": "40s"},
    {"resource": "nvidia.com/gpu", "low": 40, "defragment": 45, "cooldown": 5, "interval": "8s", "concurrent": 50, "land": "120s"},
    _OFTEN,
    _OFTEN | {"bounds": "  maxUnavailable: 0\n"},
    _OFTEN | {"args": _SEARCH + "          wholeNodes: true\n", "bounds": "  maxUnavailable: 2\n"},
)
"""Devices or cores packed together, now and then or often; without a bound for each workload; whole nodes or nothing."""


BUDGETS = """  budgets:
  - {name: few, evictions: 1, within: 1m}
  - {name: each, evictions: 3, within: 5m, per: namespace}
"""


def policy(number: int, interval: str = "", beside: bool = False, budgets: bool = False) -> str:
    """One of POLICIES; another interval for the end of a run; whether pods of the stock scheduler are moved, too; with eviction budgets, or without."""
    said = {"args": "", "bounds": ""} | POLICIES[number]
    if beside:
        said["bounds"] += "  beside: [default-scheduler]\n"
    if budgets:
        said["bounds"] += BUDGETS
    if interval:
        said["interval"] = interval
    return _POLICY.format(**said)


COLLECTOR = "retention: 60s\nsnapshotEvery: 400\n"
