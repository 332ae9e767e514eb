"""What is owed to the world for a migration: intents in the log that facts have not answered yet (DESIGN 5).

`pending` asks for all of it after a restart; every effect is safe to repeat and safe to be late.
"""

from collections.abc import Iterator

from restow.domain.effects import AbortEviction, CreateHold, DeleteReservation, Effect, Evict
from restow.domain.migration.advance import held
from restow.domain.records import FINAL, Migration, Step
from restow.domain.state import ClusterState, Touched


def pending(state: ClusterState, touched: Touched | None) -> list[Effect]:
    ids = list(state.migrations) if touched is None else list(touched.migrations)
    return [effect for id in ids if (m := state.migrations.get(id)) is not None for effect in _of(state, m)]


def owed(state: ClusterState, effect: Effect) -> bool:
    match effect:
        case CreateHold(migration=id) | Evict(migration=id) | AbortEviction(migration=id):
            migration = state.migrations.get(id)
        case DeleteReservation(reservation=uid):
            record = state.reservations.get(uid)
            migration = None if record is None else state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
        case _:
            return False
    return migration is not None and effect in _of(state, migration)


def _of(state: ClusterState, migration: Migration) -> Iterator[Effect]:
    match migration.step:
        case Step.HOLDING if not migration.reservation:
            yield CreateHold(migration.id)
        case Step.EVICTING:
            # Asked again before every attempt: a hold that was lost since the decision stops it at once.
            if held(state, migration):
                yield Evict(migration.id)
        case Step.ABORTING:
            yield AbortEviction(migration.id)
        case step if step in FINAL:
            # Landed, too: the object has done its work. garbage_collector removes what is missed here.
            record = state.reservations.get(migration.reservation)
            if record is not None and not record.gone and not record.fact.deleting:
                yield DeleteReservation(migration.reservation)
