"""Reservations for pods that another scheduler places: held by placeholders, and handed over to owners whom only our gate keeps from that scheduler."""

import json

import pytest
from domain.build import NOW, changed, configured, given, node, owner, pod, reservation, run, shape, then

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import beside, config, session
from restow.domain import reservation as reservations
from restow.domain.effects import CreatePlaceholder, DeletePlaceholder, Land, LetGo, ListOwners
from restow.domain.landing_gate import LEASE
from restow.domain.other_schedulers import held_for, other_scheduler
from restow.domain.records import ReservationPhase as P
from restow.domain.records import SlotPhase
from restow.domain.reservation.beside import ENTRY, MAX_LABELS, MAX_LISTED, size
from restow.domain.snapshot import dump, load
from restow.kube.placeholder import of_slot

VOLCANO, STOCK = "volcano", "default-scheduler"
MINE = {"app": "owner"}


def world(*more, schedulers=(VOLCANO,), **asked):
    shapes = [shape("s", cpu=3_000, scheduler=VOLCANO), shape("stock", cpu=3_000, scheduler=STOCK), shape("ours", cpu=3_000)]
    conf = configured("migration", config.MigrationConfig(beside=schedulers))
    kind = asked.pop("kind", "s")
    return given(conf, node("a", cpu=4_000), shapes, *more, reservation("r", ("t", 1, kind), match_policy="Owner", **asked), time=NOW)


def answers(state, after=0):
    found = run(state, reservations.decider, c.Review(NOW + after))
    while (command := session.decider.due(state, NOW + after)) is not None:
        found += run(state, session.decider, command)
    return found


def owes(state):
    return list(session.decider.pending(state, None))


def placeholder(state, uid="h", kind="s"):
    (name,) = state.slots["r"]
    return pod(uid, kind, namespace="restow-holds", labels={"restow.dev/log": state.log}, annotations={beside.SLOT: f"r/{name}"})


def held(state, kind="s"):
    """Its placeholder runs."""
    answers(state)
    then(state, placeholder(state, kind=kind), changed("h", node="a", phase="Running", ready=True))
    answers(state)
    return state


def comes(state, uid="p", kind="s", **more):
    then(state, pod(uid, kind, **{"labels": MINE, "gated": True, "landing": True} | more))
    return answers(state)


def slot(state):
    (one,) = state.slots["r"].values()
    return one


def free(state, name="a"):
    return int(state.table.free[state.table.rows[name], state.table.columns["cpu"]])


def test_its_slot_waits_for_a_placeholder_and_is_available_once_that_runs():
    state = world()
    answers(state)
    assert (slot(state).phase, slot(state).reason, free(state)) == (SlotPhase.WAITING, beside.PLACEHOLDER, 1_000)
    assert owes(state) == [CreatePlaceholder("r", "t-0")]
    held(state)
    assert (slot(state).phase, state.phases["r"].phase, free(state)) == (SlotPhase.HELD, P.AVAILABLE, 1_000)


def test_its_owners_are_gated_while_it_holds_and_that_the_entry_is_renewed_is_no_news():
    state = held(world())
    assert state.owner_gates == {"r": NOW + LEASE}
    assert owes(state) == [ListOwners("r", NOW + LEASE)]
    assert session.decider.deadline(state) is None
    assert answers(state, 3 * LEASE) == []
    assert session.decider.owed(state, ListOwners("r", NOW + LEASE)), "who takes the lead lists them again"


def test_an_owner_gets_the_slot_lands_and_then_nothing_is_left():
    state = held(world())
    comes(state)
    assert (slot(state).phase, slot(state).pod) == (SlotPhase.USED, "p")
    assert owes(state) == [Land("p", "a"), ListOwners("r", 0)], "it holds nothing any more"
    assert free(state) == 1_000
    run(state, session.decider, c.ReportOwners(NOW, "r"))
    then(state, e.PodGone("h"), pod("p", "s", labels=MINE, nominated="a"))
    assert owes(state) == []
    then(state, changed("p", node="a", phase="Running", ready=True))
    answers(state)
    assert (state.phases["r"].phase, free(state)) == (P.SUCCEEDED, 1_000)
    assert (state.owner_gates, state.gated, state.to_land, state.placeholders) == ({}, {}, {}, {})


def test_who_owns_it_and_gets_nothing_is_let_go_at_once():
    state = held(world(shape("big", cpu=4_000, scheduler=VOLCANO)))
    found = comes(state, "large", "big", annotations={"scheduling.koordinator.sh/reservation-affinity": "{"})
    assert e.PodLetGo("large") in found
    assert LetGo("large") in owes(state)
    assert slot(state).phase is SlotPhase.HELD


def test_who_does_not_own_it_is_let_go_at_once():
    state = held(world())
    comes(state, labels={"app": "other"})
    assert LetGo("p") in owes(state)
    assert slot(state).phase is SlotPhase.HELD


def test_a_pod_of_ours_that_has_the_labels_of_its_owners_is_let_go_and_not_taken_for_one():
    """The API gates by labels alone."""
    state = held(world())
    comes(state, kind="ours")
    assert LetGo("p") in owes(state)
    assert slot(state).phase is SlotPhase.HELD
    assert session.decider.due(state, NOW) is None, "and the session rests"


def test_a_pod_that_comes_before_its_placeholder_runs_is_let_go():
    state = world()
    answers(state)
    comes(state)
    assert LetGo("p") in owes(state)


def test_the_second_one_that_comes_for_one_slot_is_let_go():
    state = held(world())
    then(state, *(pod(uid, "s", labels=MINE, gated=True, landing=True) for uid in ("p", "q")))
    answers(state)
    assert slot(state).pod == "p"
    assert LetGo("q") in owes(state)
    assert LetGo("p") not in owes(state)


def test_pods_of_ours_take_nothing_of_it_nor_others_of_what_is_held_for_ours():
    state = held(world())
    then(state, pod("mine", "ours", labels=MINE))
    answers(state)
    assert slot(state).phase is SlotPhase.HELD
    assert "mine" in state.parked


def test_an_owner_whom_its_scheduler_does_not_bind_gives_the_slot_back_and_the_place_is_held_anew():
    state = held(world())
    comes(state)
    then(state, e.PodGone("h"), pod("p", "s", labels=MINE))
    assert session.decider.deadline(state) == NOW + beside.PATIENCE
    answers(state, beside.PATIENCE)
    assert (slot(state).phase, slot(state).reason) == (SlotPhase.WAITING, "GivenBack")
    assert CreatePlaceholder("r", "t-0") in owes(state)


def test_who_waited_long_for_our_gate_to_come_off_still_has_the_moment_that_its_scheduler_takes():
    """One after the other lands on a node, and the API may not answer for a while."""
    late = 3 * beside.PATIENCE
    state = held(world())
    comes(state)
    then(state, e.PodGone("h"), pod("p", "s", labels=MINE), time=NOW + late)
    answers(state, late + 1)
    assert slot(state).phase is SlotPhase.USED
    assert load(dump(state)).to_land == {"p": NOW + late}
    assert session.decider.deadline(state) == NOW + late + beside.PATIENCE
    then(state, changed("p", node="a", phase="Running", ready=True), time=NOW + late + 20)
    answers(state, late + beside.PATIENCE)
    assert (slot(state).pod, free(state)) == ("p", 1_000)


@pytest.mark.parametrize(("asked", "lives"), [({"ttl": 3_600_000}, 7_200), ({"ttl": 0}, 2**31 - 1)])
def test_its_placeholder_has_the_priority_that_its_class_is_worth_and_ends_after_the_reservation(asked, lives):
    state = world(shape("named", cpu=3_000, scheduler=VOLCANO, priority_class="high"), e.PriorityClassObserved("high", 2_000), kind="named", **asked)
    answers(state)
    spec = of_slot(state, ("r", "t-0"), NOW).spec
    assert (spec.priority_class_name, spec.scheduler_name, spec.active_deadline_seconds) == ("restow-hold-2000", VOLCANO, lives)


@pytest.mark.parametrize(("priority_class", "worth"), [("", 0), ("low", 10), ("gone", 0)])
def test_a_number_in_its_template_gives_its_placeholder_no_priority(priority_class, worth):
    """The API refuses a pod whose number is not its class's. A Reservation's template it does not read."""
    state = world(shape("said", cpu=3_000, scheduler=VOLCANO, priority=10**9, priority_class=priority_class), e.PriorityClassObserved("low", 10), kind="said")
    answers(state)
    assert of_slot(state, ("r", "t-0"), NOW).spec.priority_class_name == f"restow-hold-{worth}"


def test_one_that_is_made_longer_outlives_its_placeholder_and_another_one_stands_in_its_place():
    """The API lets no pod's deadline be made longer; that of the placeholder was an hour after the earlier end."""
    state = held(world(ttl=3_600_000))
    then(state, reservation("r", ("t", 1, "s"), match_policy="Owner", ttl=4 * 3_600_000, generation=2))
    answers(state)
    assert (slot(state).phase, state.reservations["r"].expires) == (SlotPhase.HELD, NOW + 4 * 3_600_000)
    then(state, changed("h", node="a", phase="Failed", reason="DeadlineExceeded"))
    answers(state)
    state = load(dump(state))
    assert (slot(state).phase, slot(state).reason, free(state)) == (SlotPhase.WAITING, beside.PLACEHOLDER, 1_000)
    assert set(owes(state)) >= {DeletePlaceholder("h"), CreatePlaceholder("r", "t-0")}
    then(state, e.PodGone("h"), placeholder(state, uid="h2"), changed("h2", node="a", phase="Running", ready=True))
    answers(state)
    assert (slot(state).phase, state.phases["r"].phase) == (SlotPhase.HELD, P.AVAILABLE)
    assert of_slot(state, ("r", "t-0"), NOW + 2 * 3_600_000).spec.active_deadline_seconds == 3 * 3_600


def test_its_end_deletes_the_placeholder_and_takes_its_owners_off_the_list():
    state = held(world())
    then(state, e.Expired("r"))
    answers(state)
    assert state.phases["r"].phase is P.FAILED
    assert owes(state) == [DeletePlaceholder("h"), ListOwners("r", 0)]
    run(state, session.decider, c.ReportOwners(NOW, "r"))
    assert owes(state) == [DeletePlaceholder("h")]


def test_a_stolen_placeholder_is_a_lost_slot():
    state = held(world())
    then(state, e.PodGone("h"))
    answers(state)
    assert (slot(state).phase, slot(state).reason) == (SlotPhase.FAILED, "HoldStolen")
    assert state.owner_gates == {"r": 0}


def test_a_snapshot_knows_who_is_gated_and_who_was_passed_over():
    state = held(world())
    then(state, *(pod(uid, "s", labels=MINE, gated=True, landing=True) for uid in ("p", "q")))
    answers(state)
    again = load(dump(state))
    assert (again.owner_gates, again.passed) == (state.owner_gates, state.passed)
    assert owes(again) == owes(state)


def test_a_scheduler_that_the_policy_does_not_name_has_its_reservations_left_alone():
    state = world(schedulers=())
    assert other_scheduler(state, state.reservations["r"]) == VOLCANO
    assert answers(state) == []


def test_one_that_names_the_stock_scheduler_is_held_for_it_and_one_that_names_nobody_is_ours():
    state = world(schedulers=(STOCK,), kind="stock", scheduler=STOCK)
    assert held_for(state, state.reservations["r"]) == STOCK
    state = world(schedulers=(STOCK,), kind="stock")
    assert held_for(state, state.reservations["r"]) == ""
    answers(state)
    assert slot(state).phase is SlotPhase.HELD


@pytest.mark.parametrize(("asked", "said"), [
    ({"allocate_once": False}, "spec.allocateOnce: false; allowed for pods of scheduler volcano: true (a placeholder is handed over as a whole)"),
    ({"pre_allocation": True}, "spec.preAllocation: true; allowed for pods of scheduler volcano: false (others get what becomes free)"),
    ({"owners": (owner(),)}, "spec.owners[0]: allowed for pods of scheduler volcano: a labelSelector with matchLabels alone (the API gates pods by these)"),
])  # fmt: skip
def test_what_a_placeholder_cannot_hold_is_refused_with_a_sentence(asked, said):
    state = world(**asked)
    (event,) = answers(state)
    assert (event.reason, event.message) == ("InvalidSpec", said)


def labelled(labels):
    """Of about 75 bytes a label."""
    return (owner(**{f"k{i}": "v" * 63 for i in range(labels)}),)


MANY = labelled(200)


def test_one_with_more_labels_than_its_entry_may_have_is_refused():
    state = world(owners=labelled(400))
    (event,) = answers(state)
    assert event.message == f"spec.owners: {size(state.reservations['r'].fact.spec)} bytes of labels; allowed for pods of scheduler volcano: at most {MAX_LABELS}"


@pytest.mark.parametrize("together", [True, False])
def test_the_entries_of_all_fit_in_one_object_and_who_comes_too_late_is_refused(together):
    """A tenant filled the Landing of all: an object that etcd refuses gates nobody, and no move went on."""
    state = world(owners=MANY)
    mine = size(state.reservations["r"].fact.spec)
    most = MAX_LISTED // mine
    assert mine <= MAX_LABELS
    assert most > 30
    answers(state)
    asked = [reservation(f"r{i}", ("t", 1, "s"), match_policy="Owner", owners=MANY) for i in range(1, most + 2)]
    found = []
    for some in [asked] if together else [[one] for one in asked]:
        then(state, *some)
        found += [event for event in answers(state) if isinstance(event, e.ReservationAccepted | e.ReservationRefused)]
    said = [event.message for event in found if isinstance(event, e.ReservationRefused)]
    assert len(found) == most + 1
    assert len(said) == 2
    assert said[0] == (
        f"spec.owners: {mine} bytes of labels, beside {most * mine} of other Reservations; "
        f"allowed for pods of scheduler volcano: at most {MAX_LISTED} in all (make it again when others have ended)"
    )
    then(state, reservation("r", ("t", 1, "s"), match_policy="Owner", owners=labelled(100), generation=2))
    (event,) = [event for event in answers(state) if isinstance(event, e.ReservationAccepted | e.ReservationRefused)]
    assert isinstance(event, e.ReservationAccepted), "what it had before does not count against itself"


@pytest.mark.parametrize("text", ["app", "<>&", "\u2028\x00", '"\\', "é😀"])
def test_an_entry_is_never_larger_than_is_counted(text):
    """As Go writes it, which escapes more than JSON asks for."""
    spec = reservation("r", ("t", 1, "s"), owners=(owner(**{text: text}), owner(a="b"))).spec
    written = json.dumps([one.selector.labels for one in spec.owners], separators=(",", ":"))
    for one in "<>&":
        written = written.replace(one, f"\\u{ord(one):04x}")
    assert len(written) <= size(spec) - ENTRY + 8


def test_where_nobody_is_gated_nothing_is_held_for_owners():
    (event,) = answers(world(namespace="kube-system"))
    assert event.message == "metadata.namespace: kube-system; allowed for pods of scheduler volcano: any other (new pods are never gated there)"


# -- the policy names other schedulers than before -----------------------------------------------------------------------


def names(state, *schedulers):
    then(state, configured("migration", config.MigrationConfig(beside=schedulers)))


def test_what_was_held_before_its_scheduler_was_named_gets_a_placeholder_and_waits_for_it():
    """It was Available, no scheduler saw that, and an owner who came was sent to a node that others had filled."""
    state = world(schedulers=(), kind="stock", scheduler=STOCK)
    answers(state)
    assert (slot(state).phase, state.phases["r"].phase) == (SlotPhase.HELD, P.AVAILABLE), "ours, for nobody else is named"
    names(state, STOCK)
    assert list(session.decider.pending(state, state.touched)) == [CreatePlaceholder("r", "t-0")]
    answers(state)
    assert (slot(state).phase, slot(state).reason, state.phases["r"].phase, free(state)) == (SlotPhase.WAITING, beside.PLACEHOLDER, P.WAITING, 1_000)
    then(state, placeholder(state, kind="stock"), changed("h", node="a", phase="Running", ready=True))
    answers(state)
    assert (slot(state).phase, state.phases["r"].phase) == (SlotPhase.HELD, P.AVAILABLE)
    assert state.owner_gates == {"r": NOW + LEASE}


def test_one_for_a_scheduler_that_is_named_later_is_held_from_then_on_and_given_up_when_it_is_named_no_more():
    state = world(schedulers=())
    answers(state)
    assert state.slots["r"] == {}
    names(state, VOLCANO)
    answers(state)
    assert (slot(state).phase, owes(state)) == (SlotPhase.WAITING, [CreatePlaceholder("r", "t-0")])
    names(state)
    answers(state)
    assert slot(state).phase is SlotPhase.FAILED
    names(state, VOLCANO)
    answers(state)
    assert (slot(state).phase, owes(state)) == (SlotPhase.WAITING, [CreatePlaceholder("r", "t-0")])


def test_what_placeholders_cannot_hold_is_refused_once_they_would_have_to():
    state = world(schedulers=(), kind="stock", scheduler=STOCK, allocate_once=False)
    answers(state)
    assert slot(state).phase is SlotPhase.HELD
    names(state, STOCK)
    answers(state)
    assert slot(state).phase is SlotPhase.FAILED
    assert "allocateOnce" in state.reservations["r"].message


def test_who_waits_for_a_placeholder_is_ready_without_one_when_its_scheduler_is_named_no_more():
    state = world(schedulers=(STOCK,), kind="stock", scheduler=STOCK)
    answers(state)
    assert slot(state).phase is SlotPhase.WAITING
    names(state)
    answers(state)
    assert (slot(state).phase, owes(state)) == (SlotPhase.HELD, [])


def test_a_slot_is_not_ready_whose_scheduler_was_named_after_that_was_decided():
    state = world(schedulers=(STOCK,), kind="stock", scheduler=STOCK)
    answers(state)
    names(state)
    decided = session.decider.decide(state, session.decider.due(state, NOW))
    assert decided == [e.HoldReady("r", "t-0")]
    names(state, STOCK)
    then(state, *decided)
    assert (slot(state).phase, owes(state)) == (SlotPhase.WAITING, [CreatePlaceholder("r", "t-0")])
