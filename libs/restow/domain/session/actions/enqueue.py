"""Action `enqueue`: a PodGroup that is Pending becomes Inqueue where its queue and the cluster have room for its
`minResources`; only then its pods are looked at. What asks for nothing is let in at once, and so is what is held already for
the group (seed 000).

Queues take turns, a job at a time: whoever uses, and is promised, least of its share comes first (Volcano, `enqueue` by
QueueOrder, where promises do not count). So no backlog takes all the room that there is for others.
"""

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from typing import Any

from restow.contracts import events as e
from restow.domain.groups import Group
from restow.domain.session import queues
from restow.domain.session.admission import admission
from restow.domain.session.framework import Refusal
from restow.domain.session.jobs import Job, gang
from restow.domain.session.run import Session

NOT_ENQUEUED = "NotEnqueued"


def run(session: Session, args: Any) -> None:
    state = session.state
    session.admitting = True
    waiting = {job.group: job for job in session.jobs if job.group in state.unqueued}
    jobs: list[Job] = [waiting.get(group) or gang(state, group) for group in state.unqueued]
    if not jobs:
        return
    refused: set[Group] = set()
    with admission(session).counted():
        for job in _in_turn(session, jobs):
            why = _why_not(session, job)
            if job.group is None or job.spec is None:
                continue
            if why is not None:
                refused.add(job.group)
                if job.group in waiting:
                    session.withhold(job, why.reason, why.message)
                continue
            for heard in session.extensions.at("jobEnqueued"):
                heard(job)
            session.events.append(e.Enqueued(job.group[0], job.group[1]))
    session.jobs = [job for job in session.jobs if job.group not in refused]


def _in_turn(session: Session, jobs: list[Job]) -> Iterator[Job]:
    """Each time the first job of the queue whose turn it is; of queues that are equal, the one whose job comes first."""
    extensions, turns = session.extensions, session.extensions.turn
    lines: dict[str, list[tuple]] = {}
    for at, job in enumerate(jobs):
        lines.setdefault(job.queue, []).append((turns(job), at, job))
    for line in lines.values():
        line.sort(reverse=True)

    def key(queue: str) -> tuple:
        return extensions.key("queueOrder", queue), lines[queue][-1][:2], queue

    heap = [(key(queue), len(session.events)) for queue in lines]
    heapify(heap)
    while heap:
        known, seen = heappop(heap)
        queue = known[-1]
        if seen != len(session.events) and (now := key(queue)) != known:
            # Promises have come since: whoever has got one, or is beside it in a tree, has another turn.
            heappush(heap, (now, len(session.events)))
            continue
        yield lines[queue].pop()[-1]
        if lines[queue]:
            heappush(heap, (key(queue), len(session.events)))


def _why_not(session: Session, job: Job) -> Refusal | None:
    if job.group is None or job.spec is None:
        return None
    try:
        queues.check(session.state, job.queue)
        held = any(function(job) for function in session.extensions.at("jobHeld"))
    except Refusal as why:
        return why
    asks = bool(job.spec.min_resources) and not held
    veto = job.spec.invalid or (session.extensions.vote("jobEnqueueable", job) if asks else "")
    return Refusal(NOT_ENQUEUED, veto) if veto else None
