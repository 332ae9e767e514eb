"""Two collectors and one bucket: the leader is killed, and the other one goes on archiving in the same chain."""

import asyncio
import os
import sys
import time
from contextlib import aclosing

import aiohttp
import pytest
from domain.build import node
from s3_server import BINARY, LACKING, S3Server

from restow.eventlog import archive
from restow.eventlog.archive import open_archive
from restow.eventlog.jetstream import connect
from restow.eventlog.testing import running_server
from restow.kubesim.testing import kubesim

from .rig import facts

pytestmark = pytest.mark.skipif(BINARY is None, reason=LACKING)

SOON = 120.0
CLUSTER = "failover"


class Collector:
    """One garbage_collector as a process, which leads or stands by with a Lease."""

    def __init__(self, identity, folder):
        self.identity, self._published, self.process = identity, folder / f"{identity}.http", None

    async def start(self, settings):
        settings = settings | {"RESTOW_HTTP_FILE": str(self._published), "RESTOW_IDENTITY": self.identity}
        program = [sys.executable, "-m", "restow.runtime.main", "garbage_collector"]
        self.process = await asyncio.create_subprocess_exec(*program, env=os.environ | settings)
        return self

    async def leads(self, session):
        try:
            async with session.get(self._published.read_text() + "/state") as response:
                return (await response.json()).get("phase") == "leading"
        except (OSError, aiohttp.ClientError):
            return False

    async def ready(self, session):
        async with asyncio.timeout(SOON):
            while True:
                try:
                    async with session.get(self._published.read_text() + "/readyz") as response:
                        if response.status == 200:
                            return
                except (OSError, aiohttp.ClientError):
                    pass
                await asyncio.sleep(0.05)

    async def kill(self):
        if self.process.returncode is None:
            self.process.kill()
        await self.process.wait()


async def leader_of(collectors, session):
    async with asyncio.timeout(SOON):
        while True:
            for one in collectors:
                if await one.leads(session):
                    return one
            await asyncio.sleep(0.02)


async def archived_to(last, address):
    """Until the archive, as another process sees it, ends there or later."""
    async with asyncio.timeout(SOON):
        while True:
            archive._connected.cache_clear()
            if archive.covered(address, 1) >= last:
                return
            await asyncio.sleep(0.05)


@pytest.fixture
def server(tmp_path):
    one = S3Server(tmp_path / "s3" / "data").start()
    one.bucket("restow-backups")
    yield one
    one.stop()
    archive._connected.cache_clear()


async def test_a_leader_that_is_killed_is_followed_by_the_other_in_the_same_chain(server, tmp_path, monkeypatch):
    for name, value in server.environment().items():
        monkeypatch.setenv(name, value)
    (tmp_path / "gc.yaml").write_text("snapshotEvery: 10\n")
    address, killed = f"s3://restow-backups/eu/{CLUSTER}", []
    with running_server() as broker:
        async with kubesim() as kube, aiohttp.ClientSession() as session:
            async with session.post(f"{kube.url}/api/v1/namespaces", json={"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restow-system"}}) as made:
                assert made.status < 300
            settings = {
                "RESTOW_NATS_URL": broker.url, "RESTOW_KUBE": kube.url, "RESTOW_HTTP": "127.0.0.1:0", "RESTOW_LOG_LEVEL": "warning", "RESTOW_CLUSTER": CLUSTER,
                "RESTOW_CONFIG": str(tmp_path / "gc.yaml"), "RESTOW_ARCHIVE": "s3://restow-backups/eu",
            }  # fmt: skip
            log = await connect(broker.url, CLUSTER)
            collectors = [await Collector(f"collector-{number}", tmp_path).start(settings) for number in range(2)]
            try:
                for number in range(3):
                    for one in collectors:
                        await one.ready(session)
                    leader = await leader_of(collectors, session)
                    tail = 0
                    for each in range(25):
                        tail = await facts(log, node(f"n{number}-{each}"))
                    await archived_to(tail - 10, address)
                    # It may be in the middle of anything.
                    for each in range(25):
                        tail = await facts(log, node(f"m{number}-{each}"))
                    await leader.kill()
                    began = time.monotonic()
                    killed.append(leader.identity)
                    for each in range(25):
                        tail = await facts(log, node(f"o{number}-{each}"))
                    await archived_to(tail - 10, address)
                    print(f"archived {time.monotonic() - began:.1f} s after the kill")
                    leader._published.unlink()
                    await leader.start(settings)
            finally:
                for one in collectors:
                    await one.kill()
            archive._connected.cache_clear()
            found = open_archive(address, log_id=log.log_id)
            records = []
            async with aclosing(log.read(1)) as batches:
                async for batch in batches:
                    records += batch
                    if records[-1].seq >= found.last:
                        break
            assert [(r.seq, r.family, r.body) for r in found.records()] == [(r.seq, r.family, r.body) for r in records if r.seq <= found.last]
            assert set(killed) == {one.identity for one in collectors}
            chains = {file.parent.name for file in (server.folder / "restow-backups" / "eu" / CLUSTER).rglob("*.jsonl.zst")}
            assert chains == {"chain-0001"}
            await log.close()
