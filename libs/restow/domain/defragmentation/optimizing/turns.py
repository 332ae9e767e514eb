"""Who takes which place, so that moves find an order: of pods that ask for the same and that no rule tells apart each may have the place of any other.

What is free at first is taken by whoever leaves by that a place that somebody waits for, and so on. Where nearly everything is in use the same places may be taken in an order then that hardly
any of the moves had before.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.board import takes_part
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.simulation import Spot
from restow.domain.fragmentation import alike
from restow.domain.node_table import Vector

OPENS, HELPS, NOTHING = range(3)
"""What the leaving of a pod does for those who wait for a place at its home: one of them fits then; it is on devices that one waits for; or nothing."""
Place = tuple[int, Spot]
"""And for pods of which class."""


def in_turn(world: World, wanted: Mapping[PodUid, Spot]) -> dict[PodUid, Spot]:
    """The same pods go to the same places, in the order in which they can as far as that was found; the rest comes last. Nobody is away from home in the world, which stays as it is."""
    return _Turns(world, wanted).found()


class _Turns:
    def __init__(self, world: World, wanted: Mapping[PodUid, Spot]) -> None:
        self._world, self._wanted, rank = world, wanted, world.state.table.rank
        self._free = {row: (list(free), list(shares)) for row in sorted(_rows(world, wanted)) for free, shares in (world.free(row),)}
        self._vectors: list[Vector] = []
        known: dict[object, int] = {}
        self._of: dict[PodUid, int] = {}
        self._places: dict[int, list[Place]] = {}
        self._at: dict[int, list[PodUid]] = {}
        for uid in sorted(wanted, key=lambda uid: (int(rank[wanted[uid].row]), uid)):
            v = world.vector(uid)
            k = self._of[uid] = known.setdefault((v, alike(world.state, world.state.pods[uid].fact.shape)) if takes_part(world, uid) else uid, len(known))
            self._vectors += [v] * (k == len(self._vectors))
            self._places.setdefault(wanted[uid].row, []).append((k, wanted[uid]))
        for uid in sorted(wanted):
            self._at.setdefault(world.home(uid).row, []).append(uid)
        self._leaving: list[tuple[dict[PodUid, None], ...]] = [({}, {}, {}) for _ in self._vectors]
        """By class, and by what their leaving does: who has not left."""
        self._classes = dict.fromkeys(range(len(self._vectors)))
        """Those of which somebody has not left."""
        self._open: list[dict[int, list[Place]]] = [{} for _ in self._vectors]
        """By class and row: places that are free."""
        self._open_at: dict[int, set[int]] = {}
        """By row, of which classes: of thousands these are few."""
        self._does: dict[PodUid, int] = {}

    def found(self) -> dict[PodUid, Spot]:
        found: dict[PodUid, Spot] = {}
        changed = sorted(self._free, key=lambda row: int(self._world.state.table.rank[row]))
        while True:
            for row in changed:
                self._look(row)
            if (best := next(self._next(), None)) is None:
                break
            uid, place = best
            found[uid] = place[1]
            changed = self._go(uid, place)
        left = {uid for uid in self._wanted if uid not in found}
        places: dict[int, list[Spot]] = {}
        for k, spot in chain.from_iterable(self._places.values()):
            places.setdefault(k, []).append(spot)
        for uid in [uid for uid in self._wanted if uid in left]:
            some, home = places[self._of[uid]], self._world.home(uid).row
            at = next((at for at, spot in enumerate(some) if spot.row != home), None)
            if at is None:
                return dict(self._wanted)
            found[uid] = some.pop(at)
        return found

    def _next(self) -> Iterator[tuple[PodUid, Place]]:
        """Who may go where now, those first whose leaving does most."""
        for does in (OPENS, HELPS, NOTHING):
            for k in self._classes:
                leaving, places = self._leaving[k][does], self._open[k]
                if not places or not leaving:
                    continue
                for row, some in places.items():
                    for uid in leaving:
                        if self._world.home(uid).row != row:
                            yield uid, some[0]
                            break

    def _go(self, uid: PodUid, place: Place) -> list[int]:
        """The rows that it changes."""
        k, spot = place
        home, v = self._world.home(uid), self._vectors[k]
        self._places[spot.row].remove(place)
        del self._leaving[k][self._does.pop(uid)][uid]
        if not any(self._leaving[k]):
            del self._classes[k]
        self._at[home.row].remove(uid)
        self._charge(spot, v, -1)
        self._charge(home, v, 1)
        return [home.row, spot.row]

    def _charge(self, spot: Spot, v: Vector, sign: int) -> None:
        free, shares = self._free[spot.row]
        for c, a in v.items:
            free[c] += sign * a
        for d in spot.devices:
            shares[d.index] += sign * d.milli

    def _look(self, row: int) -> None:
        """Anew which places are free there, and what the leaving of those does who have not left."""
        for k in self._open_at.pop(row, ()):
            del self._open[k][row]
        shut: list[Place] = []
        for place in self._places.get(row, ()):
            if self._fits(place):
                self._open[place[0]].setdefault(row, []).append(place)
                self._open_at.setdefault(row, set()).add(place[0])
            else:
                shut.append(place)
        for uid in self._at.get(row, ()):
            k, does = self._of[uid], self._what(uid, shut)
            if (before := self._does.get(uid)) != does:
                if before is not None:
                    del self._leaving[k][before][uid]
                self._leaving[k][does][uid] = None
                self._does[uid] = does

    def _what(self, uid: PodUid, shut: list[Place]) -> int:
        home = self._world.home(uid)
        devices = {d.index for d in home.devices}
        some = [place for place in shut if not place[1].devices or any(d.index in devices for d in place[1].devices)]
        if not some:
            return NOTHING
        v = self._vectors[self._of[uid]]
        self._charge(home, v, 1)
        opens = any(self._fits(place) for place in some)
        self._charge(home, v, -1)
        return OPENS if opens else HELPS

    def _fits(self, place: Place) -> bool:
        k, spot = place
        free, shares = self._free[spot.row]
        return all(free[c] >= a for c, a in self._vectors[k].items) and all(shares[d.index] >= d.milli for d in spot.devices)


def _rows(world: World, wanted: Mapping[PodUid, Spot]) -> set[int]:
    return {spot.row for spot in wanted.values()} | {world.home(uid).row for uid in wanted}
