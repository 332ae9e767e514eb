"""The machine that simulated programs run on: `restow.machine` answers from virtual time and one seed."""

import asyncio
import gc
import logging
import random
from collections.abc import Callable
from typing import Any

import aiohttp.connector
import structlog

from restow import machine
from restow.contracts.envelope import Envelope
from restow.domain import record_trust
from restow.domain.record_trust import Examined
from simulation.loop import EPOCH, SimLoop, running


class SimMachine(machine.Machine):
    """Each process has its own wall clock; chance is one for all, and nothing forks."""

    forks = False

    def __init__(self, loop: SimLoop, seed: object) -> None:
        self._loop = loop
        self._chance = random.Random(f"machine {seed}")

    def wall(self) -> int:
        process = running()
        return int((EPOCH + self._loop._now + (process.skew if process is not None else 0.0)) * 1e6) * 1000

    def steady(self) -> float:
        return 1000.0 + self._loop._now

    def bits(self, count: int) -> int:
        return self._chance.getrandbits(count)


def _once(examine: Callable[..., Examined]) -> Callable[..., Examined]:
    """All services, and what judges them, read the same records: each is looked at for the first of them. What was found is frozen."""
    known: dict[tuple[int, str], tuple[Envelope, str, bytes, Examined]] = {}

    def examined(family: str, envelope: Envelope, body: bytes, log_id: str = "") -> Examined:
        seen = known.get((id(envelope), log_id))
        if seen is None or seen[0] is not envelope or seen[1] != family or seen[2] != body:
            seen = known[id(envelope), log_id] = envelope, family, body, examine(family, envelope, body, log_id)
        return seen[3]

    return examined


def _forgets(task: "asyncio.Task[Any]") -> None:
    pass


def install(loop: SimLoop, seed: object) -> None:
    """In the process of one seed, which ends with it. Logging is off: formatting would take a third of the time; and nothing is
    collected, because collecting runs the `finally` blocks of processes that were killed."""
    machine.use(SimMachine(loop, seed))
    # It asks the real clock how long a connection was idle: on a slow machine others were made anew.
    aiohttp.connector.monotonic = machine.steady
    record_trust.examine = _once(record_trust.examine)
    # Nobody asks which tasks there are. (The list is a weak set in Python; its name depends on the version.)
    for name in ("_all_tasks", "_scheduled_tasks"):
        if (tasks := getattr(asyncio.tasks, name, None)) is not None:
            tasks.add = _forgets
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
