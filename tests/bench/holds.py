"""Pods that own holds, among many holds: how many are bound a second, what holds of others cost, how fast holds are made.

As the session's benchmark: decide, encode, append with fsync, decode, fold, until every pod has its node, with the default
configuration. Node and Reservation of the first pods of each case are compared with those of a plain scan (`holds_scan`).
"""

import gc
import tempfile
import time
from pathlib import Path

from restow.contracts import events as e
from restow.domain.decider import decide_all
from restow.domain.fold import fold
from restow.domain.session import decider
from restow.eventlog.server import NatsServer

from . import holds_worlds as worlds
from .holds_scan import HoldScan
from .holds_worlds import Case
from .session import play, settle
from .table import Row, Size, median
from .world import START, Scribe

TITLE = "holds: pods bound through them (decide, append with fsync, fold)"
BASELINE = (
    "a plain scan of all holds for each pod, then of all nodes, decided only (neither logged nor folded); of the first "
    "pods of each case; same holds and nodes chosen"
)
GOAL = 5_000
"""Pods a second (issue 4)."""
BY_SCAN = 50
"""Pods of each case that the scan places, too."""
SHORT = 2_000
"""Pods up to which a case is run three times: it is over sooner than what may disturb it."""
SESSIONS = 100
"""For the cost of one session, with each number of others' holds."""
OWN = 150
"""Holds there that are the new pods' own."""


class Sizes:
    def __init__(self, size: Size) -> None:
        self.full = size is Size.FULL
        self.nodes, self.holds, self.pods = {
            Size.FULL: ((100, 5_000), (300, 3_000), (1_000, 10_000)),
            Size.QUICK: ((100, 1_000), (300,), (1_000, 4_000)),
            Size.SMOKE: ((20,), (30,), (30,)),
        }[size]
        self.unrelated = {Size.FULL: (0, 300, 3_000, 30_000), Size.QUICK: (0, 300, 3_000), Size.SMOKE: (0, 30, 60)}[size]
        self.cluster = {Size.FULL: 5_000, Size.QUICK: 2_000, Size.SMOKE: 40}[size]
        self.sessions, self.own = (SESSIONS, OWN) if size is not Size.SMOKE else (5, 9)


async def measure(size: Size) -> list[Row]:
    sizes = Sizes(size)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder, NatsServer(Path(folder) / "nats") as server:
        for kinds in worlds.cases(sizes.nodes, sizes.holds, sizes.pods):
            rows.append(await _slowest(kinds, sizes, server.url))
        rows += await _placing(sizes, server.url)
    return [*rows, *_among_others(sizes)]


# -- bound through holds ---------------------------------------------------------------------------------------------


async def _slowest(kinds: list[Case], sizes: Sizes, url: str) -> Row:
    """Of four kinds of owners the one that costs most; the scan's is that of the same."""
    rates = [await _bind(case, sizes, url) for case in kinds]
    ours, plain = min(rates)
    case = kinds[0]
    what = f"{case.nodes:,} nodes, {case.holds:,} holds, {case.pods:,} pods" if case.once else "  the same, reusable holds"
    return Row(what, ours, "pods/s", baseline=plain, goal=GOAL if sizes.full else None)


async def _bind(case: Case, sizes: Sizes, url: str) -> tuple[float, float]:
    """Pods a second: ours, and the scan's."""
    seconds = []
    for i in range(3 if sizes.full and case.pods <= SHORT else 1):
        state = worlds.build(case).state
        if i == 0:
            scan, first = HoldScan(state), [state.pods[uid].fact for uid in list(state.queue)[:BY_SCAN]]
        stream = "-".join(["bind", str(i), *[str(int(part)) for part in case]])
        seconds.append((await play(state, url, stream)).seconds)
        check_bound(case, worlds.handed(state))
    plain, chosen = scan.take_all(first)
    ours = worlds.handed(state)
    check_same({pod.pod: ours[pod.pod] for pod in first}, chosen)
    return case.pods / median(seconds), len(first) / plain


def check_bound(case: Case, chosen: dict[str, tuple[str, str]]) -> None:
    """Every pod has a node, and as many as there is capacity for in holds have it of one."""
    through = sum(bool(uid) for _, uid in chosen.values())
    expected = min(case.holds, case.pods) if case.once else case.pods
    if len(chosen) != case.pods or through != expected:
        raise AssertionError(f"{case}: {len(chosen)} pods placed, {through} of them through holds; expected {expected}")


def check_same(ours: dict[str, tuple[str, str]], plain: dict[str, tuple[str, str]]) -> None:
    if ours != plain:
        wrong = [uid for uid in sorted({*ours, *plain}) if ours.get(uid) != plain.get(uid)]
        first = f"{wrong[0]}: {ours.get(wrong[0])}, by the scan {plain.get(wrong[0])}"
        raise AssertionError(f"{len(wrong)} of {len(plain)} pods are elsewhere than by the full scan; {first}")


# -- holds are made --------------------------------------------------------------------------------------------------


async def _placing(sizes: Sizes, url: str) -> list[Row]:
    """All Reservations are requested at once: accepted before, held in this."""
    rows = []
    for what, once, shared in (("once-only", True, False), ("reusable, same owners", False, True)):
        case = Case(sizes.cluster, sizes.holds[-1], sizes.holds[-1], once, shared=shared)
        seconds = []
        for i in range(3 if sizes.full else 1):
            state = worlds.asked(case).state
            if i == 0:
                plain = _place_by_scan(case)
            seconds.append((await play(state, url, f"place-{int(once)}-{i}")).seconds)
            if state.slot_queue:
                raise AssertionError(f"{len(state.slot_queue)} places are not held")
        goal = GOAL if sizes.full else None
        rows.append(Row(f"{case.holds:,} held, {what}", case.holds / median(seconds), "holds/s", baseline=case.holds / plain, goal=goal))
    return rows


def _place_by_scan(case: Case) -> float:
    """Seconds of the scan's passes over all nodes, for pods like the holds."""
    scribe = worlds.asked(case)
    scan = HoldScan(scribe.state)
    pods = list(worlds.owners_of(case))
    started = time.perf_counter()
    for pod in pods:
        scan.place(pod)
    return time.perf_counter() - started


# -- among holds of others -------------------------------------------------------------------------------------------


def _among_others(sizes: Sizes) -> list[Row]:
    """One session for one new pod that owns holds, and for one that owns none, while others own ever so many."""
    clusters = [_with_others(sizes, unrelated) for unrelated in sizes.unrelated]
    rows = []
    for owner in (True, False):
        ours, plain = _open(clusters, owner, sizes)
        who = "owner comes" if owner else "stranger"
        rows += [
            Row(f"{who}, {unrelated:,} holds of others", cost, "µs", baseline=other)
            for unrelated, cost, other in zip(sizes.unrelated, ours, plain, strict=True)
        ]
        what = f"  {sizes.unrelated[-1]:,} against {sizes.unrelated[0]:,}"
        rows.append(Row(what, ours[-1] / ours[0], "times", baseline=plain[-1] / plain[0], goal=1.5 if sizes.full else None))
    return rows


def _with_others(sizes: Sizes, unrelated: int) -> Scribe:
    own = Case(sizes.cluster, sizes.own, 0, once=True, shared=True)
    scribe = worlds.asked(own)
    if unrelated:
        others = Case(sizes.cluster, unrelated, 0, once=True)
        scribe.facts(list(worlds.reservations(others, "other", "their-app")))
        worlds.review(scribe)
    worlds.hold_all(scribe)
    return scribe


def _open(clusters: list[Scribe], owner: bool, sizes: Sizes) -> tuple[list[float], list[float]]:
    """Microseconds by cluster, medians: of ours, of the scan's. The clusters take turns."""
    scans = [HoldScan(scribe.state) for scribe in clusters]
    own = Case(sizes.cluster, sizes.own, 0, once=True, shared=True)
    known: list[list[tuple[float, float]]] = [[] for _ in clusters]
    settle()
    for i in range(sizes.sessions):
        number = i + (0 if owner else sizes.sessions)
        [pod] = worlds.owners_of(own, number, 1) if owner else worlds.strangers(number, 1)
        for scribe, scan, times in zip(clusters, scans, known, strict=True):
            times.append(_one(scribe, scan, pod, owner))
    gc.unfreeze()
    return [median(ours for ours, _ in times) for times in known], [median(plain for _, plain in times) for times in known]


def _one(scribe: Scribe, scan: HoldScan, pod: e.PodObserved, owner: bool) -> tuple[float, float]:
    state = scribe.state
    scribe.facts([pod])
    started = time.perf_counter()
    command = decider.due(state, START)
    assert command is not None, "a pod waits"
    decisions = decide_all(state, decider, [command])
    ours = (time.perf_counter() - started) * 1e6
    fold(state, state.seq + 1, "session", START, decisions)
    started = time.perf_counter()
    row, uid = scan.take(pod)
    plain = (time.perf_counter() - started) * 1e6
    placed = state.placed[pod.pod]
    if bool(placed.hold) is not owner:
        raise AssertionError(f"{pod.name}: takes {placed.hold or 'no hold'}")
    check_same({pod.pod: (placed.node, placed.hold[0] if placed.hold else "")}, {pod.pod: (scan.names[row], uid)})
    return ours, plain
