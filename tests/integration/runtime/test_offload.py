"""A copy of the process: what it says, what it lets go, and what becomes of one that cannot be made, or is killed."""

import asyncio
import os
import signal
import socket
import sys

import pytest

from restow.runtime.offload import CopyFailed, in_copy

from .rig import soon


async def test_half_of_an_answer_of_a_copy_that_was_killed_is_none(monkeypatch):
    """It may be a snapshot: half of one was stored, by a collector whose copy was killed for its memory while it answered."""
    write = os.write

    def killed(to, view):
        write(to, bytes(view[:1_000]))
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(os, "write", killed)
    with pytest.raises(CopyFailed, match="its process was killed, most likely for its memory"):
        await soon(in_copy(lambda: bytes(1_000_000)))


@pytest.mark.parametrize("lacks", ["fork", "pipe"])
async def test_where_no_copy_can_be_made_that_is_said_and_nothing_stays_open(monkeypatch, lacks):
    """A container may have no process, no memory or no file left. Each plan ended the descheduler there."""

    def none():
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = len(os.listdir("/dev/fd"))
    monkeypatch.setattr(os, lacks, none)
    with pytest.raises(CopyFailed, match="no copy of the process could be made: Resource temporarily unavailable"):
        await in_copy(bytes)
    assert len(os.listdir("/dev/fd")) == before


async def test_a_copy_keeps_no_connection_open_that_its_service_closes_and_no_port(tmp_path):
    """Who reads until the end of an answer waited for the plan of somebody else; and who starts in place of one that was killed found its port taken."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        accepted, _ = server.accept()
        # It ends when somebody writes there.
        copy = asyncio.ensure_future(in_copy(fifo.read_bytes))
        await asyncio.sleep(0.1)
        accepted.close()
        client.settimeout(5)
        assert await asyncio.to_thread(client.recv, 1) == b""
        await asyncio.to_thread(fifo.write_bytes, b"x")
        assert await soon(copy) == b"x"


async def test_a_copy_whose_service_was_killed_ends(tmp_path):
    """A plan that comes to no end took all of a CPU for ever, beside those of the service that was started again."""
    alive = tmp_path / "alive"
    os.mkfifo(alive)
    program = f"""
import asyncio, os, signal
from restow.runtime import offload
offload.LIMIT = 0.5
def endless():
    os.open({str(alive)!r}, os.O_WRONLY)
    while True:
        pass
async def killed():
    asyncio.get_running_loop().call_later(0.2, os.kill, os.getpid(), signal.SIGKILL)
    await offload.in_copy(endless)
asyncio.run(killed())
"""
    service = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    # It ends with the last that has it open.
    assert await soon(asyncio.to_thread(alive.read_bytes)) == b""
    assert await soon(service.wait()) == -signal.SIGKILL
