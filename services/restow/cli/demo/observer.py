"""The demo's own fold of the log: what it shows and waits for is what any reader of the log can know."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from restow.cli.demo.scenario import NAMESPACE
from restow.contracts.ids import Millis
from restow.domain.decider import decide_all
from restow.domain.fragmentation import packing
from restow.domain.records import FINAL, Step
from restow.domain.resources import canonical_resource
from restow.domain.session import decider as session
from restow.domain.state import ClusterState
from restow.eventlog.jetstream import connect
from restow.runtime.follower import Follower


class Observer:
    """`async with Observer(nats, cluster)`: follows the log; `until` waits for what it shows."""

    def __init__(self, nats: str, cluster: str, *, foreign: bool = False) -> None:
        """`foreign`: the pods of the demo are another scheduler's."""
        self._nats, self._cluster, self._foreign = nats, cluster, foreign
        self.state = ClusterState()
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "Observer":
        self.log = await connect(self._nats, self._cluster, create=False, name="restow-demo")
        follower = Follower(self.log, "", self.state)  # type: ignore[arg-type]
        follower.listeners.append(self._changed.set)
        self._task = asyncio.create_task(follower.run(), name="observe the log")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.log.close()

    async def until(self, what: str, holds: Callable[[], bool], timeout: float) -> None:
        """Raises TimeoutError, saying what was waited for."""
        deadline = asyncio.get_running_loop().time() + timeout
        while not holds():
            if self._task.done():
                self._task.result()
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                raise TimeoutError(f"{what}: not within {timeout:g} s")
            self._changed.clear()
            if not holds():
                with suppress(TimeoutError):
                    # Not wait_for: before Python 3.12 it can swallow a cancellation, and the waiter never ends.
                    async with asyncio.timeout(min(left, 1.0)):
                        await self._changed.wait()

    # -- what the demo asks ------------------------------------------------------------------------------------------

    def arrived(self) -> int:
        """Pods of the demo that the log has ever seen."""
        return self.state.clock

    def undecided(self) -> int:
        """Pods that the session has not decided on yet."""
        return len(self.state.queue)

    def rests(self) -> bool:
        """Whether the session has nothing to decide about what the log says by now. What it has looked at in vain is in no log, so it is decided here."""
        command = session.due(self.state, Millis(self.state.time))
        return command is None or not decide_all(self.state, session, [command])

    def waiting(self) -> int:
        """Pods that no node has capacity for, as far as their scheduler has looked at them."""
        return sum(pod.fact.namespace == NAMESPACE and not pod.live.node for pod in self.state.pods.values()) if self._foreign else len(self.state.parked)

    def settled(self) -> bool:
        """Nobody is on the way: every pod of the demo runs and is ready, or waits because nothing fits. Of pods of another scheduler each that has no
        node is taken to wait."""
        state = self.state
        if state.queue or state.active or state.backlog:
            return False
        for uid, pod in state.pods.items():
            live = pod.live
            waits = not live.node if self._foreign else uid in state.parked
            if pod.fact.namespace == NAMESPACE and not live.ready and not waits:
                return False
            if live.deleting:
                return False
        return True

    def running(self) -> int:
        return sum(pod.live.ready and not pod.live.deleting for pod in self.state.pods.values())

    def migrations(self) -> dict[Step, int]:
        counts = dict.fromkeys(Step, 0)
        for migration in self.state.migrations.values():
            counts[migration.step] += 1
        return counts

    def finished(self, plan: str) -> bool:
        """Whether every migration of a plan has ended."""
        return plan in self.state.plans and all(  # type: ignore[operator]
            m.step in FINAL for m in self.state.migrations.values() if m.plan == plan
        )

    def packing(self):
        return packing(self.state)

    def allocation(self, resource: str) -> int:
        """Percent of this resource that is used."""
        table = self.state.table
        column = table.columns.get(canonical_resource(resource))
        whole = 0 if column is None else int(table.allocatable[:, column].sum())
        return int(table.used[:, column].sum()) * 100 // whole if whole else 0

    def holds(self) -> int:
        return sum(len(held) for held in self.state.held_on.values())
