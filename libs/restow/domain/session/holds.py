"""Placing the places of a Reservation: as a gang, like a job of pods that skip the bind (seed 000, RULES 000-1, 000-3)."""

from collections.abc import Iterator

from restow.contracts import events as e
from restow.contracts.ids import ReservationUid, SlotName
from restow.domain.evolve.reservations import alive
from restow.domain.records import FINAL, Slot, SlotPhase
from restow.domain.session.handover import is_migration_hold, slot_order
from restow.domain.session.run import Session, Unit
from restow.domain.state import ClusterState, turn


def hold_units(state: ClusterState) -> Iterator[Unit]:
    """One unit a Reservation that has places to be held, by the highest priority among them. Migration holds come before
    everything (RULES G-7); nothing is held any more for a migration that is over."""
    priorities: dict[ReservationUid, int] = {}
    for uid, name in state.slot_queue:
        priority = state.shapes[state.slots[uid][name].shape].priority
        priorities[uid] = max(priority, priorities.get(uid, priority))
    for uid, priority in priorities.items():
        record = state.reservations[uid]
        if not alive(record):
            continue
        migration = is_migration_hold(state, record)
        if migration and state.migrations[record.fact.migration].step in FINAL:
            continue
        yield (0 if migration else 1, turn(priority, record.order)), "hold", uid


def place_gang(run: Session, uid: ReservationUid) -> None:
    """Hold at least `min_available` places of this Reservation in all, or none of those that wait."""
    state = run.state
    record = state.reservations[uid]
    slots = sorted(state.slots[uid].items(), key=lambda item: slot_order(item[0]))
    have = sum(slot.phase in (SlotPhase.HELD, SlotPhase.USED) for _, slot in slots)
    left = sum(slot.phase is SlotPhase.PENDING for _, slot in slots)
    mark = len(run.events)
    unfit: e.HoldUnfit | None = None
    placed: list[e.HoldPlaced] = []
    with state.draft():
        for name, slot in slots:
            if slot.phase is SlotPhase.PENDING:
                left -= 1
                event = _place(run, uid, name, slot)
                if event is None:
                    # Counted with the rest of the gang in place: that is what it does not fit beside.
                    unfit = unfit or _unfit(run, uid, name, slot)
                    if have + len(placed) + left < record.min_available:
                        break
                else:
                    run.emit(event)
                    placed.append(event)
    del run.events[mark:]
    for event in placed:
        run.placer.changed(state.table.rows[event.node])
    if placed and have + len(placed) >= record.min_available:
        for event in placed:
            run.emit(event)
        if uid in state.available:
            run.offers.add(uid)
    if unfit is not None:
        said = state.slots[uid][unfit.slot]
        if (unfit.nodes, unfit.reasons) != (said.nodes, said.reasons):
            run.emit(unfit)


def _unfit(run: Session, uid: ReservationUid, name: SlotName, slot: Slot) -> e.HoldUnfit:
    nodes, counts = run.reasons(slot.shape, _task(run.state, uid, slot).node)
    return e.HoldUnfit(uid, name, nodes, counts)


def _task(state: ClusterState, uid: ReservationUid, slot: Slot):
    spec = state.reservations[uid].spec
    assert spec is not None, "an accepted Reservation has a spec"
    return next(task for task in spec.tasks if task.name == slot.task)


def _place(run: Session, uid: ReservationUid, name: SlotName, slot: Slot) -> e.HoldPlaced | None:
    state = run.state
    task = _task(state, uid, slot)
    for wanted in (task.node,) if task.node else task.preferred_nodes:
        row = state.table.rows.get(wanted)
        if row is not None and run.placer.fits(slot.shape, row):
            break
    else:
        row = None if task.node else run.placer.best(slot.shape)
    if row is None:
        return None
    devices = _promised(state, uid, row) or state.table.choose_devices(row, state.shapes[slot.shape].devices) or ()
    return e.HoldPlaced(uid, name, state.table.names[row], devices)


def _promised(state: ClusterState, uid: ReservationUid, row: int):
    """The devices that a migration's plan promised, while they are still free."""
    record = state.reservations[uid]
    if not is_migration_hold(state, record):
        return ()
    devices = state.migrations[record.fact.migration].move.devices  # type: ignore[index]
    free = state.table.device_free[row]
    return devices if all(d.index < len(free) and free[d.index] >= d.milli for d in devices) else ()
