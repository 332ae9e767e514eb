"""The job of a PodGroup as a session looks at it: all its pods that wait, in task order, but for those that room is being freed for."""

from collections.abc import Iterator, Sequence

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain.groups import Group
from restow.domain.predicates import only, static_mask
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
    """`in_orders` of a gang's pods; of others there is one order. `besides`: so many have a place in prospect."""
    if job.group is None:
        yield tasks
        return
    pods = [session.state.pods[uid] for uid in tasks]
    for order in in_orders(session, pods, job.ready + besides + len(tasks) > job.need):
        yield [pod.pod for pod in order]


def in_orders(session: Session, pods: Sequence[PodObserved], fewer: bool) -> Iterator[Sequence[PodObserved]]:
    """In which orders they are tried until one of them makes a gang complete: as they are; then those first that the fewest nodes take, so that
    none of the others is on the only one of theirs; and where `fewer` than all would do, those that ask for least first, so that a large one
    keeps no others from their room which would be enough (RULES G-17)."""
    yield pods
    state = session.state
    kinds = {pod.pod: session.kind(pod, session.concerned(pod)) for pod in pods}
    if len(set(kinds.values())) < 2:
        return
    whole = dict(enumerate(totals(state).allocatable))
    size = {pod.pod: share(dict(state.vectors[pod.shape].items), whole) for pod in pods}
    nodes = {kind: _nodes(session, pod) for kind, pod in {kinds[pod.pod]: pod for pod in pods}.items()}
    scarcest = sorted(pods, key=lambda pod: (*nodes[kinds[pod.pod]], -size[pod.pod]))
    if scarcest != [*pods]:
        yield scarcest
    if fewer:
        yield sorted(pods, key=lambda pod: size[pod.pod])


def _nodes(session: Session, pod: PodObserved) -> tuple[int, int]:
    """How many nodes it fits on now, and how many take it as far as they themselves go: that counts where room is to be made."""
    able = static_mask(session.state, pod.shape) & session.state.table.alive
    if pod.pinned_node:
        able = able & only(session.state, pod.pinned_node)
    return int(session.fitting(pod).sum()), int(able.sum())
