"""What plans come to: the optimizing planner beside the seed's greedy one, on the same state, with as many moves.

Baseline of every row is what the greedy planner reaches, with the thresholds that let it act most; what there is without any action is
in the row's name.
"""

import time
from statistics import fmean

import numpy as np

from restow.contracts.events import Planned
from restow.contracts.ids import PlanId
from restow.domain import defragmentation
from restow.domain.config import DefragmentationArgs
from restow.domain.fragmentation import FreeCapacity
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState

from .plan_worlds import CORE, FREE_FOR, aged_openb, large_pods, usable, vm_hosts
from .quality import TRACE
from .table import Row, Size, median, progress
from .world import START

TITLE = "what plans come to, with as many moves: openb, hosts of VMs, large pods that wait"
BASELINE = "the greedy planner of Volcano's proposal; in brackets: no action"

GPU = {"nvidia.com/gpu": 100}
GREEDY = DefragmentationArgs(protectionThresholds=GPU, defragmentThresholds={"nvidia.com/gpu": 50}, lowThresholds={"nvidia.com/gpu": 50})
SEEDS = {Size.FULL: (42, 43, 44), Size.QUICK: (42,), Size.SMOKE: (42,)}
SHARES = (1, 3, 10)
"""Percent of the pods that may move."""
WITHIN = 95
"""Percent of a bound that a plan must reach."""


def optimizing(objective: str, **more) -> DefragmentationArgs:
    return DefragmentationArgs(planner="optimizing", objective=objective, protectionThresholds=GPU, **more)  # type: ignore[arg-type]


async def measure(size: Size) -> list[Row]:
    return [*_openb(size), *_vms(size), *_demand(size)]


def _plan(state: ClusterState, args: DefragmentationArgs, moves: int) -> tuple[Planned, float]:
    started = time.perf_counter()
    made = defragmentation.plan(state, args, START, PlanId("p"), moves)
    seconds = time.perf_counter() - started
    if len(made.moves) > moves:
        raise AssertionError(f"{len(made.moves)} moves; allowed: {moves}")
    return made, seconds


# -- openb -----------------------------------------------------------------------------------------------------------


def _openb(size: Size) -> list[Row]:
    """No rows where the trace is not there: it is not part of this repository."""
    if not TRACE.is_dir():
        progress(f"openb is left out: it is not at {TRACE}")
        return []
    progress("openb, aged")
    states = [aged_openb(seed, 40 if size is Size.SMOKE else 1) for seed in SEEDS[size]]
    rows: list[Row] = []
    slowest = 0.0
    for share in SHARES:
        found: dict[str, list[tuple[float, float, float]]] = {}
        for state in states:
            moves = len(state.pods) * share // 100
            greedy, _ = _plan(state, GREEDY, moves)
            devices, first = _plan(state, optimizing("devices"), moves)
            nodes, second = _plan(state, optimizing("nodes"), moves)
            slowest = max(slowest, first, second)
            before = greedy.before
            for what, got, other, none in (
                ("whole free GPUs", devices.after.free_devices, greedy.after.free_devices, before.free_devices),
                ("free nodes", nodes.after.free_nodes, greedy.after.free_nodes, before.free_nodes),
                ("usable idle share", _of_use(devices), _of_use(greedy), 100 - 100 * before.fragmented / max(before.idle, 1)),
            ):
                found.setdefault(what, []).append((got, other, none))
        for what, several in found.items():
            got, other, none = (fmean(column) for column in zip(*several, strict=True))
            unit = "%" if "share" in what else "GPUs" if "GPU" in what else "nodes"
            was = f"{none:.{1 if unit == '%' else 0}f}"
            goal = None if size is Size.SMOKE else _rounded(other)
            rows.append(Row(f"openb, {share} %: {what} ({was})", got, unit, baseline=other, goal=goal))
    rows.append(Row("  the slowest of these plans", slowest * 1e3, "ms", goal=5_000.0))
    return rows


def _rounded(value: float) -> float:
    return int(value * 10) / 10


def _of_use(plan: Planned) -> float:
    return 100 - 100 * plan.after.fragmented / max(plan.after.idle, 1)


# -- hosts of two NUMA zones -----------------------------------------------------------------------------------------


def _vms(size: Size) -> list[Row]:
    state = vm_hosts(20 if size is Size.SMOKE else 280)
    args = optimizing("capacity", capacity={"alibabacloud.com/gpu-milli": str(FREE_FOR * CORE)}, searchSteps=600)
    rows = []
    for moves in (25, 50):
        seconds = []
        for _ in range(3):
            made, took = _plan(state, args, moves)
            seconds.append(took)
        greedy, _ = _plan(state, GREEDY, moves)
        gained, bound = _places(state, made) - _places(state, None), _bound(state, moves)
        if size is not Size.SMOKE and gained * 100 < bound * WITHIN:
            raise AssertionError(f"{gained} slots for {FREE_FOR} cores gained with {moves} moves; the bound is {bound}")
        rows.append(Row(f"VMs, {moves} moves: usable cores ({usable(state):.1f})", _usable(state, made), "%", baseline=_usable(state, greedy)))
        rows.append(Row(f"  slots gained, of at most {bound}", gained, "slots", baseline=_places(state, greedy) - _places(state, None), goal=bound * WITHIN / 100))
        rows.append(Row("  the plan takes", median(seconds) * 1e3, "ms", goal=500.0))
    return rows


def _capacity(state: ClusterState, made: Planned | None) -> FreeCapacity:
    capacity = FreeCapacity(state.table)
    for move in made.moves if made is not None else ():
        v = state.vectors[state.pods[move.pod].fact.shape]
        capacity.take(state.table.rows[move.source], v, state.charges[move.pod].devices, -1)
        capacity.take(state.table.rows[move.target], v, move.devices)
    return capacity


def _places(state: ClusterState, made: Planned | None) -> int:
    return int((np.maximum(_capacity(state, made).device_free, 0) // (FREE_FOR * CORE)).sum())


def _usable(state: ClusterState, made: Planned) -> float:
    free = np.maximum(_capacity(state, made).device_free, 0)
    return 100 * _places(state, made) * FREE_FOR * CORE / int(free.sum())


def _bound(state: ClusterState, moves: int) -> int:
    """No move gains more than one place: a pod of less than 16 cores leaves one at most, and a larger one takes as many as it leaves. And
    no more can be gained than the pieces that are left over make up."""
    unit = FREE_FOR * CORE
    return min(moves, int((np.maximum(state.table.device_free, 0) % unit).sum()) // unit)


# -- demand ----------------------------------------------------------------------------------------------------------


def _demand(size: Size) -> list[Row]:
    nodes, waiting = (50, 3) if size is Size.SMOKE else (500, 10)
    state = large_pods(nodes, waiting)
    seconds = []
    for i in range(3):
        started = time.perf_counter()
        made = defragmentation.plan_demand(state, optimizing("devices"), START, PlanId(f"d{i}"), "bench/six")
        seconds.append(time.perf_counter() - started)
    if len(made.slots) != waiting or len(made.moves) != waiting:
        raise AssertionError(f"{len(made.slots)} slots by {len(made.moves)} moves; the least is {waiting}: {made.reason}")
    greedy, _ = _plan(state, GREEDY, waiting)
    table = state.table
    capacity = _capacity(state, greedy)
    fit = int(((capacity.device_free == 1000).sum(axis=1) >= 6).sum())
    before = int(((table.device_free == 1000).sum(axis=1) >= 6).sum())
    assert GPU_MILLI in table.columns
    return [
        Row(f"demand: {waiting} pods of 6 GPUs ({before})", len(made.slots), "pods", baseline=min(fit, waiting), goal=float(waiting)),
        Row("  the plan for the gang takes", median(seconds) * 1e3, "ms", goal=500.0),
    ]
