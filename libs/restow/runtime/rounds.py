"""What a service does now and then while it leads."""

import asyncio
from collections.abc import Awaitable, Callable

AT_FIRST = 5.0
"""Seconds until the first time, and between two questions whether it can be: what others owe has been done by then."""


async def now_and_then(may: Callable[[], bool], do: Callable[[], Awaitable[object]], every: float) -> None:
    """For ever: soon, as soon as it `may`, and then each `every` seconds."""
    pause = AT_FIRST
    while True:
        await asyncio.sleep(pause)
        if may():
            await do()
            pause = every
        else:
            pause = AT_FIRST
