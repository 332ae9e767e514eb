"""PodGroups and queues as rows of tables."""

from __future__ import annotations

from typing import Any

from restow.cli.amounts import amount
from restow.contracts.ids import Millis
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.resources import GPU_MILLI


def podgroup_row(g: dict[str, Any], now: Millis) -> tuple:
    return (g["namespace"], g["name"], g["phase"], g["minMember"], g["ready"], g["waiting"], g["queue"], g["reason"] or "-")


def queue_row(q: dict[str, Any], now: Millis) -> tuple:
    groups = ", ".join(f"{count} {phase}" for phase, count in q["podGroups"].items())
    state = ("Invalid" if q["invalid"] else q["state"]) if q["exists"] else "Missing" if q["name"] != DEFAULT_QUEUE else "Open"
    return (q["name"], state, groups or "-", *(_three(q, resource) for resource in ("cpu", "memory", GPU_MILLI)))


def _three(q: dict[str, Any], resource: str) -> str:
    """Allocated, deserved and capability; `-` for what is not limited."""
    if not any(q[of].get(resource) for of in ("allocated", "deserved", "capability")):
        return "-"
    limits = (amount(resource, q[of][resource]) if resource in q[of] else "-" for of in ("deserved", "capability"))
    return "/".join((amount(resource, q["allocated"].get(resource, 0)), *limits))
