"""Which volume an unbound claim gets on a node: one that is there and fits, or one that will be provisioned.

Claims of a class with WaitForFirstConsumer are bound when their pod is placed. What other placements have chosen and is no
fact yet is taken into account as if it were one.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from restow.contracts.events import ClaimObserved, VolumeObserved
from restow.contracts.values import ClaimChoice
from restow.domain.occupants import Who
from restow.domain.state import ClusterState
from restow.domain.volumes.nodes import Nodes
from restow.domain.volumes.occupants import Occupant, is_bound
from restow.domain.volumes.pool import Pool

NO_PROVISIONER = "kubernetes.io/no-provisioner"
WAIT = "WaitForFirstConsumer"
NOWHERE = -1
"""The row of a node that does not exist."""
UNKNOWN, FITS, FAILS = 0, 1, 2
KEPT = 256
"""Classes of competing claims that are remembered."""


class Binding:
    """The volumes that may be bound, and what is on the way."""

    def __init__(self, state: ClusterState, nodes: Nodes) -> None:
        self._state = state
        self._nodes = nodes
        self._assumed: dict[str, dict[Who, tuple[int, str]]] = {}
        """Claim → who has chosen for it: row, and volume or ""."""
        self._chosen: dict[str, dict[Who, None]] = {}
        self._pool = Pool(nodes)
        self._competed: dict[Hashable, tuple[np.ndarray, int]] = {}
        self._claimed: dict[str, dict[str, None]] = {}
        self._claim_of: dict[str, str] = {}
        self.now = state.time
        """ms since 1970: of the session that asks."""

    def rebuild(self) -> None:
        """The rows have other labels."""
        self._pool = Pool(self._nodes)
        self._competed.clear()
        self._claimed.clear()
        self._claim_of.clear()
        for name in self._state.volumes:
            self.observe(name)

    def observe(self, name: str) -> None:
        """The fact about this volume has changed, or who has chosen it."""
        volume = self._state.volumes.get(name)
        before, now = self._claim_of.pop(name, ""), volume.claim if volume is not None else ""
        if before and before != now:
            claimed = self._claimed[before]
            del claimed[name]
            if not claimed:
                del self._claimed[before]
        if now:
            self._claim_of[name] = now
            self._claimed.setdefault(now, {})[name] = None
        if volume is not None and not now and name not in self._chosen and volume.phase == "Available" and not volume.deleting:
            self._pool.put(volume)
        else:
            self._pool.take(name)

    def assume(self, key: Who, who: Occupant) -> None:
        """What a placement has chosen is as good as done."""
        for choice in who.choices:
            self._assumed.setdefault(choice.claim, {})[key] = (who.row, choice.volume)
            if choice.volume:
                self._chosen.setdefault(choice.volume, {})[key] = None
                self._pool.take(choice.volume)

    def forget(self, key: Who, who: Occupant) -> None:
        """The placement is no more, or is a fact."""
        for choice in who.choices:
            _drop(self._assumed, choice.claim, key)
            if choice.volume:
                _drop(self._chosen, choice.volume, key)
                self.observe(choice.volume)

    # -- questions ---------------------------------------------------------------------------------------------------

    def is_delayed(self, claim: ClaimObserved) -> bool:
        """Whether it is bound when a pod that uses it is placed. A claim that names its volume is the controller's."""
        storage = self._state.storage_classes.get(claim.storage_class) if claim.storage_class else None
        return storage is not None and storage.binding == WAIT and not claim.volume

    def out_of_reach(self, claims: Sequence[ClaimObserved]) -> np.ndarray:
        """`(nodes,) bool`: rows that the volume of a bound claim cannot be used on."""
        failing = np.zeros(len(self._nodes), bool)
        for claim in claims:
            if is_bound(claim):
                failing |= ~self._nodes.mask(self._state.volumes[claim.volume].affinity)
        return failing

    def without_volume(self, claims: Sequence[ClaimObserved], key: Who) -> np.ndarray:
        """`(nodes,) bool`: rows where an unbound claim can get no volume. `key` is the pod's own."""
        able = np.ones(len(self._nodes), bool)
        rivals: list[ClaimObserved] = []
        made = np.ones(len(self._nodes), bool)
        for claim in claims:
            if is_bound(claim):
                continue
            row, volume = self._selected(claim, key), self._reserved(claim, key)
            if row is not None:
                able &= self._only(row) & self._makes(claim)
            elif volume is not None:
                able &= self._nodes.mask(volume.affinity)
            else:
                makes = self._makes_anew(claim)
                able &= makes | self._pool.reach(claim)
                made &= makes
                rivals.append(claim)
        if len({(c.storage_class, c.block) for c in rivals}) < len(rivals):
            able &= made | self._compete(rivals, able & ~made)
        return ~able

    def _compete(self, claims: Sequence[ClaimObserved], rows: np.ndarray) -> np.ndarray:
        """`(nodes,) bool`: of these rows those where each of the claims really finds a volume of its own. Remembered for
        claims alike (the next pod of a StatefulSet), and looked at again where a volume has come or gone."""
        key = (self._pool.anywhere, *(self._key(claim) for claim in claims))
        known, seen = self._competed.get(key) or (np.zeros(len(self._nodes), np.int8), self._pool.changed.position)
        changed = self._pool.changed.since(seen)
        known[slice(None) if changed is None else list(changed)] = UNKNOWN
        for row in np.flatnonzero(rows & (known == UNKNOWN)).tolist():
            known[row] = FAILS if self._match(claims, row) is None else FITS
        if len(self._competed) >= KEPT:
            self._competed.clear()
        self._competed[key] = known, self._pool.changed.position
        return known == FITS

    def _key(self, claim: ClaimObserved) -> Hashable:
        """All that `_match` reads of a claim."""
        storage = self._state.storage_classes[claim.storage_class]
        key = claim.request, claim.storage_class, claim.block, claim.modes, storage.provisioner, storage.topologies
        return key, tuple(self._unserved(claim))

    def choose(self, claims: Sequence[ClaimObserved], row: int, key: Who) -> tuple[ClaimChoice, ...]:
        """Raises ValueError where a claim can get no volume on this row."""
        chosen: dict[str, str] = {}
        rivals = []
        for claim in claims:
            if is_bound(claim):
                continue
            selected, volume = self._selected(claim, key), self._reserved(claim, key)
            if selected is not None:
                if selected != row or not self._makes(claim)[row]:
                    raise ValueError(f"{_path(claim)} is to be provisioned for another node")
                chosen[_path(claim)] = ""
            elif volume is not None:
                if not self._nodes.mask(volume.affinity)[row]:
                    raise ValueError(f"{_path(claim)} gets {volume.name}, which this node cannot reach")
                chosen[_path(claim)] = volume.name
            else:
                rivals.append(claim)
        matched = self._match(rivals, row)
        if matched is None:
            raise ValueError(f"no volume for {', '.join(map(_path, rivals))} on this node")
        chosen |= matched
        return tuple(ClaimChoice(path, chosen[path]) for claim in claims if (path := _path(claim)) in chosen)

    def _match(self, claims: Sequence[ClaimObserved], row: int) -> dict[str, str] | None:
        """Smaller claims choose first, equal ones in the given order; None where one is left without."""
        found: dict[str, str] = {}
        taken: set[str] = set()
        for claim in sorted(claims, key=lambda c: c.request):
            name = self._pool.smallest(claim, row, taken)
            if not name and not self._makes_anew(claim)[row]:
                return None
            taken.add(name)
            found[_path(claim)] = name
        return found

    def _selected(self, claim: ClaimObserved, key: Who) -> int | None:
        """The row that a volume is provisioned for already, NOWHERE if its node is gone, None if there is no such row."""
        if claim.selected_node:
            return self._state.table.rows.get(claim.selected_node, NOWHERE)
        others = [(str(k), row) for k, (row, volume) in self._assumed.get(_path(claim), {}).items() if k != key and not volume]
        return min(others)[1] if others else None

    def _reserved(self, claim: ClaimObserved, key: Who) -> VolumeObserved | None:
        """The volume that this claim gets and no other: chosen by another pod with the same claim, or reserved by its
        claimRef (the smallest, ties by name)."""
        path, volumes = _path(claim), self._state.volumes
        others = [(str(k), volume) for k, (_, volume) in self._assumed.get(path, {}).items() if k != key and volume in volumes]
        if others:
            return volumes[min(others)[1]]
        fitting = [v for name in self._claimed.get(path, ()) if _may_have(claim, v := volumes[name])]
        return min(fitting, key=lambda v: (v.capacity, v.name), default=None)

    def _makes(self, claim: ClaimObserved) -> np.ndarray:
        """`(nodes,) bool`: rows that the claim's class provisions volumes for."""
        storage = self._state.storage_classes[claim.storage_class]
        if storage.provisioner in ("", NO_PROVISIONER):
            return np.zeros(len(self._nodes), bool)
        return self._nodes.mask(storage.topologies or None)

    def _makes_anew(self, claim: ClaimObserved) -> np.ndarray:
        """As `_makes`, but where it has failed for this claim of late."""
        makes = self._makes(claim)
        if unserved := self._unserved(claim):
            makes = makes.copy()
            makes[unserved] = False
        return makes

    def _unserved(self, claim: ClaimObserved) -> list[int]:
        rows, given_back = self._state.table.rows, self._state.unserved.get(_path(claim), {})
        return sorted(rows[node] for node, until in given_back.items() if until > self.now and node in rows)

    def _only(self, row: int) -> np.ndarray:
        found = np.zeros(len(self._nodes), bool)
        if row != NOWHERE:
            found[row] = True
        return found

    def image(self) -> tuple:
        """All that is kept, to compare with another index."""
        return self._assumed, self._chosen, self._claimed, self._claim_of, self._pool.image()


def _may_have(claim: ClaimObserved, volume: VolumeObserved) -> bool:
    """Whether a volume whose claimRef names this claim can be its volume. Access modes are not compared, as there."""
    return (
        volume.claim_uid in ("", claim.uid)
        and volume.storage_class == claim.storage_class
        and volume.block == claim.block
        and volume.capacity >= claim.request
        and not volume.deleting
    )


def _path(claim: ClaimObserved) -> str:
    return f"{claim.namespace}/{claim.name}"


def _drop(index: dict, key: str, member: Who) -> None:
    """Nothing happens where it is not: a log may say that two claims get one volume."""
    inner = index.get(key, {})
    inner.pop(member, None)
    if not inner:
        index.pop(key, None)
