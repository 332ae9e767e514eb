"""A smaller plan that breaks the same promise first: without faults, then acts of users, then workloads and nodes."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from simulation.plan import Plan
from simulation.runner import Options, run_one
from simulation.world import Result

ORDER = ("faults", "users", "workloads", "nodes")
TRIES = 200
"""Runs that may be spent."""


def shrink(
    plan: Plan, result: Result, options: Options, *, tries: int = TRIES, say: Callable[[str], None] = lambda text: None,
    run: Callable[[Plan, Options], Result] = run_one,
) -> tuple[Plan, Result]:  # fmt: skip
    """Delta debugging, list by list, again from the first while anything fell away. Parts are left out in halves, then in
    quarters, down to one by one; what is kept stays in its order and at its time."""
    spent = 0

    def breaks(smaller: Plan) -> Result | None:
        nonlocal spent
        spent += 1
        found = run(smaller, options)
        say(f"{spent} runs, {sum(len(getattr(smaller, name)) for name in ORDER)} parts: {found.promise or 'holds'}")
        return found if found.promise == result.promise else None

    going = True
    while going and spent < tries:
        going = False
        for name in ORDER:
            size = max(1, len(getattr(plan, name)) // 2)
            while spent < tries:
                smaller = _without_parts(plan, name, size, lambda one: breaks(one) if spent < tries else None)
                if smaller is not None:
                    plan, result, going = *smaller, True
                    size = min(size, max(1, len(getattr(plan, name)) // 2))
                elif size > 1:
                    size //= 2
                else:
                    break
    return plan, result


def _without_parts(plan: Plan, name: str, size: int, breaks: Callable[[Plan], Result | None]) -> tuple[Plan, Result] | None:
    """The plan without every part of so many that is not needed; None where each is."""
    kept: Sequence[Any] = getattr(plan, name)
    best: tuple[Plan, Result] | None = None
    start = 0
    while start < len(kept):
        fewer = (*kept[:start], *kept[start + size :])
        if name == "nodes" and not fewer:
            break
        smaller = replace(plan, **{name: fewer})
        found = breaks(smaller)
        if found is None:
            start += size
        else:
            kept, best = fewer, (smaller, found)
    return best
