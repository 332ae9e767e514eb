"""Packing quality on the openb trace, by the published protocol, decided by the real session: `python -m tests.bench.quality
[--seeds N] [lists]` prints every list in full.

Protocol ("Beware of Fragmentation", USENIX ATC 2023; the trace's README): a list's pods, and more of them drawn with
replacement, until they request 130 % of the cluster's GPUs (a list that requests more loses pods at random); shuffled; all
arrive, none leaves. The published runs drew with Go's generator, these draw with Python's: same protocol, other orders. All pods
wait when the first session opens, so the typical pods, which follow from the state's pods, are those of the arrivals.
"""

from __future__ import annotations

import argparse
import csv
import random
import statistics
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.codec import Decision
from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.contracts.values import DeviceRequest, Expression, NodeTerm, PodShape
from restow.domain.config import ActionConfig, PluginConfig, SessionConfig, digest_of, text_of
from restow.domain.decider import decide_all
from restow.domain.fold import fold
from restow.domain.resources import ALIBABA_GPU_MODEL, GPU_MILLI
from restow.domain.session import decider
from restow.domain.state import ClusterState

from .table import Row, Size, progress
from .world import MIB, START, Scribe

TITLE = "packing on openb: GPUs allocated when 130 % have been asked for, percent"
BASELINE = "none can be run here; known: the paper's own simulator, its FGD beside fragmentation, its BestFit beside best-fit (our binpack)"

TRACE = Path(__file__).parents[3] / "shared" / "data" / "openb"
LISTS = ("default", "cpu250", "gpushare100", "gpuspec33", "multigpu50")
SEEDS = range(42, 52)
PERCENT = 130
RUNS = {
    Size.FULL: {"default": 10, **dict.fromkeys(LISTS[1:], 2)},
    Size.QUICK: {"default": 1},
    Size.SMOKE: {"default": 1},
}
"""How many seeds of which lists for fragmentation; the other policies run one. `main` runs all."""

_GPUS = {"binpack.resources": "nvidia.com/gpu"}
POLICIES = {
    "least-allocated": PluginConfig("nodeorder", arguments={"balancedresource.weight": 0}),
    "best-fit": PluginConfig("binpack", arguments=_GPUS),
    "fragmentation": PluginConfig("fragmentation"),
}
PUBLISHED = {"least-allocated": "", "best-fit": "BestFit", "fragmentation": "FGD"}
GOAL = 95.4
"""On the default list; on every list not more than ALLOWED below the published FGD."""
ALLOWED = 0.3


class Trace(msgspec.Struct):
    """`arrivals` are indexes of `shapes`, `asked` the GPU thousandths of each shape, `capacity` the cluster's."""

    nodes: list[e.NodeObserved]
    shapes: list[e.ShapeDeclared]
    pods: list[int]
    asked: list[int]
    capacity: int


def trace(name: str, folder: Path = TRACE) -> Trace:
    """The cluster and one of its pod lists."""
    nodes = [_node(row) for row in _rows(folder / "openb_node_list_gpu_node.csv")]
    shapes: list[e.ShapeDeclared] = []
    known: dict[bytes, int] = {}
    pods = []
    for row in _rows(folder / f"openb_pod_list_{name}.csv"):
        spec = _shape(row)
        at = known.setdefault(msgspec.json.encode(spec), len(known))
        if at == len(shapes):
            shapes.append(e.ShapeDeclared(ShapeId(f"{at:016x}"), spec))
        pods.append(at)
    asked = [shape.spec.requests.get(GPU_MILLI, 0) for shape in shapes]
    return Trace(nodes, shapes, pods, asked, sum(node.devices for node in nodes) * 1000)


def _rows(path: Path) -> Iterable[dict[str, str]]:
    with open(path, newline="") as file:
        yield from csv.DictReader(file)


def _node(row: dict[str, str]) -> e.NodeObserved:
    gpus = int(row["gpu"])
    capacity = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * MIB, "pods": 1_000, GPU_MILLI: gpus * 1000}
    return e.NodeObserved(NodeName(row["sn"]), f"uid-{row['sn']}", capacity, {ALIBABA_GPU_MODEL: row["model"]}, devices=gpus)


def _shape(row: dict[str, str]) -> PodShape:
    gpus, milli, models = int(row["num_gpu"]), int(row["gpu_milli"]), row.get("gpu_spec") or ""
    requests = {"cpu": int(row["cpu_milli"]), "memory": int(row["memory_mib"]) * MIB, "pods": 1}
    if not gpus:
        return PodShape(requests, scheduler="restow")
    requests[GPU_MILLI] = gpus * milli
    affinity = (NodeTerm((Expression(ALIBABA_GPU_MODEL, "In", tuple(models.split("|"))),)),) if models else None
    return PodShape(requests, scheduler="restow", devices=DeviceRequest(gpus, milli), node_affinity=affinity)


def arrivals(given: Trace, seed: int) -> list[int]:
    """Shapes in the order in which their pods arrive."""
    chance = random.Random(seed)
    order, target = list(given.pods), given.capacity * PERCENT // 100
    asked = sum(given.asked[shape] for shape in order)
    while asked > target:
        asked -= given.asked[order.pop(chance.randrange(len(order)))]
    if len(order) == len(given.pods):
        while asked + given.asked[drawn := given.pods[chance.randrange(len(given.pods))]] <= target:
            asked += given.asked[drawn]
            order.append(drawn)
    chance.shuffle(order)
    return order


def play(given: Trace, order: Sequence[int], policy: str) -> ClusterState:
    """Every pod is decided by the session; what it decides is folded, until nothing more fits."""
    scribe = Scribe()
    state = scribe.state
    config = SessionConfig(actions=(ActionConfig("allocate"),), tiers=((PluginConfig("predicates"), POLICIES[policy]),))
    text = text_of(config)
    fold(state, 1, "session", START, [Decision(c.Configure(text=text), (e.SessionConfigured(text, digest_of(text)),))])
    scribe.facts([*given.nodes, *given.shapes])
    scribe.facts([_pod(i, given.shapes[shape].shape) for i, shape in enumerate(order)])
    while (command := decider.due(state, START)) is not None:
        decisions = decide_all(state, decider, [command])
        if not decisions:
            break
        fold(state, state.seq + 1, "session", START, decisions)
    return state


def _pod(i: int, shape: ShapeId) -> e.PodObserved:
    return e.PodObserved(PodUid(f"pod-{i:06d}"), "openb", f"pod-{i:06d}", shape, START)


def allocated(state: ClusterState) -> float:
    """Percent of all GPU share."""
    column = state.table.columns[GPU_MILLI]
    return 100 * int(state.table.used[:, column].sum()) / int(state.table.allocatable[:, column].sum())


def published(name: str, policy: str, folder: Path = TRACE) -> float | None:
    """What the paper's simulator got, mean of ten."""
    for row in _rows(folder / "published_allocation.csv"):
        if (row["pod_list"], row["policy"]) == (f"openb_pod_list_{name}", PUBLISHED[policy]):
            return float(row["gpu_allocation_percent_final_at_130"])
    return None


def mean(name: str, policy: str, seeds: Sequence[int], shorter: int = 1) -> tuple[float, float]:
    """(mean, standard deviation) over the seeds. `shorter`: only one in so many nodes and pods."""
    given = trace(name)
    if shorter > 1:
        nodes = given.nodes[::shorter]
        given = Trace(nodes, given.shapes, given.pods[::shorter], given.asked, sum(n.devices for n in nodes) * 1000)
    found = []
    for seed in seeds:
        progress(f"{name}, {policy}, seed {seed}")
        found.append(allocated(play(given, arrivals(given, seed), policy)))
    return statistics.fmean(found), statistics.pstdev(found)


async def measure(size: Size) -> list[Row]:
    rows = []
    for name, runs in RUNS[size].items():
        for policy in POLICIES:
            seeds = SEEDS[: runs if policy == "fragmentation" else 1]
            got, _ = mean(name, policy, seeds, shorter=40 if size is Size.SMOKE else 1)
            known = published(name, policy)
            goal = None
            if size is Size.FULL and policy == "fragmentation" and known is not None:
                goal = GOAL if name == "default" else round(known - ALLOWED, 2)
            many = f"{len(seeds)} orders" if len(seeds) > 1 else "1 order"
            rows.append(Row(f"{name}, {policy}, {many}", got, "%", known=known, goal=goal))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.quality", description="The whole table.")
    parser.add_argument("lists", nargs="*", metavar="list", help=f"of {', '.join(LISTS)}")
    parser.add_argument("--seeds", type=int, default=len(SEEDS), metavar="N", help="the first N of 42 to 51")
    parser.add_argument("--policies", default=",".join(POLICIES), help="separated by commas")
    given = parser.parse_args()
    policies = given.policies.split(",")
    if unknown := [name for name in given.lists if name not in LISTS] + [name for name in policies if name not in POLICIES]:
        parser.error(f"no {', '.join(unknown)}; lists are {', '.join(LISTS)}, policies {', '.join(POLICIES)}")
    print(f"{'list':<13}{'policy':<17}{'ours':>8}{'sd':>7}{'published':>11}  seconds")
    for name in given.lists or LISTS:
        for policy in policies:
            started = time.perf_counter()
            got, spread = mean(name, policy, SEEDS[: given.seeds])
            known = published(name, policy)
            shown = f"{known:11.2f}" if known is not None else " " * 11
            print(f"{name:<13}{policy:<17}{got:8.2f}{spread:7.2f}{shown}  {time.perf_counter() - started:7.0f}", flush=True)


if __name__ == "__main__":
    main()
