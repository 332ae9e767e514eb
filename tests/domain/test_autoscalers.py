"""What cluster autoscalers are told by nodes: those that a plan empties are kept free and said to be, those that moves land on are kept."""

import pytest
from domain.build import NOW, configured, node, pod, replica_of, run, then
from domain.saga import (
    advance,
    create,
    decider,
    evicts,
    hold,
    land,
    move,
    owed,
    plan,
    session_answers,
    step,
    terminate,
    world,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.times import seconds
from restow.contracts.values import Taint
from restow.domain import config, defragmentation
from restow.domain.autoscalers import CORDONED, DAY, GRACE, PROTECTED, due
from restow.domain.config import DefragmentationArgs
from restow.domain.effects import MarkNode
from restow.domain.migration import check, emptied, holds
from restow.domain.records import Step
from restow.domain.snapshot import dump, load

LOG = "log-1"
WHOLE = DefragmentationArgs(wholeNodes=True)
FOR = 600_000


def emptying(count: int = 2, *more: e.Event, **conf):
    """Pods p1 and p2 are all that is on a, and a plan empties it."""
    conf = {"emptied": "cordon", "emptied_for": FOR, "defragmentation": WHOLE} | conf
    gone = [e.PodGone(f"p{i}") for i in range(count + 1, 5)]
    state = world(*gone, *more, plan("x", *(move(f"x-{i}", f"p{i}") for i in range(1, count + 1)), whole=True), **conf)
    state.log = LOG
    return state


def marks(state) -> dict[str, MarkNode]:
    return {effect.node: effect for effect in owed(state) if isinstance(effect, MarkNode)}


def carried_out(state, *, cordoned_by: str = "us") -> None:
    """The effects that are owed, as the API does them, until there are none."""
    for effect in marks(state).values():
        was = state.nodes[effect.node]
        notes = ({PROTECTED: LOG} if effect.protect else {}) | ({CORDONED: f"{LOG} {effect.plan}"} if effect.plan else {})
        then(state, node(effect.node, cpu=8_000, marks=notes, unschedulable=bool(effect.plan) or (was.unschedulable and CORDONED not in was.marks)))
    assert not marks(state)


def said(events: list[e.Event]) -> list[e.Event]:
    return [event for event in events if isinstance(event, e.NodeEmptied | e.NodeReturned)]


def evict_all(state) -> list[e.Event]:
    advance(state)
    hold(state, "x-1", "x-2")
    terminate(state, "p1")
    found = advance(state)
    terminate(state, "p2")
    return found + advance(state)


def empty(state) -> list[e.Event]:
    """Both are landed, and nobody is on a any more."""
    evict_all(state)
    carried_out(state)
    land(state, "x-1", "q1")
    return land(state, "x-2", "q2")


def test_nothing_is_done_to_nodes_and_nothing_said_where_the_policy_says_nothing():
    state = emptying(emptied="none", defragmentation=None)
    assert said(empty(state)) == []
    assert state.emptied == {}
    assert not marks(state)


def test_a_node_is_cordoned_from_the_first_eviction_on():
    state = emptying()
    advance(state)
    create(state, "x-1")
    session_answers(state)
    advance(state)
    assert not marks(state), "nobody leaves it yet"
    assert evicts(hold(state, "x-2")) == ["x-1"]
    assert marks(state) == {"a": MarkNode("a", False, "x")}
    carried_out(state)


def test_what_is_owed_is_owed_after_each_step_and_after_a_restart_alike():
    state = emptying()
    evict_all(state)
    assert set(decider.pending(state, state.touched)) >= {MarkNode("a", False, "x")}
    again = load(dump(state))
    again.log = LOG
    assert marks(again) == marks(state)
    assert decider.owed(state, MarkNode("a", False, "x"))
    carried_out(state)
    assert not decider.owed(state, MarkNode("a", False, "x"))


def test_a_node_is_said_to_be_empty_when_the_last_pod_is_gone_and_only_those_are_left_that_no_scheduler_places():
    daemon = pod("d", node="a", owner=replica_of("ds", "DaemonSet"))
    state = emptying(2, daemon)
    evict_all(state)
    carried_out(state)
    land(state, "x-1", "q1")
    assert said(land(state, "x-2", "q2", gone=False)) == [], "its last pod terminates still"
    then(state, e.PodGone("p2"))
    assert said(advance(state)) == [e.NodeEmptied("a", "x")]
    assert not marks(state), "it stays cordoned"
    assert decider.deadline(state) == NOW + FOR


def test_who_only_wants_to_hear_of_it_has_no_node_cordoned():
    state = emptying(emptied="announce")
    assert said(empty(state)) == [e.NodeEmptied("a", "x")]
    assert not marks(state)


def test_a_node_that_nobody_takes_away_in_time_is_anybodys_again():
    state = emptying()
    empty(state)
    assert decider.due(state, NOW + FOR - 1) is None
    assert said(advance(state, FOR)) == [e.NodeReturned("a", "x", "NotTaken")]
    assert marks(state) == {"a": MarkNode("a", False, "")}
    carried_out(state)
    assert not state.nodes["a"].unschedulable


def test_a_node_that_was_taken_away_is_forgotten():
    state = emptying()
    empty(state)
    then(state, e.NodeGone("a"))
    assert state.emptied == {}
    assert decider.deadline(state) is None
    assert not marks(state)


def test_a_plan_that_does_not_finish_leaves_no_node_cordoned():
    state = emptying()
    advance(state)
    hold(state, "x-1", "x-2")
    carried_out(state)
    run(state, decider, c.ReportEviction(NOW, "x-1", "Refused", "a webhook says no"))
    run(state, decider, c.ReportEviction(NOW, "x-1", "Aborted"))
    assert said(advance(state)) == [e.NodeReturned("a", "x", "NotEmptied")]
    assert (step(state, "x-1"), step(state, "x-2")) == (Step.FAILED, Step.FAILED)
    assert marks(state) == {"a": MarkNode("a", False, "")}


def test_a_node_on_which_somebody_else_came_up_meanwhile_is_not_empty():
    state = emptying()
    evict_all(state)
    then(state, pod("s", node="a", owner=replica_of("other")))
    land(state, "x-1", "q1")
    assert said(land(state, "x-2", "q2")) == [e.NodeReturned("a", "x", "NotEmptied")]


def test_an_emptied_node_that_somebody_is_on_again_is_nobodys_to_take():
    state = emptying(emptied="announce")
    empty(state)
    then(state, pod("s", node="a", owner=replica_of("other")))
    assert said(advance(state)) == [e.NodeReturned("a", "x", "Refilled")]


def test_somebodys_own_cordon_is_as_good_and_stays():
    state = emptying()
    evict_all(state)
    then(state, node("a", cpu=8_000, unschedulable=True))
    assert not marks(state)
    land(state, "x-1", "q1")
    land(state, "x-2", "q2")
    advance(state, FOR)
    assert state.emptied == {}
    assert not marks(state)


def test_who_uncordons_the_node_is_obeyed():
    state = emptying()
    empty(state)
    then(state, node("a", cpu=8_000, marks={CORDONED: f"{LOG} x"}))
    assert said(advance(state)) == [e.NodeReturned("a", "x", "Uncordoned")]
    assert marks(state) == {"a": MarkNode("a", False, "")}


def test_a_policy_that_is_turned_off_takes_back_what_it_has_set():
    state = emptying(protect_targets=True)
    evict_all(state)
    carried_out(state)
    then(state, configured("migration", config.MigrationConfig(max_unavailable=0)))
    assert said(advance(state)) == [e.NodeReturned("a", "x", "Off")]
    assert marks(state) == {"a": MarkNode("a", False, ""), "b": MarkNode("b", False, "")}


def test_marks_of_another_installation_are_left_alone():
    state = emptying(protect_targets=True)
    then(state, node("b", cpu=8_000, marks={PROTECTED: "log-2 karpenter.sh/do-not-disrupt"}), node("d", cpu=8_000, marks={CORDONED: "log-2 y"}, unschedulable=True))
    advance(state)
    hold(state, "x-1", "x-2")
    assert marks(state) == {"a": MarkNode("a", False, "x")}


def test_the_end_of_a_mark_is_put_off_while_it_is_wanted():
    state = emptying(protect_targets=True)
    evict_all(state)
    assert not list(emptied.wanted(state)), "nothing is on the nodes yet"
    carried_out(state)
    assert {node.name: marks for node, marks in emptied.wanted(state)} == {"a": (CORDONED,), "b": (PROTECTED,)}
    land(state, "x-1", "q1")
    land(state, "x-2", "q2")
    assert {node.name: marks for node, marks in emptied.wanted(state)} == {"a": (CORDONED,)}, "nobody is on the way to b any more"
    then(state, configured("migration", config.MigrationConfig(max_unavailable=0)))
    advance(state)
    assert not list(emptied.wanted(state))


def test_the_end_of_another_logs_mark_is_not_put_off():
    state = emptying(protect_targets=True)
    then(state, node("b", cpu=8_000, marks={PROTECTED: "log-2 karpenter.sh/do-not-disrupt"}))
    evict_all(state)
    assert {node.name for node, _ in emptied.wanted(state)} == set()
    then(state, node("a", cpu=8_000, marks={CORDONED: "log-2 x"}, unschedulable=True))
    assert {node.name for node, _ in emptied.wanted(state)} == set()


@pytest.mark.parametrize(("said", "what"), [
    ("", "endless"), ("never", "endless"), (seconds(NOW + DAY + 1_000), "endless"),
    (seconds(NOW + DAY), "stays"), (seconds(NOW), "stays"), (seconds(NOW - GRACE + 1_000), "stays"), (seconds(NOW - GRACE), "ended"),
    ("1970-01-01T00:00:00Z", "ended"),
])  # fmt: skip
def test_a_mark_is_taken_away_after_its_end_and_given_one_where_it_says_none(said, what):
    assert due(said, NOW) == what


def test_a_plan_on_demand_empties_nodes_for_its_job_alone():
    state = emptying()
    state = world(plan("x", move("x-1", "p1"), whole=True, demand="default/big"), emptied="cordon", defragmentation=WHOLE)
    advance(state)
    hold(state, "x-1")
    assert state.emptied == {}


def test_a_node_is_protected_while_a_move_is_to_land_on_it():
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2", target="c")), protect_targets=True)
    state.log = LOG
    assert not marks(state)
    advance(state)
    assert marks(state) == {"b": MarkNode("b", True), "c": MarkNode("c", True)}
    carried_out(state)
    hold(state, "x-1", "x-2")
    assert not marks(state)
    land(state, "x-1", "q1")
    assert marks(state) == {"b": MarkNode("b", False)}
    assert MarkNode("b", False) in decider.pending(state, state.touched)


def test_a_move_that_turns_back_has_its_old_node_uncordoned_and_protected():
    state = emptying(1, protect_targets=True)
    advance(state)
    hold(state, "x-1")
    carried_out(state)
    terminate(state, "p1")
    advance(state)
    then(state, pod("q1", owner=replica_of("rs")), e.NodeGone("b"), e.NodeGone("c"), e.NodeGone("d"))
    session_answers(state)
    found = advance(state)
    assert state.migrations["x-1"].back, "our own cordon is no obstacle"
    assert said(found) or said(advance(state)) == [e.NodeReturned("a", "x", "NotEmptied")]
    assert marks(state) == {"a": MarkNode("a", True, "")}


@pytest.mark.parametrize("key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"])
def test_a_node_that_an_autoscaler_takes_away_is_no_target_also_for_pods_that_tolerate_it(key):
    state = world()
    then(state, node("b", cpu=8_000, taints=(Taint(key, "NoSchedule", "1"),)))
    assert holds.target_lost(state, "b") == ("TargetLost", "node b is being taken away by an autoscaler")


def test_no_move_is_planned_to_a_node_that_an_autoscaler_would_like_to_take_away_and_one_under_way_goes_on():
    args = DefragmentationArgs(resourceType="cpu", protectionThresholds={"cpu": 95}, defragmentThresholds={"cpu": 30}, lowThresholds={"cpu": 20})
    state = world(configured("migration", config.MigrationConfig(defragmentation=args)), e.PodGone("p2"), e.PodGone("p3"), e.PodGone("p4"),
                  *(pod(f"r{i}", node="b", owner=replica_of("rb")) for i in range(4)))  # fmt: skip
    assert [one.target for one in defragmentation.plan(state, args, NOW, "p").moves] == ["b"]
    then(state, node("b", cpu=8_000, taints=(Taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule", "1"),)))
    assert [one.target for one in defragmentation.plan(state, args, NOW, "p").moves] == []
    assert holds.target_lost(state, "b") is None


@pytest.mark.parametrize("args", [None, DefragmentationArgs()])
def test_nodes_are_emptied_wholly_or_nobody_hears_of_it(args):
    with pytest.raises(ValueError, match="emptied: cordon; allowed: with Defragmentation and its wholeNodes: true, or none"):
        check(config.MigrationConfig(emptied="cordon", defragmentation=args))
