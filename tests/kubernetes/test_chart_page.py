"""What docs/install.md says of the chart, command by command on a real control plane: from the last release, which had kustomizations and no chart; and from one broker to three."""

from __future__ import annotations

import json
import re
import secrets
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
from kubernetes.lab import DEPLOY, Lab, own
from kubernetes.test_chart import SYSTEM, helm

ROOT = DEPLOY.parent
RELEASE = "1f0cd36e"
"""The commit of 0.2.0."""
USERS = ("cluster_watcher", "scheduler_session", "reservation_cache", "descheduler", "garbage_collector", "console", "cli", "operator")
KINDS = "deployment,statefulset,service,configmap,serviceaccount,networkpolicy,role,rolebinding,poddisruptionbudget,clusterrole,clusterrolebinding,validatingadmissionpolicy,mutatingadmissionpolicy"
KEPT = ("data-restow-nats-0", "restow-garbage-collector")


@pytest.fixture(scope="module", name="old")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("release")
    archive = subprocess.run(["git", "archive", RELEASE, "deploy"], cwd=ROOT, capture_output=True, check=False)
    if archive.returncode:
        pytest.skip(f"the history does not reach back to {RELEASE}: {archive.stderr.decode()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True)
    return folder / "deploy"


@pytest.fixture(name="cluster")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with own(tmp_path_factory, "release") as one:
        if not (one.assets / "helm").exists():
            pytest.skip("KUBEBUILDER_ASSETS lacks helm: HELM=1 tests/kubernetes/build.sh builds it")
        yield one


def said(title: str) -> list[list[str]]:
    """The commands of a section of the page."""
    section = (ROOT / "docs" / "install.md").read_text().partition(f"### {title}\n")[2]
    (block,) = re.findall(r"```\n(.*?)```", section.partition("\n### ")[0], re.DOTALL)
    return [shlex.split(line) for line in block.splitlines()]


def here(arguments: list[str]) -> list[str]:
    return [str(ROOT / one) if one == "deploy/chart" else one for one in arguments]


def there(lab: Lab) -> dict[tuple[str, str], dict[str, Any]]:
    """What is of Restow, without what the API server says of it, and what runs besides."""
    found = {}
    for one in json.loads(lab.kubectl("-n", SYSTEM, "get", KINDS, "-o", "json"))["items"]:
        if one["metadata"]["name"].startswith("restow"):
            found[one["kind"], one["metadata"]["name"]] = {key: value for key, value in one.items() if key not in ("metadata", "status")} | {"labels": one["metadata"].get("labels")}
    return found


def claims(lab: Lab) -> dict[str, str]:
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in json.loads(lab.kubectl("-n", SYSTEM, "get", "pvc", "-o", "json"))["items"]}


def test_the_last_release_becomes_the_chart_as_the_page_says(cluster: Lab, old: Path) -> None:
    cluster.kubectl("create", "namespace", SYSTEM)
    cluster.kubectl("-n", SYSTEM, "create", "secret", "generic", "restow-nats", *(f"--from-literal={user}=p{secrets.token_hex(8)}" for user in USERS))
    cluster.kubectl("create", "-k", str(old / "crds"))
    for part in ("overlays/production", "beside", "autoscalers"):
        cluster.kubectl("apply", "-k", str(old / part))
    cluster.kubectl("-n", SYSTEM, "wait", "--for=create", f"pvc/{KEPT[0]}", "--timeout=60s")
    before, passwords = claims(cluster), cluster.kubectl("-n", SYSTEM, "get", "secret", "restow-nats", "-o", "jsonpath={.data}")
    assert set(before) == set(KEPT)

    more = ("--set", "beside.enabled=true,autoscalers.enabled=true")
    commands = said("From 0.2.0 to the chart")
    assert [command[0] for command in commands] == ["kubectl", "kubectl", "helm"]
    for _, *arguments in commands[:2]:
        cluster.kubectl(*arguments)
    install = here(commands[2][1:])
    helm(cluster, *install, *more)
    moved = there(cluster)
    assert claims(cluster) == before
    assert cluster.kubectl("-n", SYSTEM, "get", "secret", "restow-nats", "-o", "jsonpath={.data}") == passwords
    helm(cluster, "upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values")

    helm(cluster, "uninstall", "restow", "--wait")
    assert set(KEPT) <= set(claims(cluster)), "what is not the chart's stays"
    values = [one for one in install if one not in ("--take-ownership", "--force-conflicts")]
    helm(cluster, *values, *more)
    assert there(cluster) == moved, "as if it had been installed anew: nothing of the release is left"


def test_one_broker_becomes_three_as_the_page_says(cluster: Lab) -> None:
    """Its volumes, replicas and passwords. What is in the log goes by export and import: `test_a_log_is_restored_on_three_brokers_too`."""
    helm(cluster, "install", "restow", str(DEPLOY / "chart"), "--create-namespace")
    cluster.kubectl("-n", SYSTEM, "wait", "--for=create", f"pvc/{KEPT[0]}", "--timeout=60s")
    before, passwords = claims(cluster), json.loads(cluster.kubectl("-n", SYSTEM, "get", "secret", "restow-nats", "-o", "jsonpath={.data}"))

    def replicas() -> dict[str, int]:
        found = json.loads(cluster.kubectl("-n", SYSTEM, "get", "deployment,statefulset", "-o", "json"))["items"]
        return {one["metadata"]["name"]: one["spec"]["replicas"] for one in found}

    wanted = replicas()
    commands = [command for command in said("From one broker to three") if command[0] in ("kubectl", "helm") and "port-forward" not in command]
    assert len(commands) == 7
    for program, *arguments in commands:
        helm(cluster, *here(arguments)) if program == "helm" else cluster.kubectl(*arguments)
    assert replicas() == wanted | {"restow-nats": 3}
    assert json.loads(cluster.kubectl("-n", SYSTEM, "get", "secret", "restow-nats", "-o", "jsonpath={.data}")).items() >= passwords.items()
    cluster.kubectl("-n", SYSTEM, "wait", "--for=create", "pvc/data-restow-nats-2", "--timeout=60s")
    after = claims(cluster)
    assert after[KEPT[1]] == before[KEPT[1]], "the archive stays"
    assert after[KEPT[0]] != before[KEPT[0]], "a new log"
    with pytest.raises(AssertionError, match="and the broker that is there has 3: its log would be lost"):
        helm(cluster, "upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values", "--set", "nats.replicas=1")
