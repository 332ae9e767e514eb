"""Action `preempt`: within a queue, jobs that starve take from others, a gang for enough of its pods or not at all; then,
within a job, pods from pods (Volcano, `preempt`). Who is a victim is for the plugins to say (`preemptable`).

Victims are evicted, and what they leave is held for whom it was taken (RULES 004-6). At most `victims.NODES` nodes are looked
at closely and `claimers.JOBS` jobs in a session, one of them on every node; who was not looked at has its turn in one of the next (RULES G-17).
"""

from collections.abc import Iterable
from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import Millis, ShapeId
from restow.domain.session.gangs import Outcome, in_passes, orders
from restow.domain.session.jobs import Job
from restow.domain.session.preemption.claims import (
    claim,
    claimers,
    is_meek,
    next_try,
    nominated,
    starves,
    wants_node,
)
from restow.domain.session.preemption.future_idle import Choice
from restow.domain.session.preemption.victims import Hunt, Scope
from restow.domain.session.session import Session
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


def take_for(session: Session, hunt: Hunt, job: Job, scope: Scope, action: str) -> None:
    """Everything that the job needs, or nothing; in one block, where it is to be near to each other."""
    members, chooser = [session.state.pods[uid].fact for uid in job.tasks], session.extensions.blocks
    for within in chooser.choices(job, members, evicting=True) if chooser is not None else (None,):
        for pods in orders(session, job, members):
            with session.attempt(within=within) as attempt:
                waits = _take_all(session, hunt, job, pods, scope, action)
                # What fits without anybody's leaving is for `allocate`.
                if waits and not session.extensions.refusal("jobPipelined", job):
                    attempt.keep()
            if attempt.kept:
                nominated(session, job)
                return


def _take_all(session: Session, hunt: Hunt, job: Job, pods: Iterable[e.PodObserved], scope: Scope, action: str) -> bool:
    """As much as the job needs, in this order, but first those that take from nobody, for they need what is free: who finds nothing is passed over while
    enough others are left. Returns whether anybody has something to wait for."""
    hopeless: set[tuple[ShapeId, str]] = set()
    waits = False

    def take(pod: e.PodObserved) -> Outcome:
        nonlocal waits
        equivalence_class = (pod.shape, pod.pinned_node)
        if not job.helps(pod):
            return Outcome.PASSED
        if equivalence_class in hopeless or not wants_node(session, pod):
            return Outcome.UNFIT
        choice = _free(session, job, pod) or _found(session, hunt, job, pod, scope)
        if choice is not None:
            waits |= claim(session, job, pod, choice, action)
            return Outcome.FOUND
        if session.concerned(pod):
            return Outcome.AGAIN if job.group is not None else Outcome.UNFIT
        hopeless.add(equivalence_class)
        return Outcome.UNFIT

    first = sorted(pods, key=lambda pod: not is_meek(session, pod))
    in_passes(first, take, lambda: not starves(session, job), lambda left: job.ready + left >= job.need)
    return waits


def _free(session: Session, job: Job, pod: e.PodObserved) -> Choice | None:
    if session.gates.later_quota(job, pod) is not None:
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
        pod = session.state.pods[uid].fact
        equivalence_class = (pod.shape, pod.pinned_node)
        if equivalence_class in hopeless or is_meek(session, pod) or not wants_node(session, pod):
            continue
        choice = hunt.find(job, pod, Scope.JOB)
        if choice is None:
            hopeless.add(equivalence_class)
            continue
        if choice.victims:
            claim(session, job, pod, choice, NAME)
            nominated(session, job)
