"""What a plan comes to: the packing before, and as it will be when every move has landed."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Protocol

from restow.contracts.events import Planned
from restow.contracts.ids import NodeName, PlanId, PodUid
from restow.contracts.values import DeviceShare, Move, RoomFor
from restow.domain.fragmentation import Room, packing, typical_shapes
from restow.domain.state import ClusterState

PLUGIN = "Defragmentation"


class End(Protocol):
    """Where a pod ends up."""

    @property
    def row(self) -> int: ...
    @property
    def devices(self) -> tuple[DeviceShare, ...]: ...


def planned(
    state: ClusterState,
    plan_id: PlanId,
    moves: Sequence[Move],
    ends: Mapping[PodUid, End],
    kept: Mapping[str, int],
    planner: str = "greedy",
    steps: int = 0,
    rooms: tuple[RoomFor, ...] = (),
    reason: str = "",
    whole: bool = False,
) -> Planned:
    """`ends` are of those who move; rooms that are made for others do not count as used yet."""
    typical = typical_shapes(state)
    before = packing(state, typical=typical)
    after = before
    if ends:
        room, loads = _carried_out(state, ends)
        after = packing(state, room, loads, typical)
    sources = tuple(dict.fromkeys(move.source for move in moves))
    stay = dict(sorted(kept.items()))
    return Planned(
        plan_id, PLUGIN, tuple(moves), before, after, sources, stay, planner=planner, steps=steps, rooms=rooms, reason=reason, whole=whole
    )


def _carried_out(state: ClusterState, ends: Mapping[PodUid, End]) -> tuple[Room, dict[NodeName, int]]:
    """Room and pods per node as they will be."""
    room, table = Room(state.table), state.table
    loads: Counter[NodeName] = Counter()
    for uid, end in ends.items():
        v, charge = state.vectors[state.pods[uid].shape], state.charges[uid]
        room.take(table.rows[charge.node], v, charge.devices, -1)
        room.take(end.row, v, end.devices)
        loads[charge.node] -= 1
        loads[NodeName(table.names[end.row])] += 1
    return room, dict(loads)
