"""What a plan may do, without what makes it hard: bins with capacity, and pods (or their shares of devices), each of them in one bin.

A bin is a node, or one device of a node. Whoever may move is at home in one bin, and stays there or goes to any bin of a node that may take it. Bins that
hold the same are one, with how many there are of it. Everything here is a relaxation: each plan that may be made is possible here, gains at least as much and
costs at most as much. So rules about what else runs, ports, volumes, budgets, limits of a policy and the order of moves are left out; sizes are rounded down.
"""

from collections import Counter
from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid, ShapeId
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.fragmentation import alike
from restow.domain.node_table import NO_DEVICE, WHOLE
from restow.domain.predicates import static_mask
from restow.domain.resources import GPU_MILLI

ONE = THOUSANDTHS
"""One of the objective in the unit of bounds, millionths: so what a move costs is a whole number."""
PARTS = 200
"""A bin has about so many units of the resource that is packed exactly."""
MOST_UNITS = 2000
"""A bin has no more, however small the capacity is that is asked for: beyond, a unit is worth several."""
REST = 1024
"""The largest node has so many units of every other resource."""
CLASSES, GROUPS = 400, 48
"""At most about so many: beyond, those that are nearly the same are taken for the same."""


class Item(NamedTuple):
    """A pod at home, or one of its shares: amounts exact, `cost` of its leaving in millionths of the objective. `arrives`: its size elsewhere."""

    size: int
    arrives: int
    rest: tuple[int, ...]
    like: ShapeId
    cost: int
    parts: int


class Raw(NamedTuple):
    """A bin as it is found. `worth` with nothing in it, beside what `Problem.slot` says."""

    row: int
    capacity: int
    rest: tuple[int, ...]
    items: list[Item]
    empty: int


class Problem(NamedTuple):
    """Arrays over classes (K), groups of bins (G), bins (B) and at most L pods at home in one; R resources beside the one that is packed.

    `size` `(K,)`, `rest` `(K, R)`, `number` `(K,)`: how many there are; `admits` `(G, K) bool`. Of bins: `group`, `many`, `capacity`, `empty` `(B,)`,
    `offers` `(B, R)`, the longest lists first; of who is at home `kind` (class, -1 for nobody), `takes` and `cost` `(B, L)`. `slot`: the size of one of the objective
    beside what is in a bin (0 for none), `slot_rest` `(R,)`, `slot_worth`. `before`: what all of this is worth now. `parts` `(K,)`: of how many a pod consists."""

    size: np.ndarray
    rest: np.ndarray
    number: np.ndarray
    parts: np.ndarray
    admits: np.ndarray
    group: np.ndarray
    many: np.ndarray
    capacity: np.ndarray
    offers: np.ndarray
    empty: np.ndarray
    kind: np.ndarray
    takes: np.ndarray
    cost: np.ndarray
    slot: int
    slot_rest: np.ndarray
    slot_worth: int
    before: int


def problem(world: World, least: int) -> Problem:
    """Of the world as it is, before anybody has moved. `least`: what one unit of cost is worth, in millionths (`minimumGain`)."""
    value = world.value
    wanted = value.capacity
    by_device = value.objective == "devices" or (wanted is not None and wanted.devices is not None and wanted.devices.count == 1)
    if by_device:
        raws = list(_devices(world, least))
        return _problem(world, raws, WHOLE if wanted is None or wanted.devices is None else wanted.devices.milli, (), [])
    columns = _columns(world)
    key = columns[0] if columns else -1
    slot, slot_rest = 0, tuple(0 for _ in columns[1:])
    if wanted is not None:
        asked = dict(wanted.items)
        slot, slot_rest = asked.get(key, 0), tuple(asked.get(c, 0) for c in columns[1:])
    raws = list(_nodes(world, least, columns))
    return _problem(world, raws, slot, slot_rest, columns[1:])


def _columns(world: World) -> list[int]:
    """The resource that is packed exactly, and up to two others: those that are used most, of what the capacity asks for first."""
    table, rows = world.state.table, world.counted & (world.open | world.sources)
    total = np.maximum(table.allocatable[rows].sum(axis=0), 1).astype(float)
    used = (table.allocatable[rows] - table.free[rows]).sum(axis=0) / total
    needs = {c for c, _ in world.value.capacity.items} if world.value.capacity is not None else set()
    order = sorted(range(len(used)), key=lambda c: (c not in needs, -used[c], c))
    return [c for c in order if used[c] > 0 or c in needs][:3] or order[:1]


def _cost(world: World, uid: PodUid, least: int) -> int:
    return least * world.cost(uid)


def _nodes(world: World, least: int, columns: list[int]) -> Iterator[Raw]:
    state, nodes, gpu = world.state, world.value.objective == "nodes", world.state.table.columns.get(GPU_MILLI, -1)
    for row in np.flatnonzero(world.counted & (world.open | world.sources)).tolist():
        there = [uid for uid in world.pods(row) if world.movable(uid)]
        free, items = [world.free(row)[0][c] for c in columns], []
        if gpu in columns:
            # Of devices that are over-committed one may have less than none; slots are counted on the others.
            free[columns.index(gpu)] = max(free[columns.index(gpu)], sum(max(share, 0) for share in world.free(row)[1]))
        for uid in there:
            asked = dict(world.vector(uid).items)
            amounts = [asked.get(c, 0) for c in columns]
            free = [f + a for f, a in zip(free, amounts, strict=True)]
            like = alike(state, state.pods[uid].fact.shape)
            items.append(Item(amounts[0], amounts[0], tuple(amounts[1:]), like, _cost(world, uid, least), 1))
        empty = ONE if nodes and int(world.loads[row]) <= len(there) else 0
        yield Raw(row, free[0], tuple(free[1:]), items, empty)


def _devices(world: World, least: int) -> Iterator[Raw]:
    """Whose leaving frees no device that is known stays for the bound as well: it could gain nothing."""
    state = world.state
    for row in np.flatnonzero(world.counted & (world.open | world.sources)).tolist():
        shares = world.free(row)[1]
        items: list[list[Item]] = [[] for _ in shares]
        free = shares[:]
        for uid in world.pods(row):
            request = world.vector(uid).devices
            if request is None or not world.movable(uid):
                continue
            had = [d for d in world.spot(uid).devices if d.index < len(shares)]
            like, cost = alike(state, state.pods[uid].fact.shape), _cost(world, uid, least)
            for d in had:
                free[d.index] += d.milli
                items[d.index].append(Item(d.milli, request.milli, (), like, cost // request.count, request.count))
        for share, there in zip(free, items, strict=True):
            if share > NO_DEVICE // 2:
                yield Raw(row, share, (), there, 0)


# -- as arrays -----------------------------------------------------------------------------------------------------------


def _problem(world: World, raws: list[Raw], slot: int, slot_rest: tuple[int, ...], others: list[int]) -> Problem:
    state, table = world.state, world.state.table
    items = [item for raw in raws for item in raw.items]
    unit = _unit(Counter(item.size for item in items), slot, max((raw.capacity for raw in raws), default=1))
    largest = [max(int(table.allocatable[:, c].max(initial=1)), 1) for c in others]
    likes = sorted({item.like for item in items})
    masks = {like: static_mask(state, like) & world.open for like in likes}
    steps = REST

    def key(item: Item) -> tuple[int, tuple[int, ...], ShapeId, int]:
        rest = tuple(a * steps // most * (REST // steps) for a, most in zip(item.rest, largest, strict=True))
        return item.arrives // unit, rest, item.like, item.parts

    while len({key(item) for item in items}) > CLASSES and steps > 1:
        steps //= 4
    classes = {one: k for k, one in enumerate(sorted({key(item) for item in items}))}
    size = np.array([one[0] for one in classes], np.int64)
    rest = np.array([one[1] for one in classes], np.int64).reshape(len(classes), len(others))
    admits, group_of = _groups(world, [masks[one[2]] for one in classes], others)
    count = np.zeros(len(classes), np.int64)
    bins: Counter[tuple] = Counter()
    for raw in raws:
        stay = []
        for item in raw.items:
            k = classes[key(item)]
            count[k] += 1
            stay.append((k, item.size // unit, item.cost))
        stay.sort()
        offers = tuple(max(a, 0) * REST // most for a, most in zip(raw.rest, largest, strict=True))
        # Who is there may stay, however little there is.
        offers = tuple(max(a, sum(int(rest[k, r]) for k, _, _ in stay)) for r, a in enumerate(offers))
        capacity = max(raw.capacity // unit, sum(takes for _, takes, _ in stay), 0)
        bins[int(group_of[raw.row]), capacity, offers, tuple(stay), raw.empty] += 1
    order = sorted(bins, key=lambda one: (-len(one[3]), one))
    longest = max((len(one[3]) for one in order), default=0)
    home = np.full((len(order), longest, 3), -1, np.int64)
    for b, one in enumerate(order):
        if one[3]:
            home[b, : len(one[3])] = one[3]
    # Where a unit is worth several, what is left of one is, too.
    each = -(-unit // slot) if 0 < slot < unit else 1 if slot else 0
    before = ONE * (sum(world.worth[row] for row in {raw.row for raw in raws}) - (each * len(raws) if each > 1 else 0))
    column = lambda at: np.array([one[at] for one in order], np.int64)  # noqa: E731
    return Problem(
        size, rest, count, np.array([one[3] for one in classes], np.int64), admits, column(0), np.array([bins[one] for one in order], np.int64), column(1),
        np.array([one[2] for one in order], np.int64).reshape(len(order), len(others)), column(4), home[:, :, 0], home[:, :, 1], home[:, :, 2],
        max(slot // unit, 1) if slot else 0, np.array([0 if each > 1 else a * REST // most for a, most in zip(slot_rest, largest, strict=True)], np.int64),
        ONE * each, before,
    )  # fmt: skip


def _groups(world: World, masks: list[np.ndarray], others: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """`(G, K) bool` and `(nodes,) int64`: nodes are one group that take the same classes, and (as far as there are not too many) that are of one size."""
    table = world.state.table
    take = np.array(masks, bool).reshape(len(masks), len(table.names)).T
    for kind in (np.hstack([table.allocatable, take]) if others else take, take):
        _, first, group_of = np.unique(kind, axis=0, return_index=True, return_inverse=True)
        if len(first) <= GROUPS:
            return take[first], group_of.ravel()
    group_of = group_of.ravel()
    # The rarest become one group that takes what any of them takes.
    common = np.argsort(-np.bincount(group_of), kind="stable")[: GROUPS - 1]
    number = np.full(len(first), GROUPS - 1)
    number[common] = np.arange(len(common))
    found = number[group_of]
    return np.array([take[found == g].any(axis=0) for g in range(GROUPS)]), found


def _unit(sizes: Counter[int], slot: int, largest: int) -> int:
    """In which sizes are told, rounded down: as exact as `PARTS` allow."""
    exact = gcd(slot, *sizes) or 1
    if largest <= PARTS * exact:
        return exact
    least = -(-largest // PARTS)
    some = {least + least * i // 40 for i in range(40)} | {size // n for size in [slot, *[s for s, _ in sizes.most_common(8)]] for n in range(1, 65) if size}
    if 0 < slot < least and largest <= MOST_UNITS * slot:
        return slot
    able = [unit for unit in some if least <= unit < 2 * least]
    return min(able, key=lambda unit: (sum(count * (size % unit) for size, count in sizes.items()) + (slot % unit) * sum(sizes.values()), unit))
