"""A state as bytes and back. What is stored is declared (`restow.domain.maps`); what follows from that is made anew here: indexes, the
amounts of the node table, the accounts."""

import msgspec

from restow.domain import devices, promises
from restow.domain.declared import Role, attributes
from restow.domain.evolve.objects import is_pending
from restow.domain.evolve.reservations import needs_review
from restow.domain.fold import FOLD_VERSION
from restow.domain.records import ON_NODE, ReservationPhase, SlotPhase
from restow.domain.state import OVER, ClusterState, is_sociable
from restow.domain.table import Kind, vector_of


class SnapshotError(ValueError):
    """Bytes that are not a snapshot of this fold. Says what is expected; fold the log from the start instead."""


_STORED = tuple(attribute for attribute in attributes(ClusterState) if attribute.role is Role.STORED)
_Image = msgspec.defstruct(
    "_Image", [(attribute.name, attribute.image.type) for attribute in _STORED], frozen=True, forbid_unknown_fields=True, kw_only=True
)
"""By name: a snapshot that lacks an attribute, or has another one, is none of this fold."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, _Image])  # type: ignore[valid-type]


def dump(state: ClusterState) -> bytes:
    """Everything that the log says, as MessagePack: the version of the fold, and what is stored. Not inside a draft."""
    assert not state.drafting, "a draft is not a state"
    image = {name: image.dump(state, getattr(state, name)) for name, _, image in _STORED}
    return _encoder.encode((FOLD_VERSION, image))


def load(data: bytes) -> ClusterState:
    """The state that `dump` was given. Raises SnapshotError."""
    try:
        version = _version(data)
        if version != FOLD_VERSION:
            raise SnapshotError(f"snapshot of fold version {version}; this is {FOLD_VERSION}: fold the log from the start")
        _, said = _decoder.decode(data)
        state = ClusterState()
        for name, _, image in _STORED:
            setattr(state, name, image.load(state, getattr(said, name)))
        for derive in (_amounts, _pods, _waiting, _objects, _reservations, _nominations, _migrations):
            derive(state)
        return state
    except SnapshotError:
        raise
    except (ValueError, LookupError, OverflowError) as error:
        # A flipped bit may still be MessagePack, and then names what is not there.
        raise SnapshotError(f"not a snapshot of fold version {FOLD_VERSION}: {type(error).__name__} {error}") from error


def _version(data: bytes) -> int:
    """The first element of an array of two, a small integer. Up to version 6 it was the first of a long array, with 16-bit length."""
    at = 1 if data[:1] == b"\x92" else 3 if data[:1] == b"\xdc" else len(data)
    if at >= len(data) or data[at] > 0x7F:
        raise SnapshotError(f"not a snapshot of fold version {FOLD_VERSION}")
    return data[at]


def _amounts(state: ClusterState) -> None:
    """The node table, and what pods are charged there."""
    table = state.table
    if state.nodes.keys() != table.rows.keys():
        raise ValueError("its rows are of other nodes")
    # Whoever follows rows by what changed has to hear of vacant ones, too: there may be no others.
    for row in table.seats.vacant:
        state.changed_rows.append(row)
    for name in state.nodes:
        devices.set_node(state, name)
    for id, shape in state.shapes.items():
        state.vectors[id] = table.vector(shape.requests, shape.devices)
    for uid, charge in state.charges.items():
        state.on_node.setdefault(charge.node, {})[uid] = None
    state.charge_many(list(state.charges.values()), 1)


def _pods(state: ClusterState) -> None:
    for pod in state.pods.values():
        state.regroup(None, pod)
    for uid, placement in state.placed.items():
        if placement.volumes and uid in state.live and state.live[uid].node is None:
            state.binding[uid] = None
    for uid, live in state.live.items():
        if uid not in state.charges and live.phase not in OVER:
            where = state.node_of(uid)
            if where is not None:
                state.homeless[uid] = where


def _waiting(state: ClusterState) -> None:
    for uid, (key, under) in state.parked.items():
        state.put_in(state.parked_under, under, uid)
        state.waiters[key] = state.waiters.get(key, 0) + 1
        if is_sociable(state.shapes[state.pods[uid].shape]):
            state.sociable[uid] = None


def _objects(state: ClusterState) -> None:
    for key, group in state.pod_groups.items():
        if key not in state.enqueued and is_pending(group):
            state.unqueued[key] = None
    state.exceeded.update((path, quota) for path, quota in state.quotas.items() if quota.exceeded)


def _reservations(state: ClusterState) -> None:
    for uid, slots in state.slots.items():
        state.index_places(uid)
        record = state.reservations[uid]
        for name, slot in slots.items():
            if slot.phase in ON_NODE and slot.asked and (uid, name) not in state.to_release:
                state.resizes[uid, name] = None
        if uid in state.phases and state.phases[uid].phase is ReservationPhase.AVAILABLE and not record.over:
            state.available[uid] = None
        if needs_review(state, record):
            state.unreviewed[uid] = None
    state.unsettled.clear()
    for places in state.held_on.values():
        for uid, name in places:
            slot = state.slots[uid][name]
            state.charge_place(slot, 1)
            if slot.phase is SlotPhase.WAITING and slot.room.complete:
                state.whole[uid, name] = None


def _nominations(state: ClusterState) -> None:
    """Charged as they were: what is free now was free then."""
    for pod, nomination in state.nominations.items():
        state.put_in(state.nominated_on, nomination.node, pod)
        room = nomination.room
        if room.held or room.held_devices:
            row = state.table.rows[nomination.node]
            state.table.charge(row, vector_of(room.held), room.held_devices, 1, Kind.HELD)
    for pod, node in state.reserved_tasks.items():
        state.put_in(state.reserved_on, node, pod)


def _migrations(state: ClusterState) -> None:
    for id in state.migrations:
        promises.settle(state, id)
