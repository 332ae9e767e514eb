"""How many Reservations there are in each phase, and what is held and used through them. A scrape costs what has changed since the
last one, not what there is.
"""

from collections import Counter
from collections.abc import Callable

import msgspec

from restow.contracts.ids import ReservationUid
from restow.domain import resources as r
from restow.domain.other_schedulers import other_scheduler
from restow.domain.quantity import CPU
from restow.domain.records import ReservationPhase
from restow.domain.state import ClusterState
from restow.domain.statuses.reservation_status import in_use, unallocated
from restow.runtime.telemetry import Labelled

APIS = ("volcano", "koordinator")
UNITS = {CPU: 1000, r.GPU_MILLI: r.WHOLE}
"""Canonical units in one of what is told: CPUs and devices; everything else as it is."""


class _Share(msgspec.Struct, frozen=True):
    """What one Reservation adds."""

    api: str
    phase: str
    allocatable: Counter[str]
    allocated: Counter[str]


class Gauges:
    """Follows `state.reviewed`."""

    def __init__(self, state: Callable[[], ClusterState]) -> None:
        self._state = state
        self._at = -1
        self._shares: dict[ReservationUid, _Share] = {}
        self._phases: Counter[tuple[str, str]] = Counter()
        self._amounts: dict[str, Counter[str]] = {"allocatable": Counter(), "allocated": Counter()}

    def read(self) -> list[Labelled]:
        self._refresh(self._state())
        phases = [((api, str(phase)), float(self._phases[api, phase])) for api in APIS for phase in ReservationPhase]
        names = r.ordered(self._amounts["allocatable"])
        amounts = [
            ((r.title(name), kind), total[name] / UNITS.get(name, 1)) for name in names for kind, total in self._amounts.items()
        ]
        return [
            Labelled("reservations", "Reservations in each phase", ("api", "phase"), phases),
            Labelled("reservation_resource", "What Reservations hold or gave, and what pods use of it", ("resource", "kind"), amounts),
        ]

    def _refresh(self, state: ClusterState) -> None:
        changed = state.reviewed.since(self._at) if self._at >= 0 else None
        self._at = state.reviewed.position
        for uid in dict.fromkeys((*self._shares, *state.reservations) if changed is None else changed):
            self._count(self._shares.pop(uid, None), -1)
            share = _share(state, uid)
            if share is not None:
                self._shares[uid] = share
                self._count(share, 1)

    def _count(self, share: _Share | None, sign: int) -> None:
        if share is None:
            return
        self._phases[share.api, share.phase] += sign
        for kind, amounts in (("allocatable", share.allocatable), ("allocated", share.allocated)):
            for name, amount in amounts.items():
                self._amounts[kind][name] += sign * amount


def _share(state: ClusterState, uid: ReservationUid) -> _Share | None:
    record, since = state.reservations.get(uid), state.phases.get(uid)
    if record is None or since is None or other_scheduler(state, record):
        return None
    used = in_use(state, uid)
    return _Share(record.fact.api, str(since.phase), unallocated(state, uid) + used, used)
