"""Evictions one after the other, in the order in which they were decided, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from restow.contracts.ids import Millis
from restow.domain.descheduling.framework import Eviction
from restow.domain.state import ClusterState
from restow.kube import effects as k
from restow.kube.client import Client

TRIES = 3
"""Of an eviction whose pod changes while it is asked for; its precondition is what was read just before."""

Result = Literal["evicted", "gone", "budget", "refused", "failed"]


class Carried(msgspec.Struct, frozen=True):
    """`gone`: it was going already, or there is another pod of its name. `budget`: a PodDisruptionBudget does not allow it now."""

    eviction: Eviction
    result: Result
    message: str = ""

    @property
    def failed(self) -> bool:
        return self.result in ("refused", "failed")


async def carry(
    client: Client, state: ClusterState, evictions: Sequence[Eviction], now: Millis, progress: Callable[[int, int], None]
) -> tuple[Carried, ...]:
    """In order: what goes first may use a budget up."""
    effects = k.Effects(client)
    done: list[Carried] = []
    for eviction in evictions:
        done.append(await _one(effects, state, eviction, now))
        progress(len(done), len(evictions))
    return tuple(done)


async def _one(effects: k.Effects, state: ClusterState, eviction: Eviction, now: Millis) -> Carried:
    pod = state.pods[eviction.pod]
    who = k.PodRef(pod.namespace, pod.name, pod.pod)
    outcome: k.EvictOutcome = k.Changed()
    for _ in range(TRIES):
        outcome = await effects.evict(who, now, eviction.grace, finished=True)
        if not isinstance(outcome, k.Changed):
            break
    match outcome:
        case k.Accepted():
            return Carried(eviction, "evicted")
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
