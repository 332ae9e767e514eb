"""The guard of the source beside another scheduler, and what is answered to each event of a move there (shared/BESIDE.md, "Event → answer")."""

import msgspec
import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    node,
    pod,
    pod_group,
    replica_of,
    reservation,
    run,
    shape,
    then,
)
from domain.saga import OWNER, advance, create, decider, evicts, failed, move, owed, plan, step, terminate
from domain.test_beside import (
    STOCK,
    evicted,
    follows,
    free,
    guard,
    holding,
    opened,
    placeholder,
    session_answers,
    session_owes,
    slot,
    stands,
    successor,
    world,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import beside, config, session, snapshot, thefts
from restow.domain.beside import guard_of
from restow.domain.effects import (
    CloseLanding,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    Evict,
    Land,
    LetGo,
    OpenLanding,
)
from restow.domain.migration import successor as successors
from restow.domain.records import SlotPhase, Step
from restow.domain.session.plugins.predicates.nominees import KEPT
from restow.kube.placeholder import of_slot

LATE = 10 * config.MigrationConfig().land_deadline


def stolen(state, after: int = 0) -> None:
    """A pod of higher priority takes the placeholder's place."""
    then(state, e.PodGone("h"))
    session_answers(state, after)


def turned_back(state):
    """Evicted, the hold is stolen, the successor is gated: the session knows the slot on the old node."""
    stolen(evicted(state))
    successor(state)
    advance(state)
    assert step(state, "x-1") is Step.EVICTED
    assert state.migrations["x-1"].back
    create(state, "x-1")
    session_answers(state)
    return state


def ends(state, after: int = 0) -> None:
    """Everything that is owed at the end is done: the world answers, and nothing is left."""
    for _ in range(10):
        session_answers(state, after)
        effects = [*owed(state), *session_owes(state)]
        for effect in effects:
            match effect:
                case DeletePlaceholder(pod=uid):
                    then(state, e.PodGone(uid))
                case DeleteReservation(reservation=uid):
                    then(state, e.ReservationGone(uid))
                case CloseLanding(migration=id):
                    run(state, decider, c.ReportLanding(NOW + after, id))
                case LetGo(pod=uid):
                    then(state, pod(uid, "s", owner=OWNER))
        then(state, *(e.PodGone(uid) for uid in list(state.placeholders) if state.pods[uid].live.deleting))
        if not effects:
            break
    assert not any(isinstance(effect, CreatePlaceholder | OpenLanding | Land) for effect in effects), effects
    assert (state.placeholders, state.stand_ins, state.landings, state.gated) == ({}, {}, {}, {})
    assert state.slots == {} or all(found.phase not in (SlotPhase.HELD, SlotPhase.WAITING) for known in state.slots.values() for found in known.values())


# -- the guard -------------------------------------------------------------------------------------------------------------


def test_the_guard_is_made_when_the_eviction_is_decided_and_the_eviction_waits_for_it():
    state = holding(world())
    opened(state)
    stands(state)
    assert CreatePlaceholder("guard", "x-1") not in session_owes(state), "while the pod is there its scheduler counts both"
    evicts(advance(state))
    assert (owed(state), session_owes(state)) == ([], [CreatePlaceholder("guard", "x-1")])
    then(state, guard(state))
    assert (owed(state), session_owes(state)) == ([Evict("x-1")], [])


def test_the_guard_is_charged_to_nobody():
    state = evicted(world())
    assert free(state, "a") == 1_000
    then(state, e.PodGone("p"))
    assert free(state, "a") == 4_000


@pytest.mark.parametrize("scheduler", ["restow", "default-scheduler"])
def test_a_guard_keeps_what_the_pod_leaves_from_reservations_of_people_until_the_move_has_landed(scheduler):
    state = evicted(world(shape("other", cpu=3_000, scheduler=scheduler)))
    then(state, reservation("r", ("t", 1, "other"), match_policy="Owner", scheduler=scheduler), e.PodGone("p"))
    session_answers(state)
    (kept,) = state.slots["r"].values()
    assert (kept.phase, kept.reasons.get(KEPT), free(state, "a")) == (SlotPhase.PENDING, 1, 4_000)
    stolen(state)
    successor(state)
    advance(state)
    create(state, "x-1")
    session_answers(state)
    assert Land("p2", "a") in session_owes(state), "and its own way back is not in its way"
    then(state, e.PodGone("g"), pod("p2", "s", owner=OWNER), changed("p2", node="a"), changed("p2", node="a", phase="Running", ready=True))
    advance(state)
    then(state, e.PodGone("p2"))
    session_answers(state)
    (kept,) = state.slots["r"].values()
    assert kept.node in ("a", "b"), "whose turn is then"


def test_a_guard_whose_nomination_was_taken_is_nominated_again_and_nobody_is_evicted_meanwhile():
    state = holding(world())
    opened(state)
    stands(state)
    evicts(advance(state))
    then(state, guard(state), guard(state, node=""))
    assert (owed(state), session_owes(state)) == ([], [CreatePlaceholder("guard", "x-1")])


def test_a_guard_that_somebody_deleted_is_made_again():
    state = evicted(world())
    then(state, e.PodGone("g"))
    assert session_owes(state) == [CreatePlaceholder("guard", "x-1")]
    then(state, guard(state, "g2"))
    assert session_owes(state) == []


def test_a_guard_that_the_api_refuses_ends_the_move_before_the_eviction():
    state = holding(world())
    opened(state)
    stands(state)
    evicts(advance(state))
    run(state, session.decider, c.RefusePlaceholder(NOW, "guard", "x-1", "403 Forbidden by policy"))
    assert slot(state).reason == "PlaceholderRefused: 403 Forbidden by policy"
    assert run(state, session.decider, c.RefusePlaceholder(NOW, "guard", "x-1", "403 Forbidden by policy")) == [], "a second answer releases nothing"
    advance(state)
    run(state, decider, c.ReportEviction(NOW, "x-1", "Aborted"))
    assert step(state, "x-1") is Step.FAILED
    assert "403 Forbidden by policy" in state.migrations["x-1"].message
    ends(state)


def test_a_guard_that_the_api_refuses_after_the_eviction_costs_the_way_back_and_not_the_slot():
    """Somebody has deleted the first one, and the API takes no second one."""
    state = evicted(world())
    then(state, e.PodGone("g"))
    assert run(state, session.decider, c.RefusePlaceholder(NOW, "guard", "x-1", "403 Forbidden by policy")) == []
    assert session_owes(state) == [CreatePlaceholder("guard", "x-1")], "it is tried again"
    successor(state)
    assert Land("p2", "b") in session_owes(state)


def test_who_has_turned_back_has_nothing_else_than_the_guard():
    state = turned_back(world())
    then(state, e.PodGone("g"), e.PodGone("p"))
    run(state, session.decider, c.RefusePlaceholder(NOW, "guard", "x-1", "403 Forbidden by policy"))
    advance(state)
    assert step(state, "x-1") is Step.FAILED
    assert LetGo("p2") in session_owes(state)
    ends(state)


def test_the_guard_stays_until_the_successor_has_landed():
    state = evicted(world())
    successor(state)
    then(state, e.PodGone("p"))
    assert DeletePlaceholder("g") not in session_owes(state)
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER), changed("p2", node="b"))
    assert session_owes(state) == []
    then(state, changed("p2", node="b", phase="Running", ready=True))
    advance(state)
    assert step(state, "x-1") is Step.LANDED
    assert session_owes(state) == [DeletePlaceholder("g")]
    ends(state)


def test_the_guard_steps_aside_for_a_successor_that_was_let_go_and_is_not_bound():
    state = evicted(world())
    successor(state)
    then(state, e.PodGone("p"), e.PodGone("h"), pod("p2", "s", owner=OWNER, nominated="b"))
    assert DeletePlaceholder("g") in session_owes(state)
    assert beside.steps_aside_at(state, "g") == NOW + beside.PATIENCE
    then(state, e.PodGone("g"))
    assert session_owes(state) == [], "it is not made again"


def test_a_guard_of_a_move_that_nobody_knows_is_deleted():
    state = world()
    then(state, guard(state, id="old-1"))
    assert session_owes(snapshot.load(snapshot.dump(state))) == [DeletePlaceholder("g")]


# -- one node is not source and target at once -----------------------------------------------------------------------------


def two(first, second):
    """Two moves of two plans; q is on b."""
    state = world(node("c", cpu=8_000), pod("q", "s", node="b", owner=OWNER), node("b", cpu=8_000))
    then(state, plan("x", first), plan("y", second))
    advance(state)
    return state


@pytest.mark.parametrize(("first", "second"), [
    (move("x-1"), move("y-1", "q", "b", "c")), (move("x-1", "q", "b", "c"), move("y-1")),
], ids=["its old node is another's target", "its target is another's old node"])  # fmt: skip
def test_a_move_waits_for_another_one_whose_guard_would_be_where_a_placeholder_is(first, second):
    state = two(first, second)
    assert (step(state, "x-1"), step(state, "y-1")) == (Step.HOLDING, Step.PLANNED)
    run(state, decider, c.CancelPlan(NOW, "x", "by hand"))
    advance(state)
    assert step(state, "y-1") is Step.HOLDING


def test_moves_off_one_node_do_not_wait_for_each_other():
    state = world(node("c", cpu=4_000), node("a", cpu=8_000), pod("q", "s", node="a", owner=OWNER))
    then(state, plan("x", move("x-1")), plan("y", move("y-1", "q", "a", "c")))
    advance(state)
    assert (step(state, "x-1"), step(state, "y-1")) == (Step.HOLDING, Step.HOLDING)


def test_pods_of_ours_do_not_wait_for_guards():
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0)
    state = two(move("x-1"), move("y-1", "q", "b", "c"))
    then(state, configured("migration", conf))
    advance(state)
    assert step(state, "y-1") is not Step.PLANNED


# -- event → answer --------------------------------------------------------------------------------------------------------


def test_a_hold_that_its_scheduler_cannot_bind_rolls_back_when_its_time_is_up():
    state = holding(world())
    then(state, placeholder(state))
    late = config.MigrationConfig().hold_deadline
    assert failed(advance(state, late)) == {"x-1": "HoldTimeout"}
    assert state.pods["p"].live.deleting == 0
    ends(state, late)


@pytest.mark.parametrize("how", [e.PodGone("h"), changed("h", node="b", phase="Running", deleting=NOW), changed("h", node="b", phase="Failed")],
                         ids=["deleted", "preempted", "rejected"])  # fmt: skip
def test_a_hold_that_goes_before_the_eviction_rolls_back(how):
    state = holding(world())
    opened(state)
    stands(state)
    then(state, how)
    session_answers(state)
    assert failed(advance(state)) == {"x-1": beside.STOLEN}
    assert state.pods["p"].live.deleting == 0
    ends(state)


def test_a_hold_that_goes_when_the_eviction_was_decided_rolls_back_by_the_mark():
    state = holding(world())
    opened(state)
    stands(state)
    evicts(advance(state))
    then(state, guard(state))
    stolen(state)
    assert Evict("x-1") not in owed(state)
    (event,) = advance(state)
    assert (type(event), event.reason) == (e.Aborting, beside.STOLEN)
    run(state, decider, c.ReportEviction(NOW, "x-1", "Aborted"))
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.FAILED, beside.STOLEN)
    ends(state)


def test_a_hold_that_goes_after_the_eviction_sends_the_successor_back_once_the_pod_is_gone():
    state = turned_back(world())
    assert state.migrations["x-1"].reason == beside.STOLEN
    back = state.migrations["x-1"].reservation
    (one,) = state.slots[back].values()
    assert one.phase is SlotPhase.WAITING
    assert [effect for effect in session_owes(state) if isinstance(effect, LetGo | CreatePlaceholder | Land)] == []
    then(state, e.PodGone("p"))
    session_answers(state)
    assert state.migrations["x-1"].successor == "p2"
    assert Land("p2", "a") in session_owes(state)
    assert beside.placeholder_of(state, "p2") == "g", "who is handed over instead is the guard"
    then(state, e.PodGone("g"), pod("p2", "s", owner=OWNER), changed("p2", node="a"), changed("p2", node="a", phase="Running", ready=True))
    advance(state)
    record = state.migrations["x-1"]
    assert (record.step, record.reason, "is back on a" in record.message) == (Step.FAILED, beside.STOLEN, True)
    ends(state)


DELETED, GOING = e.PodGone("h"), changed("h", node="b", phase="Running", deleting=NOW)
RIVAL = pod("rival", "all", node="b")


@pytest.mark.parametrize("answered", [0, 1, 9], ids=["the session first", "the session in between", "the session later"])
@pytest.mark.parametrize("facts", [(DELETED, RIVAL), (GOING, DELETED, RIVAL), (GOING, RIVAL, DELETED)], ids=["gone", "going, gone", "beside it for a moment"])
def test_a_hold_that_is_taken_after_the_eviction_is_stolen_whatever_has_been_heard_when_the_move_looks_and_however_late_the_session_is(facts, answered):
    """The watcher tells of the placeholder's end and of the pod that took its place in one commit, or in two, and the session may answer after both: the slot then waits for what
    another one has, and the move ended as HoldLost, which no count of thefts sees."""
    state = evicted(world(shape("all", cpu=4_000, scheduler=STOCK)))
    for number, fact in enumerate(facts):
        then(state, fact)
        if number == answered:
            session_answers(state)
    then(state, pod("p2", "s", owner=OWNER, gated=True, landing=True))
    advance(state)
    assert (bool(state.migrations["x-1"].back), state.migrations["x-1"].reason) == (True, beside.STOLEN)


def decided(state):
    """As far as the decision to evict: the pod is there yet."""
    holding(state)
    opened(state)
    stands(state)
    assert evicts(advance(state)) == ["x-1"]
    return state


@pytest.mark.parametrize("answered", [False, True], ids=["the session later", "the session first"])
@pytest.mark.parametrize("step_of", [evicted, decided], ids=["after the eviction", "before it"])
@pytest.mark.parametrize("facts", [(e.NodeGone("b"), DELETED), (DELETED, e.NodeGone("b")), (e.NodeGone("b"),)], ids=["node, placeholder", "placeholder, node", "node"])
def test_a_target_that_is_deleted_is_lost_whether_it_or_its_placeholder_went_first(facts, step_of, answered):
    """As docs/beside.md says. It was HoldLost, or HoldStolen, as it happened."""
    state = step_of(world())
    then(state, *facts)
    if answered:
        session_answers(state)
    successor(state)
    advance(state)
    assert state.migrations["x-1"].reason == "TargetLost"


def test_where_the_successor_comes_after_the_pod_has_gone_it_returns_too():
    state = evicted(world())
    stolen(state)
    then(state, e.PodGone("p"))
    advance(state)
    assert successors.pattern(state, state.migrations["x-1"]) is None
    successor(state)
    advance(state)
    create(state, "x-1")
    session_answers(state)
    assert Land("p2", "a") in session_owes(state)


def test_who_turns_back_waits_while_another_pod_of_its_node_is_to_leave_and_still_there():
    state = world(node("c", cpu=4_000), node("a", cpu=8_000), pod("q", "s", node="a", owner=OWNER))
    then(state, plan("y", move("y-1", "q", "a", "c")))
    advance(state)
    create(state, "y-1")
    session_answers(state)
    opened(state)
    then(state, placeholder(state, "y-1", "h2"), changed("h2", node="c"), changed("h2", node="c", phase="Running", ready=True))
    session_answers(state)
    assert evicts(advance(state)) == ["y-1"]
    then(state, guard(state, "g2", "y-1"))
    turned_back(state)
    then(state, e.PodGone("p"))
    session_answers(state)
    assert state.migrations["x-1"].successor == ""
    terminate(state, "q")
    then(state, e.PodGone("q"))
    session_answers(state)
    assert Land("p2", "a") in session_owes(state)


def test_an_eviction_that_a_budget_refuses_is_rolled_back():
    state = holding(world())
    opened(state)
    stands(state)
    evicts(advance(state))
    then(state, guard(state))
    late = config.MigrationConfig().budget_patience
    run(state, decider, c.ReportEviction(NOW + late, "x-1", "Budget", "429"))
    run(state, decider, c.ReportEviction(NOW + late, "x-1", "Aborted"))
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.FAILED, "Budget")
    ends(state, late)


@pytest.mark.parametrize("lost", [node("b", cpu=4_000, unschedulable=True), e.NodeGone("b")], ids=["cordoned", "deleted"])
def test_a_target_that_is_lost_before_the_eviction_rolls_back(lost):
    state = holding(world())
    opened(state)
    stands(state)
    then(state, lost)
    session_answers(state)
    assert set(failed(advance(state))) == {"x-1"}
    if isinstance(lost, e.NodeGone):
        then(state, e.PodGone("h"))
    ends(state)


@pytest.mark.parametrize("lost", [node("b", cpu=4_000, unschedulable=True), e.NodeGone("b")], ids=["cordoned", "deleted"])
def test_a_target_that_is_lost_after_the_eviction_sends_the_successor_back(lost):
    state = evicted(world())
    then(state, lost)
    session_answers(state)
    successor(state)
    advance(state)
    assert state.migrations["x-1"].back
    create(state, "x-1")
    then(state, e.PodGone("p"))
    session_answers(state)
    session_answers(state)
    assert Land("p2", "a") in session_owes(state)


def two_in_line():
    """Two successors have slots on b: p2 lands, and q2 waits for its turn. Their pods have gone from a and c."""
    state = evicted(world(node("c", cpu=4_000)))
    follows(state, cpu=8_000)
    advance(state)
    then(state, guard(state, "g2", "z-1", "c"))
    terminate(state, "q")
    advance(state)
    successor(state, "p2")
    successor(state, "q2")
    then(state, e.PodGone("p"), e.PodGone("q"))
    return state


def test_who_waits_for_its_turn_on_a_target_that_is_lost_turns_back_at_once():
    """However many are before it: nobody lands there any more."""
    state = two_in_line()
    then(state, node("b", cpu=8_000, unschedulable=True))
    assert session.decider.due(state, NOW) is not None
    found = session_answers(state)
    assert [(event.pod, event.reason) for event in found if isinstance(event, e.PodReleased)] == [("q2", "TargetLost")]
    assert [effect for effect in session_owes(state) if isinstance(effect, LetGo)] == [], "it is its move's to say what becomes of it"
    advance(state)
    assert (state.migrations["z-1"].back > 0, state.migrations["z-1"].reason, state.migrations["x-1"].successor) == (True, "TargetLost", "p2")
    create(state, "z-1")
    session_answers(state)
    session_answers(state)
    assert Land("q2", "c") in session_owes(state)


def test_the_hold_that_a_move_has_given_up_is_no_reservation_of_a_person():
    """Nobody is gated for it by its labels, and nobody is let go because he gets nothing of it."""
    state = two_in_line()
    then(state, node("b", cpu=8_000, unschedulable=True))
    found = session_answers(state)
    advance(state)
    create(state, "z-1")
    found += session_answers(state)
    assert [event for event in found if isinstance(event, e.OwnersGated | e.PodLetGo)] == []
    assert [effect for effect in session_owes(state) if isinstance(effect, CreatePlaceholder)] == []


def test_a_successor_that_comes_when_the_target_is_lost_is_not_let_go_before_its_move_has_said_what_becomes_of_it():
    state = evicted(world())
    then(state, node("b", cpu=4_000, unschedulable=True))
    successor(state)
    assert [effect for effect in session_owes(state) if isinstance(effect, LetGo)] == []
    advance(state)
    assert state.migrations["x-1"].back


def test_a_successor_that_was_not_gated_and_is_bound_elsewhere_ends_the_move():
    state = evicted(world(node("c", cpu=4_000)))
    then(state, pod("p2", "s", owner=OWNER), changed("p2", node="c"), e.PodGone("p"), changed("p2", node="c", phase="Running", ready=True))
    session_answers(state, LATE)
    assert failed(advance(state, LATE)) == {"x-1": "Elsewhere"}
    ends(state, LATE)


def test_two_moves_of_one_controller_get_one_successor_each_and_a_third_pod_is_let_go():
    state = evicted(world(node("c", cpu=4_000), node("a", cpu=8_000)))
    then(state, pod("q", "s", node="a", owner=OWNER), plan("y", move("y-1", "q", "a", "c")))
    advance(state)
    create(state, "y-1")
    session_answers(state)
    opened(state)
    then(state, placeholder(state, "y-1", "h2"), changed("h2", node="c"), changed("h2", node="c", phase="Running", ready=True))
    session_answers(state)
    assert evicts(advance(state)) == ["y-1"]
    then(state, guard(state, "g2", "y-1"))
    terminate(state, "q")
    advance(state)
    for uid in ("p2", "q2", "r2"):
        successor(state, uid)
    effects = session_owes(state)
    assert {effect for effect in effects if isinstance(effect, Land | LetGo)} == {Land("p2", "b"), Land("q2", "c"), LetGo("r2")}


def test_one_that_asks_for_more_is_no_successor_and_let_go():
    state = evicted(world())
    then(state, e.ShapeDeclared("m", shape("m", cpu=3_500, scheduler="default-scheduler").spec))
    then(state, pod("p2", "m", owner=OWNER, gated=True, landing=True))
    session_answers(state)
    assert LetGo("p2") in session_owes(state)
    then(state, e.PodGone("p"))
    advance(state, LATE)
    assert step(state, "x-1") in (Step.FAILED, Step.NOT_RECREATED)
    ends(state, LATE)


def test_after_a_restart_in_the_middle_the_same_is_owed():
    state = turned_back(world())
    again = snapshot.load(snapshot.dump(state))
    assert session_owes(again) == session_owes(state)
    assert owed(again) == owed(state)
    then(again, e.PodGone("p"))
    session_answers(again)
    assert Land("p2", "a") in session_owes(again)


def test_a_successor_that_the_api_did_not_gate_gets_its_slot_all_the_same():
    state = evicted(world())
    then(state, pod("p2", "s", owner=OWNER))
    session_answers(state)
    assert session_owes(state) == [Land("p2", "b")]
    then(state, e.PodGone("p"), e.PodGone("h"), changed("p2", node="b"), changed("p2", node="b", phase="Running", ready=True))
    assert session_owes(state) == []
    advance(state)
    assert step(state, "x-1") is Step.LANDED
    ends(state)


def test_whoever_else_was_not_gated_is_its_schedulers_and_nothing_is_owed_for_it():
    state = evicted(world())
    successor(state)
    then(state, pod("p3", "s", owner=OWNER))
    assert session_answers(state) == []
    assert session_owes(state) == [Land("p2", "b")]


# -- thefts that go on -----------------------------------------------------------------------------------------------------


def robbed(times: int):
    """So many moves have ended because their hold was stolen."""
    state = world()
    for i in range(times):
        then(state, plan(f"t{i}", move(f"t{i}-1")))
        then(state, e.Holding(f"t{i}-1", NOW), e.MigrationFailed(f"t{i}-1", beside.STOLEN, ""))
    return state


@pytest.mark.parametrize("times", [thefts.MOST - 1, thefts.MOST])
def test_after_some_thefts_in_a_row_moves_beside_another_scheduler_rest(times):
    state = robbed(times)
    then(state, plan("x", move("x-1")))
    rests = {"x-1": "HoldsStolen"} if times == thefts.MOST else {}
    assert failed(advance(state)) == rests
    assert bool(thefts.rests_until(state)) is bool(rests)
    assert beside.another_scheduler(state, "s") == ("HoldsStolen" if rests else "")


def test_they_go_on_when_the_thefts_are_old_and_what_is_old_is_forgotten():
    state = robbed(thefts.MOST)
    assert len(snapshot.load(snapshot.dump(state)).thefts) == thefts.MOST
    with state.draft():
        state.time += thefts.WINDOW
        assert thefts.rests_until(state) == 0
        thefts.note(state, "new")
        assert list(state.thefts) == ["new"]


def test_a_clock_that_is_put_back_makes_no_longer_rest():
    state = robbed(thefts.MOST)
    with state.draft():
        state.time -= 24 * 3_600_000
        assert thefts.rests_until(state) == 0


def test_nor_does_the_next_one_on_a_node_wait_until_the_clock_is_there_again():
    state = two_in_line()
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER))
    assert Land("q2", "b") not in session_owes(state)
    with state.draft():
        state.time -= 3_600_000
        assert Land("q2", "b") in session_owes(state)
        assert beside.steps_aside_at(state, "g") == 0


def test_a_move_that_holds_already_is_not_evicted_while_they_rest():
    state = holding(robbed(thefts.MOST - 1))
    opened(state)
    then(state, node("c"), pod("q", "s", node="c", owner=OWNER), plan("z", move("z-1", "q", "c", "a")), e.Holding("z-1", NOW), e.MigrationFailed("z-1", beside.STOLEN, ""))
    stands(state)
    assert evicts(advance(state)) == []
    assert step(state, "x-1") is Step.HELD


@pytest.mark.parametrize("first", ["s", "ours"])
@pytest.mark.parametrize(("when", "reasons"), [("planned", {"x-1": "HoldsStolen", "x-2": "HoldsStolen"}), ("held", {})])
def test_a_gang_that_is_moved_as_one_rests_too(when, reasons, first):
    """Also where another scheduler places only some of it: what is asked of one is answered for all."""
    of_gang = {"owner": OWNER, "annotations": {"scheduling.k8s.io/group-name": "g", "restow.dev/movable": "gang"}}
    pods = (shape("ours", cpu=3_000), pod_group("g", need=2), pod("p1", first, node="a", **of_gang), pod("p2", node="b", **of_gang))
    state = then(world(), e.PodGone("p"), *(node(name, cpu=4_000) for name in "cdz"), *pods)
    (planned,) = run(state, decider, c.MoveGang(NOW, "x", "default/g"))
    if when == "held":
        advance(state)
        create(state, "x-1", "x-2")
        session_answers(state)
        for i, one in enumerate(planned.moves):
            if state.pods[one.pod].fact.shape != "s":
                continue
            stand_in = placeholder(state, one.migration, f"h{i}")
            then(state, stand_in, changed(stand_in.pod, node=one.target), changed(stand_in.pod, node=one.target, phase="Running", ready=True))
        session_answers(state)
    for i in range(thefts.MOST):
        then(state, pod(f"t{i}", "s", node="z", owner=OWNER), plan(f"t{i}", move(f"t{i}-1", f"t{i}", "z", "c")), e.Holding(f"t{i}-1", NOW), e.MigrationFailed(f"t{i}-1", beside.STOLEN, ""))
    if when == "held":
        opened(state)
    events = advance(state)
    assert evicts(events) == []
    assert failed(events) == reasons


def test_moves_of_our_own_pods_do_not_rest():
    state = robbed(thefts.MOST)
    then(state, configured("session", msgspec.structs.replace(state.session_config, scheduler_names=("default-scheduler",))))
    then(state, plan("x", move("x-1")))
    advance(state)
    assert step(state, "x-1") is Step.HOLDING


def back_and_rejected():
    """Its successor got the place on the old node, and the kubelet there has rejected it. The next one is gated."""
    state = turned_back(world())
    then(state, e.PodGone("p"))
    session_answers(state)
    assert Land("p2", "a") in session_owes(state)
    then(state, e.PodGone("g"), pod("p2", "s", owner=OWNER), changed("p2", node="a"), changed("p2", node="a", phase="Failed", reason="OutOfcpu"))
    advance(state)
    successor(state, "p3")
    advance(state)
    return state


def test_where_the_old_node_s_kubelet_rejects_the_successor_the_next_one_is_let_go_at_once():
    """No guard is made again: its kubelet would reject the next one, too, and so on until the time to land is up. It stayed gated until then."""
    state = back_and_rejected()
    assert (step(state, "x-1"), "nothing keeps its capacity on a" in state.migrations["x-1"].message) == (Step.FAILED, True)
    session_answers(state)
    owes = session_owes(state)
    assert LetGo("p3") in owes
    assert not [effect for effect in owes if isinstance(effect, CreatePlaceholder | Land)]


def test_where_somebody_has_the_place_on_the_old_node_the_successor_is_let_go_at_once():
    """A pod of higher priority, for the guard keeps it from all others."""
    state = turned_back(world(shape("all", cpu=4_000, scheduler=STOCK)))
    then(state, [pod("rival", "all", node="a"), e.PodGone("p")])
    session_answers(state)
    advance(state)
    assert (step(state, "x-1"), "others have its capacity on a" in state.migrations["x-1"].message) == (Step.FAILED, True)
    session_answers(state)
    assert LetGo("p2") in session_owes(state)


def test_a_guard_whose_nomination_is_taken_away_after_the_pod_has_gone_is_nominated_again():
    """As kube-scheduler does to all on a node where it preempts anybody."""
    state = evicted(world())
    first = of_slot(state, guard_of("x-1"), NOW)
    then(state, e.PodGone("p"), guard(state, node=""))
    assert CreatePlaceholder(*guard_of("x-1")) in session_owes(state)
    made = of_slot(state, guard_of("x-1"), NOW)
    assert made is not None
    assert (made.metadata, made.spec.containers) == (first.metadata, first.spec.containers)
    state = turned_back(world())
    then(state, e.PodGone("p"), guard(state, node=""))
    advance(state)
    assert CreatePlaceholder(*guard_of("x-1")) in session_owes(state)
    assert of_slot(state, guard_of("x-1"), NOW) is not None
    then(state, guard(state))
    session_answers(state)
    assert Land("p2", "a") in session_owes(state)


@pytest.mark.parametrize("first", [False, True])
def test_a_slot_whose_placeholder_stands_gives_way_after_all_that_are_held_in_the_log_alone(first):
    """Whatever it gave up, its placeholder would still be there. The other scheduler does not see Restow's own holds, and has bound a pod where one is."""
    of_ours = (shape("ours", cpu=3_000), shape("small", cpu=2_000, scheduler=STOCK), reservation("r", ("t", 1, "ours"), node="b"))
    state = world(node("b", cpu=7_000), *(of_ours if first else ()))
    session_answers(state)
    evicted(state)
    if not first:
        then(state, *of_ours)
        session_answers(state)
    assert all(one.phase is SlotPhase.HELD for one in (slot(state), *state.slots["r"].values()))
    then(state, pod("rival", "small", node="b"))
    (other,) = state.slots["r"].values()
    assert (slot(state).phase, other.phase) == (SlotPhase.HELD, SlotPhase.WAITING)
    successor(state)
    assert Land("p2", "b") in session_owes(state)


@pytest.mark.parametrize("latest", ["x-1", "y-1"])
def test_so_it_is_between_two_moves_whichever_began_first(latest):
    ours = (shape("ours", cpu=3_000), shape("small", cpu=2_000, scheduler=STOCK), pod("q", "ours", node="a", owner=OWNER))
    state = world(node("a", cpu=9_000), node("b", cpu=7_000), *ours)

    def held_by_ours() -> None:
        then(state, plan("y", move("y-1", "q")))
        advance(state)
        create(state, "y-1")
        session_answers(state)

    if latest == "x-1":
        held_by_ours()
    evicted(state)
    if latest == "y-1":
        held_by_ours()
    then(state, pod("rival", "small", node="b"))
    (other,) = state.slots["hold-y-1"].values()
    assert (slot(state).phase, other.phase) == (SlotPhase.HELD, SlotPhase.WAITING)


def test_where_the_target_has_not_enough_for_it_any_more_the_successor_turns_back_at_once():
    """As where a device of a node fails. The session gives the slot up, and nothing is held: it would stay gated until the time to land is up."""
    state = evicted(world())
    then(state, e.PodGone("p"), node("b", cpu=1_000))
    session_answers(state)
    successor(state)
    advance(state)
    assert state.migrations["x-1"].back
    create(state, "x-1")
    session_answers(state)
    assert Land("p2", "a") in session_owes(state)


def test_where_the_old_node_has_not_enough_any_more_the_successor_is_let_go_at_once():
    """As where a device of it has failed: the session makes no slot there, so that it would stay gated until the time to land is up."""
    state = turned_back(world())
    then(state, node("a", cpu=1_000), e.PodGone("p"))
    session_answers(state)
    advance(state)
    assert (step(state, "x-1"), "node a has not enough for it any more" in state.migrations["x-1"].message) == (Step.FAILED, True)
    session_answers(state)
    assert LetGo("p2") in session_owes(state)


def test_what_the_session_said_of_the_old_node_while_the_pod_was_there_is_no_reason_to_give_it_up():
    """A node that says for a moment that it has less, as one whose device plugin starts again. What it says then counts, also before the session has looked again."""
    state = turned_back(world(node("a", cpu=1_000)))
    then(state, node("a", cpu=4_000), e.PodGone("p"))
    advance(state)
    assert step(state, "x-1") is Step.EVICTED
    session_answers(state)
    assert Land("p2", "a") in session_owes(state)


def test_a_target_that_has_less_than_its_placeholder_takes_is_not_said_to_be_somebody_s():
    state = evicted(world())
    then(state, node("b", cpu=1_000))
    advance(state)
    assert state.migrations["x-1"].back
    assert state.migrations["x-1"].message == "node b has not enough for it any more"


DEPLOYED, NEXT = replica_of("web", "Deployment"), replica_of("web-2")


def of_deployment(*more: e.Event):
    """As far as the eviction, of a Deployment's pod."""
    return evicted(world(e.WorkloadObserved(OWNER.uid, "ReplicaSet", "default", "web-1", owner=DEPLOYED), e.WorkloadObserved(DEPLOYED.uid, "Deployment", "default", "web", wanted=1), *more))


@pytest.mark.parametrize("first", ["pod", "replica set"])
def test_the_next_revision_s_pod_gets_the_slot_whichever_of_it_and_its_replica_set_is_heard_of_first(first):
    """Nobody has gated it, for moves know the old ReplicaSet. It waited for what its own move held until the time to land was up."""
    state = of_deployment()
    then(state, e.WorkloadObserved(DEPLOYED.uid, "Deployment", "default", "web", busy="rollout", wanted=1), e.PodGone("p"))
    facts = [pod("p2", "s", owner=NEXT), e.WorkloadObserved(NEXT.uid, "ReplicaSet", "default", "web-2", owner=DEPLOYED)]
    for fact in facts if first == "pod" else reversed(facts):
        then(state, fact)
        session_answers(state)
        advance(state)
    assert Land("p2", "b") in session_owes(state)


GONE_P2 = e.PodGone("p2")


@pytest.mark.parametrize("facts", [(GONE_P2, DELETED), (GOING, GONE_P2, DELETED), (GONE_P2, GOING, DELETED)], ids=["gone first", "going first", "going last"])
def test_a_placeholder_that_we_have_deleted_for_a_successor_that_has_gone_is_not_stolen_and_another_one_is_made(facts):
    """A rollout deletes the successor while it lands. It counted as a theft, and after three of those no move began for ten minutes."""
    state = evicted(world())
    successor(state)
    assert Land("p2", "b") in session_owes(state)
    for fact in facts:
        then(state, fact)
        advance(state)
        session_answers(state)
    assert (state.migrations["x-1"].back, state.migrations["x-1"].reason) == (0, "")
    assert [effect for effect in session_owes(state) if isinstance(effect, CreatePlaceholder)] == [CreatePlaceholder("hold-x-1", *state.slots["hold-x-1"])]
    stands(state, uid="h2")
    then(state, e.PodGone("p"), pod("p3", "s", owner=OWNER, gated=True, landing=True))
    session_answers(state)
    assert Land("p3", "b") in session_owes(state)


def test_one_that_still_stands_then_is_the_next_successor_s():
    state = evicted(world())
    successor(state)
    then(state, e.PodGone("p2"))
    session_answers(state)
    successor(state, "p3")
    assert (Land("p3", "b") in session_owes(state), slot(state).phase) == (True, SlotPhase.USED)
    assert beside.placeholder_of(state, "p3") == "h"


def test_the_next_placeholder_is_stolen_like_any_other():
    state = evicted(world())
    successor(state)
    for fact in (GONE_P2, DELETED):
        then(state, fact)
        session_answers(state)
    stands(state, uid="h2")
    then(state, e.PodGone("h2"))
    session_answers(state)
    advance(state)
    assert (bool(state.migrations["x-1"].back), state.migrations["x-1"].reason) == (True, beside.STOLEN)
