"""Gangs that are moved as one: which of them, and where to, before anybody else is thought of.

All members of a gang hold their slots before one of them leaves, so each needs a place beside all that run, on a node that none of them leaves; near to each
other where that is asked. A gang is moved where that gains more than it costs, by itself or together with who else could leave the same nodes then: those are not moved here, the
search finds them again. What a gang leaves is no place for another gang, so that none waits for anybody.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.defragmentation.optimizing.choices import choices
from restow.domain.defragmentation.optimizing.search import Limits, Search, largest_first
from restow.domain.defragmentation.optimizing.world import Rows, World
from restow.domain.defragmentation.simulation import Spot
from restow.domain.groups import Group, group_of
from restow.domain.movable import starts_again
from restow.domain.session.jobs import Job
from restow.domain.state import ClusterState

PART = 10
"""One in so many steps is for gangs."""


class Gang(NamedTuple):
    group: Group
    pods: tuple[PodUid, ...]

    @property
    def name(self) -> str:
        return "/".join(self.group)


def able(state: ClusterState, evictable: Evictable) -> list[Gang]:
    """All that cannot go pod by pod and may go as one, by name."""
    found: dict[Group, Gang] = {}
    for uid in state.charges:
        pod = state.pods[uid].fact
        group = group_of(pod)
        if group is None or group in found or not starts_again(state, pod) or not evictable.verdict(uid):
            continue
        pods, why = evictable.as_one(uid)
        if pods and not why:
            found[group] = Gang(group, tuple(pods))
    return [found[group] for group in sorted(found)]


def as_gangs(rows: Rows, gangs: Sequence[Gang], verdict: str) -> None:
    """From now on these are moved as one, and no others; `verdict` is that of each of their pods alone."""
    for uid in rows.gangs:
        rows.verdicts.pop(uid, None)
    rows.gangs = {uid: gang.name for gang in gangs for uid in gang.pods}
    rows.verdicts.update(dict.fromkeys(rows.gangs, verdict))


def chosen(world: World, limits: Limits, gangs: Sequence[Gang]) -> dict[PodUid, Spot]:
    """Where the pods of those gangs go that are worth it. The world knows them as gangs, has nobody away, and is of no use afterwards."""
    search = Search(world, limits)
    ends: dict[PodUid, Spot] = {}
    left: set[int] = set()
    for gang in gangs:
        rows = {world.home(uid).row for uid in gang.pods}
        if search.spent or len(ends) + len(gang.pods) > limits.moves or not all(world.sources[row] for row in rows):
            continue
        for spots in _places(world, gang, rows | left):
            mark, before = world.mark(), search.net()
            for uid in gang.pods:
                world.lift(uid)
            for uid, spot in spots.items():
                world.land(uid, spot)
            landed = world.mark()
            if search.net() > before or _with_others(search, rows, before):
                # Whether others go, too, the search decides.
                world.undo(landed)
                ends |= spots
                left |= rows
                break
            world.undo(mark)
    return ends


def _with_others(search: Search, rows: set[int], least: int) -> bool:
    """Whether it is worth it once others have left the same nodes."""
    world = search.world
    for row in sorted(rows, key=lambda row: int(world.state.table.rank[row])):
        if any(search.attempt(row, pods, 0) for pods in choices(world, row, search.limits.whole)) and search.net() > least:
            return True
    return False


def _places(world: World, gang: Gang, banned: set[int]) -> Iterator[dict[PodUid, Spot]]:
    """For all of them beside all that run: block by block where they are to be near to each other."""
    session = world.session
    job = Job(gang.name, "", 0, 0, world.simulation.twin(gang.pods[0]).created)
    job.group, job.need = gang.group, len(gang.pods)
    chooser = session.extensions.blocks
    for within in chooser.choices(job, [world.twin(uid) for uid in gang.pods]) if chooser is not None else (None,):
        session.within = within
        spots = _beside(world, gang, banned)
        session.within = None
        if spots is not None:
            yield spots


def _beside(world: World, gang: Gang, banned: set[int]) -> dict[PodUid, Spot] | None:
    """Nothing has changed at the end."""
    spots: dict[PodUid, Spot] = {}
    for uid in largest_first(world, gang.pods):
        spot = world.placement.find(uid, banned)
        if spot is None:
            break
        world.session.nodes.take(spot.row, world.vector(uid), spot.devices)
        world.simulation.enter(uid, spot)
        spots[uid] = spot
    for uid, spot in reversed(spots.items()):
        world.simulation.leave(uid, spot.row)
        world.session.nodes.give(spot.row, world.vector(uid), spot.devices)
    return spots if len(spots) == len(gang.pods) else None
