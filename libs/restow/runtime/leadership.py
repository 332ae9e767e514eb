"""Who leads a family. A Kubernetes Lease avoids wasted work; the log decides (DESIGN 2).

standby → claiming (the lease is ours; `Lead` is the next commit) → leading (our epoch is folded) → deposed.
"""

import asyncio
from collections.abc import Callable
from enum import StrEnum

from restow import machine
from restow.contracts.ids import Family
from restow.domain.state import ClusterState
from restow.domain.too_old import too_old
from restow.runtime.signals import within

FOREIGN = (
    ", and has the Lease as far as it knows: the services of another cluster, or namespace, write to the same log; allowed: for each a RESTOW_CLUSTER of its own"
    " (the value `cluster` of the chart), or a broker of its own"
)


class Deposed(RuntimeError):
    """Another process leads this family, or must: this one is too old for the log. Stop deciding and acting, and exit; a supervisor starts a standby."""


class Phase(StrEnum):
    STANDBY = "standby"
    CLAIMING = "claiming"
    LEADING = "leading"
    DEPOSED = "deposed"


class Leadership:
    """`holder` is unique to this process: it goes into the log."""

    def __init__(self, family: Family, holder: str) -> None:
        self.family, self.holder = family, holder
        self.phase = Phase.STANDBY
        self.epoch = 0
        self.changed: list[Callable[[], None]] = []
        self.holds_lease: Callable[[], bool] = lambda: False
        """Whether this process has the Lease for sure, so that whoever leads beside it does not go by that."""

    @property
    def leading(self) -> bool:
        return self.phase is Phase.LEADING

    def comes(self, *, alone: bool) -> bool:
        """Whether this process is about to lead. `alone`: there is no lease that another one could have."""
        return self.phase is Phase.CLAIMING or (alone and self.phase is Phase.STANDBY)

    async def within(self, seconds: float, *, alone: bool) -> bool:
        """Whether this process leads; one that is about to is waited for."""
        while self.comes(alone=alone):
            changed = asyncio.Event()
            self.changed.append(changed.set)
            began = machine.steady()
            try:
                if not await within(changed, seconds):
                    break
            finally:
                self.changed.remove(changed.set)
            seconds -= machine.steady() - began
        return self.leading

    def claim(self) -> None:
        """The lease is ours."""
        if self.phase is Phase.STANDBY:
            self._become(Phase.CLAIMING)

    def won(self, epoch: int) -> None:
        """Our `Lead` is folded."""
        self.epoch = epoch
        self._become(Phase.LEADING)

    def check(self, state: ClusterState) -> None:
        """After every fold. Raises Deposed where a higher epoch than ours was folded, or what this release does not understand."""
        if self.phase in (Phase.CLAIMING, Phase.LEADING) and (why := too_old(state)):
            self.depose(why)
        leader = state.leaders[self.family]
        if self.phase is Phase.LEADING and leader.epoch > self.epoch:
            self.depose(f"{leader.holder} leads {self.family} since epoch {leader.epoch}; this process led epoch {self.epoch}{FOREIGN * self.holds_lease()}")

    def depose(self, why: str) -> None:
        """Raises Deposed."""
        self._become(Phase.DEPOSED)
        raise Deposed(why)

    def _become(self, phase: Phase) -> None:
        self.phase = phase
        for call in self.changed:
            call()
