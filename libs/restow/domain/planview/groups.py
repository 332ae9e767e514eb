"""What a plan does to each group of nodes: those of a label, or else of a machine's shape."""

from collections.abc import Sequence

import msgspec

from restow.contracts.events import NodeObserved
from restow.contracts.ids import MigrationId, NodeName
from restow.contracts.values import DeviceShare, Move, Packing
from restow.domain.defragmentation.appraisal import appraisal_of
from restow.domain.fragmentation import FreeCapacity, asked_for, packing
from restow.domain.node_table import Vector
from restow.domain.quantity import CPU
from restow.domain.resources import MEMORY
from restow.domain.state import ClusterState

MOST = 50
"""Groups that are told apart; the others are one."""
OTHERS, UNLABELLED = "others", "without the label"
GIB = 1 << 30


class NodeGroup(msgspec.Struct, frozen=True, rename="camel"):
    """`leaves` and `arrives` count pods that the plan takes from its nodes and brings to them. `worth_before` and `worth_after`: of what its nodes have free
    (`Planned.worth`), in thousandths of the unit; 0 without a policy."""

    name: str
    nodes: int
    leaves: int
    arrives: int
    before: Packing
    after: Packing
    worth_before: int = 0
    worth_after: int = 0


def node_groups(state: ClusterState, moves: Sequence[Move], label: str = "") -> list[NodeGroup]:
    """By the number of nodes, the most first, then by name. While moves are under way what has left is not taken twice."""
    capacity, loads = carried_out(state, moves)
    asked = asked_for(state)
    found = []
    appraisal = appraisal_of(state)
    for name, members in _members(state, label).items():
        mask = state.table.mask(members)
        inside = frozenset(members)
        before = packing(state, asked=asked, only=mask)
        after = before
        leaves = sum(move.source in inside for move in moves)
        arrives = sum(move.target in inside for move in moves)
        if leaves or arrives:
            after = packing(state, capacity, {n: c for n, c in loads.items() if n in inside}, asked, only=mask)
        worth = appraisal.total(only=mask) if appraisal is not None else 0
        will = appraisal.total(capacity, loads, mask) if appraisal is not None and (leaves or arrives) else worth
        found.append(NodeGroup(name, len(members), leaves, arrives, before, after, worth, will))
    return found


def _members(state: ClusterState, label: str) -> dict[str, list[NodeName]]:
    groups: dict[str, list[NodeName]] = {}
    for name, node in state.nodes.items():
        groups.setdefault(node.labels.get(label, UNLABELLED) if label else machine(node), []).append(name)
    ordered = dict(sorted(groups.items(), key=lambda group: (-len(group[1]), group[0])))
    if len(ordered) <= MOST:
        return ordered
    names = list(ordered)
    rest = [node for name in names[MOST:] for node in ordered[name]]
    return {name: ordered[name] for name in names[:MOST]} | {OTHERS: rest}


def machine(node: NodeObserved) -> str:
    """`8 gpu, 96 cpu, 768Gi`: rounded, for kubelets keep some for themselves and not everywhere the same."""
    cpu = (node.allocatable.get(CPU, 0) + 500) // 1000
    memory = (node.allocatable.get(MEMORY, 0) + GIB // 2) // GIB
    return (f"{node.devices} gpu, " if node.devices else "") + f"{cpu} cpu, {memory}Gi"


class _Spot(msgspec.Struct, frozen=True):
    row: int
    node: NodeName
    vector: Vector
    devices: tuple[DeviceShare, ...]


def carried_out(state: ClusterState, moves: Sequence[Move]) -> tuple[FreeCapacity, dict[NodeName, int]]:
    """Capacity, and how many pods more or fewer each node runs, once every move has landed."""
    capacity, loads = FreeCapacity(state.table), dict[NodeName, int]()
    landed: dict[MigrationId, _Spot] = {}
    for move in moves:
        start = landed.get(move.follows) if move.follows else _start(state, move)
        row = state.table.rows.get(move.target)
        if start is None or (move.target and row is None):
            continue
        capacity.take(start.row, start.vector, start.devices, -1)
        loads[start.node] = loads.get(start.node, 0) - 1
        if row is None:
            continue  # It is only evicted.
        capacity.take(row, start.vector, move.devices)
        loads[move.target] = loads.get(move.target, 0) + 1
        landed[move.migration] = _Spot(row, move.target, start.vector, move.devices)
    return capacity, loads


def _start(state: ClusterState, move: Move) -> _Spot | None:
    charge = state.charges.get(move.pod)
    if charge is None or charge.node != move.source:
        return None
    return _Spot(state.table.rows[move.source], move.source, state.vectors[charge.shape], state.devices_of(move.pod))


__all__ = ["NodeGroup", "carried_out", "machine", "node_groups"]
