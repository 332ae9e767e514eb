"""kubesim inside a test: `async with kubesim() as server: … server.url`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from restow.kubesim.server import Server


@asynccontextmanager
async def kubesim(**settings: Any) -> AsyncIterator[Server]:
    """A running server on a free port; `settings` are those of `Server` (options, controllers, clock, rng, …).

    `server.cluster.store` is the state, `server.cluster.faults` scripts failures.
    """
    server = Server(**settings)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()
