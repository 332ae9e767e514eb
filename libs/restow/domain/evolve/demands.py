"""Which jobs that wait plans were made for, how often, and when last."""

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.groups import Group, group_of, named
from restow.domain.records import Demand
from restow.domain.state import ClusterState

TRIGGER = "demand"


def job_of(state: ClusterState, pod: PodUid) -> tuple[str, Group | None]:
    """What a demand for this pod is about, as `Defragment.demand` says it: its PodGroup, or itself."""
    group = group_of(state.pods[pod].fact)
    if group is None or group not in state.pod_groups:
        return str(pod), None
    return "/".join(group), group


def job_name(state: ClusterState, job: str) -> str:
    """As people call it: `namespace/name` of a pod, `podgroup namespace/name`."""
    pod = state.fact_of(PodUid(job))
    if pod is not None:
        return f"{pod.namespace}/{pod.name}"
    return f"podgroup {job}" if "/" in job else f"pod {job}"


def planned(state: ClusterState, event: e.Planned) -> None:
    """Jobs that do not wait any more are forgotten."""
    if not event.demand:
        return
    for job in [job for job in state.demands if not waits(state, job)]:
        state.drop(state.demands, job)
    known = state.demands.get(event.demand)
    state.put(state.demands, event.demand, Demand(1 if known is None else known.tries + 1, state.time))


def waits(state: ClusterState, job: str) -> bool:
    """Whether a pod of it waits."""
    if PodUid(job) in state.parked:
        return True
    return any(pod in state.parked for pod in state.groups.get(named(job), ()))
