"""Action `reserve` before `allocate` (seed 000): pods that own a hold are bound to its node in one step, skipping filter and
score as RULES G-5 says; all others go the normal way. A gang takes holds only if it is complete with them; otherwise
`allocate` tries holds and nodes together."""

from typing import Any

from restow.domain.session.actions.allocate import admitted, valid
from restow.domain.session.extensions import jobs_in_order
from restow.domain.session.gangs import is_complete
from restow.domain.session.session import Session


def run(session: Session, args: Any) -> None:
    session.handing_over = True
    if not session.offers:
        return
    for job in jobs_in_order(session.extensions, session.jobs):
        if not admitted(session, job):
            continue
        if not valid(session, job):
            job.tasks = []
            continue
        if job.alike:
            continue  # those that can take a hold are in jobs of those that are like nobody else
        with session.attempt() as attempt:
            for uid in job.tasks:
                pod = session.state.pods[uid].fact
                if (len(session.events) < session.limit or job.group is not None) and session.hand_over(job, pod):
                    session.count(job, pod)
            if is_complete(session, job):
                attempt.keep()
        job.tasks = [uid for uid in job.tasks if uid not in session.placements]
