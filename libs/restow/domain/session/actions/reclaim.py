"""Action `reclaim`: jobs that starve in a queue which does not use more than it deserves take from queues that do, where
those are reclaimable (Volcano, `reclaim`). Who is a victim is for the plugins to say (`reclaimable`); what victims leave is
held for whom it was taken (RULES 004-6). It is bounded as `preempt` is.
"""

from typing import Any

from restow.contracts.ids import Millis
from restow.domain.session.actions.preempt import take_for
from restow.domain.session.jobs import Job
from restow.domain.session.preemption.claims import claimers, next_try
from restow.domain.session.preemption.victims import Hunt, Scope
from restow.domain.session.session import Session
from restow.domain.state import ClusterState

NAME = "reclaim"


def deadline(state: ClusterState, args: Any, after: Millis) -> Millis | None:
    return next_try(state, after)


def run(session: Session, args: Any) -> None:
    queues: dict[str, list[Job]] = {}
    jobs = claimers(session)
    for job in jobs:
        queues.setdefault(job.queue, []).append(job)
    if not queues:
        return
    extensions = session.extensions
    hunt = Hunt(session, jobs)
    while queues and len(session.events) < session.limit:
        # A queue's turn depends on what it has got in this session.
        queue = min(queues, key=lambda q: (*extensions.key("queueOrder", q), q))
        if session.gates.queue(queue) is not None:
            del queues[queue]
            continue
        take_for(session, hunt, queues[queue].pop(0), Scope.OTHERS, NAME)
        if not queues[queue]:
            del queues[queue]
