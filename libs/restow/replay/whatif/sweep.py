"""Many changes of one record side by side, in processes of their own, and which of them are worth a look."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager

import msgspec

from restow.contracts.ids import Millis
from restow.replay.source import Source
from restow.replay.state_at import Progress, ReplayError, no_progress
from restow.replay.whatif.answer import UNKNOWN, Begin, Change, Error, changed_world, error_of, run
from restow.replay.whatif.meter import Measured
from restow.replay.whatif.model import Ran
from restow.replay.whatif.reading import read
from restow.replay.whatif.recorded import Recorded


class Setting(msgspec.Struct, frozen=True, rename="camel"):
    """One of those to be tried: what it is called, by what is varied, and what is different."""

    name: dict[str, str]
    change: Change


class Tried(msgspec.Struct, rename="camel"):
    """`best`: no other one has as much value with fewer moves, or more with as many."""

    setting: dict[str, str]
    measured: Measured
    refused: list[str]
    best: bool = False


class Swept(msgspec.Struct, rename="camel"):
    """`tried`: in the order of the settings. `model`: under the recorded configuration."""

    name: str
    first: Millis
    last: Millis
    error: Error
    recorded: Measured
    model: Measured
    value: str
    tried: list[Tried]
    unknown: tuple[str, ...]
    seq: int = 0


VALUES: dict[str, Callable[[Measured], float]] = {
    "waited": lambda one: -one.waited_hours,
    "waited-gpu": lambda one: -one.waited_gpu_hours,
    "free-devices": lambda one: one.mean_free_devices,
}
"""What may be set against moves; more is better."""


def sweep(source: Source, settings: Sequence[Setting], value: str, jobs: int, progress: Progress = no_progress, begin: Begin = Begin()) -> Swept:
    """Read the log, and run the model as recorded and once for each setting, `jobs` at a time; the answer is the same for any number of them. Raises ReplayError."""
    recorded = read(source, begin.stretch, begin.state)
    for setting in settings:
        changed_world(recorded, setting.change)
    same, *others = _all(recorded, [Change(), *(setting.change for setting in settings)], jobs, progress)
    tried = [Tried(setting.name, ran.measured, ran.refused) for setting, ran in zip(settings, others, strict=True)]
    for one, best in zip(tried, front([(VALUES[value](one.measured), one.measured.moves) for one in tried]), strict=True):
        one.best = best
    return Swept(recorded.name, recorded.first, recorded.last, error_of(recorded, same), recorded.happened, same.measured, value, tried, UNKNOWN, recorded.seq)


def front(points: Sequence[tuple[float, int]]) -> list[bool]:
    """Of (value, moves) pairs which are on the Pareto front: more value, fewer moves. Equal ones all are."""
    return [not any(other[0] >= one[0] and other[1] <= one[1] and other != one for other in points) for one in points]


def _all(recorded: Recorded, changes: Sequence[Change], jobs: int, progress: Progress) -> list[Ran]:
    """One for each, in this order."""
    if jobs == 1 or len(changes) == 1:
        found = []
        for change in changes:
            found.append(run(recorded, change))
            progress(len(found), len(changes))
        return found
    # A process begins with nothing of ours (`spawn`): the log may have a thread that reads it, which no fork survives.
    pool = ProcessPoolExecutor(min(jobs, len(changes)), multiprocessing.get_context("spawn"), _begin, (recorded,))
    try:
        with _uninterrupted():
            futures = [pool.submit(_run, change) for change in changes]
        for done, future in enumerate(as_completed(futures), 1):
            future.result()
            progress(done, len(changes))
        return [future.result() for future in futures]
    except BrokenProcessPool:
        raise ReplayError("a process of the sweep has ended before it was done, perhaps for want of memory: try fewer at once (--jobs)") from None
    finally:
        # All have ended, or nobody wants what they do.
        for process in multiprocessing.active_children():
            process.kill()
        pool.shutdown(cancel_futures=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Ctrl-C waits, or a process that is just begun would be lost; and those that are begun meanwhile never hear of it, for a terminal tells all of them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = threading.Event()
    # Both: what is blocked here is blocked in who is begun here, and another thread of ours may take the signal all the same.
    handler = signal.signal(signal.SIGINT, lambda *_: heard.set())
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, handler or signal.SIG_DFL)
    if heard.is_set():
        raise KeyboardInterrupt


_recorded: Recorded
"""Of this process."""


def _begin(recorded: Recorded) -> None:
    global _recorded
    _recorded = recorded
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    """Who was killed has not told us, and a process that waits for work would wait for ever."""
    if (parent := multiprocessing.parent_process()) is not None:
        parent.join()
        os._exit(1)


def _run(change: Change) -> Ran:
    return run(_recorded, change)
