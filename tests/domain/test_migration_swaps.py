"""Two pods that change places: who leaves first, and where that one goes if the other stays after all (DESIGN 5)."""

import pytest
from domain.build import NOW, changed, configured, given, node, pod, replica_of, run, shape, then
from domain.saga import (
    OWNER,
    advance,
    create,
    decider,
    evicts,
    failed,
    hold,
    move,
    observe,
    owed,
    plan,
    session_answers,
    step,
    terminate,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import LabelSelector
from restow.domain import config, migration, snapshot
from restow.domain.config import DefragmentationArgs
from restow.domain.effects import AbortEviction, CreateHold, DeleteReservation, Evict
from restow.domain.migration.steps import LAST_WORD
from restow.domain.records import FINAL, SlotPhase, Step

CONF = config.MigrationConfig(defragmentation=DefragmentationArgs("cpu", {"cpu": 90}, {"cpu": 70}, {"cpu": 40}, swaps=True))
OTHER = replica_of("other")
HOLD, BACK = CONF.hold_deadline, CONF.abort_deadline + LAST_WORD


def swapping(*more: e.Event, conf: config.MigrationConfig = CONF):
    """Two full nodes; each pod fits only where the other is. Both places are chosen."""
    state = given(
        configured("migration", conf), node("a", cpu=4_000), node("b", cpu=4_000), shape("p", cpu=4_000), shape("q", cpu=3_500),
        pod("p1", "p", node="a", owner=OWNER, labels={"app": "p"}), pod("q1", "q", node="b", owner=OTHER, labels={"app": "q"}), *more,
        plan("x", move("x-1", "p1", "a", "b", swap=True), move("x-2", "q1", "b", "a", swap=True)),
    )  # fmt: skip
    advance(state)
    return state


def budget(app: str, allowed: int) -> e.BudgetObserved:
    return e.BudgetObserved("default", app, f"uid-{app}", LabelSelector({"app": app}), allowed)


# -- who leaves first ----------------------------------------------------------------------------------------------------


def test_the_other_is_evicted_only_when_the_first_has_left():
    state = swapping()
    assert evicts(hold(state, "x-1", "x-2")) == ["x-1"]
    assert advance(state) == []
    terminate(state, "p1")
    assert evicts(advance(state)) == ["x-2"]


def test_first_goes_the_one_that_may_be_disrupted_less():
    state = swapping(budget("p", 3), budget("q", 1))
    assert evicts(hold(state, "x-1", "x-2")) == ["x-2"]
    terminate(state, "q1")
    assert evicts(advance(state)) == ["x-1"]


def test_nobody_else_leaves_while_the_api_is_asked_for_the_first_whose_budget_has_come_to_allow_more():
    conf = config.MigrationConfig(defragmentation=CONF.defragmentation, budget_patience=90_000)
    state = swapping(budget("p", 1), budget("q", 2), conf=conf)
    assert evicts(hold(state, "x-1", "x-2")) == ["x-1"]
    then(state, budget("p", 5))
    assert advance(state) == []
    terminate(state, "p1")
    assert evicts(advance(state)) == ["x-2"]


@pytest.mark.parametrize("said", [(budget("p", 1), budget("q", 0)), (e.BudgetObserved("default", "both", "uid-b", LabelSelector({}), 1),)])
def test_nobody_leaves_where_the_budgets_do_not_allow_both(said):
    state = swapping(*said)
    assert evicts(hold(state, "x-1", "x-2")) == []
    assert advance(state, HOLD - 1) == []
    ended = failed(advance(state, HOLD))
    assert ended == {"x-1": "Budget", "x-2": "Budget"}
    assert "the pods that change places need" in state.migrations["x-1"].message


def test_a_budget_that_comes_to_allow_both_in_time_lets_them_go():
    state = swapping(budget("p", 1), budget("q", 0), conf=config.MigrationConfig(defragmentation=CONF.defragmentation, budget_patience=90_000))
    assert evicts(hold(state, "x-1", "x-2")) == []
    assert advance(state, 89_999) == []
    then(state, budget("q", 1))
    assert evicts(advance(state, 89_999)) == ["x-1"]


def test_a_place_that_is_not_found_in_time_is_waited_for_no_longer_because_a_budget_would_be():
    state = swapping(conf=config.MigrationConfig(defragmentation=CONF.defragmentation, budget_patience=90_000))
    hold(state, "x-1")
    assert advance(state, HOLD - 1) == []
    assert failed(advance(state, HOLD))["x-2"] == "HoldTimeout"


def test_nobody_leaves_while_the_limits_keep_the_other():
    conf = config.MigrationConfig(defragmentation=CONF.defragmentation, max_unavailable=1)
    state = swapping(pod("q2", node="b", owner=OTHER, ready=True), conf=conf)
    hold_both = hold(state, "x-1")
    assert evicts(hold_both) == []
    then(state, changed("q2", node="b", phase="Running", ready=False))
    assert evicts(hold(state, "x-2")) == []
    then(state, changed("q2", node="b", phase="Running", ready=True))
    assert evicts(advance(state)) == ["x-1"]


def test_the_other_waits_as_long_as_the_first_is_on_its_way_out():
    state = swapping()
    hold(state, "x-1", "x-2")
    assert advance(state, CONF.evict_deadline - 1) == []
    assert decider.deadline(state) == NOW + CONF.evict_deadline
    terminate(state, "p1")
    assert evicts(advance(state, CONF.evict_deadline - 1)) == ["x-2"]


def test_what_keeps_the_other_when_the_first_has_left_late_is_waited_for_as_long_as_a_hold_is():
    conf = config.MigrationConfig(defragmentation=CONF.defragmentation, max_unavailable=1)
    state = swapping(pod("q2", node="b", owner=OTHER, ready=True), conf=conf)
    hold(state, "x-1", "x-2")
    late = CONF.evict_deadline - 1
    then(state, changed("q2", node="b", phase="Running", ready=False))
    terminate(state, "p1")
    run(state, decider, c.ReportEviction(NOW + late, "x-1", "Gone"))
    assert evicts(advance(state, late)) == evicts(advance(state, late + HOLD - 1)) == []
    assert decider.deadline(state) == NOW + late + HOLD
    then(state, changed("q2", node="b", phase="Running", ready=True))
    assert evicts(advance(state, late + HOLD - 1)) == ["x-2"]


@pytest.mark.parametrize("what", [
    pod("q1", "q", node="b", owner=replica_of("adopter"), labels={"app": "q"}),
    pod("q1", "q", node="b", owner=OTHER, labels={"app": "q"}, annotations={"karpenter.sh/do-not-disrupt": "true"}),
    e.PodGone("q1"),
], ids=["another controller has it", "it must stay", "it is gone"])  # fmt: skip
def test_nobody_is_evicted_in_the_decision_that_gives_up_the_other_one(what):
    state = swapping()
    create(state, "x-1", "x-2")
    session_answers(state)
    then(state, what)
    events = advance(state)
    assert evicts(events) == []
    assert failed(events).keys() == {"x-1", "x-2"}


# -- half-way ------------------------------------------------------------------------------------------------------------


def half_way(*more: e.Event):
    """The first is on its way out, the other one holds its place and has not been told to go. Somebody else waits for the first one's room."""
    state = swapping(*more, pod("greedy", "p", owner=replica_of("greedy")))
    hold(state, "x-1", "x-2")
    terminate(state, "p1")
    run(state, decider, c.ReportEviction(NOW, "x-1", "Gone"))
    assert (step(state, "x-1"), step(state, "x-2")) == (Step.EVICTED, Step.HELD)
    return state


def to_the_end(state, after: int = 0) -> int:
    """The first one's pod goes, its successor comes, and the API does what it is asked for; returns how long that took."""
    if "p1" in state.pods:
        then(state, e.PodGone("p1"))
    if "p2" not in state.pods:
        then(state, pod("p2", "p", owner=OWNER, labels={"app": "p"}))
    for _ in range(30):
        session_answers(state, after)
        advance(state, after)
        effects = owed(state)
        for effect in effects:
            match effect:
                case AbortEviction():
                    run(state, decider, c.ReportEviction(NOW + after, effect.migration, "Aborted"))
                case CreateHold(back=True):
                    observe(state, migration.hold_manifest(state, state.migrations[effect.migration]), "hold-back")
                case DeleteReservation():
                    then(state, e.ReservationGone(effect.reservation))
        for uid in [uid for uid in state.placed if state.live[uid].node is None]:
            then(state, changed(uid, node=state.placed[uid].node, phase="Running", ready=True))
        if not state.active and not effects:
            return after
        if not effects and (at := decider.deadline(state)) is not None:
            after = max(after, at - NOW)
    raise AssertionError("it never ends")


ASKED_TO_STAY = pod("q1", "q", node="b", owner=OTHER, labels={"app": "q"}, annotations={"karpenter.sh/do-not-disrupt": "true"})
STOPS = {"Cancelled": None, "DoNotDisrupt": ASKED_TO_STAY, "SwapBroken": node("b", cpu=4_000, unschedulable=True)}


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("why", STOPS)
def test_whatever_stops_the_other_half_way_the_first_has_its_old_room_again(why, late):
    """Its plan is cancelled, it is asked to stay, or the node that the first was to go to takes no pods any more."""
    state = half_way()
    if late:
        then(state, e.PodGone("p1"), pod("p2", "p", owner=OWNER, labels={"app": "p"}))
        session_answers(state)
    fact = STOPS[why]
    then(state, fact) if fact is not None else run(state, decider, c.CancelPlan(NOW, "x", "enough"))
    assert to_the_end(state) < HOLD
    assert (state.node_of("p2"), state.node_of("q1"), state.node_of("greedy")) == ("a", "b", None)
    assert (step(state, "x-1"), step(state, "x-2")) == (Step.FAILED, Step.FAILED)
    assert state.migrations["x-2"].reason == why
    assert state.held_on == {}
    assert state.void["migration.aborting"] == 0


def test_a_pod_that_takes_its_time_to_go_does_not_cost_its_successor_the_way_back():
    """The room that is waited for is what it still uses: the deadline begins when that can end (RULES G-14)."""
    state = half_way()
    then(state, changed("p1", node="a", phase="Running", deleting=NOW + 600_000), pod("p2", "p", owner=OWNER, labels={"app": "p"}))
    run(state, decider, c.CancelPlan(NOW, "x", "enough"))
    advance(state)
    turn_back(state)
    run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted"))
    for after in (HOLD, 599_000):
        session_answers(state, after)
        assert advance(state, after) == []
    to_the_end(state, 600_000)
    assert (state.node_of("p2"), state.node_of("greedy")) == ("a", None)


def test_a_plan_that_is_cancelled_before_it_is_known_that_the_first_has_left_costs_it_nothing():
    state = swapping(pod("greedy", "p", owner=replica_of("greedy")))
    assert evicts(hold(state, "x-1", "x-2")) == ["x-1"]
    terminate(state, "p1")
    then(state, e.PodGone("p1"), pod("p2", "p", owner=OWNER, labels={"app": "p"}))
    run(state, decider, c.CancelPlan(NOW, "x", "enough"))
    to_the_end(state)
    assert (state.node_of("p2"), state.node_of("q1"), state.node_of("greedy")) == ("a", "b", None)


def test_two_that_are_given_up_before_either_has_left_do_not_wait_for_each_other():
    state = swapping()
    hold(state, "x-1", "x-2")
    run(state, decider, c.CancelPlan(NOW, "x", "enough"))
    assert to_the_end(state) == 0
    assert (state.node_of("q1"), state.held_on) == ("b", {})


def test_a_limit_that_comes_half_way_costs_the_first_nothing():
    state = half_way(pod("q3", node="b", owner=OTHER, ready=True))
    then(state, changed("q3", node="b", phase="Running", ready=False))
    assert advance(state, HOLD - 1) == []
    to_the_end(state, HOLD)
    assert (state.node_of("p2"), state.node_of("q1"), state.node_of("greedy")) == ("a", "b", None)
    assert state.migrations["x-2"].reason == "MaxUnavailable"
    assert state.held_on == {}


def test_the_other_one_that_a_user_deletes_half_way_goes_on_as_if_evicted():
    state = half_way()
    terminate(state, "q1")
    advance(state)
    then(state, e.PodGone("q1"), pod("q2", "q", owner=OTHER, labels={"app": "q"}))
    to_the_end(state)
    assert (state.node_of("p2"), state.node_of("q2"), state.node_of("greedy")) == ("b", "a", None)
    assert (step(state, "x-1"), step(state, "x-2")) == (Step.LANDED, Step.LANDED)


def test_nobody_follows_a_pod_that_cannot_land_where_it_was_to():
    """The eviction of the other one has been decided: it is not sent any more, and taken back."""
    state = half_way()
    assert evicts(advance(state)) == ["x-2"]
    then(state, node("b", cpu=4_000, unschedulable=True))
    assert [effect for effect in owed(state) if effect == Evict("x-2")] == []
    to_the_end(state)
    assert (state.node_of("p2"), state.node_of("q1")) == ("a", "b")


def test_where_both_have_left_no_room_is_promised_twice():
    state = half_way()
    advance(state)
    terminate(state, "q1")
    advance(state)
    then(state, node("b", cpu=4_000, unschedulable=True))
    assert failed(advance(state)) == {"x-1": "TargetLost"}
    then(state, e.PodGone("q1"), pod("q2", "q", owner=OTHER, labels={"app": "q"}))
    to_the_end(state)
    assert (state.node_of("q2"), step(state, "x-2")) == ("a", Step.LANDED)
    assert state.held_on == {}


# -- the way back --------------------------------------------------------------------------------------------------------


def left_alone(*more: e.Event):
    """The first has left, and the other's eviction is refused."""
    state = swapping(*more)
    hold(state, "x-1", "x-2")
    terminate(state, "p1")
    advance(state)
    then(state, e.PodGone("p1"))
    run(state, decider, c.ReportEviction(NOW, "x-2", "Refused", "a webhook says no"))
    assert step(state, "x-2") is Step.ABORTING
    return state


def turn_back(state, after: int = 0) -> None:
    """The Reservation for the way back is created and seen."""
    assert CreateHold("x-1", back=True) in owed(state)
    manifest = migration.hold_manifest(state, state.migrations["x-1"])
    assert manifest is not None
    assert manifest.metadata.name == "restow-x-1-back"
    observe(state, manifest, "hold-back")
    session_answers(state, after)


def test_its_room_is_held_for_it_again_before_the_other_gives_it_up():
    """Somebody else waits for room there, too, and came first."""
    state = left_alone()
    then(state, pod("greedy", "p", owner=replica_of("greedy")))
    session_answers(state)
    assert "greedy" not in state.placed
    then(state, pod("p2", "p", owner=OWNER))
    turning = [event for event in advance(state) if isinstance(event, e.TurningBack)]
    assert [event.migration for event in turning] == ["x-1"]
    assert run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted")) == [], "it keeps the room"
    turn_back(state)
    (slot,) = state.slots["hold-back"].values()
    assert (slot.node, slot.phase) == ("a", SlotPhase.WAITING)
    assert [type(event) for event in run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted"))] == [e.MigrationFailed]
    session_answers(state)
    assert state.placed["p2"].node == "a"
    assert "greedy" not in state.placed
    then(state, changed("p2", node="a", phase="Running", ready=True))
    assert failed(advance(state)) == {"x-1": "SwapBroken"}
    assert state.migrations["x-1"].message.endswith("its successor is back on a")
    assert set(owed(state)) == {DeleteReservation(uid) for uid in ("hold-x-1", "hold-x-2", "hold-back")}
    session_answers(state)
    assert state.held_on == {}


def test_before_there_is_a_successor_the_other_keeps_the_room():
    state = left_alone()
    advance(state)
    assert run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted")) == []
    assert owed(state) == [AbortEviction("x-2")]
    end = NOW + CONF.abort_deadline
    assert [type(event) for event in run(state, decider, c.ReportEviction(end, "x-2", "Aborted"))] == [e.MigrationFailed], "not for ever"


def test_a_successor_that_finds_room_elsewhere_goes_there():
    state = left_alone()
    then(state, pod("p2", "p", owner=OWNER))
    advance(state)
    then(state, node("c", cpu=4_000))
    session_answers(state)
    assert state.placed["p2"].node == "c"
    assert failed(advance(state)) == {"x-1": "SwapBroken"}
    assert run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted")) != []
    session_answers(state)
    assert state.held_on == {}


def test_where_room_cannot_be_held_again_it_is_free_to_go_anywhere():
    state = left_alone()
    then(state, pod("p2", "p", owner=OWNER))
    advance(state)
    run(state, decider, c.ReportHold(NOW, "x-1", "403 Forbidden"))
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.FAILED, "SwapBroken")
    run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted"))
    for _ in range(2):
        session_answers(state)
    assert state.placed["p2"].node == "a"


@pytest.mark.parametrize("when", ["before", "after"])
def test_where_its_old_node_is_gone_it_does_not_turn_back(when):
    state = left_alone()
    then(state, pod("p2", "p", owner=OWNER))
    if when == "after":
        advance(state)
        turn_back(state)
    then(state, e.NodeGone("a"))
    assert failed(advance(state)) == {"x-1": "SwapBroken"}


def test_a_late_eviction_of_the_other_leaves_it_to_find_its_place():
    """The mark came too late: the other's successor takes the room, and this one does not wait for it for ever."""
    state = left_alone()
    then(state, pod("p2", "p", owner=OWNER))
    advance(state)
    turn_back(state)
    terminate(state, "q1")
    advance(state)
    then(state, e.PodGone("q1"), pod("q2", "q", owner=OTHER))
    session_answers(state)
    assert state.placed["q2"].node == "a"
    then(state, changed("q2", node="a", phase="Running", ready=True))
    advance(state)
    assert step(state, "x-2") is Step.LANDED
    assert failed(advance(state, HOLD)) == {"x-1": "SwapBroken"}
    for _ in range(2):
        session_answers(state, HOLD)
    assert state.placed["p2"].node == "b"


def test_a_restart_on_the_way_back_forgets_nothing():
    state = left_alone()
    then(state, pod("p2", "p", owner=OWNER))
    advance(state)
    for _ in range(2):
        loaded = snapshot.load(snapshot.dump(state))
        assert set(decider.pending(loaded, None)) == set(decider.pending(state, None))
        assert loaded.migrations == state.migrations
        assert decider.deadline(loaded) == decider.deadline(state)
        if "hold-back" not in state.reservations:
            turn_back(state)


@pytest.mark.parametrize("far", range(5))
def test_whatever_is_never_answered_on_the_way_both_end(far):
    state = left_alone()
    if far > 0:
        then(state, pod("p2", "p", owner=OWNER))
    if far > 1:
        advance(state)
    if far > 2:
        turn_back(state)
    if far > 3:
        run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted"))
        session_answers(state)
    after = 0
    for _ in range(20):
        advance(state, after)
        session_answers(state, after)
        if not state.active:
            break
        at = decider.deadline(state)
        assert at is not None
        after = max(at - NOW, after)
    assert {m.step for m in state.migrations.values()} <= FINAL
    assert after <= BACK + CONF.land_deadline
    for _ in range(2):
        session_answers(state, after)
    assert state.held_on == {}
    if far:
        assert state.node_of("p2") in ("a", "b"), "it has found its place"


# -- limits --------------------------------------------------------------------------------------------------------------


def steps(state) -> list[str]:
    return [str(step(state, id)) for id in sorted(state.migrations)]


def test_two_that_change_places_begin_together_or_wait():
    """One alone would have its place chosen, wait for the other one in vain, and be left alone as one that was refused."""
    conf = config.MigrationConfig(defragmentation=CONF.defragmentation, concurrent=2)
    others = (node("c", cpu=4_000), node("d", cpu=4_000), pod("r1", "q", node="c", owner=replica_of("r")), plan("w", move("w-1", "r1", "c", "d")))
    state = swapping(*others, conf=conf)
    assert (steps(state), step(state, "w-1")) == (["holding", "planned", "planned"], Step.HOLDING)
    assert failed(advance(state, HOLD)) == {"w-1": "HoldTimeout"}
    assert steps(state) == ["failed", "holding", "holding"]


def test_nobody_takes_the_turn_of_the_other_one():
    conf = config.MigrationConfig(defragmentation=CONF.defragmentation, concurrent=2)
    state = given(
        configured("migration", conf), *(node(name, cpu=4_000) for name in "abcd"), shape("p", cpu=4_000), shape("q", cpu=3_500),
        pod("p1", "p", node="a", owner=OWNER), pod("q1", "q", node="b", owner=OTHER), pod("r1", "q", node="c", owner=replica_of("r")),
        plan("x", move("x-1", "p1", "a", "b", swap=True), move("x-2", "r1", "c", "d"), move("x-3", "q1", "b", "a", swap=True)),
    )  # fmt: skip
    advance(state)
    assert steps(state) == ["holding", "planned", "holding"]


@pytest.mark.parametrize("bound", ["concurrent", "per_namespace", "evictions_per_minute"])
def test_where_only_one_may_be_under_way_nobody_changes_places(bound):
    state = swapping(conf=config.MigrationConfig(defragmentation=CONF.defragmentation, **{bound: 1}))
    assert {m.reason for m in state.migrations.values()} == {"SwapBroken"}
    assert state.migrations["x-1"].message.endswith(f"{bound} allows one at a time")


def test_nobody_leaves_where_the_rate_would_keep_the_other():
    """It would be longer than the room is waited for, and the first would have to turn back."""
    conf = config.MigrationConfig(defragmentation=CONF.defragmentation, evictions_per_minute=3)
    state = swapping(conf=conf)
    for uid in ("y-1", "y-2"):
        state.evictions[uid] = NOW
    assert evicts(hold(state, "x-1", "x-2")) == []
    assert failed(advance(state, HOLD)) == {"x-1": "RateLimit", "x-2": "RateLimit"}
