"""Restow in small: moves by gate, nominate, swap, driven through the effects, each with the rights of the service that has it."""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from kubernetes.world import WAIT, World, controller, gated, pod_spec

from restow.contracts.values import OwnerRef
from restow.kube import decode as d
from restow.kube.beside import Beside
from restow.kube.describe import pod_fact
from restow.kube.effects import Accepted, Bound, Done, Failed, Gone, PodRef, Taken
from restow.kube.gates import Gated, Gates
from restow.kube.placeholder import Hold, placeholder
from restow.kube.reservation_objects import Created

Obj = dict[str, Any]
LOG = "0123456789abcdef0123456789abcdef"
OPEN = 60_000
"""Milliseconds that a controller stays listed."""
Step = Callable[[PodRef], Awaitable[None]]


async def until_gated(descheduler: Gates) -> None:
    """An API server that has just started gates nothing before it has heard of Landings, and it looks for new kinds every 30 s: nobody moves anything earlier."""
    nobody = OwnerRef("ReplicaSet", "nobody", "00000000-0000-4000-8000-000000000000", "apps/v1")
    assert isinstance(await descheduler.landing(LOG, {nobody.uid: int(time.time() * 1000) + OPEN}), Done)
    async with asyncio.timeout(90):
        while not isinstance(await descheduler.gated(nobody), Gated):
            await asyncio.sleep(0.1)
    assert isinstance(await descheduler.landing(LOG, {nobody.uid: None}), Done)


@dataclass
class Move:
    """One pod's. `end`: landed, elsewhere, waits, rejected, gone, `no hold: …`, `no gate: …`, `not evicted: …`."""

    victim: Obj
    target: str
    owner: Obj
    name: str = ""
    """Of the successor, where it has the victim's."""
    evicted: bool = False
    successor: Obj | None = None
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    end: str = ""
    node: str = ""
    held_ms: float = 0.0
    bound_ms: float = 0.0
    """From the eviction's answer on."""
    stolen: bool = False
    """By a pod of higher priority."""


class Mover:
    """`session` and `descheduler` are their effects."""

    def __init__(self, world: World, session: Beside, descheduler: Gates):
        self.world, self.session, self.descheduler = world, session, descheduler
        self._swaps: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """From a nomination until its placeholder has gone, a node is charged twice: another successor would not fit there, and go elsewhere."""
        self.open: list[Move] = []
        self.let_go = 0
        self._known: set[str] = set()
        self._listing = asyncio.Lock()
        """An entry is made and removed in order: a late removal must not undo a later entry."""
        self._tasks: set[asyncio.Task[Any]] = set()
        world.told.append(self._told)

    async def move(
        self,
        victim: Obj,
        target: str,
        *,
        before: Step | None = None,
        after: Step | None = None,
        wait_end: bool = False,
        shared: frozenset[str] = frozenset(),
        guarded: bool = False,
        virtual: bool = False,
        seconds: float = WAIT,
    ) -> Move:
        """`before`, `after` the eviction, with the placeholder. `wait_end`: the successor is nominated when the victim has gone. `guarded`: a
        virtual placeholder keeps the source until it has landed, and is its way back. `virtual`: the hold itself is one."""
        owner = controller(victim)
        assert owner is not None
        move = Move(victim, target, owner, victim["metadata"]["name"] if owner["kind"] == "StatefulSet" else "")
        self.open.append(move)
        held: PodRef | None = None
        back: PodRef | None = None
        try:
            began = time.perf_counter()
            held = await (self._guard(victim, target) if virtual else self._hold(move, shared))
            move.held_ms = 1000 * (time.perf_counter() - began)
            back = await self._guard(victim, victim["spec"]["nodeName"]) if guarded else None
            if held is not None and await self._listed(move):
                if before is not None:
                    await before(held)
                if self._lost(held):
                    move.end = "no hold: stolen before the eviction"
                elif await self._evict(move):
                    if after is not None:
                        await after(held)
                    await self._land(move, held, back, wait_end, seconds)
            return move
        finally:
            self.open.remove(move)
            async with self._listing:
                if not any(other.owner["uid"] == owner["uid"] for other in self.open):
                    assert isinstance(await self.descheduler.landing(LOG, {owner["uid"]: None}), Done)
            for placed in (held, back):
                if placed is not None:
                    assert isinstance(await self.session.vacate(placed), Done)
            for pod in [p for p in self.world.pods.values() if gated(p) and (controller(p) or {}).get("uid") == owner["uid"]]:
                if not any(other.successor is not None and uid_of(other.successor) == uid_of(pod) for other in self.open):
                    await self.session.let_go(ref(pod))

    # -- its steps -----------------------------------------------------------------------------------------------------

    async def _hold(self, move: Move, shared: frozenset[str]) -> PodRef | None:
        manifest, shape = manifest_of(move.victim, move.target, shared)
        outcome = await self.session.occupy(manifest, shape.priority, LOG)
        if not isinstance(outcome, Created):
            move.end = f"no hold: {outcome}"
            return None
        held, at = PodRef(manifest.metadata.namespace, manifest.metadata.name, outcome.uid), self.world.at

        def settled() -> bool:
            return any((held.uid, what) in at for what in ("running", "failed", "ending", "gone"))

        if not await self.world.within(settled, 5) or self._lost(held):
            move.end = "no hold: " + ("stolen" if (held.uid, "bound") in at else "unschedulable")
            await self.session.vacate(held)
            return None
        return held

    async def _guard(self, victim: Obj, node: str) -> PodRef:
        manifest, shape = manifest_of(victim, node, virtual=True)
        outcome = await self.session.guard(manifest, shape.priority, LOG, node, ref(victim))
        assert isinstance(outcome, Created), outcome
        return PodRef(manifest.metadata.namespace, manifest.metadata.name, outcome.uid)

    async def _listed(self, move: Move) -> bool:
        async with self._listing:
            until = int(time.time() * 1000) + OPEN
            listed = await self.descheduler.landing(LOG, {move.owner["uid"]: until})
        if not isinstance(listed, Done):
            move.end = f"no gate: {listed}"
            return False
        owner = OwnerRef(move.owner["kind"], move.owner["name"], move.owner["uid"], move.owner["apiVersion"])
        for _ in range(100):
            if isinstance(await self.descheduler.gated(owner), Gated):
                return True
            await asyncio.sleep(0.05)
        move.end = "no gate: not within 5 s"
        return False

    async def _evict(self, move: Move) -> bool:
        move.evicted = True
        outcome = await self.descheduler.evict(ref(move.victim))
        if not isinstance(outcome, Accepted):
            move.evicted, move.end = False, f"not evicted: {type(outcome).__name__}"
        return move.evicted

    async def _land(self, move: Move, held: PodRef, back: PodRef | None, wait_end: bool, seconds: float) -> None:
        world, began = self.world, time.perf_counter()
        try:
            await asyncio.wait_for(move.arrived.wait(), seconds)
        except TimeoutError:
            move.end = "no successor"
            return
        assert move.successor is not None
        pod, uid = ref(move.successor), uid_of(move.successor)
        if wait_end or (back is not None and self._lost(held)):
            await world.until(lambda: (uid_of(move.victim), "gone") in world.at, "the victim has gone")
        async with self._swaps[move.target]:
            await self._hand_over(move, pod, held, back)
            await world.within(lambda: (uid, "bound") in world.at or (uid, "gone") in world.at, seconds)
        if (uid, "bound") not in world.at:
            move.end = "waits" if uid in world.pods else "gone"
            return
        move.bound_ms, move.node = 1000 * (world.at[uid, "bound"] - began), world.pods[uid]["spec"]["nodeName"]
        await world.within(lambda: (uid, "running") in world.at or (uid, "failed") in world.at, 5)
        if move.node != move.target:
            # One that has preempted the placeholder may be bound after the successor.
            move.stolen = move.stolen or bool(await world.within(lambda: self._overtaken(move, began), 1))
        move.end = "rejected" if (uid, "failed") in world.at else "landed" if move.node == move.target else "elsewhere"

    async def _hand_over(self, move: Move, pod: PodRef, held: PodRef, back: PodRef | None) -> None:
        if not self._lost(held):
            outcome = await self.session.land(pod, move.target, held, LOG)
            while isinstance(outcome, Failed) and outcome.reason == "Denominated" and not self._lost(held):
                # As the session's effects are tried again.
                outcome = await self.session.land(pod, move.target, held, LOG)
        else:
            move.stolen = True
            source = move.victim["spec"]["nodeName"]
            outcome = await (self.session.land(pod, source, back, LOG) if back is not None else self.session.let_go(pod))
        assert isinstance(outcome, Done | Bound | Taken | Gone), outcome

    def _overtaken(self, move: Move, since: float) -> bool:
        """Whether a pod of higher priority has taken the target meanwhile: nothing protects from those, in the swap neither."""
        mine = move.victim["spec"]["priority"]
        return any(
            node == move.target and at >= since and priority > mine for (node, _), (at, priority) in self.world.takers.items()
        )

    def _lost(self, held: PodRef) -> bool:
        return any((held.uid, what) in self.world.at for what in ("failed", "ending", "gone"))

    # -- successors ----------------------------------------------------------------------------------------------------

    def _told(self, kind: str, pod: Obj) -> None:
        owner, uid = controller(pod), uid_of(pod)
        if kind != "ADDED" or owner is None or uid in self._known:
            return
        self._known.add(uid)
        for move in self.open:
            if move.owner["uid"] == owner["uid"] and move.evicted and move.successor is None and self._fits(move, pod):
                move.successor = pod
                move.arrived.set()
                return
        if gated(pod):
            self.let_go += 1
            task = asyncio.get_running_loop().create_task(self.session.let_go(ref(pod)))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    def _fits(move: Move, pod: Obj) -> bool:
        if move.name and move.name != pod["metadata"]["name"]:
            return False
        return bool(shape_of(pod)[0].requests == shape_of(move.victim)[0].requests)


async def crowded(world: World, mover: Mover, count: int, *, spec: Obj | None = None, crowd: int = 50, at_once: bool = False, virtual: bool = False) -> list[Move]:
    """So many pods leave `source` for a node each. Once all their holds are there, equal pods wait for the same room; then they go, one by one."""
    await world.node("source", gpus=count)
    await world.replicaset("victim", count, spec or pod_spec())
    victims = await world.running("victim", count)
    await world.closed("source")
    for i in range(count):
        await world.node(f"target-{i}", gpus=1)
    arrived, turns = 0, [asyncio.Event() for _ in range(count + 1)]

    async def one(i: int) -> Move:
        async def before(_: PodRef) -> None:
            nonlocal arrived
            arrived += 1
            if arrived == count:
                await world.crowd(crowd)
                for turn in turns if at_once else turns[:1]:
                    turn.set()
            await turns[i].wait()

        move = await mover.move(victims[i], f"target-{i}", before=before, virtual=virtual, seconds=60)
        turns[i + 1].set()
        return move

    moves = await asyncio.gather(*(one(i) for i in range(count)))
    assert [move.end for move in moves] == ["landed"] * count, told(moves)
    assert world.where("crowd") == ["waits"] * crowd
    assert world.kubelets.rejected == []
    return moves


def manifest_of(victim: Obj, target: str, shared: frozenset[str] = frozenset(), **more: Any) -> Any:
    """The placeholder for this pod on this node, and the pod's shape."""
    shape, fact = shape_of(victim)
    hold = Hold(
        log=LOG, slot=f"{fact.pod}.hold-0", node=target, namespace=fact.namespace, labels=fact.labels, migration=f"m-{fact.pod[:8]}",
        shared=shared, **more,
    )  # fmt: skip
    return placeholder(shape, hold), shape


def shape_of(pod: Obj) -> Any:
    """Its shape and fact, as cluster_watcher reads them."""
    shape, _, fact = pod_fact(d.PODS.object(json.dumps(pod).encode()))  # type: ignore[arg-type]
    return shape, fact


def ref(pod: Obj) -> PodRef:
    meta = pod["metadata"]
    return PodRef(meta["namespace"], meta["name"], meta["uid"])


def uid_of(pod: Obj) -> str:
    return str(pod["metadata"]["uid"])



def told(moves: list[Move]) -> str:
    """Ends and times of many."""
    times = sorted(move.bound_ms for move in moves if move.bound_ms)
    if not times:
        return str(dict(Counter(move.end for move in moves)))
    p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
    held = statistics.median(move.held_ms for move in moves)
    return f"{dict(Counter(m.end for m in moves))}, eviction → bound p50 {statistics.median(times):.0f} p99 {p99:.0f} ms, held p50 {held:.0f} ms"
