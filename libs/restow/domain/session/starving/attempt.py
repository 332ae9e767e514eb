"""One starving job gets nodes for its tasks: allocated where there is room now, reserved elsewhere, all or nothing.

Candidates of a task are nodes that it may run on as soon as there is room: every rule counts, room by what the node has in all
instead of what is idle. They are taken by the score of `resourceNodeOrder`, ties by name; `reservedNodePercent` of them
take part (rounded up), those with reserved tasks before others, so that no more nodes than that are kept from other jobs.
"""

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.predicates import only, static_mask
from restow.domain.session.gangs import orders
from restow.domain.session.requests import is_best_effort
from restow.domain.session.run import Session
from restow.domain.session.starving.members import Members
from restow.domain.session.starving.reserved import Reserved, fits_empty
from restow.domain.session.statement import Statement
from restow.domain.session.view import Kind
from restow.domain.table import WHOLE, Vector

PREEMPTED = "Preempted"
"""Why a reservation ends that a starving job of a higher priority needs the node of."""


class Attempt:
    """For one job. `run` leaves everything as it was where it returns False."""

    def __init__(self, session: Session, rule: Reserved, members: Members, percent: int) -> None:
        self._session, self._rule, self._members, self._percent = session, rule, members, percent
        self._statement = Statement(session, members.job)
        self._allocated: dict[PodUid, int] = {}
        self._reserved: dict[PodUid, int] = {}
        self._dropped: dict[PodUid, int] = {}

    def run(self) -> bool:
        """Whether the job is ready, or condition-ready, now; the session has the events then."""
        members, job = self._members, self._members.job
        promised = set(members.promised())
        missing = job.need - job.ready - len(members.placed) - len(promised)
        left = [uid for uid in members.waiting if uid not in promised]
        if job.group is not None and not self._may_suffice(left, missing):
            return False
        for tasks in orders(self._session, job, left, len(members.placed) + len(promised)):
            if self._try_all(tasks, missing, promised):
                return True
        return False

    def _try_all(self, tasks: Sequence[PodUid], missing: int, promised: Collection[PodUid]) -> bool:
        """The same in this order."""
        members = self._members
        for at, uid in enumerate(tasks):
            got = len(self._allocated) + len(self._reserved)
            if got + len(tasks) - at < missing or (got >= missing and members.condition_ready(self._allocated)):
                break
            if members.helps(uid, [*promised, *self._allocated, *self._reserved]):
                self._try(uid)
        if self._allocated and members.ready(self._allocated):
            self._take_back_reservations()
            self._statement.commit()
            return True
        if not members.condition_ready(self._allocated):
            self._take_back_reservations()
            self._statement.discard()
            self._allocated, self._reserved, self._dropped = {}, {}, {}
            return False
        self._commit()
        return True

    def _may_suffice(self, left: list[PodUid], missing: int) -> bool:
        """A cheap necessary condition for a gang: as many places on nodes as it lacks tasks, kind by kind. A gang that cannot
        be served is asked for again in every session."""
        session, state = self._session, self._session.state
        alike: dict[Kind, list[e.PodObserved]] = {}
        for uid in left:
            pod = state.pods[uid]
            alike.setdefault(session.kind(pod, session.concerned(pod)), []).append(pod)
        places = 0
        for pods in alike.values():
            rows, _ = taking_part(session, self._rule, pods[0], self._percent)
            places += self._rule.places(state.vectors[pods[0].shape], rows, len(pods), besides=not self._others_are_lower())
        return places >= missing

    def _others_are_lower(self) -> bool:
        """Whether something is reserved that could be taken away."""
        session, mine = self._session, self._members.job.priority
        return any(session.job_priority(uid) < mine for uid in self._rule.tasks())

    def _commit(self) -> None:
        """A gang starts as a whole: what would fit now is reserved with the rest of it."""
        session, rule = self._session, self._rule
        self._statement.discard()
        for uid, row in self._allocated.items():
            rule.reserve(uid, row)
        session.events += [e.TaskUnreserved(uid, PREEMPTED) for uid in self._dropped]
        rows = self._allocated | self._reserved
        session.events += [e.TaskReserved(uid, session.name(rows[uid])) for uid in self._members.waiting if uid in rows]

    def _take_back_reservations(self) -> None:
        for uid in self._reserved:
            self._rule.release(uid)
        for uid, row in self._dropped.items():
            self._rule.reserve(uid, row)

    # -- one task ----------------------------------------------------------------------------------------------------

    def _try(self, uid: PodUid) -> None:
        session = self._session
        pod = session.state.pods[uid]
        if is_best_effort(session.state.shapes[pod.shape]) or not self._members.may_place(pod):
            return
        rows, keys = taking_part(session, self._rule, pod, self._percent)
        room = self._rule.leaves_room(session.state.vectors[pod.shape], rows)
        for row in in_order(rows[room], keys):
            if self._goes(pod, row, self._promised_on(row)):
                return
        if self._others_are_lower():
            for row in in_order(rows[self._rule.mask[rows]], keys):
                lower = self._lower(row)
                if lower and self._goes_instead(pod, row, lower):
                    return

    def _promised_on(self, row: int) -> list[Vector]:
        state = self._session.state
        there = [*self._rule.on(row), *(uid for uid, at in self._allocated.items() if at == row)]
        return [state.vectors[state.pods[uid].shape] for uid in there]

    def _goes(self, pod: e.PodObserved, row: int, promised: list[Vector]) -> bool:
        """RULES 002-2, on one candidate."""
        session = self._session
        if not fits_empty(session.state, row, [*promised, session.state.vectors[pod.shape]]):
            return False
        if not self._rule.mask[row] and session.fits_at(pod, row, session.concerned(pod)):
            self._statement.place(pod, session.fit_at(pod, row))
            self._allocated[pod.pod] = row
        else:
            self._reserve(pod.pod, row)
        return True

    def _reserve(self, uid: PodUid, row: int) -> None:
        self._rule.reserve(uid, row)
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
            others = [state.vectors[state.pods[u].shape] for u in (*staying, *(p for p, at in self._allocated.items() if at == row))]
            if fits_empty(state, row, [*others, state.vectors[pod.shape]]):
                for task in self._rule.tasks():
                    if session.job_key(task) in gone:
                        self._dropped[task] = self._rule.row(task)
                        self._rule.release(task)
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
    """`(nodes,) bool`: rows that the pod may run on now or later: every rule but room on what is idle, and but that the node
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
