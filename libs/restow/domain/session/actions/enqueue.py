"""Action `enqueue`: a PodGroup that is Pending becomes Inqueue where its queue and the cluster have room for its
`minResources`; only then its pods are looked at. What asks for nothing is let in at once, and so is what is held already for
the group (seed 000)."""

from typing import Any

from restow.contracts import events as e
from restow.domain.groups import Group
from restow.domain.session import queues
from restow.domain.session.extensions import jobs_in_order
from restow.domain.session.framework import Refusal
from restow.domain.session.jobs import Job, gang
from restow.domain.session.run import Session

NOT_ENQUEUED = "NotEnqueued"


def run(session: Session, args: Any) -> None:
    state = session.state
    session.admitting = True
    waiting = {job.group: job for job in session.jobs if job.group in state.unqueued}
    jobs: list[Job] = [waiting.get(group) or gang(state, group) for group in state.unqueued]
    refused: set[Group] = set()
    for job in jobs_in_order(session.extensions, jobs):
        if job.group is None or job.spec is None:
            continue
        try:
            queues.check(state, job.queue)
            held = any(function(job) for function in session.extensions.at("jobHeld"))
        except Refusal as why:
            refused.add(job.group)
            if job.group in waiting:
                session.withhold(job, why.reason, why.message)
            continue
        asks = bool(job.spec.min_resources) and not held
        veto = _wrong(job) or (session.extensions.vote("jobEnqueueable", job) if asks else "")
        if veto:
            refused.add(job.group)
            if job.group in waiting:
                session.withhold(job, NOT_ENQUEUED, veto)
            continue
        for heard in session.extensions.at("jobEnqueued"):
            heard(job)
        session.events.append(e.Enqueued(job.group[0], job.group[1]))
    session.jobs = [job for job in session.jobs if job.group not in refused]


def _wrong(job: Job) -> str:
    return job.spec.invalid if job.spec is not None else ""
