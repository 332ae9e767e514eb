"""Whatever has happened to Reservations: when the objects and the pods are gone, the state says nothing of them any more, and
no capacity is charged for them."""

from domain.build import NOW, reservation, then
from domain.test_reservation_end import mentions, schedule
from effort import examples
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st
from property.test_fold import HOLDS, NODES, PODS, begin, devices, facts

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import reservation as reservations
from restow.domain.decider import decide_all
from restow.domain.records import SlotPhase
from restow.domain.snapshot import dump, load


@st.composite
def of_holds(draw):
    """What a session may say of places, in every form that a Reservation has."""
    hold, slot, node = draw(st.sampled_from(HOLDS)), draw(st.sampled_from(["t-0", "t-1"])), draw(st.sampled_from(NODES))
    name, what, generation = draw(st.sampled_from(PODS)), draw(st.sampled_from(["small", "half", "third"])), draw(st.integers(1, 4))
    form = {"allocate_once": draw(st.booleans()), "pre_allocation": draw(st.booleans()), "match_policy": "Owner"}
    asked = reservation(hold, ("t", draw(st.integers(1, 2)), what), generation=generation, **form)
    return draw(
        st.sampled_from(
            [
                asked,
                (asked, e.ReservationAccepted(hold, generation, 1, NOW + 5)),
                e.HoldPlaced(hold, slot, node, draw(devices), waiting=draw(st.booleans())),
                e.HoldReady(hold, slot),
                e.HoldBorrowed(hold, slot, name),
                e.HoldResized(hold, slot, what, draw(devices)),
                e.HandedOver(hold, slot, name, node, draw(devices)),
                e.HoldReleased(hold, slot, draw(st.sampled_from(["Expired", "Preempted", "Superseded", "Unavailable"]))),
                e.PodChanged(name, node, "Running", True, draw(st.sampled_from([0, NOW]))),
                e.Expired(hold),
            ]
        )
    )


@settings(max_examples=examples(120), deadline=None)
@for_all(st.lists(st.one_of(of_holds(), of_holds(), facts()), min_size=5, max_size=60), st.booleans(), st.booleans())
def test_nothing_is_left_when_objects_and_pods_are_gone(history, session_between, pods_first):
    state = then(begin(), *history)
    if session_between:
        for decision in decide_all(state, reservations.decider, [c.Review(NOW)]):
            then(state, decision.events)
        schedule(state)
    pods = [e.PodGone(pod) for pod in state.pods]
    objects = [e.ReservationGone(uid) for uid in state.reservations]
    then(state, *(pods + objects if pods_first else objects + pods))
    schedule(state)
    assert mentions(state, *HOLDS) == []
    assert mentions(load(dump(state)), *HOLDS) == []
    assert not state.table.reserved.any()
    assert not state.table.used.any()
    assert not state.table.releasing.any()


@settings(max_examples=examples(200), deadline=None)
@for_all(st.lists(st.one_of(of_holds(), of_holds(), facts()), min_size=5, max_size=60))
def test_a_place_waits_only_for_as_long_as_its_reservation_lives(history):
    """So a hold that was decided before the end, and comes after it, is void without being asked."""
    state = then(begin(), *history)
    for uid, places in state.slots.items():
        assert state.reservations[uid].alive or all(slot.phase is not SlotPhase.PENDING for slot in places.values())
