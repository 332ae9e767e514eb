"""`restow watch` on a real control plane, beside the stock scheduler: with a token that may only read, it says what would be won and keeps score; the API server's
audit log has nothing but reading of it, and what is there is as it was."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from cli.conftest import RESTOW
from cli.test_watch import POLICY
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab, own
from kubernetes.world import World, pod_spec

from restow.cli.watch import rights

USER = f"system:serviceaccount:{rights.NAMESPACE}:{rights.NAME}"
AUDIT = "audit.log"
READ = {"get", "list", "watch"}
OTHERS_WRITE = ("leases.coordination.k8s.io", "apiservices.apiregistration.k8s.io", "events", "events.events.k8s.io", "componentstatuses")
"""That this one has written none of these, the audit log says."""


@pytest.fixture(scope="module", name="lab")
def audited_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "watch", audit=AUDIT, audited=USER) as one:
        yield one


@pytest.fixture(scope="module", name="kubelets")
def played(lab: Lab) -> Iterator[Kubelets]:
    one = Kubelets(lab.target)
    one.start()
    yield one
    one.stop()


def reading_account(lab: Lab) -> Path:
    """The kubeconfig of the ServiceAccount that `restow watch --rbac` makes."""
    (file := lab.work / "rbac.yaml").write_text(rights.manifests())
    lab.kubectl("apply", "-f", str(file))
    return lab.kubeconfig(lab.account("watch", rights.NAMESPACE), "watch")


def everything(lab: Lab) -> dict[str, str]:
    """Of all objects of all kinds that can be listed, but for what the control plane writes by itself meanwhile: their version."""
    kinds = [kind for kind in lab.kubectl("api-resources", "--verbs=list", "-o", "name").split() if kind not in OTHERS_WRITE]
    found = json.loads(lab.kubectl("get", ",".join(kinds), "-A", "-o", "json"))
    return {f"{item['kind']} {item['metadata'].get('namespace', '')}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in found["items"]}


async def filled(world: World) -> None:
    """Two pods on n0, six on n1, placed by the stock scheduler; n2 is free, and was closed meanwhile."""
    for i in range(3):
        await world.node(f"n{i}", gpus=8)
    await world.cordon("n1")
    await world.cordon("n2")
    await world.replicaset("few", 2, pod_spec(gpus=1))
    await world.running("few", 2)
    await world.cordon("n1", on=False)
    await world.cordon("n0")
    await world.replicaset("many", 5, pod_spec(gpus=1))
    await world.running("many", 5)
    await world.cordon("n0", on=False)
    await world.cordon("n2", on=False)


async def test_what_only_reads_is_enough_and_nothing_is_written(world: World, tmp_path: Path) -> None:
    lab = world.lab
    kubeconfig = reading_account(lab)
    await filled(world)
    (policy := tmp_path / "policy.yaml").write_text(POLICY.replace("cpu", "nvidia.com/gpu"))
    before = everything(lab)
    process = await asyncio.create_subprocess_exec(
        str(RESTOW), "watch", "--kube", str(kubeconfig), "--policy", str(policy), "--every", "4s",
        cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT, env=os.environ | {"COLUMNS": "100"},
    )  # fmt: skip
    said = ""
    try:
        async with asyncio.timeout(90):
            assert process.stdout is not None
            while "SCORE" not in said:
                line = await process.stdout.readline()
                assert line, said
                said += line.decode()
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()
    assert "would move 2 pods off 1 node" in said
    assert "looked back: 2 of 2 predicted slots are free" in said
    assert everything(lab) == before
    asked = [json.loads(line) for line in (lab.work / AUDIT).read_text().splitlines()]
    verbs = {one["verb"] for one in asked if one["user"]["username"] == USER}
    assert {"list", "watch"} <= verbs <= READ
    assert {one["verb"] for one in asked if one["user"]["username"] != USER} - READ, "what others write is in the audit log, so what this one had written would be"
    refused = [one for one in asked if one["user"]["username"] == USER and one.get("responseStatus", {}).get("code") == 403]
    assert not refused, "it asks for nothing that `--rbac` does not name"


async def test_a_right_that_is_missing_is_named(lab: Lab, tmp_path: Path) -> None:
    lab.kubectl("create", "serviceaccount", "restow-half")
    lab.kubectl("create", "clusterrole", "restow-half", "--verb=list,watch", "--resource=nodes,namespaces")
    lab.kubectl("create", "clusterrolebinding", "restow-half", "--clusterrole=restow-half", "--serviceaccount=default:restow-half")
    kubeconfig = lab.kubeconfig(lab.account("half", "default"), "half")
    done = await asyncio.to_thread(subprocess.run, [str(RESTOW), "watch", "--kube", str(kubeconfig)], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1
    assert "waiting for" in done.stderr
    assert "persistentvolumes (Status403" in " ".join(done.stderr.split())


@pytest.mark.parametrize("verb", ["create", "delete", "patch", "update"])
def test_the_account_may_write_nothing(lab: Lab, verb: str) -> None:
    reading_account(lab)
    for what in ("pods", "nodes", "pods/eviction", "reservations.batch.volcano.sh", "customresourcedefinitions"):
        said = lab.kubectl("auth", "can-i", verb, what, f"--as={USER}", "--all-namespaces", check=False)
        assert said.strip() == "no", (verb, what)
