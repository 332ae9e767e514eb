"""Breaks the stack on purpose while the demo plays: what must hold, must hold then, too.

Everything that is chosen is drawn from one seed. A service is killed about every `every` seconds. Mostly it is left alone
until it leads again, else a single target would never get to work; sometimes it is killed while it comes up.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from restow.cli.demo.observer import Observer
from restow.cli.embedded.stack import SERVICES, Stack

FAMILY = {
    "cluster_watcher": "cluster",
    "scheduler_session": "session",
    "reservation_cache": "reservation",
    "descheduler": "migration",
    "garbage_collector": "gc",
}

WHILE_STARTING = 0.2
"""How often a service that does not lead again yet is killed nevertheless."""

PATIENCE = 20.0
"""Seconds that are waited at most for a service to lead again."""


@dataclass
class Chaos:
    """`kills` counts by phase and victim (`defragment: descheduler`). `broker`: also kill it, once, during defragmentation."""

    seed: int
    every: float = 0.7
    targets: Sequence[str] = SERVICES
    broker: bool = False
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    @asynccontextmanager
    async def during(self, phase: str, stack: Stack, observer: Observer) -> AsyncIterator[None]:
        """Break things while the body runs."""
        tasks = [asyncio.create_task(self._kill_services(phase, stack, observer), name="chaos")] if self.targets else []
        if self.broker and phase == "defragment":
            tasks.append(asyncio.create_task(self._kill_broker(phase, stack), name="chaos for the broker"))
        try:
            yield
            for task in tasks:
                if task.done():
                    task.result()
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task

    async def _kill_services(self, phase: str, stack: Stack, observer: Observer) -> None:
        pause = self._random.uniform(0.05, 0.5) * self.every
        while True:
            await asyncio.sleep(pause)
            name = self._random.choice(list(self.targets))
            epoch = observer.state.leaders[FAMILY[name]].epoch
            if stack.children[name].pid is not None:
                stack.children[name].kill()
                self.kills[f"{phase}: {name}"] += 1
            pause = self._random.uniform(0.5, 1.5) * self.every
            if len(self.targets) == 1 and self._random.random() >= WHILE_STARTING:
                await self._leads_again(name, epoch, observer)
                pause /= 2

    async def _leads_again(self, name: str, epoch: int, observer: Observer) -> None:
        with suppress(TimeoutError):
            await observer.until("it leads again", lambda: observer.state.leaders[FAMILY[name]].epoch > epoch, PATIENCE)

    async def _kill_broker(self, phase: str, stack: Stack) -> None:
        await asyncio.sleep(self._random.uniform(0.0, self.every))
        stack.kill_broker()
        self.kills[f"{phase}: broker"] += 1

    def as_json(self) -> dict[str, Any]:
        return {"seed": self.seed, "kills": dict(sorted(self.kills.items()))}

    def sentence(self) -> str:
        total: Counter[str] = Counter()
        for key, count in self.kills.items():
            total[key.partition(": ")[2]] += count
        return f"{sum(total.values())} SIGKILLs (seed {self.seed}): " + ", ".join(f"{n} {name}" for name, n in sorted(total.items()))
