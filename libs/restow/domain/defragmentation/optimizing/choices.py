"""Which pods would have to leave a row so that it is worth more, or so that something fits: the cheapest first."""

from collections.abc import Iterator, Sequence
from itertools import combinations

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.value import fits
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.fragmentation import is_load
from restow.domain.table import WHOLE, Vector

Pods = tuple[PodUid, ...]
PAIRED = 12
"""Pods of a row that are looked at in pairs and threes."""
TRIED = 400
"""Sets of pods that are tried for one row."""


def size(world: World, uid: PodUid) -> int:
    """How hard it is to find a place for: parts of a large node, the dominant resource."""
    return size_of(world, world.vector(uid))


def size_of(world: World, v: Vector) -> int:
    return max([a * 10_000 // world.largest[c] for c, a in v.items], default=0)


def easiest(world: World, pods: Sequence[PodUid]) -> tuple[int, int, int, Pods]:
    """Sort key of a set: what moving it costs, how many they are, how large."""
    return sum(world.price(uid) for uid in pods), len(pods), sum(size(world, uid) for uid in pods), tuple(sorted(pods))


def choices(world: World, row: int, whole: bool, most: int = 3) -> list[Pods]:
    """Sets of pods whose leaving makes this row worth more, the easiest first; with `whole` all of its pods or none."""
    if not world.counted[row] or not (world.sources[row] or world.pods(row)):
        return []
    pods = world.pods(row)
    if whole or world.value.objective == "nodes":
        loads = [uid for uid in pods if uid in world.away or is_load(world.state, uid)]
        able = bool(loads) and all(world.movable(uid) for uid in loads) and int(world.loads[row]) == len(loads)
        return [tuple(loads)] if able and (not whole or _gains(world, row, loads)) else []
    if world.value.objective == "devices":
        found = sorted(_by_device(world, row, pods), key=lambda some: easiest(world, some))
        return found[:most]
    wanted = world.value.one_more(world.worth[row])
    return lightest(world, row, wanted, most=most) if wanted is not None else []


def _gains(world: World, row: int, pods: Sequence[PodUid]) -> bool:
    free, shares = _without(world, row, pods)
    return world.value.of(free, shares, 0) > world.worth[row]


def _by_device(world: World, row: int, pods: Sequence[PodUid]) -> Iterator[Pods]:
    """For each device that is shared: all who share it, where that is known and they may move."""
    users: dict[int, list[tuple[PodUid, int]]] = {}
    for uid in pods:
        for share in world.spot(uid).devices:
            users.setdefault(share.index, []).append((uid, share.milli))
    shares = world.free(row)[1]
    seen: set[Pods] = set()
    for index, there in users.items():
        if index >= len(shares) or shares[index] + sum(milli for _, milli in there) != WHOLE:
            continue  # somebody else uses it, a hold or a pod whose devices nobody knows
        if any(milli >= WHOLE or not world.movable(uid) for uid, milli in there):
            continue
        some = tuple(sorted({uid for uid, _ in there}))
        if some not in seen:
            seen.add(some)
            yield some


def lightest(world: World, row: int, wanted: Vector, most: int = 3, protected: bool = False, pods: int = 3) -> list[Pods]:
    """Sets of pods without which the row has this room, at most so many each (or as many as it takes), the easiest first.
    `protected`: what must stay free of the protected resource stays free."""
    floor = world.floor_of(row, wanted) if protected else 0
    raised = wanted if not floor else world.raised(wanted, floor)
    free, shares = world.free(row)
    if fits(free, shares, raised):
        return [()]
    there = [uid for uid in world.pods(row) if world.movable(uid) and _helps(world, uid, free, shares, raised)]
    if not there or not fits(*_without(world, row, there), raised):
        return []
    there.sort(key=lambda uid: easiest(world, (uid,)))
    found: list[Pods] = []
    tried = 0
    for many in range(1, pods + 1):
        if len(found) >= most:
            break  # more pods would hardly be easier to move
        for some in combinations(there if many == 1 else there[:PAIRED], many):
            tried += 1
            if tried > TRIED:
                break
            if any(set(less) <= set(some) for less in found):
                continue
            if fits(*_without(world, row, some), raised):
                found.append(some)
    if not found:
        found = [_thinned(world, row, there, raised)]
    found.sort(key=lambda some: easiest(world, some))
    return found[:most]


def _helps(world: World, uid: PodUid, free: list[int], shares: list[int], wanted: Vector) -> bool:
    """Whether it uses anything that is short, or a device where devices are."""
    if wanted.devices is not None and world.spot(uid).devices:
        return True
    asked = dict(world.vector(uid).items)
    return any(free[c] < a and asked.get(c, 0) for c, a in wanted.items)


def _thinned(world: World, row: int, there: Sequence[PodUid], wanted: Vector) -> Pods:
    """All of them but whom can be spared, those who are hardest to move first."""
    left = list(there)
    for uid in sorted(there, key=lambda uid: easiest(world, (uid,)), reverse=True):
        some = [other for other in left if other != uid]
        if fits(*_without(world, row, some), wanted):
            left = some
    return tuple(left)


def _without(world: World, row: int, pods: Sequence[PodUid]) -> tuple[list[int], list[int]]:
    """What the row would have free."""
    free, shares = world.free(row)
    free, shares = free[:], shares[:]
    for uid in pods:
        for c, a in world.vector(uid).items:
            free[c] += a
        for d in world.spot(uid).devices:
            if d.index < len(shares):
                shares[d.index] += d.milli
    return free, shares
