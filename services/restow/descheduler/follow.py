"""A plan's progress as a stream of JSON lines: whoever follows it is told when something changes, and nobody polls."""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from restow.contracts.ids import PlanId
from restow.domain.planview import MigrationView, PlanView, migrations_of, plan_view
from restow.runtime.service import Context

MOST = 32
"""Streams at once."""
CONTENT = "application/x-ndjson"
TOGETHER = 0.1
"""Seconds in which changes are gathered into one line."""
SILENCE = 15.0
"""Seconds after which an empty line says that the stream lives."""

Write = Callable[[bytes], Awaitable[None]]


class Line(msgspec.Struct, frozen=True):
    """`migrations` are all of the plan's in the first line, then those that have changed."""

    seq: int
    plan: PlanView
    migrations: list[MigrationView]


class Followers:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._streams: set[asyncio.Task] = set()

    @property
    def full(self) -> bool:
        return len(self._streams) >= MOST

    async def run(self) -> None:
        """Until the service stops; then streams end at once, so that nothing waits for their clients."""
        try:
            await asyncio.Event().wait()
        finally:
            for stream in self._streams:
                stream.cancel()

    async def stream(self, request: web.Request, plan: PlanId) -> web.StreamResponse:
        """Until the plan is over, the client goes, or the service stops. The plan is known."""
        response = web.StreamResponse(headers={"Content-Type": CONTENT, "Cache-Control": "no-store"})
        task = asyncio.current_task()
        assert task is not None, "a handler is a task"
        self._streams.add(task)
        try:
            await response.prepare(request)
            await self._tell(response.write, plan)
            await response.write_eof()
        except ConnectionError:
            pass  # It went; the plan goes on without it.
        finally:
            self._streams.discard(task)
        return response

    async def _tell(self, write: Write, plan: PlanId) -> None:
        told: dict[str, MigrationView] = {}
        decided = -1
        while True:
            state = self._context.state
            seq, latest = state.seq, state.last["migration"]
            if latest != decided:
                decided, view = latest, plan_view(state, plan)
                if view is None:
                    return
                now = migrations_of(state, plan)
                changed = [m for m in now if told.get(m.id) != m]
                if changed or not told or view.over:
                    await write(msgspec.json.encode(Line(seq, view, changed)) + b"\n")
                    told = {m.id: m for m in now}
                if view.over:
                    return
                await asyncio.sleep(TOGETHER)
            await self._change(write, seq)

    async def _change(self, write: Write, seq: int) -> None:
        """Wait for another fold."""
        while True:
            try:
                async with asyncio.timeout(SILENCE):
                    return await self._context.follower.folded.reached(seq + 1)
            except TimeoutError:
                await write(b"\n")
