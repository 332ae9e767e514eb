"""The job of a PodGroup as a session looks at it: all its pods that wait, in task order, but for those that room is being freed for."""

from restow.domain.groups import Group
from restow.domain.session.jobs import UNSCHEDULABLE, Job, gang, missing
from restow.domain.session.run import Session


def whole(session: Session, group: Group) -> Job:
    """The job of a group's pods, in task order, whether its PodGroup exists or not."""
    state = session.state
    if group not in state.pod_groups:
        return missing(state, group, session.now)
    job = gang(state, group)
    job.count(state, session.placements)
    order = session.extensions.at("taskOrder")
    job.tasks.sort(key=lambda uid: (*[f(state.pods[uid]) for f in order], state.order[uid]))
    return job


def is_promised(session: Session, job: Job) -> bool:
    """Whether room is being freed for the gang, so that it starts in its nominations: other pods of it wait for that."""
    promised = {uid for uid in job.tasks if uid in session.state.nominations and uid not in session.ended}
    if not promised or not job.short():
        return False
    job.tasks = [uid for uid in job.tasks if uid not in promised]
    if job.tasks:
        session.withhold(job, UNSCHEDULABLE, f"room is being freed for {len(promised)} pods of the gang; the others follow them")
    return True
