"""metrics.k8s.io as a metrics-server serves it, each line of docs/kubesim.md (KM-n); kubectl top reads it."""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import aiohttp
import pytest
from kubesim.conformance.harness import Api, Target
from kubesim.conformance.objects import node, pod

from restow.kube.client import ClientConfig, connect
from restow.kube.metrics import read
from restow.kubesim.metrics_server import USAGE
from restow.kubesim.server import Server
from restow.kubesim.testing import kubesim

EPOCH = datetime(2027, 1, 15, 8, tzinfo=UTC)
NODES, PODS = "/apis/metrics.k8s.io/v1beta1/nodes", "/apis/metrics.k8s.io/v1beta1/pods"
AT = int(EPOCH.timestamp() * 1000)
AT_ONCE = {"resolution": 0, "youngest": 0}


class World:
    """`seconds`: what the server's clock is past EPOCH."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.server: Server
        self.api: Api

    def now(self) -> datetime:
        return EPOCH + timedelta(seconds=self.seconds)

    async def node(self, name: str, ready: str = "True", usage: str = "") -> None:
        notes = {"annotations": {USAGE: usage}} if usage else {}
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110"}
        body = node(name)
        body["metadata"] |= notes | {"labels": {"name": name}}
        body["status"] = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": ready}]}
        await self.api.ok("POST", "/api/v1/nodes", body)

    async def pod(self, name: str, where: str, usage: str = "", phase: str = "Running", containers: int = 1, cpu: str = "") -> None:
        body = pod(name, labels={"app": name})
        resources = {"resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}} if cpu else {}
        body["spec"] |= {"nodeName": where, "containers": [{"name": f"c{i}", "image": "i", **resources} for i in range(containers)]}
        if usage:
            body["metadata"]["annotations"] = {USAGE: usage}
        await self.api.ok("POST", "/api/v1/namespaces/default/pods", body)
        status = {"phase": phase, "startTime": self.now().strftime("%Y-%m-%dT%H:%M:%SZ")}
        path = f"/api/v1/namespaces/default/pods/{name}/status"
        await self.api.ok("PATCH", path, {"status": status}, media="application/merge-patch+json")

    async def usage(self, path: str) -> dict[str, dict[str, str]]:
        found = await self.api.ok("GET", path)
        return {one["metadata"]["name"]: one.get("usage") or one["containers"][0]["usage"] for one in found["items"]}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    async with kubesim(clock=made.now) as server, aiohttp.ClientSession() as session:
        made.server, made.api = server, Api(Target("kubesim", server.url), session)
        yield made


async def test_without_it_there_is_no_such_group(world: World) -> None:
    """KM-1."""
    await world.node("n1")
    for path in (NODES, PODS, "/apis/metrics.k8s.io/v1beta1", "/apis/metrics.k8s.io"):
        assert (await world.api.call("GET", path)).status == 404, path
    assert await world.api.ok("GET", "/kubesim/metrics") == {"enabled": False}
    assert (await world.api.ok("PUT", "/kubesim/metrics", AT_ONCE))["enabled"] is True
    listed = await world.api.ok("GET", "/apis/metrics.k8s.io/v1beta1")
    assert [(one["name"], one["kind"], one["namespaced"], one["verbs"]) for one in listed["resources"]] == [
        ("nodes", "NodeMetrics", False, ["get", "list"]),
        ("pods", "PodMetrics", True, ["get", "list"]),
    ]
    assert "metrics.k8s.io" in [group["name"] for group in (await world.api.ok("GET", "/apis"))["groups"]]
    assert await world.api.ok("DELETE", "/kubesim/metrics") == {"enabled": False}
    assert (await world.api.call("GET", NODES)).status == 404


async def test_a_pod_uses_what_its_annotation_says_or_what_it_asks_for_and_a_node_all_of_its_pods(world: World) -> None:
    """KM-2, KM-3."""
    world.server.cluster.metrics.on(resolution=0, youngest=0, node="cpu=50m,memory=1Mi")
    await world.node("n1")
    await world.node("n2", usage="cpu=1,memory=1Gi")
    await world.pod("said", "n1", "cpu=700m,memory=3Mi", containers=2)
    await world.pod("asks", "n1", cpu="200m")
    await world.pod("asks-nothing", "n2")
    assert await world.usage(NODES) == {"n1": {"cpu": "950m", "memory": "5Mi"}, "n2": {"cpu": "1", "memory": "1Gi"}}
    assert await world.usage(PODS) == {
        "said": {"cpu": "350m", "memory": "1536Ki"},
        "asks": {"cpu": "200m", "memory": "1Mi"},
        "asks-nothing": {"cpu": "0", "memory": "0"},
    }
    one = await world.api.ok("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/said")
    assert one == {
        "kind": "PodMetrics", "apiVersion": "metrics.k8s.io/v1beta1",
        "metadata": {"name": "said", "namespace": "default", "creationTimestamp": "2027-01-15T08:00:00Z", "labels": {"app": "said"}},
        "timestamp": "2027-01-15T08:00:00Z", "window": "1s",
        "containers": [{"name": f"c{i}", "usage": {"cpu": "350m", "memory": "1536Ki"}} for i in range(2)],
    }  # fmt: skip
    assert list(await world.usage("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods?labelSelector=app%3Dasks")) == ["asks"]
    assert await world.usage("/apis/metrics.k8s.io/v1beta1/namespaces/kube-system/pods") == {}
    assert list(await world.usage(f"{NODES}?labelSelector=name%3Dn2")) == ["n2"]


async def test_what_does_not_run_or_cannot_be_reached_has_no_metrics(world: World) -> None:
    """KM-4."""
    world.server.cluster.metrics.on(**AT_ONCE)
    await world.node("gone", ready="Unknown")
    await world.node("n1")
    await world.node("unmeasured", usage="none")
    await world.pod("there", "n1", "cpu=1")
    await world.pod("ended", "n1", "cpu=1", phase="Succeeded")
    await world.pod("none", "n1", "none")
    await world.pod("nonsense", "n1", "disk=1")
    await world.pod("out-of-reach", "gone", "cpu=1")
    await world.pod("beside", "unmeasured", "cpu=1")
    assert list(await world.usage(NODES)) == ["n1"]
    assert list(await world.usage(PODS)) == ["there"]
    answer = await world.api.call("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/ended")
    assert (answer.status, answer.body["message"]) == (404, 'podmetrics.metrics.k8s.io "default/ended" not found')
    answer = await world.api.call("GET", f"{NODES}/gone")
    assert (answer.status, answer.body["message"]) == (404, 'nodemetrics.metrics.k8s.io "gone" not found')
    assert (await world.api.call("POST", NODES, {})).status == 405
    assert (await world.api.call("GET", f"{NODES}?watch=true")).status == 405


async def test_one_scrape_is_answered_with_for_15_seconds_and_a_pod_is_measured_after_10(world: World) -> None:
    """KM-5."""
    world.server.cluster.metrics.on()
    await world.node("n1")
    await world.pod("p", "n1", "cpu=1")
    assert await world.usage(PODS) == {}
    world.seconds = 12
    assert await world.usage(PODS) == {}, "of the scrape at 0 s"
    world.seconds = 15
    assert list(await world.usage(PODS)) == ["p"]
    world.seconds = 20
    (one,) = (await world.api.ok("GET", PODS))["items"]
    assert (one["timestamp"], one["window"]) == ("2027-01-15T08:00:15Z", "15s")
    await world.api.ok("DELETE", "/api/v1/namespaces/default/pods/p?gracePeriodSeconds=0")
    assert await world.usage(PODS) == {}, "who is gone is not listed"
    assert (await world.usage(NODES))["n1"]["cpu"] == "1100m", "the node is as it was scraped"


async def test_it_can_be_behind_down_or_hit_by_a_fault(world: World) -> None:
    """KM-6."""
    await world.node("n1")
    await world.api.ok("PUT", "/kubesim/metrics", AT_ONCE | {"behind": 600})
    (one,) = (await world.api.ok("GET", NODES))["items"]
    assert one["timestamp"] == "2027-01-15T07:50:00Z"
    await world.api.ok("PUT", "/kubesim/metrics", AT_ONCE | {"down": True})
    answer = await world.api.call("GET", NODES)
    assert (answer.status, answer.body["reason"]) == (503, "ServiceUnavailable")
    await world.api.ok("PUT", "/kubesim/metrics", AT_ONCE)
    await world.api.ok("POST", "/kubesim/faults", {"action": "status", "code": 500, "resource": "nodes.metrics.k8s.io"})
    assert [(await world.api.call("GET", NODES)).status for _ in range(2)] == [500, 200]


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"resolution": -1}, "resolution: -1; allowed: a float of 0 or more seconds"),
        ({"down": "yes"}, "down: 'yes'; allowed: a bool"),
        ({"node": "cpu=much"}, "node: 'much' is not a quantity"),
        ({"speed": 1}, "unknown setting 'speed' of metrics; allowed: resolution, window"),
    ],
)
async def test_bad_settings_are_refused(world: World, said: dict, why: str) -> None:
    answer = await world.api.call("PUT", "/kubesim/metrics", said)
    assert answer.status == 400
    assert why in answer.body["message"]


async def test_restow_reads_it(world: World) -> None:
    world.server.cluster.metrics.on(**AT_ONCE)
    await world.node("n1")
    await world.pod("p", "n1", "cpu=333333333n,memory=1000000")
    client = await connect(ClientConfig(url=world.server.url))
    try:
        found = read(await client.get(NODES), AT), read(await client.get(PODS), AT)
    finally:
        await client.close()
    assert [read.usage for read in found] == [{"n1": {"cpu": 434, "memory": 269435456}}, {"default/p": {"cpu": 334, "memory": 1000000}}]
    assert {read.taken for read in found} == {AT}


async def test_kubectl_top_shows_it(tmp_path: Path) -> None:
    """KM-7."""
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    made = World()
    made.seconds = (datetime.now(UTC) - EPOCH).total_seconds()
    port_file = tmp_path / "port"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "restow.kubesim.main", "--no-controllers", "--metrics-server", "--port-file", str(port_file)
    )

    async def kubectl(*args: str) -> list[list[str]]:
        server = f"http://127.0.0.1:{port_file.read_text().strip()}"
        said = await asyncio.create_subprocess_exec(
            "kubectl", "--server", server, *args, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin:/usr/local/bin"},
        )  # fmt: skip
        out, _ = await asyncio.wait_for(said.communicate(), 30)
        assert said.returncode == 0, out.decode()
        return [line.split() for line in out.decode().splitlines()]

    try:
        async with asyncio.timeout(30):
            while not port_file.exists():
                await asyncio.sleep(0.02)
        async with aiohttp.ClientSession() as session:
            made.api = Api(Target("kubesim", f"http://127.0.0.1:{port_file.read_text().strip()}"), session)
            assert (await made.api.ok("GET", "/kubesim/metrics"))["resolution"] == 15
            await made.api.ok("PUT", "/kubesim/metrics", AT_ONCE)
            await made.node("n1")
            await made.pod("p", "n1", "cpu=900m,memory=768Mi")
            top = await kubectl("top", "nodes")
            assert [row[:5] for row in top] == [["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"], ["n1", "1000m", "25%", "1024Mi", "12%"]]
            assert await kubectl("top", "pods") == [["NAME", "CPU(cores)", "MEMORY(bytes)"], ["p", "900m", "768Mi"]]
            assert (await kubectl("get", "pods.metrics.k8s.io"))[1][:3] == ["p", "900m", "768Mi"]
            assert (await kubectl("top", "pods", "-A", "--containers", "--sum"))[1][:3] == ["default", "p", "c0"]
    finally:
        process.terminate()
        await process.wait()
