"""The HTTP server before and after the service has its own routes."""

import contextlib

import aiohttp
from prometheus_client import CollectorRegistry

from restow.runtime.health import Health
from restow.runtime.http import Route, Server, answer


async def plan(_request):
    return answer({"plan": "p-1"})


@contextlib.asynccontextmanager
async def serving(health):
    server = Server("descheduler", health, CollectorRegistry(), dict)
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
