"""The plan: ⟨source, target, pod⟩ triplets, each with a concrete landing slot (seed 000, 2.3), by the planner that is configured; what it comes to, and why each
candidate moves or stays."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from restow.contracts.events import Planned
from restow.contracts.ids import Millis, NodeName, PlanId, PodUid
from restow.contracts.values import DeviceShare, Missed, Move, SlotFor
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.appraisal import Appraisal
from restow.domain.defragmentation.scope import EVERYTHING, Scope
from restow.domain.fragmentation import FreeCapacity, asked_for, packing
from restow.domain.state import ClusterState
from restow.domain.verdicts import Stay

PLUGIN = "Defragmentation"
PLANNED = "Planned"


class Candidate(msgspec.Struct, frozen=True):
    """One pod on a source (optimizing: on any node). `verdict` is the plan's: `Planned`, or why it stays, as a sentence in `message`. Where no
    target took it: how many there were, and how many each rule `removed` (the first that applies counts)."""

    pod: PodUid
    namespace: str
    name: str
    source: NodeName
    verdict: str
    message: str
    target: NodeName = NodeName("")
    targets: int = 0
    removed: dict[str, int] = {}


class End(Protocol):
    """Where a pod ends up."""

    @property
    def row(self) -> int: ...
    @property
    def devices(self) -> tuple[DeviceShare, ...]: ...


class Task(NamedTuple):
    """What a planner is asked: at most so many moves, within what the policy lets it do. `explains`: whether somebody asks why pods stay, in sentences."""

    state: ClusterState
    args: DefragmentationArgs
    time: Millis
    plan: PlanId
    max_moves: int
    scope: Scope = EVERYTHING
    explains: bool = False


Stays = Callable[[PodUid, NodeName, Stay], None]
"""Is told of every candidate that stays, at the moment that is decided."""


class Found(NamedTuple):
    """`ends` are of those who move; `steps` of search; `missed`: what would have been made if it cost less."""

    moves: Sequence[Move]
    ends: Mapping[PodUid, End]
    steps: int = 0
    missed: Missed | None = None


def summed_up(
    task: Task, found: Found, kept: Mapping[str, int], planner: str, slots: tuple[SlotFor, ...] = (), reason: str = "", whole: bool = False
) -> Planned:
    """With the packing and its worth before, and as they will be when every move has landed; slots that are made for others do not count as used yet."""
    state = task.state
    asked = asked_for(state)
    before = packing(state, asked=asked)
    after, capacity, loads = before, None, dict[NodeName, int]()
    if found.ends:
        capacity, loads = _carried_out(state, found.ends)
        after = packing(state, capacity, loads, asked)
    appraisal = Appraisal(state, task.args, task.time)
    moves = appraisal.priced(found.moves)
    sources = tuple(dict.fromkeys(move.source for move in found.moves))
    stay = dict(sorted(kept.items()))
    return Planned(
        task.plan, PLUGIN, moves, before, after, sources, stay, planner=planner, steps=found.steps, slots=slots, reason=reason, whole=whole,
        worth=appraisal.worth(moves, capacity, loads, found.missed),
    )  # fmt: skip


def _carried_out(state: ClusterState, ends: Mapping[PodUid, End]) -> tuple[FreeCapacity, dict[NodeName, int]]:
    """Capacity and pods per node as they will be."""
    capacity, table = FreeCapacity(state.table), state.table
    loads: Counter[NodeName] = Counter()
    for uid, end in ends.items():
        v, charge = state.vectors[state.pods[uid].fact.shape], state.charges[uid]
        capacity.take(table.rows[charge.node], v, state.devices_of(uid), -1)
        capacity.take(end.row, v, end.devices)
        loads[charge.node] -= 1
        loads[NodeName(table.names[end.row])] += 1
    return capacity, dict(loads)


def candidates(state: ClusterState, moves: Sequence[Move], stays: Sequence[tuple[PodUid, NodeName, Stay]]) -> tuple[Candidate, ...]:
    """By source and pod in the order of their names."""
    found = [
        Candidate(uid, (pod := state.pods[uid].fact).namespace, pod.name, node, one.id, one.sentence, targets=one.targets, removed=one.removed)
        for uid, node, one in stays
    ]
    last = {move.migration: move.target for move in moves if not move.follows}
    last |= {move.follows: move.target for move in moves if move.follows}
    for move in moves:
        if not move.follows:
            target = last[move.migration]
            way = f"moves to {target}" + (f" by way of {move.target}" if target != move.target else "")
            found.append(Candidate(move.pod, move.namespace, move.name, move.source, PLANNED, way, target))
    return tuple(sorted(found, key=lambda c: (c.source, c.namespace, c.name, c.pod)))
