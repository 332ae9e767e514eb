"""Plugin `sla`: a job that may wait only so long goes first, by its deadline; when it has waited too long it is admitted however
full the cluster is, and capacity is kept for it (`jobPipelined`)."""

from collections import Counter

from restow.contracts.ids import Millis
from restow.domain.duration import DurationError
from restow.domain.session.framework import Refusal
from restow.domain.session.jobs import Job
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
        try:
            own_time(annotations_of(state, job))
        except DurationError as error:
            raise Refusal(INVALID, str(error)) from None

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
    add("jobPipelined", pipelined)


def deadline(state: ClusterState, args: Args, after: Millis) -> Millis | None:
    """When the next of those that are not admitted has waited too long. O(groups that are not admitted)."""
    default = args.waiting
    times = (until_of_group(state.pod_groups[group], default) for group in state.unqueued)
    return min((when for when in times if when is not None and when > after), default=None)
