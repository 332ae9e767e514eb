"""Breaks the stack on purpose while the demo plays: what must hold, must hold then, too.

Everything that is chosen is drawn from one seed. Either a random service is killed about every `every` seconds: mostly one
that leads (else nothing would ever get done on a slow machine), sometimes one that is coming up. Or, with `limit`, so many
times a phase, when the phase has come so far: that is the same on any machine.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from restow.cli.demo.observer import Observer
from restow.cli.embedded.stack import Stack
from restow.contracts.ids import SERVICES

FAMILY = {
    "cluster_watcher": "cluster",
    "scheduler_session": "session",
    "reservation_cache": "reservation",
    "descheduler": "migration",
    "garbage_collector": "gc",
}

WHILE_STARTING = 0.2
"""How often a service that does not lead again yet is chosen nevertheless."""

LIFE = 2.0
"""How long a service leads before it is killed, mostly, in units of `every`: on a fast machine it is longer by itself."""

PATIENCE = 20.0
"""Seconds that are waited at most for a service to lead again."""

FOR_EVER = 1e9
LATEST = 0.7
"""Part of a phase after which nothing is killed, where the number of kills is limited."""


@dataclass
class Chaos:
    """`kills` counts by phase and victim (`defragment: descheduler`). `broker`: also kill it, once, during defragmentation."""

    seed: int
    every: float = 0.7
    targets: Sequence[str] = SERVICES
    limit: int = 0
    broker: bool = False
    kills: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._killed_at = dict.fromkeys(self.targets, 0)
        self._led_since: dict[str, float] = {}

    @asynccontextmanager
    async def during(self, phase: str, stack: Stack, observer: Observer, progress: Callable[[], float]) -> AsyncIterator[None]:
        """Break things while the body runs. `progress` grows from 0 to 1."""
        work = []
        if self.targets:
            work.append(self._at_points(phase, stack, observer, progress) if self.limit else self._for_ever(phase, stack, observer))
        if self.broker and phase == "defragment":
            work.append(self._kill_broker(phase, stack, observer, progress))
        tasks = [asyncio.create_task(one, name="chaos") for one in work]
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

    async def _for_ever(self, phase: str, stack: Stack, observer: Observer) -> None:
        await asyncio.sleep(self._random.uniform(0.05, 0.5) * self.every)
        while True:
            names = list(self.targets)
            if self._random.random() >= WHILE_STARTING:
                with suppress(TimeoutError):
                    await observer.until("a leader", lambda: any(self._leads(n, observer) for n in self.targets), PATIENCE)
                names = [name for name in names if self._leads(name, observer)]
            if names:
                self._kill(phase, self._random.choice(names), stack, observer)
            await asyncio.sleep(self._random.uniform(0.5, 1.5) * self.every)

    async def _at_points(self, phase: str, stack: Stack, observer: Observer, progress: Callable[[], float]) -> None:
        for point in sorted(self._random.uniform(0.0, LATEST) for _ in range(self.limit)):
            await observer.until("the moment", lambda p=point: progress() >= p, FOR_EVER)  # type: ignore[misc]
            name = self._random.choice(list(self.targets))
            while stack.children[name].pid is None:
                await asyncio.sleep(0.02)
            self._kill(phase, name, stack, observer)

    def _leads(self, name: str, observer: Observer) -> bool:
        """Whether it has led for a while since it was killed last."""
        if observer.state.leaders[FAMILY[name]].epoch <= self._killed_at[name]:
            return False
        now = asyncio.get_running_loop().time()
        return now - self._led_since.setdefault(name, now) >= LIFE * self.every

    def _kill(self, phase: str, name: str, stack: Stack, observer: Observer) -> None:
        self._led_since.pop(name, None)
        self._killed_at[name] = observer.state.leaders[FAMILY[name]].epoch
        if stack.children[name].pid is not None:
            stack.children[name].kill()
            self.kills[f"{phase}: {name}"] += 1

    async def _kill_broker(self, phase: str, stack: Stack, observer: Observer, progress: Callable[[], float]) -> None:
        point = self._random.uniform(0.0, LATEST)
        await observer.until("the moment", lambda: progress() >= point, FOR_EVER)
        stack.kill_broker()
        self.kills[f"{phase}: broker"] += 1

    def as_json(self) -> dict[str, Any]:
        return {"seed": self.seed, "kills": dict(sorted(self.kills.items()))}

    def sentence(self) -> str:
        total: Counter[str] = Counter()
        for key, count in self.kills.items():
            total[key.partition(": ")[2]] += count
        return f"{sum(total.values())} SIGKILLs (seed {self.seed}): " + ", ".join(f"{n} {name}" for name, n in sorted(total.items()))
