"""Why nobody goes for whom waits: what `preempt` and `reclaim` could take for it, pod by pod, on the nodes that it may use. In sentences."""

from collections import Counter
from collections.abc import Iterator

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid
from restow.domain import predicates as p
from restow.domain.session.actions import preempt, reclaim
from restow.domain.session.jobs import Job
from restow.domain.session.preemption.claims import is_meek, starves
from restow.domain.session.preemption.evictable import LEAVING, stays
from restow.domain.session.registry import acting
from restow.domain.session.session import Session
from restow.domain.session.verdict.explain import job_for, opened
from restow.domain.state import ClusterState

THERE = "on nodes that it may use"

_PROTECTED = {
    "gang": "their gangs need them",
    "budget": "their disruption budgets let no more go",
    "budgets": "two disruption budgets are about each",
    "namespace": "they are in kube-system",
}


def takes(state: ClusterState, uid: PodUid) -> list[str]:
    """About a pod that waits for a node: whom it, or its gang, could have evicted, and why those stay. Nothing where no action could take anything."""
    pod = state.pods[uid].fact
    if state.shapes[pod.shape].is_beyond_us:
        return []
    actions = {module for module, _ in acting(state)}
    with opened(state) as session:
        job = job_for(session, pod)
        there = _there(session, pod)
        own = [other for other in there if _queue(session, other) == job.queue]
        lower = [other for other in own if session.job_priority(other) < job.priority]
        lines = list(_of_queue(session, job, pod, lower, preempt in actions))
        if reclaim in actions:
            lines += _of_others(session, job, pod, [other for other in there if _queue(session, other) not in ("", job.queue)])
        if lines and is_meek(session, pod):
            return [f"takes from nobody: its preemptionPolicy is {state.shapes[pod.shape].preemption}"]
        if lines and not starves(session, job):
            return ["takes from nobody: its gang has its minimum"] if job.group is not None else []
        return lines


def _there(session: Session, pod: PodObserved) -> list[PodUid]:
    """Pods on the nodes that would take it if they were empty."""
    state = session.state
    rows = p.static_mask(state, pod.shape) & state.table.alive
    if pod.pinned_node:
        rows = rows & p.only(state, pod.pinned_node)
    return [uid for row in np.flatnonzero(rows).tolist() for uid in state.on_node.get(session.name(row), ()) if uid in state.charges]


def _queue(session: Session, uid: PodUid) -> str:
    return session.state.charges[uid].queue


def _of_queue(session: Session, job: Job, pod: PodObserved, lower: list[PodUid], acts: bool) -> Iterator[str]:
    if not acts:
        if lower:
            yield f"preempt: not an action of the scheduler's configuration; {_many(lower)} of lower priority in queue {job.queue} {THERE}"
        return
    if not lower:
        yield f"preempt: nobody in queue {job.queue} {THERE} has a lower priority than {job.priority}"
        return
    stay = _stay(session, lower)
    left = [uid for uid in lower if uid not in stay]
    allowed = set(session.extensions.victims("preemptable", pod.pod, left))
    stay |= {uid: "a plugin keeps them (preemptable)" for uid in left if uid not in allowed}
    yield f"preempt: of {_many(lower)} of lower priority in queue {job.queue} {THERE}, {_said(lower, stay)}"


def _of_others(session: Session, job: Job, pod: PodObserved, others: list[PodUid]) -> Iterator[str]:
    if not others:
        return
    if why := session.extensions.refusal("preemptive", job.queue, pod):
        yield f"reclaim: takes nothing for queue {job.queue}: {why}"
        return
    queues = session.state.queues
    stay = {uid: "their queues are not reclaimable" for uid in others if (said := queues.get(_queue(session, uid))) is not None and not said.reclaimable}
    stay |= _stay(session, [uid for uid in others if uid not in stay])
    left = [uid for uid in others if uid not in stay]
    allowed = set(session.extensions.reclaimable(pod.pod, left))
    stay |= {uid: "their queues have no more than they deserve" for uid in left if uid not in allowed}
    yield f"reclaim: of {_many(others)} of other queues {THERE}, {_said(others, stay)}"


def _stay(session: Session, pods: list[PodUid]) -> dict[PodUid, str]:
    """Whom no plugin is asked about, and whom one protects (RULES G-11), with why. Of those that only some of may go the others stay."""
    found: dict[PodUid, str] = {}
    spare: dict[tuple[str, ...], int] = {}
    for uid in pods:
        if why := _kept(session, uid):
            found[uid] = why
            continue
        allowances = session.extensions.allowances(uid)
        for of, left in allowances:
            spare.setdefault(of, left)
        if full := next((of for of, _ in allowances if spare[of] <= 0), None):
            found[uid] = _PROTECTED.get(full[0], f"protected ({full[0]})")
            continue
        for of, _ in allowances:
            spare[of] -= 1
    return found


def _kept(session: Session, uid: PodUid) -> str:
    state = session.state
    live = state.live_of(uid)
    if uid in state.victims_of or uid in state.victims or (live is not None and live.deleting):
        return LEAVING
    return stays(state, uid) or ("their eviction was refused lately" if state.stuck.get(uid, 0) > session.now else "")


def _said(pods: list[PodUid], stay: dict[PodUid, str]) -> str:
    """`0 may go; 4 stay: their gangs need them`."""
    why = sorted(Counter(stay.values()).items(), key=lambda one: (-one[1], one[0]))
    return "; ".join([f"{len(pods) - len(stay)} may go", *(f"{count} stay{'s' * (count == 1)}: {reason}" for reason, count in why)])


def _many(pods: list[PodUid]) -> str:
    return f"{len(pods)} pod{'s' * (len(pods) != 1)}"
