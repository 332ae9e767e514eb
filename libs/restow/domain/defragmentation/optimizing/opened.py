"""A world to plan in: a session on the state, what is promised already, and which nodes take part."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from restow.contracts.ids import NodeName, PodUid
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.args import optional_threshold, room_of
from restow.domain.defragmentation.classify import exact, promised_to_others, spared, usable
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.defragmentation.optimizing.costs import Costs
from restow.domain.defragmentation.optimizing.value import Objective, Value
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.placement import PARTS
from restow.domain.defragmentation.plan import Task
from restow.domain.defragmentation.simulation import Spot, simulated
from restow.domain.defragmentation.verdicts import NOT_OPEN, NOT_SELECTED, OWED
from restow.domain.fragmentation import is_load
from restow.domain.resources import GPU_MILLI, canonical_resource
from restow.domain.state import ClusterState


class Rows:
    """`closed` says, by node, why nothing leaves it."""

    def __init__(self, task: Task) -> None:
        state, args, time, scope = task.state, task.args, task.time, task.scope
        table, leavable = state.table, scope.leavable(state)
        self.counted = usable(state) & table.alive
        self.closed: dict[NodeName, str] = {}
        owed = set(state.waiting_on) | set(state.nominated_on)
        rows = np.zeros(len(table.names), bool)
        for name, row in table.rows.items():
            why = NOT_OPEN if not self.counted[row] else OWED if name in owed else "" if leavable[row] else NOT_SELECTED
            why = why or spared(state, args, time, row)
            if why:
                self.closed[name] = why
            else:
                rows[row] = True
        self.sources = rows
        self.open = self.counted & ~promised_to_others(state, time) & scope.open(state)
        # Where somebody is leaving nobody arrives: that is why he leaves.
        left = {state.charges[uid].node for uid in state.victims if uid in state.charges}
        self.open &= ~table.mask(owed | left)


def _floor(state: ClusterState, args: DefragmentationArgs) -> tuple[int, np.ndarray]:
    """The column of the protected resource and what must stay free of it, `(nodes,) int64`; a threshold of 100 protects
    nothing."""
    column = state.table.columns.get(canonical_resource(args.resourceType), -1)
    protection = optional_threshold(args, "protectionThresholds")
    if column < 0 or protection is None or protection >= 100:
        return -1, np.zeros(len(state.table.names), np.int64)
    total = exact(state.table.allocatable[:, column])
    return column, (total - (total * protection - 1) // 100).astype(np.int64)


@contextmanager
def opened(task: Task, objective: Objective, rows: Rows, moved: Mapping[PodUid, Spot] | None = None) -> Iterator[World]:
    """As the state is, or as it will be once these have `moved`. The state is as before at the end."""
    state, args, time = task.state, task.args, task.time
    with simulated(state, time) as simulation:
        room = state.table.vector(*room_of(args.room)) if objective == "room" else None
        value = Value(objective, room, state.table.columns.get(GPU_MILLI, -1))
        column, floor = _floor(state, args)
        evictable = Evictable(state, args, canonical_resource(args.resourceType), by_rules=True, scope=task.scope)
        costs = Costs(state, args.costs, time)
        world = World(simulation, value, evictable, costs, (rows.open, rows.sources, rows.counted), column, floor, moved)
        if objective == "nodes":
            world.objective.stay = _stay(world)
        yield world


def _stay(world: World) -> np.ndarray:
    """`(nodes,) int64`: how hard each row is to empty, 0 to PARTS; the rank among those that can be emptied at all."""
    state = world.state
    price: list[tuple[int, int, int]] = []
    found = np.full(len(state.table.names), PARTS, np.int64)
    for name, row in state.table.rows.items():
        if not world.sources[row] or name in state.held_on:
            continue
        loads = [uid for uid in world.pods(row) if is_load(state, uid)]
        if all(world.movable(uid) for uid in loads):
            price.append((sum(world.cost(uid) for uid in loads), int(state.table.rank[row]), row))
    for place, (_, _, row) in enumerate(sorted(price)):
        found[row] = place * (PARTS - 1) // len(price)
    return found
