"""Which CPUs of which node are somebody's: kept beside the state, and refreshed by what has changed."""

from collections.abc import Collection, Iterable
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid
from restow.contracts.values import CoreRequest
from restow.domain.cores.choose import FULL, SPREAD, Topology, Wish, choose
from restow.domain.occupancy import Occupancy
from restow.domain.occupants import Who, held_slot

NOT_WHOLE = "the requested CPUs must be integer"
NO_TOPOLOGY = "node(s) invalid CPU Topology"
CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_ALIGNED = "node(s) requested cpus not multiple cpus per core"
TOO_FEW = "not enough cpus available to satisfy request"
REASONS = (NOT_WHOLE, NO_TOPOLOGY, CONFLICT, NOT_ALIGNED, TOO_FEW)
"""Koordinator's texts, in the order in which its NodeNUMAResource asks."""

BIND_POLICY = "node.koordinator.sh/cpu-bind-policy"
ALLOCATE_STRATEGY = "node.koordinator.sh/numa-allocate-strategy"
_BOUND_BY_NODE = {"FullPCPUsOnly": FULL, "SpreadByPCPUs": SPREAD}
_POLICIES = ("", FULL, SPREAD)
_EMPTIEST = "LeastAllocated"
"""The strategy that is asked for by label alone: Restow packs zones as it packs devices, the fullest that suffices first."""
PER_CORE, PER_ZONE = "PCPULevel", "NUMANodeLevel"


KEPT = 256
"""Requests whose answers are kept."""


class Occupant(NamedTuple):
    """CPUs of a row that are somebody's; `exclusive` as in `CoreRequest`."""

    row: int
    cpus: tuple[int, ...]
    exclusive: str = ""


class Cores(Occupancy[Occupant]):
    """Follows the state like `Numa`; `add`, `remove`, `restore` and `close` say what a session does. A CPU may be several
    ones' at once: facts may say so, and a pod that has taken from a hold may be told beside the hold. It is free when it
    is nobody's. Arrays are `(nodes,)`."""

    # -- questions ---------------------------------------------------------------------------------------------------

    def filter(self, request: CoreRequest, own: PodUid | None = None) -> list[tuple[str, np.ndarray]]:
        """Reason and `(nodes,) bool` rows that fail by it; rules that no row fails by are left out. A row fails by one. What
        a nomination of `own` keeps does not count against it."""
        mine = self._at.get(own) if own is not None else None
        if mine is not None and own is not None:
            self._set(own, None)
        codes = self._codes(request)
        if mine is not None and own is not None:
            self._set(own, mine)
        return [(reason, rows) for code, reason in enumerate(REASONS, 1) if (rows := codes == code).any()]

    def _codes(self, request: CoreRequest) -> np.ndarray:
        """Per row 0, or the number of the reason in `REASONS`. Kept by request: only rows that have changed are looked at again."""
        self._settle()
        size = len(self._alive)
        codes, seen = self._known.get(request, (np.zeros(size, np.int64), -1))
        changed = self._changed.since(seen) if seen >= 0 else None
        if len(codes) < size:
            codes = np.concatenate([codes, np.zeros(size - len(codes), np.int64)])
        if changed is None:
            codes = self._coded(request, np.arange(size))
        elif changed:
            rows = np.array(sorted(set(changed)), np.int64)
            codes[rows] = self._coded(request, rows)
        if len(self._known) >= KEPT:
            self._known.clear()
        self._known[request] = codes, self._changed.position
        return codes

    def _coded(self, request: CoreRequest, rows: np.ndarray) -> np.ndarray:
        """The codes of these rows."""
        alive, labels, per_core = self._alive[rows], self._policy[rows], self._per_core[rows]
        if request.count <= 0:
            return np.where(alive, 1, 0)
        asked = _POLICIES.index(request.policy) if request.required else 0
        policy = np.where(labels > 0, labels, asked)
        free = np.choose(policy, (self._free[rows], self._whole[rows], self._single[rows]))
        return np.select(
            (
                ~alive,
                per_core == 0,
                (policy != asked) & (asked > 0),
                (policy == 1) & (request.count % np.maximum(per_core, 1) != 0),
                free < request.count,
            ),
            (0, 2, 3, 4, 5),
            0,
        )

    def choose(
        self, request: CoreRequest, row: int, preferred: Collection[int] = (), own: PodUid | None = None
    ) -> tuple[int, ...] | None:
        """CPUs on this row; None where they cannot be had. `preferred` are a hold's, and count as free unless another pod has
        them; what a nomination of `own` keeps is preferred, too."""
        topology = self._topologies.get(row)
        if topology is None or request.count <= 0:
            return None
        label = int(self._policy[row]) if row < len(self._policy) else 0
        asked = _POLICIES.index(request.policy)
        if label and request.required and label != asked:
            return None
        required = bool(label) or (request.required and asked > 0)
        policy = _POLICIES[label or asked] or FULL
        if required and policy == FULL and request.count % topology.per_core:
            return None
        mine = self._at.get(own) if own is not None else None
        first = set(preferred).union(mine.cpus if mine is not None and mine.row == row else ())
        first = {id for id in first if id in topology.core and not self._some_pods(row, id, own)}
        taken = self._taken.get(row, {})
        free = first.union(id for id in topology.cpus if id not in taken)
        wish = Wish(request.count, policy, required, self._blocked(row, topology, request.exclusive, own), row in self._emptiest)
        return choose(topology, free, wish, first)

    def _some_pods(self, row: int, cpu: int, own: PodUid | None) -> bool:
        """Whether a pod other than this one has the CPU. (A slot that this very session holds is known as a pod that there is
        not.)"""
        pods = self._state.pods
        return any(who in pods and who != own and cpu in occupant.cpus for who, occupant in self._on.get(row, {}).items())

    def _blocked(self, row: int, topology: Topology, exclusive: str, own: PodUid | None) -> set[int]:
        """CPUs of cores, or zones, where somebody is who wants to be as alone."""
        if exclusive not in (PER_CORE, PER_ZONE):
            return set()
        place: dict[int, object] = dict(topology.core) if exclusive == PER_CORE else dict(topology.zone)
        occupants = self._on.get(row, {})
        others = {
            place[id]
            for who, occupant in occupants.items()
            if occupant.exclusive == exclusive and who != own
            for id in occupant.cpus
            if id in place
        }
        return {id for id, at in place.items() if at in others}

    def free(self, row: int) -> tuple[int, ...]:
        """CPUs of the row that are nobody's, in order; () where its topology is not known."""
        topology, taken = self._topologies.get(row), self._taken.get(row, {})
        return tuple(id for id in topology.cpus if id not in taken) if topology is not None else ()

    # -- occupants ---------------------------------------------------------------------------------------------------

    def add(self, who: Who, row: int, cpus: tuple[int, ...], exclusive: str = "") -> None:
        """These are its, as far as this session goes."""
        self._tentative[who] = None
        self._set(who, Occupant(row, cpus, exclusive) if cpus else None)

    def remove(self, who: Who) -> None:
        """What `add` has given is nobody's again; what the state says of it is."""
        if who in self._tentative:
            del self._tentative[who]
            self._set(who, self._occupant(who))

    def vacate(self, who: Who) -> None:
        """An occupant does not count any more, until it was restored as often. A slot that this very session holds is known
        as the pod that it is."""
        who = self._known_as(who)
        there, often = self._vacated.get(who) or (self._at.get(who), 0)
        if there is not None:
            self._vacated[who] = there, often + 1
            self._set(who, None)

    def restore(self, who: Who) -> None:
        """It counts again."""
        who = self._known_as(who)
        there, often = self._vacated.pop(who, (None, 0))
        if there is not None and often > 1:
            self._vacated[who] = there, often - 1
        elif there is not None:
            self._set(who, there)

    def _known_as(self, who: Who) -> Who:
        if isinstance(who, tuple) and who not in self._at and who not in self._vacated:
            return PodUid(f"{who[0]}/{who[1]}")
        return who

    def close(self) -> None:
        super().close()
        for who in self._vacated:
            self._set(who, self._occupant(who))
        self._vacated.clear()

    def _set(self, who: Who, new: Occupant | None) -> None:
        old = self._at.get(who)
        if old == new:
            return
        super()._set(who, new)
        if old is not None:
            taken = self._taken[old.row]
            for id in old.cpus:
                taken[id] -= 1
                if not taken[id]:
                    del taken[id]
        if new is not None:
            taken = self._taken.setdefault(new.row, {})
            for id in new.cpus:
                taken[id] = taken.get(id, 0) + 1

    def _occupant(self, who: Who) -> Occupant | None:
        """What is charged with CPUs of its own, or kept for a pod that is nominated."""
        state = self._state
        if isinstance(who, tuple):
            slot = held_slot(state, who)
            if slot is None:
                return None
            node, shape, cpus = slot.node, slot.shape, slot.capacity.cores
        elif (charge := state.charges.get(who)) is not None:
            node, shape, cpus = charge.node, charge.shape, charge.cores
        elif (nomination := state.nominations.get(who)) is not None:
            node, shape, cpus = nomination.node, state.pods[who].fact.shape, nomination.capacity.cores
        else:
            return None
        row = state.table.rows.get(node)
        if row is None or not cpus:
            return None
        wanted = state.shapes[shape].cores
        return Occupant(row, cpus, wanted.exclusive if wanted is not None else "")

    # -- keeping up ----------------------------------------------------------------------------------------------------

    def _empty(self) -> None:
        self._taken: dict[int, dict[int, int]] = {}
        self._vacated: dict[Who, tuple[Occupant, int]] = {}
        self._nominated: dict[PodUid, None] = {}
        self._said: dict[int, tuple] = {}
        self._topologies: dict[int, Topology] = {}
        self._emptiest: set[int] = set()
        self._known: dict[CoreRequest, tuple[np.ndarray, int]] = {}
        self._alive = np.zeros(0, bool)
        self._policy, self._per_core, self._free, self._whole, self._single = (np.zeros(0, np.int64) for _ in range(5))

    def _occupy(self, who: Iterable[Who]) -> None:
        """Nominations are few, and are gone through each time."""
        nominations = self._state.nominations
        super()._occupy((*who, *self._nominated, *nominations))
        self._nominated = dict.fromkeys(nominations)

    def _observe(self, rows: Iterable[int]) -> None:
        """The nodes of these rows, or what is said of their CPUs, may be other ones. A NodeResourceTopology says it first."""
        state = self._state
        self._widen()
        for row in rows:
            node = state.nodes.get(state.table.names[row])
            if self._alive[row] != (node is not None):
                self._alive[row] = node is not None
                self._stale.add(row)
            numa = state.numa.get(node.name) if node is not None else None
            cpus = (numa.cpus if numa is not None else ()) or (node.cpus if node is not None else ())
            labels = node.labels if node is not None else {}
            said = cpus, labels.get(BIND_POLICY, ""), labels.get(ALLOCATE_STRATEGY, "")
            if self._said.get(row) == said:
                continue
            self._said[row] = said
            self._topologies.pop(row, None)
            if cpus:
                self._topologies[row] = Topology(cpus)
            self._policy[row] = _POLICIES.index(_BOUND_BY_NODE.get(said[1], ""))
            (self._emptiest.add if said[2] == _EMPTIEST else self._emptiest.discard)(row)
            self._stale.add(row)

    def _widen(self) -> None:
        more = len(self._state.table.names) - len(self._alive)
        if more <= 0:
            return
        self._alive = np.concatenate([self._alive, np.zeros(more, bool)])
        for name in ("_policy", "_per_core", "_free", "_whole", "_single"):
            setattr(self, name, np.concatenate([getattr(self, name), np.zeros(more, np.int64)]))

    def _settle(self) -> None:
        """Rows whose CPUs or occupants have changed are counted again."""
        for row in self._stale:
            topology = self._topologies.get(row)
            free = set(self.free(row))
            self._per_core[row] = topology.per_core if topology is not None else 0
            self._free[row] = len(free)
            self._whole[row] = len(topology.whole(free)) if topology is not None else 0
            self._single[row] = len({topology.core[id] for id in free}) if topology is not None else 0
        self._settled()

    def image(self) -> tuple:
        """All that is worked out, to compare with another index."""
        self._settle()
        arrays = (self._alive, self._policy, self._per_core, self._free, self._whole, self._single)
        return dict(self._at), {row: t.cpus for row, t in self._topologies.items()}, *(a.tolist() for a in arrays)


class EmptyCores(Cores):
    """As if no CPU were anybody's: which nodes will never do (seed 002: whether a node suffices one day)."""

    def _occupant(self, who: Who) -> Occupant | None:
        return None
