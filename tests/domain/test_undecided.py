"""For how long pods wait although nothing keeps them from running."""

from domain.build import NOW, given, node, pod, queue, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import session
from restow.domain.undecided import Undecided


def schedule(state):
    return run(state, session.decider, c.Schedule(NOW))


def test_who_was_seen_first_has_waited_longest_and_a_decision_ends_it():
    state = given(node("a"), shape("s"))
    undecided = Undecided(state)
    assert undecided.look(NOW) is None
    then(state, pod("first"))
    assert undecided.look(NOW + 10) == ("first", NOW + 10)
    then(state, pod("second"))
    assert undecided.look(NOW + 20) == ("first", NOW + 10)
    assert len(undecided) == 2
    assert {event.pod for event in schedule(state) if isinstance(event, e.PodPlaced)} == {"first", "second"}
    assert undecided.look(NOW + 30) is None
    assert len(undecided) == 0


def test_a_pod_that_fits_nowhere_waits_for_something_and_does_not_count():
    state = given(node("a", cpu=500), shape("s"), pod("large"))
    schedule(state)
    assert "large" in state.parked
    assert Undecided(state).look(NOW) is None


def test_one_that_was_told_why_it_waits_between_two_looks_has_waited_from_the_second_on():
    """It waited for capacity before, and was told so."""
    state = given(node("a", cpu=500), shape("s"), pod("large"))
    undecided = Undecided(state)
    assert undecided.look(NOW) == ("large", NOW)
    schedule(state)
    then(state, queue("default", weight=2))
    assert "large" in state.queue
    assert undecided.look(NOW + 60_000) == ("large", NOW + 60_000)
    assert undecided.look(NOW + 61_000) == ("large", NOW + 60_000)


def test_who_goes_is_forgotten():
    state = given(node("a"), shape("s"), pod("gone"))
    undecided = Undecided(state)
    undecided.look(NOW)
    then(state, e.PodGone("gone"))
    assert undecided.look(NOW + 1) is None
