"""Pods: defaults, validation, binding."""

from __future__ import annotations

from typing import Any

from kubesim.conformance.harness import MERGE, Api, unique
from kubesim.conformance.objects import binding, pod


def with_resources(name: str, **resources: Any) -> dict[str, Any]:
    made = pod(name)
    made["spec"]["containers"][0]["resources"] = resources
    return made


async def test_defaults(api: Api, ns: str) -> None:
    """KS-110"""
    made = pod("a")
    del made["spec"]["schedulerName"]
    spec = (await api.ok("POST", f"/api/v1/namespaces/{ns}/pods?dryRun=All", made))["spec"]
    assert spec["restartPolicy"] == "Always"
    assert spec["terminationGracePeriodSeconds"] == 30
    assert spec["dnsPolicy"] == "ClusterFirst"
    assert spec["schedulerName"] == "default-scheduler"
    assert spec["securityContext"] == {}
    assert spec["enableServiceLinks"] is True
    container = spec["containers"][0]
    assert container["terminationMessagePath"] == "/dev/termination-log"
    assert container["terminationMessagePolicy"] == "File"
    assert container["imagePullPolicy"] == "IfNotPresent"
    assert container["resources"] == {}


async def test_status_of_a_new_pod(api: Api, ns: str) -> None:
    """KS-111"""
    path = f"/api/v1/namespaces/{ns}/pods"
    best = await api.ok("POST", path, pod("a"))
    assert best["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    some = await api.ok("POST", path, with_resources("b", requests={"cpu": "1"}))
    assert some["status"]["qosClass"] == "Burstable"
    limits = {"cpu": "1", "memory": "1Gi"}
    full = await api.ok("POST", path, with_resources("c", limits=limits))
    assert full["status"]["qosClass"] == "Guaranteed"


async def test_requests_follow_limits(api: Api, ns: str) -> None:
    """KS-112"""
    made = with_resources("a", limits={"cpu": "2", "memory": "1Gi"}, requests={"cpu": "1"})
    body = await api.ok("POST", f"/api/v1/namespaces/{ns}/pods", made)
    assert body["spec"]["containers"][0]["resources"]["requests"] == {"cpu": "1", "memory": "1Gi"}


async def test_default_tolerations(api: Api, ns: str) -> None:
    """KS-113"""
    path = f"/api/v1/namespaces/{ns}/pods"
    body = await api.ok("POST", path, pod("a"))
    expected = [
        {
            "key": f"node.kubernetes.io/{key}",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
        for key in ("not-ready", "unreachable")
    ]
    assert body["spec"]["tolerations"] == expected
    own = [{"operator": "Exists"}]
    body = await api.ok("POST", path, pod("b", tolerations=own))
    assert body["spec"]["tolerations"] == own


async def test_priority(api: Api, ns: str) -> None:
    """KS-114"""
    path, name = f"/api/v1/namespaces/{ns}/pods", unique("class")
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    await api.ok("POST", classes, {"metadata": {"name": name}, "value": 77})
    try:
        body = await api.ok("POST", path, pod("a", priorityClassName=name))
        assert (body["spec"]["priority"], body["spec"]["preemptionPolicy"]) == (77, "PreemptLowerPriority")
    finally:
        await api.ok("DELETE", f"{classes}/{name}")
    body = await api.ok("POST", path, pod("b"))
    assert body["spec"]["priority"] == 0
    body = await api.fails(403, "Forbidden", "POST", path, pod("c", priorityClassName="none"))
    assert body["message"] == 'pods "c" is forbidden: no PriorityClass with name none was found'


async def test_pods_need_containers(api: Api, ns: str) -> None:
    """KS-115"""
    body = await api.fails(422, "Invalid", "POST", f"/api/v1/namespaces/{ns}/pods", pod("a", containers=[]))
    assert body["message"] == 'Pod "a" is invalid: spec.containers: Required value'
    assert body["details"] == {
        "name": "a",
        "kind": "Pod",
        "causes": [{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}],
    }
    made = pod("a", containers=[{"name": "c"}, {"name": "c", "image": "x"}])
    body = await api.fails(422, "Invalid", "POST", f"/api/v1/namespaces/{ns}/pods", made)
    causes = {(cause["field"], cause["reason"]) for cause in body["details"]["causes"]}
    assert ("spec.containers[0].image", "FieldValueRequired") in causes
    assert ("spec.containers[1].name", "FieldValueDuplicate") in causes


async def test_bad_quantities(api: Api, ns: str) -> None:
    """KS-116"""
    path = f"/api/v1/namespaces/{ns}/pods"
    body = await api.fails(400, "BadRequest", "POST", path, with_resources("a", requests={"cpu": "lots"}))
    assert "quantities must match the regular expression" in body["message"]
    made = with_resources("a", requests={"cpu": "2"}, limits={"cpu": "1"})
    body = await api.fails(422, "Invalid", "POST", path, made)
    assert "must be less than or equal to cpu limit of 1" in body["message"]


async def test_specs_are_immutable(api: Api, ns: str) -> None:
    """KS-117"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    for change in ({"nodeName": "n"}, {"restartPolicy": "Never"}, {"nodeSelector": {"a": "b"}}):
        body = await api.fails(422, "Invalid", "PATCH", f"{path}/a", {"spec": change}, media=MERGE)
        assert "pod updates may not change fields other than" in body["message"]


async def test_what_may_change(api: Api, ns: str) -> None:
    """KS-118"""
    path = f"/api/v1/namespaces/{ns}/pods"
    made = await api.ok("POST", path, pod("a"))
    containers = [{**made["spec"]["containers"][0], "image": "registry.k8s.io/pause:3.10"}]
    tolerations = [*made["spec"]["tolerations"], {"key": "x", "operator": "Exists"}]
    change = {"containers": containers, "tolerations": tolerations, "activeDeadlineSeconds": 60}
    body = await api.ok("PATCH", f"{path}/a", {"spec": change}, media=MERGE)
    assert body["spec"]["containers"][0]["image"].endswith("3.10")
    assert len(body["spec"]["tolerations"]) == 3


async def test_scheduling_gates(api: Api, ns: str) -> None:
    """KS-119"""
    path = f"/api/v1/namespaces/{ns}/pods"
    made = await api.ok("POST", path, pod("a", schedulingGates=[{"name": "example.com/wait"}]))
    (said,) = made["status"]["conditions"]
    assert (said["type"], said["status"], said["reason"]) == ("PodScheduled", "False", "SchedulingGated")
    await api.fails(409, "Conflict", "POST", f"{path}/a/binding", binding("a", "n"))
    added = {"schedulingGates": [{"name": "example.com/wait"}, {"name": "example.com/more"}]}
    await api.fails(422, "Invalid", "PATCH", f"{path}/a", {"spec": added}, media=MERGE)
    await api.ok("PATCH", f"{path}/a", {"spec": {"schedulingGates": []}}, media=MERGE)
    await api.ok("POST", f"{path}/a/binding", binding("a", "n"))
    both = pod("b", schedulingGates=[{"name": "example.com/wait"}], nodeName="n")
    body = await api.fails(422, "Invalid", "POST", path, both)
    assert body["details"]["causes"][0]["field"] == "spec.nodeName"


async def test_binding(api: Api, ns: str) -> None:
    """KS-130"""
    path = f"/api/v1/namespaces/{ns}/pods"
    made = await api.ok("POST", path, pod("a"))
    meta = {"uid": made["metadata"]["uid"], "annotations": {"example.com/note": "x"}, "labels": {"zone": "z"}}
    answer = await api.call("POST", f"{path}/a/binding", binding("a", "n1", **meta))
    assert answer.status == 201
    assert (answer.body["kind"], answer.body["status"], answer.body["code"]) == ("Status", "Success", 201)
    body = await api.ok("GET", f"{path}/a")
    assert body["spec"]["nodeName"] == "n1"
    assert (body["metadata"]["annotations"], body["metadata"]["labels"]) == ({"example.com/note": "x"}, {"zone": "z"})
    conditions = {item["type"]: item["status"] for item in body["status"]["conditions"]}
    assert conditions["PodScheduled"] == "True"


async def test_a_binding_ends_a_nomination(api: Api, ns: str) -> None:
    """KS-135"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    await api.ok("PATCH", f"{path}/a/status", {"status": {"nominatedNodeName": "n2"}}, media=MERGE)
    assert (await api.ok("GET", f"{path}/a"))["status"]["nominatedNodeName"] == "n2"
    await api.ok("POST", f"{path}/a/binding", binding("a", "n1"))
    assert "nominatedNodeName" not in (await api.ok("GET", f"{path}/a"))["status"]


async def test_a_binding_or_an_eviction_of_another_namespace(api: Api, ns: str) -> None:
    """KS-136"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    evict = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "other"}}
    for subresource, body in (("binding", binding("a", "n1", namespace="other")), ("eviction", evict)):
        await api.fails(400, "BadRequest", "POST", f"{path}/a/{subresource}", body)
        assert "nodeName" not in (await api.ok("GET", f"{path}/a"))["spec"]


async def test_bound_pods_cannot_be_bound(api: Api, ns: str) -> None:
    """KS-131"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    await api.ok("POST", f"{path}/a/binding", binding("a", "n1"))
    for node in ("n1", "n2"):
        body = await api.fails(409, "Conflict", "POST", f"{path}/a/binding", binding("a", node))
        assert body["message"] == (
            'Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"'
        )
        assert body["details"] == {"name": "a", "kind": "pods/binding"}


async def test_binding_preconditions(api: Api, ns: str) -> None:
    """KS-132"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    other = binding("a", "n1", uid="00000000-0000-4000-8000-000000000000")
    body = await api.fails(409, "Conflict", "POST", f"{path}/a/binding", other)
    assert "Precondition failed: UID in precondition: 00000000-0000-4000-8000-000000000000" in body["message"]
    stale = binding("a", "n1", resourceVersion="1")
    await api.fails(409, "Conflict", "POST", f"{path}/a/binding", stale)
    assert "nodeName" not in (await api.ok("GET", f"{path}/a"))["spec"]


async def test_binding_of_what_is_not_there(api: Api, ns: str) -> None:
    """KS-133"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.fails(404, "NotFound", "POST", f"{path}/none/binding", binding("none", "n1"))
    held = pod("a")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    await api.ok("POST", path, held)
    await api.ok("DELETE", f"{path}/a")
    body = await api.fails(409, "Conflict", "POST", f"{path}/a/binding", binding("a", "n1"))
    assert "pod a is being deleted, cannot be assigned to a host" in body["message"]
    await api.ok("PATCH", f"{path}/a", {"metadata": {"finalizers": None}}, media=MERGE)


async def test_binding_needs_a_target(api: Api, ns: str) -> None:
    """KS-134"""
    path = f"/api/v1/namespaces/{ns}/pods"
    await api.ok("POST", path, pod("a"))
    answer = await api.call("POST", f"{path}/a/binding", binding("a", ""))
    assert (answer.status, answer.body["message"]) == (500, "target.name: Required value")
