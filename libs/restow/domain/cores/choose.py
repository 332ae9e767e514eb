"""Which CPUs of a node a pod gets, as Koordinator's NodeNUMAResource goes about it: those of a hold first; from one NUMA
zone, else one socket, else as few zones as possible; whole physical cores, or one logical CPU of each. Ties by number."""

from collections.abc import Iterable, Set
from itertools import groupby

from restow.contracts.values import Cpu

FULL = "FullPCPUs"
SPREAD = "SpreadByPCPUs"
NOBODYS: frozenset[int] = frozenset()


class Topology:
    """The CPUs of one node. `core`, `zone` and `socket` by CPU; the number of a physical core counts in its socket only, so
    both make it. `per_core`: logical CPUs of a whole physical core; one of which the kubelet keeps a CPU is never whole."""

    __slots__ = ("core", "cpus", "full", "per_core", "siblings", "socket", "zone")

    def __init__(self, cpus: Iterable[Cpu]) -> None:
        by_id = {cpu.id: cpu for cpu in cpus}
        self.cpus = tuple(sorted(by_id))
        self.core = {id: (by_id[id].socket, by_id[id].core) for id in self.cpus}
        self.zone = {id: by_id[id].zone for id in self.cpus}
        self.socket = {id: by_id[id].socket for id in self.cpus}
        self.siblings: dict[tuple[int, int], list[int]] = {}
        for id in self.cpus:
            self.siblings.setdefault(self.core[id], []).append(id)
        self.per_core = max((len(ids) for ids in self.siblings.values()), default=1)
        self.full = tuple(frozenset(ids) for ids in self.siblings.values() if len(ids) == self.per_core)

    def whole(self, free: Set[int]) -> set[int]:
        """Those of physical cores that are wholly among the free ones."""
        return {id for ids in self.full if ids <= free for id in ids}

    def single(self, free: Set[int], preferred: Set[int] = NOBODYS) -> set[int]:
        """One of each physical core that has a free one: a preferred one, else the first."""
        return {
            min(there, key=lambda id: (id not in preferred, id))
            for ids in self.siblings.values()
            if (there := [id for id in ids if id in free])
        }

    def zones_of(self, chosen: Iterable[int]) -> set[int]:
        return {self.zone[id] for id in chosen}


class Wish:
    """What is asked for of a node. `blocked` are CPUs beside another pod that wants to be as alone: only where it cannot be
    helped. `emptiest`: where several zones do, the one with most free CPUs and not the one with fewest."""

    __slots__ = ("blocked", "count", "emptiest", "policy", "required")

    def __init__(
        self, count: int, policy: str = FULL, required: bool = False, blocked: Set[int] = NOBODYS, emptiest: bool = False
    ) -> None:
        self.count, self.policy, self.required = count, policy, required
        self.blocked, self.emptiest = blocked, emptiest


def choose(topology: Topology, free: Set[int], wish: Wish, preferred: Set[int] = NOBODYS) -> tuple[int, ...] | None:
    """CPUs out of the free ones, in order; of the preferred ones (which are free) as many as will do. None where there are
    too few that keep to a required policy."""
    usable = _usable(topology, free, wish, preferred)
    if len(usable) < wish.count:
        return None
    mine = usable & preferred
    if wish.required and wish.policy == FULL:
        # Halves of cores are of no use: what is preferred brings its core along.
        mine = {id for core in {topology.core[id] for id in mine} for id in topology.siblings[core]}
    chosen = _pick(topology, mine, min(wish.count, len(mine)), wish, set())
    chosen |= _pick(topology, usable - mine, wish.count - len(chosen), wish, topology.zones_of(chosen))
    return tuple(sorted(chosen))


def _usable(topology: Topology, free: Set[int], wish: Wish, preferred: Set[int]) -> set[int]:
    if not wish.required:
        return set(free)
    return topology.whole(free) if wish.policy == FULL else topology.single(free, preferred)


def _pick(topology: Topology, free: set[int], count: int, wish: Wish, near: set[int]) -> set[int]:
    """As many of the free ones, which suffice. Whole cores in several zones come before parts of cores in one, and one
    zone (those `near` first) before being alone in it."""
    if count <= 0:
        return set()
    whole = topology.whole(free) if wish.policy == FULL else set()
    among = whole if len(whole) >= count else free
    alone = among - wish.blocked
    parts = [alone, among] if wish.blocked else [among]
    for group in (topology.zone, topology.socket):
        for part in parts:
            fitting = [ids for _, ids in _grouped(part, group) if len(ids) >= count]
            if fitting:
                best = min(fitting, key=lambda ids: _turn(topology, ids, part, wish, near))
                return set(_in_order(topology, best, wish.policy)[:count])
    return _across(topology, alone if len(alone) >= count else among, count, wish)


def _grouped(cpus: Set[int], group: dict[int, int]) -> list[tuple[int, list[int]]]:
    """By zone or socket, in the order of their numbers."""
    ordered = sorted(cpus, key=lambda id: (group[id], id))
    return [(number, list(ids)) for number, ids in groupby(ordered, key=group.__getitem__)]


def _turn(topology: Topology, ids: list[int], part: Set[int], wish: Wish, near: set[int]) -> tuple[bool, int, int]:
    """Zones that serve the pod already first, then by what is free there and in their socket."""
    socket = topology.socket[ids[0]]
    beside = sum(topology.socket[id] == socket for id in part)
    sign = -1 if wish.emptiest else 1
    return topology.zone[ids[0]] not in near, sign * len(ids), sign * beside


def _across(topology: Topology, cpus: Set[int], count: int, wish: Wish) -> set[int]:
    """Out of as few zones as possible: the fullest ones whole, the rest from the one with least that suffices."""
    left = _grouped(cpus, topology.zone)
    chosen: set[int] = set()
    while (missing := count - len(chosen)) > 0:
        enough = [zone for zone in left if len(zone[1]) >= missing]
        best = min(enough, key=lambda zone: (len(zone[1]), zone[0])) if enough else min(left, key=lambda zone: (-len(zone[1]), zone[0]))
        chosen.update(_in_order(topology, best[1], wish.policy)[:missing])
        left.remove(best)
    return chosen


def _in_order(topology: Topology, cpus: list[int], policy: str) -> list[int]:
    """Core by core, or one CPU of each core, then the next of each; cores with most free CPUs first."""
    core = topology.core
    ordered = sorted(cpus, key=lambda id: (core[id], id))
    cores = sorted((list(ids) for _, ids in groupby(ordered, key=core.__getitem__)), key=len, reverse=True)
    if policy == FULL:
        return [id for ids in cores for id in ids]
    return [ids[i] for i in range(len(cores[0])) for ids in cores if i < len(ids)]
