"""Long computations on a copy of the process: `fork` gives one of the whole state at a fixed sequence for a few
milliseconds, and the service's loop goes on (DESIGN 4)."""

import asyncio
import gc
import os
import signal
import traceback
from collections.abc import Callable
from contextlib import suppress

from restow import machine
from restow.domain.decider import said

LIMIT = 120.0
"""Seconds after which the copy is ended."""


class CopyFailed(RuntimeError):
    """The copy took too long, was ended from outside (killed for its memory), or could not be made (no memory or process was left). Asked again at once it would end the same way."""


class WorkFailed(RuntimeError):
    """What was asked of the copy has raised an error there. `why`: in one line; the whole traceback is its text."""

    def __init__(self, why: str, trace: str) -> None:
        self.why = why
        super().__init__(trace)


async def in_copy(work: Callable[[], bytes]) -> bytes:
    """`work()` of a copy of this process. It must only compute: no I/O, no threads, no event loop. Raises WorkFailed, CopyFailed."""
    if not machine.forks():
        await asyncio.sleep(0)
        return work()
    pid, reading = _forked(work)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(LIMIT):
            answer = await loop.run_in_executor(None, _read_all, reading)
    except TimeoutError:
        os.kill(pid, 9)
        raise CopyFailed(f"it took over {LIMIT:g} s") from None
    except BaseException:
        os.kill(pid, 9)
        raise
    finally:
        _, status = await loop.run_in_executor(None, os.waitpid, pid, 0)
    if os.WIFSIGNALED(status) or not answer:
        # Whatever it has said by then: half of an answer may be a snapshot, too.
        raise CopyFailed("its process was killed, most likely for its memory")
    if answer[:1] != b"+":
        why, _, trace = answer[1:].decode(errors="replace").partition("\n")
        raise WorkFailed(why, trace)
    return answer[1:]


def _forked(work: Callable[[], bytes]) -> tuple[int, int]:
    """The copy, and where its answer is read. Raises CopyFailed."""
    try:
        reading, writing = os.pipe()
    except OSError as error:
        raise CopyFailed(f"no copy of the process could be made: {error.strerror}") from error
    try:
        pid = os.fork()
    except OSError as error:
        os.close(reading)
        raise CopyFailed(f"no copy of the process could be made: {error.strerror}") from error
    else:
        if pid == 0:
            _child(work, writing)
        return pid, reading
    finally:
        os.close(writing)


def _child(work: Callable[[], bytes], writing: int) -> None:
    code = 0
    try:
        gc.disable()
        # Where nobody is left to end it.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 2 * LIMIT)
        _let_go(writing)
        answer = b"+" + work()
    except BaseException as error:
        answer, code = b"-" + f"{said(error)}\n{traceback.format_exc()}".encode(), 1
    try:
        view = memoryview(answer)
        while view:
            view = view[os.write(writing, view) :]
    finally:
        os._exit(code)


def _let_go(writing: int) -> None:
    """Of whatever this process has open, but for its answer and what it says: a connection that the service closes would stay open, and the port of one that was killed taken. Signals
    to the copy would wake its parent."""
    signal.set_wakeup_fd(-1)
    for name in os.listdir("/dev/fd"):
        if (number := int(name)) > 2 and number != writing:
            with suppress(OSError):
                os.close(number)


def _read_all(reading: int) -> bytes:
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read()
