"""The session under load: however many wait, new pods get their turn, and what is said is said of the right pods."""

import functools
import operator
from contextlib import suppress

import pytest
from domain.build import NOW, given, node, owner, pod, reservation, run, shape, then, when

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import DeviceShare, Expression, NodeTerm, Toleration
from restow.domain import reservation as reservations
from restow.domain import session
from restow.domain.predicates import UNREADY, Masks, matches, tolerates
from restow.domain.snapshot import SnapshotError, dump, load
from restow.domain.state_attributes import attributes
from restow.domain.state_maps import Touched

MINE = {"app": "owner"}
decider = session.decider


def schedule(state, limit=1_000, after=0):
    return run(state, decider, c.Schedule(NOW + after, limit))


def placed(events):
    return [event.pod for event in events if isinstance(event, e.PodPlaced)]


def test_pods_that_wait_for_a_hold_which_does_not_suit_them_do_not_keep_new_pods_waiting():
    """They are older and match its owner, so they were considered first, in every session, up to the limit."""
    state = given(node("a", cpu=2_000), shape("s"), shape("big", cpu=9_000), reservation("r", ("t", 1, "s")))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    then(state, *[pod(f"old{i}", "big", labels=MINE) for i in range(8)])
    while schedule(state, limit=4):
        pass
    then(state, pod("new"))
    assert placed(schedule(state, limit=4)) == ["new"]


def test_new_pods_get_their_turn_although_more_than_the_limit_wait_for_capacity():
    state = given(node("a", cpu=1_000), shape("s"), shape("small", cpu=10), pod("busy", node="a"))
    then(state, *[pod(f"old{i}") for i in range(20)])
    while schedule(state, limit=5):
        pass
    then(state, node("a", cpu=2_000), pod("new", "small"))
    assert placed(schedule(state, limit=5)) == ["old0"]
    state = given(node("a", cpu=1_000), shape("s"), shape("small", cpu=10), pod("busy", node="a"))
    then(state, *[pod(f"old{i}") for i in range(20)])
    while schedule(state, limit=5):
        pass
    then(state, node("a", cpu=2_100), pod("new", "small"))
    assert placed(schedule(state, limit=50)) == ["old0", "new"]


def test_every_session_of_a_long_queue_does_its_share_and_the_highest_priority_goes_first():
    state = given(node("a", cpu=100_000), shape("s", cpu=1, memory=1), shape("high", cpu=1, memory=1, priority=7))
    then(state, *[pod(f"p{i:02}") for i in range(30)], *[pod(f"h{i}", "high") for i in range(3)])
    rounds = []
    while events := schedule(state, limit=10):
        rounds.append(placed(events))
    assert [len(r) for r in rounds] == [10, 10, 10, 3]
    assert functools.reduce(operator.iadd, rounds, []) == ["h0", "h1", "h2", *[f"p{i:02}" for i in range(30)]]


def test_the_queue_keeps_its_order_after_drafts_and_updates():
    state = given(node("a", cpu=100_000), shape("s", cpu=1), *[pod(f"p{i}") for i in range(5)])
    when(state, decider, c.Schedule(NOW))
    then(state, pod("p0", labels={"late": "label"}))
    assert placed(schedule(state)) == [f"p{i}" for i in range(5)]


def test_a_pod_that_changes_its_shape_is_considered_by_its_new_priority():
    state = given(node("a", cpu=1_000), shape("s"), shape("high", priority=7), pod("p0"), pod("p1"))
    then(state, pod("p1", "high"))
    assert placed(schedule(state)) == ["p1"]


def test_a_pinned_pod_that_does_not_fit_its_node_says_nothing_about_its_siblings():
    state = given(node("a", cpu=100), node("b"), shape("s"), pod("p0", pinned_node="a"), pod("p1"), pod("p2", pinned_node="b"))
    assert schedule(state) == [
        e.PodPlaced("p1", "b"),
        e.PodPlaced("p2", "b"),
        e.Unfit("s", 2, {"Insufficient cpu": 1, "node(s) didn't match the requested node name": 1}, ("p0",)),
    ]
    assert schedule(state) == []
    then(state, node("a"))
    assert schedule(state) == [e.PodPlaced("p0", "a")]


def test_counts_are_refreshed_when_capacity_has_moved_but_not_too_often():
    state = given(node("a", cpu=100), shape("s"), pod("p"))
    schedule(state)
    then(state, node("b", cpu=100))
    assert schedule(state, after=9_999) == []
    assert schedule(state, after=10_000) == [e.Unfit("s", 2, {"Insufficient cpu": 2})]


def test_with_the_counts_the_conditions_of_those_are_written_anew_that_have_waited_longest():
    state = given(node("a", cpu=100), shape("s"), shape("other"), *[pod(f"p{i:03}") for i in range(150)], pod("q", "other"))
    schedule(state)
    then(state, node("b", cpu=100))
    state.touched = Touched()
    schedule(state, after=10_000)
    assert sorted(told.pod for told in decider.pending(state, state.touched)) == [*(f"p{i:03}" for i in range(100)), "q"]


def test_a_pod_whose_node_vanished_before_it_was_bound_is_placed_anew():
    """The API would bind it to a node that is not there, and then it would be collected with it."""
    state = given(node("a"), shape("s"), pod("p"))
    schedule(state)
    then(state, e.NodeGone("a"), node("b"))
    assert decider.due(state, NOW) is not None
    assert schedule(state) == [e.PodReleased("p", "NodeLost")]
    assert schedule(state) == [e.PodPlaced("p", "b")]


def test_a_pod_that_was_bound_stays_with_its_node_even_when_that_is_gone():
    state = given(node("a"), shape("s"), pod("p", node="a"), e.NodeGone("a"), node("b"))
    assert schedule(state) == []
    then(state, node("a", uid="new"))
    assert state.charges["p"].node == "a"


def test_a_hopeless_session_is_not_repeated_until_something_moves():
    state = given(node("a", cpu=100), shape("s"), pod("p"), reservation("r", ("t", 1, "s")))
    run(state, reservations.decider, c.Review(NOW))
    while (command := decider.due(state, NOW)) is not None and run(state, decider, command):
        pass
    assert decider.due(state, NOW) is None
    then(state, pod("other", node="a"), e.PodGone("other"))
    assert decider.due(state, NOW) is not None


def test_many_reservations_and_owners_are_matched_without_comparing_each_with_each():
    """A pod is compared only with Reservations that ask for something that it has."""
    from restow.domain.reservation import owner_matching as match

    many = 60
    state = given(node("a", cpu=10**9, memory=1 << 50, pods=10**6), shape("s"))
    then(state, *[reservation(f"r{i}", ("t", 1, "s"), owners=(owner(app=f"a{i}"),)) for i in range(many)])
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    then(state, *[pod(f"p{i}", labels={"app": f"a{i}"}) for i in range(many)])
    asked = []
    real = match.owner_matches
    match.owner_matches = lambda *args: asked.append(1) or real(*args)
    try:
        events = schedule(state)
    finally:
        match.owner_matches = real
    assert [(event.pod, event.reservation) for event in events] == [(f"p{i}", f"r{i}") for i in range(many)]
    assert len(asked) == many


# -- rules as Kubernetes has them --------------------------------------------------------------------------------------


def test_whoever_tolerates_a_node_that_is_not_ready_may_make_it_ready():
    state = given(node("a", ready=False), shape("cni", tolerations=(Toleration(operator="Exists"),)), shape("s"), pod("p", "cni"), pod("q"))
    assert placed(schedule(state)) == ["p"]
    assert not tolerates((Toleration("node.kubernetes.io/not-ready", "Exists", effect="NoExecute"),), UNREADY)


@pytest.mark.parametrize(
    ("have", "than", "expected"), [("5", "4", True), ("4", "4", False), ("1_000", "4", False), ("x", "4", False), ("5", "", False), (None, "4", False)]
)
def test_gt_compares_integers_as_go_reads_them(have, than, expected):
    assert matches(Expression("k", "Gt", (than,)), {} if have is None else {"k": have}) is expected


def test_shapes_with_equal_rules_about_nodes_share_what_is_known_of_nodes():
    """Where every pod has its own shape, a mask and a list of reasons for each would be gigabytes."""
    state = given(node("a", labels={"z": "x"}), node("b"), *[shape(f"s{i}", cpu=100 + i, node_selector={"z": "x"}) for i in range(9)])
    then(state, shape("else", node_affinity=(NodeTerm((Expression("z", "Exists"),)),)), *[pod(f"p{i}", f"s{i}") for i in range(9)])
    assert set(placed(schedule(state))) == {f"p{i}" for i in range(9)}
    assert len(state.memo.find(Masks).of_rules) == 1
    then(state, node("a"), pod("p", "s0"))
    assert placed(schedule(state)) == []


def test_where_it_is_forgotten_which_nodes_changed_all_are_looked_at_again():
    state = given(node("a", labels={"z": "x"}), node("b"), shape("s", node_selector={"z": "x"}), pod("p"))
    assert placed(schedule(state)) == ["p"]
    then(state, node("a"), node("b", labels={"z": "x"}), pod("q"))
    state.changed_rows.forget()
    assert [event.node for event in schedule(state) if isinstance(event, e.PodPlaced)] == ["b"]


# -- drafts and snapshots ----------------------------------------------------------------------------------------------


def test_a_draft_takes_every_number_back():
    state = given(node("a", gpus=2), shape("s", gpu=(1, 400)), pod("p1"), reservation("r", ("t", 1, "s")))
    state.snapshot_seq, state.archived, state.truncated = 3, 2, 1
    before = _plain(state)
    with state.draft():
        run(state, reservations.decider, c.Review(NOW + 5))
        schedule(state)
        then(state, e.SnapshotTaken(9, 1, 1), e.Archived(1, 9, "f", "d"), e.Truncated(9), e.PodReleased("nobody", "x"))
        then(state, e.HoldReleased("r", "t-0", "Deleted"), time=NOW + 9)
    assert _plain(state) == before
    assert not +state.void


def _plain(state) -> dict:
    """Numbers and words."""
    return {a.name: value for a in attributes(type(state)) if isinstance(value := getattr(state, a.name), int | str)}


def test_any_flipped_bit_of_a_snapshot_is_an_error_that_says_so_or_still_a_state():
    state = given(node("a", gpus=2), shape("s", gpu=(1, 400)), pod("p1", node="a", devices=(DeviceShare(0, 400),)), pod("p2"))
    then(state, reservation("r", ("t", 1, "s")))
    run(state, reservations.decider, c.Review(NOW))
    schedule(state)
    image = dump(state)
    for at in range(0, len(image), 3):
        broken = bytearray(image)
        broken[at] ^= 1 << (at % 8)
        with suppress(SnapshotError):
            load(bytes(broken))
    for end in (0, 1, 3, 50, len(image) - 1):
        with pytest.raises(SnapshotError):
            load(image[:end])
