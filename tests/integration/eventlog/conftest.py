"""The real broker, and a wire in front of it that can be cut."""

import asyncio
import contextlib

import pytest

from restow.eventlog.jetstream import connect
from restow.eventlog.testing import running_server, unique_cluster


@pytest.fixture(scope="session")
def nats_server():
    # Without fsync: a machine that runs other tests has a busy disk. `own_server`, which is killed, keeps it.
    with running_server(sync=False) as server:
        yield server


@pytest.fixture
def own_server():
    """A broker that this test alone may kill."""
    with running_server() as server:
        yield server


@pytest.fixture
def cluster():
    return unique_cluster()


@pytest.fixture
async def opened():
    """`connect`, closed at the end."""
    logs = []

    async def open_(url, cluster, **options):
        log = await connect(url, cluster, **options)
        logs.append(log)
        return log

    yield open_
    for log in logs:
        await log.close()


class Wire:
    """A TCP proxy. `deaf` discards what the broker says, `mute` what the client says; `cut` breaks all connections."""

    def __init__(self, port):
        self._port = port
        self._pairs = set()
        self.deaf = self.mute = False
        self.url = ""

    async def start(self):
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.url = f"nats://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def stop(self):
        self._server.close()
        self.cut()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    def cut(self):
        """Break every connection; later ones work."""
        self.deaf = self.mute = False
        for pair in self._pairs:
            pair.cancel()

    async def _accept(self, reader, writer):
        pair = asyncio.current_task()
        self._pairs.add(pair)
        upstream = None
        try:
            far_reader, upstream = await asyncio.open_connection("127.0.0.1", self._port)
            await asyncio.gather(
                self._pump(reader, upstream, lambda: self.mute), self._pump(far_reader, writer, lambda: self.deaf)
            )
        except (OSError, asyncio.CancelledError, EOFError):
            pass
        finally:
            self._pairs.discard(pair)
            for end in (writer, upstream):
                if end is not None:
                    end.close()
                    with contextlib.suppress(OSError):
                        await end.wait_closed()

    async def _pump(self, reader, writer, lost):
        while data := await reader.read(65536):
            if not lost():
                writer.write(data)
                await writer.drain()
        raise EOFError


@pytest.fixture
async def wire(nats_server):
    wire = await Wire(nats_server.port).start()
    yield wire
    await wire.stop()
