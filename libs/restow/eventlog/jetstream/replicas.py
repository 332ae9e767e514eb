"""How many copies the log has, and changing that while services run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from restow.eventlog.jetstream.connect import ApiError, NotNow
from restow.eventlog.jetstream.log import JetStreamLog
from restow.eventlog.jetstream.stream import NO_PEERS, NOT_FOUND, consumer_limits, too_few
from restow.eventlog.port import BrokerRefused, Unavailable

POLL = 0.3
"""Seconds between two looks whether the copies are there."""


async def set_replicas(log: JetStreamLog, count: int, told: Callable[[str], None], *, patience: float) -> None:
    """Give the log and its snapshots `count` copies, and wait until each is whole: at most `patience` seconds. `told` hears what is waited for. May be repeated.
    Raises Unavailable, BrokerRefused (Forbidden where this user may not)."""
    for stream in (f"restow-{log.cluster}", f"OBJ_restow-{log.cluster}"):
        info = await _info(log, stream)
        if info is None:
            continue
        if count > 1 and not (info.get("cluster") or {}).get("name"):
            # nats-server 2.12 would note the number, and services refuse to start on a log of another one than they are told.
            raise Unavailable(too_few(stream, count, "the broker is no member of a cluster"))
        # The limits, too, which a log that an earlier release has made lacks.
        wanted = {"num_replicas": count} | consumer_limits()
        if any((info["config"].get(key) or 1) != value for key, value in wanted.items()):
            await _update(log, stream, info["config"] | wanted, count)
        async with asyncio.timeout(patience):
            while missing := await _missing(log, stream, count):
                told(f"{stream}: {missing}")
                await asyncio.sleep(POLL)


async def _update(log: JetStreamLog, stream: str, config: dict[str, Any], count: int) -> None:
    try:
        await log.broker.api(f"STREAM.UPDATE.{stream}", config, timeout=30.0)
    except (ApiError, NotNow) as error:
        if error.err_code in NO_PEERS:
            raise Unavailable(too_few(stream, count, str(error))) from error
        if isinstance(error, NotNow):
            raise
        raise BrokerRefused(f"the broker refused to change stream {stream!r}: {error}") from error


async def _info(log: JetStreamLog, stream: str) -> dict[str, Any] | None:
    try:
        return await log.broker.api(f"STREAM.INFO.{stream}")
    except ApiError as error:
        if error.err_code == NOT_FOUND:
            return None
        raise BrokerRefused(f"the broker refused to show stream {stream!r}: {error}") from error


async def _missing(log: JetStreamLog, stream: str, count: int) -> str:
    """What is still to be done; empty where all copies are whole."""
    info = await _info(log, stream)
    cluster = (info or {}).get("cluster") or {}
    if count > 1 and not cluster.get("leader"):
        return "no broker leads it yet"
    others = cluster.get("replicas") or []
    whole = sum(1 for other in others if other.get("current"))
    return "" if len(others) == whole == count - 1 else f"{1 + whole} of {count} copies are whole"
