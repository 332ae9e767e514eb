"""Workloads and the other built-in kinds."""

from __future__ import annotations

import base64

from kubesim.conformance.harness import MERGE, Api, unique
from kubesim.conformance.objects import deployment, pod


async def test_deployment_defaults(api: Api, ns: str) -> None:
    """KS-160"""
    spec = (await api.ok("POST", f"/apis/apps/v1/namespaces/{ns}/deployments", deployment("web")))["spec"]
    assert spec["replicas"] == 1
    assert spec["revisionHistoryLimit"] == 10
    assert spec["progressDeadlineSeconds"] == 600
    assert spec["strategy"] == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"},
    }
    template = spec["template"]["spec"]
    assert template["restartPolicy"] == "Always"
    assert "tolerations" not in template
    assert "priority" not in template


async def test_selectors_must_match(api: Api, ns: str) -> None:
    """KS-161"""
    made = deployment("web")
    made["spec"]["selector"] = {"matchLabels": {"app": "other"}}
    body = await api.fails(422, "Invalid", "POST", f"/apis/apps/v1/namespaces/{ns}/deployments", made)
    cause = body["details"]["causes"][0]
    assert cause["field"] == "spec.template.metadata.labels"
    assert cause["message"].endswith("`selector` does not match template `labels`")


async def test_selectors_are_immutable(api: Api, ns: str) -> None:
    """KS-162"""
    path = f"/apis/apps/v1/namespaces/{ns}/deployments"
    await api.ok("POST", path, deployment("web"))
    change = {
        "selector": {"matchLabels": {"app": "web", "x": "y"}},
        "template": {"metadata": {"labels": {"app": "web", "x": "y"}}},
    }
    body = await api.fails(422, "Invalid", "PATCH", f"{path}/web", {"spec": change}, media=MERGE)
    assert any(cause["field"] == "spec.selector" for cause in body["details"]["causes"])
    assert "field is immutable" in body["message"]


async def test_scale(api: Api, ns: str) -> None:
    """KS-163"""
    path = f"/apis/apps/v1/namespaces/{ns}/deployments"
    await api.ok("POST", path, deployment("web"))
    scale = await api.ok("GET", f"{path}/web/scale")
    del scale["metadata"]["resourceVersion"]  # Its controller may write the Deployment at any time.
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert (scale["spec"]["replicas"], scale["status"]["selector"]) == (1, "app=web")
    scale["spec"]["replicas"] = 3
    assert (await api.ok("PUT", f"{path}/web/scale", scale))["spec"]["replicas"] == 3
    body = await api.ok("PATCH", f"{path}/web/scale", {"spec": {"replicas": 5}}, media=MERGE)
    assert body["spec"]["replicas"] == 5
    assert (await api.ok("GET", f"{path}/web"))["spec"]["replicas"] == 5
    await api.fails(422, "Invalid", "PATCH", f"{path}/web/scale", {"spec": {"replicas": -1}}, media=MERGE)


async def test_other_workloads(api: Api, ns: str) -> None:
    """KS-164"""
    base = deployment("web")["spec"]
    labels = {"selector": base["selector"], "template": base["template"]}
    root = f"/apis/apps/v1/namespaces/{ns}"
    made = await api.ok("POST", f"{root}/replicasets", {"metadata": {"name": "r"}, "spec": labels})
    assert made["spec"]["replicas"] == 1
    made = await api.ok(
        "POST", f"{root}/statefulsets", {"metadata": {"name": "s"}, "spec": {**labels, "serviceName": "s"}}
    )
    assert made["spec"]["podManagementPolicy"] == "OrderedReady"
    assert made["spec"]["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    made = await api.ok("POST", f"{root}/daemonsets", {"metadata": {"name": "d"}, "spec": labels})
    assert made["spec"]["updateStrategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    change = {"spec": {"serviceName": "other"}}
    body = await api.fails(422, "Invalid", "PATCH", f"{root}/statefulsets/s", change, media=MERGE)
    assert "updates to statefulset spec for fields other than" in body["message"]


async def test_jobs(api: Api, ns: str) -> None:
    """KS-165"""
    path = f"/apis/batch/v1/namespaces/{ns}/jobs"
    template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
    made = await api.ok("POST", path, {"metadata": {"name": "j"}, "spec": {"template": template}})
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"], spec["suspend"]) == (
        1,
        1,
        6,
        False,
    )
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"]["batch.kubernetes.io/job-name"] == "j"
    wrong = {"spec": {**pod("x")["spec"]}}
    body = await api.fails(
        422, "Invalid", "POST", path, {"metadata": {"name": "k"}, "spec": {"template": wrong}}
    )
    assert any(c["field"] == "spec.template.spec.restartPolicy" for c in body["details"]["causes"])


async def test_services(api: Api, ns: str) -> None:
    """KS-166"""
    path = f"/api/v1/namespaces/{ns}/services"
    made = await api.ok("POST", path, {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    spec = made["spec"]
    assert (spec["type"], spec["sessionAffinity"], spec["clusterIPs"]) == (
        "ClusterIP",
        "None",
        [spec["clusterIP"]],
    )
    assert spec["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    headless = {"metadata": {"name": "h"}, "spec": {"clusterIP": "None", "ports": [{"port": 80}]}}
    assert (await api.ok("POST", path, headless))["spec"]["clusterIP"] == "None"


async def test_secrets(api: Api, ns: str) -> None:
    """KS-167"""
    path = f"/api/v1/namespaces/{ns}/secrets"
    made = await api.ok("POST", path, {"metadata": {"name": "s"}, "stringData": {"k": "v"}})
    assert made["type"] == "Opaque"
    assert made["data"] == {"k": base64.b64encode(b"v").decode()}
    assert "stringData" not in made


async def test_priority_classes(api: Api) -> None:
    """KS-168"""
    path, name = "/apis/scheduling.k8s.io/v1/priorityclasses", unique("class")
    names = {item["metadata"]["name"] for item in (await api.ok("GET", path))["items"]}
    assert {"system-cluster-critical", "system-node-critical"} <= names
    made = await api.ok("POST", path, {"metadata": {"name": name}, "value": 5})
    try:
        assert made["preemptionPolicy"] == "PreemptLowerPriority"
        body = await api.fails(422, "Invalid", "PATCH", f"{path}/{name}", {"value": 6}, media=MERGE)
        assert "may not be changed in an update." in body["message"]
    finally:
        await api.ok("DELETE", f"{path}/{name}")


async def test_events_have_two_apis(api: Api, ns: str) -> None:
    """KS-169"""
    involved = {"kind": "Pod", "namespace": ns, "name": "p", "apiVersion": "v1"}
    event = {
        "metadata": {"name": "e"}, "involvedObject": involved, "reason": "Tested", "message": "hello", "type": "Normal",
        "source": {"component": "ks"}, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }  # fmt: skip
    await api.ok("POST", f"/api/v1/namespaces/{ns}/events", event)
    shown = await api.ok("GET", f"/apis/events.k8s.io/v1/namespaces/{ns}/events/e")
    assert (shown["apiVersion"], shown["note"], shown["regarding"]["name"]) == (
        "events.k8s.io/v1",
        "hello",
        "p",
    )
    found = await api.ok(
        "GET", f"/api/v1/namespaces/{ns}/events?fieldSelector=involvedObject.name%3Dp,reason%3DTested"
    )
    assert len(found["items"]) == 1
    other = await api.ok("GET", f"/api/v1/namespaces/{ns}/events?fieldSelector=type%3DWarning")
    assert other["items"] == []
    new = {
        "metadata": {"name": "n"}, "regarding": involved, "reason": "Tested", "note": "hello", "type": "Normal", "action": "Test",
        "eventTime": "2026-01-01T00:00:00.000000Z", "reportingController": "ks", "reportingInstance": "ks-1",
    }  # fmt: skip
    await api.ok("POST", f"/apis/events.k8s.io/v1/namespaces/{ns}/events", new)
    old = await api.ok("GET", f"/api/v1/namespaces/{ns}/events/n")
    # By these kubectl sorts, and it finds nothing to sort where no Event has them.
    assert {"firstTimestamp": None, "lastTimestamp": None, "source": {}}.items() <= old.items()


async def test_leases(api: Api, ns: str) -> None:
    """KS-170"""
    path = f"/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
    spec = {"holderIdentity": "me", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}
    made = await api.ok("POST", path, {"metadata": {"name": "l"}, "spec": spec})
    assert made["spec"]["holderIdentity"] == "me"
    taken = {**made, "spec": {**made["spec"], "holderIdentity": "you"}}
    await api.ok("PUT", f"{path}/l", taken)
    await api.fails(409, "Conflict", "PUT", f"{path}/l", taken)


async def test_nodes(api: Api) -> None:
    """KS-171"""
    name = unique("node")
    await api.ok("POST", "/api/v1/nodes", {"metadata": {"name": name}})
    try:
        status = {"capacity": {"cpu": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
        body = await api.ok("PATCH", f"/api/v1/nodes/{name}/status", {"status": status}, media=MERGE)
        assert body["status"]["capacity"] == {"cpu": "4"}
        taint = {"key": "k", "value": "v", "effect": "NoSchedule"}
        change = {"spec": {"unschedulable": True, "taints": [taint]}}
        body = await api.ok("PATCH", f"/api/v1/nodes/{name}", change, media=MERGE)
        assert body["spec"]["unschedulable"] is True
        assert taint in body["spec"]["taints"]
        found = await api.ok("GET", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue")
        assert name in {item["metadata"]["name"] for item in found["items"]}
    finally:
        await api.ok("DELETE", f"/api/v1/nodes/{name}")


async def test_budgets_take_one_limit(api: Api, ns: str) -> None:
    """KS-172"""
    path = f"/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
    both = {"metadata": {"name": "b"}, "spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {}}}
    body = await api.fails(422, "Invalid", "POST", path, both)
    assert "minAvailable and maxUnavailable cannot be both set" in body["message"]
