"""The one effect on Reservations that are not ours to create or delete: their status, and an Event when phase or reason move."""

from collections.abc import Mapping

from restow.contracts.ids import ReservationUid
from restow.domain.effects import Effect, WriteReservationStatus
from restow.domain.records import ReservationPhase
from restow.domain.state import ClusterState
from restow.kube import crs
from restow.kube import effects as k
from restow.kube.record import Notice, Regarding
from restow.kube.retry import Backoff
from restow.reservation_cache.status import status
from restow.runtime.effector import Answer, Done, Executor, Retry, later
from restow.runtime.service import Context

API = {"volcano": "batch.volcano.sh/v1alpha1", "koordinator": "scheduling.koordinator.sh/v1alpha1"}
RECENT = 60_000
"""A phase older than this, in ms, was told by the process before this one."""


def executors(context: Context) -> Mapping[type[Effect], Executor]:
    return {WriteReservationStatus: Executor(_Status(context).write, limit=8, settle=0)}


class _Status:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = crs.Reservations(context.client, Backoff(attempts=1))
        self._told: dict[ReservationUid, tuple[ReservationPhase, str]] = {}

    async def write(self, effect: WriteReservationStatus, state: ClusterState) -> Answer:
        record = state.reservations.get(effect.reservation)
        if record is None:
            return Done()
        fact = record.fact
        match await self._kube.write_status(
            crs.CrRef(fact.door, fact.namespace, fact.name, fact.reservation), status(state, effect.reservation)
        ):
            case k.Failed() as failed:
                return later(failed)
            case k.Refused(code=code, reason=reason, message=message):
                return Retry(f"refused: {code} {reason} {message}", after=30.0)
        self._tell(state, effect.reservation)
        return Done()

    def _tell(self, state: ClusterState, uid: ReservationUid) -> None:
        record, since = state.reservations.get(uid), state.phases.get(uid)
        if record is None:
            self._told.pop(uid, None)
            return
        if since is None or self._told.get(uid) == (since.phase, since.reason):
            return
        # The reason, too: a Reservation is Pending before anybody can say that it fits nowhere.
        self._told[uid] = since.phase, since.reason
        if state.time - since.since > RECENT:
            return
        fact = record.fact
        regarding = Regarding(API[fact.door], "Reservation", fact.namespace, fact.name, fact.reservation)
        pending = since.phase is ReservationPhase.PENDING and since.reason
        bad = since.phase in (ReservationPhase.FAILED, ReservationPhase.WAITING) or pending
        note = since.message or f"the Reservation is {since.phase}"
        reason = str(since.reason or since.phase)
        self._context.recorder.record(Notice(regarding, reason, "Reserve", note, "Warning" if bad else "Normal"))
