"""Better plans by `value`: what has left one node goes back, and others leave other nodes for the moves and the capacity that this frees, if that is worth more.

Where few moves are allowed, the search takes what gains most where it leaves, and sees only then what is lost where it lands; annealing moves few pods at a time, and a node from which
seven have to go is worth nothing more before the seventh has gone. So here whole sets are exchanged: those first that gain least for each move, for those that promise most beyond what
the best places for them lose. What a set really gains is seen when it is tried; a promise only says in which order, and when to end.
"""

from bisect import insort
from collections import Counter
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.choices import Pods, choices
from restow.domain.defragmentation.optimizing.ranking import LOSS, MOST_LOSS
from restow.domain.defragmentation.optimizing.search import THOUSANDTHS, Search

TRIED, BESIDE = 6, 40
"""Offers that are tried first in the place of one set, and of those that follow each how many are looked at for what is left of the moves."""
PLACES = 16
"""The best places for pods of one class, of which it is known what they lose."""
SETS = 3
"""Of one row."""
ROWS = 1_000
"""Of which sets are looked at, those that promise most."""
DOUBT, PARTS = 3, 2
"""An offer may come to so many halves of what it promises: what goes back leaves better places than there were."""


class Offer(NamedTuple):
    """Sorted, the one that promises most for each move is first. `each`: for one move, negative; `pods` of `row` would leave it in so many `moves`; `rank`: of the node's name."""

    each: int
    moves: int
    rank: int
    row: int
    pods: Pods


def exchange(search: Search, rows: list[int], steps: int) -> None:
    """Until nothing is found, on many rows once, or in so many steps. `rows` are those that pods may leave."""
    world = search.world
    # Who finds no place here is no reason why a pod stays: there it stays for the sake of others.
    search = Search(world, search.limits)
    last, found = world.steps + steps, True
    while found and world.steps < last:
        found, again, offers = False, len(rows) <= ROWS, Offers(search, rows)
        for pods in _weakest_first(search):
            if world.steps >= last:
                break
            if all(uid in world.away for uid in pods) and _instead(search, offers, pods):
                found = again
                offers.update()
    world.settle()


def _weakest_first(search: Search) -> list[Pods]:
    """All who have left one row together, where they can go back: those first that gain least for each move. Gangs that are moved as one stay where they are."""
    world, homes = search.world, dict[int, list[PodUid]]()
    world.settle()
    for uid in sorted(world.away):
        if uid not in world.gangs:
            homes.setdefault(world.home(uid).row, []).append(uid)
    found = list[tuple[int, int, Pods]]()
    for row, pods in homes.items():
        mark, before = world.mark(), search.net()
        world.steps += 1
        if world.send_home(pods):
            found.append(((before - search.net()) // len(pods), int(world.state.table.rank[row]), tuple(pods)))
        world.undo(mark)
    return [pods for *_, pods in sorted(found)]


def _instead(search: Search, offers: "Offers", pods: Pods) -> bool:
    """Whether something is worth more than these, and is there now in their place; otherwise nothing has changed."""
    world, before = search.world, search.net()
    world.settle()
    if not world.send_home(pods):
        world.undo(0)
        return False
    row, mark, lost, tried = world.home(pods[0]).row, world.mark(), before - search.net(), 0
    for at, offer in enumerate(offers.sorted):
        spare = search.limits.moves - len(world.away)
        if tried == TRIED or -offer.each * spare * DOUBT <= lost * PARTS:
            break
        if offer.row == row or offer.moves > spare:
            continue
        tried += 1
        _take(search, offers.sorted[at : at + BESIDE], row, before)
        if search.net() > before:
            return True
        world.undo(mark)
    world.undo(0)
    return False


def _take(search: Search, offers: list[Offer], row: int, wanted: int) -> None:
    """One after the other, as long as they may still come to as much as is wanted; not of this row."""
    world = search.world
    for offer in offers:
        spare = search.limits.moves - len(world.away)
        if not spare or search.net() - offer.each * spare * DOUBT // PARTS <= wanted:
            break
        if offer.moves <= spare and offer.row != row and all(uid not in world.in_the_air and world.spot(uid).row == offer.row for uid in offer.pods):
            search.attempt(offer.row, offer.pods, 0)


class Offers:
    """What could leave the rows, `sorted`. What places lose is as it was when this was made."""

    def __init__(self, search: Search, rows: list[int]) -> None:
        self._search = search
        self._lost: dict[int, list[int]] = {}
        rows = self._promising(rows)
        self._rows = frozenset(rows)
        self._seen = len(search.world.session.nodes.changes)
        self.sorted = sorted(offer for row in rows for offer in self._of(row))

    def update(self) -> None:
        """Where something has changed since."""
        changes = self._search.world.session.nodes.changes
        rows = {int(row) for row in changes[self._seen :]}
        self._seen = len(changes)
        self.sorted = [offer for offer in self.sorted if offer.row not in rows]
        for row in rows & self._rows:
            for offer in self._of(row):
                insort(self.sorted, offer)

    def _promising(self, rows: list[int]) -> list[int]:
        """Of many rows those that promise most for each move where all leave that may: annealing has seen to what few pods gain."""
        world, each = self._search.world, list[tuple[int, int, int]]()
        if len(rows) <= ROWS:
            return rows
        for row in rows:
            pods = tuple([uid for uid in world.pods(row) if world.movable(uid)])
            if pods and (net := self._search.promised(row, pods) - (self._landing(pods) or 0) * THOUSANDTHS) > 0:
                each.append((-net // len(pods), int(world.state.table.rank[row]), row))
        return [row for *_, row in sorted(each)[:ROWS]]

    def _of(self, row: int) -> list[Offer]:
        """Those of one row that may be worth it."""
        search, found = self._search, []
        sets = choices(search.world, row, search.limits.whole, SETS, 1)
        for pods in sets:
            if (lost := self._landing(pods)) is not None and (promised := search.promised(row, pods) - lost * THOUSANDTHS) > 0:
                moves = sum(uid not in search.world.away for uid in pods)
                found.append(Offer(-promised // max(moves, 1), moves, int(search.world.state.table.rank[row]), row, pods))
        return found

    def _landing(self, pods: Pods) -> int | None:
        """What is lost at least where these land, those of one class each at another place; None where there are not as many."""
        placement, seen, lost = self._search.world.placement, Counter[int](), 0
        for uid in pods:
            kind = placement.kind(uid)
            if (places := self._lost.get(kind)) is None:
                places = self._lost[kind] = self._best(uid)
            if seen[kind] == len(places):
                return None
            lost += places[seen[kind]]
            seen[kind] += 1
        return lost

    def _best(self, uid: PodUid) -> list[int]:
        """What the best places lose, the least first."""
        world = self._search.world
        keys = world.placement.keys(uid)
        good = np.sort(keys[keys >= 0])[::-1][:PLACES]
        world.steps += 1
        return [(MOST_LOSS - (key >> LOSS)) * world.value.most // MOST_LOSS for key in good.tolist()]
