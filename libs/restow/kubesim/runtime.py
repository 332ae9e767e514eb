"""What the controllers share: the store, time, indexes, and turns of work.

Every controller is level-triggered. `observe` looks at a change of the store, keeps its indexes and queues keys;
it never writes. `reconcile` compares what is with what should be, takes a bounded step, and returns after how many
seconds it wants to look again (None: when something changes). All of it happens on one event loop in turns of a
few milliseconds, so that the API keeps answering during a burst.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol

from restow.kubesim.errors import ApiError
from restow.kubesim.podindex import OwnerIndex, PodIndex
from restow.kubesim.podstate import Obj
from restow.kubesim.resources import (
    CONTROLLERREVISIONS,
    DAEMONSETS,
    DEPLOYMENTS,
    DEVICECLASSES,
    JOBS,
    LEASES,
    NAMESPACES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PERSISTENTVOLUMES,
    PODS,
    REPLICASETS,
    RESOURCECLAIMS,
    RESOURCECLAIMTEMPLATES,
    RESOURCESLICES,
    STATEFULSETS,
    STORAGECLASSES,
    Resource,
)
from restow.kubesim.shelf import Change, Stored
from restow.kubesim.store import Store
from restow.kubesim.timers import Handle, Loop, Timers, Timings
from restow.kubesim.workqueue import Key, WorkQueue

log = logging.getLogger(__name__)

_REPLAYED: tuple[Resource, ...] = (
    NAMESPACES, NODES, LEASES, STORAGECLASSES, PERSISTENTVOLUMES, PERSISTENTVOLUMECLAIMS, CONTROLLERREVISIONS,
    DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS, JOBS, DEVICECLASSES, RESOURCESLICES, RESOURCECLAIMTEMPLATES,
    RESOURCECLAIMS, PODS,
)  # fmt: skip


class Controller(Protocol):
    """One control loop."""

    name: str
    queue: WorkQueue

    @property
    def watches(self) -> tuple[Resource, ...]:
        """What it observes."""

    def observe(self, change: Change) -> None:
        """Note a change. Must not write to the store."""

    def reconcile(self, key: Any) -> float | None:
        """One bounded step for one key; seconds until the next look, or None. May raise."""


class Runtime:
    """What the controllers share: the store, time, the indexes, and the turns of work."""

    def __init__(self, store: Store, loop: Loop, timings: Timings, clock: Callable[[], float]):
        """`clock` measures the length of a turn; a virtual loop's own time makes a turn end only with the work."""
        self.store = store
        self.timings = timings
        self.timers = Timers(loop, self.wake)
        self.pods = PodIndex()
        self.replicasets = OwnerIndex()
        self.failures = 0
        """Reconciles that raised something other than a conflict."""
        self._loop = loop
        self._clock = clock
        self._controllers: list[Controller] = []
        self._observers: dict[tuple[str, str], list[Callable[[Change], None]]] = {}
        self._turn_handle: Handle | None = None
        self._unsubscribe: Callable[[], None] | None = None
        self._closed = False

    def now(self) -> float:
        """Wall time in seconds since 1970, from the store's clock."""
        return self.store.clock().timestamp()

    def time(self) -> float:
        """The loop's time in seconds; for durations."""
        return self._loop.time()

    def new_queue(self) -> WorkQueue:
        return WorkQueue(self.timers, self.wake, self.timings.retry_first, self.timings.retry_last)

    def add(self, controller: Controller) -> None:
        self._controllers.append(controller)
        for resource in controller.watches:
            self._observers.setdefault(resource.key, []).append(controller.observe)

    @property
    def backlog(self) -> int:
        """Keys that could be worked on now."""
        return sum(len(controller.queue) for controller in self._controllers)

    def open(self) -> None:
        """Take what the store has, then follow it."""
        self._unsubscribe = self.store.subscribe(self._take)
        for resource in _REPLAYED:
            for obj in self.store.list(resource):
                stored = Stored("", obj, int(obj["metadata"]["resourceVersion"]))
                self._take(Change("ADDED", resource, stored, None))

    def close(self) -> None:
        """Stop all work; what is queued is forgotten. The store keeps everything that matters."""
        self._closed = True
        if self._unsubscribe is not None:
            self._unsubscribe()
        self.timers.close()
        if self._turn_handle is not None:
            self._turn_handle.cancel()

    # -- changes --------------------------------------------------------------------------------

    def _take(self, change: Change) -> None:
        if change.resource == PODS:
            self.pods.change(before_of(change), change.new)
        elif change.resource == REPLICASETS:
            self.replicasets.change(before_of(change), change.new)
        for observe in self._observers.get(change.resource.key, ()):
            try:
                observe(change)
            except Exception:
                self.failures += 1
                log.exception("kubesim: %r could not take %r", observe, change)

    # -- turns ----------------------------------------------------------------------------------

    def wake(self) -> None:
        """There is, or may be, work: make sure that a turn comes."""
        if self._turn_handle is None and not self._closed:
            self._turn_handle = self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._turn_handle = None
        try:
            self._work()
        finally:
            self.timers.arm()
            if self.backlog:
                self.wake()

    def _work(self) -> None:
        while (timer := self.timers.pop()) is not None:
            callback = timer.callback
            assert callback is not None
            callback(*timer.args)
        end = self._clock() + self.timings.slice
        busy = True
        while busy and self._clock() < end:
            busy = False
            # One key from each controller: none waits for the burst of another.
            for controller in self._controllers:
                key = controller.queue.pop()
                if key is not None:
                    busy = True
                    self._reconcile(controller, key)

    def _reconcile(self, controller: Controller, key: Key) -> None:
        queue = controller.queue
        try:
            again = controller.reconcile(key)
        except ApiError as error:
            delay = queue.retry(key)
            level = logging.DEBUG if error.code == 409 else logging.WARNING
            self.failures += error.code != 409
            log.log(level, "kubesim %s %s: %s; again in %.3f s", controller.name, key, error, delay)
        except Exception:
            delay = queue.retry(key)
            self.failures += 1
            log.exception("kubesim %s %s failed; again in %.3f s", controller.name, key, delay)
        else:
            queue.forget(key)
            if again is not None:
                queue.add_after(key, again)


def before_of(change: Change) -> Obj | None:
    """The state that the change replaced (for a deletion `change.old` is the last state, not the one before)."""
    return None if change.before is None else change.before.obj


def write_status(store: Store, resource: Resource, obj: Obj, status: Obj) -> Obj:
    """Write the status of the object as it was read; no write if nothing changes. 409 if it changed meanwhile."""
    if status == obj.get("status"):
        return obj
    meta = obj["metadata"]
    return store.update(resource, {"metadata": meta, "status": status}, subresource="status", owned=True)
