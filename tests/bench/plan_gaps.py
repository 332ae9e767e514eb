"""How near the optimizing planner's plans come to the bound of what any plan gains (100 less the gap), on worlds that nothing was tuned on.

The seed is drawn anew for every run, and is in every row's name; `RESTOW_BENCH_SEED` says another one, `RESTOW_BENCH_NODES` only one size.
"""

import os
import random
import time
from collections.abc import Callable, Iterator

import msgspec

from restow.contracts.ids import PlanId
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.defragmentation.bound import judged
from restow.domain.defragmentation.plan import Task
from restow.domain.state import ClusterState

from .plan_quality import optimizing
from .plan_worlds import CORE, FREE_FOR, aged_openb, racks, vm_hosts
from .quality import LISTS, TRACE
from .table import Row, Size, progress
from .world import START

TITLE = "what plans gain, of what none can exceed (100 less the gap)"
BASELINE = "the same plan beside the weaker bound, which needs no solver"

MOVES = 2_000
GOALS = {50: 97.0, 500: 95.0, 5_000: 92.0}
"""Percent, by nodes. At 10 there is none: there bounds are near to what is possible, so that the gaps say more of the search."""
BUDGETS = {50: 0.3, 500: 1.5, 5_000: 5.0}
"""CPU seconds of the bound."""
PLANNED = {5_000: 5.0}
"""CPU seconds of a plan by `value`."""
SIZES = {Size.FULL: (10, 50, 500, 5_000), Size.QUICK: (50, 500), Size.SMOKE: (8,)}
VALUED = {Size.FULL: 500, Size.QUICK: 50, Size.SMOKE: 8}
"""Nodes up to which plans by `value` are made, unless one size is asked for: they take the longest."""

World = Callable[[], ClusterState]


async def measure(size: Size) -> list[Row]:
    seed = 42 if size is Size.SMOKE else int(os.environ.get("RESTOW_BENCH_SEED") or random.SystemRandom().randrange(100_000))
    rows = []
    for nodes in [int(os.environ["RESTOW_BENCH_NODES"])] if "RESTOW_BENCH_NODES" in os.environ else SIZES[size]:
        slowest, slowest_plan = 0.0, 0.0
        for name, state, args in _cases(nodes, seed, size):
            progress(f"{nodes} {name}")
            if size is Size.SMOKE:
                args = msgspec.structs.replace(args, searchSteps=500)
            row, planned, seconds = _gap(f"{nodes:,} {name} #{seed}: {args.objective}", state, args, GOALS.get(nodes))
            rows.append(row)
            slowest = max(slowest, seconds)
            if args.objective == "value":
                slowest_plan = max(slowest_plan, planned)
        rows.append(Row("  the slowest of these bounds, CPU", slowest * 1e3, "ms", goal=BUDGETS[nodes] * 1e3 if nodes in BUDGETS else None))
        if slowest_plan:
            rows.append(Row("  the slowest plan by value, CPU", slowest_plan * 1e3, "ms", goal=PLANNED[nodes] * 1e3 if nodes in PLANNED else None))
    return rows


def _cases(nodes: int, seed: int, size: Size) -> Iterator[tuple[str, ClusterState, DefragmentationArgs]]:
    """openb is left out where the trace is not there: it is not part of this repository."""
    lists = () if not TRACE.is_dir() else LISTS[:1] if nodes > 500 or size is Size.SMOKE else LISTS
    worlds: list[tuple[str, World]] = [(name, lambda name=name: aged_openb(seed, nodes=nodes, name=name)) for name in lists]  # type: ignore[misc]
    worlds.append(("racks", lambda: racks(nodes, seed)))
    by_value = nodes <= VALUED[size] or "RESTOW_BENCH_NODES" in os.environ
    for name, world in worlds:
        state = world()
        yield name, state, optimizing("devices")
        yield name, state, optimizing("nodes")
        if by_value:
            yield name, state, optimizing("value")
    hosts = vm_hosts(nodes, seed=seed)
    if by_value:
        yield "VMs", hosts, optimizing("value")
    yield "VMs", hosts, optimizing("capacity", capacity={"alibabacloud.com/gpu-milli": str(FREE_FOR * CORE)})


def _gap(name: str, state: ClusterState, args: DefragmentationArgs, goal: float | None) -> tuple[Row, float, float]:
    """And the CPU seconds of the plan, and of the better bound."""
    began = time.process_time()
    planned = defragmentation.plan(state, args, START, PlanId("p"), MOVES)
    started = time.process_time()
    task = Task(state, args, START, PlanId("p"), MOVES)
    best = judged(task, planned, "LP")
    seconds = time.process_time() - started
    weaker = judged(task, planned, "volume")
    for one in (best, weaker):
        if one.gained - one.cost > one.net:
            raise AssertionError(f"{name}: the plan is better than its bound: {one}")
    return Row(name, 100 - best.gap / 10, "%", baseline=100 - weaker.gap / 10, goal=goal), started - began, seconds
