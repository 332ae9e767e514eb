"""What a session considers: new pods, those that wait and may fit now, gangs as a whole. O(what waits), and bounded.

New pods and waiting ones each have the limit to themselves, so that however many wait, new ones get their turn.
"""

from collections.abc import Iterable
from heapq import nsmallest
from itertools import islice
from operator import itemgetter

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, PodUid
from restow.domain.groups import Group
from restow.domain.reservation.wishes import ignores
from restow.domain.session import closing
from restow.domain.session.chances import may_fit
from restow.domain.session.jobs import UNSCHEDULABLE, Job, gang, job_of, missing, single
from restow.domain.session.owners import parked_owners
from restow.domain.session.registry import due_times
from restow.domain.session.run import Session
from restow.domain.state import ClusterState, Under

LOOKED_AT = 64
"""Reasons to wait that are looked at for whether they are old, so that asking costs the same however many wait."""


def jobs(session: Session) -> list[Job]:
    """Of pods; Reservations' places are jobs, too, but made where they are placed (`holds.jobs`)."""
    state = session.state
    groups: dict[Group, None] = {}
    made: list[Job] = []
    for uid in (*_new(session), *_waiting(session)):
        pod = state.pods[uid]
        group = job_of(state, pod)
        if group is None:
            made.append(single(state, pod))
        else:
            groups[group] = None
    for group in groups:
        job = whole(session, group)
        if job.spec is None or not _is_promised(session, job):
            made.append(job)
    return made


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


def _is_promised(session: Session, job: Job) -> bool:
    """Whether room is being freed for the gang, so that it starts in its nominations: other pods of it wait for that."""
    promised = {uid for uid in job.tasks if uid in session.state.nominations and uid not in session.ended}
    if not promised or not job.short():
        return False
    job.tasks = [uid for uid in job.tasks if uid not in promised]
    if job.tasks:
        session.withhold(job, UNSCHEDULABLE, f"room is being freed for {len(promised)} pods of the gang; the others follow them")
    return True


def _new(session: Session) -> list[PodUid]:
    state = session.state
    queue: Iterable[tuple[PodUid, int]] = state.queue.items()
    if state.expecting or session.offers.left_behind:
        # However many pods of its lineage wait for a victim's end, nobody else waits with them.
        queue = [item for item in queue if not session.offers.must_wait(state.pods[item[0]])]
    return [uid for uid, _ in nsmallest(session.limit, queue, key=itemgetter(1))]


def _waiting(session: Session) -> list[PodUid]:
    """Of the pods that wait, those that may fit now, and those that can take a hold now."""
    state, limit = session.state, session.limit
    order = state.order.__getitem__
    hopeful: list[PodUid] = []
    unfit: set[Under] = set()
    for under in sorted(state.parked_under):
        pods = state.parked_under[under]
        if may_fit(session, under, pods):
            hopeful += nsmallest(limit, pods, key=order)
            continue
        _look_again(session, under, pods)
        unfit.add(under)
    if unfit and (session.offers or state.held_on):
        # Who follows a pod that is being moved may own nothing.
        asked: Iterable[PodUid] = state.parked if session.offers.left_behind else parked_owners(state)
        hopeful += [uid for uid in asked if state.parked[uid][1] in unfit and _can_take(session, state.pods[uid])]
    return [uid for _, uid in nsmallest(limit, ((state.turn(uid), uid) for uid in hopeful))]


def _can_take(session: Session, pod: PodObserved) -> bool:
    """Whether a hold may be the pod's, or, if it ignores Reservations, give it room."""
    if ignores(pod):
        return bool(session.state.held_on)
    return bool(session.offers) and session.offers.hand_over(pod) is not None


def _look_again(session: Session, under: Under, pods: dict[PodUid, None]) -> None:
    """Nothing of this shape fits: what was said of it may be old."""
    state = session.state
    first = state.pods[min(pods, key=state.order.__getitem__)]
    said = state.waiting.get(state.parked[first.pod][0])
    if under[0] != "shape" or first.pinned_node or said is None or session.now - said.at < closing.REFRESH:
        return
    if said.epoch != state.capacity_epoch:
        session.say_unfit(first, session.concerned(first))


def deadline(state: ClusterState, after: Millis) -> Millis | None:
    """When a session is due although nothing happens: nominations that end, what plugins and actions wait for, and what was
    said too lately before capacity moved to be said anew then (of the first few that wait)."""
    times = [n.deadline for n in state.nominations.values()]
    epoch = state.capacity_epoch
    old = (s.at + closing.REFRESH for s in islice(state.waiting.values(), LOOKED_AT) if s.epoch != epoch)
    times += [Millis(when) for when in old if when > after]
    times += [when for when in due_times(state, after) if when is not None]
    return min(times, default=None)
