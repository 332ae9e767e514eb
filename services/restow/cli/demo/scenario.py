"""What the demo plays: nodes, and workloads in their order of arrival and of departure."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class DemoNode:
    """`cpu` in thousandths of a core, `memory` in bytes."""

    name: str
    cpu: int
    memory: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class Workload:
    """One pod with its controller. `gpus` devices, `milli` thousandths of each; `models` are the allowed GPU models, empty
    for any. `arrives` and `finishes` give the order of arrivals and departures, in the trace's own seconds."""

    name: str
    cpu: int
    memory: int
    gpus: int
    milli: int
    models: tuple[str, ...]
    arrives: int
    finishes: int

    @property
    def gpu_milli(self) -> int:
        return self.gpus * self.milli


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    nodes: tuple[DemoNode, ...]
    workloads: tuple[Workload, ...]

    @property
    def gpu_milli(self) -> int:
        return sum(node.gpus for node in self.nodes) * 1000

    @property
    def resource(self) -> str:
        """What the cluster is filled and defragmented by: its GPUs, or its cores where it has none."""
        return "nvidia.com/gpu" if self.gpu_milli else "cpu"

    @property
    def capacity(self) -> int:
        """Of that resource, in thousandths."""
        return self.gpu_milli or sum(node.cpu for node in self.nodes)

    @property
    def objective(self) -> str:
        """What the optimizing planner gains here: capacity for what pods ask for, those who wait above all; without GPUs free nodes."""
        return "value" if self.gpu_milli else "nodes"

    def asked(self, workload: Workload) -> int:
        """What a workload asks of it, in thousandths."""
        return workload.gpu_milli if self.gpu_milli else workload.cpu


@dataclass(frozen=True, slots=True)
class Step:
    """`arrive` or finish one workload."""

    arrive: bool
    workload: Workload


def steps(scenario: Scenario, fill: int, drain: int) -> Iterator[Step]:
    """The play: workloads arrive in the order of the trace; when what is asked for would exceed `fill` percent, those
    whose turn it is in the trace's order of departures finish first; at the end they finish until `drain` percent is left.

    Only the order is the trace's: on its own clock the openb trace never has more than a few dozen of these pods at once,
    and the cluster would stay empty.
    """
    total = scenario.capacity
    asked = 0
    leaving: list[tuple[int, int, Workload]] = []

    def finish() -> Step:
        nonlocal asked
        workload = heapq.heappop(leaving)[2]
        asked -= scenario.asked(workload)
        return Step(False, workload)

    for number, workload in enumerate(scenario.workloads):
        while leaving and (asked + scenario.asked(workload)) * 100 > fill * total:
            yield finish()
        asked += scenario.asked(workload)
        heapq.heappush(leaving, (workload.finishes, number, workload))
        yield Step(True, workload)
    while leaving and asked * 100 > drain * total:
        yield finish()


NAMESPACE = "demo"


def replica_set(workload: Workload, scheduler: str) -> dict[str, Any]:
    """The ReplicaSet of one replica that stands for a workload of the trace: what is evicted comes back, as in a cluster."""
    requests = {"cpu": f"{workload.cpu}m", "memory": str(workload.memory)}
    extended: dict[str, str] = {}
    if workload.gpus and workload.milli == 1000:
        extended = {"nvidia.com/gpu": str(workload.gpus)}
    elif workload.gpus:
        extended = {"alibabacloud.com/gpu-milli": str(workload.milli), "alibabacloud.com/gpu-count": str(workload.gpus)}
    labels = {"app": workload.name}
    spec: dict[str, Any] = {
        "schedulerName": scheduler,
        "terminationGracePeriodSeconds": 5,
        "containers": [
            {"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": requests | extended, "limits": extended}}
        ],
    }
    if workload.models:
        term = {"key": "alibabacloud.com/gpu-card-model", "operator": "In", "values": list(workload.models)}
        spec["affinity"] = {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}
            }
        }
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": workload.name, "namespace": NAMESPACE},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }
