"""What is owed to the world for a migration: intents in the log that facts have not answered yet (DESIGN 5).

`pending` asks for all of it after a restart; every effect is safe to repeat and safe to be late.
"""

from collections.abc import Iterator

from restow.contracts.ids import MigrationId, ReservationUid
from restow.domain.effects import (
    AbortEviction,
    AskConsent,
    CloseLanding,
    CreateDemandSlot,
    CreateHold,
    DeleteReservation,
    Effect,
    Evict,
    MarkNode,
    OpenLanding,
    TellBounced,
    TellGroupMoves,
    TellWorkload,
    WithdrawRequest,
)
from restow.domain.groups import named
from restow.domain.migration import consents, demand_slots, emptied, gating, successor
from restow.domain.migration.eviction import may_be_tried
from restow.domain.migration.whole_nodes import Source, Whole, is_of_gang
from restow.domain.records import FINAL, DemandSlot, Migration, Step
from restow.domain.state import ClusterState, Touched


def pending(state: ClusterState, touched: Touched | None) -> list[Effect]:
    ids = list(state.migrations) if touched is None else _with_gangs(state, touched)
    known = [m for id in ids if (m := state.migrations.get(id)) is not None]
    found: list[Effect] = [effect for m in known for effect in _of(state, m)]
    for key, demand_slot in state.demand_slots.items():
        found += _of_demand_slot(state, key, demand_slot)
    groups = state.group_moves if touched is None else dict.fromkeys(named(m.group) for m in known if m.group)
    found += [TellGroupMoves(*group, moves.version) for group in groups if (moves := state.group_moves.get(group)) is not None]
    found += emptied.pending(state, touched)
    # Of what was found before a restart people were told then.
    found += [TellBounced(*key) for key in (touched.findings if touched is not None else ())]
    return found


def _with_gangs(state: ClusterState, touched: Touched) -> list[MigrationId]:
    """What happens to one pod of a gang that is moved as one may be what all others of it wait for before they are evicted."""
    found: dict[MigrationId, None] = dict.fromkeys(touched.migrations)
    gangs: dict[Source, None] = {}
    whole = Whole(state)
    for id in touched.migrations:
        one = state.migrations.get(id)
        if one is not None and one.step in (Step.EVICTING, Step.EVICTED) and is_of_gang(state, one) and (key := whole.key(one)) not in gangs:
            gangs[key] = None
            found |= dict.fromkeys(other.id for other in whole.members(one) if other.step is Step.EVICTING)
    return list(found)


def owed(state: ClusterState, effect: Effect) -> bool:
    match effect:
        case CreateHold(migration=id) | Evict(migration=id) | AbortEviction(migration=id) | OpenLanding(migration=id) | CloseLanding(migration=id):
            migration = state.migrations.get(id)
        case AskConsent(migration=id) | WithdrawRequest(migration=id) | TellWorkload(migration=id):
            migration = state.migrations.get(id)
        case CreateDemandSlot(name=key):
            demand_slot = state.demand_slots.get(key)
            return demand_slot is not None and demand_slots.wanted(state, demand_slot)
        case MarkNode():
            return emptied.owed(state, effect)
        case TellGroupMoves(namespace=namespace, group=group):
            return (namespace, group) in state.group_moves and (namespace, group) in state.pod_groups
        case TellBounced(lineage=lineage, node=node):
            return (lineage, node) in state.left_alone
        case DeleteReservation(reservation=uid) if (demand_slot := _demand_slot_of(state, uid)) is not None:
            return demand_slots.unwanted(state, demand_slot)
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
            # Asked again before every attempt: what has come since the decision stops it at once.
            if may_be_tried(state, migration):
                yield Evict(migration.id)
        case Step.ABORTING:
            yield AbortEviction(migration.id)
        case Step.EVICTED if migration.back and not migration.reservation and successor.pattern(state, migration) is not None:
            yield CreateHold(migration.id, back=True)
        case step if step in FINAL:
            # Landed, too: the object has done its work. garbage_collector removes what is missed here.
            yield from _deletion(state, migration.reservation)
    yield from gating.pending(state, migration)
    yield from consents.pending(state, migration)
    if migration.spent:
        yield from _deletion(state, migration.spent)


def _deletion(state: ClusterState, uid: ReservationUid) -> Iterator[Effect]:
    record = state.reservations.get(uid)
    if record is not None and not record.gone and not record.fact.deleting:
        yield DeleteReservation(uid)


def _of_demand_slot(state: ClusterState, key: str, demand_slot: DemandSlot) -> Iterator[Effect]:
    if demand_slots.wanted(state, demand_slot):
        yield CreateDemandSlot(key)
    elif demand_slots.unwanted(state, demand_slot):
        yield DeleteReservation(demand_slot.reservation)


def _demand_slot_of(state: ClusterState, uid: ReservationUid) -> DemandSlot | None:
    record = state.reservations.get(uid)
    demand_slot = state.demand_slots.get(f"{record.fact.namespace}/{record.fact.name}") if record is not None else None
    return demand_slot if demand_slot is not None and demand_slot.reservation == uid else None
