"""Has a scheduler heard of what was written a moment ago? It hears of pods by one watch, in the order in which they were written. So its word on a pod that was made
afterwards, the *probe*, proves that it has: nothing that is written from then on reaches it earlier.

Without that proof a scheduler may hear of a placeholder's end before it hears of the nomination that was written first: where its watch was cut, it lists all
pods anew, and takes in who has gone before what has changed (client-go, reconcileReplacement).

The probe fits nowhere, has the priority of the pod that it is made for, so that it is looked at no later than that one would be, and never preempts.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from restow import machine
from restow.kube import canaries, canary, hold_classes, wire
from restow.kube import decode as d
from restow.kube.client import ApiStatus, Client
from restow.kube.effects import Done, Failed, Refused, bounded, read
from restow.kube.placeholder import IMAGE, NAMESPACE, class_name
from restow.kube.retry import Backoff, Sleep

LOOK, SELDOM = 0.02, 0.5
"""Seconds between two looks at a probe: at first, and at most."""
SHARED = 1.0
"""Seconds for which those who ask wait for the probe before theirs, so that many who ask at about the same time have few. A scheduler that is slower looks at
several."""
PATIENCE = 10.0
"""Seconds after which who asks hears that the scheduler has said nothing so far."""
AGAIN = 5.0
"""Seconds after which there is one more probe, twice as long each time; the older ones stay. Where a scheduler's word on a probe does not reach the API, as when that
is away for a moment, it does not say it again for minutes (kube-scheduler looks again at a pod that nothing has changed for after five)."""
LONGEST = 600.0
"""Seconds after which nothing is waited for any more. A scheduler that has thousands of pods in its queue takes minutes, and a new probe is behind all of them again."""
ABANDONED = 30.0
"""Seconds after which a scheduler's probes are taken away where nobody waits for any of them any more, as of moves that have ended meanwhile: who asks
again pauses for ten at most (`runtime.effector`)."""
MOST = 1_000
"""Pods that are known to have been asked for in vain."""
REMOVING = Backoff(attempts=20, longest=5.0)
"""Of what is nobody's any more: an API server that starts again is waited for."""

Heard = Done | Refused | Failed


class Who(NamedTuple):
    """A scheduler, the priority of the pods that are looked at, and whose probe it is."""

    scheduler: str
    priority: int
    log: str


class Hearing:
    """Those who ask in the same moment share a probe."""

    def __init__(self, client: Client, backoff: Backoff, sleep: Sleep, image: str = IMAGE) -> None:
        self._client, self._backoff, self._sleep, self._image = client, backoff, sleep, image
        self._next: dict[Who, asyncio.Task[Heard]] = {}
        self._asked: dict[tuple[str, str], asyncio.Task[Heard]] = {}
        """What is waited for by somebody who was told that nothing is heard so far."""
        self._asking: dict[Who, asyncio.Lock] = {}
        self._waiting, self._waited = Counter[str](), dict[str, float]()
        """By scheduler: how many wait for a probe of it, and when one last did."""
        self._removing: set[asyncio.Task[None]] = set()

    async def heard(self, who: Who, of: tuple[str, str]) -> Heard:
        """`Done` once this scheduler has heard of everything that was written before this was called first for `of`, a pod's uid and its version. `Refused` where
        the API takes no probe, `Failed` where the scheduler has said nothing of it for PATIENCE, or the API does not answer. Who asks again for the same waits for the
        same probe, which goes once nobody has waited for any of this scheduler's for ABANDONED."""
        asking = self._asked.pop(of, None)
        if asking is None or (asking.done() and isinstance(asking.result(), Failed)):
            asking = self._next.get(who)
        with self._waits(who.scheduler):
            if asking is None:
                asking = self._next[who] = asyncio.create_task(self._in_turn(who))
            # Others wait for the same one.
            await asyncio.wait({asking}, timeout=PATIENCE)
        if not asking.done():
            self._asked[of] = asking
            if len(self._asked) > MOST:
                # Nobody has asked for it again.
                del self._asked[next(iter(self._asked))]
            return Failed(0, "Unheard", f"{who.scheduler} has not looked at a new pod within {PATIENCE:g} s")
        return asking.result()

    @contextlib.contextmanager
    def _waits(self, scheduler: str) -> Iterator[None]:
        self._waiting[scheduler] += 1
        try:
            yield
        finally:
            self._waiting[scheduler] -= 1
            self._waited[scheduler] = machine.steady()

    def _is_abandoned(self, scheduler: str) -> bool:
        return not self._waiting[scheduler] and machine.steady() > self._waited[scheduler] + ABANDONED

    async def _in_turn(self, who: Who) -> Heard:
        async with self._asking.setdefault(who, asyncio.Lock()):
            # Who asks from now on may have written something since.
            del self._next[who]
            asking = asyncio.create_task(self._ask(who))
            await asyncio.wait({asking}, timeout=SHARED)
        return await asking

    async def _ask(self, who: Who) -> Heard:
        probes: list[canary.Pod] = []
        try:
            return await self._word(who, probes)
        finally:
            # Also of those that were not made, as far as the API's answer tells.
            for probe in probes:
                removing = asyncio.create_task(self._remove(probe))
                self._removing.add(removing)
                removing.add_done_callback(self._removing.discard)

    async def _word(self, who: Who, probes: list[canary.Pod]) -> Heard:
        """On any of the probes that it makes meanwhile: all of them are newer than what is to be heard of."""
        began, again, pause, waiting = machine.steady(), 0.0, LOOK, list[canary.Pod]()
        while (waited := machine.steady() - began) < LONGEST and not self._is_abandoned(who.scheduler):
            if waited >= again:
                again = max(2 * again, AGAIN)
                probes.append(probe := canary.nowhere(who.scheduler, class_name(who.priority), who.log, machine.token(8), self._image))
                made = await bounded(partial(self._make, probe, who), self._backoff, self._sleep)
                if isinstance(made, Done):
                    waiting.append(probe)
                elif not waiting:
                    return made
            for probe in tuple(waiting):
                there = await bounded(partial(self._read, probe), self._backoff, self._sleep)
                if isinstance(there, Refused):
                    return there
                if there is None:
                    waiting.remove(probe)
                # Where the API does not answer the probe is there all the same.
                elif not isinstance(there, Failed) and is_looked_at(there):
                    return Done()
            if not waiting:
                return Failed(404, "Gone", "somebody deleted what the scheduler was to look at")
            await self._sleep(pause)
            pause = min(pause * 1.1, SELDOM)
        return Failed(0, "Unheard", f"{who.scheduler} has not looked at a new pod within {LONGEST:g} s, or for as long as anybody has waited for that")

    async def _make(self, probe: canary.Pod, who: Who) -> Done:
        """The class is there as a rule, for a placeholder has it."""
        try:
            await hold_classes.create(self._client, NAMESPACE, probe, who.priority, who.log)
        except ApiStatus as status:
            if status.code != 409:
                raise
        return Done()

    async def _read(self, probe: canary.Pod) -> wire.Pod | None:
        return await read(self._client, d.PODS, canaries.path(probe))

    async def _remove(self, probe: canary.Pod) -> None:
        """Of a process that ends meanwhile it is a canary that is left: the next one sweeps (`canaries`)."""

        async def attempt() -> Any:
            try:
                await canaries.delete(self._client, probe)
            except ApiStatus as status:
                # Whatever it says: who has made it may delete it.
                raise ApiStatus(0, status.reason, status.message) from status

        await bounded(attempt, REMOVING, self._sleep)


def is_looked_at(pod: wire.Pod) -> bool:
    """Whether its scheduler has said something of it. That it is gated is the API server's word."""
    said = (pod.status.conditions if pod.status else None) or ()
    return any(one.type == "PodScheduled" and one.reason != "SchedulingGated" for one in said)
