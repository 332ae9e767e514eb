"""Capacity that is promised to moves and not held yet: one ledger, which the fold keeps (`state.promised`).

A move's slot on its target is promised from the plan on, until the session holds it, or the move ends. Planners, landing slots and the saga
look at the same promises; pods that wait do not mind them, for until it is held capacity is whoever's comes first.
"""

from collections.abc import Container, Iterator
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import MigrationId, Millis, PodUid
from restow.contracts.values import DeviceShare
from restow.domain.node_table import Vector
from restow.domain.records import Migration, SlotPhase, Step
from restow.domain.state import ClusterState

BEFORE = (Step.PLANNED, Step.HOLDING)
CHARGED = (SlotPhase.HELD, SlotPhase.WAITING, SlotPhase.USED)


class Promise(NamedTuple):
    """`pod` moves to `row`, with these; empty where only its predecessor is known. It is what the move has recorded, and not what the pod asks for by now: its
    successor is made by a template, which a resize in place does not change, and the move of a pod that was resized ends before it is held or evicted."""

    row: int
    vector: Vector
    devices: tuple[DeviceShare, ...]
    cores: tuple[int, ...]
    pod: PodUid


def settle(state: ClusterState, id: MigrationId) -> None:
    """A part of the fold: its step, or a slot of its Reservation, may be another one now."""
    migration = state.migrations.get(id)
    if migration is None or not migration.move.target:
        return
    if migration.step not in BEFORE or migration.reason or _is_charged(state, migration):
        state.drop_in(state.promised, migration.move.target, id)
    elif id not in state.promised.get(migration.move.target, ()):
        state.put_in(state.promised, migration.move.target, id)


def _is_charged(state: ClusterState, migration: Migration) -> bool:
    return any(slot.phase in CHARGED for slot in state.slots.get(migration.reservation, {}).values())


def order(migration: Migration) -> tuple[Millis, str, int]:
    """By plan, then as the plan says."""
    _, _, number = migration.id.rpartition("-")
    return (migration.planned, migration.plan, int(number) if number.isdigit() else 0)


def promised(state: ClusterState) -> Iterator[Promise]:
    """On nodes that are there, in the order of the plans."""
    ids = [id for node, known in state.promised.items() if node in state.table.rows for id in known]
    for migration in sorted((state.migrations[id] for id in ids), key=order):
        move = migration.move
        yield Promise(state.table.rows[move.target], state.vectors[migration.shape], move.devices, move.cores, move.pod)


def fits(state: ClusterState, migration: Migration, before: Container[MigrationId]) -> bool:
    """Whether its target has capacity for it now, and still has when those `before` it have come and gone."""
    target, table = migration.move.target, state.table
    row, v = table.rows.get(target), state.vectors[migration.shape]
    if row is None or not table.fits_row(row, v):
        return False
    free, devices = table.free[row].copy(), table.device_free[row].copy()
    for uid in state.on_node.get(target, ()):
        if (id := state.victims.get(uid)) in before and id is not None and state.migrations[id].move.target:
            charge = state.charges[uid]
            _add(free, devices, state.vectors[charge.shape], state.devices_of(uid), 1)
    for id in state.promised.get(target, ()):
        if id in before:
            other = state.migrations[id]
            _add(free, devices, state.vectors[other.shape], other.move.devices, -1)
    if any(free[column] < amount for column, amount in v.items):
        return False
    return v.devices is None or int((devices >= v.devices.milli).sum()) >= v.devices.count


def _add(free: np.ndarray, shares: np.ndarray, v: Vector, devices: tuple[DeviceShare, ...], sign: int) -> None:
    for column, amount in v.items:
        free[column] += sign * amount
    for d in devices:
        if d.index < len(shares):
            shares[d.index] += sign * d.milli
