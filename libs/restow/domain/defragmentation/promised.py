"""Landing places that earlier plans have promised and that are not held yet: they count as taken."""

from collections.abc import Iterator
from typing import NamedTuple

from restow.contracts.ids import PodUid
from restow.contracts.values import DeviceShare
from restow.domain.records import SlotPhase, Step
from restow.domain.state import ClusterState
from restow.domain.table import Vector


class Promise(NamedTuple):
    """`pod` moves to `row`, with these; empty where only its predecessor is known."""

    row: int
    vector: Vector
    devices: tuple[DeviceShare, ...]
    cores: tuple[int, ...]
    pod: PodUid


def promised(state: ClusterState) -> Iterator[Promise]:
    for id in (*state.backlog, *state.active):
        migration = state.migrations[id]
        if migration.step not in (Step.PLANNED, Step.HOLDING):
            continue
        slots = state.slots.get(migration.reservation, {})
        move = migration.move
        row = state.table.rows.get(move.target)
        if row is None or any(slot.phase in (SlotPhase.HELD, SlotPhase.USED) for slot in slots.values()):
            continue
        yield Promise(row, state.vectors[migration.shape], move.devices, move.cores, move.pod)
