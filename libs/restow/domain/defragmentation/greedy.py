"""Seed 000's planner, the default: its rules and its order (2.3).

Sources by ascending utilisation; on each the movable pods, larger requests first; for each the fullest target that it fits
on by the scheduler's rules, where everything promised so far counts. A pod without such a place stays, with the reason. Moves wait for
nothing: who moves counts at both ends.
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
from restow.domain.defragmentation.scope import EVERYTHING, Scope, word
from restow.domain.defragmentation.simulation import Simulation, simulated
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


def plan(state: ClusterState, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int, scope: Scope = EVERYTHING) -> Planned:
    """The plan as a value; the state stays as it is. Raises ArgsError."""
    kept: Counter[str] = Counter()
    moves = walk(state, args, time, plan_id, max_moves, lambda pod, node, verdict, targets: kept.update((word(verdict),)), scope)
    ends = {move.pod: _End(state.table.rows[move.target], move.devices) for move in moves}
    return planned(state, plan_id, moves, ends, kept)


def walk(
    state: ClusterState,
    args: DefragmentationArgs,
    time: Millis,
    plan_id: PlanId,
    max_moves: int,
    kept: Kept,
    scope: Scope = EVERYTHING,
) -> list[Move]:
    """The decision itself. `kept` is told every pod on a source that stays, at the moment that is decided."""
    with simulated(state, time) as simulation:
        return _walk(simulation, args, time, plan_id, max_moves, kept, scope)


def _walk(
    simulation: Simulation, args: DefragmentationArgs, time: Millis, plan_id: PlanId, max_moves: int, kept: Kept, scope: Scope
) -> list[Move]:
    """What is promised already is charged."""
    state = simulation.state
    room = Room(state.table)
    nodes = classify(state, args, time, room, scope)
    names = [NodeName(state.table.names[row]) for row in nodes.sources]
    if len(names) <= args.numberOfNodes:
        for node in names:
            for pod in state.on_node.get(node, ()):
                kept(pod, node, TOO_FEW_SOURCES, None)
        return []
    targets = Targets(simulation, nodes, room, time)
    evictable = Evictable(state, args, canonical_resource(args.resourceType), scope=scope)
    quota = scope.quota.copy()
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
            namespace = state.pods[uid].namespace
            if len(moves) < max_moves and (why := quota.reached(source, namespace)):
                kept(uid, source, why, targets)
                continue
            if len(moves) >= max_moves:
                kept(uid, source, LIMIT, targets)
                continue
            at = targets.best(uid)
            if isinstance(at, str):
                kept(uid, source, f"{NO_TARGET}: {at}", targets)
                continue
            moves.append(_move(state, uid, source, targets, at, f"{plan_id}-{len(moves) + 1}"))
            quota.take(source, namespace)
    return moves


def _move(state: ClusterState, uid: PodUid, source: NodeName, targets: Targets, at: int, id: str) -> Move:
    pod = state.pods[uid]
    devices = targets.take(at, uid)
    return Move(MigrationId(id), uid, pod.namespace, pod.name, source, targets.name(at), devices)
