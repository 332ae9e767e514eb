"""Deletes Reservations that are due, and drops the log's prefix."""

from collections.abc import Mapping

from restow.domain.effects import DeleteReservation, DropPrefix, Effect
from restow.domain.state import ClusterState
from restow.eventlog.port import Unavailable
from restow.kube import crs
from restow.kube import effects as k
from restow.kube.retry import Backoff
from restow.runtime.effector import Answer, Done, Executor, Retry, later
from restow.runtime.service import Context


def executors(context: Context) -> Mapping[type[Effect], Executor]:
    effects = _GcEffects(context)
    return {
        DeleteReservation: Executor(effects.delete, limit=8),
        DropPrefix: Executor(effects.drop, limit=1, settle=24 * 3600.0),
    }


class _GcEffects:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._kube = crs.Reservations(context.client, Backoff(attempts=1))

    async def delete(self, effect: DeleteReservation, state: ClusterState) -> Answer:
        fact = state.reservations[effect.reservation].fact
        match await self._kube.delete(crs.CrRef(fact.door, fact.namespace, fact.name, fact.reservation)):
            case k.Failed() as failed:
                return later(failed)
            case k.Refused(code=code, reason=reason, message=message):
                return Retry(f"refused: {code} {reason} {message}", after=30.0)
        return Done()

    async def drop(self, effect: DropPrefix, state: ClusterState) -> Answer:
        try:
            await self._context.log.truncate(effect.upto)
        except Unavailable as error:
            return Retry(str(error))
        return Done()
