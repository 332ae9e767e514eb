"""The chart's pods at work on a real control plane, two of each service with Leases: rolled by Helm one after the other while pods are placed and moved."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from checker import check
from integration.last_release import install, last_release
from kubernetes.hosts import BROKER, CHART, TWO, Hosts, bare, installed
from kubernetes.kubelets import Kubelets
from kubernetes.lab import Lab
from kubernetes.test_chart import SYSTEM, helm
from kubernetes.test_upgrade import AT_ONCE, LONG, filled, loaded, over, saved
from kubernetes.world import World

from restow.cli.demo.observer import Observer
from restow.contracts.ids import FAMILIES, SERVICES, WRITERS
from restow.domain.records import FINAL
from restow.replay.source import open_path

pytestmark = pytest.mark.slow
LEADS = re.compile(rb'"type": ?"lead"')
FAMILY = {service: family for family, service in WRITERS.items()}
MOST_SECONDS = 10.0
"""Without a leader, also on a busy machine."""


@pytest.fixture(scope="module", name="lab")
def own_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with bare(tmp_path_factory, "rolls") as one:
        yield one


@pytest.fixture(scope="module", name="earlier")
def last_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What runs an image of the last release."""
    return install(last_release()[1], tmp_path_factory.mktemp("last-release"))


def without_a_leader(hosts: Hosts, log: Path) -> dict[str, list[float]]:
    """By family: seconds in which nobody decided, since a leader was told to end: from then, or from its last record, until the next leader's first."""
    records: dict[str, list[tuple[int, str, bool]]] = {}
    for batch in open_path(log).batches():
        for record in batch:
            records.setdefault(record.family, []).append((record.time, record.envelope.source, bool(LEADS.search(record.body[:300]))))
    found: dict[str, list[float]] = {}
    for host in hosts.all.values():
        family = FAMILY.get(host.service, "")
        led = [(time, source) for time, source, leads in records.get(family, ()) if leads]
        before, after = [source for time, source in led if time < host.told], [time for time, _ in led if time > host.told]
        if before and f"/{host.name}/" in f"/{before[-1]}/" and after:
            last = max(time for time, _, _ in records[family] if time < after[0])
            found.setdefault(family, []).append(round((after[0] - max(last, host.told)) / 1e9, 2))
    return found


def left_behind(hosts: Hosts) -> list[int]:
    """For each pod that was told to end: how many others of its service were ready by then, and not told to end."""
    return [
        sum(other.service == host.service and 0 < other.since < host.told and not 0 < other.told <= host.told for other in hosts.all.values())
        for host in hosts.all.values()
        if host.told and host.name != BROKER
    ]


async def rolled(lab: Lab, hosts: Hosts, *arguments: str) -> None:
    """Helm changes something of every service's pods; over when all of them are new."""
    before = {host.name for host in hosts.alive()} - {BROKER}
    await asyncio.to_thread(helm, lab, *arguments)
    for service in SERVICES:
        await asyncio.to_thread(lab.kubectl, "-n", SYSTEM, "rollout", "status", f"deployment/restow-{service.replace('_', '-')}", "--timeout=160s")
    await hosts.ready(TWO)
    assert not before & {host.name for host in hosts.alive()}


@pytest.mark.parametrize("last", [False, True], ids=["this-release", "the-last-release"])
async def test_helm_rolls_two_of_each_service_while_pods_are_placed_and_moved(
    lab: Lab, kubelets: Kubelets, world: World, tmp_path: Path, request: pytest.FixtureRequest, capsys: pytest.CaptureFixture[str], last: bool
) -> None:
    """To another setting and image of this release, and back; and from the last release to this one, and back. `OwnerGone` is what docs/install.md says of that way back."""
    images = {"0.2.0": request.getfixturevalue("earlier")} if last else {}
    await filled(world)
    async with installed(lab, world, tmp_path, images) as hosts, Observer(hosts.nats(), hosts.cluster) as observer:
        moves = observer.state.migrations

        async def more_end(what: str) -> None:
            before = sum(move.step in FINAL for move in moves.values())
            await observer.until(what, lambda: sum(move.step in FINAL for move in moves.values()) >= before + AT_ONCE, LONG)

        async with loaded(world, hosts, observer) as load:
            await more_end("moves before anything is rolled")
            under_way = [len(observer.state.active)]
            await rolled(lab, hosts, "upgrade", "restow", CHART, "--reset-then-reuse-values", "--set", "logLevel=debug,image.tag=next")
            await more_end("moves after the upgrade")
            under_way.append(len(observer.state.active))
            await rolled(lab, hosts, "rollback", "restow", "1")
            await more_end("moves after the rollback")
        ended = await over(world, observer, load)
        assert world.kubelets.rejected == []
        log = await saved(hosts.nats(), hosts.cluster, tmp_path / "log.jsonl.zst")
        gaps, left = without_a_leader(hosts, log), left_behind(hosts)
        with capsys.disabled():
            print(f"\nunder way {under_way}; {load.placed} placed; {load.asked} asked for, refused {dict(load.refused)}; ended {dict(ended)}; seconds without a leader {gaps}; {sum(map(len, gaps.values()))} times in {2 * len(gaps)} rolls")
    assert all(under_way)
    # Where a node has 110 pods by then nobody is evicted.
    assert ended["landed"] >= 0.9 * (ended.total() - ended["failed NoCapacity"]), ended
    assert last or not ended["failed OwnerGone"], "nobody was deleted"
    assert set(gaps) == set(FAMILIES), "each family has lost its leader once at least"
    assert max(gap for family in gaps.values() for gap in family) < MOST_SECONDS
    assert left == [2] * 20, "a new one is there before an old one goes"
    judged = check(log, deletions_after_plan=True)
    assert judged.ok, f"{judged.broken[:10]} {judged.overtaken[:10]}"
