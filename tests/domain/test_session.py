"""The session: given facts, when it is scheduled, then who holds and uses capacity."""

from domain.build import (
    GIB,
    NOW,
    configured,
    controlled_by,
    given,
    node,
    owner,
    pod,
    replica_of,
    reservation,
    run,
    shape,
    then,
    when,
)
from domain.storage import CLASSES, HOST, claim, on, volume

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, Expression, NodeTerm, Taint, Toleration
from restow.domain import config, session
from restow.domain import reservation as reservations

SCHEDULE = c.Schedule(NOW)
decider = session.decider


def place(state):
    return run(state, decider, SCHEDULE)


def test_a_pod_is_placed_on_the_least_allocated_node():
    state = given(node("a"), node("b"), shape("s"), pod("p0", node="a"), pod("p1"))
    assert place(state) == [e.PodPlaced("p1", "b")]


def test_a_resource_that_a_node_does_not_have_counts_neither_for_nor_against_it():
    """Half of a's cpu is free, and of b's two resources 40 % each."""
    facts = shape("half", cpu=4_000, memory=0), shape("more", cpu=4_800, memory=60), shape("s", cpu=1, memory=0)
    state = given(*facts, node("a", memory=0), node("b", memory=100), pod("p0", "half", "a"), pod("p1", "more", "b"), pod("p2"))
    assert place(state) == [e.PodPlaced("p2", "a")]


def test_with_binpack_it_is_placed_on_the_fullest_node_that_fits():
    tiers = ((config.PluginConfig("predicates"), config.PluginConfig("binpack")),)
    packed = configured("session", config.SessionConfig(tiers=tiers))
    state = given(packed, node("a"), node("b"), shape("s"), pod("p0", node="b"), pod("p1"))
    assert place(state) == [e.PodPlaced("p1", "b")]


def test_with_binpack_the_only_device_of_a_node_is_taken_before_one_of_several():
    weights = {"binpack.resources": "example.com/x", "binpack.cpu": 0, "binpack.memory": 0}
    tiers = ((config.PluginConfig("predicates"), config.PluginConfig("binpack", arguments=weights)),)
    packed = configured("session", config.SessionConfig(tiers=tiers))
    many, one = node("a", allocatable={"example.com/x": 2}), node("b", allocatable={"example.com/x": 1})
    state = given(packed, many, one, shape("s", requests={"example.com/x": 1}), pod("p"))
    assert place(state) == [e.PodPlaced("p", "b")]
    then(state, e.PodGone("p"), pod("q"))
    assert place(state) == [e.PodPlaced("q", "b")], "again when it has come back"


def test_ties_go_to_the_first_name_whatever_the_order_of_arrival():
    state = given(node("c"), node("a"), node("b"), shape("s"), pod("p"))
    assert place(state) == [e.PodPlaced("p", "a")]


def test_higher_priority_first_then_arrival():
    state = given(
        node("a", cpu=2_000), shape("low"), shape("high", priority=10), pod("p1", "low"), pod("p2", "low"), pod("p3", "high")
    )
    placed = [event.pod for event in place(state) if isinstance(event, e.PodPlaced)]
    assert placed == ["p3", "p1"]


def test_nothing_is_overcommitted_and_the_rest_is_told_why():
    state = given(node("a", cpu=1_500), shape("s"), pod("p1"), pod("p2"))
    assert place(state) == [e.PodPlaced("p1", "a"), e.Unfit("s", 1, {"Insufficient cpu": 1}, ("p2",))]
    assert list(state.parked) == ["p2"]
    assert place(state) == []


def test_a_pod_of_the_same_shape_is_not_refused_for_what_is_wrong_with_another():
    """The volume of the first is on a node that is gone."""
    facts = [*CLASSES, node("a", labels={HOST: "a"}), *(volume(f"v{n}", claim=f"c{n}", affinity=on(n)) for n in "za"), *(claim(f"c{n}", volume=f"v{n}") for n in "za")]
    state = given(*facts, shape("s"), pod("p1", claims=("cz",)), pod("p2", claims=("ca",)))
    placed, unfit = place(state)
    assert placed == e.PodPlaced("p2", "a")
    assert unfit.pods == ("p1",)


def test_a_waiting_pod_is_placed_when_capacity_appears():
    state = given(node("a", cpu=1_000), shape("s"), pod("p1"), pod("p2"))
    place(state)
    then(state, e.PodChanged("p1", "a", "Running", True), e.PodGone("p1"))
    assert place(state) == [e.PodPlaced("p2", "a")]


def test_pods_of_other_schedulers_are_never_touched():
    state = given(node("a"), shape("s", scheduler="default-scheduler"), pod("p"))
    assert place(state) == []


def test_gated_and_terminating_pods_wait():
    state = given(node("a"), shape("s"), pod("p1", gated=True), pod("p2", deleting=NOW))
    assert place(state) == []


def test_selectors_taints_readiness_and_cordons_are_obeyed_with_counts():
    state = given(
        node("cordoned", unschedulable=True),
        node("unready", ready=False),
        node("tainted", taints=(Taint("gpu", "NoSchedule", "yes"),)),
        node("other", labels={"zone": "b"}),
        node("small", cpu=100, labels={"zone": "a"}),
        shape("s", node_selector={"zone": "a"}),
        pod("p"),
    )
    assert place(state) == [
        e.Unfit(
            "s",
            5,
            {
                "Insufficient cpu": 1,
                "node(s) didn't match Pod's node affinity/selector": 1,
                "node(s) had untolerated taint {gpu: yes}": 1,
                "node(s) were not ready": 1,
                "node(s) were unschedulable": 1,
            },
            ("p",),
        )
    ]


def test_a_tolerated_taint_and_a_matching_affinity_are_no_obstacle():
    state = given(
        node("a", taints=(Taint("gpu", "NoSchedule", "yes"),), labels={"model": "T4"}),
        shape(
            "s",
            tolerations=(Toleration("gpu", "Exists"),),
            node_affinity=(NodeTerm((Expression("model", "In", ("T4", "A10")),)),),
        ),
        pod("p"),
    )
    assert place(state) == [e.PodPlaced("p", "a")]


def test_a_node_that_changes_is_looked_at_again():
    state = given(node("a", unschedulable=True), shape("s"), pod("p"))
    place(state)
    then(state, node("a"))
    assert place(state) == [e.PodPlaced("p", "a")]


def test_shares_of_one_device_never_split_and_fill_the_fullest_device():
    state = given(node("a", gpus=2), shape("s", gpu=(1, 600)), shape("t", gpu=(1, 300)), pod("p1"), pod("p2", "t"), pod("p3"), pod("p4"))
    assert place(state) == [
        e.PodPlaced("p1", "a", (DeviceShare(0, 600),)),
        e.PodPlaced("p2", "a", (DeviceShare(0, 300),)),
        e.PodPlaced("p3", "a", (DeviceShare(1, 600),)),
        e.Unfit("s", 1, {"Insufficient gpu": 1}, ("p4",)),
    ]


def test_whole_devices_need_whole_devices():
    state = given(node("a", gpus=2), shape("half", gpu=(1, 500)), shape("two", gpu=(2, 1000)), pod("p1", "half"), pod("p2", "two"))
    assert place(state)[1:] == [e.Unfit("two", 1, {"Insufficient gpu": 1}, ("p2",))]


def held(state):
    run(state, reservations.decider, c.Review(NOW))
    return place(state)


def test_a_reservation_is_held_like_a_job_and_becomes_available():
    state = given(node("a"), node("b"), shape("n", cpu=500), shape("x", cpu=250), reservation("r", ("nginx", 2, "n"), ("busybox", 1, "x")))
    assert held(state) == [e.HoldPlaced("r", "busybox-0", "a", shape="x"), e.HoldPlaced("r", "nginx-0", "b", shape="n"), e.HoldPlaced("r", "nginx-1", "a", shape="n")]
    assert state.phases["r"].phase == "Available"


def test_below_min_available_nothing_is_held():
    state = given(node("a", cpu=2_000), shape("s"), reservation("r", ("t", 3, "s")))
    assert held(state) == [e.HoldUnfit("r", "t-2", 1, {"Insufficient cpu": 1})]
    assert state.phases["r"].phase == "Pending"
    assert state.phases["r"].message == "0/1 nodes are available: 1 Insufficient cpu."


def test_min_available_may_be_less_than_all():
    state = given(node("a", cpu=2_000), shape("s"), reservation("r", ("t", 3, "s"), min_available=2))
    assert held(state)[:2] == [e.HoldPlaced("r", "t-0", "a", shape="s"), e.HoldPlaced("r", "t-1", "a", shape="s")]
    assert state.phases["r"].phase == "Available"


def test_an_owner_takes_its_hold_and_others_find_it_occupied():
    state = given(node("a", cpu=1_000), shape("s"), reservation("r", ("t", 1, "s")))
    held(state)
    then(state, pod("other"), pod("mine", labels={"app": "owner"}))
    assert place(state) == [
        e.HandedOver("r", "t-0", "mine", "a"),
        e.Unfit("s", 1, {"Insufficient cpu": 1}, ("other",)),
    ]
    assert state.phases["r"].phase == "Succeeded"
    assert state.placed["mine"].hold == ("r", "t-0")
    assert "other" in state.parked


def test_pod_spec_policy_wants_equal_specs_and_owner_policy_does_not():
    for policy, taken in (("PodSpec", False), ("Owner", True)):
        state = given(node("a", cpu=1_000), shape("s"), shape("t", cpu=900), reservation("r", ("t", 1, "s"), match_policy=policy))
        held(state)
        then(state, pod("mine", "t", labels={"app": "owner"}))
        assert any(isinstance(event, e.HandedOver) for event in place(state)) is taken, policy


def test_owners_by_controller_and_by_the_controllers_own_controller():
    for kind, name in (("ReplicaSet", "web-1"), ("Deployment", "web")):
        state = given(node("a"), shape("s"), reservation("r", ("t", 1, "s"), owners=(controlled_by(kind, name),)))
        held(state)
        then(
            state,
            e.WorkloadObserved("uid-web-1", "ReplicaSet", "default", "web-1", replica_of("web", "Deployment")),
            pod("mine", owner=replica_of("web-1")),
        )
        assert place(state) == [e.HandedOver("r", "t-0", "mine", "a")]


def test_a_reservation_serves_only_its_own_namespace():
    state = given(node("a"), shape("s"), reservation("r", ("t", 1, "s"), namespace="x"))
    held(state)
    then(state, pod("mine", labels={"app": "owner"}))
    assert [type(event) for event in place(state)] == [e.PodPlaced]


def test_preferred_nodes_are_soft_and_a_pinned_node_is_hard():
    state = given(node("a"), node("b"), node("c", cpu=100), shape("s"), reservation("r", ("t", 1, "s"), preferred=("c", "b")))
    assert held(state) == [e.HoldPlaced("r", "t-0", "b", shape="s")]
    state = given(node("a"), node("c", cpu=100), shape("s"), reservation("r", ("t", 1, "s"), node="c"))
    assert [type(event) for event in held(state)] == [e.HoldUnfit]


def test_expiry_frees_what_no_pod_uses_and_leaves_the_pods_alone():
    state = given(node("a", cpu=2_000), shape("s"), reservation("r", ("t", 2, "s")))
    held(state)
    then(state, pod("mine", labels={"app": "owner"}))
    place(state)
    then(state, e.Expired("r"))
    assert place(state) == [e.HoldReleased("r", "t-1", "Expired")]
    assert (state.phases["r"].phase, state.phases["r"].reason) == ("Failed", "Expired")
    assert state.table.free[0, state.table.columns["cpu"]] == 1_000
    assert not state.table.reserved.any()


def test_an_expiry_and_a_hand_over_cannot_both_happen():
    state = given(node("a"), shape("s"), reservation("r", ("t", 1, "s")))
    held(state)
    then(state, pod("mine", labels={"app": "owner"}))
    decided = when(state, decider, SCHEDULE)
    then(state, e.Expired("r"))
    then(state, decided)
    assert state.slots["r"]["t-0"].phase == "Succeeded"
    assert state.phases["r"].phase == "Succeeded"
    assert place(state) == []


def test_a_lost_node_expires_what_is_held_on_it():
    state = given(node("a"), shape("s"), reservation("r", ("t", 1, "s")))
    held(state)
    then(state, e.NodeGone("a"))
    assert place(state) == [e.HoldReleased("r", "t-0", "NodeLost")]
    assert (state.phases["r"].phase, state.phases["r"].reason) == ("Failed", "Expired")
    then(state, node("a", uid="new"))
    assert state.table.free[0, state.table.columns["cpu"]] == 8_000


def test_part_of_the_holds_lost_is_waiting():
    state = given(node("a", cpu=1_000), node("b", cpu=1_000), shape("s"), reservation("r", ("t", 2, "s")))
    held(state)
    then(state, e.NodeGone("a"))
    place(state)
    assert state.phases["r"].phase == "Waiting"


def test_deleting_a_reservation_releases_it_and_forgets_it():
    state = given(node("a"), shape("s"), reservation("r", ("t", 1, "s")))
    held(state)
    then(state, e.ReservationGone("r"))
    assert place(state) == [e.HoldReleased("r", "t-0", "Deleted")]
    assert (state.reservations, state.slots, state.phases) == ({}, {}, {})


def test_a_placement_that_facts_overtook_is_void():
    state = given(node("a"), shape("s"), pod("p"))
    decided = when(state, decider, SCHEDULE)
    then(state, e.PodChanged("p", deleting=NOW), e.PodGone("p"))
    then(state, decided)
    assert state.void == {"session.pod_placed": 1}
    assert not state.table.used.any()


def test_facts_beat_intents():
    state = given(node("a"), node("b"), shape("s"), pod("p"))
    place(state)
    then(state, e.PodChanged("p", "b", "Running", True))
    assert state.charges["p"].node == "b"
    assert state.table.used[0].sum() == 0


def test_a_finished_pod_uses_nothing():
    state = given(node("a"), shape("s"), pod("p", node="a"))
    then(state, e.PodChanged("p", "a", "Succeeded"))
    assert not state.table.used.any()
    assert state.table.free[0, state.table.columns["memory"]] == 32 * GIB


def test_a_draft_leaves_no_trace():
    from restow.domain.snapshot import dump

    state = given(node("a", gpus=2), shape("s", gpu=(1, 400)), pod("p1"), pod("p2"), reservation("r", ("t", 2, "s")))
    run(state, reservations.decider, c.Review(NOW))
    before = dump(state)
    free = state.table.free.copy()
    assert when(state, decider, SCHEDULE)
    assert dump(state) == before
    assert (state.table.free == free).all()


def test_owner_rules_are_ored():
    state = given(node("a"), shape("s"), reservation("r", ("t", 1, "s"), owners=(owner(app="x"), owner(app="y"))))
    held(state)
    then(state, pod("mine", labels={"app": "y"}))
    assert place(state) == [e.HandedOver("r", "t-0", "mine", "a")]


def test_a_pod_with_resource_claims_waits_rather_than_being_placed_without_them():
    state = given(node("a"), shape("s", resource_claims=("gpu",)), shape("t"), pod("p"), pod("q", "t"))
    placed, waits = place(state)
    assert placed == e.PodPlaced("q", "a")
    assert (waits.reason, waits.pods) == ("Unschedulable", ("p",))
    assert "resource claims (dynamic resource allocation)" in waits.message


def test_a_pod_whose_request_cannot_be_read_is_never_placed_and_its_user_is_told_why():
    state = given(node("a"), shape("s", unreadable="GPU request: 150 % of a GPU; allowed: 100"), shape("t"), pod("p"), pod("q", "t"))
    placed, waits = place(state)
    assert placed == e.PodPlaced("q", "a")
    assert (waits.reason, waits.pods) == ("Unschedulable", ("p",))
    assert waits.message == "what it asks for cannot be read: GPU request: 150 % of a GPU; allowed: 100"


def test_what_was_said_just_before_capacity_moved_is_said_anew_ten_seconds_later_also_on_a_quiet_cluster():
    state = given(node("a", cpu=500), shape("s"), pod("p"))
    place(state)
    then(state, node("b", cpu=500), time=NOW + 1_000)
    run(state, decider, c.Schedule(NOW + 1_000))
    assert state.waiting["s"].nodes == 1
    when = decider.deadline(state)
    assert when == NOW + 10_000
    assert isinstance(decider.due(state, when), c.Schedule)
    run(state, decider, c.Schedule(when))
    assert state.waiting["s"].nodes == 2
    assert decider.deadline(state) is None


def test_news_for_a_pod_that_waits_are_another_effect_so_that_none_is_taken_for_done():
    """Equal effects are not carried out again for a while."""
    state = given(node("a", cpu=500), shape("s"), pod("p"))
    place(state)
    (first,) = decider.pending(state, None)
    then(state, node("b", cpu=500), time=NOW + 10_000)
    run(state, decider, c.Schedule(NOW + 10_000))
    (second,) = decider.pending(state, None)
    assert first.message == "0/1 nodes are available: 1 Insufficient cpu."
    assert second.message == "0/2 nodes are available: 2 Insufficient cpu."
    assert decider.owed(state, second)
    assert not decider.owed(state, first)
