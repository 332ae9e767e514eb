"""KS-320..339: the kubelets."""

from __future__ import annotations

import pytest
from kubesim.simworld import World, condition, deleting, is_ready, phase, pod_spec

from restow.kubesim.resources import NODES, PODS


@pytest.fixture
def world() -> World:
    return World(nodes=1)


def reason(world: World, name: str) -> str:
    pod = world.get(PODS, name)
    return pod["status"].get("reason", "") if phase(pod) == "Failed" else ""


def test_a_bound_pod_starts_and_becomes_ready_after_their_delays(world):
    """KS-320"""
    world.pod()
    world.run(0.019)
    assert phase(world.get(PODS, "p")) == "Pending"
    world.run(0.002)
    assert (phase(world.get(PODS, "p")), is_ready(world.get(PODS, "p"))) == ("Running", False)
    world.run(0.010)
    assert is_ready(world.get(PODS, "p"))


def test_a_running_pod_reports_addresses_times_conditions_and_containers(world):
    """KS-321"""
    spec = pod_spec(initContainers=[{"name": "i", "image": "x"}])
    world.create(PODS, "p", {**spec, "nodeName": "n0"})
    world.run(0.1)
    status = world.status(PODS, "p")
    assert status["hostIP"] == world.status(NODES, "n0")["addresses"][0]["address"]
    assert status["podIP"].startswith("10.")
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert status["startTime"]
    kinds = {c["type"]: c["status"] for c in status["conditions"]}
    assert kinds == dict.fromkeys(
        ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"), "True"
    )
    (container,) = status["containerStatuses"]
    assert (container["name"], container["ready"], "running" in container["state"]) == ("c", True, True)
    (init,) = status["initContainerStatuses"]
    assert init["state"]["terminated"]["reason"] == "Completed"


def test_two_pods_never_have_the_same_address(world):
    """KS-321"""
    world.pod("a")
    world.pod("b")
    world.run(0.1)
    assert world.status(PODS, "a")["podIP"] != world.status(PODS, "b")["podIP"]


def test_a_start_takes_two_status_writes_and_one_without_a_readiness_delay(world):
    """KS-322"""
    writes: list[str] = []
    world.store.subscribe(
        lambda c: (
            writes.append(c.new["metadata"]["name"]) if c.resource == PODS and c.type == "MODIFIED" else None
        )
    )
    world.pod("a")
    world.pod("b", annotations={"kubesim.restow.dev/ready-after": "0s"})
    world.run(1)
    assert (writes.count("a"), writes.count("b")) == (2, 1)


def test_a_pod_becomes_ready_after_its_annotation(world):
    """KS-323"""
    world.pod(annotations={"kubesim.restow.dev/ready-after": "2s"})
    world.run(1.5)
    assert not is_ready(world.get(PODS, "p"))
    world.run(1)
    assert is_ready(world.get(PODS, "p"))


def test_a_pod_succeeds_after_run_for_and_fails_after_fail_after(world):
    """KS-324"""
    world.pod("good", annotations={"kubesim.restow.dev/run-for": "1500ms"})
    world.pod("bad", annotations={"kubesim.restow.dev/fail-after": "1m"})
    world.run(1.4)
    assert phase(world.get(PODS, "good")) == "Running"
    world.run(0.2)
    good = world.get(PODS, "good")
    assert (phase(good), condition(good, "Ready")["reason"]) == ("Succeeded", "PodCompleted")
    world.run(60)
    bad = world.get(PODS, "bad")
    assert phase(bad) == "Failed"
    assert bad["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 1


def test_a_pod_without_annotation_runs_for_ever(world):
    """KS-324"""
    world.pod("always")
    world.pod("never", restartPolicy="Never")
    world.run(100_000)
    assert [phase(pod) for pod in world.pods()] == ["Running", "Running"]


def test_an_unreadable_duration_is_ignored_and_logged(world, caplog):
    """KS-325"""
    world.pod(annotations={"kubesim.restow.dev/run-for": "soon"})
    world.run(10)
    assert phase(world.get(PODS, "p")) == "Running"
    assert "'soon' is not a duration" in caplog.text


def test_a_deleted_pod_stops_reports_failed_and_is_removed(world):
    """KS-326"""
    world.pod()
    world.run(0.1)
    last: list[dict] = []
    world.store.subscribe(lambda c: last.append(c.stored.obj) if c.resource == PODS else None)
    world.delete(PODS, "p")
    world.run(0.019)
    assert deleting(world.get(PODS, "p"))
    world.run(0.002)
    assert world.find(PODS, "p") is None
    assert phase(last[-1]) == "Failed"
    assert last[-1]["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"] == 143


def test_stopping_never_takes_longer_than_the_grace_period(world):
    """KS-327"""
    world.pod(annotations={"kubesim.restow.dev/stop-after": "1h"}, terminationGracePeriodSeconds=5)
    world.run(0.1)
    world.delete(PODS, "p")
    world.run(4.9)
    assert world.find(PODS, "p") is not None
    world.run(0.2)
    assert world.find(PODS, "p") is None


def test_a_second_delete_with_a_shorter_grace_stops_sooner(world):
    """KS-327"""
    world.pod(annotations={"kubesim.restow.dev/stop-after": "1h"})
    world.run(0.1)
    world.delete(PODS, "p")
    world.run(1)
    world.delete(PODS, "p", grace_period=1)
    world.run(1.1)
    assert world.find(PODS, "p") is None


def test_a_pod_deleted_before_it_is_bound_goes_at_once(world):
    """KS-328"""
    world.pod(node=None)
    world.delete(PODS, "p")
    assert world.find(PODS, "p") is None


def test_a_pod_deleted_while_it_starts_never_runs(world):
    """KS-328"""
    world.pod()
    world.delete(PODS, "p")
    world.run(0.01)
    assert world.find(PODS, "p") is None


def test_a_finalizer_holds_a_stopped_pod(world):
    """KS-329"""
    world.create(PODS, "p", {**pod_spec(), "nodeName": "n0"}, finalizers=["example.com/hold"])
    world.run(0.1)
    world.delete(PODS, "p")
    world.run(10)
    assert deleting(world.get(PODS, "p"))
    world.store.finalize(PODS, "default", "p", remove=["example.com/hold"])
    assert world.find(PODS, "p") is None


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"cpu": "3"}, "OutOfcpu"),
        ({"memory": "7Gi"}, "OutOfmemory"),
        ({"example.com/fpga": "1"}, "OutOfexample.com/fpga"),
    ],
)
def test_a_pod_that_does_not_fit_beside_the_admitted_ones_fails(world, requests, expected):
    """KS-330"""
    world.pod("first", cpu="1500m", memory="2Gi")
    world.pod("second", requests=requests)
    world.run(0.1)
    assert reason(world, "second") == expected
    assert phase(world.get(PODS, "first")) == "Running"
    kubelet = world.running.kubelet
    assert (kubelet.rejections, kubelet.rejections_by_reason) == (1, {expected: 1})


def test_the_message_of_a_rejection_gives_the_numbers(world):
    """KS-330"""
    world.pod("big", cpu="5")
    assert world.status(PODS, "big")["message"] == (
        "Pod was rejected: Node didn't have enough resource: cpu, requested: 5000, used: 0, capacity: 4000"
    )


def test_the_number_of_pods_is_bounded():
    """KS-330"""
    world = World(nodes=1, pods=1)
    world.pod("a")
    world.pod("b")
    assert reason(world, "b") == "OutOfpods"


def test_a_host_port_is_given_once(world):
    """KS-331"""
    container = {"ports": [{"containerPort": 80, "hostPort": 8080}]}
    world.pod("a", container=container)
    world.pod("b", container=container)
    assert reason(world, "b") == "NodePorts"


def test_node_affinity_and_no_execute_taints_are_checked(world):
    """KS-332"""
    world.change(NODES, "n0", taints=[{"key": "k", "value": "v", "effect": "NoExecute"}])
    world.pod("tainted")
    world.pod("elsewhere", nodeSelector={"disk": "ssd"})
    assert (reason(world, "tainted"), reason(world, "elsewhere")) == ("TaintToleration", "NodeAffinity")


def test_what_a_pod_used_is_free_when_it_ends_or_is_removed(world):
    """KS-333"""
    world.pod("a", cpu="3", annotations={"kubesim.restow.dev/run-for": "1s"})
    world.run(2)
    world.pod("b", cpu="3")
    world.run(1)
    assert phase(world.get(PODS, "b")) == "Running"
    world.delete(PODS, "b")
    world.run(1)
    world.pod("c", cpu="3")
    world.run(1)
    assert (phase(world.get(PODS, "c")), world.running.kubelet.rejections) == ("Running", 0)


def test_a_terminating_pod_keeps_its_resources_until_it_is_gone(world):
    """KS-333"""
    world.pod("a", cpu="3", annotations={"kubesim.restow.dev/stop-after": "5s"})
    world.run(0.1)
    world.delete(PODS, "a")
    world.pod("b", cpu="3")
    assert reason(world, "b") == "OutOfcpu"


def test_init_containers_sidecars_and_overhead_count_as_the_scheduler_counts_them(world):
    """KS-334"""
    sidecar = {
        "name": "s",
        "image": "x",
        "restartPolicy": "Always",
        "resources": {"requests": {"cpu": "500m"}},
    }
    init = {"name": "i", "image": "x", "resources": {"requests": {"cpu": "2"}}}
    spec = pod_spec(cpu="1", initContainers=[sidecar, init], overhead={"cpu": "250m"}, nodeName="n0")
    world.create(PODS, "p", spec)
    assert world.running.kubelet.account("n0").used["cpu"] == 2750


def test_a_pod_that_was_running_before_the_start_is_taken_as_it_is():
    """KS-335"""
    world = World(nodes=1)
    world.pod("a", cpu="3")
    world.run(1)
    world.running.close()
    world.start()
    world.pod("b", cpu="3")
    assert (phase(world.get(PODS, "a")), reason(world, "b")) == ("Running", "OutOfcpu")


def test_fewer_resources_on_the_node_do_not_end_admitted_pods(world):
    """KS-336"""
    world.pod("a", cpu="3")
    world.run(0.1)
    node = world.get(NODES, "n0")
    allocatable = {**node["status"]["allocatable"], "cpu": "1"}
    world.store.update(
        NODES, {**node, "status": {**node["status"], "allocatable": allocatable}}, subresource="status"
    )
    world.pod("b", cpu="100m")
    world.run(0.1)
    assert (phase(world.get(PODS, "a")), reason(world, "b")) == ("Running", "OutOfcpu")
