"""What pods take of holds, and when it comes back (issue 4; RULES 003-1, 004-1, 004-3, 004-4)."""

import pytest
from domain.build import (
    NOW,
    changed,
    given,
    member,
    node,
    owner,
    pod,
    pod_group,
    reservation,
    run,
    shape,
    then,
    when,
)
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, HostPort, LabelSelector, PodTerm
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.records import ON_NODE
from restow.domain.session import borrowing
from restow.domain.session.preemption.evictable import may_go
from restow.domain.snapshot import dump, load
from restow.domain.statuses.reservation_status import status

MINE = {"app": "owner"}
IGNORES = {"scheduling.koordinator.sh/reservation-ignored": "true"}


def hold(name, size, **spec):
    """One place, as of the template form."""
    spec.setdefault("match_policy", "Owner")
    return reservation(name, ("reservation", 1, size), **spec)


def settle(state):
    """Everything that is due now; returns the session's events."""
    run(state, reservations.decider, c.Review(NOW))
    seen = []
    while (command := session.decider.due(state, NOW)) is not None:
        events = run(state, session.decider, command)
        seen += events
        if not events:
            return seen
    return seen


def one(cpu=16_000, **more):
    """A machine, and shapes by what they ask for."""
    return given(node("a", cpu=cpu, **more), *[shape(f"c{n}", cpu=n * 1_000) for n in (1, 2, 3, 4, 6, 8, 16)])


def free(state, name="a", resource="cpu"):
    return int(state.table.free[state.table.rows[name], state.table.columns[resource]])


def reserved(state, name="a"):
    return int(state.table.reserved[state.table.rows[name], state.table.columns["cpu"]])


def drawn(state, name):
    """Of cpu."""
    draw = state.allocations.get(name)
    return dict(draw.items).get(state.table.columns["cpu"], 0) if draw else None


def phase(state, name="r"):
    return state.phases[name].phase


# -- once, and by many -----------------------------------------------------------------------------------------------


def test_the_first_owner_of_a_hold_that_is_allocated_once_ends_it_and_the_rest_is_free_for_all():
    state = one()
    settle(then(state, hold("r", "c4")))
    settle(then(state, pod("o", "c2", labels=MINE)))
    assert (phase(state), reserved(state), free(state)) == ("Succeeded", 0, 14_000)
    assert drawn(state, "o") == 2_000


def test_many_owners_share_a_reusable_hold_until_it_is_empty_and_what_they_used_comes_back():
    state = one()
    settle(then(state, hold("r", "c8", allocate_once=False)))
    settle(then(state, pod("o1", "c4", labels=MINE), pod("o2", "c4", labels=MINE)))
    assert (phase(state), reserved(state), free(state)) == ("Available", 0, 8_000)
    settle(then(state, changed("o1", node="a", phase="Running"), changed("o1", node="a", phase="Succeeded")))
    assert (phase(state), reserved(state), free(state)) == ("Available", 4_000, 8_000)
    settle(then(state, e.PodGone("o1"), e.PodGone("o2")))
    assert (reserved(state), free(state), state.allocations, state.slot_users) == (8_000, 8_000, {}, {})


@pytest.mark.parametrize("once", [False, True])
def test_what_a_gang_has_drawn_that_cannot_be_complete_is_there_for_the_next_one_in_the_same_session(once):
    """Two of three fit, one in the hold and one beside it; the pod after them wants just what was held."""
    state = one(cpu=6_000)
    settle(then(state, hold("r", "c4", allocate_once=once)))
    gang = [member(f"m{i}", "g", "c3", labels=MINE, created=NOW) for i in range(3)]
    then(state, pod_group("g", need=3), *gang, pod("o", "c4", labels=MINE), pod("other", "c3"))
    said = run(state, session.decider, c.Schedule(NOW))
    assert [(event.reservation, event.pod) for event in said if isinstance(event, e.HandedOver)] == [("r", "o")]
    assert (drawn(state, "o"), reserved(state), free(state)) == (4_000, 0, 2_000)
    assert list(state.placed) == ["o"]


def test_what_the_hold_lacks_comes_from_the_node():
    state = one()
    settle(then(state, hold("r", "c6", allocate_once=False)))
    settle(then(state, pod("o1", "c4", labels=MINE), pod("o2", "c4", labels=MINE)))
    assert [drawn(state, name) for name in ("o1", "o2")] == [4_000, 2_000]
    assert (reserved(state), free(state)) == (0, 8_000)


@pytest.mark.parametrize(("policy", "restricted", "taken"), [("Aligned", (), True), ("Restricted", (), False), ("Restricted", ("memory",), True), ("Covering", (), False)])
def test_the_policy_says_what_may_come_from_the_node(policy, restricted, taken):
    state = one()
    settle(then(state, hold("r", "c4", allocate_policy=policy, restricted=restricted)))
    settle(then(state, pod("o", "c6", labels=MINE)))
    assert (drawn(state, "o") is not None) is taken
    assert state.placed["o"].node == "a", "who cannot take it goes the normal way"


def test_restricted_is_about_what_the_hold_names_and_covering_about_all_that_the_pod_asks_for():
    for policy, taken in (("Restricted", True), ("Covering", False)):
        state = given(node("a"), shape("cpu", cpu=4_000, memory=0), shape("both", cpu=4_000))
        settle(then(state, hold("r", "cpu", allocate_policy=policy)))
        settle(then(state, pod("o", "both", labels=MINE)))
        assert (drawn(state, "o") is not None) is taken, policy


def test_what_an_owner_returns_goes_to_the_hold_before_a_nomination():
    state = one(cpu=8_000)
    settle(then(state, hold("r", "c4", allocate_once=False)))
    settle(then(state, pod("o", "c4", labels=MINE), pod("x", "c4")))
    then(state, pod("big", "c8"), e.Nominated("big", "a", NOW + 1_000))
    then(state, e.PodGone("o"))
    assert reserved(state) == 4_000
    assert state.table.columns["cpu"] not in dict(state.nominations["big"].capacity.held), "all of it is the hold's"


# -- an owner that never came ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["refused", "gone", "elsewhere"])
def test_a_hold_whose_owner_was_never_bound_there_is_held_again(end):
    state = one()
    then(state, node("b", cpu=1_000))
    settle(then(state, hold("r", "c4")))
    settle(then(state, pod("o", "c4", labels=MINE)))
    assert phase(state) == "Succeeded"
    if end == "refused":
        run(state, session.decider, c.RefuseBind(NOW, "o", "a", "no"))
    elif end == "gone":
        then(state, e.PodGone("o"))
    else:
        then(state, changed("o", node="b"))
    assert reserved(state) == 4_000
    assert phase(state) == "Waiting"
    settle(state)
    assert phase(state) == ("Succeeded" if end == "refused" else "Available"), "a refused pod gets it once more"


def test_succeeded_outlives_a_pod_that_has_run():
    state = one()
    settle(then(state, hold("r", "c4")))
    settle(then(state, pod("o", "c4", labels=MINE)))
    settle(then(state, changed("o", node="a", phase="Running"), e.PodGone("o")))
    assert (phase(state), reserved(state)) == ("Succeeded", 0)
    assert state.slots["r"]["reservation-0"].owner == "default/o"


def test_a_hold_that_expired_meanwhile_is_not_held_again():
    state = one()
    settle(then(state, hold("r", "c4")))
    settle(then(state, pod("o", "c4", labels=MINE)))
    then(state, e.Expired("r"), e.PodGone("o"))
    settle(state)
    assert (reserved(state), free(state)) == (0, 16_000)


# -- capacity that has to come -----------------------------------------------------------------------------------------------


def test_pre_allocation_waits_for_the_capacity_of_others_and_nobody_else_gets_it():
    state = one(cpu=8_000)
    then(state, pod("x", "c4", "a"), hold("r", "c6", pre_allocation=True))
    assert settle(state)[-1] == e.HoldPlaced("r", "reservation-0", "a", shape="c6", waiting=True)
    assert (phase(state), reserved(state), free(state)) == ("Waiting", 4_000, 0)
    settle(then(state, pod("late", "c2"), pod("o", "c6", labels=MINE)))
    assert state.parked.keys() == {"late", "o"}
    assert e.HoldReady("r", "reservation-0") in settle(then(state, e.PodGone("x")))
    assert state.placed["o"].hold == ("r", "reservation-0")
    assert state.placed["late"].node == "a"


def test_what_is_free_of_a_device_is_held_at_once_for_a_place_that_waits_for_something_else():
    """It waits for cpu, and a pod that comes in the same session has what is left of the GPU, and no more."""
    shapes = shape("x", cpu=3_000, gpu=(1, 900)), shape("r", cpu=2_000, gpu=(1, 300)), shape("p", cpu=0, gpu=(1, 800)), shape("q", cpu=0, gpu=(1, 700))
    state = given(node("a", cpu=4_000, gpus=2), *shapes, pod("x", "x", "a", devices=(DeviceShare(1, 900),)), hold("r", "r", pre_allocation=True))
    run(then(state, pod("p", "p"), pod("q", "q")), reservations.decider, c.Review(NOW))
    said = run(state, session.decider, c.Schedule(NOW))
    assert [type(event) for event in said] == [e.HoldPlaced, e.PodPlaced, e.Unfit]
    assert list(state.placed) == ["q"]


def test_pre_allocation_takes_free_capacity_where_there_is_some():
    state = one()
    settle(then(state, hold("r", "c4", pre_allocation=True)))
    assert phase(state) == "Available"


def test_pre_allocation_never_waits_on_a_node_that_is_too_small():
    state = one(cpu=4_000)
    settle(then(state, hold("r", "c6", pre_allocation=True)))
    assert phase(state) == "Pending"
    assert state.phases["r"].message == "0/1 nodes are available: 1 Insufficient cpu."


def test_pre_allocation_goes_where_the_capacity_can_come_free_and_not_where_another_hold_keeps_it():
    state = one(cpu=4_000)
    settle(then(state, hold("other", "c3")))
    then(state, node("b", cpu=4_000), pod("x", "c4", "b"), pod("y", "c1", "a"))
    settle(then(state, hold("r", "c2", pre_allocation=True)))
    assert state.slots["r"]["reservation-0"].node == "b"


def test_a_foreign_pod_takes_capacity_from_the_latest_hold_which_has_it_back_first():
    state = one(cpu=8_000)
    settle(then(state, hold("r1", "c4")))
    settle(then(state, hold("r2", "c4", created=NOW + 1)))
    then(state, pod("foreign", "c2", "a"))
    assert (phase(state, "r1"), phase(state, "r2")) == ("Available", "Waiting")
    assert free(state) == 0
    settle(then(state, pod("n", "c1"), e.PodGone("foreign")))
    assert (phase(state, "r2"), "n" in state.parked) == ("Available", True)


def test_a_hold_that_its_node_can_never_have_again_is_placed_elsewhere():
    state = one(cpu=4_000)
    settle(then(state, hold("r", "c4")))
    then(state, node("b", cpu=4_000), node("a", cpu=2_000))
    assert phase(state) == "Waiting"
    events = settle(state)
    assert events[0] == e.HoldReleased("r", "reservation-0", "Unavailable")
    assert (phase(state), state.slots["r"]["reservation-0"].node) == ("Available", "b")


def test_who_ignores_reservations_borrows_where_nothing_is_free():
    state = one(cpu=8_000)
    settle(then(state, hold("r", "c6")))
    settle(then(state, pod("i", "c2", labels=IGNORES)))
    assert (phase(state), free(state)) == ("Available", 0)
    assert settle(then(state, pod("j", "c4", labels=IGNORES))) == [
        e.HoldBorrowed("r", "reservation-0", "j"),
        e.PodPlaced("j", "a"),
    ]
    assert (phase(state), reserved(state), free(state)) == ("Waiting", 2_000, 0)
    settle(then(state, e.PodGone("j")))
    assert (phase(state), reserved(state)) == ("Available", 6_000)


def test_who_ignores_reservations_borrows_from_as_few_holds_as_are_enough_the_latest_first():
    for size, lenders in ((2, ["r3"]), (6, ["r3", "r2"])):
        state = one(cpu=12_000)
        for i in (1, 2, 3):
            settle(then(state, hold(f"r{i}", "c4", created=NOW + i)))
        said = settle(then(state, pod("i", f"c{size}", labels=IGNORES)))
        assert said == [*(e.HoldBorrowed(name, "reservation-0", "i") for name in lenders), e.PodPlaced("i", "a")]


# -- updates -------------------------------------------------------------------------------------------------------------


def test_a_gang_that_has_borrowed_and_cannot_be_complete_gives_all_back():
    state = one(cpu=8_000)
    settle(then(state, hold("r", "c6")))
    gang = [member(f"m{i}", "g", "c3", labels=IGNORES) for i in range(3)]
    then(state, pod_group("g", need=3), *gang, pod("other", "c3"), pod("i", "c8", labels=IGNORES))
    said = run(state, session.decider, c.Schedule(NOW))
    assert said[:2] == [e.HoldBorrowed("r", "reservation-0", "i"), e.PodPlaced("i", "a")], "who needs all that is free and all that is held"
    assert list(state.placed) == ["i"]


def test_a_hold_grows_and_shrinks_on_its_node():
    state = one()
    settle(then(state, hold("r", "c4")))
    assert settle(then(state, hold("r", "c8", generation=2))) == [e.HoldResized("r", "reservation-0", "c8")]
    assert (phase(state), reserved(state)) == ("Available", 8_000)
    settle(then(state, hold("r", "c2", generation=3)))
    assert (phase(state), reserved(state), state.resizes) == ("Available", 2_000, {})


def test_a_hold_that_cannot_grow_where_it_is_moves_in_one_commit():
    state = one(cpu=6_000)
    settle(then(state, hold("r", "c4")))
    then(state, pod("x", "c2", "a"), node("b", cpu=8_000))
    events = settle(then(state, hold("r", "c8", generation=2)))
    assert events == [
        e.HoldReleased("r", "reservation-0", "Superseded"),
        e.HoldPlaced("r", "reservation-0", "b", shape="c8"),
    ]


def test_a_hold_that_can_grow_nowhere_keeps_its_size_until_it_can():
    state = one(cpu=6_000)
    settle(then(state, hold("r", "c4")))
    settle(then(state, pod("x", "c2")))
    settle(then(state, hold("r", "c6", generation=2)))
    assert (phase(state), reserved(state)) == ("Available", 4_000)
    assert state.slots["r"]["reservation-0"].reasons == {"Insufficient cpu": 1}
    settle(then(state, e.PodGone("x")))
    assert reserved(state) == 6_000


def test_what_owners_have_drawn_counts_in_the_new_size():
    state = one()
    settle(then(state, hold("r", "c4", allocate_once=False)))
    settle(then(state, pod("o", "c3", labels=MINE)))
    settle(then(state, hold("r", "c8", allocate_once=False, generation=2)))
    assert (reserved(state), free(state)) == (5_000, 8_000)
    settle(then(state, hold("r", "c2", allocate_once=False, generation=3)))
    assert reserved(state) == 0
    settle(then(state, e.PodGone("o")))
    assert reserved(state) == 2_000, "no more comes back than it is of"


def test_other_owners_count_at_once():
    state = one()
    settle(then(state, hold("r", "c4")))
    settle(then(state, hold("r", "c4", owners=(owner(app="other"),), generation=2)))
    settle(then(state, pod("o", "c4", labels=MINE), pod("p", "c4", labels={"app": "other"})))
    assert [drawn(state, name) for name in ("o", "p")] == [None, 4_000]


# -- which one -----------------------------------------------------------------------------------------------------------


def test_order_then_what_covers_more_then_what_would_be_fuller_then_the_earliest():
    state = given(node("a", cpu=64_000), *[shape(f"c{n}", cpu=n * 1_000) for n in (2, 4, 8)])
    ordered = {"scheduling.koordinator.sh/reservation-order": "7"}
    then(
        state,
        hold("small", "c2", created=NOW - 9),
        hold("large", "c8", created=NOW - 8),
        hold("late", "c4", created=NOW - 1),
        hold("early", "c4", created=NOW - 2),
    )
    then(state, replace(hold("first", "c2"), labels=ordered))
    settle(state)
    settle(then(state, *[pod(f"o{i}", "c4", labels=MINE) for i in range(5)]))
    assert [state.allocations[f"o{i}"].reservation for i in range(5)] == ["first", "early", "late", "large", "small"]


def test_a_hold_of_which_all_memory_is_drawn_is_fuller_than_one_that_has_a_byte_left():
    state = given(node("a"), shape("hold", memory=1_000), shape("all", cpu=0, memory=1_000), shape("most", cpu=0, memory=999), shape("cpu", memory=0))
    settle(then(state, hold("early", "hold", allocate_once=False, owners=(owner(app="early"), owner(app="both")), created=NOW)))
    settle(then(state, hold("late", "hold", allocate_once=False, owners=(owner(app="late"), owner(app="both")), created=NOW + 1)))
    settle(then(state, pod("x", "most", labels={"app": "early"}), pod("y", "all", labels={"app": "late"})))
    assert (drawn(state, "x"), drawn(state, "y")) == (0, 0)
    settle(then(state, pod("p", "cpu", labels={"app": "both"})))
    assert state.allocations["p"].reservation == "late"


def test_there_is_one_reusable_reservation_of_a_kind_on_a_node():
    state = one()
    settle(then(state, hold("r1", "c2", allocate_once=False), hold("r2", "c2", allocate_once=False), hold("r3", "c4", allocate_once=False)))
    assert [phase(state, name) for name in ("r1", "r2", "r3")] == ["Available", "Pending", "Available"]
    assert "already had an equal reusable reservation" in state.phases["r2"].message
    settle(then(state, node("b")))
    assert state.slots["r2"]["reservation-0"].node == "b"


def test_those_with_other_owners_or_in_another_namespace_are_of_another_kind():
    state = one()
    other = hold("r2", "c2", allocate_once=False, owners=(owner(app="other"),)), hold("r3", "c2", allocate_once=False, namespace="else")
    run(then(state, hold("r1", "c2", allocate_once=False), *other), reservations.decider, c.Review(NOW))
    run(state, session.decider, c.Schedule(NOW))
    assert [phase(state, name) for name in ("r1", "r2", "r3")] == ["Available"] * 3, "in one session"


def test_a_pod_with_reservation_affinity_uses_a_reservation_or_waits():
    affinity = {"scheduling.koordinator.sh/reservation-affinity": '{"reservationSelector": {"tier": "gold"}}'}
    state = one()
    settle(then(state, hold("r", "c4"), pod("o", "c4", labels=MINE, annotations=affinity)))
    (key, _) = state.parked["o"]
    assert "does not match the pod's reservation affinity" in state.waiting[key].message


@pytest.mark.parametrize(("spec", "why"), [({"allocate_policy": "Restricted"}, "has no capacity that the pod can take"), ({"pre_allocation": True}, "is not available")])
def test_who_must_use_a_reservation_and_can_use_none_is_told_what_is_against_it(spec, why):
    """It is too small, or waits for the capacity of another pod."""
    affinity = {"scheduling.koordinator.sh/reservation-affinity": "{}"}
    state = one(cpu=4_000)
    settle(then(state, pod("x", "c2", "a"), hold("r", "c2" if "allocate_policy" in spec else "c3", **spec)))
    settle(then(state, pod("o", "c3", labels=MINE, annotations=affinity)))
    (key, _) = state.parked["o"]
    assert state.waiting[key].message == f"of 1 slot of Reservations that it owns: 1 {why}"


# -- rules about what runs -------------------------------------------------------------------------------------------------


APART = PodTerm("kubernetes.io/hostname", LabelSelector(MINE))


def apart(**more):
    return shape("apart", cpu=1_000, pod_anti_affinity=(APART,), **more)


def hosts(*names):
    return [node(name, labels={"kubernetes.io/hostname": name}) for name in names]


def labelled(name, **spec):
    made = hold(name, "apart", **spec)
    task = made.spec.tasks[0]
    return replace(made, spec=replace(made.spec, tasks=(replace(task, labels=MINE, namespace="default"),)))


def test_a_hold_is_not_in_the_way_of_its_own_owner():
    state = given(*hosts("a"), apart())
    settle(then(state, labelled("r")))
    settle(then(state, pod("o", "apart", labels=MINE)))
    assert state.placed["o"].hold == ("r", "reservation-0")


def test_of_many_owners_that_keep_apart_the_first_takes_the_hold_and_the_others_other_nodes():
    state = given(*hosts("a", "b"), apart())
    settle(then(state, labelled("r", allocate_once=False)))
    where = state.slots["r"]["reservation-0"].node
    settle(then(state, *[pod(f"o{i}", "apart", labels=MINE) for i in range(3)]))
    placed = [state.placed[f"o{i}"].node if f"o{i}" in state.placed else "" for i in range(3)]
    assert placed[0] == where
    assert sorted(placed) == ["", "a", "b"]


def test_others_see_a_hold_as_a_pod_even_where_it_has_no_affinity_itself():
    state = given(*hosts("a"), apart(), shape("plain"))
    made = hold("r", "plain", owners=(owner(app="owner", special="yes"),))
    task = replace(made.spec.tasks[0], labels=MINE, namespace="default")
    settle(then(state, replace(made, spec=replace(made.spec, tasks=(task,)))))
    settle(then(state, pod("n", "apart", labels=MINE)))
    assert state.waiting["apart/n" if "apart/n" in state.waiting else "apart"].reasons, "no owner: it may not run beside"


def test_ports_are_kept_from_others_and_given_to_owners_one_by_one():
    ports = {p: HostPort(p) for p in (7777, 8888, 9999)}
    state = given(node("a"), shape("three", host_ports=tuple(ports.values())), *[shape(f"p{p}", host_ports=(ports[p],)) for p in ports])
    settle(then(state, hold("r", "three", allocate_once=False)))
    settle(then(state, pod("n", "p7777"), pod("o1", "p7777", labels=MINE), pod("o2", "p8888", labels=MINE), pod("o3", "p7777", labels=MINE)))
    assert [name in state.placed for name in ("n", "o1", "o2", "o3")] == [False, True, True, False]
    settle(then(state, e.PodGone("o1")))
    assert "n" not in state.placed, "the port is the hold's again"
    assert "o3" in state.placed


def test_ports_of_several_reservations_go_to_one_pod():
    a, b = HostPort(7777), HostPort(8888)
    state = given(node("a"), shape("pa", host_ports=(a,)), shape("pb", host_ports=(b,)), shape("both", host_ports=(a, b)))
    settle(then(state, hold("ra", "pa"), hold("rb", "pb")))
    settle(then(state, pod("o", "both", labels=MINE)))
    assert "o" in state.placed


@pytest.mark.parametrize("of", ["a hold", "another size of a hold"])
def test_a_port_of_a_hold_whose_hand_over_is_void_is_no_other_holds(of):
    """The owner does not ask for the port, so the hold's end would leave it to the next one; but the owner is gone before that is true."""
    state = then(one(8_000), shape("port", cpu=1_000, memory=0, host_ports=(HostPort(80),)))
    settle(then(state, hold("a", "port")))
    other = hold("b", "port" if of == "a hold" else "c1", owners=(owner(app="b"),))
    settle(then(state, other))
    if of != "a hold":
        port = replace(other.spec.tasks[0], shape="port")
        then(state, replace(other, generation=2, spec=replace(other.spec, tasks=(port,))))
        run(state, reservations.decider, c.Review(NOW))
    then(state, pod("p", "c1", labels=MINE))
    decided = when(state, session.decider, session.decider.due(state, NOW))
    assert [type(event) for event in decided] == [e.HandedOver, e.HoldPlaced if of == "a hold" else e.HoldResized]
    then(state, e.PodGone("p"), decided)
    settle(state)
    assert [uid for uid, slots in state.slots.items() for slot in slots.values() if slot.phase in ON_NODE and slot.shape == "port"] == ["a"]
    settle(then(state, pod("q", "port", labels=MINE)))
    assert state.placed["q"].hold == ("a", "reservation-0")
    settle(then(state, changed("q", node="a", phase="Running", ready=True), e.PodGone("q")))
    assert [uid for uid, slots in state.slots.items() for slot in slots.values() if slot.phase in ON_NODE and slot.shape == "port"] == ["b"]


@pytest.mark.parametrize(("mine", "theirs", "stays"), [("10.0.0.1", "10.0.0.2", True), ("10.0.0.1", "10.0.0.1", False), ("10.0.0.1", "0.0.0.0", False), ("0.0.0.0", "10.0.0.2", False)])
def test_a_hold_that_has_its_place_back_keeps_it_beside_one_that_has_the_port_of_another_address(mine, theirs, stays):
    """Its owner asked for no port, so others could have it; then somebody binds that owner elsewhere."""
    ports = [shape(name, cpu=1_000, memory=0, host_ports=(HostPort(80, ip=ip),)) for name, ip in (("mine", mine), ("theirs", theirs))]
    state = then(one(8_000), *ports)
    settle(then(state, hold("a", "mine")))
    settle(then(state, pod("p", "c1", labels=MINE)))
    settle(then(state, hold("b", "theirs", owners=(owner(app="b"),))))
    assert state.slots["b"]["reservation-0"].phase in ON_NODE
    then(state, node("other"), changed("p", node="other"))
    gone = [event for event in settle(state) if isinstance(event, e.HoldReleased)]
    assert (gone == []) == stays
    assert all(slots["reservation-0"].phase in ON_NODE for slots in state.slots.values())
    assert (state.slots["a"]["reservation-0"].node == state.slots["b"]["reservation-0"].node) == stays


# -- it survives ---------------------------------------------------------------------------------------------------------


def test_a_snapshot_between_has_no_influence():
    state = one(cpu=8_000)
    settle(then(state, hold("r", "c4", allocate_once=False)))
    settle(then(state, pod("o", "c3", labels=MINE), pod("foreign", "c4", "a"), pod("f2", "c1", "a")))
    again = load(dump(state))
    for s in (state, again):
        settle(then(s, e.PodGone("o"), e.PodGone("foreign")))
    assert dump(state) == dump(again)


def test_an_owner_is_no_victim_for_others_as_its_capacity_would_be_the_holds_again():
    state = one(cpu=8_000)
    settle(then(state, hold("r", "c8", allocate_once=False)))
    settle(then(state, pod("o", "c8", labels=MINE)))
    then(state, changed("o", node="a", phase="Running", ready=True))
    assert not may_go(state, "o")
    settle(then(state, e.Expired("r")))
    assert may_go(state, "o"), "nothing is held any more"


def test_who_would_have_everything_from_the_node_is_no_owner_of_the_hold():
    state = given(node("a", gpus=2), *[shape(f"g{n}", cpu=0, memory=0, gpu=(1, n * 10)) for n in (100, 60, 50, 40)])
    settle(then(state, hold("r", "g100", allocate_once=False)))
    settle(then(state, pod("sixty", "g60", labels=MINE)))
    settle(then(state, pod("fifty", "g50", labels=MINE)))
    assert state.placed["fifty"].hold is None
    assert [d.index for d in state.placed["fifty"].devices] == [1], "never split"
    settle(then(state, pod("forty", "g40", labels=MINE)))
    assert state.placed["forty"].hold == ("r", "reservation-0")


def test_an_empty_hold_gives_nothing_and_its_owners_go_the_normal_way():
    state = one()
    settle(then(state, hold("r", "c4", allocate_once=False)))
    settle(then(state, *[pod(f"o{i}", "c4", labels=MINE) for i in range(3)]))
    assert sorted(name for name in state.placed if state.placed[name].hold) == ["o0"]
    assert list(state.slot_users["r", "reservation-0"]) == ["o0"]


@pytest.mark.parametrize("first", ["a", "b"])
def test_of_holds_with_ports_an_owner_takes_the_one_that_keeps_its_own(first):
    ports = {"a": HostPort(7777), "b": HostPort(8888)}
    state = given(node("n"), *[shape(name, host_ports=(port,)) for name, port in ports.items()])
    settle(then(state, hold("ra", "a"), hold("rb", "b", created=NOW + 1)))
    settle(then(state, pod("o", first, labels=MINE)))
    settle(then(state, *[pod(f"stranger-{name}", name) for name in ports]))
    assert state.allocations["o"].reservation == f"r{first}"
    assert not [name for name in state.placed if name.startswith("stranger")], "the other port is still kept"


@pytest.mark.parametrize(
    ("name", "said"),
    [("koordinator.sh/gpu", {"koordinator.sh/gpu": "50"}), ("nvidia.com/gpu", {"alibabacloud.com/gpu-milli": "500"}), ("", {"alibabacloud.com/gpu-milli": "500"})],
)
def test_gpus_are_reported_by_the_name_that_was_asked_for_where_that_can_say_it(name, said):
    state = given(node("a", gpus=1), shape("half", cpu=0, memory=0, gpu=(1, 500)))
    settle(then(state, hold("r", "half", gpu=name)))
    assert status(state, "r")["allocatable"] == said


@pytest.mark.parametrize("smaller", [1, 2])
def test_what_a_pod_leaves_of_a_hold_when_it_is_made_smaller_in_place_is_the_holds_again_before_anybody_elses(smaller):
    state = then(one(6_000), hold("r", "c4", allocate_once=False))
    settle(state)
    then(state, pod("p", "c3", labels=MINE))
    settle(state)
    then(state, changed("p", node="a", phase="Running", ready=True))
    then(state, pod("p", f"c{smaller}", "a", labels=MINE), [pod("other", "c2"), pod("late", "c1")])
    assert (drawn(state, "p"), reserved(state), free(state)) == (smaller * 1_000, 4_000 - smaller * 1_000, 2_000)
    settle(state)
    assert {uid for uid in ("other", "late") if uid in state.placed} == {"other"}
    then(state, pod("p", "c3", "a", labels=MINE))
    assert drawn(state, "p") == smaller * 1_000
    then(state, e.PodGone("p"))
    settle(state)
    assert (phase(state), reserved(state), free(state)) == ("Available", 4_000, 0)
    assert dump(load(dump(state))) == dump(state)


def test_of_many_that_ignore_reservations_and_fit_nowhere_one_is_asked_about(monkeypatch):
    """Five thousand of them cost a session many seconds."""
    state = given(node("a", cpu=8_000), shape("s", cpu=2_000), shape("large", cpu=9_000), hold("r", "s"))
    settle(state)
    asked = []
    on = borrowing._on
    monkeypatch.setattr(borrowing, "_on", lambda session, pod, *more: asked.append(pod.pod) or on(session, pod, *more))
    then(state, *[pod(f"p{i}", "large", labels=IGNORES) for i in range(30)])
    settle(state)
    assert len(state.parked) == 30
    assert len(asked) <= 4, "one in each session"
    then(state, shape("fits", cpu=7_000), pod("p", "fits", labels=IGNORES))
    assert [event.pod for event in settle(state) if isinstance(event, e.PodPlaced)] == ["p"]
