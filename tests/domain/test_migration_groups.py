"""PodGroups say which of their pods are moved (seed 003, RULES 003-2), and who comes back is left alone."""

from domain.build import NOW, changed, member, node, pod, pod_group, replica_of, run, then
from domain.saga import (
    OWNER,
    advance,
    begun,
    create,
    decider,
    hold,
    land,
    move,
    owed,
    plan,
    session_answers,
    step,
    terminate,
    through,
    world,
)
from msgspec.structs import replace

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.domain import snapshot
from restow.domain.effects import TellBounced, TellGroupMoves
from restow.domain.evolve.bounces import LEFT_ALONE
from restow.domain.records import LeftAlone, Step
from restow.domain.statuses import podgroup_migration

G = ("default", "g")


def gang(*moves):
    members = [member(f"m{i}", "g", node="a", owner=OWNER) for i in range(1, 4)]
    return world(pod_group("g", need=1), *members, plan("x", *moves))


def phase(state) -> str:
    return state.group_moves[G].phase if G in state.group_moves else ""


def told(state) -> list:
    return [effect for effect in owed(state) if isinstance(effect, TellGroupMoves)]


# -- migrationInfo and migrationState --------------------------------------------------------------------------------


def test_a_group_that_was_made_anew_is_told_nothing_of_the_moves_of_the_one_before():
    other = replace(pod_group("g", need=1), uid="other")
    for seen in ((e.PodGroupGone("default", "g"), other), (other,)):
        state = gang(move("x-1", "m1"))
        advance(state)
        hold(state, "x-1")
        land(state, "x-1", "n1", annotations={"scheduling.k8s.io/group-name": "g"})
        assert phase(state) == "Succeeded"
        then(state, *seen)
        assert phase(state) == ""
        assert told(state) == []


def test_a_group_is_told_when_the_place_is_held_when_it_moves_and_how_it_ended():
    state = gang(move("x-1", "m1"))
    advance(state)
    create(state, "x-1")
    assert told(state) == []
    session_answers(state)
    held, evicting = run(state, decider, c.Advance(NOW))
    assert (type(held), type(evicting)) == (e.Held, e.Evicting)
    assert phase(state) == "Running"
    assert told(state) == [TellGroupMoves("default", "g", 2)]
    (info,) = podgroup_migration.infos(state.group_moves[G], "default")
    assert info == {
        "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "m1", "namespace": "default", "uid": "m1"}},
        "sourceNode": "a",
        "targetNode": "b",
        "reservation": {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation",
            "metadata": {"name": "restow-x-1", "namespace": "default", "uid": "hold-x-1"},
        },
    }  # fmt: skip
    land(state, "x-1", "n1")
    assert phase(state) == "Succeeded"
    assert snapshot.load(snapshot.dump(state)).group_moves == state.group_moves


def test_it_is_pending_between_hold_and_eviction_and_said_to_have_been():
    state = gang(move("x-1", "m1"))
    advance(state)
    create(state, "x-1")
    session_answers(state)
    then(state, e.Held("x-1"))
    assert phase(state) == "Pending"
    then(state, e.Evicting("x-1", NOW + 60_000))
    moves = state.group_moves[G]
    assert [s["phase"] for s in podgroup_migration.states(moves, "")] == ["Pending", "Running"]
    assert [s["phase"] for s in podgroup_migration.states(moves, "Pending")] == ["Running"]
    assert podgroup_migration.states(moves, "Pending")[0]["lastTransitionTime"] == "2023-11-14T22:13:20.000Z"


def test_one_that_has_ended_was_running_before_also_where_nobody_had_the_time_to_write_it():
    state = gang(move("x-1", "m1"))
    advance(state)
    hold(state, "x-1")
    land(state, "x-1", "n1")
    moves = state.group_moves[G]
    assert [s["phase"] for s in podgroup_migration.states(moves, "")] == ["Pending", "Running", "Succeeded"]
    assert [s["phase"] for s in podgroup_migration.states(moves, "Pending")] == ["Running", "Succeeded"]
    assert [s["phase"] for s in podgroup_migration.states(moves, "Running")] == ["Succeeded"]
    assert [s["phase"] for s in podgroup_migration.states(moves, "Succeeded")] == ["Succeeded"]


def test_moves_that_overlap_are_told_of_together_and_those_after_them_anew():
    state = gang(move("x-1", "m1"), move("x-2", "m2"), move("x-3", "m3", after=("x-1", "x-2")))
    advance(state)
    hold(state, "x-1", "x-2")
    land(state, "x-1", "n1")
    assert phase(state) == "Running"
    land(state, "x-2", "n2")
    assert (phase(state), len(state.group_moves[G].moves)) == ("Succeeded", 2)
    hold(state, "x-3")
    assert (phase(state), [m.migration for m in state.group_moves[G].moves]) == ("Running", ["x-3"])
    assert [s["phase"] for s in podgroup_migration.states(state.group_moves[G], "Succeeded")] == ["Pending", "Running"]


def test_one_that_fails_fails_them():
    state = gang(move("x-1", "m1"), move("x-2", "m2"))
    advance(state)
    hold(state, "x-1", "x-2")
    land(state, "x-1", "n1")
    run(state, decider, c.ReportEviction(NOW, "x-2", "Refused", "no"))
    run(state, decider, c.ReportEviction(NOW, "x-2", "Aborted"))
    assert phase(state) == "Failed"


def test_pods_without_a_group_and_groups_that_nobody_made_are_skipped():
    state = world(member("m", "nobody", node="a", owner=OWNER), plan("x", move("x-1", "p1"), move("x-2", "m")))
    advance(state)
    hold(state, "x-1", "x-2")
    assert state.group_moves == {}
    assert told(state) == []


def test_a_group_that_is_gone_is_told_nothing():
    state = gang(move("x-1", "m1"))
    advance(state)
    hold(state, "x-1")
    (effect,) = told(state)
    then(state, e.PodGroupGone("default", "g"))
    assert not decider.owed(state, effect)


# -- who comes back --------------------------------------------------------------------------------------------------


def away_and_back(state, plan_id: str, uid: str, back: str) -> None:
    """Moved off a, and back there by itself."""
    then(state, plan(plan_id, move(f"{plan_id}-1", uid)))
    advance(state)
    through(state, f"{plan_id}-1", f"{uid}-moved")
    terminate(state, f"{uid}-moved")
    then(state, pod(back, owner=OWNER), e.PodGone(f"{uid}-moved"))
    then(state, changed(back, node="a", phase="Running", ready=True))


def test_a_pod_that_is_moved_and_comes_back_twice_is_a_finding_and_left_alone():
    state = world()
    away_and_back(state, "x", "p1", "q1")
    assert state.returned == {"q1": 1}
    assert advance(state) == []
    away_and_back(state, "y", "q1", "q2")
    assert decider.due(state, NOW) == c.Advance(NOW)
    state.touched = type(state.touched)()
    assert advance(state) == [e.Bounced("uid-rs", "a", 2)]
    assert [(key, known.times) for key, known in state.left_alone.items()] == [(("uid-rs", "a"), 2)]
    assert TellBounced("uid-rs", "a") in decider.pending(state, state.touched)
    assert advance(state) == []
    loaded = snapshot.load(snapshot.dump(state))
    assert (loaded.left_alone, loaded.left, loaded.returned, loaded.found) == (state.left_alone, state.left, state.returned, state.found)


def test_after_a_day_it_is_forgotten_and_once_more_is_a_finding_again():
    state = world()
    away_and_back(state, "x", "p1", "q1")
    away_and_back(state, "y", "q1", "q2")
    advance(state)
    then(state, plan("late"), time=NOW + LEFT_ALONE - 1)
    assert [(key, known.times) for key, known in state.left_alone.items()] == [(("uid-rs", "a"), 2)]
    assert snapshot.load(snapshot.dump(state)).left_alone == state.left_alone == {("uid-rs", "a"): LeftAlone(2, NOW)}
    then(state, plan("later"), time=NOW + LEFT_ALONE)
    assert state.left_alone == {}
    away_and_back(state, "z", "q2", "q3")
    assert advance(state) == [e.Bounced("uid-rs", "a", 3)]


def test_two_pods_that_come_back_once_each_are_none():
    state = world()
    away_and_back(state, "x", "p1", "q1")
    away_and_back(state, "y", "p2", "q2")
    assert state.found == {}


def test_who_goes_elsewhere_in_between_has_not_come_back_in_a_row():
    state = world()
    away_and_back(state, "x", "p1", "q1")
    then(state, plan("y", move("y-1", "q1")))
    advance(state)
    through(state, "y-1", "q1-moved")
    terminate(state, "q1-moved")
    then(state, pod("r", owner=OWNER), e.PodGone("q1-moved"), changed("r", node="c", phase="Running", ready=True))
    then(state, pod("s", owner=OWNER), changed("s", node="a", phase="Running", ready=True))
    assert state.found == {}
    assert state.left == {}


def test_a_new_pod_while_the_moved_one_runs_is_no_comeback():
    state = world(plan("x", move("x-1", "p1")))
    advance(state)
    through(state, "x-1", "n1")
    then(state, pod("more", owner=OWNER), changed("more", node="a", phase="Running", ready=True))
    assert state.returned == {}


def test_a_pod_that_we_move_back_ourselves_once_is_no_finding():
    """The next plan may know better; but it counts, for two plugins that pull in two directions do so without end."""
    state = world(plan("x", move("x-1", "p1")))
    advance(state)
    through(state, "x-1", "n1")
    then(state, plan("y", move("y-1", "n1", "b", "a")))
    advance(state)
    through(state, "y-1", "n2")
    assert step(state, "y-1") is Step.LANDED
    assert state.node_of("n2") == "a"
    assert state.returned == {"n2": 1}
    assert not state.found
    assert not state.left_alone
    assert [one.pod for one in state.left["uid-rs"]] == ["n2"]


def test_a_pod_of_a_stateful_set_is_followed_by_its_name():
    sts = replica_of("db", "StatefulSet")
    state = world(pod("db-0", node="a", owner=sts), pod("db-1", node="a", owner=sts), plan("x", move("x-1", "db-0")))
    assert begun(advance(state)) == ["x-1"]
    hold(state, "x-1")
    terminate(state, "db-0")
    advance(state)
    then(state, e.PodGone("db-0"), pod("db-0", uid="new", owner=sts))
    session_answers(state)
    then(state, changed("new", node="b", phase="Running", ready=True))
    advance(state)
    terminate(state, "new")
    then(state, e.PodGone("new"), pod("db-0", uid="newer", owner=sts), changed("newer", node="a", phase="Running"))
    assert state.returned == {"newer": 1}


def test_of_a_node_that_is_gone_nothing_is_kept():
    state = world()
    then(state, e.Bounced("uid-x", "a", 2), e.NodeGone("a"), e.Bounced("uid-y", "b", 2), node("a"))
    assert [(key, known.times) for key, known in state.left_alone.items()] == [(("uid-y", "b"), 2)]
