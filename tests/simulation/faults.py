"""What goes wrong: each act of the plan's list, and `calm`, after which nothing does."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from restow.kubesim.errors import ApiError
from restow.kubesim.landing import POLICY
from restow.kubesim.nodes import set_ready
from restow.kubesim.resources import MUTATINGPOLICIES, NODES, Resource
from simulation.plan import Act
from simulation.processes import Unit

if TYPE_CHECKING:
    from simulation.world import World

QUIET = (0.0002, 0.002)
"""The network of a quiet cluster: seconds, least and most."""


class Faults:
    """`do` carries out one act."""

    def __init__(self, world: "World") -> None:
        self._world, self._loop = world, world.loop
        self._api = world.server.cluster.faults
        self._cutting = random.Random(f"cuts {world.plan.seed}")
        self._timings = world.server.controllers.runtime.timings
        self._calm = False
        self._taken: Any = None
        """The policy that gates successors, while it is away."""

    def do(self, act: Act) -> None:
        run: Callable[..., Any] = getattr(self, "_" + act.what)
        run(**act.args)

    def _until(self, seconds: float, what: Callable[[], Any]) -> None:
        """The end of a fault, unless calm has ended all of them."""
        self._loop.outside(seconds, lambda: None if self._calm else what())

    def calm(self) -> None:
        """Everything that was broken is whole; what was killed is being started."""
        world, self._calm = self._world, True
        self._api.clear()
        world.broker.start()
        world.broker.shares, world.broker.sync = {}, 0.0
        self._loop.cut, self._loop.latency = lambda: None, QUIET
        world.server.controllers.runtime.timings = self._timings
        for unit in world.units:
            if unit.process is not None:
                unit.process.kill_at = None
                self._loop.resume(unit.process)
        self._put_back()
        world.in_cluster(world.server.controllers.by_name["default-scheduler"].list_again)
        for node in world.plan.nodes:
            world.in_cluster(world.users.heal, node.name)

    # -- processes -----------------------------------------------------------------------------------------------------

    def _unit(self, service: str, number: int) -> Unit | None:
        return next((u for u in self._world.units if (u.name, u.number) == (service, number) and u.alive), None)

    def _kill(self, service: str, number: int, after: int) -> None:
        if (unit := self._unit(service, number)) is not None and unit.process is not None:
            unit.process.kill_at = unit.process.ran + after

    def _pause(self, service: str, number: int, seconds: float) -> None:
        unit = self._unit(service, number)
        if unit is not None and (process := unit.process) is not None and not process.paused:
            self._loop.pause(process)
            self._until(seconds, lambda: self._loop.resume(process))

    def _away(self, seconds: float) -> None:
        """Everything of Restow stands still at once, and goes on where it was."""
        for service, number in [(unit.name, unit.number) for unit in self._world.units]:
            self._pause(service, number, seconds)

    def _skew(self, service: str, number: int, by: float) -> None:
        """Somebody sets its clock; it stays wrong."""
        for unit in self._world.units:
            if (unit.name, unit.number) == (service, number):
                unit.skew = by
                if unit.process is not None:
                    unit.process.skew = by

    # -- the broker ----------------------------------------------------------------------------------------------------

    def _broker(self, seconds: float) -> None:
        self._world.broker.stop()
        self._until(seconds, self._world.broker.start)

    def _crash(self, seconds: float) -> None:
        self._world.broker.stop(crash=True)
        self._until(seconds, self._world.broker.start)

    def _appends(self, seconds: float, **shares: float) -> None:
        broker = self._world.broker
        broker.shares = shares
        self._until(seconds, lambda: setattr(broker, "shares", {}))

    def _sync(self, each: float, seconds: float) -> None:
        broker = self._world.broker
        broker.sync = each
        self._until(seconds, lambda: setattr(broker, "sync", 0.0))

    # -- the API -------------------------------------------------------------------------------------------------------

    def _status(self, code: int, retry_after: int, verb: str, count: int) -> None:
        self._api.add("status", code=code, retry_after=retry_after, verb=verb, count=count)

    def _drop(self, verb: str, count: int) -> None:
        """Done, but the answer is lost."""
        self._api.add("drop", verb=verb, count=count)

    def _delay(self, verb: str, count: int, by: float) -> None:
        self._api.add("delay", verb=verb, count=count, seconds=by)

    def _lag(self, versions: int, count: int) -> None:
        self._api.add("lag", versions=versions, count=count)

    def _watch(self, action: str, resource: str, last: int, seconds: float) -> None:
        self._api.watches(action, self._resource(resource), last=last)
        if action == "stall":
            self._until(seconds, lambda: self._world.in_cluster(self._api.watches, "resume"))

    def _history(self) -> None:
        """Compaction: watches that are open end, and those that begin in the past cannot."""
        self._api.watches("compact")
        self._api.watches("gone")

    def _restored(self) -> None:
        """The API server comes back from a backup: the same objects, lower versions, no history. Who was talking to it is cut off."""
        self._world.store.restore()
        self._api.watches("cut")
        for connection in list(self._world.kube.connections):
            connection.reset(by=self._world.kube)

    def _resource(self, plural: str) -> Resource | None:
        group = "batch.volcano.sh" if plural == "reservations" else ""
        return self._world.store.registry.find(group, plural) if plural else None

    # -- beside the stock scheduler ------------------------------------------------------------------------------------

    def _gate(self, seconds: float) -> None:
        """Somebody takes the policy away that gates successors; it comes back."""
        world = self._world
        policy = world.store.find(MUTATINGPOLICIES, "", POLICY)
        if policy is None:
            return
        self._taken = {"metadata": {"name": POLICY, "labels": policy["metadata"].get("labels") or {}}, "spec": policy["spec"]}
        world.in_cluster(world.store.delete, MUTATINGPOLICIES, "", POLICY)
        self._until(seconds, self._put_back)

    def _put_back(self) -> None:
        taken, self._taken = self._taken, None
        if taken is not None:
            self._world.in_cluster(self._world.store.create, MUTATINGPOLICIES, taken)

    def _stock(self, seconds: float = 0.0) -> None:
        """The stock scheduler begins again, and nominations of gated pods are unknown to it; or its API server is away for so long."""
        scheduler = self._world.server.controllers.by_name["default-scheduler"]
        self._world.in_cluster(scheduler.cut if seconds else scheduler.restart)
        if seconds:
            self._until(seconds, lambda: self._world.in_cluster(scheduler.list_again))

    # -- network, nodes, budgets ---------------------------------------------------------------------------------------

    def _net(self, share: float, seconds: float) -> None:
        chance = self._cutting
        self._loop.cut = lambda: chance.uniform(0.0, 0.01) if chance.random() < share else None
        self._until(seconds, lambda: setattr(self._loop, "cut", lambda: None))

    def _latency(self, low: float, high: float, seconds: float) -> None:
        self._loop.latency = (low, high)
        self._until(seconds, lambda: setattr(self._loop, "latency", QUIET))

    def _kubelet(self, slower: float, seconds: float) -> None:
        runtime = self._world.server.controllers.runtime
        kept = self._timings
        runtime.timings = replace(kept, start=kept.start * slower, ready=kept.ready * slower, stop=kept.stop * slower)
        self._until(seconds, lambda: setattr(runtime, "timings", kept))

    def _dies(self, node: str, how: str, seconds: float) -> None:
        world = self._world
        if node not in {one.name for one in world.plan.nodes}:
            return
        try:
            if how == "gone":
                world.in_cluster(world.store.delete, NODES, "", node)
            else:
                world.in_cluster(set_ready, world.store, node, False if how == "false" else None)
        except ApiError:
            return
        self._until(seconds, lambda: world.in_cluster(world.users.heal, node))

    def _refuses(self, workload: str, seconds: float) -> None:
        """A budget that lets nobody go, for so long."""
        world = self._world
        try:
            world.in_cluster(world.users.refuse, workload, "0")
        except ApiError:
            return
        self._loop.outside(seconds, lambda: world.in_cluster(world.users.refuse, workload, "1"))
