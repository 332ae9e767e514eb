"""Each service is killed with SIGKILL while pods arrive and migrations are under way: no pod is lost, no hold is leaked,
and everything comes to its end. Five real processes, a real broker, the embedded Kubernetes API."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager

import aiohttp
import pytest
import yaml

from restow.contracts import events as e
from restow.contracts.codec import decode
from restow.eventlog.jetstream import connect
from restow.eventlog.testing import running_server
from restow.kubesim.testing import kubesim

SERVICES = ("cluster_watcher", "scheduler_session", "reservation_cache", "descheduler", "garbage_collector")
CONFIGS = {"descheduler": "policy.yaml", "garbage_collector": "gc.yaml"}
"""Files in the test's folder, used where they are there."""
SOON = 120.0
NODES, SETS, REPLICAS = 12, 6, 4
CRD = "deploy/crds/reservations.batch.volcano.sh.yaml"
POLICY = {
    "apiVersion": "descheduler/v1alpha2",
    "kind": "DeschedulerPolicy",
    "profiles": [
        {
            "name": "p",
            "pluginConfig": [
                {
                    "name": "Defragmentation",
                    "args": {
                        "ResourceType": "cpu",
                        "protectionThresholds": {"cpu": 95},
                        "defragmentThresholds": {"cpu": 45},
                        "lowThresholds": {"cpu": 40},
                    },
                }
            ],
            "plugins": {"balance": {"enabled": ["Defragmentation"]}},
        }
    ],
    "restow": {"concurrent": 2},
}

TOKEN = "token-of-these-tests"


class Stack:
    def __init__(self, broker, kube, folder):
        self.broker, self.kube, self.folder = broker, kube, folder
        self.processes, self.session = {}, None
        (folder / "policy.yaml").write_text(yaml.safe_dump(POLICY))

    async def start(self, name):
        published = self.folder / f"{name}.http"
        published.unlink(missing_ok=True)
        settings = {
            "RESTOW_NATS_URL": self.broker.url, "RESTOW_KUBE": self.kube.url, "RESTOW_HTTP": "127.0.0.1:0",
            "RESTOW_HTTP_FILE": str(published), "RESTOW_IDENTITY": name, "RESTOW_LOG_LEVEL": "warning",
            "RESTOW_API_TOKEN": TOKEN,
        }
        config = self.folder / CONFIGS.get(name, "none")
        if config.exists():
            settings["RESTOW_CONFIG"] = str(config)
        program = [sys.executable, "-m", "restow.runtime.main", name]
        self.processes[name] = await asyncio.create_subprocess_exec(*program, env=os.environ | settings)

    async def kill(self, name):
        self.processes[name].kill()
        await self.processes[name].wait()
        await self.start(name)

    async def ask(self, name, path, method="GET", body=None):
        published = self.folder / f"{name}.http"
        async with asyncio.timeout(SOON):
            while True:
                try:
                    headers = {"Authorization": f"Bearer {TOKEN}"}
                    async with self.session.request(method, published.read_text() + path, headers=headers, json=body) as response:
                        return response.status, await response.json()
                except (OSError, aiohttp.ClientError):
                    assert self.processes[name].returncode in (None, -9), f"{name} ended with {self.processes[name].returncode}"
                    await asyncio.sleep(0.02)

    async def until(self, what, holds):
        try:
            async with asyncio.timeout(SOON):
                while not await holds():
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"waited in vain until {what}; states: {await self.states()}") from None

    async def states(self):
        return {name: (await self.ask(name, "/state"))[1] for name in SERVICES}

    async def leading(self, name):
        await self.until(f"{name} leads", lambda: self._leads(name))

    async def _leads(self, name):
        return (await self.ask(name, "/state"))[1].get("phase") == "leading"

    async def create(self, path, body):
        async with self.session.post(self.kube.url + path, json=body) as response:
            assert response.status < 300, await response.text()

    async def items(self, path):
        async with self.session.get(self.kube.url + path) as response:
            return (await response.json())["items"]

    async def running(self):
        pods = await self.items("/api/v1/pods")
        return {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods if p["status"].get("phase") == "Running" and "deletionTimestamp" not in p["metadata"]}


@asynccontextmanager
async def stack(folder):
    with running_server() as broker:
        async with kubesim(controllers=True, kubelet_speed=20) as kube, aiohttp.ClientSession() as session:
            made = Stack(broker, kube, folder)
            made.session = session
            try:
                with open(CRD) as file:
                    await made.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", yaml.safe_load(file))
                await made.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
                for name in SERVICES:
                    await made.start(name)
                for name in SERVICES:
                    await made.leading(name)
                yield made
            finally:
                for process in made.processes.values():
                    if process.returncode is None:
                        process.kill()
                        await process.wait()


def _pod_spec(cpu, **more):
    return {"schedulerName": "restow", "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}], **more}


async def _fragmented(made):
    """Half of the nodes are half full, the others nearly empty."""
    amounts = {"cpu": "10", "memory": "64Gi", "pods": "110"}
    for i in range(NODES):
        status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{i}", "labels": {"kubernetes.io/hostname": f"n{i}"}}, "status": status}
        await made.create("/api/v1/nodes", node)
    for i in range(SETS):
        labels = {"set": f"s{i}"}
        template = {"metadata": {"labels": labels}, "spec": _pod_spec("1")}
        body = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": f"s{i}"}, "spec": {"replicas": REPLICAS, "selector": {"matchLabels": labels}, "template": template}}
        await made.create("/apis/apps/v1/namespaces/default/replicasets", body)
    await made.until("all replicas run", lambda: _count(made, SETS * REPLICAS))
    for i in range(NODES // 2):
        spec = _pod_spec("4", nodeSelector={"kubernetes.io/hostname": f"n{i}"})
        await made.create("/api/v1/namespaces/default/pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"fill{i}"}, "spec": spec})
    await made.until("all pods run", lambda: _count(made, SETS * REPLICAS + NODES // 2))


async def _count(made, wanted):
    return len(await made.running()) == wanted


async def _over(made):
    _, state = await made.ask("descheduler", "/state")
    return state.get("migrations", 0) > 0 and not state["active_migrations"]


async def _commits(made):
    """(sequence, family, holder, events) of the whole log."""
    log = await connect(made.broker.url, "default")
    found, tail = [], await log.tail()
    async for batch in log.read(1):
        for record in batch:
            events = [event for decision in decode(record.body) for event in decision.events]
            found.append((record.seq, record.family, record.envelope.source, events))
        if batch[-1].seq >= tail:
            break
    await log.close()
    return found


async def _events(made):
    return [event for *_, events in await _commits(made) for event in events]


@pytest.mark.slow
async def test_each_service_killed_during_migrations_loses_no_pod_and_leaks_no_hold(tmp_path):
    async with stack(tmp_path) as made:
        await _fragmented(made)
        status, planned = await made.ask("descheduler", "/defragment", "POST")
        assert status == 200
        moves = len(planned["events"][0]["moves"])
        assert moves > 5
        for name in SERVICES:
            await made.kill(name)
            await made.create(
                "/api/v1/namespaces/default/pods",
                {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"during-{name.replace('_', '-')}"}, "spec": _pod_spec("100m")},
            )
        await made.until("the migrations end", lambda: _over(made))
        await made.until("all pods run", lambda: _count(made, SETS * REPLICAS + NODES // 2 + len(SERVICES)))
        await made.until("no hold is left", lambda: _no_hold(made))
        events = await _events(made)
        ends = [event for event in events if isinstance(event, e.Landed | e.MigrationFailed | e.NotRecreated)]
        assert len(ends) == len({event.migration for event in ends}) == moves
        assert not [event for event in ends if isinstance(event, e.NotRecreated)]
        for name in SERVICES:
            await made.leading(name)
            await made.until(f"{name} knows that no hold is left", lambda name=name: _knows_no_hold(made, name))


async def _knows_no_hold(made, name):
    return (await made.ask(name, "/state"))[1].get("holds") == 0


async def _no_hold(made):
    return not await made.items("/apis/batch.volcano.sh/v1alpha1/reservations")
