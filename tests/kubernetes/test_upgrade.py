"""The last release becomes this one, and this one the last, on a real control plane in use: by what docs/install.md says, service by service, while pods are placed
and moved all the time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import secrets
import shutil
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from checker import check
from integration.last_release import install, last_release
from integration.test_upgrade import Mixed
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab, own
from kubernetes.left import nothing_is_left
from kubernetes.services import POLICY
from kubernetes.test_chart import ASIDE, SYSTEM, helm, place
from kubernetes.test_chart_page import USERS, here, manifests, said  # noqa: F401
from kubernetes.world import World, pod_spec

from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.contracts.ids import SERVICES, WRITERS
from restow.domain.records import FINAL
from restow.replay.source import open_broker, save

NODES, GPUS, SETS, REPLICAS = 24, 16, 8, 38
"""Of 384 GPUs 304 are taken."""
AT_ONCE = 12
"""Moves that are asked for."""
LONG = 240.0
BACK = tuple(reversed(WRITERS.values()))
"""The watcher last: at its first list one of 0.2.0 tells of every Deployment that it has gone, which this release's descheduler believes."""


@pytest.fixture(scope="module", name="lab")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with own(tmp_path_factory, "upgrade") as one:
        if not (one.assets / "helm").exists():
            pytest.skip("KUBEBUILDER_ASSETS lacks helm: HELM=1 tests/kubernetes/build.sh builds it")
        yield one


@pytest.fixture(scope="module", name="earlier")
def last(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python that runs it."""
    return install(last_release()[1], tmp_path_factory.mktemp("last-release"))


@pytest.fixture(name="accounts")
def by_kustomizations(lab: Lab, old: Path, tmp_path: Path) -> Path:
    """The last release is installed, with its own rights; its services run as processes."""
    lab.kubectl("create", "namespace", SYSTEM)
    lab.kubectl("-n", SYSTEM, "create", "secret", "generic", "restow-nats", *(f"--from-literal={user}=p{secrets.token_hex(8)}" for user in USERS))
    lab.kubectl("create", "-k", str(old / "crds"))
    for part in ("overlays/production", "beside"):
        lab.kubectl("apply", "-k", str(old / part))
    lab.kubectl("-n", SYSTEM, "scale", "deployment,statefulset", "--all", "--replicas", "0")
    lab.kubectl("wait", "--for=condition=Established", "--timeout=60s", "crd/landings.restow.dev", "crd/reservations.batch.volcano.sh")
    (folder := tmp_path / "accounts").mkdir()
    shutil.copy(lab.work / "kubeconfig", folder / "admin.yaml")
    for service in SERVICES:
        shutil.copy(lab.kubeconfig(lab.account(service.replace("_", "-")), service), folder / f"{service}.yaml")
    return folder


def becomes_the_chart(lab: Lab) -> None:
    (_, *pods), (_, *configuration), (_, *chart) = said("From 0.2.0 to the chart")
    for arguments in (pods, configuration):
        lab.kubectl(*arguments)
    helm(lab, *here(chart), "--set", "beside.enabled=true", *ASIDE)


class Load:
    """Pods of ours come, and pods of the stock scheduler are moved, until it is told to stop."""

    def __init__(self, world: World, stack: Mixed, observer: Observer) -> None:
        self.world, self.stack, self.observer, self.random = world, stack, observer, random.Random(1)
        self.placed, self.asked, self.refused = 0, 0, Counter[str]()
        self._done = asyncio.Event()

    async def run(self) -> None:
        await asyncio.gather(self._place(), self._move())

    def stop(self) -> None:
        self._done.set()

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._done.wait(), seconds)

    async def _place(self) -> None:
        while not self._done.is_set():
            await place(self.world, f"load-{self.placed}")
            self.placed += 1
            await self._pause(0.25)

    async def _move(self) -> None:
        while not self._done.is_set():
            under_way = self.observer.state.active
            pods = [pod for i in range(SETS) for pod in self.world.of(f"w{i}") if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")]
            if len(under_way) >= AT_ONCE or not pods:
                await self._pause(0.1)
                continue
            pod = self.random.choice(pods)
            taken = Counter(one["spec"].get("nodeName") for one in self.world.pods.values() if one["spec"]["containers"][0].get("resources", {}).get("requests", {}).get("nvidia.com/gpu"))
            target = min((f"n{i}" for i in range(NODES) if f"n{i}" != pod["spec"]["nodeName"]), key=lambda name: (taken[name], self.random.random()))
            try:
                await asyncio.to_thread(self._asked, pod, target)
                self.asked += 1
            except urllib.error.HTTPError as error:
                self.refused[str(error.code)] += 1
            except (OSError, ValueError):
                self.refused["nobody answers"] += 1
            await self._pause(0.1)

    def _asked(self, pod: Any, target: str) -> None:
        meta = pod["metadata"]
        body = json.dumps({"pod": f"{meta['namespace']}/{meta['name']}", "target": target}).encode()
        headers = {**self.stack.authorization, "Content-Type": "application/json"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.stack.http('descheduler')}/migrations", body, headers, method="POST"), timeout=30):
            pass


@contextlib.asynccontextmanager
async def loaded(world: World, stack: Mixed, observer: Observer) -> AsyncIterator[Load]:
    load = Load(world, stack, observer)
    task = asyncio.create_task(load.run())
    try:
        yield load
    finally:
        load.stop()
        await task


async def filled(world: World) -> None:
    """Nodes and Deployments, all of which run."""
    for i in range(NODES):
        await world.node(f"n{i}", gpus=GPUS)
    for i in range(SETS):
        await world.workload("deployments", f"w{i}", REPLICAS, pod_spec(), 0.3)
    for i in range(SETS):
        await world.running(f"w{i}", REPLICAS)


async def over(world: World, observer: Observer, load: Load) -> Counter[str]:
    """How moves ended; over when all have, all pods run and nothing is left."""
    await observer.until("all moves end", lambda: not observer.state.active, LONG)
    ended = Counter(f"{move.step} {move.reason}".strip() for move in observer.state.migrations.values())
    for i in range(load.placed):
        await world.until(lambda i=i: [pod for pod in world.of(f"load-{i}") if pod["status"].get("phase") == "Running"], f"load-{i} runs", LONG)  # type: ignore[misc]
    for i in range(SETS):
        assert len(await world.running(f"w{i}", REPLICAS)) == REPLICAS
    await nothing_is_left(world)
    return ended


async def saved(nats: str, cluster: str, file: Path) -> Path:
    """The log, in a file."""
    live = open_broker(nats, cluster)
    try:
        await asyncio.to_thread(save, live, file)
    finally:
        live.close()
    return file


@pytest.mark.slow
async def test_the_last_release_becomes_the_chart_and_the_chart_the_last_release_while_pods_are_placed_and_moved(
    lab: Lab, kubelets: Kubelets, world: World, accounts: Path, earlier: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    await filled(world)
    stack = Mixed(tmp_path / "stack", policy=POLICY, scheduler=configs.scheduler(), keep=True, kube=str(accounts))
    stack.python = dict.fromkeys(WRITERS.values(), earlier)
    under_way: list[int] = []
    async with stack, Observer(stack.nats, stack.cluster) as observer:
        moves = observer.state.migrations
        async with loaded(world, stack, observer) as load:
            await observer.until("moves of the last release", lambda: sum(move.step in FINAL for move in moves.values()) >= AT_ONCE, LONG)
            under_way.append(len(observer.state.active))
            await asyncio.to_thread(becomes_the_chart, lab)
            for to, names in ((sys.executable, WRITERS.values()), (earlier, BACK)):
                for name in names:
                    under_way.append(len(observer.state.active))
                    await stack.change(name, to, observer)
                before = len(moves)
                await observer.until("moves after the change", lambda before=before: sum(move.step in FINAL for move in list(moves.values())[before:]) >= AT_ONCE, LONG)  # type: ignore[misc]
        ended = await over(world, observer, load)
        with capsys.disabled():
            print(f"\nunder way at each change {under_way}; {load.placed} placed; {load.asked} asked for, refused {dict(load.refused)}; ended {dict(ended)}")
        assert world.kubelets.rejected == []
        assert sum(bool(count) for count in under_way) >= 6, under_way
        assert ended["landed"] >= 0.9 * ended.total(), ended
        assert not ended["failed OwnerGone"], "nobody was deleted"
        log = await saved(stack.nats, stack.cluster, tmp_path / "log.jsonl.zst")
    judged = check(log, deletions_after_plan=True)
    assert judged.ok, f"{judged.broken[:10]} {judged.overtaken[:10]}"
