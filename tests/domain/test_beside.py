"""Pods that another scheduler places, moved with a held slot: a placeholder holds it, the API gates the successor, our session hands it over."""

import pytest
from domain.build import NOW, changed, configured, given, node, pod, pod_group, run, shape, then, when
from domain.saga import OWNER, advance, create, decider, evicts, failed, move, owed, plan, step, terminate
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import rfc3339
from restow.contracts.values import OwnerRef
from restow.domain import beside, config, gated, hooks, session, snapshot
from restow.domain import reservation as reservations
from restow.domain.decider import Rejected
from restow.domain.effects import (
    CloseLanding,
    CreatePlaceholder,
    DeletePlaceholder,
    DeleteReservation,
    Evict,
    Land,
    LetGo,
    NominateAgain,
    OpenLanding,
)
from restow.domain.landing_gate import LEASE
from restow.domain.migration import gating
from restow.domain.records import ON_NODE, SlotPhase, Step
from restow.domain.state_maps import Touched
from restow.kube.placeholder import of_slot
from restow.replay.moves import beside_lines, stranger_lines

STOCK = "default-scheduler"


def world(*more: e.Event, schedulers=(STOCK,)):
    """Nodes a and b; p of another scheduler runs on a."""
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0, beside=schedulers)
    return given(
        configured("migration", conf), *(e.NominationsChecked(name, "honoured") for name in schedulers), node("a", cpu=4_000), node("b", cpu=4_000), shape("s", cpu=3_000, scheduler=STOCK),
        pod("p", node="a", owner=OWNER), *more,
    )  # fmt: skip


def session_answers(state, after: int = 0) -> list[e.Event]:
    found = [*run(state, reservations.decider, c.Review(NOW + after))]
    for _ in range(3):
        found += run(state, session.decider, c.Schedule(NOW + after))
    return found


def session_owes(state) -> list:
    return list(session.decider.pending(state, None))


def placeholder(state, id: str = "x-1", uid: str = "h", **more) -> e.PodObserved:
    """What the session makes for the slot of a migration."""
    (name,) = state.slots[f"hold-{id}"]
    return pod(uid, "s", namespace="restow-holds", labels={"restow.dev/log": state.log}, annotations={beside.SLOT: f"hold-{id}/{name}"}, **more)


def holding(state):
    """Planned and begun: its Reservation is there, and the session has chosen the slot."""
    then(state, plan("x", move("x-1")))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    return state


def stands(state, node: str = "b", uid: str = "h") -> None:
    then(state, placeholder(state, uid=uid))
    then(state, changed(uid, node=node))
    then(state, changed(uid, node=node, phase="Running", ready=True))
    session_answers(state)


def opened(state) -> None:
    """The API takes what the saga asks it to gate."""
    for effect in owed(state):
        if isinstance(effect, OpenLanding):
            run(state, decider, c.ReportLanding(NOW, effect.migration, effect.controller, NOW + LEASE))


def guard(state, uid: str = "g", id: str = "x-1", node: str = "a", **more) -> e.PodObserved:
    """What the session makes for the old node of a migration."""
    said = {"namespace": "restow-holds", "labels": {"restow.dev/log": state.log}, "annotations": {beside.SLOT: f"guard/{id}"}}
    return pod(uid, "s", gated=True, nominated=node, **said | more)


def evicted(state):
    """As far as the eviction: the slot is held, the old node is kept for the move, the pod terminates."""
    holding(state)
    opened(state)
    stands(state)
    assert evicts(advance(state)) == ["x-1"]
    then(state, guard(state))
    assert Evict("x-1") in owed(state)
    terminate(state, "p")
    advance(state)
    return state


def successor(state, uid: str = "p2", **more) -> None:
    then(state, pod(uid, "s", owner=OWNER, gated=True, landing=True, **more))
    session_answers(state)


def follows(state, of: str = "s", **more) -> None:
    """A second move to b, of q on c, whose placeholder stands there. Node b has so much (`**more`) by now."""
    then(state, pod("q", of, node="c", owner=OWNER), node("b", **more), plan("z", move("z-1", "q", "c")))
    advance(state)
    create(state, "z-1")
    session_answers(state)
    opened(state)
    then(state, replace(placeholder(state, "z-1", "h2"), shape=of), changed("h2", node="b", phase="Running", ready=True))
    session_answers(state)


def slot(state):
    (one,) = state.slots["hold-x-1"].values()
    return one


def free(state, name: str) -> int:
    return int(state.table.free[state.table.rows[name], state.table.columns["cpu"]])


def test_a_slot_waits_for_its_placeholder_and_holds_its_capacity_meanwhile():
    state = holding(world())
    assert (slot(state).phase, slot(state).reason) == (SlotPhase.WAITING, beside.PLACEHOLDER)
    assert free(state, "b") == 1_000
    assert session_owes(state) == [CreatePlaceholder("hold-x-1", "hold-0")]
    stands(state)
    assert slot(state).phase is SlotPhase.HELD
    assert free(state, "b") == 1_000, "the placeholder is the slot's body: nothing is charged twice"
    assert session_owes(state) == []


LESS = {"cpu": {"cpu": 1_500}, "memory": {"memory": 1}, "priority": {"priority": -2}}
"""What somebody's admission makes of a placeholder, and what the move says of it."""


@pytest.mark.parametrize(("what", "word"), [("cpu", "requests 1500m of cpu, not 3"), ("memory", "requests 1 of memory, not 1Gi"), ("priority", "has priority -2, not 0")])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "resized later"])
def test_a_placeholder_that_somebody_has_made_smaller_holds_nothing(what, word, later):
    state = holding(world(shape("less", **{"cpu": 3_000, "scheduler": STOCK} | LESS[what])))
    opened(state)
    if later:
        stands(state)
        assert slot(state).phase is SlotPhase.HELD
    then(state, replace(placeholder(state), shape="less", node="b" if later else None))
    then(state, changed("h", node="b", phase="Running", ready=True))
    assert evicts(advance(state)) == []
    assert state.migrations["x-1"].reason == "HoldFailed"
    assert word in state.migrations["x-1"].message
    session_answers(state)
    assert slot(state).phase not in ON_NODE
    assert DeletePlaceholder("h") in session_owes(state)
    assert not state.thefts


def test_nobody_is_gated_before_the_session_has_chosen_a_slot():
    """With the session away nobody would let them go: it is what lets go."""
    state = world()
    then(state, plan("x", move("x-1")))
    advance(state)
    create(state, "x-1")
    assert not [effect for effect in owed(state) if isinstance(effect, OpenLanding)]
    session_answers(state)
    assert [effect for effect in owed(state) if isinstance(effect, OpenLanding)]


def test_a_guard_that_somebody_has_made_smaller_keeps_nothing():
    state = holding(world(shape("less", cpu=1_500, scheduler=STOCK)))
    opened(state)
    stands(state)
    assert evicts(advance(state)) == ["x-1"]
    then(state, replace(guard(state), shape="less"))
    assert Evict("x-1") not in owed(state)
    then(state, guard(state))
    assert Evict("x-1") in owed(state)


def test_nobody_is_evicted_before_the_placeholder_runs_and_the_api_gates_what_its_controller_makes():
    state = holding(world())
    (landing,) = [effect for effect in owed(state) if isinstance(effect, OpenLanding)]
    assert (landing.migration, landing.controller) == ("x-1", OWNER.uid)
    stands(state)
    assert evicts(advance(state)) == []
    opened(state)
    assert evicts(advance(state)) == ["x-1"]
    assert owed(state) == []
    assert session_owes(state) == [CreatePlaceholder("guard", "x-1")]
    then(state, guard(state, node=""))
    assert (owed(state), session_owes(state)) == ([], [CreatePlaceholder("guard", "x-1")]), "until it is nominated it keeps nothing"
    then(state, guard(state))
    assert (owed(state), session_owes(state)) == ([Evict("x-1")], [])


@pytest.mark.parametrize("is_there", [False, True])
def test_where_the_api_will_not_gate_the_successor_the_move_ends_at_once_whether_its_reservation_is_there_already_or_not(is_there):
    state = world()
    then(state, plan("x", move("x-1")))
    advance(state)
    if is_there:
        create(state, "x-1")
        session_answers(state)
    run(state, decider, c.ReportHold(NOW, "x-1", "403 Forbidden landings", landing=True))
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.FAILED, "HoldFailed")
    assert state.migrations["x-1"].message == "403 Forbidden landings"


def test_the_successor_gets_the_slot_is_landed_and_then_nothing_is_left():
    state = evicted(world())
    successor(state)
    assert state.migrations["x-1"].successor == "p2"
    assert session_owes(state) == [Land("p2", "b")]
    assert free(state, "b") == 1_000
    advance(state)
    assert CloseLanding("x-1") not in owed(state), "its kubelet may reject it"
    # The effect: nominated, the placeholder deleted, the gate removed; then its scheduler binds it.
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER, nominated="b"))
    assert [effect for effect in session_owes(state) if effect != DeletePlaceholder("g")] == []
    assert state.gated == {}
    assert list(state.to_land) == ["p2"]
    then(state, changed("p2", node="b"), e.PodGone("p"), changed("p2", node="b", phase="Running", ready=True))
    advance(state)
    assert step(state, "x-1") is Step.LANDED
    assert (free(state, "a"), free(state, "b")) == (4_000, 1_000)
    assert CloseLanding("x-1") in owed(state)
    run(state, decider, c.ReportLanding(NOW, "x-1"))
    assert session_owes(state) == [DeletePlaceholder("g")]
    then(state, e.PodGone("g"))
    assert (state.placeholders, state.stand_ins, state.to_land, state.landings) == ({}, {}, {}, {})


def test_whoever_else_is_gated_is_let_go_at_once():
    state = evicted(world())
    successor(state)
    successor(state, "p3")
    assert [effect for effect in session_owes(state) if isinstance(effect, LetGo)] == [LetGo("p3")]
    then(state, pod("p3", "s", owner=OWNER))
    assert not any(isinstance(effect, LetGo) for effect in session_owes(state))


def test_one_that_the_api_refuses_to_let_go_is_tried_again_after_a_pause_that_doubles_and_people_are_told():
    state = evicted(world())
    then(state, shape("big", cpu=3_500, scheduler=STOCK), pod("stranger", "big", owner=OWNER, gated=True, landing=True))
    assert LetGo("stranger") in session_owes(state)
    at = NOW
    for times, pause in enumerate((30_000, 60_000, 120_000, 240_000, 480_000, 600_000, 600_000), 1):
        (event,) = when(state, session.decider, c.RefuseLetGo(at, "stranger", "403 Forbidden by policy"))
        then(state, event, time=at)
        assert beside.let_go_at(state, "stranger") == at + pause
        assert (state.not_let_go["stranger"].times, LetGo("stranger") in session_owes(state)) == (times, True)
        at += pause
    state = snapshot.load(snapshot.dump(state))
    assert "and the API refuses to take it off (tried 7 times, again at " in stranger_lines(state, "stranger")[0]
    then(state, pod("stranger", "big", owner=OWNER), time=at)
    assert (state.not_let_go, when(state, session.decider, c.RefuseLetGo(at, "stranger", "late"))) == ({}, [])


def test_a_pause_that_lies_in_the_future_because_the_clock_was_put_back_is_over():
    state = evicted(world())
    then(state, shape("big", cpu=3_500, scheduler=STOCK), pod("stranger", "big", owner=OWNER, gated=True, landing=True))
    then(state, e.LetGoRefused("stranger", "403"), time=NOW + 10 * 600_000)
    then(state, pod("other", node="a"), time=NOW)
    assert beside.let_go_at(state, "stranger") == 0


def test_one_that_came_before_the_eviction_is_nobodys_successor():
    state = holding(world())
    opened(state)
    successor(state, "early")
    assert LetGo("early") in session_owes(state)


def test_a_slot_that_a_move_turns_back_from_is_for_no_owners():
    state = evicted(world())
    then(state, node("b", cpu=4_000, unschedulable=True))
    assert [type(event) for event in advance(state)] == [e.TurningBack]
    assert [event for event in session_answers(state) if isinstance(event, e.OwnersGated)] == []


def test_a_stolen_placeholder_before_the_eviction_rolls_the_move_back():
    state = holding(world())
    opened(state)
    stands(state)
    then(state, changed("h", node="b", phase="Running", deleting=NOW))
    session_answers(state)
    assert slot(state).reason == beside.STOLEN
    assert failed(advance(state)) == {"x-1": beside.STOLEN}
    assert state.refused["p"].reason == beside.STOLEN, "it is left alone for a while"
    assert state.pods["p"].live.deleting == 0


def test_a_stolen_placeholder_after_the_eviction_lets_the_successor_compete_as_usual_where_its_old_node_is_lost_too():
    state = evicted(world())
    then(state, e.PodGone("h"), node("a", cpu=4_000, unschedulable=True))
    session_answers(state)
    successor(state)
    advance(state)
    then(state, e.PodGone("p"))
    advance(state)
    assert step(state, "x-1") is Step.FAILED
    assert [effect for effect in session_owes(state) if isinstance(effect, LetGo)] == [LetGo("p2")]


def test_a_placeholder_that_its_kubelet_rejects_ends_the_move():
    state = holding(world())
    then(state, placeholder(state), changed("h", node="b", phase="Failed", reason="OutOfcpu"))
    session_answers(state)
    assert failed(advance(state)) == {"x-1": beside.STOLEN}


def test_one_that_the_api_refuses_too_and_its_words_are_kept():
    state = holding(world())
    run(state, session.decider, c.RefusePlaceholder(NOW, "hold-x-1", "hold-0", "403 Forbidden by policy"))
    assert slot(state).reason == "PlaceholderRefused: 403 Forbidden by policy"
    assert failed(advance(state)) == {"x-1": "HoldFailed"}


def test_when_a_move_ends_its_placeholder_is_deleted_and_counts_until_it_is_gone():
    state = holding(world())
    opened(state)
    stands(state)
    run(state, decider, c.CancelPlan(NOW, "x", "by hand"))
    advance(state)
    session_answers(state)
    assert DeletePlaceholder("h") in session_owes(state)
    assert CloseLanding("x-1") in owed(state)
    assert free(state, "b") == 1_000
    then(state, e.PodGone("h"))
    assert free(state, "b") == 4_000


def test_on_one_node_one_lands_after_the_other():
    state = evicted(world(node("c", cpu=4_000)))
    follows(state, cpu=8_000)
    advance(state)
    terminate(state, "q")
    advance(state)
    successor(state, "p2")
    successor(state, "q2")
    lands = [effect for effect in session_owes(state) if isinstance(effect, Land)]
    assert lands == [Land("p2", "b")]
    assert list(state.to_land) == ["p2", "q2"]
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER))
    assert not any(isinstance(effect, Land) for effect in session_owes(state)), "not before the first one is bound"
    with state.draft():
        state.time += beside.PATIENCE
        assert Land("q2", "b") in session_owes(state), "nor for long where it is not bound at all"
    then(state, changed("p2", node="b"))
    assert Land("q2", "b") in session_owes(state)


def test_a_successor_that_its_scheduler_has_failed_to_bind_is_nominated_again_until_it_is_bound():
    """kube-scheduler takes the nomination away, and tries the pod again after a second or later, on whichever node is best then."""
    state = evicted(world())
    successor(state)
    advance(state)
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER, nominated="b"))
    assert [effect for effect in session_owes(state) if isinstance(effect, NominateAgain)] == []
    then(state, pod("p2", "s", owner=OWNER))
    again = NominateAgain("p2", "b")
    assert again in session_owes(state)
    assert session.decider.owed(state, again)
    for told in (pod("p2", "s", owner=OWNER, nominated="b"), pod("p2", "s", owner=OWNER, nominated="a"), changed("p2", node="b")):
        with state.draft():
            then(state, told)
            assert not session.decider.owed(state, again), "it has the nomination, its scheduler has another plan for it, or it is bound"
    then(state, node("b", cpu=4_000, unschedulable=True))
    assert again not in session_owes(state), "there it may not run any more"


def test_a_successor_is_not_nominated_again_for_a_node_where_somebody_else_has_its_place():
    """Each nomination that its scheduler takes away has it look at all that wait. Where the place is free again, it may have it."""
    state = evicted(world(shape("tiny", cpu=100, scheduler=STOCK)))
    successor(state)
    advance(state)
    again = NominateAgain("p2", "b")
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER), pod("small", "tiny", node="b"))
    assert again in session_owes(state), "there is room beside this one"
    then(state, pod("thief", node="b"))
    assert again not in session_owes(state)
    assert not session.decider.owed(state, again)
    state.touched = Touched()
    then(state, e.PodGone("thief"))
    assert again in session.decider.pending(state, state.touched)


def test_a_place_is_lost_also_where_only_the_slot_of_another_move_has_given_way_for_it():
    """Its placeholder stands there, and every scheduler counts that."""
    state = evicted(world(node("c", cpu=4_000), shape("tiny", cpu=1_000, scheduler=STOCK)))
    follows(state, cpu=7_000)
    successor(state)
    advance(state)
    again = NominateAgain("p2", "b")
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER), pod("small", "tiny", node="b"))
    assert again in session_owes(state)
    then(state, pod("thief", "tiny", node="b"))
    assert free(state, "b") == 0
    assert again not in session_owes(state)


def test_a_place_is_not_lost_where_the_slot_of_another_move_lacks_only_what_the_successor_does_not_ask_for():
    """A device that has died takes nothing from a pod without one."""
    device = "example.com/device"
    state = evicted(world(node("c", cpu=4_000, allocatable={device: 1}), shape("with", cpu=3_000, requests={device: 1}, scheduler=STOCK)))
    follows(state, "with", cpu=7_000, allocatable={device: 1})
    successor(state)
    advance(state)
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER), node("b", cpu=7_000, allocatable={device: 0}))
    assert state.waiting_on["b"], "the other move's slot has lost its device"
    assert NominateAgain("p2", "b") in session_owes(state)


def test_a_successor_that_came_without_the_gate_is_nominated_by_who_lands_it_while_its_placeholder_is_there():
    state = evicted(world())
    then(state, pod("p2", "s", owner=OWNER))
    session_answers(state)
    assert state.migrations["x-1"].successor == "p2"
    assert [effect for effect in session_owes(state) if isinstance(effect, Land | NominateAgain)] == [Land("p2", "b")]
    then(state, e.PodGone("h"))
    assert NominateAgain("p2", "b") in session_owes(state)


def test_whoever_else_is_gated_is_found_at_once_however_many_they_are(monkeypatch):
    """Another size of the same controller, and another controller's: all are asked about, and nobody about all others."""
    state = evicted(world(shape("m", cpu=100, scheduler=STOCK)))
    many = 300
    then(state, *(
        pod(f"{kind}{i}", kind, owner=owner, gated=True, landing=True) for i in range(many) for kind, owner in (("m", OWNER), ("s", OwnerRef("ReplicaSet", "o", "uid-o", "apps/v1")))
    ))  # fmt: skip
    asked = 0
    before = gated.may_follow

    def may_follow(*said):
        nonlocal asked
        asked += 1
        return before(*said)

    monkeypatch.setattr(gated, "may_follow", may_follow)
    effects = [effect for effect in session_owes(state) if isinstance(effect, LetGo)]
    assert len(effects) == 2 * many
    assert all(session.decider.owed(state, effect) for effect in effects)
    assert asked < many


def test_a_pod_that_its_scheduler_binds_elsewhere_is_where_the_fact_says():
    state = evicted(world(node("c", cpu=4_000)))
    successor(state)
    then(state, e.PodGone("h"), pod("p2", "s", owner=OWNER))
    then(state, changed("p2", node="c"), e.PodGone("p"))
    advance(state)
    assert (step(state, "x-1"), state.migrations["x-1"].reason) == (Step.FAILED, "Elsewhere")
    assert (free(state, "b"), free(state, "c")) == (4_000, 1_000)


def test_a_pod_that_is_never_bound_does_not_keep_its_place_for_ever():
    state = evicted(world())
    successor(state)
    then(state, e.PodGone("h"), e.PodGone("p"), pod("p2", "s", owner=OWNER))
    late = 10 * config.MigrationConfig().land_deadline
    advance(state, late)
    assert step(state, "x-1") is Step.FAILED
    assert state.migrations["x-1"].message == "its successor p2 was not bound to b by default-scheduler in time"
    assert e.PodReleased("p2", beside.GONE) in session_answers(state, late)
    assert DeleteReservation("hold-x-1") in owed(state)
    then(state, e.ReservationGone("hold-x-1"))
    session_answers(state, late)
    assert free(state, "b") == 4_000


def test_a_pod_of_ours_that_has_our_gate_is_let_go_at_once_and_then_placed_like_any_other():
    """The API gates by controller or by labels: a template may have another scheduler by now, a Reservation's owners some of ours among them."""
    state = given(node("a"), shape("s"), pod("p", gated=True, landing=True))
    assert session_answers(state) == []
    assert session_owes(state) == [LetGo("p")]
    assert session_owes(snapshot.load(snapshot.dump(state))) == [LetGo("p")]
    assert stranger_lines(state, "p") == ["Restow's gate, which is for pods of other schedulers, is on it in vain: it is let go"]
    then(state, pod("p"))
    assert state.gated == {}
    assert [event.node for event in session_answers(state) if isinstance(event, e.PodPlaced)] == ["a"]


def test_a_pod_of_ours_gets_no_slot_by_the_gate_that_is_on_it():
    """Its StatefulSet's template names our scheduler by now: it follows the pod that was moved, but nobody lets another scheduler bind it."""
    state = evicted(world(shape("ours", cpu=3_000)))
    then(state, pod("p2", "ours", owner=OWNER, gated=True, landing=True))
    session_answers(state)
    assert state.migrations["x-1"].successor == ""
    assert LetGo("p2") in session_owes(state)


@pytest.mark.parametrize("fake", [
    {"namespace": "default"}, {"labels": {"restow.dev/log": "another"}}, {"owner": OWNER},
], ids=["elsewhere", "another log", "owned"])  # fmt: skip
def test_nobody_passes_for_a_placeholder(fake):
    state = holding(world())
    (name,) = state.slots["hold-x-1"]
    said = {"namespace": "restow-holds", "labels": {"restow.dev/log": state.log}} | fake
    then(state, pod("h", "s", node="b", phase="Running", annotations={beside.SLOT: f"hold-x-1/{name}"}, **said))
    assert state.placeholders == {}


def test_where_the_setting_is_taken_back_nobody_is_evicted_any_more():
    state = holding(world())
    opened(state)
    stands(state)
    then(state, configured("migration", config.MigrationConfig(max_unavailable=0, evictions_per_minute=0)))
    assert evicts(advance(state)) == []
    session_answers(state)
    assert CloseLanding("x-1") in owed(state)
    late = 10 * config.MigrationConfig().land_deadline
    advance(state, late)
    session_answers(state, late)
    assert step(state, "x-1") is Step.FAILED
    assert DeletePlaceholder("h") in session_owes(state)


def test_a_placeholder_whose_reservation_nobody_knows_is_deleted_also_after_a_restart():
    state = holding(world())
    stands(state)
    then(state, e.ReservationGone("hold-x-1"))
    session_answers(state)
    assert DeletePlaceholder("h") in session_owes(snapshot.load(snapshot.dump(state)))


def test_the_entry_of_a_controller_stays_while_another_of_its_moves_needs_it():
    state = holding(world())
    opened(state)
    assert gating.is_needed(state, OWNER.uid)
    run(state, decider, c.CancelPlan(NOW, "x", "by hand"))
    advance(state)
    assert not gating.is_needed(state, OWNER.uid)


def test_people_are_told_who_holds_the_slot_what_is_gated_and_who_is_not_bound_yet():
    state = holding(world())
    then(state, placeholder(state))
    assert beside_lines(state, state.migrations["x-1"]) == ["placeholder restow-holds/h holds its slot on b, which does not run there"]
    assert stranger_lines(state, "h") == [f"a placeholder: it holds slot hold-0 of migration x-1 for {STOCK} to see"]
    opened(state)
    stands(state)
    said = beside_lines(state, state.migrations["x-1"])
    assert said[0] == "placeholder restow-holds/h holds its slot on b"
    assert said[1].startswith(f"what {OWNER.kind} {OWNER.name} makes is gated: Landing")
    evicts(advance(state))
    terminate(state, "p")
    advance(state)
    then(state, pod("p2", "s", owner=OWNER, gated=True, landing=True))
    assert stranger_lines(state, "p2") == ["only Restow's gate keeps it from its scheduler: it gets the slot of the pod that it follows, or is let go"]
    session_answers(state)
    assert stranger_lines(state, "p2") == [f"a slot on b was handed over to it; {STOCK} has not bound it yet"]
    assert beside_lines(state, state.migrations["x-1"])[-1] == f"its successor has not been bound yet by {STOCK}"


def test_without_the_setting_pods_of_other_schedulers_stay_where_they_are():
    state = world(schedulers=())
    then(state, pod("p2", "s", owner=OWNER, gated=True, landing=True))
    assert session_owes(state) == [LetGo("p2")]


# -- two installations on one cluster ----------------------------------------------------------------------------------------


def gated_for(log: str, until: str = rfc3339(NOW + 3_600_000)) -> dict[str, str]:
    return {beside.GATE: f"{log} {until}"}


def test_what_another_installation_has_gated_is_neither_let_go_nor_taken_for_a_successor():
    state = world()
    state.log = "ours"
    evicted(state)
    successor(state, annotations=gated_for("another"))
    assert state.migrations["x-1"].successor == ""
    assert beside.let_go_at(state, "p2") > NOW + 1_000_000
    successor(state, "p3", annotations=gated_for("ours"))
    assert state.migrations["x-1"].successor == "p3"
    assert beside.let_go_at(state, "p2") > NOW + 1_000_000


def test_our_own_says_whose_it_is_and_what_says_nothing_is_ours():
    for annotations in ({}, {beside.GATE: "no time"}):
        state = evicted(world())
        successor(state, annotations=annotations)
        assert state.migrations["x-1"].successor == "p2"


def test_what_another_installation_has_gated_is_let_go_when_its_entry_has_been_over_for_a_while():
    """That one is away for good, or its log was lost and a new one began."""
    state = world()
    until = rfc3339(NOW + 1_000)
    then(state, pod("q", "s", owner=OWNER, gated=True, landing=True, annotations=gated_for("another", until)))
    assert session_owes(state) == [LetGo("q")], "for the clock to wait for: on an idle cluster nothing else happens"
    assert beside.let_go_at(state, "q") == NOW + 1_000 + gated.FORSAKEN
    assert not gated.may_get_slot(state, state.pods["q"].fact)


def test_who_is_gated_for_longer_than_any_installation_gates_is_let_go_at_once():
    """A stolen account may have listed its controller under any name."""
    state = world()
    for uid, until in (("q", NOW + gated.LONGEST), ("r", NOW + gated.LONGEST + 1)):
        then(state, pod(uid, "s", owner=OWNER, gated=True, landing=True, annotations=gated_for("another", rfc3339(until))))
    assert (beside.let_go_at(state, "q"), beside.let_go_at(state, "r")) == (NOW + gated.LONGEST + gated.FORSAKEN, 0)
    assert LetGo("r") in session_owes(state)


# -- a gang as one -------------------------------------------------------------------------------------------------------------


def test_a_gang_of_another_scheduler_leaves_when_all_of_its_placeholders_stand_and_its_successors_are_gated():
    in_gang = {"owner": OWNER, "annotations": {"scheduling.k8s.io/group-name": "g", "restow.dev/movable": "gang"}}
    state = then(world(), e.PodGone("p"), node("c", cpu=4_000), node("d", cpu=4_000), pod_group("g", need=2), pod("p1", node="a", **in_gang), pod("p2", node="b", **in_gang))
    (planned,) = run(state, decider, c.MoveGang(NOW, "x", "default/g"))
    assert sorted(m.target for m in planned.moves) == ["c", "d"], "no node that one of them leaves: its guard keeps it"
    advance(state)
    create(state, "x-1", "x-2")
    session_answers(state)
    for number, one in enumerate(planned.moves, 1):
        assert evicts(advance(state)) == []
        then(state, placeholder(state, one.migration, f"h{number}"), changed(f"h{number}", node=one.target), changed(f"h{number}", node=one.target, phase="Running", ready=True))
        session_answers(state)
    assert evicts(advance(state)) == [], "nobody is gated yet"
    opened(state)
    assert evicts(advance(state)) == ["x-1", "x-2"]


# -- how long a placeholder lives ------------------------------------------------------------------------------------------


def lives(*more: e.Event, whole: bool = False) -> int:
    """Seconds after which its kubelet ends the placeholder of a move that has just begun."""
    state = world(*more)
    then(state, plan("x", move("x-1"), whole=whole))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    (name,) = state.slots["hold-x-1"]
    made = of_slot(state, ("hold-x-1", name), NOW)
    assert made is not None
    assert made.spec.active_deadline_seconds is not None
    return made.spec.active_deadline_seconds


def test_a_placeholder_lives_for_as_long_as_its_workload_may_think_and_a_whole_nodes_for_a_day_more():
    """Otherwise its kubelet would end it first: a hold that was stolen, as far as anybody can see."""
    asks = {hooks.BEFORE: "annotation", hooks.DEADLINE: "12h"}
    usual = lives()
    assert lives(pod("p", node="a", owner=OWNER, annotations=asks)) == usual + 12 * 3600
    assert lives(whole=True) == usual + 24 * 3600


def test_a_placeholder_lives_until_its_pod_has_had_its_whole_grace_period():
    """It began to count before the pod was told to go."""
    patient = pod("p", node="a", owner=OWNER, grace=4 * 3600)
    usual = lives()
    assert lives(patient) == usual + 4 * 3600
    asked = {"max_unavailable": 0, "beside": (STOCK,)}
    assert lives(patient, configured("migration", config.MigrationConfig(grace=30, **asked))) == usual + 30
    assert lives(configured("migration", config.MigrationConfig(grace=7200, **asked))) == usual + 7200


def test_so_does_the_guard_of_its_old_node():
    """Of that its deadline says to another installation from when on it is nobody's."""
    found = []
    for grace in (0, 4 * 3600):
        state = world(pod("p", node="a", owner=OWNER, grace=grace))
        holding(state)
        opened(state)
        stands(state)
        assert evicts(advance(state)) == ["x-1"]
        made = of_slot(state, beside.guard_of("x-1"), NOW)
        assert made is not None
        found.append(made.spec.active_deadline_seconds)
    assert found[1] - found[0] == 4 * 3600


def test_no_placeholder_says_that_it_lives_for_longer_than_the_api_takes():
    assert lives(configured("migration", config.MigrationConfig(max_unavailable=0, beside=(STOCK,), land_deadline=config.LONGEST))) == 2**31 - 1


# -- whom the gate leaves out ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("whose", "more"), [("namespace kube-system", {"namespace": "kube-system"}), ("Restow itself", {"labels": {"app.kubernetes.io/part-of": "restow"}})])
def test_of_those_whom_nobody_gates_no_pod_of_another_scheduler_moves(whose, more):
    """The dry run before the eviction would not tell: it is made where placeholders are, with a pod that has no labels."""
    state = then(world(), e.PodGone("p"), pod("p", node="a", owner=OWNER, **more))
    with pytest.raises(Rejected, match=f"new pods of {whose} are never gated"):
        run(state, decider, c.MovePod(NOW, "x", "p"))
    then(state, plan("x", move("x-1")))
    assert failed(advance(state)) == {"x-1": "NotGated"}


# -- roles -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "version", "mine", "others"),
    [
        ("PyTorchJob", "kubeflow.org/v1", {"training.kubeflow.org/replica-index": "0"}, {"training.kubeflow.org/replica-index": "1"}),
        ("Job", "batch.volcano.sh/v1alpha1", {"volcano.sh/task-index": "0"}, {"volcano.sh/task-index": "1"}),
        ("RayCluster", "ray.io/v1", {"ray.io/node-type": "worker", "ray.io/group": "a"}, {"ray.io/node-type": "worker", "ray.io/group": "b"}),
    ],
)
def test_whoever_has_another_role_is_let_go_at_once_and_the_slot_waits_for_the_one_of_its_own(kind, version, mine, others):
    owner, may = OwnerRef(kind, "o", "uid-o", version), {"restow.dev/movable": "true"}
    state = evicted(then(world(), e.PodGone("p"), pod("p", node="a", owner=owner, labels=mine, annotations=may)))
    then(state, pod("q", "s", owner=owner, gated=True, landing=True, labels=others, annotations=may))
    session_answers(state)
    assert LetGo("q") in session_owes(state)
    assert slot(state).phase is SlotPhase.HELD
    then(state, pod("p2", "s", owner=owner, gated=True, landing=True, labels=mine, annotations=may))
    session_answers(state)
    assert (state.migrations["x-1"].successor, slot(state).phase) == ("p2", SlotPhase.USED)


# -- an API server that has just started -----------------------------------------------------------------------------------


def test_a_policy_that_the_api_does_not_count_yet_is_waited_for_and_one_that_is_away_leaves_the_pod_where_it_is():
    state = holding(world())
    opened(state)
    stands(state)
    assert evicts(advance(state)) == ["x-1"]
    for after in (1, 30_000, 54_999):
        assert run(state, decider, c.ReportEviction(NOW + after, "x-1", "NotGated")) == []
    assert run(state, decider, c.ReportEviction(NOW + 55_000, "x-1", "NotGated"))[0] == e.Aborting("x-1", "NotGated", "")


def test_one_that_a_budget_has_kept_for_long_waits_for_the_gate_like_any_other():
    state = holding(world(configured("migration", config.MigrationConfig(budget_patience=3_600_000, beside=(STOCK,)))))
    opened(state)
    stands(state)
    assert evicts(advance(state)) == ["x-1"]
    assert run(state, decider, c.ReportEviction(NOW + 3_000_000, "x-1", "NotGated")) == []


def test_it_is_said_what_was_waited_for_also_where_an_eviction_has_little_time():
    state = holding(world(configured("migration", config.MigrationConfig(evict_deadline=8_000, beside=(STOCK,)))))
    opened(state)
    stands(state)
    assert evicts(advance(state)) == ["x-1"]
    assert run(state, decider, c.ReportEviction(NOW + 5_999, "x-1", "NotGated")) == []
    assert run(state, decider, c.ReportEviction(NOW + 6_000, "x-1", "NotGated"))[0] == e.Aborting("x-1", "NotGated", "")


# -- a workload that is asked first ----------------------------------------------------------------------------------------


def test_a_pod_of_another_scheduler_whose_workload_thinks_for_long_goes_when_it_has_agreed():
    """Its entry in the Landing is a lease, which is renewed meanwhile: that is no decision, and whether the API gates its successor is asked before it goes."""
    asks = {hooks.BEFORE: "annotation", hooks.DEADLINE: "1h"}
    state = holding(world(pod("p", node="a", owner=OWNER, annotations=asks)))
    opened(state)
    stands(state)
    events = advance(state)
    assert [event.deadline for event in events if isinstance(event, e.ConsentAsked)] == [NOW + 3_600_000]
    assert failed(events) == {}
    assert not any(isinstance(effect, OpenLanding) for effect in owed(state))
    assert [(migration.id, controller) for migration, controller in gating.listed(state)] == [("x-1", OWNER.uid)]
    then(state, pod("p", node="a", owner=OWNER, annotations=asks | {hooks.ACKNOWLEDGED: "x-1"}))
    assert evicts(advance(state, 1_800_000)) == ["x-1"]


def test_where_the_entry_cannot_be_made_nobody_is_asked_and_the_move_ends_by_its_deadline():
    asks = {hooks.BEFORE: "annotation", hooks.DEADLINE: "1h"}
    state = holding(world(pod("p", node="a", owner=OWNER, annotations=asks)))
    stands(state)
    events = advance(state)
    assert not any(isinstance(event, e.ConsentAsked) for event in events)
    assert list(gating.listed(state)) == []
    assert failed(advance(state, 31_000)) == {"x-1": "NotGated"}, "not that its node was not held"


def test_an_entry_is_renewed_from_the_hold_until_a_kubelet_has_taken_the_successor_and_no_longer():
    state = holding(world())
    assert list(gating.listed(state)) == []
    opened(state)
    assert [controller for _, controller in gating.listed(state)] == [OWNER.uid]
    stands(state)
    assert evicts(advance(state)) == ["x-1"]
    then(state, guard(state))
    terminate(state, "p")
    advance(state)
    assert [controller for _, controller in gating.listed(state)] == [OWNER.uid], "it has gone, and whoever follows is awaited, for as long as it takes"
    successor(state)
    assert CloseLanding("x-1") not in owed(state)
    then(state, changed("p2", node="b"))
    assert [controller for _, controller in gating.listed(state)] == [OWNER.uid], "its kubelet may still reject it"
    then(state, changed("p2", node="b", phase="Running"))
    assert list(gating.listed(state)) == []
    assert CloseLanding("x-1") in owed(state)


def test_a_successor_that_its_kubelet_rejects_is_followed_by_one_that_has_the_gate_and_gets_the_slot():
    state = evicted(world())
    successor(state)
    then(state, e.PodGone("h"), changed("p2", node="b"))
    then(state, changed("p2", node="b", phase="Failed", reason="OutOfcpu"))
    assert CloseLanding("x-1") not in owed(state), "the next one is made at once, and may be there already"
    assert [controller for _, controller in gating.listed(state)] == [OWNER.uid]
    successor(state, "p3")
    assert LetGo("p3") not in session_owes(state)
    assert (slot(state).phase, slot(state).reason) == (SlotPhase.WAITING, beside.PLACEHOLDER)
    stands(state, uid="h2")
    assert (state.migrations["x-1"].successor, Land("p3", "b") in session_owes(state)) == ("p3", True)


def test_the_next_placeholder_can_be_made_although_the_evicted_pod_has_gone():
    """It was made of the pod itself: with that gone none was made, and who followed stayed gated until the time to land was up."""
    state = holding(world(pod("p", "s", node="a", owner=OWNER, labels={"app": "web"})))
    (name,) = state.slots["hold-x-1"]
    first = of_slot(state, ("hold-x-1", name), NOW)
    state = evicted(world(pod("p", "s", node="a", owner=OWNER, labels={"app": "web"})))
    successor(state)
    then(state, e.PodGone("h"), e.PodGone("p"), changed("p2", node="b"))
    then(state, changed("p2", node="b", phase="Failed", reason="OutOfcpu"))
    successor(state, "p3")
    assert CreatePlaceholder("hold-x-1", name) in session_owes(state)
    made = of_slot(state, ("hold-x-1", name), NOW)
    assert made is not None
    assert (made.metadata, made.spec.containers, made.spec.affinity) == (first.metadata, first.spec.containers, first.spec.affinity)


def test_where_somebody_has_the_capacity_before_the_next_placeholder_the_pod_that_was_gated_gets_the_place_on_the_old_node():
    """Nothing holds it between the rejection and that placeholder. It would stay gated until the time to land is up."""
    state = evicted(world(shape("all", cpu=4_000, scheduler=STOCK)))
    successor(state)
    then(state, e.PodGone("h"), e.PodGone("p"), changed("p2", node="b"))
    then(state, changed("p2", node="b", phase="Failed", reason="OutOfcpu"))
    successor(state, "p3")
    then(state, pod("rival", "all", node="b"))
    session_answers(state)
    advance(state)
    assert state.migrations["x-1"].back
    create(state, "x-1")
    session_answers(state)
    session_answers(state)
    assert Land("p3", "a") in session_owes(state)


def test_nothing_is_held_for_a_pod_that_has_gone_before_it_was_evicted():
    state = holding(world())
    (name,) = state.slots["hold-x-1"]
    then(state, e.PodGone("p"))
    assert of_slot(state, ("hold-x-1", name), NOW) is None


def test_where_the_next_placeholder_is_rejected_too_the_pod_that_was_gated_gets_the_place_on_the_old_node():
    state = evicted(world())
    successor(state)
    then(state, e.PodGone("h"), e.PodGone("p"), changed("p2", node="b"))
    then(state, changed("p2", node="b", phase="Failed", reason="OutOfcpu"))
    successor(state, "p3")
    then(state, placeholder(state, uid="h2"), changed("h2", node="b"), changed("h2", node="b", phase="Failed", reason="OutOfcpu"))
    session_answers(state)
    advance(state)
    assert state.migrations["x-1"].back
    create(state, "x-1")
    session_answers(state)
    assert state.migrations["x-1"].successor == "p3"
    assert Land("p3", "a") in session_owes(state)


def test_once_a_slot_is_handed_over_no_entry_is_made_only_for_who_may_come_after_a_rejection():
    state = evicted(world())
    run(state, decider, c.ReportLanding(NOW, "x-1", OWNER.uid, 0))
    assert any(isinstance(effect, OpenLanding) for effect in owed(state))
    successor(state)
    assert not any(isinstance(effect, OpenLanding | CloseLanding) for effect in owed(state))


def test_a_successor_that_came_while_nobody_renewed_the_entry_gets_the_slot_without_the_gate():
    """All of Restow was away for longer than the lease: one is made, nobody twice, and nothing stays held."""
    state = evicted(world())
    then(state, pod("p2", "s", owner=OWNER))
    session_answers(state)
    assert (state.migrations["x-1"].successor, session_owes(state)) == ("p2", [Land("p2", "b")])
    then(state, e.PodGone("h"), changed("p2", node="b", phase="Running", ready=True), e.PodGone("p"))
    session_answers(state)
    advance(state)
    assert step(state, "x-1") is Step.LANDED
    assert CloseLanding("x-1") in owed(state)


def test_where_the_policy_names_its_scheduler_no_more_that_is_said():
    state = holding(world())
    then(state, configured("migration", config.MigrationConfig()))
    assert failed(advance(state)) == {"x-1": "NotAdmitted"}
    assert state.migrations["x-1"].message.endswith("scheduler default-scheduler is not among schedulerNames, and restow.beside of the policy does not name it")


def test_a_slot_that_was_handed_over_at_the_moment_at_which_its_move_ended_is_not_held_again():
    """Found by the simulator, where all of Restow had stood still until the deadline: the session had not read yet that the move was over."""
    state = evicted(world())
    then(state, e.NotRecreated("x-1"), pod("p2", "s", owner=OWNER, gated=True, landing=True), e.HandedOver("hold-x-1", "hold-0", "p2", "b"))
    session_answers(state)
    assert (slot(state).phase, slot(state).reason) == (SlotPhase.FAILED, "MigrationOver")
    assert free(state, "b") == 1_000, "its placeholder is there until it is deleted"
    assert {type(effect) for effect in session_owes(state)} == {DeletePlaceholder, LetGo}


def test_a_successor_that_came_and_was_bound_elsewhere_while_nobody_renewed_the_entry_frees_the_slot():
    state = evicted(world(node("c", cpu=4_000)))
    then(state, pod("p2", "s", node="c", owner=OWNER, phase="Running", ready=True), e.PodGone("p"))
    session_answers(state)
    assert failed(advance(state, 301_000)) == {"x-1": "Elsewhere"}
    assert {type(effect) for effect in owed(state)} == {CloseLanding, DeleteReservation}
