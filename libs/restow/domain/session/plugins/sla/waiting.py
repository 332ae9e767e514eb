"""How long a job may wait, and until when."""

from restow.contracts import events as e
from restow.contracts.ids import Millis
from restow.domain.duration import DurationError, milliseconds
from restow.domain.session.jobs import Job
from restow.domain.state import ClusterState

ANNOTATIONS = ("volcano.sh/sla-waiting-time", "sla-waiting-time")
"""On a PodGroup, or on a pod without one; the second is its name in older releases."""


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
    return state.pods[job.tasks[0]].annotations


def until(state: ClusterState, job: Job, default: int | None) -> Millis | None:
    """When the job has waited too long; None for never, and where its annotation cannot be read (then it is refused)."""
    return _after(job.created, annotations_of(state, job), default)


def until_of_group(group: e.PodGroupObserved, default: int | None) -> Millis | None:
    """The same of a PodGroup."""
    return _after(group.created, group.annotations, default)


def _after(created: Millis, annotations: dict[str, str], default: int | None) -> Millis | None:
    try:
        own = own_time(annotations) if annotations else None
    except DurationError:
        return None
    waiting = default if own is None else own
    return None if waiting is None else Millis(created + waiting)
