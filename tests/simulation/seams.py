"""The machine that simulated programs run on: `restow.machine` answers from virtual time and one seed."""

import gc
import logging
import random
from functools import lru_cache

import aiohttp.connector
import structlog

from restow import machine
from restow.domain import trust
from simulation.loop import EPOCH, SimLoop, running


class SimMachine(machine.Machine):
    """Each process has its own wall clock; chance is one for all, and nothing forks."""

    forks = False

    def __init__(self, loop: SimLoop, seed: object) -> None:
        self._loop = loop
        self._chance = random.Random(f"machine {seed}")

    def wall(self) -> int:
        process = running()
        return int((EPOCH + self._loop.time() + (process.skew if process is not None else 0.0)) * 1e6) * 1000

    def steady(self) -> float:
        return 1000.0 + self._loop.time()

    def bits(self, count: int) -> int:
        return self._chance.getrandbits(count)


def install(loop: SimLoop, seed: object) -> None:
    """In the process of one seed, which ends with it. Logging is off: formatting would take a third of the time; and nothing is
    collected, because collecting runs the `finally` blocks of processes that were killed."""
    machine.use(SimMachine(loop, seed))
    # It asks the real clock how long a connection was idle: on a slow machine others were made anew.
    aiohttp.connector.monotonic = machine.steady
    # All services read the same commits: each is decoded for the first of them.
    trust.decode = lru_cache(maxsize=64)(trust.decode)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.disable()
