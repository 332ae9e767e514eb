"""A job as this session has left it so far: which of its tasks wait, and whether it is ready, now or under a condition."""

from collections import Counter
from collections.abc import Iterable

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.groups import task_of
from restow.domain.session.jobs import Job, gang, job_of, single
from restow.domain.session.requests import is_best_effort
from restow.domain.session.run import Session
from restow.domain.session.starving.reserved import Reserved

ENQUEUE = "enqueue"


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
            state, order = session.state, session.extensions.at("taskOrder")
            self.waiting.sort(key=lambda uid: (*[f(state.pods[uid]) for f in order], state.order[uid]))

    @staticmethod
    def of(session: Session, rule: Reserved, pod: PodUid) -> "Members":
        """Of the job of a pod that waits."""
        state = session.state
        group = job_of(state, state.pods[pod])
        if group is not None and group in state.pod_groups:
            return Members(session, rule, gang(state, group))
        job = single(state, state.pods[pod])
        # A PodGroup that does not exist is waited for.
        job.group = group
        return Members(session, rule, job)

    def ready(self, more: Iterable[PodUid] = ()) -> bool:
        """Whether its tasks may start, with these placed in addition."""
        tasks = [*self.placed, *more]
        if self.job.group is None:
            return bool(tasks)
        pods = self._session.state.pods
        by_task = Counter(task_of(pods[uid]) for uid in tasks)
        extensions = self._session.extensions
        if not extensions.at("jobReady"):
            return not self.job.short(len(tasks), by_task)
        return not extensions.refusal("jobReady", self.job, len(tasks), by_task)

    def helps(self, pod: PodUid, more: Iterable[PodUid]) -> bool:
        """`Job.helps`, with these placed, or in prospect, in addition."""
        pods, tasks = self._session.state.pods, {*self.placed, *more}
        return self.job.helps(task_of(pods[pod]), len(tasks), Counter(task_of(pods[uid]) for uid in tasks))

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
            or (self.job.group is not None and is_best_effort(state.shapes[state.pods[uid].shape]))
        ]

    def condition_ready(self, more: Iterable[PodUid] = ()) -> bool:
        """Ready on the premise that what is reserved comes true (seed 002, ConditionReady)."""
        return self.ready([*self.promised(), *more])

    def valid(self) -> bool:
        """Whether its queue takes it and it can be complete at all; `allocate` says what is wrong with it."""
        job = self.job
        return (job.group is None or job.spec is not None) and self._session.refusal(job) is None

    def may_run(self) -> bool:
        """Whether it waits for nodes: it is valid, let in, and its queue has quota."""
        session = self._session
        if self.job.group in session.state.unqueued and any(a.name == ENQUEUE for a in session.config.actions):
            let_in = any(isinstance(x, e.Enqueued) and (x.namespace, x.group) == self.job.group for x in session.events)
            if not let_in:
                return False
        return self.valid() and not session.extensions.refusal("overused", self.job.queue)

    def may_place(self, pod: e.PodObserved) -> bool:
        """Whether one of its tasks waits for a node and nothing else."""
        session = self._session
        return not (session.offers.awaited(pod) or session.quota(self.job, pod) or session.extensions.refusal("podWaits", pod))
