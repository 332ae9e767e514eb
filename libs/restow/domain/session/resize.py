"""Holds that a later generation asks for in another size: on their node if that has it, else elsewhere in the same commit, else
they stay as they are until one of both can be."""

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.values import DeviceShare
from restow.domain.evolve.reservations import SUPERSEDED
from restow.domain.occupants import as_pod
from restow.domain.places import Place
from restow.domain.records import Room, Slot, SlotPhase
from restow.domain.session import holds
from restow.domain.session.jobs import QUOTA, Job
from restow.domain.session.run import Session
from restow.domain.session.view import Fit
from restow.domain.table import fewer, less, vector_of


def resize(session: Session) -> None:
    """All that are asked for in another size, in the order of their Reservations."""
    state = session.state
    # What this session has already given something of is looked at in the next one.
    due = [p for p in state.resizes if p not in state.to_release and session.offers.slot(p) is state.slots[p[0]][p[1]]]
    for place in sorted(due, key=lambda place: (state.reservations[place[0]].order, place[1])):
        if state.reservations[place[0]].alive and place not in session.left:
            _resize(session, place)


def _resize(session: Session, place: Place) -> None:
    state = session.state
    uid, name = place
    record, slot = state.reservations[uid], session.offers.slot(place)
    pod = as_pod(record, name, slot, slot.asked)
    row = state.table.rows[slot.node]
    job = Job(uid, slot.queue, 0, record.order, record.fact.created)
    more = tuple(less(state.vectors[slot.asked].items, state.vectors[slot.shape].items))
    if more and (over := session.quota(job, pod, more)):
        holds.say_unfit(session, e.HoldUnfit(uid, name, 0, {}, QUOTA, over))
        return
    was = session.offers.lost(place)
    session.vacate(row, place, was)
    fit = _here(session, pod, row, place)
    if fit is not None:
        session.events.append(e.HoldResized(uid, name, slot.asked, fit.devices, fit.cores))
        _hold(session, job, pod, place, was, fit)
        return
    # Who draws from it keeps it where it is; and the last one that is left of several is not let go: with it all would be lost.
    tally = state.tally_of(uid)
    stays = bool(state.drawers.get(place)) or (tally.failed > 0 and tally.held + tally.waiting == 1)
    fit = None if stays else session.find(pod)
    if fit is not None:
        session.events += [
            e.HoldReleased(uid, name, SUPERSEDED),
            e.HoldPlaced(uid, name, session.name(fit.row), fit.devices, slot.asked, cores=fit.cores),
        ]
        _hold(session, job, pod, place, replace(was, phase=SlotPhase.HELD), fit)
        return
    reasons = session.reasons(pod)
    _restore(session, row, place, was)
    holds.say_unfit(session, e.HoldUnfit(uid, name, *reasons))


def _here(session: Session, pod: e.PodObserved, row: int, place: Place) -> Fit | None:
    """In the new size on its node, what is drawn of it aside, which is there already."""
    state = session.state
    if pod.pinned_node and pod.pinned_node != session.name(row):
        return None
    drawn = [state.draws[uid] for uid in state.drawers.get(place, ())]
    given: list[tuple[tuple, tuple[DeviceShare, ...]]] = [(draw.items, draw.devices) for draw in drawn]
    for items, devices in given:
        session.board.give(row, vector_of(items), devices)
    fits = session.fits_at(pod, row, session.concerned(pod))
    fit = session.fit_at(pod, row) if fits else None
    for items, devices in given:
        session.board.take(row, vector_of(items), devices)
    if fit is None:
        return None
    mine = {d.index for draw in drawn for d in draw.devices}
    # Shares in use stay where they are.
    return fit if mine <= {d.index for d in fit.devices} else None


def _restore(session: Session, row: int, place: Place, was: Slot) -> None:
    session.offers.held_again(place, was)
    session.reoccupy(row, place, was)


def _hold(session: Session, job: Job, pod: e.PodObserved, place: Place, was: Slot, fit: Fit) -> None:
    """Every rule sees it as it will be: another shape may have other ports, terms and CPUs."""
    state = session.state
    row = state.table.rows[was.node]
    session.place(job, pod, fit)
    full = state.vectors[was.asked].items
    wanted, devices, cores = state.undrawn(place, full, fit.devices, fit.cores)
    session.relieve(row, was.queue, less(full, wanted), fewer(fit.devices, devices))
    if session.awaited(row):
        # What it gives up goes to those who wait there, not to this session.
        stays = fit.row == row
        rest = less(was.room.held, wanted if stays else ())
        session.board.take(row, vector_of(rest), fewer(was.room.held_devices, devices if stays else ()))
    now = Slot(
        was.asked, was.task, was.phase, session.name(fit.row), fit.devices, queue=was.queue, cores=fit.cores,
        room=Room.full(wanted, devices, cores),
    )
    session.offers.held_again(place, now)
