"""Which claims are in use on which rows, and what that comes to in CSI volumes. The facts about a claim may change while
it is in use: what it counted as is remembered, so that exactly that is taken back."""

import msgspec
import numpy as np

from restow.domain.occupants import Who
from restow.domain.state import ClusterState
from restow.domain.volumes.attached import Attached, Volume


class Counted(msgspec.Struct, frozen=True):
    """What a claim counts as (None: nothing), and the names of the volume and the class that say so."""

    volume: Volume | None = None
    name: str = ""
    storage_class: str = ""


class Usage:
    """Claims are `namespace/name`."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._attached = Attached()
        self._users: dict[str, dict[Who, int]] = {}
        self._counted: dict[str, Counted] = {}
        self._naming: dict[str, dict[str, None]] = {}

    def users(self, claim: str) -> dict[Who, int]:
        """Who uses it, and on which row."""
        return self._users.get(claim, {})

    def enter(self, claim: str, key: Who, row: int) -> None:
        users = self._users.get(claim)
        if users is None:
            users = self._users[claim] = {}
            self._count(claim)
        users[key] = row
        self._change(self._counted[claim], row, 1)

    def leave(self, claim: str, key: Who) -> None:
        users = self._users[claim]
        counted = self._counted[claim]
        self._change(counted, users.pop(key), -1)
        if not users:
            del self._users[claim]
            del self._counted[claim]
            self._forget(claim, counted)

    def observe(self, kind: str, name: str) -> None:
        """A fact about a claim, a volume or a class has changed."""
        if kind == "claims":
            self._recount([name])
        elif kind == "volumes":
            self._recount(list(self._naming.get(name, ())))
        elif kind == "storage_classes":
            self._recount([claim for claim, c in self._counted.items() if c.storage_class == name])

    def _recount(self, claims: list[str]) -> None:
        for claim in claims:
            old = self._counted.get(claim)
            if old is None:
                continue
            self._forget(claim, old)
            self._count(claim)
            new = self._counted[claim]
            if new.volume != old.volume:
                for row in self._users[claim].values():
                    self._change(old, row, -1)
                    self._change(new, row, 1)

    def _count(self, claim: str) -> None:
        counted = self._counted[claim] = self.resolve(claim)
        if counted.name:
            self._naming.setdefault(counted.name, {})[claim] = None

    def _forget(self, claim: str, counted: Counted) -> None:
        if counted.name:
            naming = self._naming[counted.name]
            del naming[claim]
            if not naming:
                del self._naming[counted.name]

    def _change(self, counted: Counted, row: int, sign: int) -> None:
        if counted.volume is not None:
            self._attached.change(counted.volume, row, sign)

    def resolve(self, claim: str) -> Counted:
        """Its volume, or the one that its class will have provisioned (kube-scheduler, `nodevolumelimits`)."""
        state = self._state
        fact = state.claims.get(claim)
        if fact is None:
            return Counted()
        volume = state.volumes.get(fact.volume) if fact.volume else None
        if volume is not None:
            csi = (volume.driver, volume.handle) if volume.driver and volume.handle else None
            return Counted(csi, fact.volume, fact.storage_class)
        storage = state.storage_classes.get(fact.storage_class)
        new = (storage.provisioner, f"claim:{claim}") if storage is not None and storage.provisioner else None
        return Counted(new, fact.volume, fact.storage_class)

    # -- limits --------------------------------------------------------------------------------------------------------

    def grow(self, size: int) -> None:
        self._attached.grow(size)

    def limit(self, row: int) -> None:
        """The node of this row is another one, or its limits are."""
        self._attached.limit(self._state, row, self._state.table.names[row])

    def beyond(self, claims: tuple[str, ...]) -> np.ndarray:
        """`(nodes,) bool`: rows where these claims would bring more volumes than a driver's limit."""
        return self._attached.beyond({v for claim in claims if (v := self.resolve(claim).volume) is not None})

    def image(self) -> tuple:
        """All that is kept, to compare with another index."""
        return self._users, self._counted, self._naming, self._attached.image()
