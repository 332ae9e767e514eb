"""Whole services against a real broker and the embedded Kubernetes API, in one process, each with its own connections."""

import asyncio
import time
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from types import SimpleNamespace

import aiohttp
import msgspec
import pytest
from aiohttp import web
from domain.build import node as fact_of_node

from restow.cluster_watcher.service import service as cluster_watcher
from restow.contracts import events as e
from restow.eventlog.archive import open_archive
from restow.eventlog.jetstream import connect
from restow.eventlog.port import NoLog, Unavailable
from restow.eventlog.server import NatsServer
from restow.eventlog.testing import running_brokers, running_server, unique_cluster
from restow.garbage_collector.service import service as garbage_collector
from restow.kubesim.testing import kubesim
from restow.runtime import process as runtime
from restow.runtime.leadership import Deposed, Phase
from restow.runtime.log_opening import REFUSED_AGAIN
from restow.runtime.process import Process
from restow.runtime.settings import Settings
from restow.scheduler_session.service import service as scheduler_session
from restow.tracing.collector import NoCollector

from .rig import facts, history, named

SOON = 60.0


@pytest.fixture(scope="module")
def broker():
    with running_server() as server:
        yield server


@pytest.fixture
def own_broker():
    with running_server() as server:
        yield server


@pytest.fixture
def cluster():
    return unique_cluster()


class Running:
    """One service, started; `code` is what its process would exit with."""

    def __init__(self, service, broker, cluster, kube, **more):
        more = {"lease": "off", "identity": service.name} | more
        self.process = Process(
            service,
            Settings(cluster=cluster, nats_url=broker.url, kube=kube.url, http="127.0.0.1:0", **more),
        )
        self.task = asyncio.create_task(self.process.life())

    async def get(self, path):
        async with aiohttp.ClientSession() as session, session.get(self.process.server.address + path) as response:
            return response.status, await response.json()

    async def until(self, holds):
        """Until `holds(state)`, asked after every turn in which something was folded."""
        async with asyncio.timeout(SOON):
            while not (self.process.context and self.process.context.commander and holds(self.process.context.state)):
                if self.task.done():
                    self.task.result()
                await asyncio.sleep(0.002)
        return self

    async def leading(self):
        await self.until(lambda _: self.process.context.leadership.leading)
        return self

    async def stop(self):
        self.process.stop()
        async with asyncio.timeout(SOON):
            return await self.task


@asynccontextmanager
async def service(made, broker, cluster, kube, **more):
    running = Running(made, broker, cluster, kube, **more)
    try:
        yield running
    finally:
        running.task.cancel()
        await asyncio.gather(running.task, return_exceptions=True)


def _node(name):
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _pod(name, cpu="1", **annotations):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "annotations": annotations},
        "spec": {
            "schedulerName": "restow",
            "containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}],
        },
    }


async def _post(kube, path, body):
    async with aiohttp.ClientSession() as session, session.post(kube.url + path, json=body) as response:
        assert response.status < 300, await response.text()
        return await response.json()


async def _status(kube, path):
    async with aiohttp.ClientSession() as session, session.get(kube.url + path) as response:
        return response.status


async def _create(kube, *objects):
    for one in objects:
        await _post(kube, "/api/v1/nodes" if one["kind"] == "Node" else "/api/v1/namespaces/default/pods", one)


def _on(state):
    return {pod.fact.name: pod.live.node for pod in state.pods.values() if pod.live.node}


async def test_a_pod_made_through_the_api_is_bound(broker, cluster):
    async with (
        kubesim() as kube,
        service(cluster_watcher(), broker, cluster, kube) as watcher,
        service(scheduler_session(), broker, cluster, kube) as session,
    ):
        await watcher.leading()
        await session.leading()
        await _create(kube, _node("n0"), _pod("p0"))
        await watcher.until(lambda state: _on(state) == {"p0": "n0"})
        status, body = await session.get("/readyz")
        assert (status, body["ready"]) == (200, True)
        assert await watcher.stop() == 0
        assert await session.stop() == 0


async def test_a_service_sends_what_it_measures_also_what_is_left_when_it_ends(broker, cluster, monkeypatch):
    got = []

    async def take(request):
        got.append((await request.json())["resourceSpans"][0])
        return web.json_response({})

    async with kubesim() as kube, collector(take) as url, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await watcher.leading()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", url)
        async with service(scheduler_session(), broker, cluster, kube) as session:
            await session.leading()
            await _create(kube, _node("n0"), _pod("p0"))
            await watcher.until(lambda state: _on(state) == {"p0": "n0"})
            assert await session.stop() == 0
    resource = {one["key"]: one["value"]["stringValue"] for one in got[0]["resource"]["attributes"]}
    assert (resource["service.name"], resource["service.instance.id"], resource["k8s.cluster.name"]) == ("restow-scheduler-session", "scheduler_session", cluster)
    names = [span["name"] for one in got for scope in one["scopeSpans"] for span in scope["spans"]]
    assert {"session commit", "Bind", "POST pods/binding"} <= set(names)


async def test_an_address_of_a_collector_that_is_none_ends_a_service_at_its_start(broker, cluster, monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318")
    async with kubesim() as kube, service(scheduler_session(), broker, cluster, kube) as session:
        with pytest.raises(NoCollector, match="collector:4318 is no address of a collector; allowed: http://HOST:4318"):
            await session.task


@asynccontextmanager
async def collector(take):
    app = web.Application()
    app.router.add_post("/v1/traces", take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{site._server.sockets[0].getsockname()[1]}"
    finally:
        await runner.cleanup()


async def test_a_pod_whose_request_cannot_be_read_waits_says_why_and_the_others_go_on(broker, cluster):
    async with (
        kubesim() as kube,
        service(cluster_watcher(), broker, cluster, kube) as watcher,
        service(scheduler_session(), broker, cluster, kube) as session,
    ):
        await watcher.leading()
        await session.leading()
        await _create(kube, _node("n0"), _pod("bad", **{"alibabacloud.com/gpu-milli": "-5"}), _pod("good"))
        await watcher.until(lambda state: _on(state) == {"good": "n0"} and bool(state.waiting))
        (waits,) = watcher.process.context.state.waiting.values()
        assert waits.message == "what it asks for cannot be read: GPU request: alibabacloud.com/gpu-milli is -5; allowed: 1 to 1000, of each device"


async def test_after_somebody_else_wrote_facts_the_watcher_lists_again(broker, cluster):
    """A conflict: the buffer is dropped, everything is listed, and what was wrongly said is put right."""
    async with kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as watcher:
        await watcher.leading()
        await _create(kube, _node("n0"))
        await watcher.until(lambda state: "n0" in state.nodes and "pods" in state.synced)
        log = await connect(broker.url, cluster)
        append, done = watcher.process.context.log.append, []

        async def overtaken(family, body, envelope, *, expected_last):
            if not done:
                done.append(await facts(log, e.NodeGone("n0")))
            return await append(family, body, envelope, expected_last=expected_last)

        watcher.process.context.log.append = overtaken
        await _create(kube, _node("n1"))
        await watcher.until(lambda state: {"n0", "n1"} <= set(state.nodes) and state.seq > done[0])
        await log.close()


async def test_while_the_broker_is_down_a_service_is_unready_and_then_goes_on_without_loss(own_broker, cluster):
    async with (
        kubesim() as kube,
        service(cluster_watcher(), own_broker, cluster, kube) as watcher,
        service(scheduler_session(), own_broker, cluster, kube) as session,
    ):
        await watcher.leading()
        await session.leading()
        await _create(kube, _node("n0"), _pod("before"))
        await watcher.until(lambda state: _on(state) == {"before": "n0"})
        await asyncio.to_thread(own_broker.kill)
        await _create(kube, _pod("during"))
        async with asyncio.timeout(SOON):
            while (await session.get("/readyz"))[0] != 503:
                await asyncio.sleep(0.01)
        _, body = await session.get("/readyz")
        assert "broker" in " ".join(body["reasons"])
        await own_broker.start_async()
        await watcher.until(lambda state: _on(state) == {"before": "n0", "during": "n0"})
        async with asyncio.timeout(SOON):
            while (await session.get("/readyz"))[0] != 200:
                await asyncio.sleep(0.01)
        log = await connect(own_broker.url, cluster)
        assert len(await named(log, e.PodPlaced)) == 2
        await log.close()


async def test_a_stop_finishes_the_effects_under_way(broker, cluster):
    async with (
        kubesim() as kube,
        service(cluster_watcher(), broker, cluster, kube) as watcher,
        service(scheduler_session(), broker, cluster, kube) as session,
    ):
        await watcher.leading()
        await session.leading()
        await _create(kube, _node("n0"))
        await session.until(lambda state: "n0" in state.nodes)
        kube.cluster.faults.add(action="delay", verb="create", resource="pods/binding", seconds=0.3)
        await _create(kube, _pod("p0"))
        await session.until(lambda state: len(state.placed) == 1)
        async with asyncio.timeout(SOON):
            while not session.process._effector.under_way:
                await asyncio.sleep(0.002)
        assert await session.stop() == 0
        await watcher.until(lambda state: _on(state) == {"p0": "n0"})


async def test_a_standby_is_ready_and_takes_over_when_the_leader_stops(broker, cluster):
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        async with service(scheduler_session(), broker, cluster, kube, lease="on", identity="one") as one:
            await one.leading()
            async with service(scheduler_session(), broker, cluster, kube, lease="on", identity="two") as two:
                await two.until(lambda state: state.leaders["session"].epoch == 1)
                assert (await two.get("/readyz"))[0] == 200
                assert not two.process.context.leadership.leading
                assert await one.stop() == 0
                await two.leading()
                assert two.process.context.state.leaders["session"].epoch == 2
                assert await two.stop() == 0


async def test_a_watcher_that_is_to_lead_is_not_ready_before_it_has_listed_anything(broker, cluster):
    """`restow watch` took it for ready in the moment before it led, and waited for ever for what it had no right to list."""
    made, seen = cluster_watcher(), []

    def assemble(context):
        context.leadership.changed.append(lambda: seen.append((context.leadership.phase, context.health.report().ready)))
        return made.assemble(context)

    async with kubesim() as kube, service(msgspec.structs.replace(made, assemble=assemble), broker, cluster, kube) as one:
        await one.leading()
        assert seen == [(Phase.CLAIMING, False), (Phase.LEADING, False)]
        async with asyncio.timeout(SOON):
            while (await one.get("/readyz"))[0] != 200:
                await asyncio.sleep(0.01)


async def test_who_cannot_ask_for_the_lease_says_so_and_is_not_ready(broker, cluster):
    """A certificate that is not trusted, a network policy: without a word, every service stood by for ever, and was ready."""
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        await (await connect(broker.url, cluster)).close()
        kube.cluster.faults.add("status", resource="leases", code=503, count=-1)
        async with service(scheduler_session(), broker, cluster, kube, lease="on", lease_duration=1, identity="one") as one:
            await one.until(lambda _: one.process.candidate and one.process.candidate.cannot_ask)
            async with asyncio.timeout(SOON):
                while (found := await one.get("/readyz"))[1]["reasons"][0].startswith("starting"):
                    await asyncio.sleep(0.01)
            assert found[0] == 503
            assert found[1]["reasons"][0].startswith("the Kubernetes API cannot be asked who leads: 503")
            kube.cluster.faults.clear()
            await one.leading()
            assert (await one.get("/readyz"))[0] == 200
            assert await one.stop() == 0


async def test_no_log_is_made_before_the_api_says_that_there_was_none(broker, cluster):
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        kube.cluster.faults.add("status", resource="leases", code=503, count=-1)
        async with service(scheduler_session(), broker, cluster, kube, lease="on", lease_duration=1, identity="one") as one:
            async with asyncio.timeout(SOON):
                while "does not say whether there was one" not in one.process._phase:
                    await asyncio.sleep(0.01)
            with pytest.raises(NoLog):
                await connect(broker.url, cluster, create=False)
            kube.cluster.faults.clear()
            await one.leading()
            assert await one.stop() == 0


@pytest.mark.parametrize("code", [403, 404])
async def test_who_is_refused_a_lease_only_after_a_while_leads_without_it_and_is_ready(broker, cluster, code):
    """The API's first answer was 503: whoever came later led at once, and this one stood by for ever."""
    async with kubesim() as kube:
        if code == 403:
            await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        await (await connect(broker.url, cluster)).close()
        kube.cluster.faults.add("status", resource="leases", code=503, count=-1)
        async with service(scheduler_session(), broker, cluster, kube, lease="on", lease_duration=1, identity="one") as one:
            await one.until(lambda _: one.process.candidate and one.process.candidate.cannot_ask)
            kube.cluster.faults.clear()
            if code == 403:
                kube.cluster.faults.add("status", resource="leases", code=403, count=-1)
            await one.leading()
            assert (await one.get("/readyz"))[0] == 200
            kube.cluster.faults.clear()
            assert await one.stop() == 0


async def test_who_led_without_a_lease_has_one_as_soon_as_it_may(broker, cluster):
    """A pod may be there before its rights are: it leads at once, and neither it nor a second one goes without for ever."""
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        path = "/apis/coordination.k8s.io/v1/namespaces/restow-system/leases/restow-session"
        kube.cluster.faults.add("status", resource="leases", code=403, count=-1)
        async with service(scheduler_session(), broker, cluster, kube, lease="on", lease_duration=1, identity="one") as one:
            await one.leading()
            assert await _status(kube, path) == 403
            kube.cluster.faults.clear()
            async with asyncio.timeout(SOON):
                while await _status(kube, path) != 200:
                    await asyncio.sleep(0.01)
            assert one.process.context.leadership.leading
            assert one.process.context.state.leaders["session"].epoch == 1
            assert await one.stop() == 0


async def test_who_led_without_a_lease_gives_way_to_who_has_it(broker, cluster):
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": "two", "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now}
        lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "restow-session"}, "spec": spec}
        await _post(kube, "/apis/coordination.k8s.io/v1/namespaces/restow-system/leases", lease)
        kube.cluster.faults.add("status", resource="leases", code=403, count=-1)
        process = Process(scheduler_session(), Settings(
            cluster=cluster, nats_url=broker.url, kube=kube.url, http="127.0.0.1:0", lease="on", lease_duration=1, identity="one"
        ))  # fmt: skip
        life = asyncio.create_task(process.life())
        async with asyncio.timeout(SOON):
            while not (process.context and process.context.leadership.leading):
                await asyncio.sleep(0.01)
        kube.cluster.faults.clear()
        with pytest.raises(Deposed, match="another process holds the lease"):
            await asyncio.wait_for(life, SOON)


async def test_a_service_stops_while_it_waits_for_a_broker_that_has_gone_just_after_it_connected(broker, cluster, monkeypatch):
    """Else it is killed at the end of its grace period, with whatever else its pod has to end."""
    asked = asyncio.Event()

    async def gone(*_args, **_more):
        asked.set()
        raise Unavailable("no answer")

    monkeypatch.setattr(runtime.jetstream, "open_snapshots", gone)
    async with kubesim() as kube, service(scheduler_session(), broker, cluster, kube) as one:
        await asyncio.wait_for(asked.wait(), SOON)
        one.process.stop()
        assert await asyncio.wait_for(one.task, 5) == 0


@pytest.mark.slow
async def test_a_service_with_nothing_to_append_is_ready_only_while_enough_brokers_are_there(cluster, monkeypatch):
    """The broker that is left still says how far the log goes: such a service stayed ready for good, and `restow doctor` said that all is well."""
    monkeypatch.setattr(runtime, "TAIL_ASKED_EVERY", 0.5)
    with running_brokers(3) as brokers:
        three = SimpleNamespace(url=",".join(server.url for server in brokers))
        async with kubesim() as kube, service(scheduler_session(), three, cluster, kube, nats_replicas=3) as one:
            await one.leading()

            async def until(holds, seconds):
                async with asyncio.timeout(seconds):
                    while not holds(*await one.get("/readyz")):
                        await asyncio.sleep(0.2)

            await until(lambda code, report: code == 200, SOON)
            await asyncio.to_thread(brokers[0].kill)
            await until(lambda code, report: code == 200 and any("silent: n0, of 3" in note for note in report["notes"]), SOON)
            await asyncio.to_thread(brokers[1].kill)
            await until(lambda code, report: code == 503 and any(reason.startswith("no commit is taken") for reason in report["reasons"]), SOON)
            for server in brokers[:2]:
                await asyncio.to_thread(server.start)
            await until(lambda code, report: code == 200 and not any("silent" in note for note in report["notes"]), SOON)


async def test_faults_of_the_api_lose_no_pod(broker, cluster):
    """409, 429, 500, dropped answers, cut, duplicated and expired watches, while pods arrive."""
    async with (
        kubesim() as kube,
        service(cluster_watcher(), broker, cluster, kube) as watcher,
        service(scheduler_session(), broker, cluster, kube) as session,
    ):
        await watcher.leading()
        await session.leading()
        await _create(kube, *(_node(f"n{i}") for i in range(4)))
        await session.until(lambda state: len(state.nodes) == 4)
        faults = kube.cluster.faults
        for code in (409, 429, 500, 503):
            faults.add(action="status", verb="create", resource="pods/binding", code=code, count=2)
        faults.add(action="drop", verb="create", resource="pods/binding", count=2)
        for i in range(12):
            await _create(kube, _pod(f"p{i}"))
            faults.watches(("cut", "duplicate", "gone")[i % 3])
        await watcher.until(lambda state: len(_on(state)) == 12)
        placed = [event.pod for _, _, events in await history(watcher.process.context.log) for event in events if isinstance(event, e.PodPlaced)]
        assert len(placed) == len(set(placed)) == 12


async def test_every_route_is_described_and_no_other_answers(broker, cluster):
    async with kubesim() as kube, service(scheduler_session(), broker, cluster, kube) as session:
        await session.leading()
        _, described = await session.get("/openapi.json")
        assert set(described["paths"]) == {"/livez", "/readyz", "/metrics", "/state", "/openapi.json"}
        assert (await session.get("/livez"))[0] == 200
        assert (await session.get("/state"))[1]["phase"] == "leading"
        assert (await session.get("/nothing"))[0] == 404


async def test_a_snapshot_and_an_archive_let_the_prefix_go_and_a_new_process_starts_from_them(broker, cluster, tmp_path):
    config = tmp_path / "gc.yaml"
    config.write_text("snapshotEvery: 40\nkeep: 20\n")
    async with kubesim() as kube, service(garbage_collector(), broker, cluster, kube, config=str(config), data=str(tmp_path)) as gc:
        await gc.leading()
        log = await connect(broker.url, cluster)
        for i in range(80):
            await facts(log, fact_of_node(f"n{i}"))
        await gc.until(lambda state: state.truncated > 0)
        async with asyncio.timeout(SOON):
            while await log.first() == 1:
                await asyncio.sleep(0.01)
        assert open_archive(tmp_path / "archive" / cluster, log_id=log.log_id).last >= await log.first() - 1
        async with service(scheduler_session(), broker, cluster, kube) as session:
            await session.leading()
            await session.until(lambda state: len(state.nodes) == 80)
            assert session.process.context.follower.records < 80
        await log.close()


class Deaf:
    """Where a broker should be, somebody takes connections and says nothing."""

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._hold, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def _hold(self, reader, writer):
        self.reached = True
        await reader.read()
        writer.close()

    reached = False

    async def __aexit__(self, *_):
        self._server.close()


async def test_a_service_waits_for_a_broker_that_does_not_let_it_in_yet_and_says_so(cluster, tmp_path):
    """Other passwords reach brokers and services one after the other. It ended, and a kubelet starts what ends later each time."""

    def with_password(word, port=0):
        return NatsServer(tmp_path, port=port, extra=f"authorization {{ user: cluster_watcher, password: {word} }}")

    before = with_password("pold")
    await asyncio.to_thread(before.start)
    try:
        async with kubesim() as kube, service(cluster_watcher(), before, cluster, kube, nats_user="cluster_watcher", nats_password="pnew") as watcher:

            async def says(word):
                async with asyncio.timeout(SOON):
                    while not (watcher.process.server.address and any(word in reason for reason in (await watcher.get("/readyz"))[1]["reasons"])):
                        await asyncio.sleep(0.05)

            await says("does not accept this user or password")
            await asyncio.sleep(1.5 * REFUSED_AGAIN)
            assert not watcher.task.done()
            await asyncio.to_thread(before.stop)
            after = with_password("pnew", before.port)
            await asyncio.to_thread(after.start)
            try:
                await watcher.leading()
                assert await watcher.stop() == 0
            finally:
                after.stop()
    finally:
        before.stop()


async def test_a_service_that_waits_for_the_broker_stops_at_once(cluster):
    async with Deaf() as broker, kubesim() as kube, service(cluster_watcher(), broker, cluster, kube) as waiting:
        async with asyncio.timeout(SOON):
            while not broker.reached:
                await asyncio.sleep(0.01)
        started = time.monotonic()
        await waiting.stop()
        assert time.monotonic() - started < 5
