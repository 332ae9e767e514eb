"""What a move may leave behind, as the API server shows it."""

from __future__ import annotations

import asyncio

from kubernetes.world import Obj, World, gated

LONG = 60.0
"""Seconds in which it goes."""


async def nothing_is_left(world: World, seconds: float = LONG) -> None:
    """Soon: no placeholder, no gate of ours, no entry, no Reservation."""
    await world.until(lambda: not world.placeholders(), "no placeholder is left", seconds)
    await world.until(lambda: not any(gated(pod) for pod in world.pods.values()), "no gate is left", seconds)
    for _ in range(int(seconds / 0.1)):
        left = await entries(world), await reservations(world)
        if left == ([], []):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"left after {seconds:g} s: entries {left[0]}, Reservations {left[1]}")


async def entries(world: World) -> list[str]:
    """Whose new pods are gated: controllers of moves, and owners of Reservations."""
    return [uid for one in await listed(world, "/apis/restow.dev/v1/landings") for kind in ("open", "owners") for uid in (one.get("spec", {}).get(kind) or {})]


async def reservations(world: World) -> list[str]:
    return [one["metadata"]["name"] for one in await listed(world, "/apis/batch.volcano.sh/v1alpha1/reservations")]


async def listed(world: World, path: str) -> list[Obj]:
    """Of custom resources; an API server that has just started says 429 for a while."""
    for _ in range(int(LONG / 0.1)):
        answer = await world.api.call("GET", path)
        if answer.status != 429:
            break
        await asyncio.sleep(0.1)
    assert answer.status == 200, answer
    return list(answer.body["items"])
