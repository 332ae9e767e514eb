"""A state as bytes and back. What is stored is declared (`restow.domain.state_maps`); what follows from that is made anew here: indexes, the
amounts of the node table, the accounts."""

from typing import Any

import msgspec

from restow.contracts.codec import knows_event
from restow.domain import usable_devices
from restow.domain.fold import FOLD_VERSION
from restow.domain.node_table import ChargedAs, vector_of
from restow.domain.state import ClusterState, is_sociable
from restow.domain.state_attributes import Role, attributes


class SnapshotError(ValueError):
    """Bytes that are not a snapshot of this fold, or one that lacks events which this release knows. Says what is expected; fold the log from the start
    instead."""


_STORED = tuple(attribute for attribute in attributes(ClusterState) if attribute.role is Role.STORED)
_FIELDS = {name: image.type if isinstance(image.type, dict) else {name: image.type} for name, _, image in _STORED}
"""Attribute → its fields in the image, and the type of each."""
_Image = msgspec.defstruct(
    "_Image", [(field, msgspec.Raw) for fields in _FIELDS.values() for field in fields], frozen=True, forbid_unknown_fields=True, kw_only=True
)
"""By name: a snapshot that lacks an attribute, or has another one, is none of this fold. Each field is decoded when its turn comes, so that the
image of a large one is gone before the next one is read."""
_DECODERS = {name: [(field, msgspec.msgpack.Decoder(kind)) for field, kind in fields.items()] for name, fields in _FIELDS.items()}
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[int, _Image])  # type: ignore[valid-type]


def dump(state: ClusterState) -> bytes:
    """Everything that the log says, as MessagePack: the version of the fold, and what is stored. Not inside a draft."""
    assert not state.drafting, "a draft is not a state"
    said: dict[str, Any] = {}
    for name, _, image in _STORED:
        value = image.dump(state, getattr(state, name))
        said.update(zip(_FIELDS[name], value, strict=True) if isinstance(image.type, dict) else [(name, value)])
    return _encoder.encode((FOLD_VERSION, said))


def load(data: bytes) -> ClusterState:
    """The state that `dump` was given. Raises SnapshotError."""
    try:
        version = _version(data)
        if version != FOLD_VERSION:
            raise SnapshotError(f"snapshot of fold version {version}; this is {FOLD_VERSION}: fold the log from the start")
        _, said = _decoder.decode(data)
        state = ClusterState()
        for name, _, image in _STORED:
            setattr(state, name, image.load(state, _said(said, name)))
        if lacks := sorted(filter(knows_event, state.unknown)):
            raise SnapshotError(f"snapshot of an earlier release, whose fold passed over {', '.join(lacks)}: fold the log from the start")
        _used(state)
        _held(state)
        _pods(state)
        return state
    except SnapshotError:
        raise
    except (ValueError, LookupError, OverflowError) as error:
        # A flipped bit may still be MessagePack, and then names what is not there.
        raise SnapshotError(f"not a snapshot of fold version {FOLD_VERSION}: {type(error).__name__} {error}") from error


def _said(image: Any, name: str) -> Any:
    """Of an attribute its field, or its fields in their order."""
    fields = [decoder.decode(getattr(image, field)) for field, decoder in _DECODERS[name]]
    return fields[0] if len(fields) == 1 else fields


def _version(data: bytes) -> int:
    """The first element of an array of two, a small integer. Up to version 6 it was the first of a long array, with 16-bit length."""
    at = 1 if data[:1] == b"\x92" else 3 if data[:1] == b"\xdc" else len(data)
    if at >= len(data) or data[at] > 0x7F:
        raise SnapshotError(f"not a snapshot of fold version {FOLD_VERSION}")
    return data[at]


def _used(state: ClusterState) -> None:
    """The node table, and what pods are charged there."""
    table = state.table
    if state.nodes.keys() != table.rows.keys():
        raise ValueError("its rows are of other nodes")
    # Whoever follows rows by what changed has to hear of vacant ones, too: there may be no others.
    for row in table.seats.vacant:
        state.changed_rows.append(row)
    for name in state.nodes:
        usable_devices.set_node(state, name)
    for id, shape in state.shapes.items():
        state.vectors[id] = table.vector(shape.requests, shape.devices)
    for uid, charge in state.charges.items():
        state.on_node[charge.node][uid] = None
    state.charge_many(list(state.charges.values()), 1)


def _pods(state: ClusterState) -> None:
    for uid, (_, under) in state.parked.items():
        state.parked_under[under][uid] = None
        if is_sociable(state.shapes[state.pods[uid].fact.shape]):
            state.sociable[uid] = None
    for uid, node in state.reserved_tasks.items():
        state.reserved_on[node][uid] = None


def _held(state: ClusterState) -> None:
    """Charged as it was: what is free now was free then."""
    for keys in state.held_on.values():
        for uid, name in keys:
            state.charge_slot(state.slots[uid][name], 1)
    for pod, nomination in state.nominations.items():
        state.nominated_on[nomination.node][pod] = None
        capacity = nomination.capacity
        if capacity.held or capacity.held_devices:
            row = state.table.rows[nomination.node]
            state.table.charge(row, vector_of(capacity.held), capacity.held_devices, 1, ChargedAs.HELD)
