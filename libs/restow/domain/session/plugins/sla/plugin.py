"""Plugin `sla`: a job that may wait only so long goes first, by its deadline; when it has waited too long it is admitted however
full the cluster is, and capacity is kept for it (`jobPipelined`)."""

from collections import Counter

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis
from restow.domain.duration import DurationError
from restow.domain.session.framework import Refusal
from restow.domain.session.jobs import Job, job_of
from restow.domain.session.plugins.sla.args import Args
from restow.domain.session.plugins.sla.waiting import annotations_of, own_time, until, until_of_group
from restow.domain.session.run import Session
from restow.domain.state import ClusterState

INVALID = "InvalidWaitingTime"
NEVER = 1 << 62


def open(session: Session, args: Args) -> None:
    state, default = session.state, args.waiting

    def valid(job: Job) -> None:
        """Raises Refusal where the job says something else than a duration: its owner must learn of it."""
        if (why := _wrong(annotations_of(state, job))) is not None:
            raise why

    def order(job: Job) -> int:
        when = until(state, job, default)
        return NEVER if when is None else when

    def late(job: Job) -> bool | None:
        """A vote: permitted when it has waited too long, no opinion before."""
        when = until(state, job, default)
        return True if when is not None and when <= session.now else None

    def pipelined(job: Job, placed: int = 0, by_task: Counter[str] | None = None) -> bool | None:
        return late(job)

    add = session.extensions.add
    add("jobValid", valid)
    add("jobOrder", order)
    add("jobEnqueueable", late)
    add("jobOverdue", late)
    add("jobPipelined", pipelined)


def turns_away(state: ClusterState, args: Args, pod: PodObserved) -> Refusal | None:
    group = job_of(state, pod)
    if group is None:
        return _wrong(pod.annotations)
    spec = state.pod_groups.get(group)
    return None if spec is None else _wrong(spec.annotations)


def _wrong(annotations: dict[str, str]) -> Refusal | None:
    try:
        own_time(annotations)
    except DurationError as error:
        return Refusal(INVALID, str(error))
    return None


def deadline(state: ClusterState, args: Args, after: Millis) -> Millis | None:
    """When the next of those that are not admitted has waited too long. O(groups that are not admitted)."""
    default = args.waiting
    times = (until_of_group(state.pod_groups[group], default) for group in state.unqueued)
    return min((when for when in times if when is not None and when > after), default=None)
