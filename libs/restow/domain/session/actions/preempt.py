"""Action `preempt`: within a queue, jobs that starve take from others, a gang for enough of its pods or not at all; then,
within a job, pods from pods (Volcano, `preempt`). Who is a victim is for the plugins to say (`preemptable`).

Victims are evicted, and what they leave is held for whom it was taken (RULES 004-6). At most `victims.NODES` nodes are looked
at closely and `claimers.JOBS` jobs in a session, one of them on every node; who was not looked at has its turn in one of the next (RULES G-17).
"""

from collections.abc import Iterable
from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid, ShapeId
from restow.domain.groups import task_of
from restow.domain.session.gangs import orders
from restow.domain.session.jobs import Job
from restow.domain.session.preemption.claim import Claim
from restow.domain.session.preemption.claimers import claimers, is_meek, next_try, starves, wants_node
from restow.domain.session.preemption.units import Choice
from restow.domain.session.preemption.victims import Hunt, Scope
from restow.domain.session.run import Session
from restow.domain.state import ClusterState

NAME = "preempt"


def deadline(state: ClusterState, args: Any, after: Millis) -> Millis | None:
    return next_try(state, after)


def run(session: Session, args: Any) -> None:
    jobs = claimers(session)
    if not jobs:
        return
    hunt = Hunt(session, jobs)
    for job in jobs:
        if len(session.events) >= session.limit:
            return
        take_for(session, hunt, job, Scope.QUEUE, NAME)
    for job in jobs:
        if job.group is not None and len(session.events) < session.limit:
            _within(session, hunt, job)


def take_for(session: Session, hunt: Hunt, job: Job, scope: Scope, action: str) -> bool:
    """Everything that the job needs, or nothing."""
    claim = Claim(session, job, action)
    for tasks in orders(session, job, job.tasks):
        _take_all(session, hunt, claim, job, tasks, scope)
        # What fits without anybody's leaving is for `allocate`.
        if len(claim) and claim.waits and not session.extensions.refusal("jobPipelined", job, 0, None):
            claim.commit()
            return True
        claim.discard()
    return False


def _take_all(session: Session, hunt: Hunt, claim: Claim, job: Job, tasks: Iterable[PodUid], scope: Scope) -> None:
    """As much as the job needs, in this order, but first those that take from nobody, for they need what is free: who finds nothing is passed over while enough others are left, and tried again where that
    may change because others of its gang have come (affinity, spread)."""
    state = session.state
    hopeless: set[tuple[ShapeId, str]] = set()
    left, again, before = sorted(tasks, key=lambda uid: not is_meek(session, state.pods[uid])), list[PodUid](), 0
    while starves(session, job):
        if not left:
            if not again or len(claim) == before:
                return
            left, again, before = again, [], len(claim)
        pod = state.pods[left.pop(0)]
        if not job.helps(task_of(pod)):
            continue
        kind = (pod.shape, pod.pinned_node)
        if kind not in hopeless and wants_node(session, pod):
            choice = _free(session, job, pod) or _found(session, hunt, job, pod, scope)
            if choice is not None:
                claim.take(pod, choice)
                continue
            if not session.concerned(pod):
                hopeless.add(kind)
            elif job.group is not None:
                again.append(pod.pod)
        if job.ready + len(left) + len(again) < job.need:
            return


def _free(session: Session, job: Job, pod: e.PodObserved) -> Choice | None:
    if session.quota(job, pod):
        return None
    fit = session.find(pod)
    return None if fit is None else Choice(fit)


def _found(session: Session, hunt: Hunt, job: Job, pod: e.PodObserved, scope: Scope) -> Choice | None:
    if is_meek(session, pod) or (scope is Scope.OTHERS and session.extensions.refusal("preemptive", job.queue, pod)):
        return None
    return hunt.find(job, pod, scope)


def _within(session: Session, hunt: Hunt, job: Job) -> None:
    """One pod after the other, each for itself, as in Volcano. Where one finds nobody those that are like it are not asked, and others are."""
    hopeless: set[tuple[ShapeId, str]] = set()
    for uid in list(job.tasks):
        pod = session.state.pods[uid]
        kind = (pod.shape, pod.pinned_node)
        if kind in hopeless or is_meek(session, pod) or not wants_node(session, pod):
            continue
        choice = hunt.find(job, pod, Scope.JOB)
        if choice is None:
            hopeless.add(kind)
            continue
        if choice.victims:
            claim = Claim(session, job, NAME)
            claim.take(pod, choice)
            claim.commit()
