"""The scheduler session alone: decide, encode, append durably, fold, until every pod of a burst has its node.

All with the default configuration: the cost of every default plugin counts. Each workload's nodes are compared with those of a
plain scan (`session_scan`) that takes the pods in the same order, the first pods of the first workload also with the oracle of `tests/oracle`.
"""

import gc
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from restow.contracts import events as e
from restow.contracts.codec import Decision, decode, encode
from restow.contracts.ids import PodUid
from restow.domain.decider import decide_all
from restow.domain.fold import fold
from restow.domain.session import decider
from restow.domain.state import ClusterState
from restow.eventlog.jetstream import JetStreamLog, connect
from restow.eventlog.server import NatsServer
from restow.runtime.process import GC_THRESHOLD

from . import session_worlds as worlds
from .session_scan import Scan, in_turn
from .session_worlds import GANGS, SHAPES, Workload
from .table import Row, Size, median
from .world import START, Scribe, app_pod, envelope

TITLE = "session: decide, append with fsync, fold; default plugins"
BASELINE = "a plain NumPy scan of all nodes for each pod, decided only (neither logged nor folded); same nodes chosen"

SESSIONS = 100
"""For the cost of one session, on each cluster."""
BY_ORACLE = 10
"""Pods: it takes a third of a second for each."""


class Sizes:
    def __init__(self, size: Size) -> None:
        full = size is Size.FULL
        self.full = full
        self.nodes, self.pods, self.few = {Size.FULL: (5_000, 10_000, 3_000), Size.QUICK: (2_000, 4_000, 1_200), Size.SMOKE: (50, 200, 60)}[size]
        self.holders = {Size.FULL: 1_000, Size.QUICK: 400, Size.SMOKE: 50}[size]
        self.growth = {Size.FULL: (1_000, 5_000, 20_000), Size.QUICK: (500, 1_000, 4_000), Size.SMOKE: (10, 20, 40)}[size]
        self.scanned = 2_000 if full else 200

    def repeats(self, pods: int) -> int:
        """The median of more runs where one is over sooner: under a tenth of a second anything may disturb it."""
        return min(max(3, 15_000 // pods), 9) if self.full else 1

    def workloads(self) -> list[Workload]:
        n, p, few = self.nodes, self.pods, self.few
        return [
            Workload(f"{p:,} pods of {SHAPES} shapes, {n:,} nodes", worlds.few_shapes, n, p, 80_000),
            Workload("the same, nodes and pods of openb", worlds.trace_mix, n, p),
            Workload(f"{p:,} pods, each its own shape", worlds.all_distinct, n, p, 20_000),
            Workload(f"{GANGS} gangs of {few // GANGS:,}, all or nothing", worlds.gangs, n, few, 60_000),
            Workload(f"{few:,} pods, anti-affinity, hostname", worlds.apart, n, few, 5_000),
            Workload(f"{few:,} pods, hard spread over zones", worlds.spread, n, few, 5_000),
            Workload(f"{self.holders:,} pods, {self.holders // 10 * 3} holds of their apps", worlds.own_holds, n, self.holders, 5_000),
            Workload("  the same, each owns every hold", worlds.shared_holds, n, self.holders, 5_000),
        ]


async def measure(size: Size) -> list[Row]:
    sizes = Sizes(size)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        for number, workload in enumerate(sizes.workloads()):
            rows += await _workload(workload, sizes, server.url, number)
        rows += await _growth(sizes, server.url)
    return rows


# -- a burst, until all is placed ------------------------------------------------------------------------------------


class Played:
    """Seconds in all, and of them in `decide`; what was decided, session by session."""

    def __init__(self) -> None:
        self.seconds = self.deciding = 0.0
        self.decisions: list[list[Decision]] = []


async def play(state: ClusterState, url: str, stream: str) -> Played:
    played, last, seq = Played(), 0, state.seq
    log: JetStreamLog = await connect(url, stream)
    settle()
    started = time.perf_counter()
    while (command := decider.due(state, START)) is not None:
        before = time.perf_counter()
        decisions = decide_all(state, decider, [command])
        played.deciding += time.perf_counter() - before
        if not decisions:
            break
        body = encode(decisions)
        last = await log.append("session", body, envelope(last + 1, "session"), expected_last=last)
        fold(state, seq + last, "session", START, decode(body))
        played.decisions.append(decisions)
    played.seconds = time.perf_counter() - started
    await log.close()
    gc.unfreeze()
    return played


def settle() -> None:
    """The collector as a service has it once it has caught up."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLD)


async def _workload(workload: Workload, sizes: Sizes, url: str, number: int) -> list[Row]:
    runs: list[Played] = []
    for i in range(sizes.repeats(workload.pods)):
        state = workload.build(workload.nodes, workload.pods)
        runs.append(await play(state, url, f"burst-{number}-{i}"))
        check_gangs(state, runs[-1])
    fresh = workload.build(workload.nodes, workload.pods)
    plain, chosen = Scan(fresh).all([fresh.pods[pod].fact for pod in in_order(runs[-1], fresh)])
    check_same({uid: placement.node for uid, placement in state.placed.items()}, chosen)
    rate = workload.pods / median(run.seconds for run in runs)
    scanned = workload.pods / plain
    rows = [Row(workload.what, rate, "pods/s", baseline=scanned, goal=workload.goal if sizes.full else None)]
    if workload.build is worlds.few_shapes:
        rows.append(Row("  of which deciding alone", workload.pods / median(run.deciding for run in runs), "pods/s", baseline=scanned))
        slow = _by_oracle(fresh, chosen)
        rows.append(Row(f"  beside tests/oracle, {BY_ORACLE} pods", rate, "pods/s", baseline=slow))
    return rows


def in_order(played: Played, state: ClusterState) -> list[PodUid]:
    """All that waited, those first who were given a node, in the order in which they were. Whose turn it is depends on how many one
    session takes; that has tests of its own (and `in_turn`, where one session is enough)."""
    given = (x.pod for decisions in played.decisions for one in decisions for x in one.events if isinstance(x, e.PodPlaced | e.HandedOver))
    return list(dict.fromkeys([*given, *(uid for uid in state.pods if state.awaits_placement(uid))]))


def check_same(ours: dict[str, str], plain: dict[str, str]) -> None:
    if ours != plain:
        wrong = [uid for uid in sorted({*ours, *plain}) if ours.get(uid) != plain.get(uid)]
        first = f"{wrong[0]}: {ours.get(wrong[0])}, by the scan {plain.get(wrong[0])}"
        raise AssertionError(f"{len(wrong)} of {len(plain)} pods are elsewhere than by the full scan; {first}")


def check_gangs(state: ClusterState, played: Played) -> None:
    """Whatever a session commits, it commits whole gangs."""
    for decisions in played.decisions:
        placed = [x.pod for decision in decisions for x in decision.events if isinstance(x, e.PodPlaced)]
        in_group = Counter(state.pods[uid].fact.annotations.get("scheduling.k8s.io/group-name", "") for uid in placed)
        for (_, name), group in state.pod_groups.items():
            if in_group[name] not in (0, group.min_member):
                raise AssertionError(f"{name}: {in_group[name]} of {group.min_member} pods placed in one session")


def _by_oracle(state: ClusterState, chosen: dict[str, str]) -> float:
    """Pods a second of the brute-force oracle, which asks every node about every pod that runs: on an empty cluster, where
    it is fastest, and only a few of them."""
    if (folder := str(Path(__file__).parents[1])) not in sys.path:
        sys.path.append(folder)
    from oracle.schedule import Rules, run
    from oracle.scores import SCALE
    from oracle.world import World

    def score(world: World, pod: e.PodObserved, node: e.NodeObserved) -> int:
        parts = [
            max(world.free(node.name, r) - world.shape(pod).requests[r], 0) * SCALE // node.allocatable[r] for r in ("cpu", "memory")
        ]
        return sum(parts) // 2 + SCALE - (max(parts) - min(parts)) // 2

    first = in_turn(state, state.pods)[:BY_ORACLE]
    shapes = [e.ShapeDeclared(id, spec) for id, spec in state.shapes.items()]
    world = World.of([*state.nodes.values(), *shapes, *first])
    started = time.perf_counter()
    found = run(world, Rules(score))
    seconds = time.perf_counter() - started
    check_same({uid: placement.node for uid, placement in found.placed.items()}, {pod.pod: chosen[pod.pod] for pod in first})
    return len(first) / seconds


# -- how cost grows with the cluster ---------------------------------------------------------------------------------


async def _growth(sizes: Sizes, url: str) -> list[Row]:
    """One session for one new pod on clusters of three sizes, ten pods running on each node; then the first workload on the
    largest."""
    busy = [worlds.busy(nodes, nodes * 10) for nodes in sizes.growth]
    ours, plain = _open(busy)
    rows = [
        Row(f"session for one pod, {nodes:,} nodes", cost, "µs", baseline=other)
        for nodes, cost, other in zip(sizes.growth, ours, plain, strict=True)
    ]
    few, many = sizes.growth[0], sizes.growth[-1]
    what = f"  {many:,} nodes against {few:,}"
    rows.append(Row(what, ours[-1] / ours[0], "times", baseline=plain[-1] / plain[0], goal=1.5 if sizes.full else None))
    return [*rows, await _again(busy[-1], sizes, url)]


def _open(busy: list[Scribe]) -> tuple[list[float], list[float]]:
    """Microseconds by cluster, medians: of ours, of the scan's one pass. The clusters take turns: what disturbs the machine
    disturbs all of them."""
    scans = [Scan(scribe.state) for scribe in busy]
    made = [len(scribe.state.pods) for scribe in busy]
    times: list[list[tuple[float, float]]] = [[] for _ in busy]
    settle()
    for i in range(SESSIONS):
        for scribe, scan, first, known in zip(busy, scans, made, times, strict=True):
            known.append(_one(scribe, scan, app_pod(first + i, i % SHAPES, f"job-{(first + i) // 10}")))
    gc.unfreeze()
    return [median(t[0] for t in known) for known in times], [median(t[1] for t in known) for known in times]


def _one(scribe: Scribe, scan: Scan, pod: e.PodObserved) -> tuple[float, float]:
    """One pod comes: microseconds of the session, and of the scan."""
    state = scribe.state
    scribe.facts([pod])
    started = time.perf_counter()
    command = decider.due(state, START)
    assert command is not None
    decisions = decide_all(state, decider, [command])
    ours = (time.perf_counter() - started) * 1e6
    fold(state, state.seq + 1, "session", START, decisions)
    started = time.perf_counter()
    row = scan.place(pod)
    plain = (time.perf_counter() - started) * 1e6
    check_same({pod.pod: state.placed[pod.pod].node}, {pod.pod: scan.names[row]})
    return ours, plain


async def _again(scribe: Scribe, sizes: Sizes, url: str) -> Row:
    state, nodes, running = scribe.state, sizes.growth[-1], sizes.growth[-1] * 10
    new = worlds.few_shaped(sizes.pods, first=running + SESSIONS)
    scribe.facts(new)
    scan = Scan(state)
    played = await play(state, url, "growth")
    few = [state.pods[pod].fact for pod in in_order(played, state)][: sizes.scanned]
    plain, chosen = scan.all(few)
    check_same({pod.pod: state.placed[pod.pod].node for pod in few}, chosen)
    what = f"the first, {nodes:,} nodes, {running:,} run"
    return Row(what, sizes.pods / played.seconds, "pods/s", baseline=len(few) / plain)
