"""What capacity is wanted for: the demands that pods have, each with its part of all that is asked for, and the gangs that are to be near to each other.

By what is asked for and not by heads: a hundred pods with a tenth of a GPU each ask for as much as one with ten. Who waits counts several times.
"""

from collections import Counter
from itertools import islice
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid, ShapeId
from restow.contracts.values import NetworkTopology
from restow.domain.defragmentation.prices import Sizes
from restow.domain.fragmentation.demands import Demands, alike, is_counted
from restow.domain.fragmentation.fitting import times
from restow.domain.groups import Group, group_of
from restow.domain.network.blocks import NO_BLOCK
from restow.domain.network.reach import asked, levels, reach, spokesman
from restow.domain.node_table import NO_DEVICE, WHOLE, Vector
from restow.domain.pods import Pod
from restow.domain.predicates import static_mask
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState

WAITING = 8
"""As how many of those that run one counts that waits."""
MOST, MOST_GANGS = 12, 4
"""Demands, and gangs, that are told apart, those with the largest parts."""
WHOLE_PART = 1024


class Wanted(NamedTuple):
    """`part` of all that is asked for, in `WHOLE_PART`ths; `size` of one request (`prices.Sizes`); `rules`: a shape with its rules about nodes."""

    v: Vector
    rules: ShapeId
    size: int
    part: int


class WantedGang(NamedTuple):
    """A gang of so many `pods` that each ask for `one`, all in one block of the tier at this place; `one.part` is that of all gangs like it. `topology` says of which blocks."""

    one: Wanted
    pods: int
    topology: NetworkTopology
    tier: int


def mix(state: ClusterState, sizes: Sizes) -> tuple[Wanted, ...]:
    """The largest part first. O(pods). Who asks for more than any node has is left out: no plan helps them, and beside a mistyped one nobody else would count."""
    found = _largest(state, sizes)
    total = sum(much for much, _ in found)
    return tuple(one for much, shape in found if (one := _wanted(state, sizes, shape, much, total)).part)


def _largest(state: ClusterState, sizes: Sizes) -> list[tuple[int, ShapeId]]:
    """How much is asked for in all by each demand, and a shape of it."""
    heads: Counter[ShapeId] = Counter()
    for uid, pod in state.pods.items():
        if is_counted(state, uid):
            heads[pod.fact.shape] += _heads(state, uid, pod)
    keys = state.memo.make(Demands)
    merged: dict[bytes, tuple[int, ShapeId]] = {}
    for shape, count in heads.items():
        key = keys.key(state, shape)
        before, first = merged.get(key, (0, shape))
        merged[key] = before + count, min(first, shape)
    every = sorted(((count * sizes.of(state.vectors[shape]), shape) for count, shape in merged.values()), key=lambda one: (-one[0], one[1]))
    return list(islice((one for one in every if _has_some_node(state, state.vectors[one[1]])), MOST))


def _heads(state: ClusterState, uid: PodUid, pod: Pod) -> int:
    """As how many of those that run it counts."""
    return WAITING if pod.live.node is None and uid not in state.placed else 1


def _wanted(state: ClusterState, sizes: Sizes, shape: ShapeId, much: int, total: int) -> Wanted:
    v = state.vectors[shape]
    return Wanted(v, alike(state, shape), sizes.of(v), much * WHOLE_PART // max(total, 1))


class _Members:
    """Of one group: by demand how many pods it has, how many they count for, and a shape."""

    __slots__ = ("by_demand", "topology")

    def __init__(self, topology: NetworkTopology) -> None:
        self.topology = topology
        self.by_demand: dict[bytes, tuple[int, int, ShapeId]] = {}


def gang_mix(state: ClusterState, sizes: Sizes) -> tuple[WantedGang, ...]:
    """Gangs that are to be near to each other (hard: in a block of the widest tier that will do; soft: of the narrowest that can hold them), the largest part first. Of pods that ask for different things those
    count that ask for the most. None where no empty block could hold one, or the session knows no blocks. O(pods)."""
    if levels(state) is None or not state.pod_groups:
        return ()
    merged: dict[tuple, tuple[int, ShapeId, WantedGang]] = {}
    for group, members in _members(state).items():
        key, (count, heads, shape) = max(members.by_demand.items(), key=lambda one: (sizes.of(state.vectors[one[1][2]]) * one[1][0], one[0]))
        need = state.pod_groups[group].min_member
        pods = min(need, count) if need > 1 else count
        tier = _tier(state, members.topology, shape, pods) if pods > 1 else NO_BLOCK
        if tier == NO_BLOCK:
            continue
        kind = key, reach(state, members.topology).blocks.source, tier, pods
        much, first, gang = merged.get(kind, (0, shape, WantedGang(_wanted(state, sizes, shape, 0, 1), pods, members.topology, tier)))
        merged[kind] = much + heads * sizes.of(state.vectors[shape]), min(first, shape), gang
    total = sum(much for much, _ in _largest(state, sizes)) if merged else 0
    every = sorted(merged.values(), key=lambda one: (-one[0], one[1], one[2].pods, one[2].tier))
    return tuple(whole for much, shape, gang in every[:MOST_GANGS] if (whole := gang._replace(one=_wanted(state, sizes, shape, much, total))).one.part)


def _members(state: ClusterState) -> dict[Group, _Members]:
    """By group, of those that ask for a network topology."""
    keys, found = state.memo.make(Demands), dict[Group, _Members | None]()
    for uid, pod in state.pods.items():
        group = group_of(pod.fact) if pod.fact.annotations else None
        if group is None or group not in state.pod_groups or not is_counted(state, uid):
            continue
        if group not in found:
            topology = asked(state, group, spokesman(state, group))
            found[group] = None if topology is None else _Members(topology)
        if (members := found[group]) is not None:
            shape = pod.fact.shape
            key = keys.key(state, shape)
            count, heads, first = members.by_demand.get(key, (0, 0, shape))
            members.by_demand[key] = count + 1, heads + _heads(state, uid, pod), min(first, shape)
    return {group: members for group, members in sorted(found.items()) if members is not None}


def _tier(state: ClusterState, topology: NetworkTopology, shape: ShapeId, pods: int) -> int:
    """The place of the tier in whose blocks such gangs count; NO_BLOCK where none of them could hold one."""
    table, v, within = state.table, state.vectors[shape], reach(state, topology)
    shares = np.where(table.device_free > NO_DEVICE // 2, WHOLE, table.device_free)
    empty = times(v, table.allocatable, shares, table.columns.get(GPU_MILLI, -1)) * (static_mask(state, shape) & table.alive)
    for tier in range(within.top + 1) if not within.hard else (within.top,):
        if tier != NO_BLOCK and within.blocks.sums(tier, empty).max(initial=0) >= pods:
            return tier
    return NO_BLOCK


def _has_some_node(state: ClusterState, v: Vector) -> bool:
    """Whether a node would have enough of each, were it empty. O(nodes)."""
    columns, amounts = [column for column, _ in v.items], np.array([amount for _, amount in v.items], np.int64)
    return bool((state.table.allocatable[:, columns] >= amounts).all(axis=1).any())
