"""Beside Kueue itself: what it manages is moved, or stays, as docs/beside.md says. KUEUE=1 tests/kubernetes/build.sh builds it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import urllib.error
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.stack import Running
from kubernetes.kubelets import TERM
from kubernetes.lab import Lab
from kubernetes.services import ended, known, migrate
from kubernetes.world import APPS, NS, World, path_of, pod_spec
from kubesim.conformance.harness import free_port

OWN = "kueue-system"
QUEUE = {"kueue.x-k8s.io/queue-name": "queue"}
API = "/apis/kueue.x-k8s.io/v1beta2"
JOBS = f"/apis/batch/v1/namespaces/{NS}/jobs"
UP = 90.0
RETRIED = {"backoffLimit": 6, "podFailurePolicy": {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}}
RACK = "rack"


class Kueue:
    """Its manager as a process, with the manifests of its default installation; a Service that is a name of this machine leads to it."""

    def __init__(self, world: World, folder: Path):
        self._world, self._lab, self._folder = world, world.lab, folder
        self._port = free_port()

    async def open(self, **more: Any) -> None:
        """`more`: of its configuration."""
        made = [one for one in yaml.safe_load_all((self._lab.assets / "kueue.yaml").read_text()) if one]
        made = [one for one in made if one["kind"] in ("Namespace", "CustomResourceDefinition", "Secret") or "Webhook" in one["kind"]]
        made.append({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": "kueue-webhook-service", "namespace": OWN},
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        })  # fmt: skip
        for one in made:
            for service in services(one):
                service["port"] = self._port
        (self._folder / "kueue.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": made}))
        await asyncio.to_thread(self._lab.kubectl, "apply", "--server-side", "--force-conflicts", "-f", str(self._folder / "kueue.json"))
        config = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration", "namespace": OWN,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{free_port()}"}, "metrics": {"bindAddress": "0"},
            "webhook": {"port": self._port, "certDir": str(self._folder / "certs")}, "leaderElection": {"leaderElect": False},
            "featureGates": {"VisibilityOnDemand": False},
            "integrations": {"frameworks": ["batch/job", "pod", "deployment", "statefulset"]},
        } | more  # fmt: skip
        (self._folder / "config.yaml").write_text(yaml.safe_dump(config))
        self._lab.start_kueue(self._folder / "config.yaml")
        await self._mounted()
        await self._queues()

    async def _mounted(self) -> None:
        """What a kubelet does: the certificate that Kueue has written into its Secret is a file for it."""
        (folder := self._folder / "certs").mkdir()
        for _ in range(int(UP / 0.2)):
            secret = await self._world.api.ok("GET", f"/api/v1/namespaces/{OWN}/secrets/kueue-webhook-server-cert")
            if data := secret.get("data"):
                for name, text in data.items():
                    (folder / name).write_bytes(base64.b64decode(text))
                return
            await asyncio.sleep(0.2)
        raise AssertionError(f"Kueue makes no certificate within {UP:g} s: {self._lab.log('kueue')[-3000:]}")

    async def _queues(self) -> None:
        kinds = ("cpu", "memory", "nvidia.com/gpu")
        flavors = [("default", {}), ("racks", {"nodeLabels": {"flavor": "racks"}, "topologyName": "racks"})]
        await self._made("Topology", "topologies", {"metadata": {"name": "racks"}, "spec": {"levels": [{"nodeLabel": RACK}]}})
        for name, spec in flavors:
            await self._made("ResourceFlavor", "resourceflavors", {"metadata": {"name": name}, "spec": spec})
        for queue, (flavor, _) in zip(("queue", "racks"), flavors, strict=True):
            quotas = [{"name": kind, "nominalQuota": "100" if kind != "memory" else "1000Gi"} for kind in kinds]
            group = {"coveredResources": list(kinds), "flavors": [{"name": flavor, "resources": quotas}]}
            await self._made("ClusterQueue", "clusterqueues", {"metadata": {"name": queue}, "spec": {"namespaceSelector": {}, "resourceGroups": [group]}})
            await self._made("LocalQueue", f"namespaces/{NS}/localqueues", {"metadata": {"name": queue}, "spec": {"clusterQueue": queue}})

    async def _made(self, kind: str, path: str, body: dict[str, Any]) -> None:
        """Once its webhook answers."""
        said: Any = None
        for _ in range(int(UP / 0.5)):
            said = await self._world.api.call("POST", f"{API}/{path}", {"apiVersion": API.removeprefix("/apis/"), "kind": kind} | body)
            if said.status in (201, 409):
                return
            await asyncio.sleep(0.5)
        raise AssertionError(f"{path} is not made within {UP:g} s: {said.status} {said.body}; {self._lab.log('kueue')[-3000:]}")

    async def close(self) -> None:
        """While it runs it takes its finalizers away."""
        for path in (JOBS, f"{APPS}/deployments", f"{APPS}/statefulsets"):
            await self._world.api.call("DELETE", path, {"propagationPolicy": "Background"})
        await self._world.wipe_pods()
        for path in (f"namespaces/{NS}/localqueues/queue", f"namespaces/{NS}/localqueues/racks", "clusterqueues/queue", "clusterqueues/racks",
                     "resourceflavors/default", "resourceflavors/racks", "topologies/racks"):  # fmt: skip
            await self._world.api.call("DELETE", f"{API}/{path}")
        for _ in range(int(UP / 0.2)):
            left = [(await self._world.api.call("GET", f"{API}/{kind}")).body.get("items") for kind in ("clusterqueues", "resourceflavors", "topologies")]
            if not any(left):
                break
            await asyncio.sleep(0.2)
        self._lab.stop("kueue")
        for kind in ("mutating", "validating"):
            await self._world.api.call("DELETE", f"/apis/admissionregistration.k8s.io/v1/{kind}webhookconfigurations/kueue-{kind}-webhook-configuration")


def services(made: dict[str, Any]) -> list[dict[str, Any]]:
    """What leads the API server to Kueue: of its webhooks, and where its own objects are converted."""
    clients = [webhook["clientConfig"] for webhook in made.get("webhooks", ())]
    conversion = made.get("spec", {}).get("conversion", {}).get("webhook") if made["kind"] == "CustomResourceDefinition" else None
    return [client["service"] for client in [*clients, *([conversion["clientConfig"]] if conversion else [])]]


@pytest.fixture
async def kueue(lab: Lab, world: World, stack: Running, tmp_path: Path) -> AsyncIterator[Kueue]:
    if not os.access(lab.assets / "kueue", os.X_OK):
        pytest.skip(f"{lab.assets} lacks kueue (KUEUE=1 tests/kubernetes/build.sh {lab.assets})")
    one = Kueue(world, tmp_path)
    yield one
    await one.close()


async def owner(world: World, path: str, spec: dict[str, Any], *, labels: Any = None, notes: Any = None, pod_notes: Any = None, **more: Any) -> None:
    """One with a queue, of pods `victim`."""
    template = {"metadata": {"labels": {"app": "victim"}, "annotations": {TERM: "0.2", **(pod_notes or {})}}, "spec": spec}
    selects = {} if path == JOBS else {"replicas": 1, "selector": {"matchLabels": {"app": "victim"}}}
    body = {"metadata": {"name": "victim", "labels": labels or QUEUE, "annotations": notes or {}}, "spec": {**selects, "template": template, **more}}
    await world.api.ok("POST", path, body)


async def ready(world: World, stack: Running, **labels: str) -> dict[str, Any]:
    """The pod runs on `source`, and `target` is free; both have these labels."""
    (victim,) = await world.running("victim")
    await world.cordon("source")
    await world.node("target", gpus=1, labels=labels)
    await known(stack, [victim])
    return dict(victim)


async def test_a_pod_of_a_job_that_kueue_let_in_is_moved(world: World, stack: Running, kueue: Kueue) -> None:
    await kueue.open()
    await world.node("source", gpus=1)
    await owner(world, JOBS, pod_spec() | {"restartPolicy": "Never"}, **RETRIED)
    victim = await ready(world, stack)
    over = await ended(stack, await migrate(stack, victim, "target"))
    assert over["step"] == "landed", json.dumps(over, default=str)
    await world.stands("victim", ["target"])


async def test_a_pod_of_a_stateful_set_takes_its_place_in_its_group(world: World, stack: Running, kueue: Kueue) -> None:
    await kueue.open()
    await world.node("source", gpus=1)
    await owner(world, f"{APPS}/statefulsets", pod_spec(), serviceName="victim")
    victim = await ready(world, stack)
    assert "kueue.x-k8s.io/pod-group-name" in victim["metadata"]["labels"]
    over = await ended(stack, await migrate(stack, victim, "target"))
    assert over["step"] == "landed", json.dumps(over, default=str)
    await world.stands("victim", ["target"])


async def test_a_pod_that_is_a_workload_of_its_own_moves_only_where_its_owner_says_so(world: World, stack: Running, kueue: Kueue) -> None:
    await kueue.open()
    await world.node("source", gpus=1)
    await owner(world, f"{APPS}/deployments", pod_spec())
    victim = await ready(world, stack)
    with pytest.raises(urllib.error.HTTPError) as refused:
        await migrate(stack, victim, "target")
    assert "would wait for its admission anew" in str(refused.value)
    change = {"metadata": {"annotations": {"restow.dev/movable": "true"}}}
    await world.api.ok("PATCH", f"{APPS}/deployments/victim", change, media="application/merge-patch+json")
    for _ in range(50):
        try:
            move = await migrate(stack, victim, "target")
            break
        except urllib.error.HTTPError:
            await asyncio.sleep(0.2)
    over = await ended(stack, move)
    assert over["step"] == "landed", json.dumps(over, default=str)
    await world.stands("victim", ["target"])


async def test_kueue_s_topology_keeps_a_successor_in_its_rack_where_it_lands(world: World, stack: Running, kueue: Kueue) -> None:
    await kueue.open()
    rack = {RACK: "r1", "flavor": "racks"}
    await world.node("source", gpus=1, labels=rack)
    spec = pod_spec() | {"restartPolicy": "Never"}
    asked = {"kueue.x-k8s.io/podset-required-topology": RACK}
    await owner(world, JOBS, spec, labels={"kueue.x-k8s.io/queue-name": "racks"}, pod_notes=asked, **RETRIED)
    victim = await ready(world, stack, **rack)
    assert victim["spec"]["nodeSelector"][RACK] == "r1"
    over = await ended(stack, await migrate(stack, victim, "target"))
    assert over["step"] == "landed", json.dumps(over, default=str)
    await world.stands("victim", ["target"])


async def test_placeholders_are_left_alone_where_kueue_manages_pods_without_a_queue(world: World, stack: Running, kueue: Kueue) -> None:
    """As docs/beside.md asks: its selector leaves restow-holds out."""
    left_out = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system", OWN, "restow-holds", "restow-holds-ports"]}
    await kueue.open(manageJobsWithoutQueueName=True, managedJobsNamespaceSelector={"matchExpressions": [left_out]})
    await world.node("source", gpus=1)
    await owner(world, JOBS, pod_spec() | {"restartPolicy": "Never"}, **RETRIED)
    victim = await ready(world, stack)
    over = await ended(stack, await migrate(stack, victim, "target"))
    assert over["step"] == "landed", json.dumps(over, default=str)
    stranger = await world.pod("stranger", pod_spec())
    there = await world.api.ok("GET", path_of(stranger))
    assert "kueue.x-k8s.io/admission" in {gate["name"] for gate in there["spec"].get("schedulingGates") or ()}, "it would have gated them"
