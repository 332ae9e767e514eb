"""Which jobs may take from others in a session: those that wait, starve and are allowed to, in their order.

A decision must depend on the state and the command alone, so nothing is remembered of what could not be helped: of many jobs that wait,
half of those that are looked at are the first ones, the others go round with the sessions' turns, so that everybody has one (RULES G-17).
"""

from collections.abc import Hashable, Iterable, Iterator
from heapq import nsmallest

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.domain.evolve.session import NEVER
from restow.domain.session.backlog import Backlog, alike
from restow.domain.session.extensions import jobs_in_order
from restow.domain.session.framework import PERMITTED
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.run import Session
from restow.domain.state import ClusterState

JOBS = 64
"""Jobs looked at in one run of an action."""
ALIKE = 16
"""Of pods that no rule tells apart, so many, the first ones."""

MEEK = "Never"
"""The preemption policy of a pod that takes from nobody."""


def claimers(session: Session) -> list[Job]:
    """Made anew: what waits now, with what this session has placed and what is held already counted as ready."""
    state = session.state
    jobs: dict[str, Job] = {}
    for uid in _waiting(session):
        if not state.awaits_placement(uid) or not _open(session, uid):
            continue
        pod = state.pods[uid]
        group = job_of(state, pod)
        if group is not None and group not in state.pod_groups:
            continue
        key = pod.pod if group is None else "/".join(group)
        if key in jobs:
            continue
        job = jobs[key] = single(state, pod) if group is None else gang(state, group)
        job.count(state, {u for u in job.tasks if not _open(session, u)})
        task_order = session.extensions.at("taskOrder")
        job.tasks.sort(key=lambda u: (*[f(state.pods[u]) for f in task_order], state.order[u]))
    wanting = [job for job in jobs.values() if job.tasks and _valid(session, job) and starves(session, job)]
    return _turns(session, jobs_in_order(session.extensions, wanting))


def starves(session: Session, job: Job) -> bool:
    """Whether it may take from others to get more (Volcano, `JobStarving`)."""
    return session.extensions.answer("jobStarving", job) is PERMITTED


def is_meek(session: Session, pod: e.PodObserved) -> bool:
    """Whether it takes from nobody. Of a gang it may still have room that is free while others of it take theirs."""
    return session.state.shapes[pod.shape].preemption == MEEK


def wants_node(session: Session, pod: e.PodObserved) -> bool:
    """Whether nothing but a node is missing."""
    return not session.extensions.refusal("podWaits", pod) and not session.offers.awaited(pod)


def _open(session: Session, uid: PodUid) -> bool:
    """Whether nothing is held for it yet."""
    held = uid in session.state.nominations and uid not in session.ended
    return not held and uid not in session.placements and uid not in session.nominated


def _waiting(session: Session) -> Iterator[PodUid]:
    """Of each class a few, of a gang one; of those that wait already, and those that begin to."""
    state, backlog = session.state, Backlog.of(session.state, session.board)
    for under in sorted(backlog.classes):
        for line in sorted(backlog.lines(under)):
            yield from (uid for _, uid in line[: 1 if under[0] == "group" else ALIKE])
    said: list[Iterable[PodUid]] = [u.pods for u in session.unfit.values()]
    said += [w.pods for w in session.withheld.values()]
    began: dict[Hashable, list[PodUid]] = {}
    for pods in said:
        for uid in pods:
            if uid not in state.parked:
                began.setdefault(alike(state.pods[uid]), []).append(uid)
    for pods in began.values():
        yield from nsmallest(ALIKE, pods, key=state.turn)


def _valid(session: Session, job: Job) -> bool:
    if job.group in session.state.unqueued and any(a.name == "enqueue" for a in session.config.actions):
        return False
    return session.refusal(job) is None


def _turns(session: Session, jobs: list[Job]) -> list[Job]:
    if len(jobs) <= JOBS:
        return jobs
    half = JOBS // 2
    first, rest = jobs[:half], jobs[half:]
    parts = -(-len(rest) // half)
    session.parts = max(session.parts, parts)
    at = session.turn % parts * half
    return first + rest[at : at + half]


def favoured(session: Session, jobs: list[Job]) -> Job:
    """Of those that are looked at the one that may look at every node, in this session: each has its turn. Whoever finds that it
    has not seen all says that there are `parts`."""
    return jobs[session.turn // session.parts % len(jobs)]


def next_try(state: ClusterState, after: Millis) -> Millis | None:
    """When the next pod may be chosen again whose eviction did not come about."""
    return min((until for until in state.stuck.values() if after < until < NEVER), default=None)
