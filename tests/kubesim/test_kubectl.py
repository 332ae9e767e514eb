"""The real kubectl binary against kubesim."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml
from kubesim.conformance.objects import binding, crd, deployment, node, pod, widget

from restow.kubesim.resources import NODES, PODS
from restow.kubesim.server import Server
from restow.kubesim.testing import kubesim

pytestmark = pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")


class Kubectl:
    def __init__(self, server: Server, home: Path):
        self.server = server
        self.home = home

    async def start(self, *args: str, stdin: bool = False) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            "kubectl",
            "--server",
            self.server.url,
            *args,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={"HOME": str(self.home), "PATH": "/usr/bin:/bin:/usr/local/bin"},
        )

    async def __call__(self, *args: str, objects: list[dict] | None = None, fails: bool = False) -> str:
        process = await self.start(*args)
        fed = yaml.safe_dump_all(objects).encode() if objects else None
        out, _ = await asyncio.wait_for(process.communicate(fed), 30)
        assert (process.returncode != 0) is fails, out.decode()
        return out.decode()


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async with kubesim() as running:
        yield running


@pytest.fixture
def kubectl(server: Server, tmp_path: Path) -> Kubectl:
    return Kubectl(server, tmp_path)


async def test_apply_get_describe_delete(kubectl: Kubectl) -> None:
    assert "pod/a created" in await kubectl("apply", "-f", "-", objects=[pod("a", labels={"x": "one"})])
    assert "pod/a unchanged" in await kubectl("apply", "-f", "-", objects=[pod("a", labels={"x": "one"})])
    assert "pod/a configured" in await kubectl("apply", "-f", "-", objects=[pod("a", labels={"x": "two"})])
    lines = (await kubectl("get", "pods", "-o", "wide", "--show-labels")).splitlines()
    assert lines[0].split()[:5] == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    assert lines[1].split()[:3] == ["a", "0/1", "Pending"]
    assert lines[1].endswith("x=two")
    described = await kubectl("describe", "pod", "a")
    assert "QoS Class:" in described
    assert 'pod "a" deleted' in await kubectl("delete", "pod", "a")
    assert "No resources found" in await kubectl("get", "pods")


async def test_api_resources_and_explain(kubectl: Kubectl) -> None:
    found = await kubectl("api-resources")
    assert {"pods", "deployments", "poddisruptionbudgets"} <= {line.split()[0] for line in found.splitlines()}
    schema = {"type": "object", "properties": {"size": {"type": "integer", "description": "How big it is."}}}
    await kubectl("apply", "-f", "-", objects=[crd("ks.example.com", schema=schema)])
    assert "How big it is." in await kubectl("explain", "widget.spec.size")
    assert "widget.ks.example.com/w created" in await kubectl(
        "apply", "-f", "-", objects=[widget("ks.example.com", "w", size=1)]
    )
    assert "w" in await kubectl("get", "wd")
    refused = await kubectl("apply", "-f", "-", objects=[widget("ks.example.com", "v", size="x")], fails=True)
    assert "spec.size" in refused


async def test_get_watch(kubectl: Kubectl, server: Server) -> None:
    process = await kubectl.start("get", "pods", "-w", "--no-headers")
    assert process.stdout is not None
    async with asyncio.timeout(20):
        while not server.cluster.hub.watchers(PODS):
            await asyncio.sleep(0.01)
        server.cluster.store.create(PODS, pod("a"), "default")
        assert (await process.stdout.readline()).split()[:3] == [b"a", b"0/1", b"Pending"]
        server.cluster.store.delete(PODS, "default", "a")
        assert (await process.stdout.readline()).split()[0] == b"a"
    process.terminate()
    await process.communicate()


async def test_generators(kubectl: Kubectl) -> None:
    """They send protobuf."""
    assert "namespace/n created" in await kubectl("create", "namespace", "n")
    assert "created" in await kubectl(
        "create", "deployment", "web", "--image=nginx", "--replicas=2", "-n", "n"
    )
    assert "created" in await kubectl("create", "configmap", "c", "--from-literal=a=b", "-n", "n")
    assert "created" in await kubectl(
        "create", "pdb", "p", "--selector=app=web", "--min-available=50%", "-n", "n"
    )
    found = json.loads(await kubectl("get", "deploy,cm,pdb", "-n", "n", "-o", "json"))["items"]
    by_kind = {item["kind"]: item for item in found}
    assert by_kind["Deployment"]["spec"]["replicas"] == 2
    assert by_kind["Deployment"]["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx"
    assert by_kind["ConfigMap"]["data"] == {"a": "b"}
    assert by_kind["PodDisruptionBudget"]["spec"]["minAvailable"] == "50%"
    assert "yes" in await kubectl("auth", "can-i", "get", "pods")


async def test_changes_in_place(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", objects=[deployment("web")])
    await kubectl("scale", "deployment", "web", "--replicas=4")
    await kubectl("label", "deployment", "web", "a=b")
    await kubectl("annotate", "deployment", "web", "c=d")
    await kubectl("set", "image", "deployment/web", "c=busybox")
    await kubectl("patch", "deployment", "web", "-p", '{"spec":{"paused":true}}')
    found = json.loads(await kubectl("get", "deployment", "web", "-o", "json"))
    assert (found["spec"]["replicas"], found["spec"]["paused"]) == (4, True)
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "busybox"


async def test_drain(kubectl: Kubectl, server: Server) -> None:
    store = server.cluster.store
    store.create(NODES, node("n1"))
    await kubectl("apply", "-f", "-", objects=[pod("a", terminationGracePeriodSeconds=0)])
    from restow.kubesim.subresources import bind

    bind(store, "default", "a", binding("a", "n1"))
    await kubectl("taint", "node", "n1", "k=v:NoSchedule")
    assert "pod/a evicted" in await kubectl("drain", "n1", "--force")
    assert store.get(NODES, "", "n1")["spec"]["unschedulable"] is True
    assert "uncordoned" in await kubectl("uncordon", "n1")


async def test_what_is_absent_is_said_clearly(kubectl: Kubectl) -> None:
    await kubectl("apply", "-f", "-", objects=[pod("a")])
    assert "kubesim does not implement container logs" in await kubectl("logs", "a", fails=True)
    refused = await kubectl("apply", "--server-side", "-f", "-", objects=[pod("a")], fails=True)
    assert "server-side apply" in refused.lower()


async def test_storage(tmp_path: Path) -> None:
    """A class, a volume of one node and a claim by `kubectl apply`; the claim is bound when a scheduler reserves the volume."""
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "local"}
    rule = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}]}
    spec = {"capacity": {"storage": "2Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "local", "local": {"path": "/d"}}
    objects = [
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "local"},
         "provisioner": "kubernetes.io/no-provisioner", "volumeBindingMode": "WaitForFirstConsumer"},
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "v"},
         "spec": {**spec, "nodeAffinity": {"required": {"nodeSelectorTerms": [rule]}}}},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "c"}, "spec": asked},
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "made"}, "spec": {**asked, "storageClassName": "standard"}},
    ]  # fmt: skip
    async with kubesim(controllers=True) as server:
        kubectl = Kubectl(server, tmp_path)
        assert "persistentvolumeclaim/c created" in await kubectl("apply", "-f", "-", objects=objects)
        await kubectl("wait", "pvc/made", "--for=jsonpath={.status.phase}=Bound", "--timeout=20s")
        rows = {line.split()[0]: line.split() for line in (await kubectl("get", "pvc")).splitlines()}
        assert (rows["c"][1], rows["made"][1], rows["made"][3]) == ("Pending", "Bound", "1Gi")
        uid = await kubectl("get", "pvc", "c", "-o", "jsonpath={.metadata.uid}")
        ref = {"spec": {"claimRef": {"namespace": "default", "name": "c", "uid": uid}}}
        await kubectl("patch", "pv", "v", "--type=merge", "-p", json.dumps(ref))
        await kubectl("wait", "pvc/c", "--for=jsonpath={.status.phase}=Bound", "--timeout=20s")
        assert "default/c" in await kubectl("get", "pv", "v")
        assert "standard (default)" in await kubectl("get", "sc")
        assert 'persistentvolumeclaim "c" deleted' in await kubectl("delete", "pvc", "c")
        await kubectl("wait", "pv/v", "--for=jsonpath={.status.phase}=Released", "--timeout=20s")


@pytest.mark.parametrize("folder", ["beside", "beside/host-ports"])
async def test_what_restow_needs_beside_another_scheduler(tmp_path: Path, folder: str) -> None:
    """Applied, applied again, shown, and deleted without a complaint."""
    where = str(Path(__file__).parents[2] / "deploy" / folder)
    async with kubesim(controllers=True) as server:
        kubectl = Kubectl(server, tmp_path)
        made = (await kubectl("apply", "-k", where)).splitlines()
        assert [line for line in made if not line.endswith(" created")] == []
        again = (await kubectl("apply", "-k", where)).splitlines()
        assert [line for line in again if not line.endswith(" unchanged")] == []
        assert "restow-" in await kubectl("get", "-k", where)
        gone = (await kubectl("delete", "-k", where)).splitlines()
        assert len(gone) == len(made)
        assert [line for line in gone if " deleted" not in line] == []
        assert "restow-holds" not in await kubectl("get", "namespaces")


async def test_unknown_kinds(kubectl: Kubectl) -> None:
    unknown = {"apiVersion": "nope.example.com/v1", "kind": "Nope", "metadata": {"name": "x"}}
    assert 'no matches for kind "Nope"' in await kubectl("apply", "-f", "-", objects=[unknown], fails=True)
