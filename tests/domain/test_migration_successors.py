"""Whose is a migration's hold: a pod of the same controller that asks for the same, in the same role (RULES G-12)."""

import pytest
from domain.build import changed, configured, given, node, pod, replica_of, shape, then
from domain.saga import OWNER, advance, hold, move, plan, session_answers, step, terminate, world

from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain import config
from restow.domain.records import Step
from restow.domain.snapshot import dump, load

M = "x-1"
RAY = OwnerRef("RayCluster", "ray", "uid-ray", "ray.io/v1")
TORCH = OwnerRef("PyTorchJob", "t", "uid-t", "kubeflow.org/v1")
VCJOB = OwnerRef("Job", "v", "uid-v", "batch.volcano.sh/v1alpha1")
JOB = OwnerRef("Job", "j", "uid-j", "batch/v1")
INDEXED = "batch.kubernetes.io/job-completion-index"
MOVABLE = {"restow.dev/movable": "true"}


def gpus(owner: OwnerRef, **more):
    """A pod with eight GPUs on a, a hold for it on b that its end has armed, and no capacity elsewhere."""
    state = given(
        configured("migration", config.MigrationConfig()), node("a", gpus=8, cpu=64_000), node("b", gpus=8, cpu=64_000),
        shape("g", gpu=(8, 1000)), shape("half", gpu=(4, 1000)), shape("tiny", cpu=100), shape("more", gpu=(8, 1000), cpu=2_000),
        pod("w0", "g", node="a", owner=owner, annotations=MOVABLE, **more), plan("x", move(M, "w0")),
    )  # fmt: skip
    advance(state)
    hold(state, M)
    terminate(state, "w0")
    advance(state)
    assert step(state, M) is Step.EVICTED
    return state


def test_a_hold_is_not_for_a_pod_of_another_namespace_that_names_the_same_owner():
    """The API takes any uid for an owner's."""
    state = gpus(OWNER)
    then(state, pod("thief", "g", namespace="elsewhere", owner=OWNER), pod("w1", "g", owner=OWNER))
    session_answers(state)
    assert state.migrations[M].successor == "w1"
    assert "thief" not in state.placed


@pytest.mark.parametrize("owner", [RAY, TORCH, VCJOB, OWNER])
@pytest.mark.parametrize("other", ["tiny", "half", "more"])
def test_a_pod_of_the_same_owner_that_asks_for_something_else_leaves_the_hold_to_its_successor(owner, other):
    state = gpus(owner)
    then(state, pod("w1", other, owner=owner))
    session_answers(state)
    placed = state.placed.get("w1")
    assert placed is None or placed.hold is None, "it goes the way of everybody else"
    assert not advance(state), "the move has not landed by that"
    assert step(state, M) is Step.EVICTED
    then(state, pod("w0b", "g", owner=owner))
    session_answers(state)
    assert state.placed["w0b"].node == "b"
    assert state.migrations[M].successor == "w0b"
    then(state, changed("w0b", node="b", phase="Running", ready=True))
    assert advance(state) == [e.Landed(M, "w0b", "b")]


def test_a_rollout_to_another_image_takes_the_hold():
    state = world(shape("new", spec_digest="web:2"), plan("x", move(M, "p1")))
    advance(state)
    hold(state, M)
    terminate(state, "p1")
    advance(state)
    then(state, pod("q1", "new", owner=OWNER))
    session_answers(state)
    assert state.migrations[M].successor == "q1"


@pytest.mark.parametrize(
    ("owner", "mine", "others"),
    [
        (RAY, {"ray.io/node-type": "worker", "ray.io/group": "a"}, {"ray.io/node-type": "head"}),
        (RAY, {"ray.io/node-type": "worker", "ray.io/group": "a"}, {"ray.io/node-type": "worker", "ray.io/group": "b"}),
        (
            TORCH,
            {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "0"},
            {"training.kubeflow.org/replica-type": "worker", "training.kubeflow.org/replica-index": "1"},
        ),
        (VCJOB, {"volcano.sh/task-spec": "worker"}, {"volcano.sh/task-spec": "ps"}),
        (JOB, {INDEXED: "3"}, {INDEXED: "4"}),
        (JOB, {"jobset.sigs.k8s.io/replicatedjob-name": "a", INDEXED: "0"}, {"jobset.sigs.k8s.io/replicatedjob-name": "b", INDEXED: "0"}),
        (OwnerRef("Thing", "x", "uid-x", "x.io/v1"), {"ray.io/node-type": "worker"}, {"ray.io/node-type": "head"}),
    ],
)
def test_a_pod_in_another_role_is_no_successor(owner, mine, others):
    state = gpus(owner, labels=mine)
    then(state, pod("other", "g", owner=owner, labels=others), pod("same", "g", owner=owner, labels=mine))
    session_answers(state)
    assert state.migrations[M].successor == "same"
    assert "other" not in state.placed


def test_a_role_that_an_annotation_tells_counts_like_a_label():
    state = world()
    assert state.lineage(pod("v", owner=VCJOB, annotations={"volcano.sh/task-spec": "ps"})) == "uid-v/ps,"
    assert state.lineage(pod("v", owner=VCJOB, labels={"volcano.sh/task-spec": "ps", "volcano.sh/task-index": "2"})) == "uid-v/ps,2"


def test_labels_of_others_tell_nothing_about_a_deployments_pods():
    assert world().lineage(pod("p", owner=OWNER, labels={"ray.io/group": "a"})) == OWNER.uid


def test_of_a_statefulset_the_name_tells_who_follows():
    sts = replica_of("db", "StatefulSet")
    state = world(pod("db-0", node="a", owner=sts), plan("x", move(M, "db-0")))
    advance(state)
    hold(state, M)
    terminate(state, "db-0")
    advance(state)
    then(state, e.PodGone("db-0"), pod("db-1", owner=sts), pod("db-0", uid="again", owner=sts))
    session_answers(state)
    assert state.migrations[M].successor == "again"
    assert state.placed["db-1"].hold is None


def test_one_pod_follows_in_one_migration():
    """A successor whose hold was deleted and whose node went before it was bound takes the hold of the next migration of its
    controller; the first one waits for another."""
    state = world(plan("x", move("x-1", "p1"), move("x-2", "p2", target="c")), concurrent=2, per_node=2)
    advance(state)
    hold(state, "x-1", "x-2")
    terminate(state, "p1")
    advance(state)
    then(state, pod("q1", owner=OWNER))
    session_answers(state)
    assert state.migrations["x-1"].successor == "q1"
    then(state, e.ReservationGone("hold-x-1"), e.NodeGone("b"))
    terminate(state, "p2")
    session_answers(state)
    session_answers(state)
    assert [state.migrations[id].successor for id in ("x-1", "x-2")] == ["", "q1"]
    assert state.successors == {"q1": "x-2"}
    then(state, pod("q2", owner=OWNER))
    again = load(dump(state))
    advance(state)
    advance(again)
    assert [state.migrations[id].successor for id in ("x-1", "x-2")] == ["", "q1"]
    assert step(again, "x-1") == step(state, "x-1")
