"""Which pods would have to leave a row so that it is worth more, or so that something fits: the cheapest first."""

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.usable import Usable
from restow.domain.defragmentation.optimizing.value import fits
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.fragmentation import is_load
from restow.domain.node_table import WHOLE, Vector

Pods = tuple[PodUid, ...]
Enough = Callable[[list[int], list[int]], bool]
"""Of what a row has free, by column and device."""
PAIRED = 12
"""Pods of a row that are looked at in pairs and threes."""
TRIED, TRIES = 200, 10
"""Sets of pods that are tried for one row, and as how many of them count as one step of search."""


def size(world: World, uid: PodUid) -> int:
    """How hard it is to find a place for: parts of a large node, the dominant resource."""
    known = world.sizes.get(uid)
    if known is None:
        known = world.sizes[uid] = size_of(world, world.vector(uid))
    return known


def size_of(world: World, v: Vector) -> int:
    return max([a * 10_000 // world.largest[c] for c, a in v.items], default=0)


def easiest(world: World, pods: Sequence[PodUid]) -> tuple[int, int, int, Pods]:
    """Sort key of a set: what moving it costs, how many they are, how large."""
    return sum([world.price(uid) for uid in pods]), len(pods), sum([size(world, uid) for uid in pods]), tuple(sorted(pods))


def choices(world: World, row: int, whole: bool, most: int = 3, pods: int = 3) -> list[Pods]:
    """At most `most` sets of pods whose leaving makes this row worth more, the easiest first; with `whole` all of its pods or none. Sets of up to
    so many `pods` are looked at one by one."""
    if not world.counted[row] or not (world.sources[row] or world.pods(row)):
        return []
    known = world.known(row)
    # All that are found are kept, however many are asked for; by devices they are the same for any number of `pods`.
    key = ("choices", whole, 0 if world.value.objective == "devices" and not whole else pods)
    if (found := known.get(key)) is None:
        found = known[key] = _choices(world, row, whole, pods)
    sets, small = found
    if not small:
        return sets[:most]
    return sets[:most] if small in sets[:most] else [*sets[: most - 1], small]


def _choices(world: World, row: int, whole: bool, pods: int) -> tuple[list[Pods], Pods]:
    """The sets, and by `capacity` the one of the smallest pods: few pods are large ones, and where these find no place, many small ones may. So it is the last of those that are
    asked for, and of one the only one."""
    there = world.pods(row)
    if whole or world.value.objective == "nodes":
        loads = loads_on(world, row)
        able = bool(loads) and all(world.movable(uid) for uid in loads) and int(world.loads[row]) == len(loads)
        return [tuple(loads)] if able and (not whole or gain(world, row, loads) > 0) else [], ()
    if world.value.objective == "devices":
        return sorted(_by_device(world, row, there), key=lambda some: easiest(world, some)), ()
    if isinstance(world.value, Usable):
        return _by_gain(world, row, world.value, pods), ()
    value, worth = world.value, world.worth[row]

    def enough(free: list[int], shares: list[int]) -> bool:
        return value.worth(row, free, shares, 1) > worth

    known = world.known(row)
    if (easy := known.get("easy")) is None:
        easy = _easiest_first(world, row, lambda uid: value.reads(world.vector(uid)))
        easy = known["easy"] = easy if easy and enough(*free_without(world, row, easy)) else []
    if not easy:
        return [], ()
    if (small := known.get("small")) is None:
        small = known["small"] = _thinned(world, row, easy, enough)
    if (single := known.get("single")) is None:
        single = known["single"] = _among(world, row, easy, enough, 1)
    return single or _among(world, row, easy, enough, pods, fewest=2) or [small], small


def gain(world: World, row: int, pods: Sequence[PodUid]) -> int:
    """By how much the row would be worth more without these."""
    left = int(world.loads[row]) - sum(is_load(world.state, uid) for uid in pods)
    return world.value.worth(row, *free_without(world, row, pods), left) - world.worth[row]


def _by_gain(world: World, row: int, worth: Usable, pods: int) -> list[Pods]:
    """Everybody; who shares a device; who must leave so that a demand fits; and each alone: those first that gain most beyond what moving them costs."""
    loads, there = loads_on(world, row), world.pods(row)
    found: dict[Pods, None] = {}
    if loads and int(world.loads[row]) == len(loads) and all(world.movable(uid) for uid in loads):
        found[tuple(sorted(loads))] = None
    found |= dict.fromkeys(_by_device(world, row, there))
    for wanted in worth.wanted:
        found |= dict.fromkeys(tuple(sorted(some)) for some in lightest(world, row, wanted, 1, pods=pods))
    found |= dict.fromkeys((uid,) for uid in _distinct(world, [uid for uid in there if world.movable(uid)], 1)[0])
    world.steps += 1
    net = {some: gain(world, row, some) - easiest(world, some)[0] for some in found if some}
    return sorted((some for some, more in net.items() if more > 0), key=lambda some: (-net[some] // len(some), *easiest(world, some)))


def loads_on(world: World, row: int) -> list[PodUid]:
    """All who must leave a row before it is empty."""
    return [uid for uid in world.pods(row) if uid in world.away or (is_load(world.state, uid) and uid not in world.state.victims)]




def _by_device(world: World, row: int, pods: Sequence[PodUid]) -> Iterator[Pods]:
    """For each device that is shared: all who share it, where that is known and they may move."""
    shares = world.free(row)[1]
    if not shares:
        return
    users: dict[int, list[tuple[PodUid, int]]] = {}
    for uid in pods:
        for share in world.spot(uid).devices:
            users.setdefault(share.index, []).append((uid, share.milli))
    seen: set[Pods] = set()
    for index, there in users.items():
        if index >= len(shares) or there[0][1] >= WHOLE or shares[index] + sum([milli for _, milli in there]) != WHOLE:
            continue  # somebody else uses it, a hold or a pod whose devices nobody knows
        if any(milli >= WHOLE or not world.movable(uid) for uid, milli in there):
            continue
        some = tuple(sorted({uid for uid, _ in there}))
        if some not in seen:
            seen.add(some)
            yield some


def lightest(world: World, row: int, wanted: Vector, most: int = 3, protected: bool = False, pods: int = 3) -> list[Pods]:
    """Sets of pods without which the row has this capacity, at most so many each (or as many as it takes), the easiest first; an empty set
    where it has it. `protected`: what must stay free of the protected resource stays free."""
    raised = world.raised(wanted, int(world.floor[row])) if protected else wanted
    free, shares = world.free(row)
    if fits(free, shares, raised):
        return [()]
    short = [c for c, a in raised.items if free[c] < a]

    def helps(uid: PodUid) -> bool:
        """It uses something that is short, or a device where devices are."""
        asked = world.vector(uid)
        return (raised.devices is not None and asked.devices is not None) or any(c in short for c, _ in asked.items)

    return _lightest(world, row, lambda free, shares: fits(free, shares, raised), helps, most, pods)


def _lightest(world: World, row: int, enough: Enough, helps: Callable[[PodUid], bool], most: int, pods: int) -> list[Pods]:
    everybody = _easiest_first(world, row, helps)
    if not everybody or not enough(*free_without(world, row, everybody)):
        return []
    return (_among(world, row, everybody, enough, pods) or [_thinned(world, row, everybody, enough)])[:most]


def _among(world: World, row: int, everybody: list[PodUid], enough: Enough, pods: int, fewest: int = 1) -> list[Pods]:
    """Of these, the easiest first; none where it takes more than so many. `fewest`: with fewer it is known not to do."""
    if pods < fewest:
        return []
    there, class_of = _distinct(world, everybody, pods)
    free, shares = world.free(row)
    takes = {uid: _amounts(world, uid, len(shares)) for uid in there}
    found: list[Pods] = []
    tried, classes = 0, set[tuple[int, ...]]()
    for many in range(fewest, pods + 1):
        if found:
            break  # more pods are hardly easier to move
        for some in combinations(there if many == 1 else there[:PAIRED], many):
            tried += 1
            if tried > TRIED:
                break
            alike = tuple(sorted([class_of[uid] for uid in some]))
            if alike in classes:
                continue
            more, wider = free[:], shares[:]
            for uid in some:
                _change(more, wider, takes[uid], 1)
            if enough(more, wider):
                found.append(some)
                classes.add(alike)
    world.steps += tried // TRIES
    return sorted(found, key=lambda some: easiest(world, some))


def _easiest_first(world: World, row: int, helps: Callable[[PodUid], bool]) -> list[PodUid]:
    """Of the row's pods those that help and may move."""
    return sorted([uid for uid in world.pods(row) if world.movable(uid) and helps(uid)], key=lambda uid: (world.price(uid), size(world, uid), uid))


def _equivalence_class(world: World, uid: PodUid) -> tuple:
    """Equal for pods that are the same to move."""
    return world.vector(uid).items, world.price(uid), tuple(d.index for d in world.spot(uid).devices)


def _distinct(world: World, pods: Sequence[PodUid], most: int) -> tuple[list[PodUid], dict[PodUid, int]]:
    """Of pods that are the same to move, only so many as a set may have; and a number for each, the same for those that are."""
    numbers: dict[tuple, int] = {}
    seen: list[int] = []
    left: dict[PodUid, int] = {}
    for uid in pods:
        number = numbers.setdefault(_equivalence_class(world, uid), len(numbers))
        if number == len(seen):
            seen.append(0)
        seen[number] += 1
        if seen[number] <= most:
            left[uid] = number
    return list(left), left


def _thinned(world: World, row: int, there: Sequence[PodUid], enough: Enough) -> Pods:
    """All of them, who come the easiest first, but whom can be spared, those who are hardest to move first."""
    left = dict.fromkeys(there)
    free, shares = free_without(world, row, there)
    for uid in reversed(there):
        less, fewer = free[:], shares[:]
        _change(less, fewer, _amounts(world, uid, len(shares)), -1)
        if enough(less, fewer):
            free, shares = less, fewer
            del left[uid]
    return tuple(left)


def free_without(world: World, row: int, pods: Sequence[PodUid]) -> tuple[list[int], list[int]]:
    """What the row would have free."""
    free, shares = world.free(row)
    free, shares = free[:], shares[:]
    for uid in pods:
        _change(free, shares, _amounts(world, uid, len(shares)), 1)
    return free, shares


Amounts = tuple[tuple[tuple[int, int], ...], list[tuple[int, int]]]
"""By column, and by device."""


def _amounts(world: World, uid: PodUid, devices: int) -> Amounts:
    """What a pod has of a row with so many devices."""
    return world.vector(uid).items, [(d.index, d.milli) for d in world.spot(uid).devices if d.index < devices]


def _change(free: list[int], shares: list[int], amounts: Amounts, sign: int) -> None:
    """Add this to what is free, or take it off."""
    items, devices = amounts
    for c, a in items:
        free[c] += a * sign
    for d, milli in devices:
        shares[d] += milli * sign
