"""Reservations: given what the API and the session say, then phase, reason, places and refusals (RULES 000-1, G-1 to G-6)."""

import pytest
from domain.build import NOW, controlled_by, given, node, owner, pod, reservation, run, shape, then, when
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector, ObjectRef, OwnerRule, PodTerm, ReservationTask
from restow.domain import config, gc, session
from restow.domain import reservation as reservations

HOUR = 3_600_000
MINE = {"app": "owner"}


def settle(state):
    """Reviewed, then scheduled until nothing is left to do."""
    run(state, reservations.decider, c.Review(NOW))
    while run(state, session.decider, c.Schedule(NOW)):
        pass
    return state


def phase(state, uid="r"):
    return state.phases[uid].phase, state.phases[uid].reason


def places(state, uid="r"):
    return {name: str(slot.phase) for name, slot in state.slots[uid].items()}


def two(**spec):
    """Two places, one on each of two nodes."""
    return settle(given(node("a", cpu=1_000), node("b", cpu=1_000), shape("s"), reservation("r", ("t", 2, "s"), **spec)))


# -- phases (RULES 000-1) --------------------------------------------------------------------------------------------


def test_it_is_pending_until_enough_places_are_held_and_says_why():
    state = settle(given(node("a", cpu=1_000), shape("s"), reservation("r", ("t", 2, "s"))))
    assert phase(state) == ("Pending", "Unschedulable")
    settle(then(state, node("b", cpu=1_000)))
    assert phase(state) == ("Available", "Held")


def test_no_place_has_the_only_node_of_another_one_where_there_are_others():
    nodes = node("a", cpu=1_000, labels={"disk": "ssd"}), node("b", cpu=1_000)
    state = given(*nodes, shape("any"), shape("ssd", node_selector={"disk": "ssd"}), reservation("r", ("t", 1, "any"), ("u", 1, "ssd")))
    settle(state)
    assert (phase(state)[0], places(state)) == ("Available", {"t-0": "Available", "u-0": "Available"})


def test_a_large_place_does_not_keep_others_from_capacity_that_would_be_enough():
    state = given(node("a", cpu=3_000), shape("big", cpu=3_000), shape("s"), reservation("r", ("t", 1, "big"), ("u", 2, "s"), min_available=2))
    settle(state)
    assert (phase(state)[0], places(state)) == ("Available", {"t-0": "Pending", "u-0": "Available", "u-1": "Available"})
    assert [(name, slot.reasons) for name, slot in state.slots["r"].items() if slot.reasons] == [("t-0", {"Insufficient cpu": 1})]


def test_places_that_want_to_be_beside_later_ones_are_held_when_those_are():
    beside = [shape(f"beside-{name}", pod_affinity=(PodTerm("host", LabelSelector({"role": name})),)) for name in "bc"]
    tasks = (ReservationTask("a", 1, "beside-b"), ReservationTask("b", 1, "beside-c", {"role": "b"}), ReservationTask("c", 1, "s", {"role": "c"}))
    asked = replace(reservation("r"), spec=replace(reservation("r").spec, tasks=tasks))
    state = given(node("n", cpu=3_000, labels={"host": "n"}), *beside, shape("s"), asked)
    settle(state)
    assert (phase(state)[0], places(state)) == ("Available", {"a-0": "Available", "b-0": "Available", "c-0": "Available"})
    assert not any(slot.reasons for slot in state.slots["r"].values())


def test_it_is_available_while_some_are_handed_over_and_succeeded_when_all_are():
    state = settle(then(two(), pod("p1", labels=MINE)))
    assert phase(state) == ("Available", "Held")
    settle(then(state, pod("p2", labels=MINE)))
    assert phase(state) == ("Succeeded", "AllHandedOver")


def test_after_a_loss_that_leaves_too_few_it_waits_and_hands_nothing_over():
    state = settle(then(two(), e.NodeGone("a")))
    assert phase(state) == ("Waiting", "HoldLost")
    settle(then(state, pod("p", labels=MINE)))
    assert "p" in state.parked


def test_after_a_loss_that_leaves_enough_it_stays_available():
    assert phase(settle(then(two(min_available=1), e.NodeGone("a")))) == ("Available", "Held")


def test_with_every_place_lost_it_has_expired_with_its_nodes_and_waits_for_nothing_more():
    state = settle(given(node("a", cpu=1_000), shape("s"), reservation("r", ("t", 2, "s"), min_available=1)))
    assert phase(state) == ("Available", "Held")
    settle(then(state, e.NodeGone("a")))
    assert phase(state) == ("Failed", "Expired")
    settle(then(state, node("b", cpu=4_000)))
    assert phase(state) == ("Failed", "Expired")
    assert not state.slot_queue


@pytest.mark.parametrize("begin", ["Pending", "Waiting", "Available"])
def test_expiry_fails_it_whatever_it_was_before(begin):
    if begin == "Pending":
        state = settle(given(node("a", cpu=1_000), shape("s"), reservation("r", ("t", 2, "s"))))
    else:
        state = two()
        if begin == "Waiting":
            settle(then(state, e.NodeGone("a")))
    assert phase(state)[0] == begin
    settle(then(state, e.Expired("r")))
    assert phase(state) == ("Failed", "Expired")
    assert not state.table.reserved.any()
    assert not state.to_release
    assert not state.slot_queue


def test_expiry_leaves_a_succeeded_one_and_the_pods_that_use_it_alone():
    state = settle(then(two(), pod("p1", labels=MINE), pod("p2", labels=MINE)))
    settle(then(state, e.Expired("r")))
    assert phase(state) == ("Succeeded", "AllHandedOver")
    assert set(state.placed) == {"p1", "p2"}


def test_each_phase_is_remembered_once_with_its_latest_beginning():
    state = two()
    then(state, e.NodeGone("a"), time=NOW + 1)
    then(state, [e.HoldReleased("r", "t-0", "NodeLost")], time=NOW + 2)
    assert [str(p) for p, _ in state.phases["r"].history] == ["Pending", "Available", "Waiting"]
    assert state.phases["r"].since == NOW + 2


def test_one_that_is_first_seen_terminating_asks_for_nothing():
    state = settle(given(node("a"), shape("s"), reservation("r", ("t", 1, "s"), deleting=NOW)))
    assert places(state) == {}
    then(state, e.ReservationGone("r"))
    assert "r" not in state.reservations


def test_one_that_terminates_gives_its_holds_back_and_is_forgotten_when_gone():
    state = two()
    settle(then(state, reservation("r", ("t", 2, "s"), deleting=NOW)))
    assert places(state) == {"t-0": "Failed", "t-1": "Failed"}
    then(state, e.ReservationGone("r"))
    assert "r" not in state.reservations
    assert not state.table.reserved.any()


def test_of_a_node_replaced_under_its_name_the_hold_is_lost_and_nothing_is_held_twice():
    state = settle(then(two(min_available=1), node("a", cpu=1_000, uid="new")))
    assert places(state) == {"t-0": "Failed", "t-1": "Available"}
    assert state.table.free[state.table.rows["a"], state.table.columns["cpu"]] == 1_000


# -- updates ---------------------------------------------------------------------------------------------------------


def test_more_replicas_are_held_beside_those_that_are():
    state = two()
    settle(then(state, node("c", cpu=1_000), reservation("r", ("t", 3, "s"), generation=2)))
    assert places(state) == {"t-0": "Available", "t-1": "Available", "t-2": "Available"}


def test_fewer_replicas_give_back_what_is_too_many_and_nothing_has_failed():
    state = two()
    settle(then(state, reservation("r", ("t", 1, "s"), generation=2)))
    assert places(state) == {"t-0": "Available"}
    assert phase(state) == ("Available", "Held")


def test_another_template_is_held_instead_of_the_former():
    state = two()
    settle(then(state, shape("small", cpu=200), reservation("r", ("t", 2, "small"), generation=2)))
    assert places(state) == {"t-0": "Available", "t-1": "Available"}
    assert state.table.reserved[:, state.table.columns["cpu"]].sum() == 400


def test_what_a_pod_uses_stays_its_own_whatever_the_update_says():
    state = settle(then(two(), pod("p", labels=MINE)))
    settle(then(state, shape("small", cpu=200), reservation("r", ("t", 2, "small"), generation=2)))
    assert places(state) == {"t-0": "Succeeded", "t-1": "Available"}


def test_an_update_that_is_not_reviewed_yet_changes_nothing_even_where_it_cannot_be_read():
    state = given(node("a", cpu=1_000), shape("s"), reservation("r", ("t", 2, "s")))
    run(state, reservations.decider, c.Review(NOW))
    unreadable = replace(reservation("r", ("t", 2, "s"), generation=2), spec=None, invalid="spec.ttl: 'x'; allowed: 10s")
    then(state, unreadable)
    assert run(state, session.decider, c.Schedule(NOW)) == [e.HoldUnfit("r", "t-1", 1, {"Insufficient cpu": 1})]
    then(state, reservation("r", ("other", 1, "s"), generation=3))
    assert run(state, session.decider, c.Schedule(NOW)) == []


def test_owners_are_those_of_the_accepted_generation():
    state = two()
    then(state, reservation("r", ("t", 2, "s"), generation=2, owners=(owner(app="else"),)), pod("p", labels=MINE))
    assert [type(event) for event in when(state, session.decider, c.Schedule(NOW))] == [e.HandedOver]


def test_new_owners_wake_the_pods_that_wait():
    state = settle(then(two(), pod("p", labels={"app": "else"})))
    assert "p" in state.parked
    then(state, reservation("r", ("t", 2, "s"), generation=2, owners=(owner(app="else"),)))
    run(state, reservations.decider, c.Review(NOW))
    assert session.decider.due(state, NOW) is not None
    assert run(state, session.decider, c.Schedule(NOW)) == [e.HandedOver("r", "t-0", "p", "a")]


def test_a_refused_update_fails_it_and_a_valid_one_soon_after_keeps_what_was_held():
    state = two()
    then(state, reservation("r", ("t", 0, "s"), generation=2))
    run(state, reservations.decider, c.Review(NOW))
    assert phase(state) == ("Failed", "InvalidSpec")
    then(state, reservation("r", ("t", 2, "s"), generation=3))
    settle(state)
    assert places(state) == {"t-0": "Available", "t-1": "Available"}
    assert phase(state) == ("Available", "Held")


def test_an_acceptance_that_an_expiry_has_overtaken_is_void():
    state = given(shape("s"), reservation("r", ("t", 1, "s")))
    then(state, e.Expired("r"), e.ReservationAccepted("r", 1, 1))
    assert places(state) == {}
    assert not state.slot_queue
    assert state.void["reservation.accepted"] == 1


def test_another_ttl_moves_the_expiry():
    state = two(ttl=HOUR)
    assert gc.decider.deadline(state) == NOW + HOUR
    settle(then(state, reservation("r", ("t", 2, "s"), generation=2, ttl=2 * HOUR)))
    assert gc.decider.deadline(state) == NOW + 2 * HOUR


# -- when it expires (RULES G-2) -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "expires"),
    [
        ({}, NOW + 24 * HOUR),
        ({"ttl": HOUR}, NOW + HOUR),
        ({"ttl": 0}, 0),
        ({"expires": NOW + 5}, NOW + 5),
        ({"ttl": HOUR, "expires": NOW + 5}, NOW + 5),
        ({"ttl": 0, "expires": NOW + 5}, NOW + 5),
    ],
)
def test_expires_wins_ttl_counts_from_creation_and_ttl_0_disables_only_itself(said, expires):
    state = given(shape("s"), reservation("r", ("t", 1, "s"), **said))
    assert when(state, reservations.decider, c.Review(NOW + HOUR)) == [e.ReservationAccepted("r", 1, 1, expires)]


def test_the_default_ttl_is_the_configurations():
    from domain.build import configured

    state = given(configured("reservation", config.ReservationConfig(default_ttl=7)), shape("s"), reservation("r", ("t", 1, "s")))
    assert when(state, reservations.decider, c.Review(NOW)) == [e.ReservationAccepted("r", 1, 1, NOW + 7)]


# -- what is refused, and how it is said -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tasks", "spec", "message"),
    [
        ((), {}, "spec.tasks: is empty; allowed: at least one task (or spec.template)"),
        ((("t", 1, "s"), ("t", 1, "s")), {}, "spec.tasks[1].name: 't'; allowed: a name that no other task has"),
        ((("t", 0, "s"),), {}, "spec.tasks[0].replicas: 0; allowed: 1 or more"),
        ((("t", 10_001, "s"),), {}, "spec.tasks: 10001 replicas in all; allowed: at most 10000"),
        ((("t", 2, "s"),), {"min_available": 3}, "spec.minAvailable: 3; allowed: 0 (all of them) to 2, the sum of replicas"),
        ((("t", 1, "s"),), {"owners": ()}, "spec.owners: is empty; allowed: at least one owner, else nobody could use it"),
        (
            (("t", 1, "s"),),
            {"owners": (OwnerRule(),)},
            "spec.owners[0]: is empty; allowed: object, controller or labelSelector",
        ),
        (
            (("t", 1, "s"),),
            {"owners": (owner(a="b"), OwnerRule(object=ObjectRef()))},
            "spec.owners[1].object: refers to nothing; allowed: a kind, name, uid or namespace",
        ),
        (
            (("t", 1, "s"),),
            {"owners": (controlled_by("", ""),)},
            "spec.owners[0].controller: refers to nothing; allowed: a kind, name or uid",
        ),
        ((("t", 1, "s"),), {"ttl": -5}, "spec.ttl: -5 ms; allowed: 0 (no ttl) or more"),
    ],
)
def test_a_wrong_one_is_refused_with_path_value_and_what_is_allowed(tasks, spec, message):
    state = given(shape("s"), reservation("r", *tasks, **spec))
    assert run(state, reservations.decider, c.Review(NOW)) == [e.ReservationRefused("r", 1, "InvalidSpec", message)]
    assert phase(state) == ("Failed", "InvalidSpec")
    assert state.phases["r"].message == message


def test_one_that_could_not_be_read_fails_with_what_the_reader_said():
    fact = replace(reservation("r", ("t", 1, "s")), spec=None, invalid="spec.expires: 'tomorrow'; allowed: RFC 3339")
    state = given(shape("s"), fact)
    assert run(state, reservations.decider, c.Review(NOW)) == [
        e.ReservationRefused("r", 1, "InvalidSpec", "spec.expires: 'tomorrow'; allowed: RFC 3339")
    ]


def test_a_shape_that_was_never_declared_asks_for_nothing_and_is_counted():
    state = settle(given(node("a"), reservation("r", ("t", 1, "strange"))))
    assert phase(state) == ("Available", "Held")
    assert state.void["cluster.reservation_observed"] == 1


# -- order and size (RULES G-7) --------------------------------------------------------------------------------------


def test_a_reservation_counts_by_the_highest_priority_among_its_waiting_places():
    state = given(
        node("a", cpu=2_000), shape("low"), shape("high", priority=10), shape("mid", priority=5),
        pod("p", "mid"), reservation("r", ("a-first", 1, "low"), ("b", 1, "high")),
    )  # fmt: skip
    run(state, reservations.decider, c.Review(NOW))
    events = run(state, session.decider, c.Schedule(NOW))
    assert [type(event) for event in events] == [e.HoldPlaced, e.HoldPlaced, e.Unfit]


def test_many_holds_and_releases_are_decided_in_parts_that_a_commit_can_carry():
    state = given(node("a", cpu=20_000), shape("s"), *[reservation(f"r{i}", ("t", 2, "s"), ttl=0) for i in range(5)])
    run(state, reservations.decider, c.Review(NOW))
    sizes = []
    while events := run(state, session.decider, c.Schedule(NOW, limit=3)):
        sizes.append(len(events))
    assert sizes == [4, 4, 2]
    then(state, *[e.ReservationGone(f"r{i}") for i in range(5)])
    sizes = []
    while events := run(state, session.decider, c.Schedule(NOW, limit=4)):
        sizes.append(len(events))
    assert sizes == [4, 4, 2]
    assert not state.reservations
    assert not state.table.reserved.any()
