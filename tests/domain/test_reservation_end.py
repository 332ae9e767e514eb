"""How Reservations end: by expiry, by deletion, by their node; and that nothing of them is left behind, whoever uses them.

Several tests have the name of a failure that other systems are known for.
"""

import itertools

import pytest
from domain.build import NOW, changed, given, node, pod, reservation, run, shape, then, when

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import gc, session
from restow.domain import reservation as reservations
from restow.domain.effects import DeleteReservation
from restow.domain.records import SlotPhase
from restow.domain.snapshot import dump, load
from restow.domain.state import ClusterState
from restow.domain.state_attributes import Role, attributes

HOUR = 3_600_000
DAY = 24 * HOUR
OWNED = {"app": "owner"}


def world(*facts, nodes=(node("a"),)):
    """Shapes of one, two, three and six cores on a node of eight; what is asked for is accepted and held where it fits."""
    shapes = [shape(f"{n}c", cpu=n * 1_000) for n in (1, 2, 3, 6)]
    state = given(*nodes, *shapes, *facts)
    return schedule(review(state))


def review(state, at=NOW):
    run(state, reservations.decider, c.Review(at))
    return state


def schedule(state, at=NOW):
    """As often as something follows."""
    for _ in range(50):
        if not run(state, session.decider, c.Schedule(at)):
            return state
    raise AssertionError("the session decides for ever")


def collect(state, at):
    return run(state, gc.decider, c.Collect(at))


def once(name="r", what="2c", **more):
    return reservation(name, ("t", 1, what), match_policy="Owner", **more)


def reusable(name="r", what="6c", **more):
    return reservation(name, ("reservation", 1, what), match_policy="Owner", allocate_once=False, **more)


def owner(name, what="2c", **more):
    return pod(name, what, labels=OWNED, **more)


def bound(name, at="a", **more):
    return changed(name, node=at, phase="Running", ready=True, **more)


def phase(state, uid="r"):
    return str(state.phases[uid].phase), state.phases[uid].reason


def cpu(state, what, at="a"):
    """`used`, `reserved` or `free` on a node, in cores."""
    return int(getattr(state.table, what)[state.table.rows[at], state.table.columns["cpu"]]) // 1_000


def mentions(state, *uids):
    """Where the state says anything of these uids: names of its maps (not of what is derived, or only says what to look at)."""
    names = [a.name for a in attributes(ClusterState) if a.role is not Role.PASSING and a.name != "table"]

    def found(value):
        if isinstance(value, str):
            return value in uids
        if isinstance(value, dict):
            return any(found(k) or found(v) for k, v in value.items())
        if isinstance(value, list | tuple | set | frozenset):
            return any(map(found, value))
        fields = getattr(value, "__struct_fields__", ())
        return any(found(getattr(value, field)) for field in fields)

    return sorted(name for name in names if found(getattr(state, name)))


# -- when ------------------------------------------------------------------------------------------------------------


def test_expires_beyond_24_h_is_kept_beyond_24_h():
    """The default ttl of a day applies only where neither is set (RULES G-2)."""
    state = world(once(expires=NOW + 30 * DAY))
    assert gc.decider.deadline(state) == NOW + 30 * DAY
    assert collect(state, NOW + DAY) == collect(state, NOW + 30 * DAY - 1) == []
    assert phase(state)[0] == "Available"
    assert collect(state, NOW + 30 * DAY) == [e.Expired("r")]


def test_ttl_beyond_24_h_is_kept_beyond_24_h():
    state = world(once(ttl=48 * HOUR))
    assert collect(state, NOW + 48 * HOUR - 1) == []
    assert collect(state, NOW + 48 * HOUR) == [e.Expired("r")]


def test_ttl_0_with_expires_expires_at_expires():
    """`ttl: 0` disables the ttl and nothing else (RULES G-2)."""
    state = world(once(ttl=0, expires=NOW + HOUR))
    assert gc.decider.deadline(state) == NOW + HOUR
    assert collect(state, NOW + HOUR) == [e.Expired("r")]


@pytest.mark.parametrize(("ttl", "expires"), [(HOUR, 3 * HOUR), (3 * HOUR, HOUR)])
def test_expires_wins_over_ttl_whichever_is_earlier(ttl, expires):
    state = world(once(ttl=ttl, expires=NOW + expires))
    assert gc.decider.deadline(state) == NOW + expires
    assert collect(state, NOW + expires - 1) == []
    assert collect(state, NOW + expires) == [e.Expired("r")]


def test_a_ttl_counts_from_the_creation_not_from_when_it_was_seen_or_held():
    state = world(once(ttl=2 * HOUR, created=NOW - HOUR))
    assert gc.decider.deadline(state) == NOW + HOUR


def test_one_that_comes_too_late_expires_at_once_and_keeps_no_capacity():
    state = world(once(ttl=HOUR, created=NOW - 2 * HOUR))
    assert collect(state, NOW) == [e.Expired("r")]
    schedule(state)
    assert phase(state)[0] == "Failed"
    assert cpu(state, "reserved") == 0


# -- an expiry and a hand-over at the same moment ----------------------------------------------------------------------


@pytest.mark.parametrize("first", ["gc", "session"])
def test_an_expiry_and_a_hand_over_decided_at_the_same_moment_never_both_happen(first):
    """Both deciders have read the same state. The session's order is the truth: the place is handed over, and then it is
    no more released, whichever commit the log has first."""
    state = then(world(once(ttl=HOUR)), owner("p"))
    at = NOW + HOUR
    decided = {"gc": when(state, gc.decider, c.Collect(at)), "session": when(state, session.decider, c.Schedule(at))}
    assert [type(x) for x in decided["gc"]] == [e.Expired]
    assert [type(x) for x in decided["session"]] == [e.HandedOver]
    for family in sorted(decided, key=lambda family: family != first):
        then(state, decided[family], time=at)
    later = run(state, session.decider, c.Schedule(at + 1))
    assert not [x for x in later if isinstance(x, e.HoldReleased | e.HandedOver | e.PodPlaced)]
    assert phase(state)[0] == "Succeeded"
    assert state.placed["p"].hold == ("r", "t-0")
    assert (cpu(state, "used"), cpu(state, "reserved")) == (2, 0)
    assert collect(state, at + 1) == []


def test_once_the_session_has_read_the_expiry_it_releases_and_hands_nothing_over():
    state = then(world(once(ttl=HOUR)), owner("p"))
    assert collect(state, NOW + HOUR) == [e.Expired("r")]
    events = run(state, session.decider, c.Schedule(NOW + HOUR))
    assert [x for x in events if isinstance(x, e.HoldReleased)] == [e.HoldReleased("r", "t-0", "Expired")]
    assert not [x for x in events if isinstance(x, e.HandedOver)]
    schedule(state)
    assert state.placed["p"].hold is None
    assert phase(state) == ("Failed", "Expired")


@pytest.mark.parametrize("first", ["gc", "session"])
def test_a_reusable_one_that_expires_while_it_is_handed_over_gives_back_just_what_nobody_drew(first):
    state = then(world(reusable(ttl=HOUR)), owner("p"))
    at = NOW + HOUR
    decided = {"gc": when(state, gc.decider, c.Collect(at)), "session": when(state, session.decider, c.Schedule(at))}
    assert [type(x) for x in decided["session"]] == [e.HandedOver]
    for family in sorted(decided, key=lambda family: family != first):
        then(state, decided[family], time=at)
    released = run(state, session.decider, c.Schedule(at))
    assert [x for x in released if isinstance(x, e.HoldReleased)] == [e.HoldReleased("r", "reservation-0", "Expired")]
    assert (cpu(state, "used"), cpu(state, "reserved"), cpu(state, "free")) == (2, 0, 6)
    assert phase(state) == ("Failed", "Expired")


# -- what an expiry ends -----------------------------------------------------------------------------------------------


def test_an_expired_reusable_hold_frees_its_unallocated_part_at_once_while_allocated_pods_keep_running():
    state = schedule(then(world(reusable(ttl=HOUR)), owner("p")))
    then(state, bound("p"), pod("stranger", "6c"))
    schedule(state)
    assert "stranger" not in state.placed
    assert (cpu(state, "used"), cpu(state, "reserved")) == (2, 4)
    collect(state, NOW + HOUR)
    schedule(state, NOW + HOUR)
    assert state.placed["stranger"].node == "a"
    assert state.pods["p"].live.phase == "Running"
    assert (cpu(state, "used"), cpu(state, "reserved")) == (8, 0)
    assert phase(state) == ("Failed", "Expired")


def test_what_a_pod_of_an_expired_hold_used_goes_back_to_the_node_and_not_to_the_hold():
    state = schedule(then(world(reusable(ttl=HOUR)), owner("p")))
    then(state, bound("p"))
    collect(state, NOW + HOUR)
    schedule(state, NOW + HOUR)
    then(state, e.PodGone("p"))
    assert (cpu(state, "used"), cpu(state, "reserved"), cpu(state, "free")) == (0, 0, 8)


def test_a_pending_one_fails_by_expiry_too():
    state = world(pod("big", "6c", node="a"), once(what="3c", ttl=HOUR))
    assert phase(state)[0] == "Pending"
    assert collect(state, NOW + HOUR) == [e.Expired("r")]
    assert phase(state) == ("Failed", "Expired")
    then(state, e.PodGone("big"))
    schedule(state, NOW + HOUR)
    assert cpu(state, "reserved") == 0


def test_a_waiting_one_fails_by_expiry_too():
    """preAllocation: the capacity is still in use; what was held of it so far is free at once, and what is freed later is not taken."""
    state = world(pod("big", "6c", node="a"), once(what="3c", ttl=HOUR, pre_allocation=True))
    assert phase(state)[0] == "Waiting"
    assert cpu(state, "reserved") == 2
    assert collect(state, NOW + HOUR) == [e.Expired("r")]
    schedule(state, NOW + HOUR)
    assert phase(state) == ("Failed", "Expired")
    assert cpu(state, "reserved") == 0
    then(state, e.PodGone("big"))
    schedule(state, NOW + HOUR)
    assert (cpu(state, "reserved"), cpu(state, "free")) == (0, 8)


def test_with_its_node_it_expires():
    """RULES G-1."""
    state = world(once(ttl=0), nodes=(node("a"),))
    then(state, e.NodeGone("a"))
    schedule(state)
    assert phase(state) == ("Failed", "Expired")


# -- the object's end --------------------------------------------------------------------------------------------------


def test_an_expired_one_is_collected_after_its_retention_while_its_pods_still_run():
    state = schedule(then(world(reusable(ttl=HOUR)), owner("p")))
    then(state, bound("p"))
    collect(state, NOW + HOUR)
    schedule(state, NOW + HOUR)
    then(state, node("b"), time=NOW + HOUR)
    assert gc.decider.deadline(state) == NOW + HOUR + DAY
    assert collect(state, NOW + HOUR + DAY - 1) == []
    assert collect(state, NOW + HOUR + DAY) == [e.Collected("r", "Retention")]
    assert gc.decider.pending(state, None) == [DeleteReservation("r")]
    then(state, e.ReservationGone("r"))
    assert cpu(state, "used") == 2
    assert schedule(state).pods["p"].live.node == "a"
    then(state, e.PodGone("p"))
    assert mentions(state, "r") == []


def test_a_once_only_one_that_succeeded_is_collected_although_its_pod_runs_and_although_it_is_gone():
    """Succeeded survives the pod's deletion (RULES 004-1)."""
    for gone in (False, True):
        state = schedule(then(world(once(ttl=HOUR)), owner("p")))
        then(state, bound("p"))
        if gone:
            then(state, e.PodGone("p"))
        assert phase(state)[0] == "Succeeded"
        assert collect(state, NOW + HOUR) == []
        assert collect(state, NOW + DAY) == [e.Collected("r", "Retention")]


KINDS = {"once": once, "reusable": reusable}
ENDS = list(itertools.permutations(["object", "pod", "node"]))


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("ends", ENDS, ids=[" ".join(x) for x in ENDS])
@pytest.mark.parametrize("session_first", [True, False])
def test_deletion_while_pods_use_it_is_safe_and_nothing_leaks(kind, ends, session_first):
    """Object, pod and node go in every order, with and without the session having had its turn in between."""
    state = schedule(then(world(KINDS[kind](), nodes=(node("a"), node("b", cpu=1_000))), owner("p")))
    then(state, bound("p"))
    gone = {
        "object": [KINDS[kind](deleting=NOW), e.ReservationGone("r")],
        "pod": [changed("p", node="a", phase="Running", deleting=NOW), e.PodGone("p")],
        "node": [e.NodeGone("a")],
    }
    there = {"object", "pod", "node"}
    for what in ends:
        for event in gone[what]:
            then(state, event)
            if session_first:
                schedule(state)
        there.discard(what)
        assert ("p" in state.pods) == ("pod" in there)
        if "node" in there and "pod" in there:
            assert state.charges["p"].node == "a"
    schedule(state)
    assert mentions(state, "r", "p") == []
    assert mentions(load(dump(state)), "r", "p") == []
    assert not state.table.reserved.any()
    assert not state.table.used.any()


@pytest.mark.parametrize("kind", list(KINDS))
def test_deletion_before_the_owner_is_bound_is_safe_too(kind):
    """The hand-over is decided, the bind is under way: the pod lands where it was sent."""
    state = schedule(then(world(KINDS[kind]()), owner("p")))
    then(state, KINDS[kind](deleting=NOW), e.ReservationGone("r"))
    schedule(state)
    assert state.placed["p"].node == "a"
    assert (cpu(state, "used"), cpu(state, "reserved")) == (2, 0)
    then(state, bound("p"), e.PodGone("p"))
    assert mentions(state, "r", "p") == []


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_deleted_one_whose_owner_is_never_bound_keeps_no_capacity(kind):
    state = schedule(then(world(KINDS[kind]()), owner("p")))
    then(state, KINDS[kind](deleting=NOW), e.ReservationGone("r"))
    then(state, e.PodReleased("p", "refused"), e.PodGone("p"))
    schedule(state)
    assert mentions(state, "r", "p") == []
    assert (cpu(state, "used"), cpu(state, "reserved"), cpu(state, "free")) == (0, 0, 8)


def test_a_name_that_is_used_again_is_another_reservation():
    state = schedule(then(world(once("r")), owner("p")))
    then(state, bound("p"), once("r", deleting=NOW), e.ReservationGone("r"))
    then(state, reservation("r2", ("t", 1, "3c"), match_policy="Owner"))
    schedule(review(state))
    assert phase(state, "r2")[0] == "Available"
    assert (cpu(state, "used"), cpu(state, "reserved")) == (2, 3)


# -- finalizers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_finalizer_of_the_user_keeps_the_object_and_not_the_capacity(kind):
    """deletionTimestamp: it is given up at once, hands nothing over any more, and is deleted by nobody again."""
    state = world(KINDS[kind](ttl=HOUR))
    then(state, KINDS[kind](ttl=HOUR, deleting=NOW), owner("p"))
    events = run(state, session.decider, c.Schedule(NOW))
    assert [x.reason for x in events if isinstance(x, e.HoldReleased)] == ["Deleted"]
    schedule(state)
    assert state.placed["p"].hold is None
    assert phase(state) == ("Failed", "Deleted")
    assert all(slot.phase is SlotPhase.FAILED for slot in state.slots["r"].values())
    assert gc.decider.deadline(state) is None
    assert collect(state, NOW + 100 * DAY) == []
    assert gc.decider.pending(state, None) == []


def test_an_object_that_a_finalizer_keeps_after_its_collection_is_not_deleted_again():
    state = world(once(ttl=HOUR))
    collect(state, NOW + HOUR)
    schedule(state, NOW + HOUR)
    collect(state, NOW + HOUR + DAY)
    assert gc.decider.pending(state, None) == [DeleteReservation("r")]
    then(state, once(ttl=HOUR, deleting=NOW + HOUR + DAY))
    assert gc.decider.pending(state, None) == []
    assert not gc.decider.owed(state, DeleteReservation("r"))
    assert gc.decider.due(state, NOW + 100 * DAY) is None
    # The finalizer is taken away: the object goes, and all that is known of it.
    then(state, e.ReservationGone("r"))
    assert mentions(state, "r") == []


def test_one_that_was_terminating_when_it_was_first_seen_is_never_held():
    state = world(once(deleting=NOW))
    assert cpu(state, "reserved") == 0
    assert phase(state)[0] == "Failed"
    assert not state.slot_queue
