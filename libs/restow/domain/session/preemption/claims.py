"""Which jobs may take from others in a session, in their order: those that wait, starve and are allowed to; and what is taken, which is held for them
(RULES 004-6).

A decision must depend on the state and the command alone, so nothing is remembered of what could not be helped: of many jobs that wait,
half of those that are looked at are the first ones, the others go round with the sessions' turns, so that everybody has one (RULES G-17)."""

from collections.abc import Collection, Hashable, Iterator
from heapq import nsmallest

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.domain.evolve.holds import PREEMPTED
from restow.domain.evolve.session import NEVER
from restow.domain.node_table import fewer, less
from restow.domain.records import PATIENCE as PATIENCE
from restow.domain.session.backlog import Backlog, alike
from restow.domain.session.extensions import jobs_in_order
from restow.domain.session.framework import PERMITTED
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.preemption.future_idle import Choice, Unit, future_idle
from restow.domain.session.session import Session
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
        pod = state.pods[uid].fact
        group = job_of(state, pod)
        if group is not None and group not in state.pod_groups:
            continue
        key = pod.pod if group is None else "/".join(group)
        if key in jobs:
            continue
        job = jobs[key] = single(state, pod) if group is None else gang(state, group)
        job.count(state, {u for u in job.tasks if not _open(session, u)})
        job.tasks.sort(key=lambda u: session.extensions.task_turn(state, u))
    wanting = [job for job in jobs.values() if job.tasks and _valid(session, job) and starves(session, job)]
    return _turns(session, jobs_in_order(session.extensions, wanting))


def starves(session: Session, job: Job) -> bool:
    """Whether it may take from others to get more (Volcano, `JobStarving`)."""
    return session.extensions.answer("jobStarving", job) is PERMITTED


def is_meek(session: Session, pod: e.PodObserved) -> bool:
    """Whether it takes from nobody. Of a gang it may still have capacity that is free while others of it take theirs."""
    return session.state.shapes[pod.shape].preemption == MEEK


def wants_node(session: Session, pod: e.PodObserved) -> bool:
    """Whether nothing but a node is missing."""
    return session.gates.rules(pod) is None and not session.offers.awaited(pod)


def _open(session: Session, uid: PodUid) -> bool:
    """Whether nothing is held for it yet."""
    held = uid in session.state.nominations and uid not in session.ended
    return not held and uid not in session.placements and uid not in session.nominated


def _waiting(session: Session) -> Iterator[PodUid]:
    """Of each class a few, of a gang one; of those that wait already, and those that begin to."""
    state, backlog = session.state, Backlog.of(session.state, session.nodes)
    for under in sorted(backlog.classes):
        for line in sorted(backlog.lines(under)):
            yield from (uid for _, uid in line[: 1 if under[0] == "group" else ALIKE])
    began: dict[Hashable, list[PodUid]] = {}
    for said in session.said:
        for uid in said.pods:
            if uid not in state.parked:
                began.setdefault(alike(state.pods[uid].fact), []).append(uid)
    for pods in began.values():
        yield from nsmallest(ALIKE, pods, key=state.turn)


def _valid(session: Session, job: Job) -> bool:
    return not session.gates.awaits_enqueue(job) and session.gates.valid(job) is None


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


def claim(session: Session, job: Job, pod: e.PodObserved, choice: Choice, action: str) -> bool:
    """It is nominated. Returns whether it needs more than what is free now."""
    state, fit, ahead = session.state, choice.fit, future_idle(session)
    row, wanted = fit.row, state.vectors[pod.shape].items
    for unit in choice.victims:
        _evict(session, pod, row, unit)
    now, devices = session.free_of(row, wanted, fit.devices)
    session.nodes.take(row, now, devices)
    ahead.add(row, less(wanted, now.items), fewer(fit.devices, devices), -1)
    session.pledge(job.queue, pod.shape, 1)
    session.put(session.nominated, pod.pod, fit)
    session.enter(pod, row, fit.volumes, nominee=False)
    session.hear(job, pod, 1)
    session.count(job, pod)
    why = f"for pod {pod.namespace}/{pod.name} of queue {job.queue}"
    session.events += [e.HoldReleased(uid, slot, PREEMPTED) for uid, slot in choice.holds]
    session.events += [e.Preempted(uid, pod.pod, action, why) for uid in choice.pods]
    session.events.append(e.Nominated(pod.pod, session.name(row), Millis(session.now + PATIENCE), fit.devices, choice.pods, fit.cores))
    return bool(choice.victims) or (now.items, devices) != (wanted, fit.devices)


def _evict(session: Session, pod: e.PodObserved, row: int, unit: Unit) -> None:
    """A pod's capacity is coming; a hold's is there at once."""
    if not isinstance(unit.who, str):
        session.vacate(row, unit.who)
        return
    uid, state = PodUid(unit.who), session.state
    session.put(session.victims, uid, pod.pod)
    session.pledge(unit.queue, unit.shape, -1)
    session.hear(session.job_for(uid), state.pods[uid].fact, -1)
    future_idle(session).add(row, state.vectors[unit.shape].items, unit.devices, 1)


def nominated(session: Session, job: Job) -> None:
    """Those of it that were wait for somebody's end now, and nothing is wrong with them."""
    pods: Collection[PodUid] = session.nominated
    job.tasks = [uid for uid in job.tasks if uid not in pods]
    for said in session.said:
        said.pods = [uid for uid in said.pods if uid not in pods]
