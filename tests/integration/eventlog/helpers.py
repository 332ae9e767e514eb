"""Small verbs that the event log's integration tests share."""

import asyncio
from contextlib import aclosing

from restow.eventlog.port import Conflict, Unavailable, Unknown
from restow.eventlog.testing import envelope

BODY = b'{"decisions":[]}'


async def until(condition, seconds=60.0):
    """Wait until `condition()` holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


async def take(log, from_seq, upto):
    """Every record from `from_seq` to `upto`."""
    records = []
    async with asyncio.timeout(60), aclosing(log.read(from_seq)) as batches:
        async for batch in batches:
            records += batch
            if records[-1].seq >= upto:
                return records
    raise AssertionError("a reader never ends by itself")


def follow(log, from_seq):
    """A task that reads for ever, and the list that it fills."""
    seen = []

    async def run():
        async for batch in log.read(from_seq):
            seen.extend(batch)

    return asyncio.create_task(run()), seen


async def end(task):
    """Cancel a follower and show any error that it had."""
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        pass


async def persist(log, ce_id):
    """What a service does: append until the commit is in the log, deciding again where it must.

    The place to append at is asked before the log is searched. A commit in doubt that comes true after the search has then moved the
    place, and the second one is refused; asked the other way round, it would be written twice.
    """
    searched = True
    while True:
        try:
            place = await log.last_of("session")
            if not searched:
                tail = await log.tail()
                found = [r.seq for r in await take(log, 1, tail) if r.envelope.id == ce_id] if tail else []
                if found:
                    return found[0]
            return await log.append("session", BODY, envelope(ce_id), expected_last=place)
        except (Unknown, Conflict, Unavailable):
            searched = False
            await asyncio.sleep(0.02)
