"""A bucket whose server takes connections and never answers: whoever asks it in a thread stops all the same when it is told to."""

import asyncio
import os
import signal
import sys
import time

import aiohttp
from domain.build import node

from restow.eventlog.jetstream import connect
from restow.eventlog.testing import running_server
from restow.kubesim.testing import kubesim
from restow.runtime.process import THREADS_END

from .rig import facts

CLUSTER = "hanging"
SOON = 60.0


async def test_a_collector_whose_bucket_hangs_stops_when_it_is_told_to(tmp_path):
    """It took 57 s; a kubelet kills after 30, and compose after ten."""
    asked = asyncio.Event()

    async def silent(reader, writer):
        await reader.read(1)
        asked.set()
        await asyncio.sleep(3_600)

    config, published = tmp_path / "gc.yaml", tmp_path / "gc.http"
    config.write_text("snapshotEvery: 10\n")
    bucket = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = bucket.sockets[0].getsockname()[1]
    with running_server(sync=False) as broker:
        async with kubesim() as kube, aiohttp.ClientSession() as session:
            settings = {
                "RESTOW_NATS_URL": broker.url, "RESTOW_KUBE": kube.url, "RESTOW_HTTP": "127.0.0.1:0", "RESTOW_HTTP_FILE": str(published), "RESTOW_CLUSTER": CLUSTER, "RESTOW_LEASE": "off",
                "RESTOW_CONFIG": str(config), "RESTOW_ARCHIVE": "s3://backups", "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}", "AWS_ALLOW_HTTP": "true", "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b",
            }  # fmt: skip
            collector = await asyncio.create_subprocess_exec(sys.executable, "-m", "restow.runtime.main", "garbage_collector", env=os.environ | settings)
            try:
                async with asyncio.timeout(SOON):
                    while not await ready(session, published):
                        await asyncio.sleep(0.05)
                log = await connect(broker.url, CLUSTER)
                for number in range(20):
                    await facts(log, node(f"n{number}"))
                await log.close()
                await asyncio.wait_for(asked.wait(), SOON)
                began = time.monotonic()
                collector.send_signal(signal.SIGTERM)
                assert await asyncio.wait_for(collector.wait(), SOON) == 0
                assert time.monotonic() - began < THREADS_END + 10
            finally:
                if collector.returncode is None:
                    collector.kill()
                    await collector.wait()
                bucket.close()


async def ready(session, published):
    try:
        async with session.get(published.read_text() + "/readyz") as answer:
            return answer.status == 200
    except (OSError, aiohttp.ClientError):
        return False
