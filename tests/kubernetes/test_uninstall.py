"""`restow uninstall` on a real API server: what is in the cluster afterwards is what was there before anything of Restow was."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes.lab import DEPLOY, Lab, own
from kubesim.conformance.harness import plain

RESTOW = Path(sys.executable).with_name("restow")
FLEETING = ("events", "leases", "componentstatuses")
PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture(scope="module", name="bare")
def bare_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Without Restow."""
    with own(tmp_path_factory, "bare") as one:
        yield one


def everything(lab: Lab) -> set[str]:
    """Every object of every kind that can be listed, by kind, namespace and name."""
    kinds = [kind for kind in lab.kubectl("api-resources", "--verbs=list", "-o", "name").split() if kind.split(".")[0] not in FLEETING]
    shown = "-o=jsonpath={range .items[*]}{.apiVersion} {.kind} {.metadata.namespace}/{.metadata.name}{'\\n'}{end}"
    return set(lab.kubectl("get", "-A", ",".join(kinds), shown).splitlines())


def settled(lab: Lab) -> set[str]:
    """Once two looks are equal: controllers answer to what has just been made."""
    before: set[str] = set()
    for _ in range(60):
        if (now := everything(lab)) == before:
            return now
        before = now
        time.sleep(1)
    raise AssertionError("the cluster does not come to rest")


def install(lab: Lab) -> None:
    """As docs/install.md and docs/descheduling.md say, with every part that can be chosen."""
    for name in ("reservations.scheduling.koordinator.sh", "queues.scheduling.volcano.sh", "podgroups.scheduling.volcano.sh"):
        lab.kubectl("create", "-f", str(DEPLOY / "crds" / f"{name}.yaml"))
    lab.kubectl("apply", "-f", str(DEPLOY / "restow.yaml"))
    lab.kubectl("-n", "restow-system", "create", "secret", "generic", "restow-nats", "--from-literal=cli=p")
    for folder in ("beside", "beside/host-ports", "autoscalers"):
        lab.kubectl("apply", "-k", str(DEPLOY / folder))
    lab.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/landings.restow.dev")


def used(lab: Lab, name: str = "p") -> str:
    """What services leave behind that are killed in the middle of a move. The name of the pod that the API has gated."""
    labels = {"app.kubernetes.io/managed-by": "restow", "restow.dev/log": "log-1"}
    priority = {"metadata": {"name": "restow-hold-7", "labels": labels}, "value": 7, "preemptionPolicy": "Never"}
    plain(lab.target, "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", priority)
    owner = plain(lab.target, "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": f"owner-of-{name}"}})["metadata"]
    open_ = {owner["uid"]: "2199-01-01T00:00:00Z"}
    landing = {"apiVersion": "restow.dev/v1", "kind": "Landing", "metadata": {"name": "log-1", "labels": labels}, "spec": {"open": open_}}
    plain(lab.target, "POST", "/apis/restow.dev/v1/landings", landing)
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": f"owner-of-{name}", "uid": owner["uid"], "controller": True}
    body = {"metadata": {"name": name, "ownerReferences": [reference]}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    for _ in range(400):
        made = plain(lab.target, "POST", PODS, body)
        if made["spec"].get("schedulingGates"):
            break
        plain(lab.target, "DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
        time.sleep(0.2)
    else:
        raise AssertionError("the API gates nobody")
    security = {"runAsNonRoot": True, "runAsUser": 65535, "seccompProfile": {"type": "RuntimeDefault"}}
    container = {"name": "hold", "image": "i", "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}}
    spec = {"containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 0, "priorityClassName": "restow-hold-7"}
    for _ in range(50):
        # Admission hears of a new class, and of a namespace's account, a moment later.
        try:
            plain(lab.target, "POST", "/api/v1/namespaces/restow-holds/pods", {"metadata": {"name": "hold-1", "labels": labels}, "spec": spec})
            break
        except OSError:
            time.sleep(0.2)
    return name


def uninstall(lab: Lab, *more: str) -> str:
    command = [str(RESTOW), "uninstall", "--kube", str(lab.work / "kubeconfig"), *more]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=lab.work)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_after_it_the_cluster_is_as_it_was_before_the_installation(bare: Lab) -> None:
    before = settled(bare)
    install(bare)
    pod = used(bare)
    there = settled(bare)
    planned = uninstall(bare, "--dry-run")
    assert everything(bare) == there
    said = uninstall(bare, "--yes")
    after = settled(bare)
    mine = {line for line in after - before if line in ("v1 Pod default/p", "v1 ConfigMap default/owner-of-p")}
    assert (after - before - mine, before - after) == (set(), set())
    assert not plain(bare.target, "GET", f"{PODS}/{pod}")["spec"].get("schedulingGates")
    assert said.count("\n") >= planned.count("\n")
    assert uninstall(bare, "--yes") == f"nothing of Restow is in the cluster at {bare.target.url}\n"
    print(f"{len(there - before)} objects installed, {said.count(chr(10))} lines said")


def test_the_lines_of_the_troubleshooting_page_take_every_gate_away(bare: Lab) -> None:
    """For whom Restow is away for good, and has nothing but kubectl."""
    page = (DEPLOY.parent / "docs" / "troubleshooting.md").read_text()
    lines = page.split("## Gated pods while Restow is away", 1)[1].split("```", 2)[1]
    install(bare)
    name = used(bare, "q")
    path = f"{bare.assets}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "KUBECONFIG": str(bare.work / "kubeconfig")}
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", lines], capture_output=True, text=True, timeout=60, env=environment)
    assert done.returncode == 0, done.stderr
    assert not plain(bare.target, "GET", f"{PODS}/{name}")["spec"].get("schedulingGates")
    uninstall(bare, "--yes")
