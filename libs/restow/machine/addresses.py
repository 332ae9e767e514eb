"""Of a name with several addresses the first one that is connected is taken."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

NEXT = 0.3
"""Seconds until the next address of a name is tried, too (RFC 8305, and as long as Go's clients wait): an address that answers nothing must not cost each connection its time."""

UNWANTED = 3.0
"""Seconds that an attempt which nobody waits for any more has to come to its end by itself."""

Address = TypeVar("Address")
Made = TypeVar("Made")


async def first_connected(addresses: Iterable[Address], connect: Callable[[Address], Awaitable[Made]], end: Callable[[Made], object]) -> Made:
    """Raises what the last attempt failed of. `end`: what to do with a connection that is made after another one."""
    left, failed = list(addresses), None
    trying: set[asyncio.Future[Made]] = set()
    try:
        while left or trying:
            if left:
                trying.add(asyncio.ensure_future(connect(left.pop(0))))
            done, trying = await asyncio.wait(trying, timeout=NEXT if left else None, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                if (failed := one.exception()) is None:
                    trying |= done - {one}
                    return one.result()
    finally:
        for one in trying:
            _unwanted(one, end)
    assert failed is not None
    raise failed


def _unwanted(connecting: asyncio.Future[Made], end: Callable[[Made], object]) -> None:
    """Nobody waits for it any more. Cancelled at once, while servers come and go, some fail in the same moment, and what they failed of is logged as an error that nobody
    has looked at. Most come to their end in no time; one that hears nothing is cancelled later."""
    cancels = asyncio.get_running_loop().call_later(UNWANTED, connecting.cancel)

    def ended(connecting: asyncio.Future[Made]) -> None:
        cancels.cancel()
        if not connecting.cancelled() and connecting.exception() is None:
            end(connecting.result())

    connecting.add_done_callback(ended)
