"""The broker's volume is an old copy when everything comes back after a power cut: real services, a real broker, Leases."""

import asyncio
import shutil

import pytest

from restow.cli import log_repair
from restow.cluster_watcher.service import service as cluster_watcher
from restow.domain import snapshot
from restow.domain.fold import FOLD_VERSION
from restow.eventlog.jetstream import connect, open_snapshots
from restow.eventlog.port import LogMismatch, NoLog
from restow.eventlog.snapshots import Snapshot
from restow.eventlog.testing import running_server, unique_cluster
from restow.runtime.leadership import Phase
from restow.scheduler_session.service import service as scheduler_session

from .chained import Writer
from .test_services import SOON, _node, _on, _pod, _post, kubesim, service


@pytest.fixture
def own_broker():
    with running_server() as server:
        yield server


async def until(holds):
    async with asyncio.timeout(SOON):
        while not holds():
            await asyncio.sleep(0.005)


async def noted(kube, family):
    lease = await kube_lease(kube, family)
    return (lease["metadata"].get("annotations") or {}).get("restow.dev/log-read", "")


async def kube_lease(kube, family):
    import aiohttp

    url = f"{kube.url}/apis/coordination.k8s.io/v1/namespaces/restow-system/leases/restow-{family}"
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        return await response.json()


async def test_nobody_decides_on_an_old_copy_of_the_log_and_after_a_repair_the_facts_come_back(own_broker, tmp_path):
    cluster = unique_cluster()
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        await _post(kube, "/api/v1/nodes", _node("n0"))

        def started(made, identity):
            return service(made, own_broker, cluster, kube, lease="on", identity=identity, lease_duration=10)

        async with started(cluster_watcher(), "watcher") as watcher, started(scheduler_session(), "session") as session:
            await session.leading()
            await watcher.until(lambda state: list(state.nodes) == ["n0"])
            await asyncio.to_thread(own_broker.stop)
            shutil.copytree(own_broker.folder, tmp_path / "old")
            await own_broker.start_async()
            await _post(kube, "/api/v1/nodes", _node("n1"))
            await _post(kube, "/api/v1/namespaces/default/pods", _pod("p0"))
            await session.until(lambda state: set(_on(state)) == {"p0"} and len(state.nodes) == 2)
            seq = session.process.context.state.seq
            async with asyncio.timeout(SOON):
                while int((await noted(kube, "session")).split(":")[1] or 0) < seq:
                    await asyncio.sleep(0.02)
        # Both are gone without a word, as by a power cut; so is what the broker had acknowledged since.
        await asyncio.to_thread(own_broker.kill)
        shutil.rmtree(own_broker.folder)
        shutil.copytree(tmp_path / "old", own_broker.folder)
        await own_broker.start_async()
        async with started(cluster_watcher(), "watcher-2") as watcher, started(scheduler_session(), "session-2") as session:
            await session.until(lambda state: state.broken)
            await watcher.until(lambda state: state.broken)
            code, said = await session.get("/readyz")
            assert code == 503
            assert any("follows from another history. Nothing is decided until `restow log repair`" in reason for reason in said["reasons"])
            await _post(kube, "/api/v1/namespaces/default/pods", _pod("p1"))
            log = await connect(own_broker.url, cluster, create=False)
            try:
                found = await log_repair.look(log, None, None)
                assert found.what.startswith("The log is broken at record")
                assert found.state.void == {"record.other_history": found.state.void.total()}, "nobody has said anything else meanwhile"
                await log_repair.write(log, found, "ann", "power cut")
            finally:
                await log.close()
            await session.leading()
            await session.until(lambda state: set(state.nodes) == {"n0", "n1"} and set(_on(state)) == {"p0", "p1"})
            assert session.process.context.state.repairs == 1
            assert session.process.context.state.broken == 0
            async with asyncio.timeout(SOON):
                while (await session.get("/readyz"))[0] != 200:
                    await asyncio.sleep(0.02)
            await until(lambda: watcher.process.context.follower.broken == "")


async def test_what_one_lease_knows_to_be_lost_everybody_finds_out(own_broker, tmp_path):
    """The others had not got as far, or have no Lease: they would go on deciding, on a log without its facts."""
    cluster = unique_cluster()
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        await _post(kube, "/api/v1/nodes", _node("n0"))
        async with service(cluster_watcher(), own_broker, cluster, kube, lease="on", identity="watcher") as watcher:
            await watcher.until(lambda state: list(state.nodes) == ["n0"])
            await asyncio.to_thread(own_broker.stop)
            shutil.copytree(own_broker.folder, tmp_path / "old")
            await own_broker.start_async()
            await _post(kube, "/api/v1/nodes", _node("n1"))
            await watcher.until(lambda state: len(state.nodes) == 2)
            seq = watcher.process.context.state.seq
            async with asyncio.timeout(SOON):
                while int((await noted(kube, "cluster")).split(":")[1] or 0) < seq:
                    await asyncio.sleep(0.02)
        await asyncio.to_thread(own_broker.kill)
        shutil.rmtree(own_broker.folder)
        shutil.copytree(tmp_path / "old", own_broker.folder)
        await own_broker.start_async()
        async with service(cluster_watcher(), own_broker, cluster, kube, lease="on", identity="watcher-2") as watcher:
            await watcher.until(lambda state: state.broken)
            async with service(scheduler_session(), own_broker, cluster, kube, lease="on", identity="session") as session:
                await session.until(lambda state: state.broken)
                await session.until(lambda _: session.process.context.leadership.phase == Phase.CLAIMING)
                assert session.process.context.state.leaders["session"].epoch == 0


async def test_a_broker_that_has_lost_the_whole_log_gets_no_new_one_until_somebody_says_so(own_broker, tmp_path):
    """An empty volume, or three brokers in place of one: a broker that is in a cluster does not know what it had alone."""
    cluster = unique_cluster()
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})

        def started(identity):
            return service(cluster_watcher(), own_broker, cluster, kube, lease="on", identity=identity, lease_duration=1)

        async with started("one") as watcher:
            await watcher.leading()
            log_id = watcher.process.context.log.log_id
            seq = watcher.process.context.state.seq
            async with asyncio.timeout(SOON):
                while int((await noted(kube, "cluster")).split(":")[1] or 0) < seq:
                    await asyncio.sleep(0.02)
        await asyncio.to_thread(own_broker.stop)
        shutil.move(own_broker.folder, tmp_path / "old")
        own_broker.folder.mkdir()
        await own_broker.start_async()
        async with started("two") as watcher:
            async with asyncio.timeout(SOON):
                while watcher.process.server.address == "" or not any(
                    f"the Lease restow-cluster says that log {log_id} was read up to record" in why and "the broker has none: the log is lost" in why
                    for why in (await watcher.get("/readyz"))[1]["reasons"]
                ):
                    await asyncio.sleep(0.05)
            with pytest.raises(NoLog):
                await connect(own_broker.url, cluster, create=False)
            # It is found again.
            await asyncio.to_thread(own_broker.stop)
            shutil.rmtree(own_broker.folder)
            shutil.copytree(tmp_path / "old", own_broker.folder)
            await own_broker.start_async()
            await watcher.leading()
            assert watcher.process.context.log.log_id == log_id
        await asyncio.to_thread(own_broker.stop)
        shutil.rmtree(own_broker.folder)
        own_broker.folder.mkdir()
        await own_broker.start_async()
        await (await connect(own_broker.url, cluster)).close()
        async with started("three") as watcher:
            with pytest.raises(LogMismatch, match=f"that log {log_id} was read up to record .* the broker has log .* delete their Leases"):
                async with asyncio.timeout(SOON):
                    await watcher.task
        await _delete(kube, "/apis/coordination.k8s.io/v1/namespaces/restow-system/leases/restow-cluster")
        async with started("four") as watcher:
            await watcher.leading()
            assert watcher.process.context.log.log_id != log_id


async def _delete(kube, path):
    import aiohttp

    async with aiohttp.ClientSession() as session, session.delete(kube.url + path) as response:
        assert response.status == 200


async def test_what_a_process_read_of_a_broken_log_is_not_what_the_next_one_is_to_find(own_broker):
    """Its mark was in the Lease, where nobody had left another one. Whoever started from the snapshot that has what is missing found that the log had lost records, put that on record, and so broke
    a log on which all went on."""
    cluster = unique_cluster()
    async with kubesim() as kube:
        await _post(kube, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}})
        for number in range(3):
            await _post(kube, "/api/v1/nodes", _node(f"n{number}"))

        def started(identity):
            return service(cluster_watcher(), own_broker, cluster, kube, lease="on", identity=identity, lease_duration=1)

        async with started("one") as watcher:
            await watcher.leading()
            await watcher.until(lambda state: len(state.nodes) == 3)
            await _post(kube, "/api/v1/nodes", _node("late"))
            await watcher.until(lambda state: "late" in state.nodes)
            whole = watcher.process.context.state
        await _delete(kube, "/apis/coordination.k8s.io/v1/namespaces/restow-system/leases/restow-cluster")
        log = await connect(own_broker.url, cluster, create=False)
        writer = await Writer(log).fold()
        assert writer.state.history.digest == whole.history.digest
        await log.close()
        await asyncio.to_thread(own_broker.stop)
        (block,) = own_broker.folder.glob("**/streams/restow-*/msgs/*.blk")
        data = bytearray(block.read_bytes())
        data[data.index(b'"n1"') + 2] ^= 1
        block.write_bytes(data)
        await own_broker.start_async()
        async with started("two") as watcher:
            await watcher.until(lambda state: state.broken)
            async with asyncio.timeout(SOON):
                while not await noted(kube, "cluster"):
                    await asyncio.sleep(0.02)
        log = await connect(own_broker.url, cluster, create=False)
        try:
            await (await open_snapshots(log)).put(Snapshot(log.log_id, writer.state.seq, FOLD_VERSION, snapshot.dump(writer.state)))
        finally:
            await log.close()
        async with started("three") as watcher:
            await watcher.leading()
            assert watcher.process.context.follower.broken == ""
            assert watcher.process.context.state.void["record.other_history"] == 0
