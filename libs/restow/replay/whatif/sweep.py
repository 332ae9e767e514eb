"""Many changes of one record side by side, in processes of their own, and which of them are worth a look."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed

import msgspec

from restow.contracts.ids import Millis
from restow.replay.source import Source
from restow.replay.state_at import Progress, no_progress
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
    """One for each, in this order. A process begins with nothing of ours (`spawn`): the log may have a thread that reads it, which no fork survives."""
    found: list[Ran | None] = [None] * len(changes)
    if jobs == 1:
        for at, change in enumerate(changes):
            found[at] = run(recorded, change)
            progress(at + 1, len(changes))
    else:
        with ProcessPoolExecutor(min(jobs, len(changes)), multiprocessing.get_context("spawn"), _begin, (recorded,)) as pool:
            numbers = {pool.submit(_run, change): at for at, change in enumerate(changes)}
            for done, future in enumerate(as_completed(numbers), 1):
                found[numbers[future]] = future.result()
                progress(done, len(changes))
    return [ran for ran in found if ran is not None]


_recorded: Recorded
"""Of this process."""


def _begin(recorded: Recorded) -> None:
    global _recorded
    _recorded = recorded


def _run(change: Change) -> Ran:
    return run(_recorded, change)
