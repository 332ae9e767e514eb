"""Pods that freed capacity is held for (RULES 004-6): placed as soon as all of it is held, given up at their deadline.

What is held for the members of a gang that is not complete is used together or not at all.
"""

from collections.abc import Collection

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.evolve.session import DEADLINE, REFUSED
from restow.domain.groups import Group
from restow.domain.node_table import vector_of
from restow.domain.predicates import static_mask
from restow.domain.records import Nomination
from restow.domain.session import queues
from restow.domain.session.fitting import Fit
from restow.domain.session.gangs import Outcome, in_passes, is_complete
from restow.domain.session.jobs import Job, gang, job_of
from restow.domain.session.session import Session
from restow.domain.state import ClusterState

NO_LONGER_FITS = "NoLongerFits"
NO_QUEUE = "QueueTakesNoJobs"
"""It was closed, or is gone, since somebody was nominated in it."""
NOT_THERE = "NotThere"
"""Its capacity is still to come; never a reason for an end."""
GANG_BROKEN = "GangNotComplete"
"""Why what is held for other members of a gang ends with one of them."""
GROUP_GONE = "PodGroupGone"


def settle_nominations(session: Session) -> None:
    """First those that can be used, asked with queues as they are; then what is still promised counts for its queue."""
    state = session.state
    gangs: dict[Group, list[PodUid]] = {}
    for pod, nomination in list(state.nominations.items()):
        group = job_of(state, state.pods[pod].fact)
        if group is not None and group not in state.pod_groups:
            give_up(session, pod, GROUP_GONE)
        elif group is not None:
            gangs.setdefault(group, []).append(pod)
        elif nomination.complete:
            why = _take(session, pod, nomination)
            if why:
                _may_wait(session, pod, nomination, why)
        elif _in_vain(state, pod, nomination):
            give_up(session, pod, NO_LONGER_FITS)
        else:
            _may_wait(session, pod, nomination, NOT_THERE)
    for group, pods in gangs.items():
        _settle_gang(session, gang(state, group), pods)
    promise(session)


def _take(session: Session, uid: PodUid, nomination: Nomination) -> str:
    """Its capacity is there; every rule about the node, and its queue, are asked once more. Returns why not, or nothing."""
    with session.attempt() as attempt:
        why = _tried(session, uid, nomination)
        if not why:
            attempt.keep()
    return why


def _tried(session: Session, uid: PodUid, nomination: Nomination) -> str:
    pod, job, row = session.state.pods[uid].fact, session.job_for(uid), session.state.table.rows[nomination.node]
    session.nodes.give(row, vector_of(nomination.capacity.held), nomination.capacity.held_devices)
    if not session.fits_at(pod, row, session.concerned(pod)):
        return NO_LONGER_FITS
    if queues.refused(session.state, job.queue) is not None:
        return NO_QUEUE
    if session.gates.quota(job, pod) is not None:
        # Victims elsewhere, too, free capacity in a queue: that is waited for.
        return NOT_THERE
    found = session.fit_at(pod, row)
    # Those CPUs that are kept for it come first, if they are still nobody else's.
    session.allocate(job, pod, Fit(row, nomination.capacity.devices, found.volumes, found.cores))
    return ""


def _may_wait(session: Session, uid: PodUid, nomination: Nomination, why: str) -> None:
    """Until its deadline, for its capacity, and as long as somebody who frees capacity takes to end (RULES G-14); where a rule is against
    it, only while somebody is still to go from its node."""
    state = session.state
    late = nomination.deadline <= session.now
    if late and not state.awaits_an_end(uid):
        give_up(session, uid, DEADLINE)
    elif why == NO_QUEUE:
        give_up(session, uid, NO_QUEUE)
    elif why == NO_LONGER_FITS and not _leaving(state, nomination):
        give_up(session, uid, NO_LONGER_FITS)
    elif late and session.job_for(uid).group is None:
        _go_elsewhere(session, uid)


def _go_elsewhere(session: Session, uid: PodUid) -> bool:
    """Who has waited for so long goes where it fits, if there is such a node by now (RULES G-17)."""
    pod, job = session.state.pods[uid].fact, session.job_for(uid)
    if queues.refused(session.state, job.queue) is not None or session.gates.of_pod(job, pod) is not None:
        return False
    fit = session.find(pod)
    if fit is None:
        return False
    session.allocate(job, pod, fit)
    return True


def _in_vain(state: ClusterState, uid: PodUid, nomination: Nomination) -> bool:
    """Whether its node does not take the pod any more (it was cordoned, tainted, is not ready), and somebody was chosen for it who can
    still be spared. Where all have gone already, the node may come back until the deadline."""
    row = state.table.rows[nomination.node]
    if static_mask(state, state.pods[uid].fact.shape)[row] and state.table.alive[row]:
        return False
    chosen = (victim for victim in nomination.victims if victim in state.victims_of and state.victims_of[victim].by == uid)
    return any(not state.pods[victim].live.deleting for victim in chosen)


def elsewhere(session: Session) -> None:
    """Whose capacity is still to come, or is of no use yet, and who fits elsewhere when everybody else has had a turn, goes there now: victims
    that were not told to go yet stay, and whoever has gone already has left capacity to others (RULES G-17). A gang goes as a whole: some of
    its members have their capacity already."""
    state = session.state
    together: dict[Group, list[PodUid]] = {}
    for uid in state.nominations:
        if uid not in session.placements and uid not in session.ended:
            group = job_of(state, state.pods[uid].fact)
            together.setdefault(group or ("", uid), []).append(uid)
    for group, pods in together.items():
        if not _may_go_elsewhere(session, pods):
            continue
        with session.attempt() as attempt:
            for uid in pods:
                _promise(session, uid, -1)
            if group in state.pod_groups:
                gone = _gang_elsewhere(session, gang(state, group), pods)
            else:
                gone = _go_elsewhere(session, pods[0])
            if gone:
                attempt.keep()
                for uid in pods:
                    if uid not in session.placements:
                        _promise(session, uid, 1)


def _may_go_elsewhere(session: Session, pods: list[PodUid]) -> bool:
    """Whether there is capacity for one at least that waits for its own."""
    state = session.state
    shapes = {state.pods[uid].fact.shape for uid in pods if not state.nominations[uid].complete or len(pods) == 1}
    return any(session.placer.best(shape) is not None for shape in shapes)


def _gang_elsewhere(session: Session, job: Job, pods: list[PodUid]) -> bool:
    """Whether it is complete by that."""
    state = session.state

    def go(uid: PodUid) -> Outcome:
        nomination = state.nominations[uid]
        found = (nomination.complete and not _take(session, uid, nomination)) or _go_elsewhere(session, uid)
        if found:
            session.count(job, state.pods[uid].fact)
        return Outcome.FOUND if found else Outcome.AGAIN

    in_passes(pods, go)
    return is_complete(session, job)


def _promise(session: Session, uid: PodUid, sign: int) -> None:
    """What is held for a pod counts for its queue, and to rules the pod is there; those that were chosen to go for it do not count. Or not any more."""
    state, pod, nomination = session.state, session.state.pods[uid].fact, session.state.nominations[uid]
    row = state.table.rows[nomination.node]
    session.pledge(session.job_for(uid).queue, pod.shape, sign)
    if sign > 0:
        session.enter(pod, row)
    else:
        session.leave(pod, row)
    for victim in nomination.victims:
        if victim in state.victims_of and state.victims_of[victim].by == uid:
            _charge_leaving(session, victim, -sign)


def _leaving(state: ClusterState, nomination: Nomination) -> bool:
    return any(state.charges[u].releasing or u in state.victims_of for u in state.on_node.get(nomination.node, ()))


def _settle_gang(session: Session, job: Job, pods: list[PodUid]) -> None:
    """All that are held for an incomplete gang are placed with the one that completes it."""
    state = session.state
    for uid in pods:
        nomination = state.nominations[uid]
        if uid not in session.ended and not nomination.complete and _in_vain(state, uid, nomination):
            give_up(session, uid, NO_LONGER_FITS)
    pods = [uid for uid in pods if uid not in session.ended]
    why = dict.fromkeys(pods, NOT_THERE)
    with session.attempt() as attempt:
        _take_all(session, job, [uid for uid in pods if state.nominations[uid].complete], why)
        if is_complete(session, job):
            attempt.keep()
        else:
            # Whether a rule is against one of them is asked as if all of it were where it is to go, and those who have to leave had left: each was
            # chosen beside those before it.
            waiting = {uid for uid in pods if why[uid] and (why[uid] != NO_LONGER_FITS or _leaving(state, state.nominations[uid]))}
            _take_all(session, job, [uid for uid in pods if why[uid]], why, waiting)
            why.update({uid: NOT_THERE for uid in pods if not why[uid]})  # these wait for the others
    for uid in pods:
        if why[uid] and uid not in session.ended:
            _may_wait(session, uid, state.nominations[uid], why[uid])


def _take_all(session: Session, job: Job, pods: list[PodUid], why: dict[PodUid, str], waiting: Collection[PodUid] = ()) -> None:
    """Those that can be used, in whichever order: one may fit only beside another that comes later. Says of the others why not. To rules those that are
    `waiting` come in their turn, too."""

    def take(uid: PodUid) -> Outcome:
        if uid in waiting:
            session.enter(session.state.pods[uid].fact, session.state.table.rows[session.state.nominations[uid].node])
            return Outcome.FOUND
        why[uid] = _take(session, uid, session.state.nominations[uid])
        if not why[uid]:
            session.count(job, session.state.pods[uid].fact)
            return Outcome.FOUND
        return Outcome.AGAIN if why[uid] == NO_LONGER_FITS else Outcome.PASSED

    in_passes(pods, take)


def promise(session: Session) -> None:
    """Queues are charged for what is held for their pods, and no longer for those that were chosen to go; to rules the pods
    are where their capacity is, so that nobody comes there who could not stay beside them."""
    state = session.state
    for uid, nomination in state.nominations.items():
        if uid not in session.placements and uid not in session.ended:
            pod = state.pods[uid].fact
            session.pledge(session.job_for(uid).queue, pod.shape, 1)
            session.enter(pod, state.table.rows[nomination.node])
    for uid, victim in state.victims_of.items():
        if victim.by not in session.ended and victim.by not in session.placements:
            _charge_leaving(session, uid, -1)


def _charge_leaving(session: Session, victim: PodUid, sign: int) -> None:
    """A victim that an API, put back to an earlier time, shows on no node any more uses nothing that it could leave."""
    charge = session.state.charges.get(victim)
    if charge is not None:
        session.pledge(charge.queue, charge.shape, sign)


def give_up(session: Session, uid: PodUid, reason: str) -> None:
    ended = ending(session.state, uid, reason, session.ended)
    session.events += ended
    session.ended.update(event.pod for event in ended if isinstance(event, e.NominationEnded))


def ending(state: ClusterState, uid: PodUid, reason: str, ended: set[PodUid] | frozenset[PodUid] = frozenset()) -> list[e.Event]:
    """What ends with a nomination: victims that have not been told to go yet stay, and what is held for the other members
    of a gang that cannot be complete without it is freed, too. `ended` has ended already."""
    events = _one_ends(state, uid, reason)
    group = job_of(state, state.pods[uid].fact)
    if group is None or group not in state.pod_groups:
        return events
    job = gang(state, group)
    others = [u for u in job.tasks if u in state.nominations and u != uid and u not in ended]
    if not job.short():
        return events
    for other in others:
        job.tell(state.pods[other].fact)
    return [*events, *(event for other in others for event in _one_ends(state, other, GANG_BROKEN))] if job.short() else events


def _one_ends(state: ClusterState, uid: PodUid, reason: str) -> list[e.Event]:
    events: list[e.Event] = []
    for victim in state.nominations[uid].victims:
        chosen = state.victims_of.get(victim)
        if chosen is not None and chosen.by == uid and not state.pods[victim].live.deleting:
            events.append(e.PreemptionEnded(victim, reason))
    return [*events, e.NominationEnded(uid, reason)]


def refuse(state: ClusterState, victim: PodUid, reason: str) -> list[e.Event]:
    """The API will never evict it: who it was to go for has to look elsewhere."""
    chosen = state.victims_of.get(victim)
    if chosen is None:
        return []
    why = f"{REFUSED}: {reason}"
    rest = ending(state, chosen.by, "VictimRefused") if chosen.by in state.nominations else []
    return [e.PreemptionEnded(victim, why), *(event for event in rest if event != e.PreemptionEnded(victim, "VictimRefused"))]
