"""The process: files in, a port out, a clean end; and kubernetes_asyncio as a client."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import kubernetes_asyncio.client as k8s
import pytest
import yaml
from kubernetes_asyncio.watch import Watch
from kubesim.conformance.objects import config_map, crd, node, pod, widget

from restow.kubesim.main import documents
from restow.kubesim.testing import kubesim


async def start(*args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "restow.kubesim.main",
        *args,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


async def test_serves_files_and_stops_on_sigterm(tmp_path: Path) -> None:
    (tmp_path / "nodes.yaml").write_text(yaml.safe_dump_all([node("n1"), node("n2")]))
    group = "ks.example.com"
    objects = [crd(group), {**widget(group, "w", size=1)}]
    (tmp_path / "objects.yaml").write_text(
        yaml.safe_dump({"kind": "List", "apiVersion": "v1", "items": objects})
    )
    port_file = tmp_path / "port"
    process = await start(
        "--no-controllers", "--port-file", str(port_file), "--nodes-from", str(tmp_path / "nodes.yaml"), "--apply", str(tmp_path / "objects.yaml")
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(20):
        line = (await process.stdout.readline()).decode()
        port = port_file.read_text().strip()
        assert line == f"kubesim listens on http://127.0.0.1:{port}\n"
        async with k8s.ApiClient(k8s.Configuration(host=f"http://127.0.0.1:{port}")) as client:
            nodes = await k8s.CoreV1Api(client).list_node()
            assert [item.metadata.name for item in nodes.items] == ["n1", "n2"]
            found = await k8s.CustomObjectsApi(client).list_namespaced_custom_object(
                group, "v1", "default", "widgets"
            )
            assert [item["metadata"]["name"] for item in found["items"]] == ["w"]
        process.terminate()
        await process.communicate()
        assert process.returncode == 0


async def test_bad_files_are_named(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("kind: Nothing\napiVersion: v1\n")
    process = await start("--no-controllers", "--apply", str(path))
    _, err = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 2
    assert f"{path}: no resource for kind Nothing in v1" in err.decode()
    path.write_text("a: [")
    with pytest.raises(ValueError, match="not YAML"):
        list(documents(path))


@pytest.mark.parametrize("text", ["kind: ConfigMap\ndata: {a: 2026-02-30}", "a: 0x_", "a: !!bool x", "[" * 5000, "kind: 3", "a: !!timestamp x"])
def test_a_file_with_what_is_no_value_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "objects.yaml").write_text(text)
    with pytest.raises(ValueError, match=r"objects\.yaml: (not YAML|every document must be an object with a kind)"):
        list(documents(tmp_path / "objects.yaml"))


async def test_kubernetes_asyncio() -> None:
    async with kubesim() as server, k8s.ApiClient(k8s.Configuration(host=server.url)) as client:
        core = k8s.CoreV1Api(client)
        await core.create_namespaced_pod("default", pod("a"))
        body = {"target": {"kind": "Node", "name": "n1"}, "metadata": {"name": "a"}}
        await core.create_namespaced_pod_binding("a", "default", body, _preload_content=False)
        await core.patch_namespaced_pod("a", "default", {"metadata": {"labels": {"x": "one"}}})
        found = await core.read_namespaced_pod("a", "default")
        assert (found.spec.node_name, found.metadata.labels) == ("n1", {"x": "one"})
        async with Watch() as watch:
            async for event in watch.stream(core.list_namespaced_pod, "default", timeout_seconds=5):
                assert (event["type"], event["object"].metadata.name) == ("ADDED", "a")
                break
        with pytest.raises(k8s.ApiException) as caught:
            await core.create_namespaced_pod("default", pod("a"))
        assert caught.value.status == 409
        eviction = k8s.V1Eviction(metadata=k8s.V1ObjectMeta(name="a"))
        await core.create_namespaced_pod_eviction("a", "default", eviction, _preload_content=False)
        assert (await core.read_namespaced_pod("a", "default")).metadata.deletion_timestamp
        await core.create_namespaced_config_map("default", config_map("c"))
        await core.delete_namespaced_config_map("c", "default")
