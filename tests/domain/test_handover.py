"""Hand-over: given a hold and a pod, then who takes it and who goes the normal way (RULES G-3 to G-5, 000-3; DESIGN 5)."""

import pytest
from domain.build import (
    GIB,
    NOW,
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
)
from domain.storage import CLASSES, HOST, claim, on, volume
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import (
    ClaimChoice,
    DeviceShare,
    Expression,
    HostPort,
    LabelSelector,
    Move,
    ObjectRef,
    OwnerRule,
    Packing,
    PodTerm,
    Spread,
    Taint,
)
from restow.domain import migration, session
from restow.domain import reservation as reservations
from restow.domain.binding import allocated_from
from restow.domain.effects import Bind
from restow.domain.session.fitting import View
from restow.domain.session.hold_offers import Offers
from restow.domain.session.journal import Journal

MINE = {"app": "owner"}
WEB = e.WorkloadObserved("uid-web-1", "ReplicaSet", "default", "web-1", replica_of("web", "Deployment"))


def schedule(state):
    return run(state, session.decider, c.Schedule(NOW))


def held(*facts):
    """Everything that is asked for is held; one node with plenty of capacity."""
    state = given(node("a", cpu=64_000, memory=256 * GIB, gpus=4), shape("s"), *facts)
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    return state


def takes(state, *pods) -> dict[str, str]:
    """Which pod takes which place."""
    then(state, *pods)
    return {event.pod: event.slot for event in schedule(state) if isinstance(event, e.HandedOver)}


# -- owners (RULES G-3) ----------------------------------------------------------------------------------------------


def ref(**fields) -> OwnerRule:
    return OwnerRule(object=ObjectRef(**fields))


def labels(*expressions: Expression, **matched: str) -> OwnerRule:
    return OwnerRule(selector=LabelSelector(matched, expressions))


POD = pod("mine", owner=replica_of("web-1"), labels={"app": "web", "tier": "x"}, uid="u-mine")
MATCHES = {
    "object: the pod by name": (ref(kind="Pod", name="mine"), True),
    "object: the pod by uid": (ref(uid="u-mine"), True),
    "object: another uid of that name": (ref(name="mine", uid="u-former"), False),
    "object: of another kind": (ref(kind="Job", name="mine"), False),
    "object: any pod": (ref(kind="Pod"), True),
    "object: any pod of a Job": (ref(kind="Job"), False),
    "object: the API version of pods": (ref(api_version="v1", kind="Pod", name="mine"), True),
    "object: another API version": (ref(api_version="v2", kind="Pod", name="mine"), False),
    "object: its ReplicaSet of another API": (ref(api_version="extensions/v1beta1", kind="ReplicaSet", name="web-1"), False),
    "object: any pod of its namespace": (ref(kind="Pod", namespace="default"), True),
    "object: of another namespace": (ref(name="mine", namespace="else"), False),
    "object: its ReplicaSet": (ref(kind="ReplicaSet", name="web-1"), True),
    "object: its Deployment": (ref(kind="Deployment", name="web"), True),
    "object: another Deployment": (ref(kind="Deployment", name="api"), False),
    "controller: its ReplicaSet": (controlled_by("ReplicaSet", "web-1"), True),
    "controller: its Deployment by uid": (OwnerRule(controller=ObjectRef(uid="uid-web")), True),
    "controller: any ReplicaSet": (controlled_by("ReplicaSet", ""), True),
    "controller: any of an API": (OwnerRule(controller=ObjectRef("ReplicaSet", api_version="apps/v1")), True),
    "controller: of another API": (OwnerRule(controller=ObjectRef("ReplicaSet", name="web-1", api_version="apps.openkruise.io/v1")), False),
    "controller: the pod itself is none": (controlled_by("Pod", "mine"), False),
    "label: one of its own": (owner(app="web"), True),
    "label: all must match": (owner(app="web", tier="y"), False),
    "label: In": (labels(Expression("app", "In", ("api", "web"))), True),
    "label: NotIn": (labels(Expression("app", "NotIn", ("web",))), False),
    "label: NotIn of an absent one": (labels(Expression("zone", "NotIn", ("a",))), True),
    "label: Exists": (labels(Expression("tier", "Exists")), True),
    "label: DoesNotExist": (labels(Expression("tier", "DoesNotExist")), False),
    "label: an operator nobody knows": (labels(Expression("tier", "Near", ("x",))), False),
    "label: an empty selector is everybody": (labels(), True),
    "and: both hold": (OwnerRule(controller=ObjectRef("Deployment", name="web"), selector=LabelSelector({"app": "web"})), True),
    "and: one does not": (OwnerRule(controller=ObjectRef("Deployment", name="web"), selector=LabelSelector({"app": "x"})), False),
}


@pytest.mark.parametrize("case", MATCHES)
def test_a_pod_takes_the_hold_if_all_fields_of_one_owner_match(case):
    rule, expected = MATCHES[case]
    state = held(WEB, reservation("r", ("t", 1, "s"), owners=(rule,)))
    assert bool(takes(state, POD)) is expected


def test_any_of_several_owners_is_enough():
    state = held(WEB, reservation("r", ("t", 1, "s"), owners=(ref(name="nobody"), owner(app="web"))))
    assert takes(state, POD) == {"u-mine": "t-0"}


@pytest.mark.parametrize(("namespace", "expected"), [("default", True), ("else", False), ("", True)])
def test_a_namespaced_reservation_serves_its_namespace_and_one_of_the_cluster_serves_all(namespace, expected):
    state = held(reservation("r", ("t", 1, "s"), namespace=namespace))
    assert bool(takes(state, pod("p", labels=MINE))) is expected


def test_the_deployment_of_a_waiting_pod_may_become_known_later():
    state = given(node("a", cpu=1_000), shape("s"), reservation("r", ("t", 1, "s"), owners=(controlled_by("Deployment", "web"),)))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert takes(state, POD) == {}
    assert session.decider.due(state, NOW) is not None
    assert schedule(state) == []
    assert session.decider.due(state, NOW) is None
    then(state, WEB)
    assert session.decider.due(state, NOW) is not None
    assert takes(state) == {"u-mine": "t-0"}


def test_a_waiting_pod_that_is_labelled_later_becomes_an_owner():
    state = given(node("a", cpu=1_000), shape("s"), reservation("r", ("t", 1, "s")))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert takes(state, pod("p")) == {}
    assert takes(state, pod("p", labels=MINE)) == {"p": "t-0"}


def test_of_equal_reservations_the_earliest_created_is_taken_first_whatever_its_namespace():
    state = held(
        reservation("late", ("t", 1, "s"), created=NOW + 5),
        reservation("wide", ("t", 1, "s"), created=NOW - 9, namespace=""),
        reservation("early", ("t", 1, "s"), created=NOW - 5),
    )
    then(state, *[pod(f"p{i}", labels=MINE) for i in range(3)])
    taken = [event.reservation for event in schedule(state) if isinstance(event, e.HandedOver)]
    assert taken == ["wide", "early", "late"]


class Admitting:
    moves = 0

    def alike(self, pod):
        return pod.shape

    def admits(self, pod, row, hold, slot, equal):
        return ()


def test_a_place_that_is_given_back_is_offered_again_in_its_turn():
    state = held(*[reservation(f"r{i}", ("t", 1, "s"), created=NOW + i) for i in range(3)])
    pods = [pod(f"p{i}", labels=MINE) for i in range(4)]
    then(state, *pods)
    journal = Journal()
    offers = Offers(state, Admitting(), journal)
    taken, marks = [], []
    for one in pods[:3]:
        marks.append(journal.mark())
        taken.append(offers.hand_over(one))
        offers.take(taken[-1])
    assert [handed.reservation for handed in taken] == ["r0", "r1", "r2"]
    assert offers.hand_over(pods[3]) is None
    for n in (2, 0):
        journal.rollback(marks[n])
        assert offers.hand_over(pods[3]).reservation == f"r{n}"


def test_of_many_owners_that_a_rule_keeps_from_every_hold_one_is_asked_about(monkeypatch):
    """Two thousand of them cost a session minutes; and each that comes to be near somebody of the hold's own is asked anew."""
    anti = shape("w", cpu=1_000, pod_anti_affinity=(PodTerm("host", LabelSelector({"app": "foe"})),))
    state = held(anti, node("a", labels={"host": "a"}), reservation("r", ("t", 5, "s"), match_policy="Owner"))
    then(state, pod("foe", "s", "a", labels={"app": "foe"}), *[pod(f"p{i}", "w", labels=MINE | {"number": str(i)}) for i in range(40)])
    asked = []
    admits = View.admits
    monkeypatch.setattr(View, "admits", lambda self, pod, *more: asked.append(pod.pod) or admits(self, pod, *more))
    schedule(state)
    assert set(state.parked) == {f"p{i}" for i in range(40)}
    asked.clear()
    then(state, pod("late", "w", labels=MINE))
    schedule(state)
    assert len(asked) <= 3 * 5, "each place a few times, whoever waits"
    then(state, e.PodGone("foe"))
    taken = [event for event in schedule(state) if isinstance(event, e.HandedOver)]
    assert len(taken) == 5


def test_owners_of_which_a_rule_keeps_only_some_from_a_hold_are_told_apart():
    state = held(node("a", labels={"host": "a"}), reservation("r", ("t", 3, "s"), match_policy="Owner"), shape("f", pod_anti_affinity=(PodTerm("host", LabelSelector({"app": "owner", "x": "y"})),)))
    then(state, pod("foe", "f", "a"), *[pod(f"p{i}", labels=MINE | {"x": "y"}) for i in range(3)], *[pod(f"q{i}", labels=MINE) for i in range(3)])
    taken = [event.pod for event in schedule(state) if isinstance(event, e.HandedOver)]
    assert taken == ["q0", "q1", "q2"]


def test_those_with_equal_owners_are_told_apart_by_namespace_and_by_what_they_hold():
    state = held(shape("x"), reservation("r", ("t", 1, "s")), reservation("else", ("t", 1, "s"), namespace="else"), reservation("rx", ("t", 1, "x")))
    assert takes(state, pod("a", "x", labels=MINE), pod("b", labels=MINE), pod("c", labels=MINE)) == {"a": "t-0", "b": "t-0"}
    assert [state.placed[p].hold for p in "abc"] == [("rx", "t-0"), ("r", "t-0"), None]


def test_a_pod_takes_what_was_held_for_it_in_the_same_session():
    state = given(node("a"), shape("s"), reservation("r", ("t", 1, "s")), pod("p", labels=MINE))
    run(state, reservations.decider, c.Review(NOW))
    assert [type(event) for event in schedule(state)] == [e.HoldPlaced, e.HandedOver]


def test_places_are_taken_in_the_order_of_their_numbers_and_each_once():
    state = held(reservation("r", ("t", 12, "s")))
    pods = [pod(f"p{i:02}", labels=MINE) for i in range(13)]
    assert takes(state, *pods) == {f"p{i:02}": f"t-{i}" for i in range(12)}
    assert state.placed["p12"].hold is None


# -- PodSpec and Owner (RULES G-4, G-5) ------------------------------------------------------------------------------


def test_with_pod_spec_each_pod_takes_a_place_of_its_own_task():
    state = held(shape("x", cpu=250), reservation("r", ("nginx", 2, "s"), ("busybox", 1, "x")))
    assert takes(state, pod("b", "x", labels=MINE), pod("n", "s", labels=MINE)) == {"b": "busybox-0", "n": "nginx-0"}


GROUP = {"scheduling.k8s.io/group-name": "job"}


@pytest.mark.parametrize("annotation", ["scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name"])
@pytest.mark.parametrize(("pods", "taken"), [(2, 0), (3, 3), (4, 0)])
def test_with_pod_spec_a_group_must_have_as_many_pods_as_there_are_places(annotation, pods, taken):
    state = held(reservation("r", ("t", 3, "s")))
    gang = [pod(f"p{i}", labels=MINE, annotations={annotation: "job"}) for i in range(pods)]
    assert len(takes(state, *gang)) == taken
    assert len(state.placed) == pods  # jobs matched by owner fall back to normal scheduling (RULES 000-2)


def test_the_numbers_must_be_equal_for_each_pod_spec():
    for tasks, taken in (((("a", 1, "s"), ("b", 2, "x")), 3), ((("a", 2, "s"), ("b", 1, "x")), 0)):
        state = held(shape("x", cpu=250), reservation("r", *tasks))
        gang = [pod(f"p{i}", s, labels=MINE, annotations=GROUP) for i, s in enumerate("sxx")]
        assert len(takes(state, *gang)) == taken


def test_failed_pods_of_a_group_are_replaced_and_other_groups_do_not_count():
    state = held(reservation("r", ("t", 1, "s")))
    then(state, pod("old", labels=MINE, annotations=GROUP, node="a", phase="Failed"))
    then(state, pod("else", labels=MINE, annotations=GROUP, namespace="else"))
    assert takes(state, pod("new", labels=MINE, annotations=GROUP)) == {"new": "t-0"}


def test_with_owner_the_number_of_pods_does_not_matter():
    state = held(reservation("r", ("t", 3, "s"), match_policy="Owner"))
    assert takes(state, pod("p", labels=MINE, annotations=GROUP)) == {"p": "t-0"}


@pytest.mark.parametrize("policy", ["PodSpec", "Owner"])
@pytest.mark.parametrize(
    "change", [{"ready": False}, {"unschedulable": True}, {"taints": (Taint("k", "NoSchedule"),)}, {"taints": (Taint("k", "NoExecute"),)}]
)
def test_no_hold_is_handed_over_on_a_node_that_takes_no_pods_now(policy, change):
    state = held(reservation("r", ("t", 1, "s"), match_policy=policy))
    then(state, node("a", cpu=64_000, memory=256 * GIB, gpus=4, **change))
    assert takes(state, pod("p", labels=MINE)) == {}
    assert state.slots["r"]["t-0"].phase == "Available"
    then(state, node("a", cpu=64_000, memory=256 * GIB, gpus=4))
    assert takes(state) == {"p": "t-0"}


def test_with_pod_spec_the_filters_are_skipped_and_with_owner_they_are_not():
    for policy, taken in (("PodSpec", {"p": "t-0"}), ("Owner", {})):
        state = given(node("a", labels={"zone": "x"}), shape("s", node_selector={"zone": "x"}), reservation("r", ("t", 1, "s"), match_policy=policy))
        run(state, reservations.decider, c.Review(NOW))
        schedule(state)
        then(state, node("a", labels={"zone": "y"}))
        assert takes(state, pod("p", labels=MINE)) == taken


def test_a_hold_keeps_others_away_also_right_after_its_owner_was_looked_at():
    """RULES 004-4. To its owner, which asks for too much here and is looked at first, it is not there."""
    here, mine = LabelSelector({"app": "other"}), LabelSelector(MINE)
    for terms, names, placed in (((PodTerm(HOST, here),), "a", {}), ((PodTerm(HOST, here, weight=1),), "ab", {"p": "b"})):
        state = given(
            [node(name, cpu=4_000, labels={HOST: name}) for name in names], shape("apart", pod_anti_affinity=terms), shape("s"),
            shape("big", cpu=8_000, spread=(Spread(1, HOST, "DoNotSchedule", mine),)), reservation("r", ("t", 1, "apart"), match_policy="Owner", node="a"),
        )  # fmt: skip
        run(state, reservations.decider, c.Review(NOW))
        schedule(state)
        then(state, [pod(f"{name}-runs", node=name) for name in names if name == "b"])
        then(state, pod("owner", "big", labels=MINE), pod("p", labels={"app": "other"}))
        assert {x.pod: x.node for x in schedule(state) if isinstance(x, e.PodPlaced)} == placed


def test_with_pod_spec_what_admission_added_to_the_pod_must_fit_beside_the_hold():
    for memory, taken in ((GIB, {"p": "t-0"}), (4 * GIB, {})):
        state = given(
            node("a", cpu=1_000, memory=3 * GIB), shape("s", memory=0, spec_digest="d"),
            shape("limited", memory=memory, spec_digest="d"), reservation("r", ("t", 1, "s")),
        )  # fmt: skip
        run(state, reservations.decider, c.Review(NOW))
        schedule(state)
        assert takes(state, pod("p", "limited", labels=MINE)) == taken
        assert (state.table.free >= 0).all()


def test_with_owner_a_larger_pod_takes_the_hold_where_the_node_has_the_rest():
    for cpu, taken in ((1_500, {"p": "t-0"}), (2_500, {})):
        state = given(node("a", cpu=2_000), shape("s"), shape("big", cpu=cpu), reservation("r", ("t", 1, "s"), match_policy="Owner"))
        run(state, reservations.decider, c.Review(NOW))
        schedule(state)
        assert takes(state, pod("p", "big", labels=MINE)) == taken
        assert (state.table.free >= 0).all()


def test_the_pod_gets_the_devices_that_were_held_for_it():
    state = given(node("a", gpus=2), shape("s", gpu=(1, 500)), pod("other", node="a", devices=(DeviceShare(0, 500),)))
    then(state, reservation("r", ("t", 1, "s")))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    slot = state.slots["r"]["t-0"]
    takes(state, pod("p", labels=MINE))
    assert state.charges["p"].devices == slot.devices


def test_the_pod_gets_a_volume_on_the_node_that_was_held_for_it():
    facts = [*CLASSES, node("b", labels={HOST: "b"}), node("a", labels={HOST: "a"}), volume("va", affinity=on("a")), volume("vb", affinity=on("b"))]
    state = given(*facts, shape("s"), reservation("r", ("t", 1, "s"), node="b"))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    then(state, claim("c"), pod("p", labels=MINE, claims=("c",)))
    assert schedule(state) == [e.HandedOver("r", "t-0", "p", "b", volumes=(ClaimChoice("default/c", "vb"),))]


def test_a_device_that_the_node_has_lost_is_handed_to_nobody():
    for policy in ("PodSpec", "Owner"):
        state = given(node("a", gpus=2), shape("s", gpu=(1, 1000)), pod("other", node="a", devices=(DeviceShare(0, 1000),)))
        then(state, reservation("r", ("t", 1, "s"), match_policy=policy))
        run(state, reservations.decider, c.Review(NOW))
        schedule(state)
        then(state, node("a", gpus=1))
        assert takes(state, pod("p", labels=MINE)) == {}


def test_a_pinned_pod_takes_only_a_hold_on_its_node():
    state = held(reservation("r", ("t", 1, "s")))
    assert takes(state, pod("p", labels=MINE, pinned_node="b")) == {}
    assert takes(state, pod("q", labels=MINE, pinned_node="a")) == {"q": "t-0"}


def test_what_is_asked_back_is_not_handed_over_even_where_the_releases_take_several_sessions():
    state = held(*[reservation(f"r{i}", ("t", 1, "s")) for i in range(3)])
    then(state, *[e.Expired(f"r{i}") for i in range(3)], pod("p", labels=MINE))
    events = run(state, session.decider, c.Schedule(NOW, limit=1))
    assert [type(event) for event in events] == [e.HoldReleased]
    assert takes(state) == {}


# -- migrations (DESIGN 5) -------------------------------------------------------------------------------------------

OWNER = replica_of("rs")
NONE = Packing(0, 0, 0, 0, 0, 0)


def migrating(*pods: str):
    """Holds for these pods' successors are in place and the evictions are under way."""
    moves = tuple(Move(f"x-{i}", p, "default", p, "a", "b") for i, p in enumerate(pods, 1))
    state = given(node("a"), node("b"), shape("s"), *[pod(p, node="a", owner=OWNER) for p in pods])
    then(state, e.Planned("x", "Defragmentation", moves, NONE, NONE))
    run(state, migration.decider, c.Advance(NOW))
    for move in moves:
        then(state, reservation(f"h-{move.pod}", ("hold", 1, "s"), migration=move.migration, node="b", match_policy="Owner", ttl=0))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    run(state, migration.decider, c.Advance(NOW))
    return state


def evicted(state, *pods: str):
    for p in pods:
        then(state, e.PodChanged(p, "a", "Running", deleting=NOW))
    return state


def hold_of(state, pod: str):
    placement = state.placed.get(pod)
    return None if placement is None or placement.hold is None else placement.hold[0]


def test_successors_take_the_holds_in_the_order_in_which_their_predecessors_ended():
    state = evicted(migrating("p", "q"), "q", "p")
    then(state, pod("s1", owner=OWNER), pod("s2", owner=OWNER))
    schedule(state)
    assert {hold_of(state, "s1"), hold_of(state, "s2")} == {"h-p", "h-q"}
    state = evicted(migrating("p", "q"), "q")
    then(state, pod("s1", owner=OWNER))
    evicted(state, "p")
    schedule(state)
    assert hold_of(state, "s1") in ("h-p", "h-q")


def test_a_pod_without_a_controller_is_nobodys_successor():
    state = evicted(migrating("p"), "p")
    then(state, pod("bare"))
    schedule(state)
    assert hold_of(state, "bare") is None


def test_a_rejected_successor_frees_the_hold_for_the_next_one_and_only_for_it():
    state = evicted(migrating("p"), "p")
    then(state, pod("s1", owner=OWNER))
    schedule(state)
    assert hold_of(state, "s1") == "h-p"
    then(state, e.PodChanged("s1", "b", "Failed", reason="OutOfcpu"), pod("s2", owner=OWNER))
    for _ in range(3):
        schedule(state)
    assert hold_of(state, "s2") == "h-p"
    used = [slot.pod for slot in state.slots["h-p"].values()]
    assert used == ["s2"]
    assert state.table.used[state.table.rows["b"], state.table.columns["cpu"]] == 1_000


def test_an_impostor_with_our_label_serves_only_its_owners():
    state = evicted(migrating("p"), "p")
    fake = replace(reservation("fake", ("t", 1, "s"), migration="x-1", match_policy="Owner"), name="restow-x-1", namespace="else")
    then(state, fake, e.ReservationGone("h-p"))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    then(state, pod("s1", owner=OWNER))
    schedule(state)
    assert hold_of(state, "s1") is None


def test_host_ports_come_from_every_reservation_that_the_pod_owns():
    """Seed 004: it applies for the reserved ports of one Reservation, and for others of other matching ones (RULES 004-3)."""
    ports = {name: tuple(HostPort(port) for port in found) for name, found in {"sa": (7777,), "sb": (8888,), "both": (7777, 8888)}.items()}
    state = given(
        node("a"), *(shape(name, host_ports=found) for name, found in ports.items()),
        reservation("ra", ("t", 1, "sa"), match_policy="Owner"), reservation("rb", ("t", 1, "sb"), match_policy="Owner"),
    )  # fmt: skip
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    assert takes(state, pod("stranger", "sb")) == {}
    assert takes(state, pod("p", "both", labels={"app": "owner"})) == {"p": "t-0"}


@pytest.mark.parametrize("once", [True, False])
def test_a_pod_is_bound_although_the_reservation_that_it_has_drawn_from_is_gone_meanwhile(once):
    state = held(reservation("r", ("t", 1, "s"), allocate_once=once))
    assert takes(state, pod("p", labels=MINE)) == {"p": "t-0"}
    (bind,) = [effect for effect in session.decider.pending(state, None) if isinstance(effect, Bind)]
    assert allocated_from(state, "p").name == "r"
    then(state, e.ReservationGone("r"))
    assert session.decider.owed(state, bind)
    assert (allocated_from(state, "p") is None) is once
