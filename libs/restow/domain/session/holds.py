"""Slots of Reservations: held as a gang, like a job of pods that skip the bind (seed 000, RULES 000-1, 000-3). A later generation may ask for another
size: on their node if that has it, else elsewhere in the same commit, else they stay as they are until one of both can be."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager

import numpy as np
from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import PodUid, ReservationUid, SlotName
from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.evolve.reservation_slots import SUPERSEDED
from restow.domain.node_table import NO_DEVICE, WHOLE, fewer, less, vector_of
from restow.domain.occupants import as_pod, task_of
from restow.domain.predicates import only, static_mask
from restow.domain.records import FINAL, Capacity, Reservation, Slot, SlotPhase
from restow.domain.reservation.owner_matching import is_migration_hold
from restow.domain.session import holds
from restow.domain.session.fitting import Fit
from restow.domain.session.framework import Filter
from restow.domain.session.gangs import Tried, place_together, ways
from restow.domain.session.hold_offers import slot_order
from restow.domain.session.jobs import HOLD, MIGRATION, QUOTA, UNSCHEDULABLE, Job
from restow.domain.session.session import Session
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState


def jobs(session: Session) -> Iterator[Job]:
    """One job a Reservation that has slots to be held, by the highest priority among them. Migration holds come before
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
        job.hold, job.need = uid, record.min_available
        yield job


def withhold(session: Session, job: Job, reason: str, message: str, held: Collection[SlotName] = ()) -> None:
    """Its slots, but for those that this session has `held`, wait for something that is not a node; said of one of them,
    and once."""
    assert job.hold is not None, "a Reservation's job"
    slots = session.state.slots[job.hold]
    waiting = [name for name, slot in slots.items() if slot.phase is SlotPhase.PENDING and name not in held]
    name = min(session.state.unfit_slots.get(job.hold, {}).keys() & waiting or waiting)
    if (slots[name].reason, slots[name].message) != (reason, message):
        session.events.append(e.HoldUnfit(job.hold, name, 0, {}, reason, message))


def place_gang(session: Session, job: Job) -> None:
    """Hold at least `min_available` slots of this Reservation in all, or none of those that wait. A migration's as if its victim were not there: the
    pod itself is not in the way of where it goes (DESIGN 5)."""
    assert job.hold is not None, "a Reservation's job"
    state, uid = session.state, job.hold
    record = state.reservations[uid]
    with overlooking(session, state.migrations[record.fact.migration].move.pod if is_migration_hold(state, record) else PodUid("")):
        if (why := session.gates.valid(job)) is not None:
            withhold(session, job, why.reason, why.message)
            return
        slots = sorted(state.slots[uid].items(), key=lambda item: slot_order(item[0]))
        have = sum(slot.phase in _COUNT for _, slot in slots)
        waiting = {name: as_pod(record, name, slot, slot.shape) for name, slot in slots if slot.phase is SlotPhase.PENDING}
        _hold(session, job, {pod.pod: name for name, pod in waiting.items()}, list(waiting.values()), have)


def _hold(session: Session, job: Job, names: dict[PodUid, SlotName], pending: list[e.PodObserved], have: int) -> None:
    assert job.hold is not None, "a Reservation's job"
    uid, record = job.hold, session.state.reservations[job.hold]
    slots, need = session.state.slots[uid], job.need

    def find(pod: e.PodObserved) -> Fit | None:
        return _fit(session, record, slots[names[pod.pod]], pod)

    def hold(job: Job, pod: e.PodObserved, fit: Fit) -> None:
        session.place(job, pod, fit)
        name = names[pod.pod]
        session.events.append(e.HoldPlaced(uid, name, session.name(fit.row), fit.devices, slots[name].shape, fit.waiting, fit.cores))

    failed: Tried | None = None
    job.ready = have
    for order, rows, within in ways(session, job, pending):
        if job.ready + len(order) < need:
            break
        with session.attempt(rows, within) as attempt:
            tried = place_together(session, job, order, find, suffice=lambda left: job.ready + left >= need, settle=hold)
            if tried.placed and job.ready >= need:
                attempt.keep()
        if attempt.kept:
            _are_held(session, job, [(names[pod.pod], session.placements[pod.pod]) for pod in tried.placed])
            _say(session, job, tried, names, {names[pod.pod] for pod in tried.placed})
            return
        failed = failed or tried
    if failed is not None:
        _say(session, job, failed, names, ())


def _are_held(session: Session, job: Job, held: list[tuple[SlotName, Fit]]) -> None:
    """From now on they may be handed over."""
    assert job.hold is not None, "a Reservation's job"
    for name, fit in held:
        slot = session.state.slots[job.hold][name]
        capacity = Capacity.full(session.state.vectors[slot.shape].items, fit.devices, fit.cores)
        phase = SlotPhase.WAITING if fit.waiting else SlotPhase.HELD
        now = Slot(slot.shape, slot.task, phase, session.name(fit.row), fit.devices, queue=job.queue, cores=fit.cores, capacity=capacity)
        session.offers.change((job.hold, name), now)
    session.offers.add(job.hold)


def _say(session: Session, job: Job, tried: Tried, names: dict[PodUid, SlotName], held: Collection[SlotName]) -> None:
    """Why those are not that are not held; of a queue's refusal before all others."""
    assert job.hold is not None, "a Reservation's job"
    for reason in (QUOTA, UNSCHEDULABLE):
        if reason in tried.kept_back:
            return withhold(session, job, reason, tried.kept_back[reason], held)
    for pod, counts in tried.unfit.items():
        return say_unfit(session, e.HoldUnfit(job.hold, names[pod], *counts))
    return None


@contextmanager
def overlooking(session: Session, pod: PodUid) -> Iterator[None]:
    """Rules about what runs do not see this pod. Capacity on its node counts as ever."""
    rules = [rule for rule in session.extensions.filters if not rule.of_capacity] if pod in session.state.charges else []
    session.overlook(pod, rules)
    try:
        yield
    finally:
        session.see(pod, rules)


_COUNT = (SlotPhase.HELD, SlotPhase.WAITING, SlotPhase.USED)


def say_unfit(session: Session, unfit: e.HoldUnfit) -> None:
    """Where something else was said last."""
    said = session.state.slots[unfit.reservation][unfit.slot]
    if (unfit.nodes, unfit.reasons, unfit.message) != (said.nodes, said.reasons, said.message):
        session.events.append(unfit)


def _fit(session: Session, record: Reservation, slot: Slot, pod: e.PodObserved) -> Fit | None:
    """On the pinned node, else on the first preferred one that fits, else on the best; with preAllocation, where none fits,
    on the one where the least is still in use."""
    state = session.state
    concerned = session.concerned(pod)
    row: int | None = None
    for wanted in task_of(record, slot).preferred_nodes if not pod.pinned_node else ():
        row = state.table.rows.get(wanted)
        if row is not None and session.fits_at(pod, row, concerned):
            break
    else:
        row = session.best_row(pod, concerned)
    if row is None:
        if record.spec is None or not record.spec.pre_allocation:
            return None
        return _with_its_devices(state, record, waiting_fit(session, pod, concerned))
    fit = session.fit_at(pod, row)
    # No volume is chosen, nor made, before there is a pod (seed 004, "Unsolved Problems").
    return Fit(row, _promised(state, record, row) or fit.devices, (), _cores(session, record, pod, fit))


def waiting_fit(session: Session, pod: e.PodObserved, concerned: list[Filter]) -> Fit | None:
    """A node that is large enough, and where every rule but those about capacity lets the slot be: one where the capacity can come
    free although other slots keep theirs, before all others; of these the one that lacks the smallest part of it now, the
    first name among equals."""
    state, table = session.state, session.state.table
    v = state.vectors[pod.shape]
    fits = static_mask(state, pod.shape) & table.alive
    if pod.pinned_node:
        fits = fits & only(state, pod.pinned_node)
    lacks = np.zeros(len(fits), np.int64)
    for column, amount in v.items:
        fits = fits & (table.allocatable[:, column] >= amount)
        lacks += np.clip(amount - table.free[:, column], 0, amount) * _PARTS // amount
    session.look_as(pod)
    for rule in concerned:
        if not rule.for_others and not rule.of_capacity:
            for _, failing in rule.failing(pod):
                fits = fits & ~failing
    request = v.devices
    if request is not None:
        fits = fits & (table.device_counts >= request.count)
        able = (table.device_free >= request.milli).sum(axis=1)
        lacks += np.clip(request.count - able, 0, request.count) * _PARTS // request.count
    if not fits.any():
        return None
    rows = np.flatnonzero(fits)
    ordered = rows[np.argsort(lacks[rows] * (len(fits) + 1) + table.rank[rows])].tolist()
    for row in _last(ordered, lambda row: _kept_for_others(state, row, pod)):
        cores = session.choose_cores(pod, row)
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


def _kept_for_others(state: ClusterState, row: int, pod: e.PodObserved) -> bool:
    """Whether other slots keep so much of the node, with what their owners will leave to them, that this one can have its capacity
    only after one of them has ended."""
    held = state.held_on.get(state.table.names[row])
    if not held:
        return False
    v = state.vectors[pod.shape]
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


def _with_its_devices(state: ClusterState, record: Reservation, fit: Fit | None) -> Fit | None:
    """A move that turns back waits for the very devices that its pod had."""
    if fit is not None and is_migration_hold(state, record):
        fit.devices = state.migrations[record.fact.migration].move.devices or fit.devices
    return fit


def _cores(session: Session, record: Reservation, pod: e.PodObserved, fit: Fit) -> tuple[int, ...]:
    """Of the CPUs that a migration's plan promised as many as are still free."""
    chooser = session.extensions.cores
    if not fit.cores or chooser is None or not is_migration_hold(session.state, record):
        return fit.cores
    free = chooser.free(fit.row)
    promised = tuple(core for core in session.state.migrations[record.fact.migration].move.cores if core in free)
    return session.choose_cores(pod, fit.row, promised) or fit.cores


def _promised(state: ClusterState, record: Reservation, row: int) -> tuple[DeviceShare, ...]:
    """The devices that a migration's plan promised, while they are still free."""
    if not is_migration_hold(state, record):
        return ()
    devices = state.migrations[record.fact.migration].move.devices
    free = state.table.device_free[row]
    return devices if all(d.index < len(free) and free[d.index] >= d.milli for d in devices) else ()


def resize(session: Session) -> None:
    """All that are asked for in another size, in the order of their Reservations."""
    state = session.state
    # What this session has already given something of is looked at in the next one.
    due = [p for p in state.resizes if p not in state.to_release and session.offers.slot(p) is state.slots[p[0]][p[1]]]
    for key in sorted(due, key=lambda key: (state.reservations[key[0]].order, key[1])):
        if state.reservations[key[0]].alive and key not in session.left:
            _resize(session, key)


def _resize(session: Session, key: SlotKey) -> None:
    state = session.state
    uid, name = key
    record, slot = state.reservations[uid], session.offers.slot(key)
    pod = as_pod(record, name, slot, slot.asked)
    row = state.table.rows[slot.node]
    job = Job(uid, slot.queue, 0, record.order, record.fact.created)
    more = tuple(less(state.vectors[slot.asked].items, state.vectors[slot.shape].items))
    if more and (over := session.gates.quota(job, pod, more)) is not None:
        holds.say_unfit(session, e.HoldUnfit(uid, name, 0, {}, over.reason, over.message))
        return
    with session.attempt() as attempt:
        reasons = _hold_anew(session, job, pod, row, key)
        if reasons is None:
            attempt.keep()
    if reasons is not None:
        holds.say_unfit(session, e.HoldUnfit(uid, name, *reasons))


def _hold_anew(session: Session, job: Job, pod: e.PodObserved, row: int, key: SlotKey) -> tuple[int, dict[str, int]] | None:
    """Its capacity is given back and held anew. Returns why it cannot be, None where it is."""
    state = session.state
    uid, name = key
    was = session.vacate(row, key)
    fit = _here(session, pod, row, key)
    if fit is not None:
        session.events.append(e.HoldResized(uid, name, was.asked, fit.devices, fit.cores))
        _settle(session, job, pod, key, was, fit)
        return None
    # Who takes from it keeps it where it is; and the last one that is left of several is not let go: with it all would be lost.
    tally = state.tally_of(uid)
    stays = bool(state.slot_users.get(key)) or (tally.failed > 0 and tally.held + tally.waiting == 1)
    fit = None if stays else session.find(pod)
    if fit is None:
        return session.reasons(pod)
    session.events += [
        e.HoldReleased(uid, name, SUPERSEDED),
        e.HoldPlaced(uid, name, session.name(fit.row), fit.devices, was.asked, cores=fit.cores),
    ]
    _settle(session, job, pod, key, replace(was, phase=SlotPhase.HELD), fit)
    return None


def _here(session: Session, pod: e.PodObserved, row: int, key: SlotKey) -> Fit | None:
    """In the new size on its node, what is allocated of it aside, which is there already."""
    state = session.state
    if pod.pinned_node and pod.pinned_node != session.name(row):
        return None
    allocations = [state.allocations[uid] for uid in state.slot_users.get(key, ())]
    with session.attempt():
        for allocation in allocations:
            session.nodes.give(row, vector_of(allocation.items), allocation.devices)
        fit = session.fit_at(pod, row) if session.fits_at(pod, row, session.concerned(pod)) else None
    if fit is None:
        return None
    mine = {d.index for allocation in allocations for d in allocation.devices}
    # Shares in use stay where they are.
    return fit if mine <= {d.index for d in fit.devices} else None


def _settle(session: Session, job: Job, pod: e.PodObserved, key: SlotKey, was: Slot, fit: Fit) -> None:
    """Every rule sees it as it will be: another shape may have other ports, terms and CPUs."""
    state = session.state
    row = state.table.rows[was.node]
    session.place(job, pod, fit)
    full = state.vectors[was.asked].items
    wanted, devices, cores = state.unallocated(key, full, fit.devices, fit.cores)
    # What owners have taken of it is theirs, and counts already.
    session.relieve(row, was.queue, tuple(less(full, wanted)), fewer(fit.devices, devices))
    if session.awaited(row):
        # What it gives up goes to those who wait there, not to this session.
        stays = fit.row == row
        rest = less(was.capacity.held, wanted if stays else ())
        session.nodes.take(row, vector_of(rest), fewer(was.capacity.held_devices, devices if stays else ()))
    now = Slot(
        was.asked, was.task, was.phase, session.name(fit.row), fit.devices, queue=was.queue, cores=fit.cores,
        capacity=Capacity.full(wanted, devices, cores),
    )
    session.offers.change(key, now)
