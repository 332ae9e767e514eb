"""Whose pods may be moved: of owners that are known to make them again, and of others by opt-in (RULES G-12, G-15)."""

import pytest
from domain.build import (
    NOW,
    changed,
    configured,
    given,
    job_of,
    node,
    pod,
    replica_of,
    run,
    shape,
    then,
    when,
)
from domain.saga import (
    OWNER,
    advance,
    decider,
    evicts,
    failed,
    hold,
    move,
    plan,
    session_answers,
    step,
    world,
)

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import OwnerRef, Toleration
from restow.domain import config, defragmentation
from restow.domain.decider import Rejected
from restow.domain.groups import WORKLOAD_REF
from restow.domain.hooks import RESPONDERS
from restow.domain.migration.eviction import may_be_tried
from restow.domain.movable import unmovable
from restow.domain.pod_controllers import INDEX_FAILURES, OWNERS, check_owners
from restow.domain.records import Step
from restow.domain.snapshot import dump, load

M = "x-1"
JOB = replica_of("j", "Job")
YES, NO = {"restow.dev/movable": "true"}, {"restow.dev/movable": "false"}
ARGS = config.DefragmentationArgs(resourceType="cpu", planner="optimizing", objective="nodes", protectionThresholds={})


def of(kind: str, version: str, **more):
    """A pod of such an owner, alone on a; q on b has capacity beside it."""
    state = given(
        configured("migration", config.MigrationConfig(defragmentation=ARGS, **more.pop("conf", {}))), node("a"), node("b"), shape("s"),
        pod("p", node="a", owner=OwnerRef(kind, "o", "uid-o", version), **more), pod("q", node="b", owner=OWNER), pod("q2", node="b", owner=OWNER),
    )  # fmt: skip
    return state


def word(state, uid="p") -> str:
    return unmovable(state, uid).partition(":")[0]


@pytest.mark.parametrize(
    ("kind", "version", "labels", "verdict"),
    [
        ("ReplicaSet", "apps/v1", {}, ""),
        ("ReplicationController", "v1", {}, ""),
        ("StatefulSet", "apps/v1", {}, ""),
        ("StatefulSet", "apps.kruise.io/v1beta1", {}, ""),
        ("CloneSet", "apps.kruise.io/v1alpha1", {}, ""),
        ("RayCluster", "ray.io/v1", {"ray.io/node-type": "worker"}, ""),
        ("RayCluster", "ray.io/v1", {"ray.io/node-type": "worker", "ray.io/worker-group-replica-index": "0"}, ""),
        ("RayCluster", "ray.io/v1", {"ray.io/node-type": "worker", "ray.io/worker-group-replica-name": "tpu-af03d"}, "UnknownOwner"),
        ("RayCluster", "ray.io/v1", {"ray.io/node-type": "head"}, "UnknownOwner"),
        ("Job", "batch/v1", {}, "UnknownOwner"),
        ("Job", "batch.volcano.sh/v1alpha1", {}, "UnknownOwner"),
        ("PyTorchJob", "kubeflow.org/v1", {}, "UnknownOwner"),
        ("Workflow", "argoproj.io/v1alpha1", {}, "UnknownOwner"),
        ("VirtualMachineInstance", "kubevirt.io/v1", {}, "UnknownOwner"),
        ("TaskRun", "tekton.dev/v1", {}, "UnknownOwner"),
        ("Pod", "v1", {}, "UnknownOwner"),
        ("ReplicaSet", "shop.example/v1", {}, "UnknownOwner"),
        ("StatefulSet", "apps/v1", {"leaderworkerset.sigs.k8s.io/name": "l"}, "UnknownOwner"),
    ],
)
def test_only_pods_of_owners_that_are_known_to_make_them_again_are_moved(kind, version, labels, verdict):
    state = of(kind, version, labels=labels)
    assert word(state) == verdict
    moved = [m.pod for m in defragmentation.plan(state, ARGS, NOW, "x").moves]
    assert ("p" in moved) == (not verdict)


@pytest.mark.parametrize("how", [{"annotations": YES}, {"labels": YES}, {"conf": {"movable_owners": ("PyTorchJob.kubeflow.org",)}}])
def test_others_are_moved_where_somebody_says_that_they_may_be(how):
    state = of("PyTorchJob", "kubeflow.org/v1", **how)
    assert word(state) == ""
    assert [m.pod for m in defragmentation.plan(state, ARGS, NOW, "x").moves] == ["p"]


def test_somebody_may_say_that_a_pod_is_not_to_be_moved():
    state = of("ReplicaSet", "apps/v1", annotations=NO)
    assert word(state) == "NotMovable"
    assert "p" not in [m.pod for m in when(state, decider, c.Defragment(NOW, "now", "x"))[0].moves]
    with pytest.raises(Rejected, match=r"restow.dev/movable: false"):
        when(state, decider, c.MovePod(NOW, "m", "p"))


ASKED = [{"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}, {"karpenter.sh/do-not-disrupt": "true"}]


@pytest.mark.parametrize("asked", ASKED)
def test_a_pod_that_asks_not_to_be_disrupted_stays_whatever_else_is_said_of_it(asked):
    state = of("ReplicaSet", "apps/v1", annotations=asked | YES)
    assert word(state) == "DoNotDisrupt"
    assert "p" not in [m.pod for m in when(state, decider, c.Defragment(NOW, "now", "x"))[0].moves]


@pytest.mark.parametrize("asked", ASKED)
def test_who_asks_for_it_after_the_plan_stays_too(asked):
    state = world(plan("x", move(M, "p1")))
    advance(state)
    then(state, pod("p1", node="a", owner=OWNER, annotations=asked))
    assert failed(hold(state, M)) == {M: "DoNotDisrupt"}


STARTED = NOW - 600_000


@pytest.mark.parametrize(
    ("said", "verdict"),
    [
        ({"karpenter.sh/do-not-disrupt": "15m"}, "DoNotDisrupt"),
        ({"karpenter.sh/do-not-disrupt": "5m"}, ""),
        ({"karpenter.sh/do-not-disrupt": "10m"}, ""),
        ({"karpenter.sh/do-not-disrupt": "-15m"}, ""),
        ({"karpenter.sh/do-not-disrupt": "0s"}, ""),
        ({"karpenter.sh/do-not-disrupt": "false"}, ""),
        ({"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"}, ""),
        ({"volcano.sh/cooldown-time": "600.1s"}, "DoNotDisrupt"),
        ({"volcano.sh/cooldown-time": "600s"}, ""),
        ({"volcano.sh/cooldown-time": "soon"}, ""),
        ({"volcano.sh/preemptable": "false"}, "DoNotDisrupt"),
        ({"volcano.sh/preemptable": "true"}, ""),
    ],
)
def test_what_a_pod_asks_for_a_time_counts_from_its_start(said, verdict):
    assert word(of("ReplicaSet", "apps/v1", annotations=said, started=STARTED)) == verdict


@pytest.mark.parametrize("said", [{"volcano.sh/cooldown-time": "1h"}, {"volcano.sh/preemptable": "false"}])
def test_volcano_reads_labels_too(said):
    assert word(of("ReplicaSet", "apps/v1", labels=said, started=STARTED)) == "DoNotDisrupt"


def test_a_pod_whose_start_is_not_known_yet_is_within_its_time():
    assert word(of("ReplicaSet", "apps/v1", annotations={"karpenter.sh/do-not-disrupt": "1s"})) == "DoNotDisrupt"


def test_nobody_leaves_a_node_that_is_not_to_be_disrupted():
    state = then(of("ReplicaSet", "apps/v1"), node("a", do_not_disrupt=True))
    assert unmovable(state, "p") == "DoNotDisrupt: its annotation karpenter.sh/do-not-disrupt: true, of its node"
    assert "p" not in [m.pod for m in defragmentation.plan(state, ARGS, NOW, "x").moves]
    assert word(then(state, node("a"))) == ""


def test_no_plan_goes_to_a_node_that_volcano_gives_by_the_clock():
    state = of("ReplicaSet", "apps/v1")
    assert [m.target for m in defragmentation.plan(state, ARGS, NOW, "x").moves] == ["b"]
    then(state, node("b", labels={"volcano.sh/revocable-zone": "rz1"}))
    assert [m.target for m in defragmentation.plan(state, ARGS, NOW, "x").moves if m.pod == "p"] == []


def test_asking_for_no_disruption_says_nothing_of_a_pod_that_has_failed():
    asked = {"restow.dev/note": "x"} | ASKED[0]
    state = world(
        pod("bare", node="a", annotations=asked), pod("dead", node="a", phase="Failed", ready=False, annotations=asked),
        plan("x", move("x-1", "bare", target=""), move("x-2", "dead", target="")),
    )  # fmt: skip
    assert failed(advance(state)) == {"x-1": "DoNotDisrupt"}


def test_what_is_said_of_a_deployment_counts_for_its_pods():
    state = of("ReplicaSet", "apps/v1")
    then(state, job_of("o", "", movable="false"))
    assert word(state) == "NotMovable"
    then(state, job_of("o", "", movable="true"))
    assert word(state) == ""


@pytest.mark.parametrize(
    ("evicted", "retries", "verdict"),
    [("ignored", 0, ""), ("fatal", 6, "Retries"), ("unknown", 6, "UnknownOwner"), ("counted", 0, "Retries"), ("counted", 1, "Retries"), ("counted", 2, "")],
)
def test_a_job_that_would_fail_by_our_eviction_keeps_its_pods(evicted, retries, verdict):
    state = world(job_of("j", evicted, retries), pod("j1", node="a", owner=JOB))
    assert word(state, "j1") == verdict
    then(state, plan("x", move(M, "j1")))
    assert failed(advance(state)) == ({M: verdict} if verdict else {})


@pytest.mark.parametrize(("failures", "verdict"), [(None, ""), ("0", ""), ("1", "Retries"), ("2", "Retries"), ("7", "Retries"), ("many", "")])
def test_of_a_job_that_counts_by_index_the_last_retry_of_each_index_is_its_own(failures, verdict):
    said = {} if failures is None else {INDEX_FAILURES: failures}
    state = world(job_of("j", "counted", 2**31 - 1, per_index=2), pod("j1", node="a", owner=JOB, annotations=said), pod("j2", node="a", owner=JOB))
    assert word(state, "j1") == verdict
    assert word(state, "j2") == ""


def test_where_a_job_has_a_limit_for_all_of_its_indexes_both_count():
    state = world(job_of("j", "counted", 1, per_index=5), pod("j1", node="a", owner=JOB))
    assert word(state, "j1") == "Retries"


def test_no_plan_takes_more_pods_of_a_job_than_its_retries_allow():
    jobs = [pod(f"j{i}", node="a", owner=JOB) for i in range(4)]
    state = world(job_of("j", "counted", 3), *jobs)
    assert [uid for uid in ("j0", "j1", "j2", "j3") if not word(state, uid)] == ["j0", "j1"]
    then(state, plan("x", *[move(f"x-{i}", f"j{i}") for i in range(4)]))
    assert set(failed(advance(state)).values()) == {"Retries"}
    assert evicts(hold(state, *state.active)) == ["x-0", "x-1"]


def test_a_job_whose_last_retry_was_used_up_meanwhile_keeps_its_pod():
    state = world(job_of("j", "counted", 2), pod("j1", node="a", owner=JOB), plan("x", move(M, "j1")))
    advance(state)
    then(state, job_of("j", "counted", 1))
    assert failed(hold(state, M)) == {M: "Retries"}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("retries", [1, 5])
def test_a_pod_of_a_job_that_ends_while_it_is_about_to_be_evicted_is_left_alone(phase, retries):
    state = world(job_of("j", "counted", 5), pod("j1", node="a", owner=JOB), pod("j2", node="b", owner=JOB), plan("x", move(M, "j1")))
    advance(state)
    assert evicts(hold(state, M)) == [M]
    assert may_be_tried(state, state.migrations[M])
    then(state, job_of("j", "counted", retries), changed("j1", phase=phase))
    assert not may_be_tried(state, state.migrations[M])
    assert word(state, "j1") == ""
    advance(state)
    assert step(state, M) is (Step.ABORTING if phase == "Succeeded" else Step.EVICTED)


@pytest.mark.parametrize("evicted", ["ignored", "counted"])
def test_a_job_whose_pods_end_with_success_when_they_are_told_to_go_keeps_the_others(evicted):
    """It counts such a pod as done, and makes no other: what it was to do would be left undone."""
    state = world(job_of("j", evicted, 5), pod("j1", node="a", owner=JOB), pod("j2", node="a", owner=JOB), plan("x", move(M, "j1")))
    advance(state)
    assert evicts(hold(state, M)) == [M]
    then(state, changed("j1", node="a", phase="Running", deleting=NOW))
    advance(state)
    assert word(state, "j2") == ""
    then(state, changed("j1", node="a", phase="Succeeded", deleting=NOW))
    assert word(state, "j2") == word(load(dump(state)), "j2") == "Retries"
    then(state, pod("j2", node="a", owner=JOB, annotations=YES))
    assert word(state, "j2") == ""
    then(state, e.WorkloadGone("uid-j"))
    assert not state.ended_well


def test_a_pod_of_a_job_that_succeeds_by_itself_says_nothing_of_the_others():
    state = world(job_of("j", "ignored"), pod("j1", node="a", owner=JOB), pod("j2", node="a", owner=JOB), plan("x", move(M, "j1")))
    advance(state)
    then(state, changed("j1", node="a", phase="Succeeded"))
    assert not state.ended_well


def test_a_move_by_hand_is_refused_with_what_would_allow_it():
    with pytest.raises(Rejected, match=r'allowed: restow.dev/movable: "true" on the pod, or PyTorchJob.kubeflow.org in movableOwners'):
        run(of("PyTorchJob", "kubeflow.org/v1"), decider, c.MovePod(NOW, "m", "p"))


@pytest.mark.parametrize("name", ["pytorchjob.kubeflow.org", "PyTorchJob/kubeflow.org", "PyTorchJob.KubeFlow.org", "DaemonSet.apps", "Node", ""])
def test_owners_are_named_by_kind_and_group(name):
    with pytest.raises(ValueError, match=r"PyTorchJob.kubeflow.org"):
        check_owners((name,))
    check_owners(("PyTorchJob.kubeflow.org", "Widget"))


def test_each_owner_is_in_the_table_once():
    kinds = [(owner.kind, owner.group) for owner in OWNERS]
    assert len(kinds) == len(set(kinds))


# -- whose controller is at work on its pods --------------------------------------------------------------------------------

BUSY = ["rollout", "paused", "scaling_down", "suspended", "over", "deleting"]


def deployment(busy=""):
    return e.WorkloadObserved("uid-d", "Deployment", "default", "web", busy=busy)


def replicaset(busy=""):
    return e.WorkloadObserved("uid-o", "ReplicaSet", "default", "o", OwnerRef("Deployment", "web", "uid-d", "apps/v1"), busy=busy)


@pytest.mark.parametrize("busy", BUSY)
@pytest.mark.parametrize("annotations", [{}, YES])
def test_a_pod_whose_controller_is_at_work_on_its_pods_stays_whatever_is_said_of_it(busy, annotations):
    state = then(of("ReplicaSet", "apps/v1", annotations=annotations), replicaset(busy))
    assert word(state) == "OwnerBusy"
    assert "p" not in [m.pod for m in defragmentation.plan(state, ARGS, NOW, "x").moves]
    with pytest.raises(Rejected, match=r"ReplicaSet o (is|has) "):
        when(state, decider, c.MovePod(NOW, "m", "p"))


def test_a_deployment_that_is_being_rolled_out_keeps_the_pods_of_its_replicasets():
    state = then(of("ReplicaSet", "apps/v1"), replicaset(), deployment("rollout"))
    assert unmovable(state, "p") == "OwnerBusy: Deployment web is being rolled out: who follows may be another one, or nobody"
    assert word(load(dump(state))) == "OwnerBusy"
    then(state, e.WorkloadGone("uid-d"))
    assert word(state) == ""


def test_a_pod_that_a_statefulset_updated_by_deletions_would_make_otherwise_stays_and_one_that_is_updated_moves():
    db = OwnerRef("StatefulSet", "o", "uid-o", "apps/v1")
    state = of("StatefulSet", "apps/v1", labels={"controller-revision-hash": "o-1"})
    then(state, pod("o-1", node="b", owner=db, labels={"controller-revision-hash": "o-2"}))
    then(state, e.WorkloadObserved("uid-o", "StatefulSet", "default", "o", revision="o-2"))
    assert unmovable(state, "p") == "OwnerBusy: StatefulSet o is updated by deletions (OnDelete), and would make it anew by its revision o-2"
    assert word(state, "o-1") == ""


def partitioned(*pods, kept_below=2):
    """A StatefulSet whose pods from o-2 on are updated, to a template that asks for more; the others are kept as they are."""
    db = OwnerRef("StatefulSet", "o", "uid-o", "apps/v1")
    told = e.WorkloadObserved("uid-o", "StatefulSet", "default", "o", revision="r2", kept="r1", kept_below=kept_below)
    made = [pod(name, "s" if revision == "r1" else "v2", "b", owner=db, labels={"controller-revision-hash": revision}) for name, revision in pods]
    return then(of("ReplicaSet", "apps/v1"), shape("v2", cpu=2_000), told, *made)


@pytest.mark.parametrize("order", [("o-0", "o-1", "o-2"), ("o-2", "o-1", "o-0")])
def test_pods_of_both_sides_of_a_partition_move_for_they_are_made_again_as_they_are(order):
    state = partitioned(*((name, "r2" if name == "o-2" else "r1") for name in order))
    assert [word(state, name) for name in order] == ["", "", ""]
    state = load(dump(state))
    assert [word(state, name) for name in order] == ["", "", ""]


def test_a_pod_that_would_come_from_the_other_side_of_the_partition_stays():
    """The partition was raised in the middle of an update, or its pod is still to be updated."""
    state = partitioned(("o-0", "r1"), ("o-1", "r2"), ("o-2", "r2"), ("o-3", "r0"))
    assert unmovable(state, "o-1") == "OwnerBusy: StatefulSet o is updated beyond a partition, and would make it anew by its revision r1"
    assert unmovable(state, "o-3") == "OwnerBusy: StatefulSet o is updated beyond a partition, and would make it anew by its revision r2"
    assert [word(state, "o-0"), word(state, "o-2")] == ["", ""]


def test_the_successor_of_a_pod_below_the_partition_is_of_its_own_revision_and_lands():
    db = OwnerRef("StatefulSet", "o", "uid-o", "apps/v1")
    old, new = {"controller-revision-hash": "r1"}, {"controller-revision-hash": "r2"}
    state = world(
        shape("v2", cpu=2_000), e.WorkloadObserved("uid-o", "StatefulSet", "default", "o", revision="r2", kept="r1", kept_below=1),
        pod("o-0", node="a", owner=db, labels=old), pod("o-1", "v2", "c", owner=db, labels=new), plan("x", move(M, "o-0")),
    )  # fmt: skip
    advance(state)
    assert evicts(hold(state, M)) == [M]
    then(state, changed("o-0", node="a", phase="Running", deleting=NOW))
    advance(state)
    then(state, e.PodGone("o-0"), pod("o-0", uid="again", owner=db, labels=old))
    session_answers(state)
    then(state, changed("again", node="b", phase="Running", ready=True))
    advance(state)
    assert step(state, M) is Step.LANDED


@pytest.mark.parametrize(("key", "said"), [(WORKLOAD_REF, "spec.workloadRef names w/workers/0"), (RESPONDERS, "spec.evictionResponders names w/workers/0")])
def test_a_pod_that_belongs_to_what_nobody_reads_stays_unless_somebody_says_that_it_may_be_moved(key, said):
    state = of("ReplicaSet", "apps/v1", annotations={key: "w/workers/0"})
    assert unmovable(state, "p").startswith(f"Unsupported: {said}, ")
    assert "p" not in [one.pod for one in defragmentation.plan(state, ARGS, NOW, "x").moves]
    assert word(of("ReplicaSet", "apps/v1", annotations={key: "w/workers/0"} | YES)) == ""


def test_nothing_moves_a_pod_whose_group_is_not_to_be_moved():
    group = e.PodGroupObserved("default", "g", "uid-g", NOW, annotations=NO)
    state = then(of("ReplicaSet", "apps/v1", annotations=YES | {"scheduling.k8s.io/group-name": "g"}), group)
    assert unmovable(state, "p") == "NotMovable: restow.dev/movable: false is said of its PodGroup default/g"


def test_a_deployment_speaks_for_the_pods_of_its_replicasets():
    state = then(of("ReplicaSet", "apps/v1"), replicaset(), e.WorkloadObserved("uid-d", "Deployment", "default", "web", movable="false"))
    assert word(state) == "NotMovable"
    then(state, e.WorkloadGone("uid-d"))
    assert word(state) == ""


def test_a_rollout_that_begins_before_the_eviction_ends_the_move():
    state = world(plan("x", move(M, "p1")))
    advance(state)
    then(state, e.WorkloadObserved(OWNER.uid, OWNER.kind, "default", OWNER.name, busy="scaling_down"))
    assert failed(hold(state, M)) == {M: "OwnerBusy"}


def test_a_rollout_that_begins_before_the_api_has_answered_stops_the_eviction():
    state = world(plan("x", move(M, "p1")))
    advance(state)
    assert evicts(hold(state, M)) == [M]
    then(state, e.WorkloadObserved(OWNER.uid, OWNER.kind, "default", OWNER.name, busy="rollout"))
    assert not may_be_tried(state, state.migrations[M])
    advance(state)
    assert step(state, M) is Step.ABORTING


def test_what_a_volcano_job_does_is_for_its_policies_to_say():
    state = of("Job", "batch.volcano.sh/v1alpha1")
    assert word(state) == "UnknownOwner"
    then(state, job_of("o", "fatal", group="batch.volcano.sh"))
    assert word(state) == "UnknownOwner"
    then(state, job_of("o", "ignored", group="batch.volcano.sh"))
    assert word(state) == ""


LWS = {"leaderworkerset.sigs.k8s.io/name": "l", "leaderworkerset.sigs.k8s.io/worker-index": "1"}


def test_a_leaderworkerset_is_named_as_itself_though_its_pods_are_statefulsets():
    state = of("StatefulSet", "apps/v1", labels=LWS, conf={"movable_owners": ("StatefulSet.apps",)})
    assert "LeaderWorkerSet.leaderworkerset.x-k8s.io in movableOwners" in unmovable(state, "p")
    assert word(of("StatefulSet", "apps/v1", labels=LWS, conf={"movable_owners": ("LeaderWorkerSet.leaderworkerset.x-k8s.io",)})) == ""


def test_a_worker_whose_group_was_made_anew_follows_the_one_of_its_name_though_its_statefulset_is_another():
    """With the leader goes the StatefulSet of its workers."""
    state = of("StatefulSet", "apps/v1", labels=LWS)
    again = pod("p", uid="p-2", labels=LWS, owner=OwnerRef("StatefulSet", "o", "uid-o2", "apps/v1"))
    other = pod("l-1-1", labels=LWS, owner=OwnerRef("StatefulSet", "o", "uid-o2", "apps/v1"))
    then(state, again, other)
    assert state.lineage(state.pods["p-2"].fact) == state.lineage(state.pods["p"].fact)
    assert state.lineage(state.pods["l-1-1"].fact) != state.lineage(state.pods["p"].fact)


# -- whose successor asks for something else ---------------------------------------------------------------------------------


def test_a_pod_that_was_resized_in_place_stays_for_its_controller_makes_one_by_its_template():
    state = then(of("ReplicaSet", "apps/v1"), shape("more", cpu=2_000))
    of_rs = OwnerRef("ReplicaSet", "o", "uid-o", "apps/v1")
    then(state, pod("p", "more", "a", owner=of_rs))
    assert word(state) == word(load(dump(state))) == "OtherTemplate"
    assert "p" not in [one.pod for one in defragmentation.plan(state, ARGS, NOW, "x").moves]
    then(state, shape("less", cpu=500), pod("p", "less", "a", owner=of_rs))
    assert word(state) == "OtherTemplate"
    then(state, pod("p", "s", "a", owner=of_rs))
    assert word(state) == ""
    assert not state.resized


def test_what_else_changes_of_a_pod_is_no_resize():
    state = then(of("ReplicaSet", "apps/v1"), shape("tolerant", tolerations=(Toleration("t", "Exists"),)))
    then(state, pod("p", "tolerant", "a", owner=OwnerRef("ReplicaSet", "o", "uid-o", "apps/v1")))
    assert word(state) == ""


def test_who_says_that_a_resized_pod_may_be_moved_is_believed():
    state = then(of("ReplicaSet", "apps/v1"), shape("more", cpu=2_000))
    then(state, pod("p", "more", "a", owner=OwnerRef("ReplicaSet", "o", "uid-o", "apps/v1"), annotations=YES))
    assert word(state) == ""


def test_a_pod_of_an_earlier_revision_of_its_statefulset_stays_where_the_later_one_asks_for_something_else():
    db = OwnerRef("StatefulSet", "o", "uid-o", "apps/v1")
    state = then(of("StatefulSet", "apps/v1"), shape("v2", cpu=2_000), pod("o-1", "v2", "b", owner=db))
    assert word(state) == "OtherTemplate"
    assert word(state, "o-1") == ""
    state = then(of("StatefulSet", "apps/v1"), shape("v2"), pod("o-1", "v2", "b", owner=db))
    assert word(state) == ""


def test_a_pod_that_is_resized_before_its_eviction_stays():
    state = world(shape("more", cpu=2_000), plan("x", move(M, "p1")))
    advance(state)
    hold_first = hold(state, M)
    assert evicts(hold_first) == [M]
    then(state, pod("p1", "more", "a", owner=OWNER))
    assert not may_be_tried(state, state.migrations[M])
