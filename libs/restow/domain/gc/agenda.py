"""When something is due of each Reservation, and what: an expiry exactly at its time (RULES G-2), a collection at the first
full `period` after it may be.

Kept in `state.memo` as a heap that follows `state.reviewed`: asking what is due costs what has changed since, not what there is.
"""

from heapq import heapify, heappop, heappush

from restow.contracts import events as e
from restow.contracts.ids import Millis, ReservationUid
from restow.domain.config import GcConfig
from restow.domain.evolve import demand_slots
from restow.domain.other_schedulers import LOG, other_scheduler
from restow.domain.records import FINAL, PhaseSince, Reservation, ReservationPhase, hold_names
from restow.domain.state import ClusterState

FINISHED = (ReservationPhase.SUCCEEDED, ReservationPhase.FAILED)
LONG_AGO = Millis(0)
SLACK = 64
"""Entries of the heap that may be out of date, beyond as many as there are Reservations."""


def next_of(state: ClusterState, record: Reservation) -> tuple[Millis, e.Event] | None:
    """What becomes of this Reservation next if nothing else happens, and from when on; None for nothing. What is over
    already, or terminating (somebody's finalizer may keep it for long), is nobody's to end again, and what is another
    scheduler's is not ours to end."""
    if record.gone or record.fact.deleting or record.collected:
        return None
    if other_scheduler(state, record) and not made_by_us(state, record):
        return None
    uid = record.fact.reservation
    phase = state.phases.get(uid)
    finished = phase is not None and phase.phase in FINISHED
    collection = _collection(state, record, phase if finished else None)
    if finished or record.expired or not record.expires or _is_being_made(state, record):
        return collection
    if collection is not None and collection[0] <= record.expires:
        return collection
    return record.expires, e.Expired(uid)


def _is_being_made(state: ClusterState, record: Reservation) -> bool:
    """Whether it is capacity for a pod that waits, and moves of its plan are under way: its time counts from the last one (RULES G-14)."""
    demand_slot = demand_slots.of(state, record)
    return demand_slot is not None and demand_slots.is_under_way(state, demand_slot.plan)


def _collection(state: ClusterState, record: Reservation, finished: PhaseSince | None) -> tuple[Millis, e.Event] | None:
    uid, rules = record.fact.reservation, state.gc_config
    if made_by_us(state, record):
        migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
        if migration is not None and migration.step not in FINAL:
            return None
        since = LONG_AGO
        if rules.period:
            times = [x.since for x in (migration, state.phases.get(uid)) if x is not None]
            since = _rounded(max(times, default=LONG_AGO), rules.period)
        return since, e.Collected(uid, "Orphaned")
    if finished is None:
        return None
    return _rounded(Millis(finished.since + rules.retention), rules.period), e.Collected(uid, "Retention")


def _rounded(at: Millis, period: int) -> Millis:
    """The first full period since the Unix epoch that is not before `at`: the same for every leader, and for `verify`."""
    return Millis(-(-at // period) * period) if period else at


def made_by_us(state: ClusterState, record: Reservation) -> bool:
    """Whether it is the object that Restow creates for a migration of this log. Labels alone prove nothing, anybody can write them:
    the name must be the one that follows from the migration's. Its hold is ours, whatever release has made it. Any other object must name this
    log: one that came late, when its migration had another or was over, and one whose migration was forgotten long after it ended (the
    plan precedes the object in the log, so it cannot merely be unfolded). Another installation's does not, and neither does what an older
    release has left behind: nobody can tell whose that is."""
    id = record.fact.migration
    if not id or record.fact.name not in hold_names(id):
        return False
    migration, fact = state.migrations.get(id), record.fact
    if migration is not None and fact.reservation in (migration.reservation, migration.spent):
        return True
    if migration is not None and fact.namespace != migration.move.namespace:
        return False
    return bool(state.log) and fact.labels.get(LOG) == state.log


class Agenda:
    """A heap of (time, uid). An entry counts only while `_when` says the same: what has changed is pushed anew, and the old
    entry is dropped when it comes up."""

    def __init__(self) -> None:
        self._heap: list[tuple[Millis, ReservationUid]] = []
        self._when: dict[ReservationUid, Millis] = {}
        self._at = -1
        self._rules: GcConfig | None = None

    @staticmethod
    def of(state: ClusterState) -> "Agenda":
        """As the state is now."""
        known = state.memo.make(Agenda)
        known._refresh(state)
        return known

    def first(self) -> Millis | None:
        """When the next thing is due."""
        heap, when = self._heap, self._when
        while heap and when.get(heap[0][1]) != heap[0][0]:
            heappop(heap)
        return heap[0][0] if heap else None

    def due(self, state: ClusterState, now: Millis, most: int) -> list[e.Event]:
        """What is due at `now`, of the Reservations that were seen first. Costs what is due."""
        found: list[tuple[int, e.Event]] = []
        for uid in self._ripe(now):
            record = state.reservations.get(uid)
            coming = None if record is None else next_of(state, record)
            if record is None or coming is None or coming[0] > now:
                self._set(uid, None if coming is None else coming[0])
                continue
            found.append((record.order, coming[1]))
        found.sort(key=lambda pair: pair[0])
        return [event for _, event in found[:most]]

    def _ripe(self, now: Millis) -> dict[ReservationUid, None]:
        """The top of the heap, down to where it is later than `now`."""
        heap, when = self._heap, self._when
        ripe: dict[ReservationUid, None] = {}
        todo = [0]
        while todo:
            at = todo.pop()
            if at < len(heap) and heap[at][0] <= now:
                if when.get(heap[at][1]) == heap[at][0]:
                    ripe[heap[at][1]] = None
                todo += (2 * at + 1, 2 * at + 2)
        return ripe

    def _refresh(self, state: ClusterState) -> None:
        changed = state.reviewed.since(self._at)
        self._at = state.reviewed.position
        if changed is None or self._rules is not state.gc_config:
            self._rules = state.gc_config
            self._when.clear()
            self._heap.clear()
            changed = list(state.reservations)
        if not changed:
            return
        for uid in dict.fromkeys(changed):
            record = state.reservations.get(uid)
            coming = None if record is None else next_of(state, record)
            self._set(uid, None if coming is None else coming[0])
        if len(self._heap) > 2 * len(self._when) + SLACK:
            self._heap = [(at, uid) for uid, at in self._when.items()]
            heapify(self._heap)

    def _set(self, uid: ReservationUid, at: Millis | None) -> None:
        if at == self._when.get(uid):
            return
        if at is None:
            del self._when[uid]
        else:
            self._when[uid] = at
            heappush(self._heap, (at, uid))
