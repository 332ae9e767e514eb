"""The job of a PodGroup as a session looks at it: all its pods that wait, in task order, but for those that room is being freed for."""

from collections.abc import Iterator, Sequence

from restow.contracts.ids import PodUid
from restow.domain.groups import Group
from restow.domain.session.jobs import UNSCHEDULABLE, Job, gang, missing
from restow.domain.session.quotas import share
from restow.domain.session.run import Session
from restow.domain.session.sums import totals


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


def orders(session: Session, job: Job, tasks: Sequence[PodUid], besides: int = 0) -> Iterator[Sequence[PodUid]]:
    """In which orders a gang's pods are tried until one of them makes it complete: as they are, and where fewer than all would do, those that
    ask for least first, so that a large one keeps no others from their room which would be enough (RULES G-17). `besides`: so many have a place in prospect."""
    yield tasks
    pods, vectors = session.state.pods, session.state.vectors
    if job.group is None or len({pods[uid].shape for uid in tasks}) < 2 or job.ready + besides + len(tasks) <= job.need:
        return
    whole = dict(enumerate(totals(session.state).allocatable))
    size = {uid: share(dict(vectors[pods[uid].shape].items), whole) for uid in tasks}
    yield sorted(tasks, key=size.__getitem__)
