"""One starving job gets nodes for its tasks: allocated where there is capacity now, reserved elsewhere, all or nothing.

Candidates of a task are nodes that it may run on as soon as there is capacity: every rule counts, capacity by what the node has in all
instead of what is idle. They are taken by the score of `resourceNodeOrder`, ties by name; `reservedNodePercent` of them
take part (rounded up), those with reserved tasks before others, so that no more nodes than that are kept from other jobs.
"""

from collections.abc import Collection, Iterator
from functools import partial

import numpy as np

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.node_table import WHOLE, Vector
from restow.domain.predicates import only, static_mask
from restow.domain.session.fitting import EquivalenceClass, Fit
from restow.domain.session.gangs import Outcome, in_passes, orders
from restow.domain.session.jobs import is_best_effort
from restow.domain.session.session import Session
from restow.domain.session.starving.readiness import Members
from restow.domain.session.starving.reserved_nodes import Reserved, fits_empty

PREEMPTED = "Preempted"
"""Why a reservation ends that a starving job of a higher priority needs the node of."""


class Search:
    """For one job. `run` leaves everything as it was where it returns False."""

    def __init__(self, session: Session, rule: Reserved, members: Members, percent: int) -> None:
        self._session, self._rule, self._members, self._percent = session, rule, members, percent
        self._allocated: dict[PodUid, Fit] = {}
        self._reserved: dict[PodUid, int] = {}
        self._dropped: dict[PodUid, None] = {}

    def run(self) -> bool:
        """Whether the job is ready, or condition-ready, now; the session has the events then."""
        members, job = self._members, self._members.job
        promised = set(members.promised())
        missing = job.need - job.ready - len(members.placed) - len(promised)
        left = [uid for uid in members.waiting if uid not in promised]
        if job.group is not None and not self._may_suffice(left, missing):
            return False
        pods = [self._session.state.pods[uid].fact for uid in left]
        for order in orders(self._session, job, pods, len(members.placed) + len(promised)):
            self._allocated, self._reserved, self._dropped = {}, {}, {}
            with self._session.attempt():
                in_passes(order, partial(self._try, promised), partial(self._done, missing), lambda left: self._got() + left >= missing)
                suffices = members.condition_ready(self._allocated)
            if self._allocated and members.ready(self._allocated):
                self._start()
                return True
            if suffices:
                self._reserve_all()
                return True
        return False

    def _got(self) -> int:
        return len(self._allocated) + len(self._reserved)

    def _done(self, missing: int) -> bool:
        return self._got() >= missing and self._members.condition_ready(self._allocated)

    def _may_suffice(self, left: list[PodUid], missing: int) -> bool:
        """A cheap necessary condition for a gang: as many places on nodes as it lacks tasks, class by class. A gang that cannot
        be served is asked for again in every session."""
        session, state = self._session, self._session.state
        alike: dict[EquivalenceClass, list[e.PodObserved]] = {}
        for uid in left:
            pod = state.pods[uid].fact
            alike.setdefault(session.equivalence_class(pod, session.concerned(pod)), []).append(pod)
        nodes = 0
        for pods in alike.values():
            rows, _ = taking_part(session, self._rule, pods[0], self._percent)
            nodes += self._rule.nodes(state.vectors[pods[0].shape], rows, len(pods), besides=not self._others_are_lower())
        return nodes >= missing

    def _others_are_lower(self) -> bool:
        """Whether something is reserved that could be taken away."""
        session, mine = self._session, self._members.job.priority
        return any(session.job_priority(uid) < mine for uid in self._rule.tasks())

    def _start(self) -> None:
        """Nothing needs to be reserved for it."""
        session, job = self._session, self._members.job
        for uid, fit in self._allocated.items():
            session.allocate(job, session.state.pods[uid].fact, fit)
            session.count(job, session.state.pods[uid].fact)
        job.tasks = [uid for uid in job.tasks if uid not in self._allocated]

    def _reserve_all(self) -> None:
        """A gang starts as a whole: what would fit now is reserved with the rest of it."""
        session, rule = self._session, self._rule
        rows = {uid: fit.row for uid, fit in self._allocated.items()} | self._reserved
        for uid in self._dropped:
            rule.release(uid)
        for uid, row in rows.items():
            rule.reserve(uid, row)
        session.events += [e.TaskUnreserved(uid, PREEMPTED) for uid in self._dropped]
        session.events += [e.TaskReserved(uid, session.name(rows[uid])) for uid in self._members.waiting if uid in rows]

    # -- one task ----------------------------------------------------------------------------------------------------

    def _try(self, promised: Collection[PodUid], pod: e.PodObserved) -> Outcome:
        session = self._session
        if not self._members.helps(pod.pod, [*promised, *self._allocated, *self._reserved]):
            return Outcome.PASSED
        if is_best_effort(session.state.shapes[pod.shape]) or not self._members.may_place(pod, waits=True):
            return Outcome.UNFIT
        rows, keys = taking_part(session, self._rule, pod, self._percent)
        fits = self._rule.leaves_capacity(session.state.vectors[pod.shape], rows)
        for row in in_order(rows[fits], keys):
            if self._goes(pod, row, self._promised_on(row)):
                return Outcome.FOUND
        if self._others_are_lower():
            for row in in_order(rows[self._rule.mask[rows]], keys):
                lower = self._lower(row)
                if lower and self._goes_instead(pod, row, lower):
                    return Outcome.FOUND
        return Outcome.UNFIT

    def _promised_on(self, row: int) -> list[Vector]:
        state = self._session.state
        there = [*self._rule.on(row), *(uid for uid, fit in self._allocated.items() if fit.row == row)]
        return [state.vectors[state.pods[uid].fact.shape] for uid in there]

    def _goes(self, pod: e.PodObserved, row: int, promised: list[Vector]) -> bool:
        """RULES 002-2, on one candidate."""
        session = self._session
        if not fits_empty(session.state, row, [*promised, session.state.vectors[pod.shape]]):
            return False
        if not self._rule.mask[row] and session.fits_at(pod, row, session.concerned(pod)):
            fit = self._allocated[pod.pod] = session.fit_at(pod, row)
            session.place(self._members.job, pod, fit)
        else:
            self._reserve(pod.pod, row)
        return True

    def _reserve(self, uid: PodUid, row: int) -> None:
        self._rule.reserve(uid, row)
        self._session.journal.note(self._rule.release, uid)
        self._reserved[uid] = row

    # -- instead of others -------------------------------------------------------------------------------------------

    def _lower(self, row: int) -> list[PodUid]:
        """Reserved tasks of jobs of lower priority on a row, the lowest and latest first."""
        session, mine = self._session, self._members.job
        tasks = [uid for uid in reversed(self._rule.on(row)) if session.job_priority(uid) < mine.priority]
        return sorted(tasks, key=session.job_priority)

    def _goes_instead(self, pod: e.PodObserved, row: int, lower: list[PodUid]) -> bool:
        """Reserved in place of as few jobs as must give way. What these have elsewhere ends, too: they are not
        condition-ready without it, and come in their own turn again."""
        session, state = self._session, self._session.state
        staying = dict.fromkeys(self._rule.on(row))
        gone: dict[str, None] = {}
        for uid in lower:
            staying.pop(uid, None)
            gone[session.job_key(uid)] = None
            others = [state.vectors[state.pods[u].fact.shape] for u in (*staying, *(p for p, fit in self._allocated.items() if fit.row == row))]
            if fits_empty(state, row, [*others, state.vectors[pod.shape]]):
                for task in self._rule.tasks():
                    if session.job_key(task) in gone:
                        session.journal.note(self._rule.reserve, task, self._rule.row(task))
                        self._rule.release(task)
                        self._dropped[task] = None
                self._reserve(pod.pod, row)
                return True
        return False


def taking_part(session: Session, rule: Reserved, pod: e.PodObserved, percent: int) -> tuple[np.ndarray, np.ndarray]:
    """The rows that take part for this task, and the keys of all rows `(nodes,) int64`: the best one has the greatest, and no
    two are equal."""
    rows = np.flatnonzero(possible(session, pod))
    table = session.state.table
    keys = np.zeros(len(table.names), np.int64)
    for score in session.extensions.at("resourceNodeOrder"):
        keys = keys + score(pod)
    keys = keys * (len(keys) + 1) + (len(keys) - table.rank)
    most = -(-len(rows) * percent // 100)
    if most < len(rows):
        rows = rows[np.lexsort((-keys[rows], ~rule.mask[rows]))][:most]
    return rows, keys


def in_order(rows: np.ndarray, keys: np.ndarray) -> Iterator[int]:
    """The best first; the others are sorted only for who asks for them."""
    if len(rows):
        best = int(rows[keys[rows].argmax()])
        yield best
        yield from (row for row in rows[np.argsort(-keys[rows])].tolist() if row != best)


def possible(session: Session, pod: e.PodObserved) -> np.ndarray:
    """`(nodes,) bool`: rows that the pod may run on now or later: every rule but capacity on what is idle, and but that the node
    is reserved."""
    state, table = session.state, session.state.table
    v = state.vectors[pod.shape]
    mask = static_mask(state, pod.shape) & table.alive
    for column, amount in v.items:
        mask &= table.allocatable[:, column] >= amount
    if v.devices is not None:
        mask &= (table.device_counts >= v.devices.count) & (v.devices.milli <= WHOLE)
    if pod.pinned_node:
        mask &= only(state, pod.pinned_node)
    for rule in session.concerned(pod):
        if not isinstance(rule, Reserved):
            for _, failing in rule.never(pod):
                mask &= ~failing
    return mask
