"""`restow doctor` looks at a chart at work on a real control plane: nothing but `ok` is said while all is well, and of each fault what it is, until it is mended."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest
from kubernetes.hosts import BROKER, PREFIX, TWO, Hosts, bare, installed, ip
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab
from kubernetes.left import nothing_is_left
from kubernetes.services import ended, known, migrate
from kubernetes.test_chart import SYSTEM, place, running
from kubernetes.test_doctor import found
from kubernetes.world import World, pod_spec

from restow.contracts.ids import SERVICES, WRITERS
from restow.eventlog.server import die_with_parent, find_binary

pytestmark = pytest.mark.slow
POLICIES, BINDINGS = "validatingadmissionpolicy", "validatingadmissionpolicybinding"
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")


@pytest.fixture(scope="module", name="lab")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with bare(tmp_path_factory, "doctor-chart") as one:
        yield one


async def troubles(lab: Lab) -> list[tuple[str, str, str]]:
    return [one for one in await asyncio.to_thread(found, lab) if one[1] != "ok"]


async def well(lab: Lab, seconds: float = 60) -> None:
    """Soon: who was started again has to catch up first."""
    await eventually(lab, lambda said: not said, seconds)


async def eventually(lab: Lab, holds: Callable[[list[tuple[str, str, str]]], object], seconds: float = 120) -> None:
    for _ in range(int(seconds / 2)):
        if holds(said := await troubles(lab)):
            return
        await asyncio.sleep(2)
    raise AssertionError(f"after {seconds:g} s doctor says {said}")


async def anew(lab: Lab, hosts: Hosts, service: str) -> None:
    """Without the Lease, and what that says of the log."""
    name, (family,) = service.replace("_", "-"), [family for family, writer in WRITERS.items() if writer == service]
    lab.kubectl("-n", SYSTEM, "scale", f"deployment/restow-{name}", "--replicas", "0")
    await hosts.ready({**TWO, service: 0})
    lab.kubectl("-n", SYSTEM, "delete", "lease", f"restow-{family}")
    lab.kubectl("-n", SYSTEM, "scale", f"deployment/restow-{name}", "--replicas", "2")
    await hosts.ready(TWO)


async def again(lab: Lab, hosts: Hosts, service: str, *change: str) -> None:
    """Its pods are made anew, changed by this command, and are ready."""
    before = {host.name for host in hosts.alive(service)}
    await asyncio.to_thread(lab.kubectl, "-n", SYSTEM, *(change or ("rollout", "restart", f"deployment/restow-{service.replace('_', '-')}")))
    for _ in range(600):
        if not before & {host.name for host in hosts.alive(service)}:
            break
        await asyncio.sleep(0.2)
    await hosts.ready(TWO)


@contextlib.contextmanager
def changed(lab: Lab, kind: str, name: str, patch: str) -> Iterator[None]:
    """An object, and back."""
    there = json.loads(lab.kubectl("get", kind, name, "-o", "json"))
    lab.kubectl("patch", kind, name, "--type", "json", "-p", patch) if patch else lab.kubectl("delete", kind, name)
    try:
        yield
    finally:
        kept = {"apiVersion": there["apiVersion"], "kind": there["kind"], "metadata": {key: there["metadata"].get(key) or {} for key in ("labels", "annotations")} | {"name": name}, "spec": there["spec"]}
        (file := lab.work / f"{name}.json").write_text(json.dumps(kept))
        lab.kubectl("replace" if patch else "create", "-f", str(file))


@contextlib.asynccontextmanager
async def another_broker(hosts: Hosts) -> AsyncIterator[str]:
    """With the same users and passwords, and another log."""
    theirs = next(host for host in hosts.alive() if host.name == BROKER)
    folder = hosts.folder / "another-broker"
    folder.mkdir()
    address = f"{PREFIX}.255.2"
    ip("add", address)
    config = hosts.folder / "volumes" / BROKER / "config"
    for file in config.iterdir():
        text = file.read_text().replace(theirs.address, address)
        (folder / file.name).write_text(text.replace(str(hosts.folder / "claims"), str(folder)))
    process = await asyncio.create_subprocess_exec(str(find_binary()), "--config", str(folder / "nats.conf"), env=hosts.environment[theirs.name], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, preexec_fn=die_with_parent())
    try:
        yield f"nats://{address}:4222"
    finally:
        process.terminate()
        await process.wait()
        ip("del", address)


async def test_each_fault_of_a_chart_at_work_is_said_and_a_chart_that_is_well_has_none(lab: Lab, kubelets: Kubelets, world: World, tmp_path: Path) -> None:
    async with installed(lab, world, tmp_path) as hosts:
        await well(lab)
        lax = "does not refuse all that it should (its binding does not Deny or has matchResources, its failurePolicy is Ignore, or it has no validations)"
        for kind, name, patch, how in (
            (BINDINGS, "restow-guard", '[{"op": "replace", "path": "/spec/validationActions", "value": ["Audit"]}]', lax),
            (BINDINGS, "restow-guard-volumes", '[{"op": "add", "path": "/spec/matchResources", "value": {"namespaceSelector": {"matchLabels": {"a": "b"}}}}]', lax),
            (POLICIES, "restow-guard-bindings", '[{"op": "replace", "path": "/spec/failurePolicy", "value": "Ignore"}]', lax),
            (BINDINGS, "restow-guard-holds", "", "is missing, or nothing binds it"),
        ):
            with changed(lab, kind, name, patch):
                (said,) = await troubles(lab)
            assert (said[1], said[2].partition(", which")[0]) == ("warning", f"the policy {name} {how}")
        await well(lab)

        lease = {"spec": {"holderIdentity": "laptop/1", "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "leaseDurationSeconds": 30}}
        lab.kubectl("-n", SYSTEM, "patch", "lease", "restow-reservation", "--type", "merge", "-p", json.dumps(lease))
        said = await troubles(lab)
        assert ("leaders", "warning", f"{SYSTEM}: restow-reservation is held by laptop, which is none of the pods of restow-reservation-cache: what leads there is another process, unless that pod is ending") in said
        await well(lab, 120)

        await again(lab, hosts, "reservation_cache", "set", "image", "deployment/restow-reservation-cache", "service=ghcr.io/restow/restow:other")
        (said,) = await troubles(lab)
        assert said[:2] == ("services", "warning")
        assert said[2].startswith(f"{SYSTEM}: services of several images: ")
        await again(lab, hosts, "reservation_cache", "rollout", "undo", "deployment/restow-reservation-cache")
        await again(lab, hosts, "reservation_cache", "set", "env", "deployment/restow-reservation-cache", "RESTOW_IMAGE=ghcr.io/restow/restow:mine")
        (said,) = await troubles(lab)
        assert said[:2] == ("services", "warning")
        assert said[2].startswith(f"{SYSTEM}: services of several releases: ")
        await again(lab, hosts, "reservation_cache", "rollout", "undo", "deployment/restow-reservation-cache")
        await well(lab)

        async with another_broker(hosts) as url:
            hosts.more["scheduler_session"] = {"RESTOW_NATS_URL": url}
            lab.kubectl("-n", SYSTEM, "rollout", "restart", "deployment/restow-scheduler-session")
            lost = "the broker has none: the log is lost"
            await eventually(lab, lambda said: [one for one in said if one[:2] == ("services", "bad") and lost in one[2]])
            assert hosts.leader("scheduler_session") is not None, "who reads the right log still leads"
            # As if somebody had followed that advice. Without the note in the Lease both are ready.
            await anew(lab, hosts, "scheduler_session")
            said = await troubles(lab)
            assert [one[:2] for one in said] == [("log", "bad")], said
            assert said[0][2].startswith(f"{SYSTEM}: services read several logs, so they do not hear of each other: ")
            hosts.more.clear()
            await anew(lab, hosts, "scheduler_session")
        await well(lab)


async def test_a_service_whose_clock_jumps_by_ten_minutes_works_and_is_named(lab: Lab, kubelets: Kubelets, world: World, tmp_path: Path) -> None:
    """Both of a service, in turn each of the five. What is due goes by the log's clock, and who has a Lease by nobody's: pods are placed and moved, and nobody else comes to lead."""
    if not FAKETIME.exists():
        pytest.skip(f"needs {FAKETIME} (apt-get install libfaketime)")

    def clock(service: str, ahead: str) -> Path:
        (file := tmp_path / f"{service}.clock").write_text(ahead)
        return file

    more = {one: {"LD_PRELOAD": str(FAKETIME), "FAKETIME_TIMESTAMP_FILE": str(clock(one, "+0")), "FAKETIME_CACHE_DURATION": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1"} for one in SERVICES}
    async with installed(lab, world, tmp_path, more=more) as hosts:
        for name in ("a", "b"):
            await world.node(name)
        await world.workload("deployments", "web", 2, pod_spec(), 0.3)
        await well(lab)
        led = [hosts.leader(service) for service in SERVICES]
        for number, (service, ahead) in enumerate(product(SERVICES, ("+600", "-600"))):
            clock(service, ahead)
            way = "ahead of" if ahead == "+600" else "behind"
            await eventually(lab, lambda said, named=f"restow-{service.replace('_', '-')}", way=way: [what for _, _, what in said if named in what and f"this machine's clock is 600 s {way} the log's" in what])
            await place(world, f"pod-{number}")
            await running(world, f"pod-{number}")
            pods = await running(world, "web", 2)
            await known(hosts, pods)
            target = {"a": "b", "b": "a"}[pods[0]["spec"]["nodeName"]]
            one = await ended(hosts, await migrate(hosts, pods[0], target))
            assert one["step"] == "landed", (service, ahead, one)
            clock(service, "+0")
        await well(lab)
        assert [hosts.leader(service) for service in SERVICES] == led
        await nothing_is_left(world)
