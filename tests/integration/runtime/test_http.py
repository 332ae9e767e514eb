"""The HTTP server before and after the service has its own routes."""

import asyncio
import contextlib
import os
import socket

import aiohttp
from prometheus_client import CollectorRegistry, Gauge

from restow import machine
from restow.runtime.health import Health
from restow.runtime.http import Route, Server, answer
from restow.runtime.http_bounds import CONNECTIONS, OLDEST, Reused


async def plan(_request):
    return answer({"plan": "p-1"})


@contextlib.asynccontextmanager
async def serving(health, registry=None):
    server = Server("descheduler", health, registry or CollectorRegistry(), dict)
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession(server.address) as session:
            yield server, session
    finally:
        await server.stop()


async def test_a_service_that_starts_asks_its_callers_to_come_back_and_never_says_that_its_routes_do_not_exist():
    health = Health()
    health.checks.append(lambda: "waiting for the broker")
    async with serving(health) as (server, session):
        async with session.post("/defragment", json={}) as early:
            assert (early.status, early.headers["Retry-After"]) == (503, "1")
            assert await early.json() == {"error": "not ready: waiting for the broker"}
        async with session.get("/livez") as alive:
            assert alive.status == 200
        server.extend([Route("POST", "/defragment", "Make a plan", plan, {200: "the plan"})])
        async with session.post("/defragment", json={}) as answered:
            assert (answered.status, await answered.json()) == (200, {"plan": "p-1"})
        async with session.post("/defragmentation", json={}) as unknown:
            assert unknown.status == 404
            assert "allowed: /livez" in (await unknown.json())["error"]


async def test_connections_that_ask_nothing_keep_nobody_away_and_no_file_descriptors():
    opened = []
    async with serving(Health()) as (server, session):
        host, _, port = server.address.removeprefix("http://").rpartition(":")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3 * CONNECTIONS):
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"GET /livez HTTP/1.1\r\nHost: ")
            opened.append((reader, writer))
        async with session.get("/livez") as alive:
            assert alive.status == 200
        ended = await asyncio.gather(*(_ended(reader) for reader, _ in opened))
        assert (sum(ended), ended[-1]) == (2 * CONNECTIONS + 1, False)
        # Ours, and the server's ends of those that it has kept.
        assert len(os.listdir("/proc/self/fd")) - before <= 3 * CONNECTIONS + CONNECTIONS + 2
        for _, writer in opened:
            writer.close()


async def test_connections_that_read_no_answer_are_ended_too():
    """What they were sent and do not take would be kept for them for ever, and their file descriptors with it."""
    registry, loop = CollectorRegistry(), asyncio.get_running_loop()
    series = Gauge("place", "Where", ("node",), registry=registry)
    for node in range(500):
        series.labels(f"node-{node}").set(1)
    opened = []
    async with serving(Health(), registry) as (server, session):
        host, _, port = server.address.removeprefix("http://").rpartition(":")
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(2 * CONNECTIONS):
            ours = socket.socket()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            ours.setblocking(False)
            await loop.sock_connect(ours, (host, int(port)))
            await loop.sock_sendall(ours, b"GET /metrics HTTP/1.1\r\nHost: s\r\n\r\n" * 200)
            opened.append(ours)
        async with session.get("/livez") as alive:
            assert alive.status == 200
        await asyncio.sleep(0.2)
        assert len(os.listdir("/proc/self/fd")) - before <= 2 * CONNECTIONS + CONNECTIONS + 2
        for ours in opened:
            ours.close()


async def _ended(reader):
    try:
        async with asyncio.timeout(0.5):
            return await reader.read() == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


async def test_what_is_being_answered_is_not_ended_by_whoever_opens_connections():
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_request):
        asked.set()
        await go_on.wait()
        return answer({"plan": "p-1"})

    async with serving(Health()) as (server, session):
        server.extend([Route("GET", "/plan", "A plan", slow, {200: "the plan"})])
        waiting = asyncio.create_task(session.get("/plan"))
        await asked.wait()
        host, _, port = server.address.removeprefix("http://").rpartition(":")
        opened = [await asyncio.open_connection(host, int(port)) for _ in range(2 * CONNECTIONS)]
        go_on.set()
        async with await waiting as answered:
            assert await answered.json() == {"plan": "p-1"}
        for _, writer in opened:
            writer.close()


def test_an_answer_that_is_asked_for_again_and_again_takes_a_twentieth_of_the_time(monkeypatch):
    now = 0.0
    monkeypatch.setattr(machine, "steady", lambda: now)
    made = []

    def make():
        nonlocal now
        made.append(now)
        now += 0.01
        return b"%d" % len(made)

    numbers, said = Reused(make), set()
    while now < 10:
        said.add(numbers())
        now += 0.001
    assert 45 <= len(made) == len(said) <= 50


def test_an_answer_that_took_long_is_not_shown_for_minutes(monkeypatch):
    """The process may have been stopped while it was made."""
    now, made = 0.0, []
    monkeypatch.setattr(machine, "steady", lambda: now)

    def make():
        nonlocal now
        now += 60
        made.append(now)
        return b""

    numbers = Reused(make)
    numbers()
    now += OLDEST
    numbers()
    assert len(made) == 2
