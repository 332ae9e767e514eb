"""Seed 000's planner, the default: its rules and its order (2.3).

Sources by ascending utilisation; on each the movable pods, larger requests first; for each the fullest target that it fits
on by the scheduler's rules, where everything promised so far counts. A pod without such a place stays, with the reason. Moves wait for
nothing: who moves counts at both ends.
"""

from collections import Counter
from typing import NamedTuple

from restow.contracts.ids import MigrationId, NodeName, PodUid
from restow.contracts.values import DeviceShare, Move
from restow.domain.defragmentation.classify import classify
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.defragmentation.plan import Found, Stays, Task
from restow.domain.defragmentation.simulation import Simulation, simulated
from restow.domain.defragmentation.targets import NO_TARGETS, NODE_RULES, Targets
from restow.domain.defragmentation.verdicts import LIMIT, NO_TARGET, TOO_FEW_SOURCES, Stay, stay
from restow.domain.fragmentation import Room, alike
from restow.domain.predicates import static_reasons
from restow.domain.resources import canonical_resource


class _End(NamedTuple):
    row: int
    devices: tuple[DeviceShare, ...]


def plan(task: Task, stays: Stays) -> Found:
    """The state stays as it is. Raises ArgsError."""
    with simulated(task.state, task.time) as simulation:
        moves = _moves(simulation, task, stays)
    return Found(moves, {move.pod: _End(task.state.table.rows[move.target], move.devices) for move in moves})


def _moves(simulation: Simulation, task: Task, stays: Stays) -> list[Move]:
    """What is promised already is charged."""
    state, args = task.state, task.args
    room = Room(state.table)
    nodes = classify(state, args, task.time, room, task.scope)
    names = [NodeName(state.table.names[row]) for row in nodes.sources]
    if len(names) <= args.numberOfNodes:
        why = Stay(TOO_FEW_SOURCES, f"no more than numberOfNodes ({args.numberOfNodes}) nodes are below lowThresholds")
        for node in names:
            for uid in state.on_node.get(node, ()):
                stays(uid, node, why)
        return []
    targets = Targets(simulation, nodes, room, task.time)
    evictable = Evictable(state, args, canonical_resource(args.resourceType), scope=task.scope)
    quota = task.scope.quota.copy()
    moves: list[Move] = []
    for source in names:
        movable: list[PodUid] = []
        for uid in state.on_node.get(source, ()):
            if said := evictable.verdict(uid):
                stays(uid, source, stay(said))
            else:
                movable.append(uid)
        for uid in sorted(movable, key=evictable.order):
            pod = state.pods[uid]
            if said := LIMIT if len(moves) >= task.max_moves else quota.reached(source, pod.namespace):
                stays(uid, source, stay(said))
                continue
            at = targets.best(uid)
            if isinstance(at, str):
                stays(uid, source, _nowhere(targets, uid, at, task.explains))
                continue
            id = MigrationId(f"{task.plan}-{len(moves) + 1}")
            moves.append(Move(id, uid, pod.namespace, pod.name, source, targets.name(at), targets.take(at, uid)))
            quota.take(source, pod.namespace)
    return moves


def _nowhere(targets: Targets, uid: PodUid, rule: str, explains: bool) -> Stay:
    """With how many targets each rule removes, those about nodes by their own names, where somebody asks for it."""
    removed: dict[str, int] = {}
    if explains:
        state, shape = targets.state, targets.state.pods[uid].shape
        counts = Counter(targets.removed(uid))
        if counts.pop(NODE_RULES, 0):
            reasons = static_reasons(state, alike(state, shape))
            counts.update(reasons[row] for row in targets.rows_removed_by_node_rules(shape))
        removed = dict(sorted(counts.items()))
    said = "no target fits: " + ", ".join(f"{count} {rule}" for rule, count in removed.items()) if removed else NO_TARGETS
    return Stay(f"{NO_TARGET}: {rule}", said, len(targets), removed)
