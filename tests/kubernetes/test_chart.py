"""The chart on a real control plane: the API server takes every object; Helm installs it, the services work with the accounts and rights that it gives,
also through a failure and an upgrade; and Helm and `restow uninstall` leave nothing of it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from e2e.stack import Running
from kubernetes.kubelets import Kubelets
from kubernetes.lab import DEPLOY, Lab, own
from kubernetes.left import nothing_is_left
from kubernetes.services import DESCHEDULER, SESSION, ended, kill, known, migrate, services
from kubernetes.test_beside_guard import META, SPEC, STATUS, refused
from kubernetes.test_uninstall import settled, uninstall
from kubernetes.world import NS, PRIORITIES, World, pod_spec
from kubesim.conformance.harness import Api

CASES = Path(__file__).parents[1] / "deploy" / "values"
OPERATORS = ("ServiceMonitor", "PrometheusRule", "Issuer", "Certificate")
"""Kinds of others, whose schemas are not here."""
SYSTEM = "restow-system"


ASIDE = ("--set", "defaults.nodeSelector.nobody=here", "--set", "nats.nodeSelector.nobody=here")
"""No kubelet here runs an image: the services are processes with the accounts of the chart, and its pods wait."""


@pytest.fixture(scope="module", name="cluster")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "chart") as one:
        if not (one.assets / "helm").exists():
            pytest.skip("KUBEBUILDER_ASSETS lacks helm: HELM=1 tests/kubernetes/build.sh builds it")
        yield one


def helm(lab: Lab, *arguments: str) -> str:
    done = subprocess.run([str(lab.assets / "helm"), "--kubeconfig", str(lab.work / "kubeconfig"), "-n", SYSTEM, *arguments], capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, f"helm {' '.join(arguments)}: {done.stderr}"
    return done.stdout


@pytest.mark.parametrize("way", ["restow.yaml", "default", *(path.stem for path in sorted(CASES.glob("*.yaml")))])
def test_the_api_servers_schemas_take_every_object(cluster: Lab, way: str) -> None:
    """By a dry run on the server, which also knows what it does not know: no field is dropped in silence."""
    values = [] if way == "default" else ["--values", str(CASES / f"{way}.yaml")]
    text = (DEPLOY / "restow.yaml").read_text() if way == "restow.yaml" else helm(cluster, "template", "restow", str(DEPLOY / "chart"), *values)
    objects = [one for one in yaml.safe_load_all(text) if one and one["kind"] not in OPERATORS]
    there = cluster.kubectl("get", "namespaces", "-o", "name").split()
    # Its own, and people's: those that the values name.
    for name in {SYSTEM, *(one["metadata"]["name"] for one in objects if one["kind"] == "Namespace"), *(one["metadata"].get("namespace", SYSTEM) for one in objects)}:
        if f"namespace/{name}" not in there:
            cluster.kubectl("create", "namespace", name)
    (path := cluster.work / f"{way}.yaml").write_text(yaml.safe_dump_all(objects))
    said = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", str(path))
    assert said.count("(server dry run)") == len(objects)


@pytest.fixture(scope="module", name="lab")
def bare_lab(cluster: Lab) -> Lab:
    return cluster


@pytest.fixture(scope="module", name="before")
def empty(cluster: Lab) -> set[str]:
    """What is there without Restow."""
    for name in ("restow-system", "restow-holds", "restow-holds-ports", "shop"):
        cluster.kubectl("delete", "namespace", name, "--ignore-not-found", "--timeout=60s")
    return settled(cluster)


@pytest.fixture(scope="module", name="installed")
def by_helm(cluster: Lab, before: set[str]) -> None:
    helm(cluster, "install", "restow", str(DEPLOY / "chart"), "--create-namespace", "--set", "beside.enabled=true,beside.hostPorts=true,autoscalers.enabled=true", *ASIDE)
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/landings.restow.dev", "crd/reservations.batch.volcano.sh")


@pytest.fixture(scope="module", name="stack")
def running_stack(cluster: Lab, installed: None, kubelets: Kubelets) -> Iterator[Running]:
    with services(cluster) as running:
        yield running


@pytest.mark.parametrize(("value", "said"), [("nats.storage.size=200Gi", "A larger volume"), ("cluster=other", "it cannot change"), ("nats.replicas=3", "From one broker to three")])
def test_what_cannot_change_is_refused_before_anything_is_changed(cluster: Lab, installed: None, value: str, said: str) -> None:
    def generations() -> str:
        return cluster.kubectl("-n", SYSTEM, "get", "deployments,statefulsets", "-o", "custom-columns=NAME:.metadata.name,GENERATION:.metadata.generation")

    before = generations()
    with pytest.raises(AssertionError, match=said):
        helm(cluster, "upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values", "--set", f"{value},logLevel=debug")
    assert generations() == before


def test_the_volume_of_the_broker_grows_as_the_docs_say(cluster: Lab, installed: None) -> None:
    """But for the claim: here is no storage class."""

    def broker(path: str, kind: str = "statefulset/restow-nats") -> str:
        return cluster.kubectl("-n", SYSTEM, "get", kind, "-o", f"jsonpath={{{path}}}")

    def upgraded(*more: str) -> str:
        helm(cluster, "upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values", *more)
        assert broker(".spec.volumeClaimTemplates[0].spec.resources.requests.storage") == "512Gi"
        return broker(".spec.template.metadata.annotations.checksum/config")

    pod, config = broker(".metadata.uid", "pod/restow-nats-0"), broker(".spec.template.metadata.annotations.checksum/config")
    cluster.kubectl("-n", SYSTEM, "delete", "statefulset", "restow-nats", "--cascade=orphan")
    grown = upgraded("--set", "nats.storage.size=0.5Ti")
    # The broker reads only when it starts how much it may store.
    assert f"max_file_store: {int(0.85 * (512 << 30))}" in broker(r".data.nats\.conf", "configmap/restow-nats")
    assert grown != config
    deadline = time.monotonic() + 60
    while pod in broker(".items[*].metadata.uid", "pods"):
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert upgraded() == grown


def passwords(lab: Lab) -> Any:
    return [json.loads(lab.kubectl("-n", SYSTEM, "get", "secret", name, "-o", "json"))["data"] for name in ("restow-nats", "restow-descheduler-api")]


async def place(world: World, name: str) -> None:
    await world.pod(name, pod_spec(0, schedulerName="restow"), annotations={"kubelets/term": "0"})


async def running(world: World, name: str, count: int = 1) -> list[Any]:
    """Soon, or on a busy machine after a while: services that were killed start again first."""
    return await world.until(lambda: (found := [pod for pod in world.of(name) if pod["status"].get("phase") == "Running"]) and len(found) == count and found, f"{count} of {name} run", 120)


async def test_it_is_installed_works_fails_over_and_is_upgraded_under_load(stack: Running, world: World, lab: Lab) -> None:
    for name in ("a", "b"):
        await world.node(name)
    # Its own pods, and those of the stock scheduler.
    await place(world, "first")
    await running(world, "first")
    await world.workload("deployments", "web", 2, pod_spec(), 0.3)
    pods = await running(world, "web", 2)
    await known(stack, pods)
    moved = pods[0]
    target = {"a": "b", "b": "a"}[moved["spec"]["nodeName"]]
    one = await ended(stack, await migrate(stack, moved, target))
    assert one["step"] == "landed", one

    for service in (SESSION, DESCHEDULER, "cluster_watcher"):
        kill(stack, service)
    await place(world, "after-a-failure")
    await running(world, "after-a-failure")

    had, made, done = passwords(lab), 0, asyncio.Event()

    async def load() -> None:
        nonlocal made
        while not done.is_set():
            await place(world, f"load-{made}")
            made += 1
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(done.wait(), 0.1)

    task = asyncio.create_task(load())
    await asyncio.to_thread(helm, lab, "upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values", "--set", "logLevel=debug,image.tag=next")
    done.set()
    await task
    for i in range(made):
        await running(world, f"load-{i}")
    assert passwords(lab) == had
    assert "RESTOW_LOG_LEVEL" in lab.kubectl("-n", SYSTEM, "get", "deployment", "restow-descheduler", "-o", "jsonpath={..env[?(@.value=='debug')].name}")
    again = await running(world, "web", 2)
    await known(stack, again)
    target = {"a": "b", "b": "a"}[again[0]["spec"]["nodeName"]]
    assert (await ended(stack, await migrate(stack, again[0], target)))["step"] == "landed"
    await nothing_is_left(world)
    assert world.kubelets.rejected == []
    print(f"{made} pods were created and bound while Helm upgraded")


def test_one_broker_does_not_become_three_by_a_setting(installed: None, cluster: Lab) -> None:
    """It would leave its streams behind, and the log with them."""
    with pytest.raises(AssertionError, match="and the broker that is there has 1: its log would be lost"):
        helm(cluster, "upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values", "--set", "nats.replicas=3", "--dry-run=server")
    cluster.kubectl("-n", SYSTEM, "scale", "statefulset", "restow-nats", "--replicas", "0")
    helm(cluster, "upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values")
    assert cluster.kubectl("-n", SYSTEM, "get", "statefulset", "restow-nats", "-o", "jsonpath={.spec.replicas}") == "1"


def test_nobody_rolls_back_to_another_number_of_brokers(installed: None, cluster: Lab) -> None:
    """`helm rollback` renders nothing, and what only renders the chart sees no cluster: two of three brokers were stopped, and the log was on them. Nothing is changed
    before it is refused."""

    def generations() -> str:
        return cluster.kubectl("-n", SYSTEM, "get", "networkpolicies,configmaps,deployments,statefulsets,poddisruptionbudgets", "-o", "custom-columns=K:.kind,N:.metadata.name,V:.metadata.resourceVersion")

    def no_broker() -> None:
        cluster.kubectl("-n", SYSTEM, "delete", "statefulset", "restow-nats")
        cluster.kubectl("-n", SYSTEM, "wait", "--for=delete", "pod", "-l", "app.kubernetes.io/name=restow-nats", "--timeout=60s")

    (revision,) = [one["revision"] for one in json.loads(helm(cluster, "history", "restow", "-o", "json")) if one["status"] == "deployed"]
    no_broker()
    three = ("upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values", "--set", "nats.replicas=3")
    helm(cluster, *three)
    time.sleep(3)  # Controllers have said what they do.
    before = generations()
    said = 'there are 3 brokers, and this is for 1: the log would be lost. docs/install.md, "From one broker to three"'
    with pytest.raises(AssertionError, match=said):
        helm(cluster, "rollback", "restow", str(revision))
    assert generations() == before
    (path := cluster.work / "one.yaml").write_text(helm(cluster, "template", "restow", str(DEPLOY / "chart"), "--no-hooks", "--show-only", "templates/nats.yaml"))
    with pytest.raises(AssertionError, match=said):
        cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(path))
    # As the docs say.
    no_broker()
    helm(cluster, "rollback", "restow", str(revision))
    assert cluster.kubectl("-n", SYSTEM, "get", "statefulset", "restow-nats", "-o", "jsonpath={.spec.replicas}") == "1"


@pytest.mark.parametrize("service", ["scheduler-session", "descheduler"])
async def test_a_stolen_token_changes_nothing_of_other_peoples_pods(installed: None, world: World, lab: Lab, service: str) -> None:
    """Although RBAC gives both of them `pods: patch`."""
    there = await world.pod("theirs", pod_spec(schedulingGates=[{"name": "theirs"}]), annotations={"kubelets/term": "0"})
    async with aiohttp.ClientSession() as session, asyncio.timeout(60):
        thief = Api(lab.account(service), session)
        await refused(thief, there, META | SPEC, "")
        if service == "scheduler-session":
            await refused(thief, there, STATUS, "/status")


@pytest.mark.parametrize("number", [3, 1])
def test_after_an_uninstall_another_number_of_brokers_is_installed(installed: None, cluster: Lab, number: int) -> None:
    """The API server knew for ever how many there had been: it stops to watch what nobody but a policy asked for, and never begins again."""
    helm(cluster, "uninstall", "restow", "--wait")
    helm(cluster, "install", "restow", str(DEPLOY / "chart"), "--set", f"beside.enabled=true,beside.hostPorts=true,autoscalers.enabled=true,nats.replicas={number}", *ASIDE)
    time.sleep(5)  # It has heard of the policy and of its binding.
    helm(cluster, "upgrade", "restow", str(DEPLOY / "chart"), "--reset-then-reuse-values", "--set", "logLevel=debug")


def test_helm_and_restow_uninstall_leave_nothing(installed: None, cluster: Lab, before: set[str]) -> None:
    with pytest.raises(AssertionError, match="restow-test"):  # No kubelet here runs it, so that its pod stays.
        helm(cluster, "test", "restow", "--timeout", "2s")
    helm(cluster, "uninstall", "restow", "--wait")
    uninstall(cluster, "--yes")
    assert cluster.kubectl("-n", SYSTEM, "get", "pods", "-o", "name") == ""
    cluster.kubectl("delete", "namespace", SYSTEM, "--timeout=60s")
    after = settled(cluster)
    of_tests = {line for line in after - before if line.split(" ", 2)[2].startswith(f"{NS}/") or line in (f"v1 Namespace /{NS}", *(f"scheduling.k8s.io/v1 PriorityClass /{name}" for name in PRIORITIES))}
    assert (after - before - of_tests, before - after) == (set(), set())
