"""Seed 000's planner, the default: its rules and its order (2.3).

Sources by ascending utilisation; on each the movable pods, larger requests first; for each the fullest target that it fits
on, where everything promised so far counts. A pod without such a place stays, with the reason.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from restow.contracts.events import Planned
from restow.contracts.ids import MigrationId, Millis, NodeName, PlanId, PodUid
from restow.contracts.values import DeviceShare, Move
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.classify import classify
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.defragmentation.outcome import planned
from restow.domain.defragmentation.promised import promised
from restow.domain.defragmentation.targets import Targets
from restow.domain.fragmentation import Room
from restow.domain.resources import canonical_resource
from restow.domain.state import ClusterState

NO_TARGET = "NoTarget"
LIMIT = "Limit"
TOO_FEW_SOURCES = "TooFewSources"

Kept = Callable[[PodUid, NodeName, str, Targets | None], None]


class _End(NamedTuple):
    row: int
    devices: tuple[DeviceShare, ...]


def plan(state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int) -> Planned:
    """The plan as a value; the state stays as it is. Raises ArgsError."""
    kept: Counter[str] = Counter()
    moves = walk(state, args, time, plan_id, max_moves, lambda pod, node, verdict, targets: kept.update((verdict,)))
    ends = {move.pod: _End(state.table.rows[move.target], move.devices) for move in moves}
    return planned(state, plan_id, moves, ends, kept)


def walk(
    state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int, kept: Kept
) -> list[Move]:
    """The decision itself. `kept` is told every pod on a source that stays, at the moment that is decided."""
    room = Room(state.table)
    for row, v, devices in promised(state):
        room.take(row, v, devices)
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
