"""Deletes Reservations that are due, and drops the log's prefix."""

from collections.abc import Mapping

from restow.domain.effects import DeleteReservation, DropPrefix, Effect
from restow.domain.records import FINAL, Reservation
from restow.domain.state import ClusterState
from restow.eventlog.port import Unavailable
from restow.garbage_collector.snapshot_keeper import holds
from restow.kube import effects as k
from restow.kube import reservation_objects
from restow.kube.retry import Backoff
from restow.runtime.effector import Answer, Done, Executor, Retry, Wait, later
from restow.runtime.service import Context

OWN_TURN = 2_000
"""Milliseconds in which the descheduler deletes what its migrations no longer need; what it has missed then is deleted here."""


def executors(context: Context) -> Mapping[type[Effect], Executor]:
    effects = _GcEffects(context)
    return {
        DeleteReservation: Executor(effects.delete, limit=8),
        DropPrefix: Executor(effects.drop, limit=1, settle=24 * 3600.0),
    }


class _GcEffects:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = reservation_objects.Reservations(context.client, Backoff(attempts=1))

    async def delete(self, effect: DeleteReservation, state: ClusterState) -> Answer:
        record = state.reservations[effect.reservation]
        fact = record.fact
        if (left := own_turn(state, record, self._context.clock.now())) > 0:
            return Wait(left / 1000)
        outcome = await self._kube.delete(reservation_objects.CrRef(fact.api, fact.namespace, fact.name, fact.reservation))
        return later(outcome) if isinstance(outcome, k.Failed | k.Refused) else Done()

    async def drop(self, effect: DropPrefix, state: ClusterState) -> Answer:
        """Not before the archive was seen to hold it: its volume or bucket may have been lost since it was reported."""
        log = self._context.log
        try:
            first = await log.first()
            if first > effect.upto:
                return Done()
            if (there := await holds(self._context, first, effect.upto)) < effect.upto:
                return Retry(f"the archive that is there does not hold records {max(first, there + 1)} to {effect.upto}: nothing is dropped")
            await log.truncate(effect.upto)
        except Unavailable as error:
            return Retry(str(error))
        return Done()


def own_turn(state: ClusterState, record: Reservation, now: int) -> int:
    """Milliseconds for which whoever made it is to delete it: two requests for each hold would only make the API busier."""
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    if migration is None or migration.reservation != record.fact.reservation or migration.step not in FINAL:
        return 0
    return min(max(migration.since + OWN_TURN - now, 0), OWN_TURN)
