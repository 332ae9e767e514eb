"""Jobs as this session has left them so far: which of their tasks wait, and whether they are ready, now or under a condition. And those that come before
the starving ones and were not looked at because of the session's limits: whether some of them could be scheduled now.

Everything else that waits was found unfit, or is withheld (quota, gang, queue); what is parked under a shape that fits nowhere cannot be scheduled, whoever it
is. So that question costs little unless the limits have cut something off."""

from collections.abc import Hashable, Iterable, Iterator

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.session.backlog import Backlog
from restow.domain.session.gangs import is_complete, place_together
from restow.domain.session.jobs import Job, gang, is_best_effort, job_of, single
from restow.domain.session.session import Session
from restow.domain.session.starving.reserved_nodes import Reserved


class Members:
    """`job` is as the state has it; `placed` are those of its tasks that this session has placed, `waiting` the others, in
    task order."""

    __slots__ = ("_rule", "_session", "job", "placed", "waiting")

    def __init__(self, session: Session, rule: Reserved, job: Job) -> None:
        self._session, self._rule, self.job = session, rule, job
        placements = session.placements
        self.placed = [uid for uid in job.tasks if uid in placements]
        self.waiting = [uid for uid in job.tasks if uid not in placements]
        if len(self.waiting) > 1:
            self.waiting.sort(key=lambda uid: session.extensions.task_turn(session.state, uid))

    @staticmethod
    def of(session: Session, rule: Reserved, pod: PodUid) -> "Members":
        """Of the job of a pod that waits."""
        state = session.state
        group = job_of(state, state.pods[pod].fact)
        if group is not None and group in state.pod_groups:
            return Members(session, rule, gang(state, group))
        job = single(state, state.pods[pod].fact)
        # A PodGroup that does not exist is waited for.
        job.group = group
        return Members(session, rule, job)

    def ready(self, more: Iterable[PodUid] = ()) -> bool:
        """Whether its tasks may start, with these placed in addition."""
        return self.is_complete([*self.placed, *more])

    def is_complete(self, tasks: Iterable[PodUid] = ()) -> bool:
        """Whether they may with what the job counts, and these."""
        session, job = self._session, self.job
        with session.attempt():
            self._count(tasks)
            if job.group is None or not session.extensions.at("jobReady"):
                return not job.short()
            return is_complete(session, job)

    def helps(self, pod: PodUid, more: Iterable[PodUid]) -> bool:
        """`Job.helps`, with these placed, or in prospect, in addition."""
        with self._session.attempt():
            self._count(dict.fromkeys((*self.placed, *more)))
            return self.job.helps(self._session.state.pods[pod].fact)

    def count_placed(self) -> None:
        self._count(self.placed)

    def _count(self, tasks: Iterable[PodUid]) -> None:
        for uid in tasks:
            self._session.count(self.job, self._session.state.pods[uid].fact)

    def reserved(self) -> list[PodUid]:
        return [uid for uid in self.waiting if uid in self._rule]

    def promised(self) -> list[PodUid]:
        """Tasks that wait with a node in prospect: reserved, nominated, or BestEffort in a gang (reserved nodes admit those,
        and what they ask for is everywhere)."""
        state = self._session.state
        return [
            uid
            for uid in self.waiting
            if uid in self._rule
            or uid in state.nominations
            or uid in self._session.nominated
            or (self.job.group is not None and is_best_effort(state.shapes[state.pods[uid].fact.shape]))
        ]

    def condition_ready(self, more: Iterable[PodUid] = ()) -> bool:
        """Ready on the premise that what is reserved comes true (seed 002, ConditionReady)."""
        return self.ready([*self.promised(), *more])

    def valid(self) -> bool:
        """Whether its queue takes it and it can be complete at all; `allocate` says what is wrong with it."""
        job = self.job
        return (job.group is None or job.spec is not None) and self._session.gates.valid(job) is None

    def may_run(self) -> bool:
        """Whether it waits for nodes: it is valid, let in, and its queue has quota."""
        session = self._session
        if session.gates.awaits_enqueue(self.job):
            let_in = any(isinstance(x, e.Enqueued) and (x.namespace, x.group) == self.job.group for x in session.events)
            if not let_in:
                return False
        return self.valid() and session.gates.queue(self.job.queue) is None

    def may_place(self, pod: e.PodObserved, waits: bool = False) -> bool:
        """Whether one of its tasks waits for a node and nothing else; where it `waits`, for what victims leave its queue, too."""
        session = self._session
        return not session.offers.awaited(pod) and session.gates.of_pod(self.job, pod, waits) is None


class Ahead:
    """Asked for one session."""

    def __init__(self, session: Session, rule: Reserved) -> None:
        self._session, self._rule = session, rule
        self._known: dict[Hashable, bool] = {}

    def jobs(self, besides: Iterable[str]) -> Iterator[Members]:
        """Jobs with pods that were not looked at, BestEffort ones aside; not those with these keys."""
        found: dict[str, None] = dict.fromkeys(besides)
        for uid in self._unseen():
            members = Members.of(self._session, self._rule, uid)
            if members.job.key not in found:
                found[members.job.key] = None
                yield members

    def _unseen(self) -> Iterator[PodUid]:
        session, state = self._session, self._session.state
        seen = set(session.placements)
        for said in session.said:
            seen.update(said.pods)
        for uid in state.queue:
            if uid not in seen and not is_best_effort(state.shapes[state.pods[uid].fact.shape]):
                yield uid
        backlog = Backlog.of(state, session.nodes)
        for under in backlog.hopeful():
            for line in backlog.lines(under):
                waiting = [uid for _, uid in line if uid not in session.placements]
                if waiting and waiting[0] in seen:
                    continue  # and so are those that are like it
                yield from (uid for uid in waiting if not is_best_effort(state.shapes[state.pods[uid].fact.shape]))

    def schedulable(self, members: Members) -> bool:
        """Whether the session could place what makes the job ready, or one more of a job that is. Nothing stays placed."""
        if not members.may_run():
            return False
        if members.job.group is None:
            return self._one(members, members.waiting[0]) if members.waiting else False
        if members.ready():
            return any(self._one(members, uid) for uid in members.waiting)
        return self._gang(members)

    def _one(self, members: Members, uid: PodUid) -> bool:
        """Asked once for pods that every rule treats alike."""
        session = self._session
        pod = session.state.pods[uid].fact
        if session.handing_over and session.offers and session.offers.hand_over(pod) is not None:
            return True
        if session.offers.awaited(pod):
            return False
        equivalence_class = (members.job.queue, session.equivalence_class(pod, session.concerned(pod)))
        known = self._known.get(equivalence_class)
        if known is None:
            known = self._known[equivalence_class] = members.may_place(pod) and session.find(pod) is not None
        return known

    def _gang(self, members: Members) -> bool:
        session, job = self._session, members.job
        pods = session.state.pods
        with session.attempt():
            members.count_placed()
            place_together(session, job, [pods[uid].fact for uid in members.waiting], session.find, members.is_complete)
            return members.is_complete()
