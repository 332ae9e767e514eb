"""Landing places that earlier plans have promised and that are not held yet: they count as taken."""

from collections.abc import Iterator

from restow.contracts.values import DeviceShare
from restow.domain.records import SlotPhase, Step
from restow.domain.state import ClusterState
from restow.domain.table import Vector


def promised(state: ClusterState) -> Iterator[tuple[int, Vector, tuple[DeviceShare, ...]]]:
    """Row, request and devices of each."""
    for id in (*state.backlog, *state.active):
        migration = state.migrations[id]
        if migration.step not in (Step.PLANNED, Step.HOLDING):
            continue
        slots = state.slots.get(migration.reservation, {})
        row = state.table.rows.get(migration.move.target)
        if row is None or any(slot.phase in (SlotPhase.HELD, SlotPhase.USED) for slot in slots.values()):
            continue
        yield row, state.vectors[migration.shape], migration.move.devices
