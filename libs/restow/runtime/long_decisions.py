"""Decisions that are made on a copy of the process, because they may take longer than the loop may stall, or fail: which they are, how the log knows of them before they are made,
and how they are made."""

import asyncio
import traceback
from collections.abc import Callable
from typing import Any

import msgspec

from restow.contracts import commands as c
from restow.contracts.codec import Decision, decode, encode
from restow.contracts.ids import Millis
from restow.domain.decider import Faulty, Rejected
from restow.domain.state import ClusterState
from restow.runtime import logs
from restow.runtime.command_queue import Refused
from restow.runtime.offload import in_copy

LeaveOut = Callable[[Any, str, str], Any]
"""The command without one part of it that failed, and why that did."""


class Heavy(msgspec.Struct, frozen=True, kw_only=True):
    """One family's. `is_heavy` says whether a command is to be decided on a copy of the process; `bounded` is the command as it is made after others have failed, `leave_out` what is asked instead where a part of it fails;
    `begin` and `end` are the commands that put on record that it begins (None: it is not put on record), and that it came to nothing; `under_way` says of which command the state knows that it has begun and not ended, empty for none."""

    is_heavy: Callable[[c.Command], bool]
    bounded: Callable[[ClusterState, Any], Any]
    leave_out: LeaveOut
    begin: Callable[[ClusterState, Any], c.Command | None]
    end: Callable[[ClusterState, Millis, str, str, bool], c.Command]
    under_way: Callable[[ClusterState], str]
    note: Callable[[ClusterState, Millis], str]
    """Why such decisions are put off, made in a smaller way, or fail in part; empty while they are not."""


async def apart(work: Callable[[Any], bytes], command: c.Command, leave_out: LeaveOut) -> tuple[Any, bytes]:
    """`work(command)` of a copy of the process; where a part of it fails, of another copy and without that part. The command as it was decided, and the answer.
    Raises Rejected, WorkFailed, CopyFailed."""
    while True:
        said = await in_copy(_told(work, command))
        mark, body = said[:1], said[1:]
        if mark == b"-":
            raise Rejected(body.decode())
        if mark == b"+":
            return command, body
        part, why, trace = msgspec.json.decode(body, type=tuple[str, str, str])
        logs.get().error("a part of a decision failed, and is left out", part=part, reason=why, trace=trace)
        command = leave_out(command, part, why)


def _told(work: Callable[[Any], bytes], command: c.Command) -> Callable[[], bytes]:
    """What crosses from the copy: the answer, or why there is none."""

    def told() -> bytes:
        try:
            return b"+" + work(command)
        except Rejected as error:
            return b"-" + str(error).encode()
        except Faulty as fault:
            return b"!" + msgspec.json.encode((fault.part, fault.why, traceback.format_exc()))

    return told


async def decided_in_copy(propose: Callable[[c.Command], list[Decision]], command: c.Command, leave_out: LeaveOut, drains: asyncio.Event) -> list[Decision]:
    """What is decided of it on a copy of the process; each decision has the command as it was decided. Raises Rejected, WorkFailed, CopyFailed; Refused where this
    service is to stop."""
    made, stops = asyncio.ensure_future(apart(lambda one: encode(propose(one)), command, leave_out)), asyncio.ensure_future(drains.wait())
    try:
        await asyncio.wait({made, stops}, return_when=asyncio.FIRST_COMPLETED)
        if not made.done():
            raise Refused("this service is stopping")
        decided, body = made.result()
    finally:
        made.cancel()
        stops.cancel()
        await asyncio.gather(made, stops, return_exceptions=True)
    return [msgspec.structs.replace(d, command=decided) for d in decode(body)]
