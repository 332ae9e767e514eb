"""The plan: ⟨source, target, pod⟩ triplets, each with a concrete landing place (seed 000, 2.3).

Sources by ascending utilisation; on each the movable pods, larger requests first; for each the fullest target that it fits
on, where everything promised so far counts. A pod without such a place stays, with the reason.
"""

from collections import Counter
from collections.abc import Callable

from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import DeviceShare, Move
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.classify import classify
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.defragmentation.targets import Targets
from restow.domain.fragmentation import Room, packing, typical_shapes
from restow.domain.records import SlotPhase, Step
from restow.domain.resources import canonical_resource
from restow.domain.state import ClusterState

PLUGIN = "Defragmentation"
MAX_MOVES = 2_000

NO_TARGET = "NoTarget"
LIMIT = "Limit"
TOO_FEW_SOURCES = "TooFewSources"

Kept = Callable[[PodUid, NodeName, str, Targets | None], None]


def plan(
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int = MAX_MOVES
) -> Planned:
    """The plan as a value; the state stays as it is. `kept` counts, per verdict, the pods on sources that stay, and
    `sources` are the nodes that something leaves. A plan may have no moves: then `kept` says why. Raises ArgsError."""
    kept: Counter[str] = Counter()
    moves = walk(state, args, time, plan_id, max_moves, lambda pod, node, verdict, targets: kept.update((verdict,)))
    typical = typical_shapes(state)
    before = packing(state, typical=typical)
    after = before
    if moves:
        room, loads = _carried_out(state, moves)
        after = packing(state, room, loads, typical)
    sources = tuple(dict.fromkeys(move.source for move in moves))
    return Planned(plan_id, PLUGIN, tuple(moves), before, after, sources, dict(sorted(kept.items())))


def walk(
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int, kept: Kept
) -> list[Move]:
    """The decision itself. `kept` is told every pod on a source that stays, at the moment that is decided."""
    room = Room(state.table)
    _take_promised(state, room)
    nodes = classify(state, args, time, room)
    names = [NodeName(state.table.names[row]) for row in nodes.sources]
    if len(names) <= args.numberOfNodes:
        for node in names:
            for pod in state.on_node.get(node, ()):
                kept(pod, node, TOO_FEW_SOURCES, None)
        return []
    targets = Targets(state, nodes, room, time)
    evictable = Evictable(state, args, canonical_resource(args.resourceType))
    moves: list[Move] = []
    for source in names:
        movable: list[PodUid] = []
        for uid in state.on_node.get(source, ()):
            verdict = evictable.verdict(uid)
            if verdict:
                kept(uid, source, verdict, targets)
            else:
                movable.append(uid)
        movable.sort(key=evictable.order)
        for uid in movable:
            shape = state.pods[uid].shape
            at = targets.best(shape) if len(moves) < max_moves else None
            if at is None:
                full = len(moves) >= max_moves
                kept(uid, source, LIMIT if full else f"{NO_TARGET}: {targets.closed[shape]}", targets)
                continue
            moves.append(_move(state, uid, source, targets, at, f"{plan_id}-{len(moves) + 1}"))
    return moves


def _move(state: ClusterState, uid: PodUid, source: NodeName, targets: Targets, at: int, id: str) -> Move:
    pod = state.pods[uid]
    devices = targets.take(at, state.vectors[pod.shape])
    return Move(MigrationId(id), uid, pod.namespace, pod.name, source, targets.name(at), devices)


def _take_promised(state: ClusterState, room: Room) -> None:
    """Landing places that earlier plans have promised and that are not held yet."""
    for id in (*state.backlog, *state.active):
        migration = state.migrations[id]
        if migration.step not in (Step.PLANNED, Step.HOLDING):
            continue
        slots = state.slots.get(migration.reservation, {})
        row = state.table.rows.get(migration.move.target)
        if row is None or any(slot.phase in (SlotPhase.HELD, SlotPhase.USED) for slot in slots.values()):
            continue
        room.take(row, state.vectors[migration.shape], migration.move.devices)


def _carried_out(state: ClusterState, moves: list[Move]) -> tuple[Room, dict[NodeName, int]]:
    """Room and pods per node as they will be when every move has landed."""
    room = Room(state.table)
    loads: Counter[NodeName] = Counter()
    rows = state.table.rows
    for move in moves:
        v = state.vectors[state.pods[move.pod].shape]
        left: tuple[DeviceShare, ...] = state.charges[move.pod].devices
        room.take(rows[move.source], v, left, -1)
        room.take(rows[move.target], v, move.devices)
        loads[move.source] -= 1
        loads[move.target] += 1
    return room, dict(loads)
