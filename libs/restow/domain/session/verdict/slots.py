"""Why slots of a Reservation wait, and what would let them be held: decided again, as the session would."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from msgspec.structs import replace

from restow.contracts.events import PodObserved
from restow.contracts.ids import ReservationUid, SlotName
from restow.domain.accounts import Amounts, charge
from restow.domain.occupants import as_pod
from restow.domain.records import ON_NODE, Reservation, SlotPhase
from restow.domain.session import holds
from restow.domain.session.fitting import Fit
from restow.domain.session.hold_offers import slot_order
from restow.domain.session.jobs import Job
from restow.domain.session.one_reusable_per_node import OneReusablePerNode
from restow.domain.session.session import Session
from restow.domain.session.verdict import nodes
from restow.domain.session.verdict.explain import opened
from restow.domain.session.verdict.gangs import more_empty, smaller_each
from restow.domain.session.verdict.quota import capability
from restow.domain.session.verdict.values import Block, Relief, SlotsFit
from restow.domain.state import ClusterState

WaitingSlots = Sequence[tuple[SlotName, PodObserved]]

def explain_slots(state: ClusterState, uid: ReservationUid) -> SlotsFit | None:
    """How many of the slots that have no node yet fit now, and why the others do not; None where none waits, or nothing may
    be held for this Reservation."""
    record = state.reservations[uid]
    with opened(state) as session:
        job = _job(session, uid)
        waiting = _waiting(state, record)
        if job is None or not waiting:
            return None
        found = tuple(_blocks(session, job, waiting))
        unfit: list[tuple[SlotName, PodObserved]] = []
        with _placed(session, job, record, waiting, unfit) as fit:
            reliefs: list[Relief] = []
            if not found and not fit.complete and fit.first:
                reliefs += _lifted(session, fit, unfit)
        if not found and not fit.complete:
            reliefs += _fewer(fit)
            reliefs += _less(session, job, record, waiting, fit)
        return replace(fit, blocks=found, reliefs=tuple(dict.fromkeys(reliefs)))


def _job(session: Session, uid: ReservationUid) -> Job | None:
    return next((job for job in holds.jobs(session) if job.hold == uid), None)


def _waiting(state: ClusterState, record: Reservation) -> WaitingSlots:
    """The slots without a node, each as the pod that it is held for."""
    found = []
    slots = state.slots.get(record.fact.reservation, {})
    for name in sorted(slots, key=slot_order):
        slot = slots[name]
        if slot.phase is SlotPhase.PENDING:
            found.append((name, as_pod(record, name, slot, slot.shape)))
    return found


def _blocks(session: Session, job: Job, waiting: WaitingSlots) -> Iterator[Block]:
    """What is between it and any node at all."""
    gates = session.gates
    for why in dict.fromkeys((gates.valid(job), gates.queue(job.queue), *[gates.rules(pod) for _, pod in waiting])):
        if why is not None:
            yield Block(why.reason, why.message)


@contextmanager
def _placed(
    session: Session, job: Job, record: Reservation, waiting: WaitingSlots, unfit: list[tuple[SlotName, PodObserved]]
) -> Iterator[SlotsFit]:
    """All that fit beside each other are placed, and taken back at the end. `unfit` gets the others."""
    slots = session.state.slots[record.fact.reservation]
    have = sum(slot.phase in (*ON_NODE, SlotPhase.USED) for slot in slots.values())
    first, count, quota = "", 0, ""
    reasons: dict[str, int] = {}
    with session.attempt():
        for name, pod in waiting:
            why = session.gates.quota(job, pod)
            fit = None if why is not None else _find(session, record, pod)
            if fit is not None:
                session.place(job, pod, fit)
                continue
            unfit.append((name, pod))
            quota = quota or (why.message if why is not None else "")
            if not first and why is None:
                first, (count, reasons) = name, session.reasons(pod)
        fits = len(waiting) - len(unfit)
        yield SlotsFit(record.min_available, have, len(waiting), fits, not unfit, first, count, reasons, quota)


def _find(session: Session, record: Reservation, pod: PodObserved) -> Fit | None:
    """As the session does; with preAllocation also where the capacity is in use."""
    fit = session.find(pod)
    if fit is None and record.spec is not None and record.spec.pre_allocation:
        return holds.waiting_fit(session, pod, session.concerned(pod))
    return fit


def _lifted(session: Session, fit: SlotsFit, unfit: WaitingSlots) -> Iterator[Relief]:
    """Rules about nodes that are alone between the missing slots and enough nodes, and how many nodes more would do; with the
    others in place. Where one slot waits also what a smaller request would do."""
    pod = next(pod for name, pod in unfit if name == fit.first)
    missing = len(unfit)
    for relief in nodes.reliefs(session, pod, nodes.Masks(session, pod)):
        if fit.waiting == 1 or (relief.nodes >= missing and not _is_less(relief)):
            yield relief
    if pod.pinned_node:
        count = nodes.Masks(session, replace(pod, pinned_node="")).fits
        if count >= missing:
            yield Relief(f"without the pin to {pod.pinned_node}", count)
    elif all(rule.for_others or isinstance(rule, OneReusablePerNode) for _, pod in unfit for rule in session.concerned(pod)):
        # Nothing but capacity is between them and new nodes, which nobody has anything on.
        yield from more_empty(session, [pod for _, pod in unfit])


def _is_less(relief: Relief) -> bool:
    """Whether it is about the size of a request: that is one of all slots of the task, see `_less`."""
    return " request of at most " in relief.change or relief.change.startswith("a GPU share")


def _fewer(fit: SlotsFit) -> Iterator[Relief]:
    if 0 < fit.have + fit.fit < fit.need:
        yield Relief(f"a minAvailable of at most {fit.have + fit.fit}")


def _less(session: Session, job: Job, record: Reservation, waiting: WaitingSlots, fit: SlotsFit) -> Iterator[Relief]:
    """More of the queue's quota, or smaller slots: the least that would do, decided again."""
    state = session.state

    def helps(what_if: Session) -> bool:
        again = _job(what_if, record.fact.reservation)
        if again is None:
            return False
        with _placed(what_if, again, record, waiting, []) as then:
            return then.complete

    if fit.quota:
        wanted: Amounts = {}
        for _, pod in waiting:
            charge(wanted, state.vectors[pod.shape].items)
        yield from capability(session, job, wanted, helps)
        return
    shapes = {pod.shape for _, pod in waiting}
    if len(shapes) == 1 and len(waiting) > 1:
        yield from smaller_each(state, shapes.pop(), len(waiting), helps)
