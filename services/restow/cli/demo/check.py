"""The promises, checked from outside: by what the Kubernetes API shows, not by what our log says."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from restow.cli.demo.feed import Api
from restow.cli.demo.scenario import NAMESPACE

REJECTED = ("OutOf", "UnexpectedAdmissionError", "NodeAffinity")


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the API showed at one moment: which workloads run a ready pod, which pods a kubelet refused, which of our
    Reservations exist."""

    running: dict[str, str]
    rejected: tuple[str, ...]
    reservations: tuple[str, ...]


def _ready(pod: Any) -> bool:
    conditions = pod["status"].get("conditions", ())
    return "deletionTimestamp" not in pod["metadata"] and any(
        c["type"] == "Ready" and c["status"] == "True" for c in conditions
    )


async def look(api: Api) -> Cluster:
    """Workload → node for every workload with a ready pod."""
    pods = await api.list(f"/api/v1/namespaces/{NAMESPACE}/pods")
    holds = await api.list("/apis/batch.volcano.sh/v1alpha1/reservations")
    return Cluster(
        {p["metadata"]["labels"]["app"]: p["spec"].get("nodeName", "") for p in pods if _ready(p)},
        tuple(sorted(p["metadata"]["name"] for p in pods if p["status"].get("reason", "").startswith(REJECTED))),
        tuple(sorted(r["metadata"]["name"] for r in holds)),
    )


def lost(before: Cluster, after: Cluster, alive: Iterable[str]) -> list[str]:
    """Workloads that ran before, should still run, and do not."""
    wanted = set(alive)
    return sorted(name for name in before.running if name in wanted and name not in after.running)


def moved(before: Cluster, after: Cluster) -> int:
    """Workloads that run on another node than before."""
    return sum(after.running.get(name, node) != node for name, node in before.running.items())
