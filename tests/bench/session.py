"""The scheduler session alone: decide, encode, append durably, fold, until every pod of a burst has its node."""

import tempfile
import time
from pathlib import Path

import numpy as np

from restow.contracts.codec import decode, encode
from restow.contracts.ids import NodeName, PodUid
from restow.domain.decider import decide_all
from restow.domain.fold import fold
from restow.domain.predicates import static_mask
from restow.domain.session import decider
from restow.domain.session.plugins.nodeorder.score import Resources
from restow.domain.state import ClusterState
from restow.eventlog.jetstream import JetStreamLog, connect
from restow.eventlog.server import NatsServer

from .table import Row, Size, median
from .world import START, Scribe, envelope, node_facts, pod_fact, shape_facts

TITLE = "session: decide, append with fsync, fold"
BASELINE = "a plain NumPy scan of all nodes for each pod, decided only (neither logged nor folded); same nodes chosen"

SIZES = {Size.FULL: (5_000, 10_000, 3), Size.QUICK: (2_000, 4_000, 1), Size.SMOKE: (50, 200, 1)}
SHAPES = 8


def burst(nodes: int, pods: int) -> ClusterState:
    scribe = Scribe()
    scribe.facts([*node_facts(nodes), *shape_facts(SHAPES)])
    scribe.facts([pod_fact(i, i % SHAPES) for i in range(pods)])
    config = scribe.state.session_config
    assert "restow" in config.scheduler_names
    return scribe.state


async def measure(size: Size) -> list[Row]:
    nodes, pods, repeats = SIZES[size]
    ours: list[float] = []
    decided: list[float] = []
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        for i in range(repeats):
            state = burst(nodes, pods)
            log = await connect(server.url, f"burst-{i}")
            whole, deciding = await _play(state, log)
            await log.close()
            ours.append(whole)
            decided.append(deciding)
    plain, chosen = scan(burst(nodes, pods), nodes)
    same = {pod: placement.node for pod, placement in state.placed.items()}
    if same != chosen:
        raise AssertionError(f"{sum(same.get(p) != n for p, n in chosen.items())} pods are elsewhere than by the full scan")
    placed = len(same)
    what = f"{pods:,} pods of {SHAPES} shapes, {nodes:,} nodes"
    return [
        Row(what, placed / median(ours), "pods/s", baseline=placed / plain, goal=50_000 if size is Size.FULL else None),
        Row("  of which deciding alone", placed / median(decided), "pods/s", baseline=placed / plain),
    ]


async def _play(state: ClusterState, log: JetStreamLog) -> tuple[float, float]:
    """Seconds in all, and of them in `decide`."""
    deciding, last = 0.0, 0
    seq = state.seq
    started = time.perf_counter()
    while (command := decider.due(state, START)) is not None:
        before = time.perf_counter()
        decisions = decide_all(state, decider, [command])
        deciding += time.perf_counter() - before
        if not decisions:
            break
        body = encode(decisions)
        last = await log.append("session", body, envelope(last + 1, "session"), expected_last=last)
        fold(state, seq + last, "session", START, decode(body))
    return time.perf_counter() - started, deciding


def scan(state: ClusterState, nodes: int) -> tuple[float, dict[PodUid, NodeName]]:
    """What a straightforward scheduler does: for each pod look at every node, take the best, charge it."""
    table = state.table
    chosen: dict[PodUid, NodeName] = {}
    every = slice(None)
    scorer = Resources(1, 0, 1)
    started = time.perf_counter()
    for pod in sorted(state.queue, key=lambda p: (-state.shapes[state.pods[p].shape].priority, state.order[p])):
        shape = state.pods[pod].shape
        v = state.vectors[shape]
        room = static_mask(state, shape) & table.fits(v)
        keys = np.where(room, scorer.many(state, shape)(every) * (nodes + 1) + (nodes - table.rank), -1)
        row = int(keys.argmax())
        if keys[row] < 0:
            continue
        table.charge(row, v, table.choose_devices(row, v.devices) or (), 1)
        chosen[pod] = NodeName(table.names[row])
    return time.perf_counter() - started, chosen
