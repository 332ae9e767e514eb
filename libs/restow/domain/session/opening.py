"""What a session considers: new pods, those that wait and may fit now, gangs as a whole.

Of new pods as many as the limit, and of as many classes as `CLASSES`. Of those that wait nothing is cut off: pods that are alike are one job, which is passed over
as a whole where its first pod is refused, so that whoever fits runs, however many wait before it (RULES G-17)."""

from collections.abc import Container, Hashable, Iterable, Iterator
from heapq import heapify, heappop
from itertools import islice
from operator import itemgetter

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, PodUid
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.changes import Seen
from restow.domain.groups import Group, named
from restow.domain.memo import kept
from restow.domain.reservation.hold_index import HoldIndex
from restow.domain.reservation.reservation_affinity import ignores
from restow.domain.session import reasons
from restow.domain.session.backlog import Backlog, Name
from restow.domain.session.gangs import is_promised, whole
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.registry import due_times
from restow.domain.session.session import ENQUEUE, Session
from restow.domain.session.standing_jobs import Feed, Standing
from restow.domain.state import ClusterState


class ParkedOwners:
    """Parked pods that may own a Reservation, or that ignore all of them. Whoever is not parked any more is forgotten when it is
    met. All are looked at anew where there are owners of a new class, or a workload was seen that may own pods' owners."""

    def __init__(self, state: ClusterState) -> None:
        self.pods: dict[PodUid, None] = {}
        self._index: HoldIndex | None = None
        self._classes, self._seen = 0, Seen(state.parkings)

    def refresh(self, state: ClusterState) -> None:
        index = HoldIndex.of(state)
        [new] = self._seen.news()
        if new is None or index is not self._index or index.classes_made != self._classes:
            self._index, self._classes = index, index.classes_made
            self.pods.clear()
            new = state.parked
        else:
            for uid in [uid for uid in self.pods if uid not in state.parked]:
                del self.pods[uid]
        for uid in new:
            if uid in state.parked and (index.may_own(state.pods[uid].fact) or ignores(state.pods[uid].fact)):
                self.pods[uid] = None


def parked_owners(state: ClusterState) -> list[PodUid]:
    """As they are now. (Successors of pods that are being moved own nothing.)"""
    return list(kept(state, ParkedOwners).pods)


CLASSES = 500
"""Of new pods so many shapes and gangs in one session: each of them costs about as much as a hundred pods that are alike. The rest
follows in the next session, and between the two whatever else the process has to do: leases, health, what the API reads."""
LOOKED_AT = 64
"""Reasons to wait that are looked at for whether they are old, so that asking costs the same however many wait."""


def jobs(session: Session) -> list[Job]:
    """Of pods; Reservations' slots are jobs, too, but made where they are placed (`holds.jobs`)."""
    state = session.state
    groups: dict[Group, None] = {}
    backlog = session.backlog = Backlog.of(state, session.nodes)
    alone = _alone(session)
    new, waiting = _Shared(state), _Shared(state)
    for uid in (*_new(session), *alone):
        group = job_of(state, state.pods[uid].fact)
        if group is None:
            new.add(uid)
        else:
            groups[group] = None
    standing = session.standing = Standing.of(state, backlog, session.extensions.turn)
    # What is made now is not made again when its turn comes.
    special = {name for uid in alone if (name := backlog.name_of(uid)) is not None}
    waits = any(action.name == ENQUEUE for action in session.config.actions)
    closed = {("group", "/".join(group)) for group in state.unqueued} if waits else set()
    names = (*standing.loose, *(name for name in special if name in standing))
    _add_waiting(session, [name for name in names if name not in closed], waiting, groups, alone)
    left_out = special | closed | {("group", "/".join(group)) for group in groups}
    session.feeds = _feeds(session, left_out)
    made = [*new.made(), *waiting.made()]
    for group in groups:
        job = whole(session, group)
        if job.spec is None or not is_promised(session, job):
            made.append(job)
    _turned_away(session, backlog)
    _look_again(session, backlog)
    return made


def _add_waiting(
    session: Session, names: Iterable[Name], waiting: "_Shared", groups: dict[Group, None], alone: Container[PodUid]
) -> None:
    """What waits under these names and may fit now."""
    backlog, pods = session.backlog, session.state.pods
    found = [(under, backlog.line((under, equivalence_class))) for name in names for under, equivalence_class in backlog.jobs[name] if backlog.is_hopeful(under)]
    for _, line in sorted(found, key=lambda item: (item[0], item[1][0])):
        group = job_of(session.state, pods[line[0][1]].fact)
        if group is not None:
            # Any one pod stands for all of it.
            groups[group] = None
            continue
        waiting.classes += 1
        for _, uid in line[: session.limit]:
            if uid not in alone:
                waiting.add(uid, waiting.classes)


def _feeds(session: Session, left_out: set[Name]) -> dict[str, Feed]:
    """By queue, the jobs that are made when their turn comes."""
    state, backlog = session.state, session.backlog

    def make(name: Name) -> Job | None:
        under, equivalence_class = next(iter(backlog.jobs[name]))
        if under[0] == "group":
            job = whole(session, named(under[1]))
            return None if is_promised(session, job) else job
        shared = _Shared(state)
        for _, uid in backlog.line((under, equivalence_class))[: session.limit]:
            shared.add(uid, 0)
        return next(shared.made())

    return {queue: Feed(line, backlog, session.nodes, left_out, make) for queue, line in session.standing.lines.items()}


class _Shared:
    """Pods on their own, as jobs: those of one controller that say the same are one, as in Volcano they are one PodGroup."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._jobs: dict[Hashable, Job] = {}
        self.classes = 0

    def add(self, uid: PodUid, equivalence_class: int | None = None) -> None:
        """`equivalence_class`: the class that it waits in, if it does."""
        state = self._state
        pod = state.pods[uid].fact
        key: Hashable = uid
        if pod.owner is not None:
            said = tuple(sorted(pod.annotations.items())) if pod.annotations else ()
            key = pod.owner.uid, state.queue_of(pod), state.shapes[pod.shape].priority, said
        elif equivalence_class is not None:
            key = equivalence_class
        job = self._jobs.get(key)
        if job is None:
            job = self._jobs[key] = single(state, pod)
        else:
            job.tasks.append(uid)
        if equivalence_class is not None:
            job.alike[uid] = equivalence_class

    def made(self) -> Iterator[Job]:
        order = self._state.order_of
        for job in self._jobs.values():
            if len(job.tasks) > 1:
                job.tasks.sort(key=order)
                job.order = order(job.tasks[0])
            yield job


def _new(session: Session) -> list[PodUid]:
    state = session.state
    queue: Iterable[tuple[PodUid, int]] = state.queue.items()
    if session.offers.left_behind:
        queue = [item for item in queue if not session.offers.must_wait(state.pods[item[0]].fact)]
    classes: set[Hashable] = set()
    found: list[PodUid] = []
    # Most are in their order already.
    for uid, _ in sorted(queue, key=itemgetter(1))[: session.limit]:
        pod = state.pods[uid].fact
        classes.add(job_of(state, pod) or (pod.shape, pod.pinned_node))
        if len(classes) > CLASSES:
            break
        found.append(uid)
    return found


def _alone(session: Session) -> dict[PodUid, None]:
    """Pods that wait and are like nobody else: those that can take a hold now, and those that a node is reserved for."""
    state = session.state
    found = dict.fromkeys(uid for uid in state.reserved_tasks if uid in state.parked)
    if session.offers or state.held_on:
        # Who follows a pod that is being moved may own nothing.
        asked: Iterable[PodUid] = state.parked if session.offers.left_behind else parked_owners(state)
        found |= dict.fromkeys(uid for uid in asked if _can_take(session, state.pods[uid].fact))
    return found


def _can_take(session: Session, pod: PodObserved) -> bool:
    """Whether a hold may be the pod's, or, if it ignores Reservations, give it capacity."""
    if ignores(pod):
        return bool(session.state.held_on)
    return bool(session.offers) and session.offers.hand_over(pod) is not None


def _turned_away(session: Session, backlog: Backlog) -> None:
    """Gangs that wait for capacity in a queue that takes no jobs any more hear that, though there is no capacity either: without a fact about it a
    queue may become invalid by its parent, whom its siblings ask for too much. Any one job of a queue says whether that is so."""
    state, standing, shut = session.state, session.standing, dict[str, bool]()
    for queue, line in standing.lines.items():
        shut[queue] = session.gates.valid(_first_job(state, backlog, line[0].name)) is not None
    gangs = [named(name[1]) for queue, line in standing.lines.items() if shut[queue] for name in _gangs(entry.name for entry in line)]
    loose = [group for name in _gangs(standing.loose) if (group := named(name[1])) in state.pod_groups]
    for group in (*gangs, *loose):
        queue = state.pod_groups[group].queue or DEFAULT_QUEUE
        if shut.get(queue, True):
            job = whole(session, group)
            if not session.gates.awaits_enqueue(job) and (why := session.gates.valid(job)) is not None:
                session.withhold(job, why.reason, why.message)


def _gangs(names: Iterable[Name]) -> Iterator[tuple[str, str]]:
    return (name for name in names if isinstance(name, tuple) and name[0] == "group")  # type: ignore[misc]


def _first_job(state: ClusterState, backlog: Backlog, name: Name) -> Job:
    under, equivalence_class = next(iter(backlog.jobs[name]))
    return gang(state, named(under[1])) if under[0] == "group" else single(state, state.pods[backlog.line((under, equivalence_class))[0][1]].fact)


def _look_again(session: Session, backlog: Backlog) -> None:
    """Of shapes that fit nowhere what was said may be old: that which was said first is looked at again, a few a session. The gates are
    asked before nodes, as of anybody else."""
    state = session.state
    old = [
        (said.at, key)
        for key, said in state.waiting.items()
        if not said.reason and session.now - said.at >= reasons.REFRESH and said.epoch != state.capacity_epoch
    ]
    heapify(old)
    said = 0
    for _ in range(min(len(old), LOOKED_AT)):
        pod = _told(state, heappop(old)[1])
        if pod is not None and not pod.pinned_node and not backlog.is_hopeful(state.parked[pod.pod][1]):
            job = session.job_for(pod.pod)
            if (why := session.gates.valid(job) or session.gates.of_pod(job, pod)) is not None:
                session.withhold_pod(job, pod.pod, why.reason, why.message)
            else:
                session.say_unfit(pod, session.concerned(pod))
            said += 1
            if said >= reasons.REFRESHES:
                return


def _told(state: ClusterState, key: str) -> PodObserved | None:
    """The first pod that waits under this key."""
    shape, _, own = key.partition("/")
    if own and own in state.parked and state.parked[PodUid(own)][0] == key:
        return state.pods[PodUid(own)].fact
    pods = islice(state.parked_under.get(("shape", f"{shape}/"), ()), LOOKED_AT)
    found = min((uid for uid in pods if state.parked[uid][0] == key), key=state.order_of, default=None)
    return state.pods[found].fact if found is not None else None


def deadline(state: ClusterState, after: Millis) -> Millis | None:
    """When a session is due although nothing happens: nominations that end, what plugins and actions wait for, and what was
    said too lately before capacity moved to be said anew then (of the first few that wait)."""
    times = [n.deadline for pod, n in state.nominations.items() if n.deadline > after or not state.awaits_an_end(pod)]
    epoch = state.capacity_epoch
    old = (s.at + reasons.REFRESH for s in islice(state.waiting.values(), LOOKED_AT) if s.epoch != epoch)
    times += [Millis(when) for when in old if when > after]
    times += [when for when in due_times(state, after) if when is not None]
    return min(times, default=None)
