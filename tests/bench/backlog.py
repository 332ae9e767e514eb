"""What waits in vain must cost next to nothing: on a full cluster pods end, one after another, and each time sessions decide until they rest."""

import gc
import time
from collections.abc import Callable

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import PodUid
from restow.domain.decider import decide_all
from restow.domain.fold import fold
from restow.domain.session import decider
from restow.domain.state import ClusterState

from .session import settle
from .table import Row, Size, median
from .world import START, Scribe, app_pod, plain_nodes, plain_shape

TITLE = "a pod ends on a full cluster where much waits: sessions until they rest, processor time"
BASELINE = "none can be run here"
SIZES = {Size.FULL: (1_000, 10_000, 50), Size.QUICK: (200, 1_000, 20), Size.SMOKE: (5, 20, 3)}
"""Nodes, what waits, pods that end."""
GOAL = 20.0
ON_A_NODE = 10
MEMBERS = 2
"""Of each gang that waits."""

Waiting = Callable[[int], list[e.Event]]


async def measure(size: Size) -> list[Row]:
    nodes, waiting, ends = SIZES[size]
    rows: list[Row] = []
    for what, facts in ((f"{waiting:,} shapes", shapes), (f"{waiting:,} gangs of {MEMBERS} pods", gangs)):
        scribe = full(nodes)
        scribe.facts(facts(waiting))
        to_rest(scribe.state)
        settle()
        costs = [end(scribe, PodUid(f"00000000-0000-4000-8000-{i * 7 % (nodes * ON_A_NODE):012d}")) for i in range(ends)]
        gc.unfreeze()
        if not scribe.state.placed:
            raise AssertionError("nothing took the room that came free")
        rows.append(Row(f"{what} wait, median", median(costs), "ms", goal=GOAL if size is Size.FULL else None))
        rows.append(Row(f"{what} wait, the longest", max(costs), "ms"))
    return rows


def full(nodes: int) -> Scribe:
    """All of every node's CPU is in use, by ten pods."""
    scribe = Scribe()
    names = [fact.name for fact in plain_nodes(nodes)]
    shape = e.ShapeDeclared(plain_shape(0).shape, replace(plain_shape(0).spec, requests={"cpu": 400, "memory": 1 << 30, "pods": 1}))
    running = [app_pod(i, 0, f"job-{i // 10}", node=names[i % nodes]) for i in range(nodes * ON_A_NODE)]
    scribe.facts([*plain_nodes(nodes), shape])
    scribe.facts(running)
    return scribe


def shapes(count: int) -> list[e.Event]:
    """Pods of so many shapes, two in three of which fit where one of those that run has been, each its own controller's."""
    found: list[e.Event] = []
    for i in range(1, count + 1):
        requests = {"cpu": 300 + i % 150, "memory": (500 << 20) + i * 4096, "pods": 1}
        found += [e.ShapeDeclared(plain_shape(i).shape, replace(plain_shape(i).spec, requests=requests)), app_pod(1_000_000 + i, i, f"waits-{i}")]
    return found


def gangs(count: int) -> list[e.Event]:
    """So many PodGroups; all the pods of one are alike, and of a hundred shapes in all."""
    found: list[e.Event] = []
    for i in range(1, 101):
        requests = {"cpu": 150 + i, "memory": (500 << 20) + i * 4096, "pods": 1}
        found.append(e.ShapeDeclared(plain_shape(i).shape, replace(plain_shape(i).spec, requests=requests)))
    for i in range(count):
        name = f"gang-{i}"
        found.append(e.PodGroupObserved("default", name, f"uid-{name}", START, min_member=MEMBERS))
        found += [app_pod(1_000_000 + i * MEMBERS + k, i % 100 + 1, name, name) for k in range(MEMBERS)]
    return found


def to_rest(state: ClusterState) -> None:
    while (command := decider.due(state, START)) is not None:
        decisions = decide_all(state, decider, [command])
        if not decisions:
            break
        fold(state, state.seq + 1, "session", START, decisions)


def end(scribe: Scribe, pod: PodUid) -> float:
    """Milliseconds of processor time, from the fact that it is gone, its fold included."""
    started = time.process_time()
    scribe.facts([e.PodGone(pod)])
    to_rest(scribe.state)
    return (time.process_time() - started) * 1e3
