"""Better plans from a good one: take a part of it back, try again in another order, keep what is better.

Large-neighbourhood search, with a generator of its own: the same state gives the same plan. It ends with its
part of the steps of search, or when many tries in a row were of no use.
"""

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.choices import choices
from restow.domain.defragmentation.optimizing.search import Chance, Search
from restow.domain.defragmentation.optimizing.world import World
from restow.domain.defragmentation.simulation import Spot

FUTILE, FEW, EACH = 40, 2_000, 20
"""It ends after so many tries in a row without any use, and `FEW // nodes` more: small clusters are searched through. With few pods there is less to be
tried: no more than `EACH` for each pod that may move."""
CHAINS = 1
"""How deep chains of pods that push each other may be: shallow ones are cheap, and many tries find more than long chains."""
MOST_BACK = 4
"""Pods whose nodes' moves are taken back in one go."""
POOL = 12
"""Rows that are tried anew in one go."""


def improve(search: Search, rows: list[int]) -> None:
    """`rows` are those that pods may leave, in an order that is not that of the table: which row a node has decides nothing."""
    chance, futile, tries = Chance(), 0, 0
    prune(search)
    search.chance = chance
    first, net = dict(search.world.away), search.net()
    patience = FUTILE + min(FEW // max(len(rows), 1), EACH * sum(len(search.world.pods(row)) for row in rows))
    most = search.world.steps + search.limits.improving
    while not search.spent and search.world.steps < most and futile < patience and rows:
        tries += 1
        futile = 0 if _again(search, rows, chance, tries) else futile + 1
    prune(search)
    if search.net() <= net:
        # None that is only as good is put in its place.
        take_up(search.world, first)


def take_up(world: World, away: dict[PodUid, Spot]) -> None:
    """Another plan in the place of the one that is there."""
    world.send_home(list(world.away))
    for uid in away:
        world.lift(uid)
    for uid, spot in away.items():
        world.land(uid, spot)
    world.settle()


def take_if_better(search: Search, away: dict[PodUid, Spot]) -> None:
    """The plan in which these are there, without whoever had better stay at home, if it gains more than the one that there is."""
    first, net = dict(search.world.away), search.net()
    take_up(search.world, away)
    prune(search)
    if search.net() <= net:
        # None that is only as good is put in its place.
        take_up(search.world, first)


def _again(search: Search, rows: list[int], chance: Chance, tries: int) -> bool:
    """One try; whether it was of use. Nothing is worse than before."""
    world = search.world
    world.settle()
    mark, before = world.mark(), search.net()
    away = sorted(world.away)
    if away:
        left = dict.fromkeys(world.home(uid).row for uid in _sampled(chance, away, 1 + tries % MOST_BACK))
        if not world.send_home([uid for uid in away if world.home(uid).row in left]):
            world.undo(mark)
            return False
        pool = [*left, *chance.sample(rows, POOL)]
    else:
        pool = chance.sample(rows, POOL)
    for row in chance.sample(list(dict.fromkeys(pool)), len(pool)):
        _fill(search, row, chance)
        if search.spent:
            break
    after = search.net()
    if after < before or len(world.away) > search.limits.moves:
        world.undo(mark)
    # As good, but other: from there something better may be near.
    return after > before


def _sampled(chance: Chance, uids: list[PodUid], count: int) -> list[PodUid]:
    return [uids[i] for i in chance.sample(list(range(len(uids))), count)]


def _fill(search: Search, row: int, chance: Chance) -> None:
    """As often as it is worth it; now and then not the easiest set first."""
    world, again = search.world, True
    while again and not search.spent:
        found = choices(world, row, search.limits.whole, 4)
        if len(found) > 1 and not chance.number(3):
            at = chance.number(len(found))
            found = [found[at], *found[:at], *found[at + 1 :]]
        again = False
        for pods in found:
            if search.weighed(row, pods)[0] <= 0:
                continue
            if search.attempt(row, pods, CHAINS):
                again = True
                break


def prune(search: Search) -> None:
    """Who can stay at home without any loss does; first all who left one row, then one by one (but with
    whole nodes), then each gang that is moved as one, as the net gain says."""
    world = search.world
    homes: dict[int, list[PodUid]] = {}
    gangs: dict[str, list[PodUid]] = {}
    for uid in sorted(world.away):
        if uid in world.gangs:
            gangs.setdefault(world.gangs[uid], []).append(uid)
        else:
            homes.setdefault(world.home(uid).row, []).append(uid)
    rank = world.state.table.rank
    groups = [homes[row] for row in sorted(homes, key=lambda row: int(rank[row]))]
    if not search.limits.whole:
        groups += [[uid] for group in groups for uid in group]
    groups += [gangs[name] for name in sorted(gangs)]
    for group in groups:
        group = [uid for uid in group if uid in world.away]
        if not group:
            continue
        if not search.gains_by_return(group):
            continue
        mark, before = world.mark(), search.net()
        if not world.send_home(group) or search.net() <= before:
            world.undo(mark)
    world.settle()
