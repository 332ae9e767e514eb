"""Placing the places of a Reservation: as a gang, like a job of pods that skip the bind (seed 000, RULES 000-1, 000-3)."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from restow.contracts import events as e
from restow.contracts.ids import PodUid, ReservationUid, SlotName
from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.occupants import as_pod, task_of
from restow.domain.predicates import only, static_mask
from restow.domain.records import FINAL, Reservation, Room, Slot, SlotPhase
from restow.domain.reservation.index import is_migration_hold
from restow.domain.session.framework import Filter
from restow.domain.session.gangs import in_orders
from restow.domain.session.handover import slot_order
from restow.domain.session.jobs import HOLD, MIGRATION, QUOTA, UNSCHEDULABLE, Job
from restow.domain.session.run import Session
from restow.domain.session.statement import Statement
from restow.domain.session.view import Fit
from restow.domain.state import ClusterState, is_sociable
from restow.domain.table import NO_DEVICE, WHOLE


def jobs(session: Session) -> Iterator[Job]:
    """One job a Reservation that has places to be held, by the highest priority among them. Migration holds come before
    everything and are neutral to queues (RULES G-7, DESIGN 5); nothing is held for a migration that is over."""
    state = session.state
    priorities: dict[ReservationUid, int] = {}
    for uid, name in state.slot_queue:
        priority = state.shapes[state.slots[uid][name].shape].priority
        priorities[uid] = max(priority, priorities.get(uid, priority))
    for uid, priority in priorities.items():
        record = state.reservations[uid]
        if not record.alive:
            continue
        migration = is_migration_hold(state, record)
        if migration and state.migrations[record.fact.migration].step in FINAL:
            continue
        queue = (record.spec.queue if record.spec is not None else "") or DEFAULT_QUEUE
        job = Job(uid, "" if migration else queue, priority, record.order, record.fact.created)
        job.kind = MIGRATION if migration else HOLD
        job.hold = uid
        yield job


def withhold(session: Session, job: Job, reason: str, message: str, held: Collection[SlotName] = ()) -> None:
    """Its places, but for those that this session has `held`, wait for something that is not a node; said of one of them,
    and once."""
    assert job.hold is not None, "a Reservation's job"
    slots = session.state.slots[job.hold]
    waiting = [name for name, slot in slots.items() if slot.phase is SlotPhase.PENDING and name not in held]
    name = min(session.state.unfit_slots.get(job.hold, {}).keys() & waiting or waiting)
    if (slots[name].reason, slots[name].message) != (reason, message):
        session.events.append(e.HoldUnfit(job.hold, name, 0, {}, reason, message))


def place_gang(session: Session, job: Job) -> None:
    """Of a migration as if its victim were not there: the pod itself is not in the way of where it goes (DESIGN 5)."""
    record = session.state.reservations[job.hold] if job.hold is not None else None
    with without(session, _victim_of(session.state, record)):
        _place_gang(session, job)


def _victim_of(state: ClusterState, record: Reservation | None) -> PodUid:
    if record is None or not is_migration_hold(state, record):
        return PodUid("")
    return state.migrations[record.fact.migration].move.pod


@contextmanager
def without(session: Session, pod: PodUid) -> Iterator[None]:
    """Rules about what runs do not see this pod. Room on its node counts as ever."""
    rules = [rule for rule in session.extensions.filters if not rule.of_capacity] if pod in session.state.charges else []
    for rule in rules:
        rule.vacated(pod)
    try:
        yield
    finally:
        for rule in rules:
            rule.restored(pod)


def _place_gang(session: Session, job: Job) -> None:
    """Hold at least `min_available` places of this Reservation in all, or none of those that wait."""
    assert job.hold is not None, "a Reservation's job"
    state, uid = session.state, job.hold
    if (why := session.refusal(job)) is not None:
        withhold(session, job, why.reason, why.message)
        return
    record = state.reservations[uid]
    slots = sorted(state.slots[uid].items(), key=lambda item: slot_order(item[0]))
    have = sum(slot.phase in _COUNT for _, slot in slots)
    waiting = {name: as_pod(record, name, slot, slot.shape) for name, slot in slots if slot.phase is SlotPhase.PENDING}
    names, pending = {place.pod: name for name, place in waiting.items()}, list(waiting.values())
    first: _Trial | None = None
    for order in in_orders(session, pending, have + len(pending) > record.min_available):
        trial = _try(session, job, order, names, have)
        if trial.held and have + len(trial.held) >= record.min_available:
            _commit(session, job, trial.statement, trial.held)
            _say(session, job, trial, trial.held.values())
            return
        trial.statement.discard()
        first = first or trial
    if first is not None:
        _say(session, job, first, ())


class _Trial(NamedTuple):
    """What came of one order: who would be held, and what the others lack."""

    statement: Statement
    held: dict[PodUid, SlotName]
    quota: str
    reason: str
    unfit: dict[SlotName, e.HoldUnfit]


def _try(session: Session, job: Job, order: Sequence[e.PodObserved], names: dict[PodUid, SlotName], have: int) -> _Trial:
    """As many as fit; who may fit because others of them have come (affinity, spread) is tried again then."""
    assert job.hold is not None, "a Reservation's job"
    state, uid = session.state, job.hold
    record = state.reservations[uid]
    statement = Statement(session, job)
    held: dict[PodUid, SlotName] = {}
    unfit: dict[SlotName, e.HoldUnfit] = {}
    quota = reason = ""
    left, again, before = list(order), list[e.PodObserved](), 0
    while left and have + len(held) + len(left) + len(again) >= record.min_available:
        place = left.pop(0)
        name = names[place.pod]
        over = session.quota(job, place)
        waits = "" if over else session.extensions.refusal("podWaits", place)
        fit = None if over or waits else _fit(session, record, state.slots[uid][name], place)
        if fit is not None:
            statement.place(place, fit)
            held[place.pod] = name
        else:
            quota, reason = quota or over or "", reason or waits or ""
            if not over and not waits:
                sociable = is_sociable(state.shapes[place.shape])
                if sociable:
                    again.append(place)
                if sociable or not unfit:
                    # Counted with the rest of the gang in place: that is what it does not fit beside.
                    unfit[name] = e.HoldUnfit(uid, name, *session.reasons(place))
        if not left and len(held) > before:
            left, again, before = again, [], len(held)
    came = {*held.values()}
    return _Trial(statement, held, quota, reason, {name: said for name, said in unfit.items() if name not in came})


def _say(session: Session, job: Job, trial: _Trial, held: Collection[SlotName]) -> None:
    if trial.quota or trial.reason:
        withhold(session, job, QUOTA if trial.quota else UNSCHEDULABLE, trial.quota or trial.reason, held)
    elif trial.unfit:
        say_unfit(session, next(iter(trial.unfit.values())))


_COUNT = (SlotPhase.HELD, SlotPhase.WAITING, SlotPhase.USED)


def say_unfit(session: Session, unfit: e.HoldUnfit) -> None:
    """Where something else was said last."""
    said = session.state.slots[unfit.reservation][unfit.slot]
    if (unfit.nodes, unfit.reasons, unfit.message) != (said.nodes, said.reasons, said.message):
        session.events.append(unfit)


def _commit(session: Session, job: Job, statement: Statement, held: dict[PodUid, SlotName]) -> None:
    assert job.hold is not None, "a Reservation's job"
    uid, slots = job.hold, session.state.slots[job.hold]
    for place, name in held.items():
        fit, slot = session.placements[place], slots[name]
        room = Room.full(session.state.vectors[slot.shape].items, fit.devices, fit.cores)
        phase = SlotPhase.WAITING if fit.waiting else SlotPhase.HELD
        now = Slot(
            slot.shape, slot.task, phase, session.name(fit.row), fit.devices, queue=job.queue, cores=fit.cores, room=room
        )
        session.offers.placed((uid, name), now)
    statement.commit(
        lambda place, fit: [
            e.HoldPlaced(
                uid, held[place.pod], session.name(fit.row), fit.devices, slots[held[place.pod]].shape, fit.waiting, fit.cores
            )
        ]
    )
    session.offers.add(uid)


def _fit(session: Session, record: Reservation, slot: Slot, place: e.PodObserved) -> Fit | None:
    """On the pinned node, else on the first preferred one that fits, else on the best; with preAllocation, where none fits,
    on the one where the least is still in use."""
    state = session.state
    concerned = session.concerned(place)
    row: int | None = None
    for wanted in task_of(record, slot).preferred_nodes if not place.pinned_node else ():
        row = state.table.rows.get(wanted)
        if row is not None and session.fits_at(place, row, concerned):
            break
    else:
        row = session.best_row(place, concerned)
    if row is None:
        if record.spec is None or not record.spec.pre_allocation:
            return None
        return _in_exchange(state, record, waiting_fit(session, place, concerned))
    fit = session.fit_at(place, row)
    # No volume is chosen, nor made, before there is a pod (seed 004, "Unsolved Problems").
    return Fit(row, _promised(state, record, row) or fit.devices, (), _cores(session, record, place, fit))


def waiting_fit(session: Session, place: e.PodObserved, concerned: list[Filter]) -> Fit | None:
    """A node that is large enough, and where every rule but those about room lets the place be: one where the room can come
    free although other places keep theirs, before all others; of these the one that lacks the smallest part of it now, the
    first name among equals."""
    state, table = session.state, session.state.table
    v = state.vectors[place.shape]
    room = static_mask(state, place.shape) & table.alive
    if place.pinned_node:
        room = room & only(state, place.pinned_node)
    lacks = np.zeros(len(room), np.int64)
    for column, amount in v.items:
        room = room & (table.allocatable[:, column] >= amount)
        lacks += np.clip(amount - table.free[:, column], 0, amount) * _PARTS // amount
    session.look_as(place)
    for rule in concerned:
        if not rule.for_others and not rule.of_capacity:
            for _, failing in rule.failing(place):
                room = room & ~failing
    request = v.devices
    if request is not None:
        room = room & (table.device_counts >= request.count)
        able = (table.device_free >= request.milli).sum(axis=1)
        lacks += np.clip(request.count - able, 0, request.count) * _PARTS // request.count
    if not room.any():
        return None
    rows = np.flatnonzero(room)
    ordered = rows[np.argsort(lacks[rows] * (len(room) + 1) + table.rank[rows])].tolist()
    for row in _last(ordered, lambda row: _kept_for_others(state, row, place)):
        cores = session.choose_cores(place, row)
        if cores is not None:
            devices = _emptiest(table.device_free[row].tolist(), request) if request is not None else ()
            return Fit(row, devices, (), cores, waiting=True)
    return None


def _last(rows: Iterable[int], is_last: Callable[[int], bool]) -> Iterator[int]:
    """The same in their order, but for some that come after all others. Of most of them nobody asks."""
    left = []
    for row in rows:
        if is_last(row):
            left.append(row)
        else:
            yield row
    yield from left


def _kept_for_others(state: ClusterState, row: int, place: e.PodObserved) -> bool:
    """Whether other places keep so much of the node, with what their owners will leave to them, that this one can have its room
    only after one of them has ended."""
    held = state.held_on.get(state.table.names[row])
    if not held:
        return False
    v = state.vectors[place.shape]
    left, shares = state.table.allocatable[row].tolist(), Counter[int]()
    for uid, name in held:
        slot = state.slots[uid][name]
        for column, amount in state.vectors[slot.shape].items:
            left[column] -= amount
        shares.update({d.index: d.milli for d in slot.devices})
    if any(left[column] < amount for column, amount in v.items):
        return True
    there = [i for i, share in enumerate(state.table.device_free[row].tolist()) if share > NO_DEVICE // 2]
    return v.devices is not None and sum(WHOLE - shares[i] >= v.devices.milli for i in there) < v.devices.count


_PARTS = 1_000
"""What is lacking of a resource is counted in."""


def _emptiest(shares: list[int], request: DeviceRequest) -> tuple[DeviceShare, ...]:
    """The devices of which the least is missing."""
    there = sorted((max(request.milli - share, 0), i) for i, share in enumerate(shares) if share > NO_DEVICE // 2)
    return tuple(DeviceShare(i, request.milli) for i in sorted(i for _, i in there[: request.count]))


def _in_exchange(state: ClusterState, record: Reservation, fit: Fit | None) -> Fit | None:
    """A pod that changes places with another waits for the very devices that the plan promised: the other's."""
    if fit is not None and is_migration_hold(state, record):
        fit.devices = state.migrations[record.fact.migration].move.devices or fit.devices
    return fit


def _cores(session: Session, record: Reservation, place: e.PodObserved, fit: Fit) -> tuple[int, ...]:
    """Of the CPUs that a migration's plan promised as many as are still free."""
    if not fit.cores or not is_migration_hold(session.state, record):
        return fit.cores
    promised = session.state.migrations[record.fact.migration].move.cores
    return session.choose_cores(place, fit.row, promised) or fit.cores


def _promised(state: ClusterState, record: Reservation, row: int) -> tuple[DeviceShare, ...]:
    """The devices that a migration's plan promised, while they are still free."""
    if not is_migration_hold(state, record):
        return ()
    devices = state.migrations[record.fact.migration].move.devices
    free = state.table.device_free[row]
    return devices if all(d.index < len(free) and free[d.index] >= d.milli for d in devices) else ()
