"""The life of a Reservation: whatever is in the log, in its time or not, only listed transitions happen, and each is caused by an
event of its kind. What is over keeps nothing that the session is not asked to release."""

from collections import Counter
from random import Random

import pytest
from domain.build import then
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from property.reservation_history import RESERVATIONS, History, begin

from restow.contracts import events as e
from restow.domain.evolve.phases import TRANSITIONS
from restow.domain.records import ON_NODE, SlotPhase
from restow.domain.records import ReservationPhase as P
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState
from restow.domain.statuses.reservation_status import status

LENGTH = 80
seeds = st.integers(0, 1 << 32)


def wrong_moves(before: dict, state: ClusterState, event: e.Event) -> list[str]:
    """Transitions that are not in the table, or not for such an event."""
    found = []
    for uid, since in state.phases.items():
        was = before[uid].phase if uid in before else P.PENDING
        if was is not since.phase and type(event) not in TRANSITIONS.get((was, since.phase), ()):
            found.append(f"{uid}: {was} -> {since.phase} by {event}")
    return found


def dead_holds(state: ClusterState) -> list[str]:
    """Places of what is over, or was refused, that are on a node and that nobody is asked to release."""
    return [
        f"{uid} {name}"
        for uid, record in state.reservations.items()
        if record.over or record.refused > record.accepted
        for name, slot in state.slots[uid].items()
        if slot.phase in ON_NODE and (uid, name) not in state.to_release
    ]


def too_much(state: ClusterState) -> list[str]:
    """Places that are to hold more than what they are of."""
    found = []
    for uid, slots in state.slots.items():
        for name, slot in slots.items():
            most = dict(state.vectors[slot.shape].items)
            if slot.phase in ON_NODE and any(amount > most.get(c, 0) for c, amount in slot.capacity.wanted):
                found.append(f"{uid} {name}: {slot.capacity.wanted} of {most}")
    return found


@settings(max_examples=examples(150))
@for_all(seeds)
def test_only_listed_transitions_happen_each_by_an_event_of_its_kind(seed):
    history, state = History(Random(seed), spacious=False), begin()
    for _ in range(LENGTH):
        event = history.next(state)
        before = dict(state.phases)
        then(state, event)
        assert wrong_moves(before, state, event) == []
        assert dead_holds(state) == []
        assert too_much(state) == []


@settings(max_examples=examples(40))
@for_all(seeds)
def test_the_phase_and_its_reason_say_what_the_places_are(seed):
    history, state = History(Random(seed), spacious=False), begin()
    for _ in range(LENGTH):
        then(state, history.next(state))
        for uid, record in state.reservations.items():
            since, slots = state.phases[uid], state.slots[uid]
            counts = Counter(slot.phase for slot in slots.values())
            had = counts[SlotPhase.HELD] + counts[SlotPhase.USED]
            if since.phase is P.AVAILABLE and not record.over:
                assert had >= record.min_available
                assert record.accepted >= record.refused
            if since.phase is P.FAILED and record.refused <= record.accepted:
                assert not any(slot.phase in (*ON_NODE, SlotPhase.PENDING) for slot in slots.values())
                assert since.reason
            if since.phase is P.SUCCEEDED:
                assert counts[SlotPhase.USED]
                assert not counts[SlotPhase.PENDING]
            if since.phase is P.WAITING:
                assert since.reason
                assert since.message
            assert (uid in state.available) == (since.phase is P.AVAILABLE and not record.over)
            assert len(since.history) <= len(P)
            assert since.history[-1] == (since.phase, since.since)


@settings(max_examples=examples(40))
@for_all(seeds)
def test_one_that_is_over_ends_when_the_session_has_released_what_it_held(seed):
    history, state = History(Random(seed), spacious=False), begin()
    for _ in range(LENGTH):
        then(state, history.next(state))
    then(state, *(e.Expired(uid) for uid in RESERVATIONS))
    while state.to_release:
        (place, reason), *_ = state.to_release.items()
        then(state, e.HoldReleased(*place, reason))
    for uid, since in state.phases.items():
        assert since.phase in (P.FAILED, P.SUCCEEDED), uid
    assert not state.table.reserved.any()


@settings(max_examples=examples(30))
@for_all(seeds)
def test_status_and_phases_are_the_same_from_a_snapshot(seed):
    history, state = History(Random(seed), spacious=False), begin()
    for _ in range(LENGTH):
        then(state, history.next(state))
    again = load(dump(state))
    assert again.phases == state.phases
    for uid in state.reservations:
        assert status(again, uid) == status(state, uid)


@pytest.mark.parametrize("final", [P.FAILED, P.SUCCEEDED])
def test_what_is_final_ends_by_an_update_or_because_its_owner_never_came(final):
    unbound = {e.PodReleased, e.PodGone, e.PodChanged, e.PodObserved}
    causes = {cause for (was, _), causes in TRANSITIONS.items() if was is final for cause in causes}
    updates = {e.ReservationAccepted} if final is P.FAILED else {e.ReservationAccepted, e.ReservationRefused}
    assert causes == (updates if final is P.FAILED else updates | unbound)


def test_an_expiry_and_a_hand_over_at_the_same_moment_do_not_both_happen():
    """DESIGN 1: the session's order is the truth. Until it has answered the expiry, the Reservation has not failed."""
    state = begin()
    then(state, e.ReservationAccepted("tasks", 1, 2, 5), e.HoldPlaced("tasks", "t-0", "n0"), e.HoldPlaced("tasks", "t-1", "n0"))
    then(state, e.HandedOver("tasks", "t-0", "p0", "n0"), e.Expired("tasks"))
    assert (state.phases["tasks"].phase, state.phases["tasks"].reason) == (P.AVAILABLE, "Ending")
    assert "tasks" not in state.available
    then(state, e.HandedOver("tasks", "t-1", "p1", "n0"))
    assert state.phases["tasks"].phase is P.SUCCEEDED
    then(state, e.HoldReleased("tasks", "t-1", "Expired"))
    assert state.phases["tasks"].phase is P.SUCCEEDED
