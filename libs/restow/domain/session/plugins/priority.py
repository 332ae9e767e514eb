"""Plugin `priority`: the higher priority first, of jobs and of a job's pods; only a lower one can be a victim."""

from collections.abc import Sequence

from restow.contracts.ids import PodUid
from restow.domain.session.args import NoArgs as Args
from restow.domain.session.framework import PERMITTED
from restow.domain.session.session import Session


def open(session: Session, args: Args) -> None:
    state, extensions = session.state, session.extensions
    extensions.order("jobOrder", lambda job: -job.priority)
    extensions.order("taskOrder", lambda pod: -state.shapes[pod.shape].priority)
    extensions.veto("jobStarving", lambda job: PERMITTED if job.tasks else "none of its pods waits")

    def lower(claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        """Of other jobs those of a lower job priority, of the same job those pods of a lower priority."""
        mine = session.job_priority(claimer)
        own = state.shapes[state.pods[claimer].fact.shape].priority
        job = session.job_key(claimer)
        return [
            uid
            for uid in candidates
            if (
                state.shapes[state.pods[uid].fact.shape].priority < own
                if session.job_key(uid) == job
                else session.job_priority(uid) < mine
            )
        ]

    extensions.veto("preemptable", lower)
