"""Pods that freed capacity is held for (RULES 004-6): placed as soon as all of it is held, given up at their deadline."""

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.records import Nomination
from restow.domain.session.run import Fit, Session
from restow.domain.table import vector_of

DEADLINE = "Deadline"
NO_LONGER_FITS = "NoLongerFits"


def settle_nominations(session: Session) -> None:
    state = session.state
    for pod, nomination in list(state.nominations.items()):
        if nomination.complete:
            _take(session, pod, nomination)
        elif nomination.deadline <= session.now:
            give_up(session, pod, nomination, DEADLINE)


def _take(session: Session, uid: PodUid, nomination: Nomination) -> None:
    """Its room is there; every rule about the node is asked once more."""
    state = session.state
    pod = state.pods[uid]
    row = state.table.rows[nomination.node]
    session.board.give(row, vector_of(nomination.held), nomination.held_devices)
    if not session.fits_at(pod, row, session.concerned(pod)):
        session.board.take(row, vector_of(nomination.held), nomination.held_devices)
        give_up(session, uid, nomination, NO_LONGER_FITS)
        return
    volumes = session.fit_at(pod, row).volumes
    fit = Fit(row, nomination.devices, volumes)
    session.place(session.job_for(uid), pod, fit)
    session.events.append(session.placed_event(pod, fit))


def give_up(session: Session, uid: PodUid, nomination: Nomination, reason: str) -> None:
    """Victims that have not been told to go yet stay."""
    state = session.state
    session.events.append(e.NominationEnded(uid, reason))
    for victim in nomination.victims:
        chosen = state.victims_of.get(victim)
        if chosen is not None and chosen.by == uid and not state.live[victim].deleting:
            session.events.append(e.PreemptionEnded(victim, reason))
