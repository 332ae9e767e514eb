"""Time for everything that runs beside the API server: the speeds, and a heap of timers.

Production gives an asyncio loop, tests give a :class:`VirtualLoop` and turn its hands themselves. Only three
methods of a loop are used, so both are the same to the code here.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Protocol


class Handle(Protocol):
    """What `call_soon` and `call_later` return."""

    def cancel(self) -> None: ...


class Loop(Protocol):
    """The part of an asyncio event loop that is used."""

    def time(self) -> float: ...

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Handle: ...

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Handle: ...


@dataclass(frozen=True, slots=True)
class Timings:
    """Every duration of the simulation, in seconds. Nothing is random, so runs are comparable."""

    start: float = 0.020
    """Bound → containers running."""
    ready: float = 0.010
    """Running → Ready; 0 writes both in one status update."""
    stop: float = 0.020
    """deletionTimestamp → containers gone; never longer than the pod's grace period."""
    status_batch: float = 0.010
    """How long a controller gathers pod changes that only move its status."""
    retry_first: float = 0.005
    retry_last: float = 10.0
    """Bounds of the exponential backoff of a reconcile that failed."""
    pod_gc: float = 0.050
    """Node gone → its pods are removed (kube-controller-manager: 40 s)."""
    namespace: float = 1.0
    """Namespace deleted → what is in it is (kube-controller-manager: 5 s). Who deletes both by name finds both."""
    unschedulable_retry: float = 0.050
    """Least time between two rounds in which the default scheduler tries again what did not fit (kube-scheduler under load: 1 to 10 s)."""
    job_backoff: float = 0.100
    """First delay after a failed pod of a Job, doubled each time (kube-controller-manager: 10 s)."""
    job_backoff_last: float = 6.0
    heartbeat: float = 10.0
    """Between two renewals of a node's Lease; 0 switches heartbeats off."""
    heartbeats_per_second: float = 100.0
    """At most so many renewals: 5 000 nodes renew every 50 s rather than every 10 s."""
    toleration_scale: float = 1.0
    """Multiplies every tolerationSeconds: 0.01 makes 300 s into 3 s."""
    final_status: bool = True
    """A stopped pod reports Failed before it is removed, as kubelets do since 1.27; one more write."""
    slice: float = 0.002
    """Work done in one turn of the loop before the API gets its turn."""

    def faster(self, speed: float) -> Timings:
        """The same with the kubelet's own durations divided by `speed` (> 0)."""
        if speed <= 0:
            raise ValueError(f"kubelet speed must be above 0, not {speed}")
        return replace(self, start=self.start / speed, ready=self.ready / speed, stop=self.stop / speed)

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 0:
                raise ValueError(f"{field.name} must not be negative, but is {getattr(self, field.name)}")


class Timer:
    """One pending call; `cancel` makes it a no-op."""

    __slots__ = ("args", "callback", "due")

    def __init__(self, due: float, callback: Callable[..., None], args: tuple[Any, ...]):
        self.due = due
        self.callback: Callable[..., None] | None = callback
        self.args = args

    def cancel(self) -> None:
        self.callback = None
        self.args = ()


class Timers:
    """A heap of timers of which the loop sees only the earliest. Equal times fire in the order of their making."""

    def __init__(self, loop: Loop, wake: Callable[[], None]):
        """`wake` is called when timers are due; it calls :meth:`pop` until that returns None."""
        self._loop = loop
        self._wake = wake
        self._heap: list[tuple[float, int, Timer]] = []
        self._made = 0
        self._armed: tuple[float, Handle] | None = None

    def __len__(self) -> int:
        return len(self._heap)

    def now(self) -> float:
        """The loop's time in seconds."""
        return self._loop.time()

    def after(self, delay: float, callback: Callable[..., None], *args: Any) -> Timer:
        """Call `callback(*args)` once, `delay` seconds from now."""
        timer = Timer(self._loop.time() + max(delay, 0.0), callback, args)
        self._made += 1
        heapq.heappush(self._heap, (timer.due, self._made, timer))
        self.arm()
        return timer

    def pop(self) -> Timer | None:
        """The next timer that is due and not cancelled, removed from the heap."""
        now = self._loop.time()
        while self._heap and self._heap[0][0] <= now:
            timer = heapq.heappop(self._heap)[2]
            if timer.callback is not None:
                return timer
        return None

    def arm(self) -> None:
        """Ask the loop for a call at the earliest timer, if it has not been asked for one as early."""
        while self._heap and self._heap[0][2].callback is None:
            heapq.heappop(self._heap)
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._armed is not None:
            if self._armed[0] <= due:
                return
            self._armed[1].cancel()
        self._armed = (due, self._loop.call_later(max(due - self._loop.time(), 0.0), self._fire))

    def _fire(self) -> None:
        self._armed = None
        self._wake()

    def close(self) -> None:
        self._heap.clear()
        if self._armed is not None:
            self._armed[1].cancel()
            self._armed = None


class VirtualLoop:
    """A loop whose time moves only by :meth:`advance`; callbacks run in the order of their time."""

    def __init__(self, start: float = 0.0):
        self.now = start
        self._heap: list[tuple[float, int, Timer]] = []
        self._made = 0

    def time(self) -> float:
        return self.now

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> Timer:
        return self.call_later(0.0, callback, *args)

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> Timer:
        timer = Timer(self.now + delay, callback, args)
        self._made += 1
        heapq.heappush(self._heap, (timer.due, self._made, timer))
        return timer

    def advance(self, seconds: float = 0.0) -> None:
        """Run everything that is due within `seconds`, then stand there."""
        end = self.now + seconds
        while self._heap and self._heap[0][0] <= end + 1e-9:
            due, _, timer = heapq.heappop(self._heap)
            self.now = max(self.now, due)
            if timer.callback is not None:
                timer.callback(*timer.args)
        self.now = max(self.now, end)
