"""Action `reserve` before `allocate` (seed 000): pods that own a hold are bound to its node in one step, skipping filter and
score as RULES G-5 says; all others go the normal way. A gang takes holds only if it is complete with them; otherwise
`allocate` tries holds and nodes together."""

from typing import Any

from restow.domain.session.actions.allocate import admitted, incomplete, valid
from restow.domain.session.extensions import jobs_in_order
from restow.domain.session.run import Session
from restow.domain.session.statement import Statement


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
        statement = Statement(session, job)
        for uid in list(job.tasks):
            if len(session.events) + len(statement) < session.limit or job.group is not None:
                statement.hand_over(session.state.pods[uid])
        if incomplete(session, job, len(statement), statement.by_task):
            statement.discard()
        else:
            statement.commit()
