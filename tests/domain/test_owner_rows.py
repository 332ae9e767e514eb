"""Every row of the table of owners (docs/descheduling.md): the move that it allows lands, the one that it does not is refused, and what people say of it counts."""

import pytest
from domain.build import NOW, changed, configured, given, job_of, node, pod, shape, then
from domain.saga import advance, evicts, hold, move, plan, session_answers, step, terminate

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.values import OwnerRef
from restow.domain import config
from restow.domain.decider import Rejected
from restow.domain.migration import decider
from restow.domain.movable import unmovable
from restow.domain.pod_controllers import GROUPED, LWS_NAME, OWNERS, RAY_TYPE, Owner
from restow.domain.records import Step

M = "x-1"
ROWS = {f"{owner.kind}.{owner.group}": owner for owner in (*OWNERS, GROUPED)}
KUBEFLOW = ("MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob", "JAXJob")
MADE_AGAIN = ("ReplicaSet.apps", "ReplicationController.", "CloneSet.apps.kruise.io", "StatefulSet.apps", "StatefulSet.apps.kruise.io")
DEPENDS = {
    # What lets its pods go, and what keeps them: (facts of the controller, labels of the pod).
    "Job.batch": ((job_of("o"), {}), (job_of("o", "fatal"), {})),
    "RayCluster.ray.io": ((None, {RAY_TYPE: "worker"}), (None, {RAY_TYPE: "head"})),
    "Job.batch.volcano.sh": tuple((e.WorkloadObserved("uid-o", "Job", "default", "o", evicted=said, group="batch.volcano.sh"), {}) for said in ("ignored", "fatal")),
}
ASKED = (
    *(f"{kind}.kubeflow.org" for kind in KUBEFLOW), "Workflow.argoproj.io", "TaskRun.tekton.dev", "VirtualMachineInstance.kubevirt.io",
    "SparkApplication.sparkoperator.k8s.io", "LeaderWorkerSet.leaderworkerset.x-k8s.io",
)  # fmt: skip
NEVER = ("DaemonSet.apps", "Node.")


def ref(row: str) -> tuple[OwnerRef, dict[str, str]]:
    """The owner of a pod of this row, and the labels by which it is known."""
    owner: Owner = ROWS[row]
    if owner is GROUPED:
        return OwnerRef("StatefulSet", "o", "uid-o", "apps/v1"), {LWS_NAME: "l"}
    return OwnerRef(owner.kind, "o", "uid-o", f"{owner.group}/v1" if owner.group else "v1"), {}


def world(row: str, told: e.Event | None = None, labels: dict[str, str] | None = None, conf: tuple[str, ...] = (), **more):
    """p of such an owner runs on a; b has capacity."""
    owner, known_by = ref(row)
    conf = config.MigrationConfig(max_unavailable=0, evictions_per_minute=0, movable_owners=conf)
    facts = [told] if told is not None else []
    return given(configured("migration", conf), node("a"), node("b"), shape("s"), *facts, pod("p", node="a", owner=owner, labels=known_by | (labels or {}), **more))


def word(state) -> str:
    return unmovable(state, "p").partition(":")[0]


def moves(state) -> bool:
    """Whether it is moved by hand, and lands."""
    then(state, plan("x", move(M, "p")))
    advance(state)
    if evicts(hold(state, M)) != [M]:
        return False
    terminate(state, "p")
    advance(state)
    of = state.pods["p"].fact
    then(state, e.PodGone("p"), pod("p" if of.owner.kind == "StatefulSet" else "q", "s", uid="again", owner=of.owner, labels=of.labels))
    session_answers(state)
    then(state, changed("again", node="b", phase="Running", ready=True))
    advance(state)
    return step(state, M) is Step.LANDED


def test_each_row_is_asked_about_here():
    assert sorted((*MADE_AGAIN, *DEPENDS, *ASKED, *NEVER)) == sorted(ROWS)


@pytest.mark.parametrize("row", MADE_AGAIN)
def test_whose_pods_are_made_again_whatever_happens_they_move_and_land(row):
    state = world(row)
    assert word(state) == ""
    assert moves(state)


@pytest.mark.parametrize("row", DEPENDS)
def test_where_it_depends_one_pod_lands_and_the_other_stays(row):
    (told, labels), (against, other) = DEPENDS[row]
    assert moves(world(row, told, labels))
    state = world(row, against, other)
    assert word(state) in ("UnknownOwner", "Retries")
    with pytest.raises(Rejected):
        decider.decide(state, c.MovePod(NOW, "m", "p"))
    assert moves(world(row, against, other, annotations={"restow.dev/movable": "true"}))


@pytest.mark.parametrize("row", ASKED)
def test_who_moves_only_where_somebody_says_so_stays_otherwise_and_lands_then(row):
    state = world(row)
    assert word(state) == "UnknownOwner"
    assert ROWS[row].why in unmovable(state, "p")
    with pytest.raises(Rejected, match=r"allowed: restow.dev/movable"):
        decider.decide(state, c.MovePod(NOW, "m", "p"))
    assert moves(world(row, annotations={"restow.dev/movable": "true"}))
    assert moves(world(row, conf=(row,)))


@pytest.mark.parametrize("row", NEVER)
@pytest.mark.parametrize("annotations", [{}, {"restow.dev/movable": "true"}])
def test_who_belongs_to_a_node_never_moves_whatever_is_said(row, annotations):
    state = world(row, annotations=annotations, static=row == "Node.")
    with pytest.raises(Rejected):
        decider.decide(state, c.MovePod(NOW, "m", "p"))
    assert not moves(state)


@pytest.mark.parametrize("row", [row for row in ROWS if row not in NEVER])
def test_no_row_moves_a_pod_of_which_somebody_says_no(row):
    told, labels = DEPENDS[row][0] if row in DEPENDS else (None, {})
    state = world(row, told, labels, conf=(row,) if row in ASKED else (), annotations={"restow.dev/movable": "false"})
    assert word(state) == "NotMovable"
    assert not moves(state)
