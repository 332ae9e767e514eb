"""What upstream says of init containers of a pod that asks for nothing, as most do: RemoveDuplicates does not compare them, and PodLifeTime sees that they have ended."""

from typing import Any

import pytest
from conformance.world import state_of, time_of

from restow.domain.descheduling.policy import load
from restow.domain.migration.run_once import carried_out


def node(name: str) -> dict[str, Any]:
    amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name}, "spec": {}, "status": status}


def replica(name: str, setup: str, **more: str) -> dict[str, Any]:
    """It runs, and all is well with it. Its init container has the image `setup`."""
    at, since = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "web", "controller": True}
    types = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    plain = {"image": "", "imageID": "", "ready": True, "restartCount": 0}
    done = {"reason": "Completed", "exitCode": 0, "startedAt": at, "finishedAt": since}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "uid": name, "creationTimestamp": at, "ownerReferences": [owner]},
        "spec": {"nodeName": "n1", "containers": [{"name": "main", "image": "web:1"}], "initContainers": [{"name": "setup", "image": setup, **more}]},
        "status": {
            "phase": "Running",
            "startTime": at,
            "containerStatuses": [plain | {"name": "main", "started": True, "state": {"running": {"startedAt": since}}}],
            "initContainerStatuses": [plain | {"name": "setup", "started": False, "state": {"terminated": done}}],
            "conditions": [{"type": type, "status": "True", "lastTransitionTime": since} for type in types],
        },
    }


def gone(plugin: str, point: str, args: dict[str, Any], *pods: dict[str, Any]) -> list[str]:
    config = [{"name": plugin, "args": args}]
    profile = {"name": "p", "pluginConfig": config, "plugins": {point: {"enabled": [plugin]}}}
    policy = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", "profiles": [profile]}
    case = {"nodes": [node("n1"), node("n2")], "pods": list(pods), "policy": policy, "now": "2026-01-02T00:00:00Z"}
    return sorted(e.pod for e in carried_out(state_of(case), load(policy), time_of(case)).outcome.evictions)


def test_copies_differ_in_their_init_containers_and_are_copies():
    assert gone("RemoveDuplicates", "balance", {}, replica("a", "setup:1"), replica("b", "setup:2")) == ["b"]


@pytest.mark.parametrize("said", [{"states": ["Completed"]}, {"exitCodes": [0]}], ids=["state", "exit code"])
def test_an_init_container_of_a_pod_that_is_well_has_ended(said):
    pod = replica("a", "setup:1")
    assert gone("PodLifeTime", "deschedule", said | {"includingInitContainers": True}, pod) == ["a"]
    assert gone("PodLifeTime", "deschedule", said, pod) == []
