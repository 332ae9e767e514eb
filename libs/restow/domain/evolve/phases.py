"""The life of a Reservation: its phase follows from its record and its slots (RULES 000-1, G-1), and what may follow what.

Phases are worked out at the end of each event, so every transition has that event as its cause. `TRANSITIONS` lists them all;
tests fold random histories and find no other. Failed and Succeeded are final, with three exceptions, all of them in the table:

* an update: a refused one fails it whatever it was, and the next one that is accepted begins another round; so does one that
  asks for more slots than were used, or anew for those that were lost;
* a hand-over that never became a fact: the owner was never bound to the hold's node (DESIGN 5: facts beat intents);
* the migration whose successor a kubelet rejected: its hold is asked for once more (DESIGN 5).
"""

from restow.contracts import events as e
from restow.contracts.ids import ReservationUid
from restow.domain.records import PhaseSince, Reservation, SlotPhase, Tally
from restow.domain.records import ReservationPhase as P
from restow.domain.reservation.allocate_once import is_shared
from restow.domain.state import ClusterState
from restow.domain.verdicts import BESIDE, PLACEHOLDER, explained

Said = tuple[P, str, str]
"""Phase, reason (one CamelCase word) and message (a sentence)."""

HELD, PARTLY, FULLY = "Held", "PartlyAllocated", "FullyAllocated"
"""Reasons of Available: no pod uses it, or some do, of a hold that serves many."""
ENDING = "Ending"
"""Why it is not over yet although its time is: the session has not released what it holds. What it answers decides."""
EXPIRED, HOLD_LOST = "Expired", "HoldLost"
LOST = ("NodeLost", EXPIRED)
"""Why slots are lost with which the Reservation expires (RULES G-1)."""

_CAPACITY = (
    e.NodeObserved, e.PodObserved, e.PodChanged, e.PodGone, e.PodPlaced, e.PodReleased, e.HoldPlaced, e.HoldBorrowed, e.HoldResized,
    e.HandedOver, e.DeviceObserved, e.DeviceGone,
)  # fmt: skip
"""What may take of a hold's capacity, ask for more of it than there is, or give back more than is free by now."""
_UNBOUND = (e.PodReleased, e.PodObserved, e.PodChanged, e.PodGone)
"""An owner was never bound where its hold is."""
_REJECTED = (e.PodObserved, e.PodChanged)
"""A kubelet rejects the successor of a migration."""
_ENDED = (e.Expired, e.Collected, e.ReservationObserved, e.ReservationGone)
_GIVEN_UP = (e.MigrationFailed, e.NotRecreated)
_LATE = (e.HandedOver,)
"""An owner was ahead of the end, or of the loss: the session decided before it saw that."""
_LOST, _ASKED, _REFUSED = (e.HoldReleased,), (e.ReservationAccepted,), (e.ReservationRefused,)

TRANSITIONS: dict[tuple[P, P], tuple[type[e.Event], ...]] = {
    (P.PENDING, P.AVAILABLE): (e.HoldPlaced, *_ASKED),
    (P.PENDING, P.WAITING): (e.HoldPlaced, *_LOST, *_UNBOUND, *_ASKED),
    (P.PENDING, P.SUCCEEDED): (*_LATE, *_ASKED),
    (P.PENDING, P.FAILED): (*_REFUSED, *_ENDED, *_LOST, *_LATE, *_GIVEN_UP),
    (P.AVAILABLE, P.PENDING): (*_LOST, *_ASKED),
    (P.AVAILABLE, P.WAITING): (*_CAPACITY, *_LOST, *_ASKED),
    (P.AVAILABLE, P.SUCCEEDED): (e.HandedOver, *_LOST, *_ASKED),
    (P.AVAILABLE, P.FAILED): (*_REFUSED, *_ENDED, *_LOST, *_LATE),
    (P.WAITING, P.PENDING): (*_LOST, *_LATE, *_ASKED),
    (P.WAITING, P.AVAILABLE): (e.HoldReady, e.HoldPlaced, *_LOST, *_ASKED),
    (P.WAITING, P.SUCCEEDED): (*_LATE, *_LOST, *_ASKED),
    (P.WAITING, P.FAILED): (*_REFUSED, *_LOST, *_LATE),
    (P.SUCCEEDED, P.PENDING): (*_ASKED, *_REJECTED),
    (P.SUCCEEDED, P.AVAILABLE): _ASKED,
    (P.SUCCEEDED, P.WAITING): (*_UNBOUND, *_ASKED),
    (P.SUCCEEDED, P.FAILED): (*_REFUSED, *_UNBOUND),
    (P.FAILED, P.PENDING): _ASKED,
    (P.FAILED, P.AVAILABLE): _ASKED,
    (P.FAILED, P.WAITING): _ASKED,
    (P.FAILED, P.SUCCEEDED): _ASKED,
}
"""Every transition that there is, and the events that can cause it."""


def phase_of(state: ClusterState, record: Reservation, before: PhaseSince | None = None, anew: bool = False) -> Said:
    """What the Reservation is now. `before` is what it was; `anew` where a generation was just accepted: then what is not
    held yet is no loss."""
    tally = state.tally_of(record.fact.reservation)
    was = before.phase if before is not None else P.PENDING
    if record.rejected:
        return P.FAILED, record.reason, record.message
    if tally.total and tally.used == tally.total:
        return P.SUCCEEDED, "AllHandedOver", _all_handed_over(tally.used)
    if record.over:
        return _over(state, record, tally, before)
    if not record.accepted:
        return P.PENDING, "", ""
    held, used, needed = tally.held, tally.used, record.min_available
    if held + used >= needed and (held or tally.pending):
        return P.AVAILABLE, *_taken(state, record, tally)
    if tally.waiting and held + used + tally.waiting >= needed:
        return P.WAITING, *_waits(state, record, tally)
    if (held or tally.waiting) and (tally.failed or (not anew and was in (P.AVAILABLE, P.WAITING))):
        return P.WAITING, HOLD_LOST, f"{held} of {needed} needed slots {_be(held)} held{_and_why(state, record)}"
    if tally.failed and not held and not tally.waiting:
        if not used:
            return P.FAILED, *_lost(state, record)
        if not tally.pending:
            return P.SUCCEEDED, "HandedOver", _handed_over(used)
    return P.PENDING, *_why(state, record)


def _over(state: ClusterState, record: Reservation, tally: Tally, before: PhaseSince | None) -> Said:
    """It has ended for good, and was not handed over as a whole. Until the session has released what it holds it is what it
    was: an owner may be ahead of the end (DESIGN 1)."""
    was = before.phase if before is not None else P.PENDING
    if before is not None and was is P.FAILED:
        return was, before.reason, before.message
    if tally.held or tally.waiting:
        if before is not None and was is P.SUCCEEDED:
            return was, before.reason, before.message
        return was, ENDING, f"{_END[record.end]}; what is held is being released"
    if tally.used and was is P.SUCCEEDED:
        return was, "HandedOver", _handed_over(tally.used)
    far = _how_far(state, record, tally)
    return P.FAILED, record.end, f"{_EXPIRED}: {_END[EXPIRED]}{far}" if record.end == EXPIRED else _END[record.end] + far


_EXPIRED = "Reservation expired and was cleaned up by the scheduler"
"""As seed 000's `GcExpiredReservation` says it (RULES G-9)."""
_END = {EXPIRED: "its time ended", "Deleted": "it was deleted"}


def _how_far(state: ClusterState, record: Reservation, tally: Tally) -> str:
    """How far it was used when it ended."""
    if is_shared(record):
        pods = users(state, record.fact.reservation)
        go_on = "it goes on running" if pods == 1 else "they go on running"
        return f" while {counted(pods, 'pod')} used it; {go_on}" if pods else "; no pod used it"
    if tally.total < 2:
        return " before a pod took it" if tally.total else ""
    return f" with {tally.used} of {tally.total} slots handed over"


def users(state: ClusterState, uid: ReservationUid) -> int:
    """How many pods that are there have taken from it."""
    return sum(len(state.slot_users.get((uid, name), ())) for name in state.slots.get(uid, {}))


# -- sentences -----------------------------------------------------------------------------------------------------------


def counted(count: int, what: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{count} {what}{'s' * (count != 1)}"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _all_handed_over(slots: int) -> str:
    return "it was handed over to its owner" if slots == 1 else f"all {slots} slots were handed over to their owners"


def _handed_over(slots: int) -> str:
    return f"{counted(slots, 'slot')} {'was' if slots == 1 else 'were'} handed over, nothing is held any more"


def _taken(state: ClusterState, record: Reservation, tally: Tally) -> tuple[str, str]:
    """Reason and message of an available one: how much of it is used."""
    uid = record.fact.reservation
    if is_shared(record) and (pods := users(state, uid)):
        full = not any(slot.capacity.wanted or slot.capacity.devices for slot in state.slots[uid].values())
        use = "uses" if pods == 1 else "use"
        return FULLY if full else PARTLY, f"{counted(pods, 'pod')} {use} {'all' if full else 'some'} of it"
    if tally.total == 1:
        return HELD, "it is held, and no pod uses it"
    waiting = f", {tally.waiting} wait{'s' * (tally.waiting == 1)} for capacity" if tally.waiting else ""
    return HELD, f"{tally.held} of {tally.total} slots {_be(tally.held)} held, {tally.used} handed over{waiting}"


def _waits(state: ClusterState, record: Reservation, tally: Tally) -> tuple[str, str]:
    """Reason and message of one that waits for capacity on its nodes: why the first of its slots does."""
    first = next(slot for slot in state.slots[record.fact.reservation].values() if slot.phase is SlotPhase.WAITING)
    if tally.total == 1:
        return first.reason, BESIDE[PLACEHOLDER] if first.reason == PLACEHOLDER else "it waits for capacity on its node"
    wait = "waits for capacity on its node" if tally.waiting == 1 else "wait for capacity on their nodes"
    return first.reason, f"{tally.waiting} of {tally.total} slots {wait}"


def _lost(state: ClusterState, record: Reservation) -> tuple[str, str]:
    slots = state.slots[record.fact.reservation].values()
    reasons = sorted({slot.reason for slot in slots if slot.phase is SlotPhase.FAILED})
    # Of a placeholder that was refused the slot says more than one word.
    reason = EXPIRED if any(why in LOST for why in reasons) else reasons[0].partition(":")[0]
    return reason, "nothing is held any more: " + "; ".join(map(explained, reasons))


def _why(state: ClusterState, record: Reservation) -> tuple[str, str]:
    """Reason and message of what a slot waits for, empty where nobody has looked yet."""
    uid = record.fact.reservation
    unfit = state.unfit_slots.get(uid)
    if not unfit:
        return "", ""
    first = state.slots[uid][min(unfit)]
    return (first.reason, first.message) if first.message else ("Unschedulable", fit_message(first.nodes, first.reasons))


def _and_why(state: ClusterState, record: Reservation) -> str:
    message = _why(state, record)[1]
    return f"; {message}" if message else ""


def fit_message(nodes: int, reasons: dict[str, int]) -> str:
    """The sentence that users of kubectl know: `0/5 nodes are available: 3 Insufficient cpu, 2 …`."""
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{nodes} nodes are available: {', '.join(parts)}." if parts else f"0/{nodes} nodes are available."
