"""Decisions that may take longer than the loop may stall: which they are, how the log knows of them before they are made, and how they are made on a copy."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from restow.contracts import commands as c
from restow.contracts.codec import Decision, decode, encode
from restow.contracts.ids import Millis
from restow.domain.decider import Rejected
from restow.domain.state import ClusterState
from restow.runtime.command_queue import Refused
from restow.runtime.offload import in_copy


class Heavy(msgspec.Struct, frozen=True, kw_only=True):
    """One family's. `takes_long` says whether a command is to be decided on a copy of the process; `bounded` is the command as it is made after others have failed; `begin` and `end` are the commands that put on record that it begins,
    and that it came to nothing; `under_way` says of which command the state knows that it has begun and not ended, empty for none."""

    takes_long: Callable[[ClusterState, c.Command], bool]
    bounded: Callable[[ClusterState, Any], Any]
    begin: Callable[[ClusterState, Any], c.Command]
    end: Callable[[ClusterState, Millis, str, str, bool], c.Command]
    under_way: Callable[[ClusterState], str]
    note: Callable[[ClusterState, Millis], str]
    """Why such decisions are put off, or made in a smaller way; empty while they are not."""


async def decided_in_copy(propose: Callable[[Sequence[c.Command]], list[Decision]], commands: Sequence[c.Command], drains: asyncio.Event) -> list[Decision] | None:
    """What is decided of these on a copy of the process: a plan over many pods would stall the loop. None where one of them is rejected. Raises CopyFailed; Refused
    where this service is to stop."""

    def work() -> bytes:
        try:
            return encode(propose(commands))
        except Rejected:
            return b""

    copy, stops = asyncio.ensure_future(in_copy(work)), asyncio.ensure_future(drains.wait())
    try:
        await asyncio.wait({copy, stops}, return_when=asyncio.FIRST_COMPLETED)
        if not copy.done():
            raise Refused("this service is stopping")
        body = copy.result()
    finally:
        copy.cancel()
        stops.cancel()
        await asyncio.gather(copy, stops, return_exceptions=True)
    if not body:
        return None
    return [msgspec.structs.replace(d, command=mine) for d in decode(body) for mine in commands if mine == d.command]
