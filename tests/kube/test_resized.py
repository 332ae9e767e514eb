"""A pod that is resized in place counts as kube-scheduler counts it: by what is asked for and what its kubelet keeps, whichever is more."""

import msgspec
import pytest

from restow.contracts import events as e
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube import wire
from restow.kube.describe import pod_fact
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import Upsert


def resized(asked, kept=None, allocated=None, pending="", init=False, limits=None, **more) -> wire.Pod:
    """A running pod of one container `c` that asks for so much, and whose kubelet says this of it."""
    container = {"name": "c", "resources": {"requests": asked} | ({"limits": limits} if limits else {})}
    status = {"name": "c"}
    if kept is not None:
        status["resources"] = kept if "requests" in kept else {"requests": kept}
    if allocated is not None:
        status["allocatedResources"] = allocated
    conditions = [{"type": "PodResizePending", "status": "True", "reason": pending}] if pending else []
    main = {"name": "main", "resources": {"requests": {"cpu": "1"}}}
    body = {
        "metadata": {"name": "p", "namespace": "default", "uid": "u"},
        "spec": {"nodeName": "n", "containers": [main] if init else [container]} | ({"initContainers": [container | {"restartPolicy": "Always"}]} if init else {}) | more,
        "status": {"phase": "Running", "conditions": conditions, "initContainerStatuses" if init else "containerStatuses": [status]},
    }
    return d.PODS.object(msgspec.json.encode(body))


def cpu(one: wire.Pod) -> int:
    return pod_fact(one)[0].requests["cpu"]


def test_a_pod_that_shrinks_keeps_its_former_size_until_the_kubelet_has_let_go_of_it():
    assert cpu(resized({"cpu": "1"}, {"cpu": "4"}, {"cpu": "4"})) == 4_000
    assert cpu(resized({"cpu": "1"}, {"cpu": "4"}, {"cpu": "1"})) == 4_000
    assert cpu(resized({"cpu": "1"}, {"cpu": "1"}, {"cpu": "1"})) == 1_000


def test_a_pod_that_grows_has_its_new_size_from_when_it_is_asked_for():
    assert cpu(resized({"cpu": "4"}, {"cpu": "1"}, {"cpu": "1"}, "Deferred")) == 4_000


def test_what_its_node_can_never_give_counts_for_nothing():
    assert cpu(resized({"cpu": "400"}, {"cpu": "1"}, {"cpu": "1"}, "Infeasible")) == 1_000
    assert cpu(resized({}, {"requests": {"cpu": "1"}, "limits": {"cpu": "1"}}, {"cpu": "1"}, "Infeasible", limits={"cpu": "9"})) == 1_000


def test_a_kubelet_that_says_nothing_of_it_keeps_what_is_asked_for():
    assert cpu(resized({"cpu": "1"})) == 1_000
    assert cpu(resized({"cpu": "1"}, allocated={"cpu": "4"})) == 1_000


def test_a_sidecar_counts_in_the_same_way():
    assert cpu(resized({"cpu": "1"}, {"cpu": "4"}, {"cpu": "4"}, init=True)) == 5_000


def test_a_container_that_asks_for_nothing_but_a_limit_has_that():
    assert cpu(resized({}, {"cpu": "1"}, {"cpu": "1"}, limits={"cpu": "2"})) == 2_000


@pytest.mark.parametrize("kept", [{"requests": {"cpu": "0.5", "memory": "1024Mi"}}, {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {}}])
def test_the_same_amounts_in_other_words_are_no_other_shape(kept):
    asked = {"cpu": "500m", "memory": "1Gi"}
    assert pod_fact(resized(asked, kept, asked))[1] == pod_fact(resized(asked))[1]


def test_a_guaranteed_pod_stays_guaranteed_while_it_is_resized():
    small, large = {"cpu": "1", "memory": "1Gi"}, {"cpu": "4", "memory": "1Gi"}
    shape = pod_fact(resized(small, {"requests": large, "limits": large}, large, limits=small))[0]
    assert (shape.qos, shape.requests["cpu"]) == ("Guaranteed", 4_000)


def test_a_pod_that_waits_has_no_kubelet():
    waiting = resized({"cpu": "1"}, {"cpu": "4"})
    waiting.spec.node_name = None
    assert cpu(waiting) == 1_000


def test_the_end_of_a_resize_is_a_fact():
    batch = Batch(StateKnown(ClusterState()))
    for one in (resized({"cpu": "1"}, {"cpu": "4"}), resized({"cpu": "1"}, {"cpu": "1"})):
        batch.add(d.PODS, Upsert(one))
    observed = [event.shape for event in batch.events() if isinstance(event, e.PodObserved)]
    assert len(observed) == len(set(observed)) == 2


