"""One event loop for many simulated processes, on virtual time.

Each callback belongs to the process that its context names. So a process can be killed as by SIGKILL (none of its callbacks
runs again: no `finally`, no `except`), stopped as by SIGSTOP (they wait), and has a clock of its own. When nothing is left to do
now, the clock jumps to the next timer.
"""

import asyncio
import contextvars
import heapq
import itertools
import random
from asyncio import format_helpers
from collections import deque
from collections.abc import Callable
from typing import Any

EPOCH = 1_767_225_600
"""Seconds: simulated time begins on 2026-01-01."""

SPIN = 400_000
"""Callbacks at one instant of virtual time. A relist of a thousand pods takes some thousands."""


class Process:
    """One run of one simulated process."""

    def __init__(self, name: str, skew: float = 0.0) -> None:
        self.name = name
        self.skew = skew
        """Seconds by which its wall clock is ahead."""
        self.dead = self.paused = False
        self.held: deque[asyncio.Handle] = deque()
        self.ran = 0
        self.kill_at: int | None = None
        """It dies before this one of its callbacks: between any two awaits."""
        self.on_kill: Callable[[], None] | None = None
        self.connections: dict[Any, None] = {}
        self.grave: list[Any] = []
        """What a dead process still holds: were it let go, Python would run `finally` blocks."""

    def context(self) -> contextvars.Context:
        """A context whose callbacks are this process's."""
        context = contextvars.copy_context()
        context.run(_process.set, self)
        context.run(caller.set, "")
        return context

    def __repr__(self) -> str:
        return self.name


_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)

caller: contextvars.ContextVar[str] = contextvars.ContextVar("caller", default="")
"""Inside a server: whose request this is."""


def running() -> Process | None:
    """The process whose callback runs now."""
    return _process.get()


class Spin(RuntimeError):
    """Virtual time does not move: something goes round without ever waiting."""


class Stuck(RuntimeError):
    """Nothing is left to do, and the simulation has not ended."""


class _Task(asyncio.Task):
    """Its hash is the number of its making: sets of tasks are gone through in one order in every run."""

    number = 0

    def __hash__(self) -> int:
        return self.number


class _Future(asyncio.Future):
    number = 0

    def __hash__(self) -> int:
        return self.number


class _Handle(asyncio.Handle):
    """Made without a question about debugging: there are hundreds in each simulated second."""

    __slots__ = ()

    def __init__(self, callback: Any, args: Any, loop: Any, context: contextvars.Context | None) -> None:
        self._context = contextvars.copy_context() if context is None else context
        self._loop, self._callback, self._args = loop, callback, args
        self._cancelled, self._repr, self._source_traceback = False, None, None

    def cancel(self) -> None:
        if not self._cancelled:
            self._cancelled, self._callback, self._args = True, None, None


class _TimerHandle(_Handle, asyncio.TimerHandle):
    __slots__ = ()
    _scheduled = False


class SimLoop(asyncio.BaseEventLoop):
    """The loop. `problems`: what reached nobody (an exception in a callback of a living process)."""

    def __init__(self, seed: object) -> None:
        super().__init__()
        self._now = 0.0
        self.chance = random.Random(f"network {seed}")
        self.latency = (0.0002, 0.002)
        """Seconds from one process to another: least, most."""
        self.listeners: dict[int, Any] = {}
        self.cut: Callable[[], float | None] = lambda: None
        """Asked at each write of a client: after how many seconds its connection is reset, if at all."""
        self.ran = 0
        self.problems: list[str] = []
        self.finished = False
        self._numbers = itertools.count(1)
        self.ports = itertools.count(20_001)
        self._here = 0
        self.spin = SPIN
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        """The base class compares handles, which takes longer and leaves ties open."""
        self.set_task_factory(self._make_task)
        self.set_exception_handler(self._unhandled)

    def time(self) -> float:
        return self._now

    def get_debug(self) -> bool:
        return False

    def _make_task(self, loop: asyncio.AbstractEventLoop, coro: Any, **more: Any) -> asyncio.Task[Any]:
        task = _Task(coro, loop=loop, **more)
        task.number = next(self._numbers)
        return task

    def create_future(self) -> asyncio.Future[Any]:
        future = _Future(loop=self)
        future.number = next(self._numbers)
        return future

    def _unhandled(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        process = running()
        if self.finished or (process is not None and process.dead):
            return
        error = context.get("exception")
        self.problems.append(f"{process}: {context.get('message')} {type(error).__name__ if error else ''} {error or ''}".rstrip())

    # -- callbacks -----------------------------------------------------------------------------------------------------

    def call_soon(self, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.Handle:
        # As the base class does it, without its questions about threads and debugging.
        handle = _Handle(callback, args, self, _without_caller() if context is None else context)
        self._ready.append(handle)
        return handle

    def call_later(self, delay: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Any, *args: Any, context: contextvars.Context | None = None) -> asyncio.TimerHandle:
        handle = _TimerHandle(callback, args, self, _without_caller() if context is None else context)
        handle._when = when
        heapq.heappush(self._timers, (when, next(self._numbers), handle))
        return handle

    def outside(self, delay: float, callback: Any, *args: Any) -> asyncio.TimerHandle:
        """`call_later` for the simulator itself: in no process."""
        return self.call_later(delay, callback, *args, context=contextvars.Context())

    def _run_once(self) -> None:
        timers, ready = self._timers, self._ready
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise Stuck(f"nothing is left to do at {self._now:.3f} s")
            if timers[0][0] > self._now:
                self._now, self._here = timers[0][0], 0
        end = self._now + 1e-9
        while timers and timers[0][0] <= end:
            ready.append(heapq.heappop(timers)[2])
        self._here += len(ready)
        if self._here > self.spin:
            raise Spin(f"{self._here} callbacks at {self._now:.3f} s; the last: {[repr(handle) for handle in list(ready)[:3]]}")
        take, may_run = ready.popleft, self._may_run
        for _ in range(len(ready)):
            handle = take()
            if handle._cancelled:
                continue
            process = handle._context.get(_process)
            if process is None or may_run(process, handle):
                self.ran += 1
                try:
                    handle._context.run(handle._callback, *handle._args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:
                    handle._context.run(self._raised, handle, error)

    def _raised(self, handle: asyncio.Handle, error: BaseException) -> None:
        called = format_helpers._format_callback_source(handle._callback, handle._args)
        self.call_exception_handler({"message": f"Exception in callback {called}", "exception": error, "handle": handle})

    def _may_run(self, process: Process, handle: asyncio.Handle) -> bool:
        """Whether its process lives, and does not stand still."""
        if process.dead:
            process.grave.append(handle)
            return False
        if process.paused:
            process.held.append(handle)
            return False
        process.ran += 1
        if process.kill_at is not None and process.ran >= process.kill_at:
            process.grave.append(handle)
            self.kill(process)
            return False
        return True

    # -- processes -----------------------------------------------------------------------------------------------------

    def kill(self, process: Process) -> None:
        """SIGKILL: its connections are reset for the others, its supervisor hears of it."""
        if process.dead:
            return
        process.dead = True
        process.grave.extend(process.held)
        process.held.clear()
        for connection in list(process.connections):
            connection.reset(by=process)
        if process.on_kill is not None:
            self.call_soon(process.on_kill, context=contextvars.Context())

    def pause(self, process: Process) -> None:
        """SIGSTOP."""
        process.paused = True

    def resume(self, process: Process) -> None:
        """SIGCONT: what waited runs now, in its order."""
        process.paused = False
        self._ready.extend(process.held)
        process.held.clear()

    # -- what a loop on sockets and threads would do -------------------------------------------------------------------

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        """Not remembered: the loop ends with its process, and shuts nothing down."""

    def add_signal_handler(self, sig: int, callback: Any, *args: Any) -> None:
        pass

    def remove_signal_handler(self, sig: int) -> bool:
        return True

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:
        """No threads: the work is done a moment later, in one step."""
        future = self.create_future()

        def work() -> None:
            if future.cancelled():
                return
            try:
                answer = func(*args)
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(answer)

        self.call_later(0.0005, work)
        return future

    def lag(self) -> float:
        """Seconds that the next thing sent is under way."""
        low, high = self.latency
        return low + (high - low) * self.chance.random()

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_more: Any) -> Any:
        from simulation.network import Listener

        return Listener(self, protocol_factory, host or "0.0.0.0", port or next(self.ports))


def _without_caller() -> contextvars.Context | None:
    """What is left for later inside a request is the server's own work, no longer its caller's."""
    if not caller.get():
        return None
    context = contextvars.copy_context()
    context.run(caller.set, "")
    return context
