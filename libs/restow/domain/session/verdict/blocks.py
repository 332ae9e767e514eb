"""What a pod waits for that is not a node: each rule is asked, also where an earlier one has refused already."""

from collections.abc import Iterator

from restow.contracts.events import PodObserved
from restow.domain.session import queues
from restow.domain.session.framework import Refusal
from restow.domain.session.jobs import NOT_ENQUEUED, OVERUSED, QUOTA, UNSCHEDULABLE, Job
from restow.domain.session.session import Session
from restow.domain.session.verdict.values import Block

AWAITED = "AwaitsHold"


def blocks(session: Session, job: Job, pod: PodObserved) -> Iterator[Block]:
    """In the order in which a session asks; each once."""
    return iter(dict.fromkeys(_blocks(session, job, pod)))


def _blocks(session: Session, job: Job, pod: PodObserved) -> Iterator[Block]:
    extensions = session.extensions
    if session.offers.must_wait(pod):
        yield Block(AWAITED, "a pod of its controller is being moved; what is held for its successor may be for this one")
    if (shut := queues.refused(session.state, job.queue)) is not None:
        yield Block(shut.reason, shut.message)
    if veto := not_enqueued(session, job):
        yield Block(NOT_ENQUEUED, veto)
    for refusal in refusals(session, job):
        yield Block(refusal.reason, refusal.message)
    if reason := extensions.refusal("overused", job.queue) if job.queue else None:
        yield Block(OVERUSED, reason)
    if reason := session.quota(job, pod):
        yield Block(QUOTA, reason)
    if reason := extensions.refusal("podWaits", pod):
        yield Block(UNSCHEDULABLE, reason)


def not_enqueued(session: Session, job: Job) -> str:
    """Why its PodGroup is not let in; empty where it is, or will be."""
    state = session.state
    if job.spec is None or job.group not in state.unqueued or all(action.name != "enqueue" for action in state.session_config.actions):
        return ""
    if job.spec.invalid:
        return job.spec.invalid
    held = session.extensions.answer("jobHeld", job)
    if isinstance(held, str):
        return held
    return session.extensions.refusal("jobEnqueueable", job) if job.spec.min_resources and not held else ""


def refusals(session: Session, job: Job) -> Iterator[Refusal]:
    """What plugins say against the job as a whole."""
    for why in session.extensions.refusals("jobValid", job):
        assert isinstance(why, Refusal), "a veto at jobValid has a reason"
        yield why
