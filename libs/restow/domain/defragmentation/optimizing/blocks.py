"""Whole free blocks of nodes, for gangs that are to be near to each other: found before anybody else is thought of.

What one more gang is worth (`block_worth`) comes with the last pod that leaves its block; before that each one may gain nothing. So for each block the cheapest sets of pods are put together whose leaving makes
room for one gang more, and all of them find slots elsewhere or none of them moves. Then the search goes on from there, and nobody comes to nodes that hold whole gangs.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from restow.contracts.values import DeviceRequest
from restow.domain.defragmentation.block_worth import Tally
from restow.domain.defragmentation.optimizing.choices import (
    Pods,
    easiest,
    free_without,
    gain,
    lightest,
    loads_on,
)
from restow.domain.defragmentation.optimizing.search import DEPTH, THOUSANDTHS, Search, largest_first
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.network.blocks import NO_BLOCK
from restow.domain.node_table import Vector

LOOKED_AT = 64
"""Blocks for each class of gangs that are looked at in full, those first that lack the least and have the fewest pods."""
EACH = 8
"""Slots of a row that are asked for one by one."""
SLOTS = "slots"
NEVER = -(1 << 200)


ByBlock = dict[int, list[int]]
"""The rows of each block that count, by name."""


class Option(NamedTuple):
    """Who leaves a row, how many slots of a gang's pods that makes, and what it gains beyond what moving them costs."""

    slots: int
    net: int
    pods: Pods


class Offer(NamedTuple):
    """The same of a block, for one gang more of a class."""

    net: int
    gangs: int
    block: int
    pods: Pods


def free(search: Search) -> None:
    """Until no block gains by it. What it takes is in the world."""
    tally = search.world.tally
    if tally is None:
        return
    rows = _by_block(search.world, tally)
    again = True
    while again and not search.spent:
        again = False
        for old in sorted(_offers(search, tally, rows), key=lambda offer: (-offer.net, offer.gangs, tally.of.classes[offer.gangs].names[offer.block])):
            # What was taken for others may be what this one needs.
            offer = _offer(search, tally, old.gangs, old.block, rows[old.gangs][old.block])
            again |= offer is not None and _take(search, tally, offer, rows)
            if search.spent:
                break


def kept(world: World) -> np.ndarray:
    """`(nodes,) bool`: rows that hold whole gangs, of each block as few as do, the emptiest ones."""
    found = np.zeros(len(world.worth), bool)
    if (tally := world.tally) is not None:
        found[_kept(tally, _by_block(world, tally))] = True
    return found


def _by_block(world: World, tally: Tally) -> list[ByBlock]:
    """For each class."""
    rank, counted = world.state.table.rank, np.flatnonzero(world.counted)
    rows, found = counted[np.argsort(rank[counted])].tolist(), []
    for alike in tally.of.classes:
        by_block: ByBlock = {}
        for row in rows:
            if (block := alike.at[row]) != NO_BLOCK:
                by_block.setdefault(block, []).append(row)
        found.append(by_block)
    return found


def _kept(tally: Tally, rows: Sequence[ByBlock]) -> list[int]:
    return [row for k, by_block in enumerate(rows) for block, some in by_block.items() for row in _holding(tally, k, block, some)]


def _holding(tally: Tally, k: int, block: int, rows: Sequence[int]) -> list[int]:
    """Of its rows as few as hold its whole gangs."""
    slots, found = tally.gangs(k, block) * tally.of.classes[k].gang.pods, list[int]()
    for row in sorted(rows, key=lambda row: -tally.fits[k][row]):
        if slots <= 0:
            break
        found.append(row)
        slots -= tally.fits[k][row]
    return found


def _offers(search: Search, tally: Tally, rows: Sequence[ByBlock]) -> Iterator[Offer]:
    world = search.world
    for k, alike in enumerate(tally.of.classes):

        def short(block: int, k: int = k, names: Sequence[str] = alike.names) -> tuple[int, int, str]:
            lacks = _lacks(tally, k, block)
            busy = sorted(int(world.loads[row]) for row in rows[k][block] if not tally.fits[k][row])
            return sum(busy[:lacks]), lacks, names[block]

        for block in sorted(rows[k], key=short)[:LOOKED_AT]:
            if not search.spent and (offer := _offer(search, tally, k, block, rows[k][block])) is not None:
                yield offer


def _lacks(tally: Tally, k: int, block: int) -> int:
    """Places for one gang more."""
    pods = tally.of.classes[k].gang.pods
    return pods - tally.slots[k][block] % pods


def _offer(search: Search, tally: Tally, k: int, block: int, rows: Sequence[int]) -> Offer | None:
    """The best sets of pods that make room for one gang more; None where none is worth it. Once the steps are used up, of rows that have been looked at."""
    lacks, alike = _lacks(tally, k, block), tally.of.classes[k]
    best: list[tuple[int, Pods]] = [(0, ()), *[(NEVER, ())] * lacks]
    for row in rows:
        options = _options(search, tally, k, row, lacks)
        if options:
            # By slots from above: each row counts once.
            best = [_best(best, options, made) if made else best[0] for made in range(lacks + 1)]
    net, pods = best[lacks]
    if not pods:
        return None
    weight = max(alike.weights[row] for row in rows)
    net += weight * alike.gang.pods * THOUSANDTHS
    return Offer(net, k, block, pods) if net > 0 else None


def _best(best: Sequence[tuple[int, Pods]], options: Sequence[Option], made: int) -> tuple[int, Pods]:
    """The better of what makes so many slots without this row, and with each of its options."""
    found = best[made]
    for option in options:
        net, pods = best[max(made - option.slots, 0)]
        if net > NEVER and net + option.net > found[0]:
            found = net + option.net, pods + option.pods
    return found


def _options(search: Search, tally: Tally, k: int, row: int, most: int) -> list[Option]:
    """Of one row, for up to so many slots more; worked out once for what is on it."""
    world = search.world
    if not (world.sources[row] or world.come(row)):
        return []
    known = world.known(row)
    key = SLOTS, k, most
    if (found := known.get(key)) is None:
        if search.spent:
            return []
        sets: dict[Pods, None] = {}
        loads = loads_on(world, row)
        if loads and int(world.loads[row]) == len(loads) and all(world.movable(uid) for uid in loads):
            sets[tuple(sorted(loads))] = None
        v, now = tally.of.classes[k].gang.one.v, tally.fits[k][row]
        for more in _counts(most) if not search.limits.whole else ():
            some = lightest(world, row, _times(v, now + more), 1)
            if not some:
                break
            sets[tuple(sorted(some[0]))] = None
        options = (Option(tally.of.fits_one(k, row, *free_without(world, row, pods)) - now, _net(search, row, pods), pods) for pods in sets if pods)
        found = known[key] = [option for option in options if option.slots > 0]
    return found


def _counts(most: int) -> Iterator[int]:
    """Each up to `EACH`, and from there on twice as many each time: of small pods a node may have hundreds."""
    more = 1
    while more <= most:
        yield more
        more += 1 if more < EACH else more


def _net(search: Search, row: int, pods: Pods) -> int:
    return gain(search.world, row, pods) * THOUSANDTHS - search.limits.least * easiest(search.world, pods)[0]


def _times(v: Vector, often: int) -> Vector:
    """The request so often; of devices it has so many more of the same part."""
    devices = None if v.devices is None else DeviceRequest(v.devices.count * often, v.devices.milli)
    return Vector(tuple((c, a * often) for c, a in v.items), devices)


def _take(search: Search, tally: Tally, offer: Offer, rows: Sequence[ByBlock]) -> bool:
    """Move all of them, if that is worth it; nothing changes where it is not."""
    world = search.world
    if len(world.away) + sum(uid not in world.away for uid in offer.pods) > search.limits.moves:
        search.full = True
        return False
    if search.limits.quota.bounds and search.beyond(offer.pods, offer.pods):
        return False
    mark, before, others = world.mark(), search.net(), _kept(tally, rows)
    for uid in offer.pods:
        world.lift(uid)
    banned = frozenset([*others, *_holding(tally, offer.gangs, offer.block, rows[offer.gangs][offer.block])])
    done = all(search.place(uid, banned, DEPTH, before) for uid in largest_first(world, offer.pods)) and search.net() > before
    done = done and len(world.away) <= search.limits.moves and not (search.limits.quota.bounds and search.beyond(offer.pods, world.changed(mark)))
    if not done:
        world.undo(mark)
    return done
