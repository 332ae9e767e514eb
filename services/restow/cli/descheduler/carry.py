"""Evictions, each as it is decided, and what became of each."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from restow.contracts.ids import Millis
from restow.domain.descheduling.framework import Eviction
from restow.domain.state import ClusterState
from restow.kube import effects as k
from restow.kube.client import Client
from restow.kube.event_recorder import Notice, Recorder, Regarding

TRIES = 3
"""Of an eviction whose pod changes while it is asked for; its precondition is what was read just before."""
COMPONENT = "restow-descheduler-once"

Result = Literal["evicted", "background", "gone", "budget", "refused", "failed"]


class Carried(msgspec.Struct, frozen=True):
    """`background`: its owner moves it by itself, and ends it then. `gone`: it was going already, or there is another pod of its name.
    `budget`: a PodDisruptionBudget does not allow it now."""

    eviction: Eviction
    result: Result
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.result in ("refused", "failed")

    @property
    def counts(self) -> bool:
        """Whether it uses up a limit, as upstream counts."""
        return self.result in ("evicted", "background")


class Carrier:
    """Evicts what a run decides on, before it decides on anything more (`migration.once`). The run is in a thread of its own; the API is asked, and
    told of each eviction by an Event, in the loop."""

    def __init__(self, client: Client, state: ClusterState, now: Millis, loop: asyncio.AbstractEventLoop, user: str) -> None:
        self._effects, self._state, self._now, self._loop = k.Effects(client), state, now, loop
        self._recorder = Recorder(client, COMPONENT, user)
        self.done: list[Carried] = []

    def __call__(self, eviction: Eviction) -> str:
        carried = asyncio.run_coroutine_threadsafe(_one(self._effects, self._state, eviction, self._now), self._loop).result()
        self.done.append(carried)
        if carried.result == "evicted":
            self._loop.call_soon_threadsafe(self._tell, eviction)
        return "" if carried.counts else carried.message or carried.result

    def _tell(self, eviction: Eviction) -> None:
        pod = self._state.pods[eviction.pod].fact
        about = Regarding("v1", "Pod", pod.namespace, pod.name, pod.pod)
        note = f"evicted from {eviction.node} by {eviction.plugin} (profile {eviction.profile}): {eviction.reason}"
        self._recorder.record(Notice(about, "Evicting", "Evict", note))

    async def told(self) -> int:
        """Sends the Events; how many could not be sent."""
        sending = asyncio.create_task(self._recorder.run())
        try:
            async with asyncio.timeout(EVENTS):
                await self._recorder.flushed()
        except TimeoutError:
            return self._recorder.dropped + self._recorder.waiting
        finally:
            sending.cancel()
        return self._recorder.dropped


EVENTS = 10.0
"""Seconds for the Events at the end."""


async def _one(effects: k.Effects, state: ClusterState, eviction: Eviction, now: Millis) -> Carried:
    pod = state.pods[eviction.pod].fact
    who = k.PodRef(pod.namespace, pod.name, pod.pod)
    outcome: k.EvictOutcome = k.Changed()
    for _ in range(TRIES):
        outcome = await effects.evict(who, now, eviction.grace, finished=True)
        if not isinstance(outcome, k.Changed):
            break
    match outcome:
        case k.Accepted():
            return Carried(eviction, "evicted")
        case k.InBackground(message):
            return Carried(eviction, "background", message)
        case k.AlreadyTerminating():
            return Carried(eviction, "gone", "it was going away already")
        case k.Gone():
            return Carried(eviction, "gone", "it was gone already")
        case k.OverBudget(message):
            return Carried(eviction, "budget", message)
        case k.Changed(message):
            return Carried(eviction, "failed", f"it changed whenever it was asked for: {message}")
        case k.Refused(code, reason, message):
            return Carried(eviction, "refused", f"{code or ''} {reason}: {message}".strip())
        case k.Failed(code, reason, message):
            return Carried(eviction, "failed", f"{code or 'no answer'} {reason}: {message}")
