"""Plugin `reservation`: jobs that name their Reservation (RULES 000-2), and what they wait for (seed 000, `validJobFn`)."""

import pytest
from domain.build import (
    GIB,
    NOW,
    configured,
    given,
    member,
    node,
    pod,
    pod_group,
    queue,
    replica_of,
    reservation,
    run,
    shape,
    then,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import Move, Packing, Taint
from restow.domain import migration, session
from restow.domain import reservation as reservations
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig
from restow.domain.reservation.owner_matching import owned

TARGET = "scheduling.volcano.sh/target-reservation"
MINE = {"app": "owner"}
JOB = "Reservation specified by job <default/p> "
AVAILABLE = JOB + "is not Available: "
OWNED = JOB + "is not owned by the job (ownership mismatch by ownerObject  or label selectors): "
MATCHES = JOB + "does not match job task spec: task count or PodSpec does not match: "
"""Seed 000's sentences to the letter, and what it is."""


def schedule(state):
    return run(state, session.decider, c.Schedule(NOW))


def review(state):
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    return state


def world(*facts, cpu: int = 64_000):
    """One node; everything that is asked for is held on it."""
    return review(given(node("a", cpu=cpu, memory=256 * GIB), shape("s"), shape("t"), *facts))


def naming(name: str, target: str, shape: str = "s", **more) -> e.PodObserved:
    more.setdefault("labels", MINE)
    return pod(name, shape, annotations={TARGET: target}, **more)


def takes(state, *pods) -> dict[str, str]:
    then(state, *pods)
    return {event.pod: f"{event.reservation}/{event.slot}" for event in schedule(state) if isinstance(event, e.HandedOver)}


def why(state, name: str) -> tuple[str, str]:
    """Reason and sentence."""
    waiting = state.waiting[state.parked[name][0]]
    return waiting.reason, waiting.message


# -- what it takes ---------------------------------------------------------------------------------------------------


def test_it_takes_the_reservation_that_it_names_and_no_earlier_one_that_it_owns_too():
    state = world(reservation("early", ("t", 1, "s")), reservation("named", ("t", 1, "s"), created=NOW + 1))
    assert takes(state, naming("p", "named")) == {"p": "named/t-0"}
    assert takes(state, pod("q", labels=MINE)) == {"q": "early/t-0"}


def test_the_podgroups_name_counts_for_all_its_pods_whatever_theirs_say():
    state = world(
        reservation("theirs", ("t", 2, "s")), reservation("groups", ("t", 2, "s"), created=NOW + 1),
        pod_group("g", need=2, annotations={TARGET: "groups"}),
    )  # fmt: skip
    pods = [member(n, "g", labels=MINE, annotations={TARGET: "theirs"}) for n in ("p", "q")]
    assert takes(state, pods) == {"p": "groups/t-0", "q": "groups/t-1"}


def test_a_pods_own_name_counts_where_its_podgroup_names_none():
    state = world(reservation("r", ("t", 1, "s")), reservation("n", ("t", 1, "s"), created=NOW + 1), pod_group("g"))
    assert takes(state, member("p", "g", labels=MINE, annotations={TARGET: "n"})) == {"p": "n/t-0"}


def test_the_namespace_may_be_said_and_one_of_the_cluster_is_found_after_its_own():
    state = world(reservation("r", ("t", 1, "s")), reservation("wide", ("t", 1, "s"), namespace=""))
    assert takes(state, naming("p", "default/r"), naming("q", "wide")) == {"p": "r/t-0", "q": "wide/t-0"}


def test_it_goes_nowhere_else_while_the_node_that_is_held_takes_no_pods():
    state = world(reservation("r", ("t", 1, "s")))
    then(state, node("a", cpu=64_000, memory=256 * GIB, unschedulable=True), node("b"))
    assert takes(state, naming("p", "r")) == {}
    assert why(state, "p") == ("Unschedulable", "Reservation r has no slot left that this pod can take")
    assert takes(state, pod("q", labels=MINE)) == {}
    assert state.placed["q"].node == "b"
    then(state, node("a", cpu=64_000, memory=256 * GIB))
    assert takes(state) == {"p": "r/t-0"}


def test_a_pod_too_many_waits_for_a_place_and_is_not_scheduled_otherwise():
    state = world(reservation("r", ("t", 2, "s"), match_policy="Owner"))
    assert takes(state, [naming(n, "r") for n in ("p1", "p2", "p3")]) == {"p1": "r/t-0", "p2": "r/t-1"}
    assert "p3" not in state.placed
    schedule(state)
    assert why(state, "p3") == ("InvalidReservation", AVAILABLE.replace("/p>", "/p3>") + "Reservation default/r is used up: it hands over nothing more")


def test_a_gang_that_names_a_reservation_takes_all_or_none_of_its_holds():
    gang = pod_group("g", need=3, annotations={TARGET: "r"})
    state = world(gang, reservation("r", ("t", 2, "s"), match_policy="Owner"))
    assert takes(state, [member(n, "g", labels=MINE) for n in ("p1", "p2", "p3")]) == {}
    assert not state.placed
    assert why(state, "p1") == ("Unschedulable", "Reservation r has no slot left that this pod can take")
    then(state, reservation("r", ("t", 3, "s"), match_policy="Owner", generation=2))
    review(state)
    schedule(state)
    assert {uid: placement.hold for uid, placement in state.placed.items()} == {f"p{i + 1}": ("r", f"t-{i}") for i in range(3)}


# -- why it waits: InvalidReservation --------------------------------------------------------------------------------


def expired(state):
    then(state, e.Expired("r"))


def deleting(state):
    then(state, reservation("r", ("t", 1, "s"), deleting=NOW))


def gone(state):
    then(state, e.ReservationGone("r"))


def used(state):
    then(state, pod("first", labels=MINE))


UNUSABLE = {
    "expired": (expired, AVAILABLE + "Reservation default/r has expired"),
    "deleting": (deleting, AVAILABLE + "Reservation default/r is being deleted"),
    "gone": (gone, AVAILABLE + "there is no Reservation r in namespace default"),
    "used up": (used, AVAILABLE + "Reservation default/r is used up: it hands over nothing more"),
}


@pytest.mark.parametrize("case", UNUSABLE)
def test_what_has_ended_is_invalid_and_says_how(case):
    end, sentence = UNUSABLE[case]
    state = world(reservation("r", ("t", 1, "s")))
    end(state)
    schedule(state)
    then(state, naming("p", "r"))
    schedule(state)
    assert why(state, "p") == ("InvalidReservation", sentence)
    assert "p" not in state.placed


def test_one_that_does_not_exist_is_waited_for():
    state = world()
    assert takes(state, naming("p", "r")) == {}
    assert why(state, "p") == ("InvalidReservation", AVAILABLE + "there is no Reservation r in namespace default")
    then(state, reservation("r", ("t", 1, "s")))
    review(state)
    schedule(state)
    assert state.placed["p"].hold == ("r", "t-0")


def test_one_that_is_not_available_yet_is_waited_for():
    state = world(reservation("r", ("t", 2, "s")), cpu=1_000)
    assert takes(state, naming("p", "r")) == {}
    assert why(state, "p") == ("InvalidReservation", AVAILABLE + "Reservation default/r is not Available yet")


def test_one_that_was_refused_says_so():
    state = world(reservation("r", ("t", 1, "s"), min_available=5))
    then(state, naming("p", "r"))
    schedule(state)
    assert why(state, "p") == ("InvalidReservation", AVAILABLE + "Reservation default/r has failed: InvalidSpec")


def test_who_waits_for_its_beginning_is_told_of_its_end():
    state = world(reservation("r", ("t", 2, "s")), naming("p", "r"), cpu=1_000)
    assert why(state, "p")[1] == AVAILABLE + "Reservation default/r is not Available yet"
    then(state, e.Expired("r"))
    assert session.decider.due(state, NOW + 1) is not None
    schedule(state)
    assert why(state, "p") == ("InvalidReservation", AVAILABLE + "Reservation default/r has expired")


def test_one_of_another_namespace_is_invalid():
    state = world(reservation("r", ("t", 1, "s"), namespace="else"))
    then(state, naming("p", "r"), naming("q", "else/r"))
    schedule(state)
    assert why(state, "p") == ("InvalidReservation", AVAILABLE + "there is no Reservation r in namespace default")
    assert why(state, "q") == ("InvalidReservation", AVAILABLE.replace("/p>", "/q>") + "Reservation else/r serves only pods of namespace else")


# -- ReservationOwnerNotMatch, ReservationSpecNotMatch ---------------------------------------------------------------


def test_who_is_no_owner_waits_with_that_reason():
    state = world(reservation("r", ("t", 1, "s")))
    then(state, naming("p", "r", "t", labels={"app": "else"}))
    schedule(state)
    assert why(state, "p") == ("ReservationOwnerNotMatch", OWNED + "pod p matches no owner of Reservation default/r")
    assert "p" not in state.placed


@pytest.mark.parametrize(("namespace", "expected"), [("default", True), ("else", False), ("", True)])
def test_nobody_owns_one_of_another_namespace_whatever_its_owners_are(namespace, expected):
    state = world(reservation("r", ("t", 1, "s"), namespace=namespace))
    assert owned(state, state.reservations["r"], pod("p", labels=MINE)) is expected


def test_a_pod_of_another_spec_waits_with_that_reason_and_with_policy_owner_it_does_not():
    for policy, taken in (("PodSpec", {}), ("Owner", {"p": "r/t-0"})):
        state = world(reservation("r", ("t", 1, "s"), match_policy=policy))
        assert takes(state, naming("p", "r", "t")) == taken
        if not taken:
            assert why(state, "p") == ("ReservationSpecNotMatch", MATCHES + "pod p has not the spec of any task of Reservation default/r")


def test_a_group_of_another_size_waits_until_it_has_as_many_pods_as_there_are_places():
    state = world(pod_group("g", need=1, annotations={TARGET: "r"}), reservation("r", ("t", 2, "s")))
    assert takes(state, member("p", "g", labels=MINE)) == {}
    reason, sentence = why(state, "p")
    assert reason == "ReservationSpecNotMatch"
    assert sentence == MATCHES.replace("/p>", "/g>") + "group default/g has not as many pods of each spec as Reservation default/r has slots"
    assert takes(state, member("q", "g", labels=MINE)) == {"p": "r/t-0", "q": "r/t-1"}


def test_the_reasons_come_in_the_seeds_order():
    wrong = naming("p", "r", "t", labels={})
    state = world(reservation("r", ("x", 1, "s")), wrong)
    assert why(state, "p")[0] == "InvalidReservation"
    schedule(state)
    assert why(state, "p")[0] == "ReservationOwnerNotMatch"
    then(state, e.Expired("r"))
    for _ in range(2):
        schedule(state)
    assert why(state, "p")[0] == "InvalidReservation"


# -- who names none --------------------------------------------------------------------------------------------------


def test_an_owner_that_names_none_goes_the_normal_way_where_the_reservation_does_not_match():
    state = world(reservation("r", ("t", 1, "s")))
    assert takes(state, pod("p", "t", labels=MINE)) == {}
    assert state.placed["p"].hold is None


def test_without_the_plugin_the_annotation_is_not_read_and_owners_take_their_holds():
    tiers = ((PluginConfig("gang"),), (PluginConfig("predicates"), PluginConfig("nodeorder")))
    state = world(configured("session", SessionConfig(tiers=tiers)), reservation("r", ("t", 1, "s")))
    assert takes(state, naming("p", "nothing"), naming("q", "nothing")) == {"p": "r/t-0"}
    assert state.placed["q"].hold is None


def test_without_the_action_a_job_that_names_a_reservation_is_told_what_is_missing():
    actions = tuple(ActionConfig(name) for name in ("enqueue", "allocate", "backfill"))
    state = world(configured("session", SessionConfig(actions=actions)), reservation("r", ("t", 1, "s")))
    then(state, naming("p", "r"))
    schedule(state)
    assert why(state, "p")[1] == "Reservation r is named, and no action reserve before allocate hands it over"


def test_the_successor_of_a_moved_pod_takes_the_hold_of_its_move_although_its_reservation_is_used_up():
    state = world(reservation("r", ("t", 1, "s")))
    then(state, node("b"))
    workload = replica_of("rs")
    takes(state, naming("p", "r", owner=workload))
    then(state, e.PodChanged("p", "a", "Running", ready=True))
    none = Packing(0, 0, 0, 0, 0, 0)
    then(state, e.Planned("x", "Defragmentation", (Move("x-1", "p", "default", "p", "a", "b"),), none, none))
    run(state, migration.decider, c.Advance(NOW))
    then(state, reservation("h", ("hold", 1, "s"), migration="x-1", node="b", match_policy="Owner", ttl=0))
    review(state)
    run(state, migration.decider, c.Advance(NOW))
    then(state, e.PodChanged("p", "a", "Running", deleting=NOW), naming("successor", "r", owner=workload))
    assert takes(state) == {"successor": "h/hold-0"}


def test_nobody_takes_the_hold_of_a_move_by_naming_it():
    state = world()
    then(state, node("b"), pod("p", node="a", owner=replica_of("rs")))
    none = Packing(0, 0, 0, 0, 0, 0)
    then(state, e.Planned("x", "Defragmentation", (Move("x-1", "p", "default", "p", "a", "b"),), none, none))
    run(state, migration.decider, c.Advance(NOW))
    then(state, reservation("h", ("hold", 1, "s"), migration="x-1", node="b", match_policy="Owner", ttl=0))
    review(state)
    assert takes(state, naming("thief", "restow-x-1")) == {}
    assert why(state, "thief") == ("InvalidReservation", AVAILABLE.replace("/p>", "/thief>") + "Reservation default/restow-x-1 is held for a pod that is being moved")


# -- what hand-over itself must do -----------------------------------------------------------------------------------


def test_a_gang_that_asks_for_more_than_is_held_takes_holds_and_nodes_together():
    """What the first attempt found used up is there again when it was taken back."""
    state = world(pod_group("g", need=3), reservation("r", ("t", 2, "s"), match_policy="Owner"), cpu=3_000)
    assert takes(state, [member(n, "g", labels=MINE) for n in ("p1", "p2", "p3")]) == {"p1": "r/t-0", "p2": "r/t-1"}
    assert state.placed["p3"].hold is None


def test_a_gang_that_takes_none_leaves_the_holds_to_the_next_owner():
    state = world(pod_group("g", need=3), reservation("r", ("t", 2, "s"), match_policy="Owner"), cpu=2_000)
    pods = [*[member(n, "g", labels=MINE) for n in ("p1", "p2", "p3")], pod("single", labels=MINE)]
    assert takes(state, pods) == {"single": "r/t-0"}


def test_one_pod_that_may_not_run_there_does_not_keep_another_of_its_shape_away():
    """What a pod's labels or claims forbid is its own."""
    state = world(reservation("r", ("t", 1, "s"), match_policy="Owner"))
    then(state, [pod("first", labels=MINE, claims=("missing",)), pod("second", labels=MINE)])
    schedule(state)
    assert state.placed["second"].hold == ("r", "t-0")


def test_a_taint_that_the_pod_does_not_tolerate_keeps_it_from_its_hold():
    state = world(reservation("r", ("t", 1, "s")))
    then(state, node("a", cpu=64_000, memory=256 * GIB, taints=(Taint("k", "NoSchedule"),)))
    assert takes(state, naming("p", "r")) == {}


# -- action enqueue --------------------------------------------------------------------------------------------------


def asking(name: str, **more) -> e.PodGroupObserved:
    """A group that is to be let in, of two pods with a core each."""
    return pod_group(name, need=2, phase="Pending", min_resources={"cpu": 2_000}, **more)


def admitted(state) -> list[str]:
    return [event.group for event in schedule(state) if isinstance(event, e.Enqueued)]


def test_a_group_is_let_in_on_what_is_held_for_it_where_nothing_else_is_free():
    """Its Reservation has taken the capacity that `enqueue` looks for."""
    state = world(reservation("r", ("t", 2, "s")), cpu=2_000)
    then(state, asking("named", annotations={TARGET: "r"}), asking("other"))
    assert admitted(state) == ["named"]
    pods = [member(n, "named", labels=MINE) for n in ("p", "q")]
    assert takes(state, pods) == {"p": "r/t-0", "q": "r/t-1"}


def test_a_group_whose_pods_own_enough_holds_is_let_in_too():
    state = world(reservation("r", ("t", 2, "s")), cpu=2_000)
    then(state, asking("g"), [member(n, "g", labels=MINE) for n in ("p", "q")])
    schedule(state)
    assert {uid: placement.hold for uid, placement in state.placed.items()} == {"p": ("r", "t-0"), "q": ("r", "t-1")}


def test_holds_that_do_not_suffice_or_are_of_another_queue_let_nobody_in():
    few = world(reservation("r", ("t", 1, "s")), cpu=1_000)
    then(few, asking("g", annotations={TARGET: "r"}))
    assert admitted(few) == []
    other = world(queue("batch"), reservation("r", ("t", 2, "s"), queue="batch"), cpu=2_000)
    then(other, asking("g", annotations={TARGET: "r"}))
    assert admitted(other) == []


def test_a_group_that_names_a_reservation_is_not_let_in_before_that_is_available():
    state = world(asking("g", annotations={TARGET: "r"}), [member(n, "g", labels=MINE) for n in ("p", "q")])
    assert why(state, "p") == ("InvalidReservation", AVAILABLE.replace("/p>", "/g>") + "there is no Reservation r in namespace default")
    assert ("default", "g") in state.unqueued
    then(state, reservation("r", ("t", 2, "s")))
    review(state)
    schedule(state)
    assert sorted(state.placed) == ["p", "q"]
