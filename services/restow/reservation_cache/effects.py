"""The one effect on Reservations that are not ours to create or delete: their status, and Events that say what has changed.

An Event tells a phase, or another reason for it: Available, PartlyAllocated, FullyAllocated, Expired, Unschedulable with counts.
Which pods use it is in its status, and on the pods. Fields that mean nothing are told once a generation.
"""

from collections.abc import Mapping

from restow.contracts.events import ReservationObserved
from restow.contracts.ids import ReservationUid
from restow.domain.effects import Effect, WriteReservationStatus
from restow.domain.evolve.phases import HELD
from restow.domain.records import PhaseSince, ReservationPhase
from restow.domain.reservation.decider import told_by_us
from restow.domain.state import ClusterState
from restow.domain.statuses.reservation_status import status
from restow.domain.verdicts import PLACEHOLDER
from restow.kube import effects as k
from restow.kube import reservation_objects
from restow.kube.event_recorder import Notice, Regarding
from restow.kube.retry import Backoff
from restow.runtime.effector import Answer, Done, Executor, later
from restow.runtime.service import Context

API = {"volcano": "batch.volcano.sh/v1alpha1", "koordinator": "scheduling.koordinator.sh/v1alpha1"}
RECENT = 60_000
"""A phase, or an object, older than this, in ms, was told of by the process before this one."""
UNKNOWN = "UnknownFields"
NAMED = 10
"""Of unknown fields, so many are named."""


def executors(context: Context) -> Mapping[type[Effect], Executor]:
    return {WriteReservationStatus: Executor(_Status(context).write, limit=8, settle=0)}


class _Status:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = reservation_objects.Reservations(context.client, Backoff(attempts=1))
        self._told: dict[ReservationUid, tuple[ReservationPhase, str]] = {}
        self._generations: dict[ReservationUid, int] = {}

    async def write(self, effect: WriteReservationStatus, state: ClusterState) -> Answer:
        record = state.reservations.get(effect.reservation)
        if record is None:
            return Done()
        if len(self._generations) > 2 * len(state.reservations) + 64:
            self._told = {uid: said for uid, said in self._told.items() if uid in state.reservations}
            self._generations = {uid: said for uid, said in self._generations.items() if uid in state.reservations}
        fact = record.fact
        if not told_by_us(state, effect.reservation):
            # What was said while it was ours stays, and its users are told that it is not any more.
            self._tell(state, effect.reservation)
            return Done()
        outcome = await self._kube.write_status(
            reservation_objects.CrRef(fact.api, fact.namespace, fact.name, fact.reservation), status(state, effect.reservation)
        )
        if isinstance(outcome, k.Failed | k.Refused):
            return later(outcome)
        self._tell(state, effect.reservation)
        return Done()

    def _tell(self, state: ClusterState, uid: ReservationUid) -> None:
        record, since = state.reservations.get(uid), state.phases.get(uid)
        if record is None:
            self._told.pop(uid, None)
            self._generations.pop(uid, None)
            return
        self._tell_unknown(record.fact, state.time)
        if since is None or self._told.get(uid) == (since.phase, since.reason):
            return
        # The reason, too: a Reservation is Pending before anybody can say that it fits nowhere.
        self._told[uid] = since.phase, since.reason
        if state.time - since.changed <= RECENT:
            self._record(record.fact, *notice_of(since))

    def _tell_unknown(self, fact: ReservationObserved, now: int) -> None:
        known = self._generations.get(fact.reservation)
        self._generations[fact.reservation] = fact.generation
        if not fact.unknown or known == fact.generation or (known is None and now - fact.created > RECENT):
            return
        more = len(fact.unknown) - NAMED
        named = ", ".join(fact.unknown[:NAMED]) + (f" and {more} more" if more > 0 else "")
        self._record(fact, UNKNOWN, f"generation {fact.generation} has fields that mean nothing: {named}", True)

    def _record(self, fact: ReservationObserved, reason: str, note: str, bad: bool) -> None:
        regarding = Regarding(API[fact.api], "Reservation", fact.namespace, fact.name, fact.reservation)
        self._context.recorder.record(Notice(regarding, reason, "Reserve", note, "Warning" if bad else "Normal"))


def notice_of(since: PhaseSince) -> tuple[str, str, bool]:
    """Reason, sentence, and whether it is bad, of the Event that tells this phase."""
    pending = since.phase is ReservationPhase.PENDING and since.reason
    bad = since.phase in (ReservationPhase.FAILED, ReservationPhase.WAITING) or bool(pending)
    # A placeholder takes a moment to start: that it does is nothing to worry about.
    bad = bad and since.reason != PLACEHOLDER
    reason = "" if since.reason == HELD else since.reason
    return str(reason or since.phase), since.message or f"the Reservation is {since.phase}", bad
