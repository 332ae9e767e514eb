"""Three brokers, three replicas: the leader of the stream dies while services read and append."""

import asyncio
import shutil
import socket

import pytest

from restow.eventlog.server import temporary_server
from restow.eventlog.testing import envelope

from .helpers import BODY, end, follow, persist, until


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [s.getsockname()[1] for s in sockets]
    finally:
        for s in sockets:
            s.close()


@pytest.fixture
def three_servers():
    ports = free_ports(3)
    routes = ", ".join(f'"nats://127.0.0.1:{port}"' for port in ports)
    servers = [
        temporary_server(
            extra=f"server_name: n{number}\n"
            f"cluster {{ name: test, listen: 127.0.0.1:{port}, no_advertise: true, routes: [{routes}] }}"
        )
        for number, port in enumerate(ports)
    ]
    try:
        yield [server.start() for server in servers]
    finally:
        for server in servers:
            server.kill()
            shutil.rmtree(server.folder, ignore_errors=True)


@pytest.mark.slow
async def test_a_dead_leader_loses_and_repeats_nothing(three_servers, opened, cluster):
    urls = [server.url for server in three_servers]
    log = await opened(urls, cluster, replicas=3, append_timeout=2.0, wait=30.0)
    other = await opened(urls, cluster, replicas=3)
    reader, seen = follow(other, 1)

    async def writer():
        return [await persist(log, f"commit-{number}") for number in range(100)]

    writing = asyncio.create_task(writer())
    await until(lambda: len(seen) > 20, 60)
    info = await other.broker.api(f"STREAM.INFO.restow-{cluster}")
    leader = three_servers[int(info["cluster"]["leader"][1:])]
    await asyncio.to_thread(leader.kill)
    async with asyncio.timeout(120):
        sequences = await writing
    await until(lambda: len(seen) >= 100, 60)
    assert sequences == list(range(1, 101))
    assert [r.seq for r in seen] == sequences
    assert [r.envelope.id for r in seen] == [f"commit-{number}" for number in range(100)]
    assert await log.append("session", BODY, envelope(), expected_last=100) == 101
    await end(reader)
