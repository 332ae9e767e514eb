"""What is measured, of the recorded log and of a model alike: one meter hears both."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.deciders import DECIDERS
from restow.domain.effects import Evict, EvictVictim
from restow.domain.fragmentation.packing import packing
from restow.domain.hooks import work_since
from restow.domain.state import OVER, ClusterState
from restow.replay.period import share

HOUR = 3_600_000
SAMPLES = 48
"""Instants at which the cluster's free capacity is looked at, evenly from the first commit to the last."""


class Waits(msgspec.Struct, rename="camel"):
    """How long pods of a queue waited from when they were first seen until a node was decided, in ms; of those that had none, until they were `gone`, or until the end (`waiting`).
    Successors of evicted pods count with the move, not here."""

    queue: str
    pods: int
    waiting: int
    p50: int
    p90: int
    longest: int
    gone: int = 0


class Sample(msgspec.Struct, rename="camel"):
    """Wholly free devices at one time, and by size (`1 device`, `0.500 of a device`, `2 devices`, `no device`) how many more pods would fit, each size alone.
    `waiting`: pods that had no node then; `mean_wait`: of those that came since the sample before, how long each waited in all (ms), None where none came."""

    time: Millis
    free_devices: int
    slots: dict[str, int]
    waiting: int = 0
    mean_wait: int | None = None


class Measured(msgspec.Struct, rename="camel"):
    """`moves` were planned and evicted, of which `landed` and `failed` came to an end; `preempted` pods were evicted for others. `lost_gpu_hours`: devices of evicted pods times
    the hours since their creation or last checkpoint (`restow.dev/checkpointed-at`). `waited_hours`: of all pods that count in `waits`; `waited_gpu_hours`: each times the devices
    that it asks for."""

    waits: list[Waits]
    samples: list[Sample]
    placements: int
    moves: int
    landed: int
    failed: int
    preempted: int
    lost_gpu_hours: float
    waited_hours: float = 0.0
    waited_gpu_hours: float = 0.0

    @property
    def mean_free_devices(self) -> float:
        return sum(sample.free_devices for sample in self.samples) / len(self.samples) if self.samples else 0.0


class Stay(msgspec.Struct):
    """One pod: since when it was seen, when and where it was placed first."""

    queue: str
    seen: Millis
    milli: int = 0
    """Thousandths of devices that it asks for."""
    placed: Millis = Millis(0)
    node: NodeName = NodeName("")
    gone: Millis = Millis(0)


class Meter:
    """Hears every event once it is folded."""

    def __init__(self, first: Millis, last: Millis) -> None:
        step = max(1, (last - first) // SAMPLES)
        self._times = [Millis(first + step * i) for i in range(1, SAMPLES)] + [last]
        self._last = last
        self.stays: dict[PodUid, Stay] = {}
        self._samples: list[Sample] = []
        self._moves = self._landed = self._failed = self._preempted = 0
        self._evicting: dict[PodUid, tuple[e.PodObserved, int]] = {}
        """Pods that are to be evicted, as they were when that was decided, and thousandths of devices."""
        self._lost = 0

    def begin(self, state: ClusterState, now: Millis) -> None:
        """What is there already: who waits is taken to wait from now on."""
        for uid in evicting(state):
            self._evict(state, uid)
        for uid, known in state.pods.items():
            if state.node_of(uid) is None and known.live.phase not in OVER and not known.live.deleting and (queue := state.queue_of(known.fact)):
                self.stays[uid] = Stay(queue, now, _milli(state, known.fact))

    def before(self, state: ClusterState, time: Millis) -> None:
        """The next thing happens at `time`: what was to be looked at before that is looked at now."""
        while self._times and self._times[0] < time:
            self._sample(state, self._times.pop(0))

    def hear(self, state: ClusterState, events: Iterable[object], now: Millis) -> None:
        for event in events:
            self._hear(state, event, now)

    def _hear(self, state: ClusterState, event: object, now: Millis) -> None:
        match event:
            case e.PodObserved(pod=pod, node=node) as seen:
                known = state.pods.get(pod)
                if known is not None and pod not in self.stays and node is None and (queue := state.queue_of(known.fact)):
                    self.stays[pod] = Stay(queue, now, _milli(state, known.fact))
                self._moves_on(state, seen, now)
            case e.PodChanged() as seen:
                self._moves_on(state, seen, now)
            case e.PodPlaced(pod=pod, node=node) | e.HandedOver(pod=pod, node=node):
                stay = self.stays.get(pod)
                if stay is not None and not stay.placed:
                    stay.placed, stay.node = now, node
            case e.PodGone(pod=pod):
                if pod in self.stays:
                    self.stays[pod].gone = now
                self._lose(state, pod, now)
            case e.Evicting(migration=id) if id in state.migrations:
                self._evict(state, state.migrations[id].move.pod)
            case e.Evicted(migration=id) if id in state.migrations:
                self._moves += 1
            case e.Preempted(pod=pod):
                self._preempted += 1
                self._evict(state, pod)
            case e.PreemptionEnded(pod=pod):
                self._evicting.pop(pod, None)
            case e.Landed():
                self._landed += 1
            case e.MigrationFailed(migration=id) | e.NotRecreated(migration=id):
                self._failed += 1
                if id in state.migrations:
                    self._evicting.pop(state.migrations[id].move.pod, None)

    def _evict(self, state: ClusterState, pod: PodUid) -> None:
        known = state.pods.get(pod)
        if known is not None and not known.live.deleting:
            self._evicting[pod] = known.fact, _milli(state, known.fact)

    def _moves_on(self, state: ClusterState, seen: e.PodObserved | e.PodChanged, now: Millis) -> None:
        if seen.deleting:
            self._lose(state, seen.pod, now)
        elif seen.phase in OVER:
            # It has ended by itself: nothing is lost.
            self._evicting.pop(seen.pod, None)

    def _lose(self, state: ClusterState, pod: PodUid, now: Millis) -> None:
        """Where it was to be evicted."""
        if pod in self._evicting:
            fact, milli = self._evicting.pop(pod)
            fact = state.pods[pod].fact if pod in state.pods else fact
            self._lost += max(0, now - work_since(fact, now)) * milli

    def _sample(self, state: ClusterState, time: Millis) -> None:
        packed = packing(state)
        slots = {size(fit.devices, fit.milli): fit.pods for fit in packed.fits}
        self._samples.append(Sample(time, packed.free_devices, slots))

    def measured(self, state: ClusterState, successors: set[PodUid]) -> Measured:
        """Of all that was heard; `state` is that at the end."""
        while self._times:
            self._sample(state, self._times.pop(0))
        by_queue: dict[str, list[Stay]] = {}
        counted = [stay for pod, stay in self.stays.items() if pod not in successors]
        for stay in counted:
            by_queue.setdefault(stay.queue, []).append(stay)
        waits = [self._waits(queue, stays) for queue, stays in sorted(by_queue.items())]
        waited = [(self._waited(stay), stay.milli) for stay in counted]
        placed = sum(stay.placed > 0 for stay in self.stays.values())
        return Measured(
            waits, self._with_waits(counted), placed, self._moves, self._landed, self._failed, self._preempted, round(self._lost / 1_000 / HOUR, 3),
            round(sum(time for time, _ in waited) / HOUR, 3), round(sum(time * milli for time, milli in waited) / 1_000 / HOUR, 3),
        )  # fmt: skip

    def _with_waits(self, stays: Sequence[Stay]) -> list[Sample]:
        times = [sample.time for sample in self._samples]
        came: list[list[int]] = [[] for _ in times]
        change = [0] * (len(times) + 1)
        for stay in stays:
            waited = self._waited(stay)
            at = bisect_left(times, stay.seen)
            if at < len(times):
                came[at].append(waited)
            # It waits at each sample from then on until the one at which it does not any more; at the end also who never got a node.
            change[at] += 1
            change[len(times) if not (stay.placed or stay.gone) else bisect_left(times, stay.seen + waited)] -= 1
        waiting = accumulate(change)
        return [
            msgspec.structs.replace(sample, waiting=count, mean_wait=sum(waits) // len(waits) if waits else None)
            for sample, count, waits in zip(self._samples, waiting, came, strict=False)
        ]

    def _waited(self, stay: Stay) -> int:
        """Milliseconds until it had a node, or was gone, or the end."""
        return (stay.placed or stay.gone or self._last) - stay.seen

    def _waits(self, queue: str, stays: Sequence[Stay]) -> Waits:
        times = sorted(map(self._waited, stays))
        without = [bool(stay.gone) for stay in stays if not stay.placed]
        return Waits(queue, len(times), without.count(False), share(times, 0.5), share(times, 0.9), times[-1], without.count(True))


def _milli(state: ClusterState, fact: e.PodObserved) -> int:
    """Thousandths of devices."""
    request = state.vectors[fact.shape].devices
    return request.count * request.milli if request is not None else 0


def evicting(state: ClusterState) -> set[PodUid]:
    """Pods that an eviction is on its way to."""
    owed = [effect for family in ("migration", "session") for effect in DECIDERS[family].pending(state, None)]
    moved = {state.migrations[effect.migration].move.pod for effect in owed if isinstance(effect, Evict)}
    return moved | {effect.pod for effect in owed if isinstance(effect, EvictVictim)}


def size(devices: int, milli: int) -> str:
    """What a pod asks for, in words."""
    if not devices:
        return "no device"
    if milli == 1_000:
        return f"{devices} device{'s' * (devices > 1)}"
    return f"{devices if devices > 1 else ''} x {milli / 1000:g} device".removeprefix(" x ")
