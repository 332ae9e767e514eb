"""What happened in a stretch of a log, in numbers: what there was at both ends, how long pods waited, what was moved and for whom, and what plans came to."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from restow.contracts import events as e
from restow.contracts.ids import Millis, PodUid
from restow.domain.fragmentation.packing import packing
from restow.domain.node_table import WHOLE
from restow.domain.record_trust import Examined
from restow.domain.state import OVER, ClusterState
from restow.eventlog.port import Record
from restow.replay.pod_status import running
from restow.replay.settled import Settled, settle
from restow.replay.source import Source
from restow.replay.state_at import Progress, no_progress
from restow.replay.workload import workload_of

KNOWN = {"nodes", "pods"}
"""What has been read of a cluster before there is anything to compare with."""
MOST = 10
"""Workloads that are named."""


class Ends(msgspec.Struct, rename="camel"):
    """What there is at one end of it. `empty_nodes` have no pods but a DaemonSet's or their own; of all `devices`, `free_devices` are wholly free."""

    seq: int
    time: Millis
    nodes: int
    empty_nodes: int
    devices: int
    free_devices: int
    running: int
    waiting: int


class Waited(msgspec.Struct, rename="camel"):
    """How long pods of a namespace were seen to wait until they had a node, of those that got one in this time; in ms."""

    namespace: str
    pods: int
    p50: int
    p95: int
    longest: int


class Disturbed(msgspec.Struct, rename="camel"):
    """A workload, and how many of its pods were evicted by moves."""

    namespace: str
    workload: str
    evicted: int


class Paused(msgspec.Struct, rename="camel"):
    """Moves were paused, by somebody or (`by` empty) by Restow itself. `until` is 0 where they still are."""

    since: Millis
    by: str
    reason: str
    until: Millis = Millis(0)


class Period(msgspec.Struct, rename="camel"):
    """`begin` and `end` are None where the cluster was not known by then. `failed` counts moves by reason, `preempted` pods that others took the place of."""

    cluster: str
    begin: Ends | None
    end: Ends | None
    waited: list[Waited]
    evicted: int
    landed: int
    failed: dict[str, int]
    preempted: int
    disturbed: list[Disturbed]
    paused: list[Paused]
    plans: list[Settled]


def period(source: Source, since: Millis = Millis(0), progress: Progress = no_progress) -> Period:
    """From the first commit at or after `since` (ms) to the log's end. Raises ReplayError."""
    watch = _Watch(since)
    plans = settle(source, progress, watch)
    return watch.found(source.cluster, [plan for plan in plans if plan.at >= since])


class _Watch:
    """Hears of every record once it is folded."""

    def __init__(self, since: Millis) -> None:
        self._since = since
        self._begin: Ends | None = None
        self._state: ClusterState | None = None
        self._waiting: dict[PodUid, tuple[str, Millis]] = {}
        self._decided: dict[PodUid, tuple[str, Millis]] = {}
        """Those that waited, until they are bound: where the API refuses that, they go on waiting."""
        self._waited: dict[str, dict[PodUid, int]] = {}
        self._disturbed = Counter[tuple[str, str]]()
        self._failed = Counter[str]()
        self._landed = self._preempted = 0
        self._paused: list[Paused] = []
        self._owners: dict[PodUid, tuple[str, str]] = {}

    def __call__(self, state: ClusterState, record: Record, found: Examined) -> None:
        self._state, now = state, Millis(state.time)
        counts = now >= self._since
        if counts and self._begin is None and state.synced.keys() >= KNOWN:
            self._begin = ends(state)
        for decision in found.decisions:
            for event in decision.events:
                self._hear(state, event, now, counts)

    def _hear(self, state: ClusterState, event: object, now: Millis, counts: bool) -> None:
        match event:
            case e.PodObserved(pod=pod, namespace=namespace, node=node):
                known = state.pods.get(pod)
                if known is not None:
                    self._owners[pod] = namespace, workload_of(state, known.fact) or f"Pod/{known.fact.name}"
                if node:
                    self._bound(pod, now, counts)
                elif pod not in self._decided:
                    self._waiting.setdefault(pod, (namespace, now))
            case e.PodPlaced(pod=pod):
                self._placed(pod, now, counts)
            case e.PodReleased(pod=pod) if pod in self._decided:
                waits = self._waiting[pod] = self._decided.pop(pod)
                self._waited.get(waits[0], {}).pop(pod, None)
            case e.PodChanged(pod=pod, node=node) if node:
                self._bound(pod, now, counts)
            case e.PodGone(pod=pod):
                self._waiting.pop(pod, None)
                self._decided.pop(pod, None)
                if pod not in state.victims:
                    self._owners.pop(pod, None)
            case e.MovesPaused(by=by, reason=reason):
                self._paused.append(Paused(now, by, reason))
            case e.MovesResumed() if self._paused and not self._paused[-1].until:
                self._paused[-1].until = now
            case e.Evicted(migration=id) if counts and id in state.migrations:
                self._disturbed[self._owners.get(state.migrations[id].move.pod, (state.migrations[id].move.namespace, ""))] += 1
            case e.Landed() if counts:
                self._landed += 1
            case (e.MigrationFailed(reason=reason)) if counts:
                self._failed[reason] += 1
            case e.NotRecreated() if counts:
                self._failed["NotRecreated"] += 1
            case e.Preempted() if counts:
                self._preempted += 1

    def _placed(self, pod: PodUid, now: Millis, counts: bool) -> None:
        known = self._waiting.pop(pod, None)
        if known is None:
            return
        self._decided[pod] = known
        if counts:
            self._waited.setdefault(known[0], {})[pod] = now - known[1]

    def _bound(self, pod: PodUid, now: Millis, counts: bool) -> None:
        self._placed(pod, now, counts)
        self._decided.pop(pod, None)

    def found(self, cluster: str, plans: list[Settled]) -> Period:
        waited = [_waited(namespace, sorted(times.values())) for namespace, times in self._waited.items() if times]
        disturbed = [Disturbed(namespace, workload, count) for (namespace, workload), count in self._disturbed.items()]
        return Period(
            cluster,
            self._begin,
            ends(self._state) if self._state is not None and self._begin is not None else None,
            sorted(waited, key=lambda one: (-one.p95, one.namespace)),
            self._disturbed.total(),
            self._landed,
            dict(sorted(self._failed.items(), key=lambda one: (-one[1], one[0]))),
            self._preempted,
            sorted(disturbed, key=lambda one: (-one.evicted, one.namespace, one.workload))[:MOST],
            [one for one in self._paused if not one.until or one.until >= self._since],
            plans,
        )


def _waited(namespace: str, times: Sequence[int]) -> Waited:
    return Waited(namespace, len(times), share(times, 0.5), share(times, 0.95), times[-1])


def share(times: Sequence[int], part: float) -> int:
    """The smallest of these, which ascend, that so large a part of them does not exceed."""
    return times[max(0, math.ceil(part * len(times)) - 1)]


def ends(state: ClusterState) -> Ends:
    packed = packing(state)
    return Ends(
        state.seq,
        Millis(state.time),
        packed.nodes,
        packed.free_nodes,
        packed.total // WHOLE,
        packed.free_devices,
        running(state),
        sum(state.node_of(uid) is None and pod.live.phase not in OVER and not pod.live.deleting for uid, pod in state.pods.items()),
    )
