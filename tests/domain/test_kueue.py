"""Pods that Kueue manages: which of them may be moved, and what happens while it has not admitted a successor."""

import pytest
from domain.build import NOW, changed, configured, given, node, pod, run, shape, then
from domain.saga import OWNER, advance, failed, hold, move, plan, terminate
from domain.saga import world as worlds
from domain.test_beside import STOCK, evicted, session_answers, session_owes, world

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain import beside, config, session
from restow.domain.effects import Land, LetGo
from restow.domain.kueue import ADMISSION
from restow.domain.movable import unmovable

MANAGED = {"kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/queue-name": "q"}
GROUPED = MANAGED | {"kueue.x-k8s.io/pod-group-name": "g"}
NOT_RETRIABLE = {"kueue.x-k8s.io/retriable-in-group": "false"}
MOVABLE = {"restow.dev/movable": "true"}
STATEFUL = OwnerRef("StatefulSet", "db", "uid-db", "apps/v1")
REPLICAS = OwnerRef("ReplicaSet", "web", "uid-web", "apps/v1")
SPARK = OwnerRef("SparkApplication", "sp", "uid-sp", "sparkoperator.k8s.io/v1beta2")
NOW_AND_THEN = 10_000_000


@pytest.mark.parametrize(
    ("labels", "owner", "annotations", "says"),
    [
        ({}, REPLICAS, {}, ""),
        ({"kueue.x-k8s.io/queue-name": "q"}, REPLICAS, {}, ""),
        (MANAGED, REPLICAS, {}, "Kueue: its successor would wait for its admission anew"),
        (MANAGED, REPLICAS, MOVABLE, ""),
        (GROUPED, STATEFUL, {}, ""),
        (GROUPED, STATEFUL, NOT_RETRIABLE, "Kueue: its pod group g is not replaced pod by pod"),
        (GROUPED, STATEFUL, NOT_RETRIABLE | MOVABLE, "Kueue: its pod group g is not replaced pod by pod"),
        (GROUPED, REPLICAS, {}, "Kueue: its successor would be one too many for its pod group g"),
        (GROUPED, REPLICAS, MOVABLE, "Kueue: its successor would be one too many for its pod group g"),
        (GROUPED, SPARK, {}, "UnknownOwner"),
        (GROUPED, SPARK, MOVABLE, ""),
    ],
    ids=str,
)
def test_whose_eviction_kueue_answers_with_more_or_less_than_a_successor_stays(labels, owner, annotations, says):
    state = given(configured("migration", config.MigrationConfig()), node("a"), shape("s"), pod("p", node="a", owner=owner, labels=labels, annotations=annotations))
    why = unmovable(state, "p")
    assert why.startswith(says)
    assert bool(why) == bool(says)


def test_one_pod_of_a_group_that_is_not_retriable_binds_its_siblings():
    state = given(node("a"), shape("s"), *(pod(name, node="a", owner=STATEFUL, labels=GROUPED) for name in "pq"))
    assert unmovable(state, "p") == ""
    then(state, pod("q", node="a", owner=STATEFUL, labels=GROUPED, annotations=NOT_RETRIABLE))
    assert unmovable(state, "p").startswith("Kueue")


def test_a_pod_of_ours_waits_for_its_admission():
    state = given(node("a"), shape("s"), pod("p", labels=MANAGED, gated=True, gates=(ADMISSION,)))
    assert [event for event in run(state, session.decider, c.Schedule(NOW, 1_000)) if isinstance(event, e.PodPlaced)] == []
    then(state, pod("p", labels=MANAGED))
    assert [event.pod for event in run(state, session.decider, c.Schedule(NOW, 1_000)) if isinstance(event, e.PodPlaced)] == ["p"]


def both(state, *gates: str, shape: str = "s") -> None:
    then(state, pod("p2", shape, owner=OWNER, labels=GROUPED, gated=bool(gates), landing=gates == (beside.GATE,), gates=gates))
    session_answers(state)


def test_a_successor_lands_once_kueue_has_admitted_it_and_not_before():
    state = evicted(world())
    both(state, ADMISSION, beside.GATE)
    assert session_owes(state) == []
    assert not state.migrations["x-1"].successor
    both(state, beside.GATE)
    assert state.migrations["x-1"].successor == "p2"
    assert session_owes(state) == [Land("p2", "b")]


def test_a_successor_that_kueue_has_sent_to_other_nodes_is_let_go_at_once():
    state = evicted(world(node("c", cpu=4_000, labels={"flavor": "spot"}), shape("spot", cpu=3_000, scheduler=STOCK, node_selector={"flavor": "spot"})))
    both(state, ADMISSION, beside.GATE)
    both(state, beside.GATE, shape="spot")
    assert session_owes(state) == [LetGo("p2")]
    both(state, shape="spot")
    then(state, changed("p2", node="c"), changed("p2", node="c", phase="Running", ready=True), e.PodGone("p"))
    assert failed(advance(state, NOW_AND_THEN)) == {"x-1": "Elsewhere"}


def test_one_that_kueue_does_not_admit_in_time_ends_the_move_with_that_reason_and_is_let_go_afterwards():
    state = evicted(world())
    both(state, ADMISSION, beside.GATE)
    then(state, e.PodGone("p"))
    advance(state)
    (end,) = [event for event in advance(state, NOW_AND_THEN) if isinstance(event, e.MigrationFailed)]
    assert (end.reason, end.message) == ("NotAdmitted", f"its successor p2 is kept by the scheduling gate {ADMISSION}")
    session_answers(state)
    both(state, beside.GATE)
    assert LetGo("p2") in session_owes(state)


def test_of_ours_a_successor_that_is_not_admitted_in_time_ends_the_move_with_that_reason():
    state = worlds()
    then(state, plan("x", move("x-1", "p1")))
    advance(state)
    hold(state, "x-1")
    advance(state)
    terminate(state, "p1")
    advance(state)
    then(state, e.PodGone("p1"), pod("new", owner=OWNER, gated=True, gates=(ADMISSION,)))
    (end,) = [event for event in advance(state, NOW_AND_THEN) if isinstance(event, e.MigrationFailed)]
    assert (end.reason, end.message) == ("NotAdmitted", f"its successor new is kept by the scheduling gate {ADMISSION}")
