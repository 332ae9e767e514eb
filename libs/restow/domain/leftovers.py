"""What is left of moves beside another scheduler in the API, and belongs to no move: what may be removed.

What a living session owes it deletes itself. This is about what nobody owes any more: a process died between an effect and its report, `beside` was taken
out of the policy, or a log was lost and another one began. Objects of another log may be a living installation's, which cannot be asked. So
of these only what has ended by its own word goes: each placeholder says how long it may live, each entry of a Landing until when it counts. An entry for
longer than any installation makes one (`gated.LONGEST`) is no word of a living one.
A class, or a Landing without entries, is made again by whoever needs it.
"""

from collections.abc import Iterable
from typing import Literal

import msgspec

from restow.contracts.ids import Millis, PodUid, ReservationUid
from restow.domain import nomination_checks
from restow.domain.gated import LONGEST
from restow.domain.migration import gating
from restow.domain.state import ClusterState

GRACE = 600_000
"""Milliseconds for which whoever made it has its own turn."""
LONG = 86_400_000
"""Milliseconds after which what does not say when it ends is nobody's."""


PODS = "pods"
"""The collection in `state.synced`."""


class Leftover(msgspec.Struct, frozen=True):
    """An object with a log's label. `until` (ms): of a pod, when its kubelet ends it, 0 where it does not say. `canary`: one of the two of the
    start-up check. `class_name`: of a pod's priority. `reservation`: of a placeholder that no move has, the uid of its Reservation. `entries`: of a Landing, controller's uid → until; `owners`: Reservation's uid → until."""

    kind: Literal["Pod", "PriorityClass", "Landing"]
    name: str
    uid: str
    log: str
    created: Millis
    namespace: str = ""
    until: Millis = Millis(0)
    canary: bool = False
    class_name: str = ""
    reservation: str = ""
    entries: dict[str, Millis] = {}
    owners: dict[str, Millis] = {}
    version: str = ""


class Remove(msgspec.Struct, frozen=True):
    """The object goes; of a Landing these entries only, where some are named."""

    what: Leftover
    entries: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


def removable(state: ClusterState, found: Iterable[Leftover], now: Millis) -> list[Remove]:
    """The state has folded whatever was decided before these were listed. `now`: by the API server's clock, as all times of these are."""
    there = list(found)
    used = {one.class_name for one in there if one.kind == "Pod"}
    removed = []
    for one in there:
        own = one.log == state.log
        if one.kind == "Landing":
            removed += _of_landing(state, one, own, now)
        elif one.kind == "PriorityClass":
            idle = one.name not in used and one.created + (GRACE if own else LONG) <= now
            removed += [Remove(one)] if idle and not (own and nomination_checks.schedulers(state)) else []
        elif now >= (_ends(state, one) if not own else _nobodys(state, one)):
            removed.append(Remove(one))
    return removed


def _ends(state: ClusterState, pod: Leftover) -> Millis:
    """When a pod of another log is of use to nobody. All installations read the same Reservations, so that a placeholder whose Reservation is gone is nobody's, however long
    it may live."""
    if pod.canary:
        return Millis(pod.created + 6 * GRACE)
    if pod.reservation and not _is_there(state, pod.reservation):
        return Millis(pod.created + GRACE)
    return Millis((pod.until or pod.created + LONG) + GRACE)


def _is_there(state: ClusterState, reservation: str) -> bool:
    """As far as it is known: pods are listed when everything has been."""
    known = state.reservations.get(ReservationUid(reservation))
    return PODS not in state.synced or (known is not None and not known.gone)


def _nobodys(state: ClusterState, pod: Leftover) -> Millis:
    """When a pod of this log is of no use: one that is a slot's, or a guard, the session removes."""
    known = PodUid(pod.uid) in state.placeholders
    return Millis(1 << 62) if known else Millis(pod.created + GRACE)


def _of_landing(state: ClusterState, landing: Leftover, own: bool, now: Millis) -> list[Remove]:
    if not own:
        endless, forever = ({uid: None for uid, until in listed.items() if until > now + LONGEST} for listed in (landing.entries, landing.owners))
        if endless or forever:
            return [Remove(landing, tuple(endless), tuple(forever))]
        last = max((*landing.entries.values(), *landing.owners.values()), default=landing.created)
        return [Remove(landing)] if last + LONG <= now else []
    if not landing.entries and not landing.owners:
        return [] if nomination_checks.schedulers(state) else [Remove(landing)]
    needed = {known.controller for known in state.landings.values()}
    idle = tuple(uid for uid in landing.entries if uid not in needed and not gating.is_needed(state, uid))
    nobodys = tuple(uid for uid in landing.owners if uid not in state.owner_gates and not gating.is_named(state, uid))
    return [Remove(landing, idle, nobodys)] if idle or nobodys else []
