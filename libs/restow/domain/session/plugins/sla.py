"""Plugin `sla`: a job that may wait only so long goes first, by its deadline; when it has waited too long it is admitted however
full the cluster is, and capacity is kept for it (`jobPipelined`)."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from restow.contracts.events import PodGroupObserved, PodObserved
from restow.contracts.ids import Millis
from restow.domain.duration import DurationError, format_milliseconds, milliseconds
from restow.domain.session.args import ArgsError, Arguments
from restow.domain.session.framework import PERMITTED, Answer, Refusal
from restow.domain.session.jobs import Job, job_of
from restow.domain.session.session import Session
from restow.domain.state import ClusterState

INVALID = "InvalidWaitingTime"
NEVER = 1 << 62
WAITING_TIME = "sla-waiting-time"
"""Also the annotation with which a PodGroup says its own."""
ANNOTATIONS = ("volcano.sh/sla-waiting-time", "sla-waiting-time")
"""On a PodGroup, or on a pod without one; the second is its name in older releases."""


class Args(Arguments, frozen=True):
    """`sla-waiting-time`: how long a job may wait, as `1h2m3s`; empty for as long as it takes."""

    waiting_time: str = msgspec.field(name=WAITING_TIME, default="")

    @property
    def waiting(self) -> int | None:
        """Milliseconds, None without a limit."""
        return milliseconds(self.waiting_time) if self.waiting_time else None

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        own = dict(said)
        if own.get(WAITING_TIME, "") != "":
            own[WAITING_TIME] = format_milliseconds(_waiting(own[WAITING_TIME]))
        return super().read(own)


def _waiting(value: Any) -> int:
    allowed = "allowed: a duration above 0, such as 1h2m3s"
    if not isinstance(value, str):
        raise ArgsError(f"{WAITING_TIME}: {value!r}; {allowed}")
    try:
        waiting = milliseconds(value)
    except DurationError:
        raise ArgsError(f"{WAITING_TIME}: {value!r}; {allowed}") from None
    if waiting <= 0:
        raise ArgsError(f"{WAITING_TIME}: {value!r}; {allowed}")
    return waiting


def open(session: Session, args: Args) -> None:
    state, default = session.state, args.waiting

    def valid(job: Job) -> Refusal | None:
        """Where the job says something else than a duration: its owner must learn of it."""
        return _wrong(annotations_of(state, job))

    def order(job: Job) -> int:
        when = until(state, job, default)
        return NEVER if when is None else when

    def late(job: Job) -> Answer:
        """Permitted when it has waited too long, no opinion before."""
        when = until(state, job, default)
        return PERMITTED if when is not None and when <= session.now else None

    session.extensions.order("jobOrder", order)
    session.extensions.veto("jobValid", valid)
    session.extensions.veto("jobEnqueueable", late)
    session.extensions.veto("jobOverdue", late)
    session.extensions.veto("jobPipelined", late)


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


def own_time(annotations: dict[str, str]) -> int | None:
    """Milliseconds, None where nothing is said. Raises DurationError, with name, value and what is allowed."""
    for name in ANNOTATIONS:
        text = annotations.get(name)
        if text is not None:
            try:
                waiting = milliseconds(text)
            except DurationError as error:
                raise DurationError(f"annotation {name}: {error}") from None
            if waiting <= 0:
                raise DurationError(f"annotation {name}: {text!r}; allowed: a duration above 0, such as 1h2m3s")
            return waiting
    return None


def annotations_of(state: ClusterState, job: Job) -> dict[str, str]:
    if job.spec is not None:
        return job.spec.annotations
    if job.group is not None or job.hold is not None or not job.tasks:
        return {}
    return state.pods[job.tasks[0]].fact.annotations


def until(state: ClusterState, job: Job, default: int | None) -> Millis | None:
    """When the job has waited too long; None for never, and where its annotation cannot be read (then it is refused)."""
    return _after(job.created, annotations_of(state, job), default)


def until_of_group(group: PodGroupObserved, default: int | None) -> Millis | None:
    """The same of a PodGroup."""
    return _after(group.created, group.annotations, default)


def _after(created: Millis, annotations: dict[str, str], default: int | None) -> Millis | None:
    try:
        own = own_time(annotations) if annotations else None
    except DurationError:
        return None
    waiting = default if own is None else own
    return None if waiting is None else Millis(created + waiting)
