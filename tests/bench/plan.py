"""The defragmentation plan, decided on a full state."""

import time
from typing import Literal

from restow.contracts.ids import PlanId
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.state import ClusterState

from .naive_plan import naive_plan
from .table import Row, Size, median
from .world import START, filled

TITLE = "defragmentation plan: moves with landing slots, packing before and after"
BASELINE = "the pseudo code of Volcano's proposal in plain Python, moves only (no packing, no reasons); the same moves"

SIZES = {
    Size.FULL: ((500, 5_000), (5_000, 50_000)),
    Size.QUICK: ((200, 2_000), (2_000, 20_000)),
    Size.SMOKE: ((30, 300),),
}
ARGS = DefragmentationArgs(
    protectionThresholds={"nvidia.com/gpu": 95}, defragmentThresholds={"nvidia.com/gpu": 50}, lowThresholds={"nvidia.com/gpu": 50}
)
REPEATS = 5
MAX_MOVES = 2_000


OBJECTIVES: tuple[Literal["devices", "nodes"], ...] = ("devices", "nodes")


async def measure(size: Size) -> list[Row]:
    rows = []
    for nodes, pods in SIZES[size]:
        state = filled(nodes, pods)
        rows.append(_greedy(state, nodes, pods))
        rows += [row for objective in OBJECTIVES for row in _optimizing(state, nodes, objective)]
    return rows


def _optimizing(state: ClusterState, nodes: int, objective: Literal["devices", "nodes"]) -> list[Row]:
    """How long the search takes, and what it gains, beside what as many moves of the greedy planner gain."""
    args = DefragmentationArgs(planner="optimizing", objective=objective, protectionThresholds={"nvidia.com/gpu": 100})
    started = time.perf_counter()
    found = defragmentation.plan(state, args, START, PlanId("o"), MAX_MOVES)
    seconds = time.perf_counter() - started
    greedy = defragmentation.plan(state, ARGS, START, PlanId("g"), len(found.moves))
    if objective == "devices":
        unit, gains = "GPUs", [p.after.free_devices - p.before.free_devices for p in (found, greedy)]
    else:
        unit, gains = "nodes", [p.after.free_nodes - p.before.free_nodes for p in (found, greedy)]
    what = f"  optimizing, {objective}: {len(found.moves):,} moves"
    return [
        Row(what, seconds * 1e3, "ms", goal=5_000.0 if nodes == 5_000 else None),
        Row("    freed, beside as many moves", gains[0], unit, baseline=gains[1]),
    ]


def _greedy(state: ClusterState, nodes: int, pods: int) -> Row:
    seconds: list[float] = []
    for i in range(REPEATS):
        if not i:
            state.memo.clear()  # the first plan of a service's life is among the repeats
        started = time.perf_counter()
        planned = defragmentation.plan(state, ARGS, START, PlanId(f"p{i}"), MAX_MOVES)
        seconds.append(time.perf_counter() - started)
    if not planned.moves:
        raise AssertionError("the plan moves nothing: it would measure nothing")
    baseline = _naive(state, [(m.pod, m.source, m.target) for m in planned.moves])
    what = f"{nodes:,} nodes, {len(state.pods):,} pods: {len(planned.moves):,} moves"
    goal = 500.0 if (nodes, pods) == (5_000, 50_000) else None
    return Row(what, median(seconds) * 1e3, "ms", baseline=baseline, goal=goal)


def _naive(state: ClusterState, ours: list[tuple[str, str, str]]) -> float:
    started = time.perf_counter()
    moves = naive_plan(state, ARGS, MAX_MOVES)
    seconds = time.perf_counter() - started
    if moves != ours:
        raise AssertionError(f"the naive planner moves {len(moves)} pods, ours {len(ours)}, and not the same")
    return seconds * 1e3
