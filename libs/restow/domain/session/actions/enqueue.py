"""Action `enqueue`: a PodGroup that is Pending becomes Inqueue where its queue and the cluster have capacity for its
`minResources`; only then its pods are looked at. What asks for nothing is let in at once, and so is what is held already for
the group (seed 000).

Queues take turns, a job at a time: whoever uses, and is promised, least of its share comes first (Volcano, `enqueue` by
QueueOrder, where promises do not count). So no backlog takes all the capacity that there is for others.

Who asks for as much of something as one of the same queue that was refused for it is refused, too, and not asked about while
that is what its pods are told: of ten thousand that wait a few are looked at closely. Those that are not let in yet are kept across sessions, by queue
in their turns (`Unadmitted`)."""

from bisect import insort
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from operator import attrgetter
from typing import Any, NamedTuple

from restow.contracts import events as e
from restow.contracts.events import PodGroupObserved
from restow.contracts.ids import PodUid
from restow.domain.changes import Seen
from restow.domain.groups import Group, group_of
from restow.domain.session.admission import admission
from restow.domain.session.framework import Refusal
from restow.domain.session.gangs import whole
from restow.domain.session.jobs import NOT_ENQUEUED, Job, gang
from restow.domain.session.queue_lines import QueueLines
from restow.domain.session.session import Session
from restow.domain.session.sums import ledger, still_to_come
from restow.domain.state import ClusterState


class Turn(NamedTuple):
    """When it is asked for, the group's job, and what it asks for (`Admission.asks`). Must not be changed."""

    when: tuple
    job: Job
    asks: Mapping[str, int]


_when = attrgetter("when")


class Unadmitted:
    """Of a group of which nothing runs the turn is kept (`framework.POINTS`, jobOrder), of the others it is asked in every session."""

    def __init__(self, state: ClusterState) -> None:
        self._config = state.session_config
        self._specs: dict[Group, PodGroupObserved] = {}
        self._members: dict[PodUid, Group] = {}
        self._lines = QueueLines[Turn](_when)
        self._others: dict[Group, None] = {}
        self._seen = Seen(state.moved, state.objects)

    @staticmethod
    def of(state: ClusterState, turn: Callable[[Job], tuple]) -> dict[str, list[Turn]]:
        """All of them as they are now, the first one first. The lists are the caller's."""
        kept = state.memo.find(Unadmitted)
        if kept is None or kept._config is not state.session_config:
            kept = state.memo.keep(Unadmitted(state))
        kept._refresh(state, turn)
        lines = {queue: list(line) for queue, line in kept._lines.by_queue.items()}
        for group in kept._others:
            job = gang(state, group)
            insort(lines.setdefault(job.queue, []), _entry(state, group, job, turn), key=_when)
        return lines

    def _refresh(self, state: ClusterState, turn: Callable[[Job], tuple]) -> None:
        for group in self._stirred(state):
            self._others.pop(group, None)
            self._lines.drop(group)
            if group not in state.unqueued:
                self._specs.pop(group, None)
                continue
            self._specs[group] = state.pod_groups[group]
            if group in ledger(state).groups:
                self._others[group] = None
                continue
            job = gang(state, group)
            self._members.update(dict.fromkeys(job.tasks, group))
            self._lines.put(group, job.queue, _entry(state, group, job, turn))

    def _stirred(self, state: ClusterState) -> dict[Group, None]:
        """Those that came, went, or have other pods than before."""
        moved, objects = self._seen.news()
        groups, specs = state.pod_groups, self._specs
        if moved is None or objects is None or any(kind == "priority_classes" for kind, _ in objects):
            self._members.clear()
            return dict.fromkeys([*specs, *state.unqueued])
        found = dict.fromkeys(group for group in specs if group not in state.unqueued)
        found.update(dict.fromkeys(group for group in state.unqueued if specs.get(group) is not groups[group]))
        for who in moved:
            if isinstance(who, tuple):
                continue
            pod = state.fact_of(who)
            group = group_of(pod) if pod is not None and pod.annotations else None
            for about in (group, self._members.pop(who, None)):
                if about is not None and (about in state.unqueued or about in specs):
                    found[about] = None
        return found


def _entry(state: ClusterState, group: Group, job: Job, turn: Callable[[Job], tuple]) -> Turn:
    return Turn(turn(job), job, still_to_come(state, state.pod_groups[group], ledger(state).groups.get(group)))


def run(session: Session, args: Any) -> None:
    state = session.state
    session.admitting = True
    if not state.unqueued:
        return
    made = {job.group: job for job in session.jobs if job.group is not None and job.group in state.unqueued}
    let_in: set[Group] = set()
    with admission(session).counted():
        line = _Lines(session, made)
        for job in line.in_turn():
            why = session.gates.admitted(job)
            if job.group is None or job.spec is None:
                continue
            if why is not None:
                line.refused(job, why)
                continue
            admission(session).admitted(job)
            session.events.append(e.Enqueued(job.group[0], job.group[1]))
            let_in.add(job.group)
    _look_at(session, made, let_in)


def _look_at(session: Session, made: dict[Group, Job], let_in: set[Group]) -> None:
    """Those that were let in are looked at in this session, those that were not are not."""
    session.jobs = [job for job in session.jobs if job.group not in made or job.group in let_in]
    for group in sorted(let_in - made.keys()):
        job = whole(session, group)
        if any(uid in session.state.parked for uid in job.tasks):
            session.jobs.append(job)


class _Lines:
    """By queue the groups that wait to be let in, and what was refused in this session."""

    def __init__(self, session: Session, made: dict[Group, Job]) -> None:
        self._session, self._made = session, made
        self._lines: dict[str, list[Turn]] = Unadmitted.of(session.state, session.extensions.turn)
        self._at = dict.fromkeys(self._lines, 0)
        self._short: dict[str, dict[str, Refusal]] = {}
        """By queue and resource, the least that was too much."""

    def in_turn(self) -> Iterator[Job]:
        """Each time the first job of the queue whose turn it is; of queues that are equal, the one whose job comes first."""
        heap = [key for queue in self._lines if (key := self._key(queue)) is not None]
        heapify(heap)
        while heap:
            known = heappop(heap)
            queue = known[-1]
            now = self._key(queue)
            if now == known:
                self._at[queue] += 1
                yield self._lines[queue][self._at[queue] - 1].job
                now = self._key(queue)
            # Else promises have come since, or the first one needs not be asked any more: it has another turn.
            if now is not None:
                heappush(heap, now)

    def _key(self, queue: str) -> tuple | None:
        line = self._lines[queue]
        while self._at[queue] < len(line):
            turn = line[self._at[queue]]
            if not self._known_refused(turn.job, turn.asks):
                return self._session.extensions.key("queueOrder", queue), turn.when, queue
            self._at[queue] += 1
        return None

    def refused(self, job: Job, why: Refusal) -> None:
        assert job.group is not None, "a PodGroup's job"
        if why.resource:
            shorts = self._short.setdefault(job.queue, {})
            known = shorts.get(why.resource)
            if known is None or why.amount < known.amount:
                shorts[why.resource] = why
        if job.group in self._made:
            self._session.withhold(self._made[job.group], why.reason, why.message)
        elif self._waits(job):
            self._session.withhold(job, why.reason, why.message)

    def _known_refused(self, job: Job, asks: Mapping[str, int]) -> bool:
        """Whether it would be refused as another one was, and there is nobody to be told, or nothing that is new."""
        shorts = self._short.get(job.queue)
        if shorts is None or job.group in self._made:
            return False
        for resource, amount in asks.items():
            short = shorts.get(resource)
            if short is not None and amount >= short.amount:
                return not self._may_be_let_in(job) and self._was_told(job, short)
        return False

    def _waits(self, job: Job) -> bool:
        """Whether its pods have been looked at before. Those that are new and more than a session looks at are told in a later one."""
        return bool(job.tasks) and job.tasks[0] in self._session.state.parked

    def _was_told(self, job: Job, short: Refusal) -> bool:
        """Pods of a group wait together."""
        state = self._session.state
        if not self._waits(job):
            return True
        said = state.waiting[state.parked[job.tasks[0]][0]]
        return said.reason == NOT_ENQUEUED and said.message == short

    def _may_be_let_in(self, job: Job) -> bool:
        """Whatever there is capacity for; or it is refused for another reason."""
        extensions = self._session.extensions
        return bool(extensions.answer("jobHeld", job) or extensions.answer("jobOverdue", job))
