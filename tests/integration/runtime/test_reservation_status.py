"""The status of a Reservation is what the log says, whoever writes to it and whatever becomes of a write. Real services."""

import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import yaml

from restow.cluster_watcher.service import service as cluster_watcher
from restow.domain.statuses.reservation_status import status
from restow.eventlog.testing import running_server, unique_cluster
from restow.kube.client import ApiStatus, Client
from restow.kubesim.testing import kubesim
from restow.reservation_cache.service import service as reservation_cache
from restow.scheduler_session.service import service as scheduler_session

from .test_services import SOON, _create, _node, _pod, _post, service

CRDS = Path(__file__).parents[3] / "deploy" / "crds"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
VOLCANO = "/apis/batch.volcano.sh/v1alpha1/namespaces/default/reservations"
KOORDINATOR = "/apis/scheduling.koordinator.sh/v1alpha1/reservations"
EVENTS = "/apis/events.k8s.io/v1/namespaces/default/events"
NONSENSE = {"phase": "Failed", "state": {"phase": "Failed", "reason": "Nonsense"}, "currentOwners": [], "allocatable": {"cpu": "99"}}


@pytest.fixture(scope="module")
def broker():
    with running_server() as server:
        yield server


@pytest.fixture
def cluster():
    return unique_cluster()


def template(cpu="1"):
    requests = {"requests": {"cpu": cpu}}
    return {"spec": {"schedulerName": "restow", "containers": [{"name": "c", "image": "i", "resources": requests}]}}


def asked(api, name="r", **spec):
    spec = {"owners": [{"labelSelector": {"matchLabels": {"app": "owner"}}}]} | spec
    if api == "volcano":
        return {
            "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name},
            "spec": {"tasks": [{"name": "t", "replicas": 2, "template": template()}], **spec},
        }  # fmt: skip
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name},
        "spec": {"template": template(), "ttl": "1h", **spec},
    }  # fmt: skip


class Made:
    def __init__(self, kube, http, watcher):
        self.kube, self.http, self.watcher = kube, http, watcher

    async def ask(self, api="volcano", **more):
        made = await _post(self.kube, VOLCANO if api == "volcano" else KOORDINATOR, asked(api, **more))
        return (VOLCANO if api == "volcano" else KOORDINATOR) + f"/{made['metadata']['name']}"

    async def get(self, path):
        async with self.http.get(self.kube.url + path) as answer:
            return await answer.json()

    async def overwrite(self, path, status):
        headers = {"Content-Type": "application/merge-patch+json"}
        async with self.http.patch(f"{self.kube.url}{path}/status", json={"status": status}, headers=headers) as answer:
            assert answer.status == 200, await answer.text()

    async def right(self, cache, path, phase):
        """The object's status has this phase, and is what the cache's fold says, in all that it says."""

        await cache.leading()

        async def holds():
            one = await self.get(path)
            state = cache.process.context.state
            there = one.get("status") or {}
            return there.get("phase") == phase and there == status(state, one["metadata"]["uid"])

        await self.until(holds)
        return (await self.get(path))["status"]

    async def until(self, holds):
        async with asyncio.timeout(SOON):
            while not await holds():
                await asyncio.sleep(0.02)

    async def reasons(self):
        return {event["reason"]: event["note"] for event in (await self.get(EVENTS))["items"]}


@asynccontextmanager
async def world(broker, cluster):
    async with (
        kubesim() as kube,
        aiohttp.ClientSession() as http,
        service(cluster_watcher(), broker, cluster, kube) as watcher,
        service(scheduler_session(), broker, cluster, kube) as session,
    ):
        for name in ("reservations.batch.volcano.sh", "reservations.scheduling.koordinator.sh"):
            await _post(kube, DEFINITIONS, yaml.safe_load((CRDS / f"{name}.yaml").read_text()))
        await watcher.leading()
        await session.leading()
        await _create(kube, _node("n0"))
        yield Made(kube, http, watcher)


@pytest.mark.parametrize("api", ["volcano", "koordinator"])
async def test_what_somebody_else_writes_into_a_status_is_put_right(broker, cluster, api):
    async with world(broker, cluster) as made, service(reservation_cache(), broker, cluster, made.kube) as cache:
        path = await made.ask(api)
        await made.right(cache, path, "Available")
        await made.overwrite(path, NONSENSE if api == "volcano" else {**NONSENSE, "state": None})
        await made.right(cache, path, "Available")


@pytest.mark.parametrize("fault", [("drop", {}), ("cut", {}), ("status", {"code": 500}), ("status", {"code": 409})])
async def test_a_write_that_fails_or_whose_answer_is_lost_ends_in_the_right_status(broker, cluster, fault):
    async with world(broker, cluster) as made, service(reservation_cache(), broker, cluster, made.kube) as cache:
        await cache.leading()
        action, more = fault
        rule = made.kube.cluster.faults.add(action, verb="patch", resource="reservations/status", count=2, **more)
        path = await made.ask()
        await made.right(cache, path, "Available")
        assert rule.hits


async def test_a_write_that_took_effect_and_was_answered_with_500_is_looked_at_again(broker, cluster, monkeypatch):
    patch, failed = Client.patch, []

    async def failing(self, path, body, kind="merge"):
        answer = await patch(self, path, body, kind)
        if "/reservations/" in path and len(failed) < 2:
            failed.append(path)
            raise ApiStatus(500, "InternalError", "after it was done")
        return answer

    async with world(broker, cluster) as made, service(reservation_cache(), broker, cluster, made.kube) as cache:
        await cache.leading()
        monkeypatch.setattr(Client, "patch", failing)
        path = await made.ask()
        await made.right(cache, path, "Available")
        assert failed


async def test_a_service_that_is_killed_between_leaves_nothing_wrong_behind(broker, cluster):
    """Its write is under way, or done in part by somebody else, when it ends; the next one begins with all of them."""
    async with world(broker, cluster) as made:
        async with service(reservation_cache(), broker, cluster, made.kube) as first:
            path = await made.ask()
            await made.right(first, path, "Available")
            delayed = made.kube.cluster.faults.add("delay", verb="patch", resource="reservations/status", count=-1, seconds=5.0)
            owner = _pod("p")
            owner["metadata"]["labels"] = {"app": "owner"}
            await _create(made.kube, owner)

            async def under_way():
                return delayed.hits > 0

            await made.until(under_way)
        made.kube.cluster.faults.clear()
        await made.overwrite(path, {"phase": "Available", "currentOwner": None, "succeeded": 0, "available": 7})
        async with service(reservation_cache(), broker, cluster, made.kube) as second:
            written = await made.right(second, path, "Available")
            assert [o["name"] for o in written["currentOwners"]] == ["p"]
            assert (written["succeeded"], written["available"], written["allocated"]["cpu"]) == (1, 1, "1")


async def test_events_tell_phases_and_fields_that_mean_nothing(broker, cluster):
    async with world(broker, cluster) as made, service(reservation_cache(), broker, cluster, made.kube) as cache:
        await made.ask(name="fits")
        odd = template("99")
        odd["spec"]["nodeNam"] = "n0"
        await made.ask("koordinator", name="large", template=odd)

        async def told():
            said = await made.reasons()
            if "spec.template.spec.nodeNam" not in said.get("UnknownFields", ""):
                return False
            return "Available" in said and "0/1 nodes are available: 1 Insufficient cpu." in said.get("Unschedulable", "")

        await made.until(told)
        path = f"{KOORDINATOR}/large"
        written = await made.right(cache, path, "Pending")
        (scheduled,) = written["conditions"]
        assert (scheduled["type"], scheduled["status"], scheduled["reason"]) == ("Scheduled", "False", "Unschedulable")


async def test_gauges_count_phases_and_resources(broker, cluster):
    async with world(broker, cluster) as made, service(reservation_cache(), broker, cluster, made.kube) as cache:
        path = await made.ask()
        await made.right(cache, path, "Available")

        async def scraped():
            async with made.http.get(cache.process.server.address + "/metrics") as answer:
                return set((await answer.text()).splitlines())

        async def shown(*lines):
            found = await scraped()
            return {f'restow_{line.format(f="family=" + chr(34) + "reservation" + chr(34))}' for line in lines} <= found

        assert await shown(
            'reservations{{api="volcano",{f},phase="Available"}} 1.0',
            'reservations{{api="koordinator",{f},phase="Available"}} 0.0',
            'reservation_resource{{{f},kind="allocatable",resource="cpu"}} 2.0',
            'reservation_resource{{{f},kind="allocated",resource="cpu"}} 0.0',
        ), sorted(line for line in await scraped() if "reservation" in line)
        owner = _pod("p")
        owner["metadata"]["labels"] = {"app": "owner"}
        await _create(made.kube, owner)
        await made.until(lambda: shown('reservation_resource{{{f},kind="allocated",resource="cpu"}} 1.0'))
