"""What a plan may do, without what makes it hard: nodes with bins, and pods (or their shares of devices), each of them in one bin.

A bin is a device of a node, or the whole node where devices are not what is used most. Whoever may move is at home in one bin, and stays there or goes to any bin of
a node that may take it. Bins and nodes that hold the same are one, with how many there are of it. Everything here is a relaxation: each plan that may be made is possible here, gains at least as much and
costs at most as much. So rules about what else runs, ports, volumes, budgets, limits of a policy and the order of moves are left out; sizes are rounded down.
"""

from collections import Counter
from collections.abc import Iterator
from math import gcd
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid, ShapeId
from restow.domain.defragmentation.bound.valued import Valued, Values
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS
from restow.domain.defragmentation.optimizing.usable import Usable
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
MOST_STEPS = 256
"""Amounts of one resource at which another request of some demand fits, that are told apart."""
CLASSES, GROUPS, VALUED, EACH = 400, 48, 192, 64
"""At most about so many: beyond, those that are nearly the same are taken for the same. `VALUED`: groups, by objective `value`; up to `EACH` nodes each is a group of its own then, where no devices are packed, so
that what one keeps of a resource is of no use to another."""
OTHERS = 2
"""Resources that have a price, beside the one that is packed: those that are used most."""
FEW = 32
"""Where no more than one pod in so many may move, they are counted as they fit now, too (`Values`): beyond, that was the higher bound wherever it was tried."""
LUMPS = 100
"""Nodes are added up in so many: a larger program would say the same."""


class Item(NamedTuple):
    """A pod at home, or one of its shares: amounts exact, `cost` of its leaving in millionths of the objective. `arrives`: its size elsewhere."""

    size: int
    arrives: int
    rest: tuple[int, ...]
    like: ShapeId
    cost: int
    parts: int


class Raw(NamedTuple):
    """A node as it is found: `bins` with their capacity and who is at home in each, `loose` who is on the node and in none of them, what it has of other
    resources, and what it is worth: `empty` with nothing on it, `base` whatever is on it, beside what `Problem.slot` and `Problem.left` say; and `before`."""

    row: int
    rest: tuple[int, ...]
    bins: list[tuple[int, list[Item]]]
    loose: list[Item]
    empty: int
    base: int
    before: int
    profile: tuple[int, ...] = ()


class Bins(NamedTuple):
    """B bins, the longest lists first: `group`, `many`, `capacity` `(B,)`, and of at most L who are at home in one `kind` (class, -1 for nobody), `takes` and
    `cost` `(B, L)`."""

    group: np.ndarray
    many: np.ndarray
    capacity: np.ndarray
    kind: np.ndarray
    takes: np.ndarray
    cost: np.ndarray


class Nodes(NamedTuple):
    """N nodes: `group`, `many`, `lump` (nodes of one lump are added up), `empty` (0 where that counts for nothing), `base` `(N,)`, `offers` `(N, R)`. What is on them, of one node so `often`: bins (`of`, `bin`),
    and who is in none of its bins (`loose_of`, `loose`, a class, and its `loose_cost`)."""

    group: np.ndarray
    many: np.ndarray
    lump: np.ndarray
    empty: np.ndarray
    base: np.ndarray
    offers: np.ndarray
    of: np.ndarray
    bin: np.ndarray
    often: np.ndarray
    loose_of: np.ndarray
    loose: np.ndarray
    loose_cost: np.ndarray
    loose_often: np.ndarray


class Wants(NamedTuple):
    """D demands of objective `value`, of which each node takes as many as the scarcest of its resources allows; the packed one is the first of 1 + R. `weights` `(G, D)`: what one more is worth; `asks` `(D, 1 + R)
    bool`: what it asks for. Packed: `fit` `(units, D)`, how often what is left of one bin allows it, in `parts` `(D,)`ths, and `whole` `(n + 1, D)` so many of a node's whole bins beside that. Others: `(steps, of
    how many units on)` and how often each fits then, `(steps, D)`. `levels` `(units, L)`: how often requests of some sizes for one bin fit into what is
    left of one, if nothing else mattered; of those that are whole numbers of units, so that these are exact."""

    weights: np.ndarray
    asks: np.ndarray
    fit: np.ndarray
    parts: np.ndarray
    whole: np.ndarray
    steps: tuple[tuple[np.ndarray, np.ndarray], ...]
    levels: np.ndarray

    def split(self, share: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """`(G, D, 1 + R) int64`: parts of the weights less what one more of a demand costs (`Prices.totals`), none below 0, no less than these in sum, and only of what is asked for. `share`: parts that are wanted,
        in any unit."""
        weights = np.where(self.weights > 0, np.maximum(self.weights - totals[: len(self.parts)], 0), 0)
        share = np.maximum(np.where(self.asks[None], share, 0), 0)
        total = share.sum(axis=2, keepdims=True)
        share = np.where(total > 0, share, self.asks[None])
        parts = np.floor(weights[:, :, None] * (share / np.maximum(share.sum(axis=2, keepdims=True), 1e-300))).astype(np.int64)
        parts = np.clip(parts, 0, weights[:, :, None])
        first = self.asks.argmax(axis=1)
        parts[:, np.arange(len(first)), first] += np.maximum(weights - parts.sum(axis=2), 0)
        return parts


class Problem(NamedTuple):
    """Arrays over classes (K) and groups of nodes (G); R resources beside the one that is packed.

    `size` `(K,)`, `rest` `(K, R)`, `number` `(K,)`: how many there are; `parts` `(K,)`: of how many a pod consists; `admits` `(G, K) bool`. `slot`: the size of one of the
    objective beside what is in a bin (0 for none), `slot_rest` `(R,)`, `slot_worth`. `before`: what all of this is worth now. `left` `(G, units)`: what is left of a bin is worth that, and
    `together` `(G, n)`: that many of a node's bins that are `whole` (so many units; 0 where bins are no devices) and have nothing in them, that more; with `wants` both are what prices make of these. `scale`: what counts is about so much."""

    size: np.ndarray
    rest: np.ndarray
    number: np.ndarray
    parts: np.ndarray
    admits: np.ndarray
    bins: Bins
    nodes: Nodes
    slot: int
    slot_rest: np.ndarray
    slot_worth: int
    before: int
    left: np.ndarray
    together: np.ndarray
    whole: int
    scale: int
    wants: Wants | None

    @property
    def full(self) -> int:
        """The size of what is wanted of a bin."""
        return self.slot or int(self.bins.capacity.max(initial=1)) or 1

    @property
    def bins_on_one(self) -> int:
        """The most that a node has."""
        return int(np.bincount(self.nodes.of, self.nodes.often).max(initial=1)) if len(self.nodes.of) else 1

    @property
    def bins_each(self) -> int:
        """Of a node that is wanted as a whole; otherwise 1."""
        return max(int((self.nodes.often * self.nodes.many[self.nodes.of]).sum()) // max(int(self.nodes.many.sum()), 1), 1) if self.nodes.empty.any() else 1


def problems(world: World, least: int, limit: int) -> Iterator[Problem]:
    """Of the world as it is, before anybody has moved. Each is a relaxation of its own: where whole nodes are wanted, one packs devices, and one what else is used
    most; by `value` each of them twice where few may move (`limit`). `least`: what one unit of cost is worth, in millionths (`minimumGain`)."""
    wanted, objective = world.value.capacity, world.value.objective
    gpu, columns = world.state.table.columns.get(GPU_MILLI, -1), _columns(world)
    asked = dict(wanted.items) if wanted is not None else {}
    single = wanted.devices if wanted is not None and wanted.devices is not None and wanted.devices.count == 1 else None
    by_device = objective == "devices" or single is not None or (objective in ("nodes", "value") and gpu in columns)
    if by_device:
        # By `value` one is packed exactly beside the devices: that is lower than prices for two.
        others = [c for c in columns if c != gpu][: 1 if objective == "value" else OTHERS]
        for values in _values(world, -1, others, limit):
            raws, slot = list(_by_device(world, least, others, values)), 0 if objective in ("nodes", "value") else single.milli if single is not None else WHOLE
            yield _problem(world, raws, slot, tuple(asked.get(c, 0) for c in others), others, values)
    if not by_device or (objective == "nodes" and columns[0] != gpu):
        others = columns[1 : OTHERS + 1]
        for values in _values(world, columns[0] if columns else 0, others, limit):
            raws = list(_by_node(world, least, columns[: OTHERS + 1], values))
            yield _problem(world, raws, asked.get(columns[0], 0) if columns else 0, tuple(asked.get(c, 0) for c in others), others, values)


def _values(world: World, packed: int, others: list[int], limit: int) -> list[Values | None]:
    """By objective `value` one relaxation for each."""
    ways = (False, True) if limit * FEW <= len(world.state.pods) else (False,)
    return [Values(world, world.value, packed, others, as_it_is) for as_it_is in ways] if isinstance(world.value, Usable) else [None]


def _columns(world: World) -> list[int]:
    """The resources by how much of them is used, those first that the capacity asks for."""
    table, rows = world.state.table, world.counted & (world.open | world.sources)
    total = np.maximum(table.allocatable[rows].sum(axis=0), 1).astype(float)
    used = (table.allocatable[rows] - table.free[rows]).sum(axis=0) / total
    needs = {c for c, _ in world.value.capacity.items} if world.value.capacity is not None else set()
    order = sorted(range(len(used)), key=lambda c: (c not in needs, -used[c], c))
    return [c for c in order if used[c] > 0 or c in needs] or order[:1]


def _valued(world: World, row: int, there: list[PodUid], values: Values | None) -> Valued:
    if values is not None:
        return values.of(row, there)
    empty = ONE if world.value.objective == "nodes" and int(world.loads[row]) <= len(there) else 0
    return Valued((), 0, ONE * world.worth[row], empty, {})


def _by_node(world: World, least: int, columns: list[int], values: Values | None) -> Iterator[Raw]:
    """A node is one bin, packed in the first of the columns."""
    state, gpu = world.state, world.state.table.columns.get(GPU_MILLI, -1)
    for row in np.flatnonzero(world.counted & (world.open | world.sources)).tolist():
        there = [uid for uid in world.pods(row) if world.movable(uid)]
        free, items = [world.free(row)[0][c] for c in columns], []
        if gpu in columns:
            # Of devices that are over-committed one may have less than none; slots are counted on the others.
            free[columns.index(gpu)] = max(free[columns.index(gpu)], sum(max(share, 0) for share in world.free(row)[1]))
        valued = _valued(world, row, there, values)
        for uid in there:
            asked = dict(world.vector(uid).items)
            amounts = [asked.get(c, 0) for c in columns]
            free = [f + a for f, a in zip(free, amounts, strict=True)]
            like = alike(state, state.pods[uid].fact.shape)
            items.append(Item(amounts[0], amounts[0], tuple(amounts[1:]), like, least * world.cost(uid) - valued.more.get(uid, 0), 1))
        yield Raw(row, tuple(free[1:]), [(free[0], items)], [], valued.empty, valued.base, valued.before, valued.profile)


def _by_device(world: World, least: int, columns: list[int], values: Values | None) -> Iterator[Raw]:
    """A device is one bin; who asks for none is on the node only. Whose leaving frees no device that is known stays for the bound as well, where it could gain
    nothing."""
    state = world.state
    for row in np.flatnonzero(world.counted & (world.open | world.sources)).tolist():
        shares = world.free(row)[1]
        items: list[list[Item]] = [[] for _ in shares]
        loose: list[Item] = []
        free, rest = shares[:], [world.free(row)[0][c] for c in columns]
        there = [uid for uid in world.pods(row) if world.movable(uid)]
        valued = _valued(world, row, there, values)
        for uid in there:
            v, like, cost = world.vector(uid), alike(state, state.pods[uid].fact.shape), least * world.cost(uid) - valued.more.get(uid, 0)
            asked = dict(v.items)
            amounts = [asked.get(c, 0) for c in columns]
            rest = [f + a for f, a in zip(rest, amounts, strict=True)]
            if v.devices is None:
                loose.append(Item(0, 0, tuple(amounts), like, cost, 1))
                continue
            had, parts = [d for d in world.spot(uid).devices if d.index < len(shares)], v.devices.count
            if not had and values is not None:
                loose.append(Item(0, 0, tuple(amounts), like, cost, 1))
            # What is gained by its leaving is gained once all of its parts have left.
            part = least * world.cost(uid) // parts - -(-valued.more.get(uid, 0) // max(len(had), 1))
            each = tuple(a // parts for a in amounts)
            for d in had:
                free[d.index] += d.milli
                items[d.index].append(Item(d.milli, v.devices.milli, each, like, part, parts))
        bins = [(share, some) for share, some in zip(free, items, strict=True) if share > NO_DEVICE // 2]
        yield Raw(row, tuple(rest), bins, loose, valued.empty, valued.base, valued.before, valued.profile)


# -- as arrays -----------------------------------------------------------------------------------------------------------


def _problem(world: World, raws: list[Raw], slot: int, slot_rest: tuple[int, ...], others: list[int], values: Values | None) -> Problem:
    state, table = world.state, world.state.table
    items = [item for raw in raws for some in (*(some for _, some in raw.bins), raw.loose) for item in some]
    wanted = values.sizes() if values is not None else []
    unit = _unit(Counter([*(item.size for item in items if item.size), *wanted]), slot, max((capacity for raw in raws for capacity, _ in raw.bins), default=1))
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
    profiles = np.zeros((len(table.names), len(values.wanted) if values is not None else 0), np.int64)
    for raw in raws:
        profiles[raw.row] = raw.profile
    # Where devices are packed each node is worked out by itself anyway (`exact`).
    apart = EACH if values is not None and not values.by_device else 0
    admits, group_of, profiles = _groups(world, [masks[one[2]] for one in classes], others, profiles, apart)
    count = np.zeros(len(classes), np.int64)
    bins: Counter[tuple] = Counter()
    nodes: Counter[tuple] = Counter()
    for raw in raws:
        group, held = int(group_of[raw.row]), []
        for capacity, some in raw.bins:
            stay = tuple(sorted((classes[key(item)], item.size // unit, item.cost) for item in some))
            held.append((group, max(capacity // unit, sum(takes for _, takes, _ in stay), 0), stay))
        loose = tuple(sorted((classes[key(item)], item.cost) for item in raw.loose))
        there = [k for *_, stay in held for k, _, _ in stay] + [k for k, _ in loose]
        np.add.at(count, there, 1)
        # Who is there may stay, however little there is.
        offers = tuple(
            max(max(a, 0) * REST // most, int(rest[there, r].sum())) for r, (a, most) in enumerate(zip(raw.rest, largest, strict=True))
        )
        bins.update(held)
        nodes[group, offers, tuple(sorted(held)), loose, raw.empty, raw.base] += 1
    # Where a unit is worth several, what is left of one is, too.
    each = -(-unit // slot) if 0 < slot < unit else 1 if slot else 0
    before = sum(raw.before for raw in raws) - (ONE * each * bins.total() if each > 1 else 0)
    numbered = {one: b for b, one in enumerate(sorted(bins, key=lambda one: (-len(one[2]), one)))}
    return Problem(
        size, rest, count, np.array([one[3] for one in classes], np.int64), admits, _bins(numbered, bins), _nodes(nodes, numbered, len(others)),
        max(slot // unit, 1) if slot else 0, np.array([0 if each > 1 else a * REST // most for a, most in zip(slot_rest, largest, strict=True)], np.int64),
        ONE * each, before, *_worths(values, profiles, unit, raws, others, largest),
    )  # fmt: skip


def _worths(
    values: Values | None, profiles: np.ndarray, unit: int, raws: list[Raw], others: list[int], largest: list[int]
) -> tuple[np.ndarray, np.ndarray, int, int, Wants | None]:
    """`left`, `together`, `whole`, `scale` and `wants` of a problem."""
    width = max((max(capacity, sum(item.size for item in some)) // unit for raw in raws for capacity, some in raw.bins), default=0) + 1
    most, groups = max((len(raw.bins) for raw in raws), default=0), len(profiles)
    if values is None:
        return np.zeros((groups, width), np.int64), np.zeros((groups, 1), np.int64), 0, ONE, None
    fit, parts = values.by_units(unit, width)
    wants = Wants(profiles, values.asks(others), fit, parts, values.together(most), tuple(_steps(values, c, most) for c, most in zip(others, largest, strict=True)), values.levels(unit, width))
    scale = int((profiles @ (fit[-1] // parts)).max(initial=0)) + int((profiles @ (wants.whole // np.maximum(np.arange(most + 1), 1)[:, None]).T).max(initial=0))
    return np.zeros((groups, width), np.int64), np.zeros((groups, most + 1 if wants.whole.any() else 1), np.int64), WHOLE // unit if values.by_device else 0, max(scale, ONE), wants


def _steps(values: Values, column: int, largest: int) -> tuple[np.ndarray, np.ndarray]:
    """Of amounts of a resource, in units, those of which on more requests fit, and how many: at most, where several are one."""
    asked = np.array(values.amounts(column), np.int64)
    # No more of one request than there are units: of 128 bytes a node has billions.
    amounts = sorted({j * a for a, times in zip(asked.tolist(), values.most.tolist(), strict=True) if a for j in _times(min(largest // a, times))})
    if len(amounts) >= MOST_STEPS:
        amounts = amounts[:: -(-len(amounts) // MOST_STEPS)]
    units = sorted({0, *(a * REST // largest for a in amounts)})
    # Of one unit on: all that is less than the next step may be there.
    ends = np.array([*(-(-u * largest // REST) for u in units[1:]), largest + 1], np.int64) - 1
    return np.array(units, np.int64), np.where(asked > 0, np.minimum(ends[:, None] // np.maximum(asked, 1), values.most), 0)


def _times(most: int) -> range:
    """Of one request up to so many, and no more of them than there are units."""
    each = most // (REST + 1) + 1
    return range(each, most + 1, each)


def _bins(numbered: dict[tuple, int], many: Counter[tuple]) -> Bins:
    longest = max((len(stay) for *_, stay in numbered), default=0)
    home = np.full((len(numbered), longest, 3), -1, np.int64)
    for b, (_, _, stay) in enumerate(numbered):
        if stay:
            home[b, : len(stay)] = stay
    group, number, capacity = np.array([(one[0], many[one], one[1]) for one in numbered], np.int64).reshape(-1, 3).T
    return Bins(group, number, capacity, home[:, :, 0], home[:, :, 1], home[:, :, 2])


def _nodes(nodes: Counter[tuple], numbered: dict[tuple, int], others: int) -> Nodes:
    order = sorted(nodes)
    held = [(n, numbered[one], often) for n, (_, _, bins, *_) in enumerate(order) for one, often in Counter(bins).items()]
    loose = [(n, k, cost, often) for n, (_, _, _, some, *_) in enumerate(order) for (k, cost), often in Counter(some).items()]
    whose, who = np.array(held, np.int64).reshape(-1, 3).T, np.array(loose, np.int64).reshape(-1, 4).T
    lump = np.arange(len(order)) * min(len(order), LUMPS) // max(len(order), 1)
    return Nodes(
        np.array([one[0] for one in order], np.int64), np.array([nodes[one] for one in order], np.int64), lump, np.array([one[4] for one in order], np.int64), np.array([one[5] for one in order], np.int64),
        np.array([one[1] for one in order], np.int64).reshape(len(order), others), *whose, *who,
    )  # fmt: skip


def _groups(world: World, masks: list[np.ndarray], others: list[int], profiles: np.ndarray, apart: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`(G, K) bool`, `(nodes,) int64` and `(G, demands) int64`: nodes are one group that take the same classes and are worth the same, and (as far as there are not too many) that are of
    one size. `profiles` `(nodes, demands)`; of a group the largest. Up to `apart` nodes are a group each."""
    table = world.state.table
    take = np.array(masks, bool).reshape(len(masks), len(table.names)).T
    same, limit = np.hstack([take, profiles]), VALUED if profiles.size else GROUPS
    each = [np.hstack([np.arange(len(take))[:, None], same])] if len(take) <= apart else []
    for kind in (*each, np.hstack([table.allocatable, same]) if others else same, same):
        _, first, group_of = np.unique(kind, axis=0, return_index=True, return_inverse=True)
        if len(first) <= limit:
            return take[first], group_of.ravel(), profiles[first]
    group_of = group_of.ravel()
    # The rarest become one group that takes what any of them takes.
    common = np.argsort(-np.bincount(group_of), kind="stable")[: limit - 1]
    number = np.full(len(first), limit - 1)
    number[common] = np.arange(len(common))
    found = number[group_of]
    every = range(limit)
    return np.array([take[found == g].any(axis=0) for g in every]), found, np.array([profiles[found == g].max(axis=0, initial=0) for g in every])


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
