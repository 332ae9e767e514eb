"""Runs a reflector against a client. Everything worth testing is in the two; this is the wire between them."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Any

from restow import machine
from restow.kube.client import ApiStatus, Client
from restow.kube.reflector import Change, List, Reflector, Watch
from restow.kube.retry import Sleep


def monotonic() -> int:
    """Milliseconds that never go back."""
    return int(machine.steady() * 1000)


def half_jitter(wait: int) -> int:
    """Between a half and the whole of it."""
    return wait - int(wait * machine.share() / 2)


async def watch(
    client: Client,
    reflector: Reflector[Any],
    clock: Callable[[], int] = monotonic,
    sleep: Sleep = asyncio.sleep,
) -> AsyncGenerator[list[Change], None]:
    """Changes for ever, gathered as the network delivers them; close the generator to stop. `reflector.version` is what
    has been handed on when a list of changes is yielded."""
    while True:
        request = reflector.request(clock())
        if (wait := request.not_before - clock()) > 0:
            await sleep(wait / 1000)
        async with aclosing(_answers(client, reflector, request, clock)) as answers:
            async for changes in answers:
                if changes:
                    yield changes


async def _answers(
    client: Client, reflector: Reflector[Any], request: List | Watch, clock: Callable[[], int]
) -> AsyncGenerator[list[Change], None]:
    try:
        if isinstance(request, List):
            yield reflector.on_page(await client.list_page(reflector.collection, request.query, reflector.most), clock())
            return
        async with aclosing(client.watch_lines(reflector.collection, request.query)) as pieces:
            async for lines in pieces:
                now = clock()
                yield [change for line in lines for change in reflector.on_line(line, now)]
                if reflector.broken:
                    return
        yield reflector.on_end(clock())
    except ApiStatus as status:
        yield reflector.on_error(status.code, clock(), status.message, status.retry_after)
