"""One run: kubesim, a broker, five services, users, faults; what must hold is judged as it happens."""

import asyncio
import contextvars
import hashlib
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Collection
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from restow.cli.demo.beside import objects
from restow.eventlog.port import Record
from restow.kubesim import main as kubesim_main
from restow.kubesim.resources import NAMESPACES, PRIORITYCLASSES
from restow.kubesim.runtime import before_of
from restow.kubesim.server import Server
from restow.kubesim.shelf import Change
from simulation import manifests, seams
from simulation.broken import Broken
from simulation.broker import Broker
from simulation.faults import Faults
from simulation.loop import EPOCH, Process, SimLoop, Spin, Stuck, caller
from simulation.plan import Act, Plan
from simulation.processes import SERVICES, Unit
from simulation.replayed import Replayed
from simulation.users import Users

REPO = Path(__file__).parents[2]
BOOT = 60.0
"""Seconds in which all services lead."""
IDLE = 5.0
"""Seconds without a commit after which nothing seems to be under way."""
REST = 300.0
"""After calm everything has come to rest within this."""
AT_REST = 100.0
"""What is judged at rest had at least so long since calm."""
LOOK = 20.0
"""Seconds between two comparisons of what was folded."""


class Judge(Protocol):
    """What `judge.py` is, and what the engine needs of it."""

    broken: list[Broken]

    def commit(self, at: float, seq: int, family: str, headers: dict[str, str], body: Any) -> None: ...
    def acknowledged(self, at: float, seq: int, id: str) -> None: ...
    def kept(self, at: float, first: int, ids: dict[int, str]) -> None: ...
    def wrote(self, at: float, verb: str, resource: str, old: Any, new: Any, by: str) -> None: ...
    def evicted(self, at: float, pod: Any, by: str) -> None: ...
    def calm(self, at: float) -> None: ...
    def rest(self, at: float) -> None: ...


class Result(msgspec.Struct, kw_only=True):
    """Of one run, as it is sent from its process. `broken`: at, seq, promise, sentence."""

    seed: int
    broken: list[tuple[float, int, str, str]] = []
    digest: str = ""
    simulated: float = 0.0
    wall: float = 0.0
    cpu: float = 0.0
    callbacks: int = 0
    commits: int = 0
    writes: int = 0
    placements: int = 0
    migrations: int = 0
    landed: int = 0
    beside: int = 0
    """Of these, pods of the stock scheduler."""
    evictions: int = 0
    faults: int = 0
    acts: int = 0
    starts: int = 0
    kinds: tuple[str, ...] = ()
    trail: list[str] = []
    log: str = ""
    """Where the log was written, if that was asked for."""
    counts: dict[str, int] = {}

    @property
    def promise(self) -> str:
        """The first that broke, "" for none."""
        return self.broken[0][2] if self.broken else ""


class World:
    """Made and run once, in a process of its own."""

    def __init__(self, plan: Plan, judge: Judge | None, *, until: int = 0, ignore: Collection[str] = ()) -> None:
        self.plan, self.judge, self.until = plan, judge, until
        self.loop = SimLoop(plan.seed)
        self.units: list[Unit] = []
        self.configs: dict[str, str] = {}
        self.over = False
        self.trail: list[str] = []
        self.count: Counter[str] = Counter()
        self.broken: list[Broken] = []
        self._ignore = ignore
        self._ended: asyncio.Future[None] | None = None
        self._judged = 0
        self._stamp = 0
        self._last_commit = 0.0
        self._stopping: dict[str, float] = {}
        """Pods that terminate, by uid: the moment at which their grace is over."""
        self._gone = 0.0
        self.replayed = Replayed(self)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """To its end, or to the first broken promise."""
        seams.install(self.loop, self.plan.seed)
        asyncio.set_event_loop(self.loop)
        with tempfile.TemporaryDirectory(prefix="restow-simulation") as folder:
            self._folder = Path(folder)
            try:
                self.loop.run_until_complete(self.loop.create_task(self._whole(), context=contextvars.Context()))
            except Spin as error:
                self.fail("spin", str(error))
            except Stuck as error:
                self.fail("stuck", str(error))
            finally:
                self.over = self.loop.finished = True

    async def _whole(self) -> None:
        self._ended = self.loop.create_future()
        playing = self.loop.create_task(self._play(), context=contextvars.Context())
        await asyncio.wait([playing, self._ended], return_when=asyncio.FIRST_COMPLETED)
        if playing.done():
            playing.result()

    async def _play(self) -> None:
        await self._boot()
        await self._until("all services lead", lambda: all(self.leader(name) for name in SERVICES), BOOT, "boots")
        begin = self.loop.time()
        for act in self.plan.users:
            self.loop.outside(act.at, self._do, self.users, act)
        for act in self.plan.faults:
            self.loop.outside(act.at, self._do, self.faults, act)
        end = begin + self.plan.seconds
        while (left := end - self.loop.time()) > 0:
            await asyncio.sleep(min(LOOK, left))
            self.replayed.look()
            self._kept()
        self._say("calm")
        self.faults.calm()
        if self.judge is not None:
            self.judge.calm(self.loop.time())
        await self._rest()

    def _do(self, whose: Any, act: Act) -> None:
        if self.over:
            return
        self.count["act " + act.what] += 1
        self._say(str(act))
        whose.do(act)

    async def _rest(self) -> None:
        calm = self.loop.time()
        self.configure("descheduler", manifests.policy(self.plan.policy, interval="0s", beside=self.plan.beside, budgets=self.plan.budgets))
        while self.loop.time() < calm + AT_REST or not self._idle():
            # Who has minutes of grace takes them, and what waits for his capacity does, too.
            if self.loop.time() > max(calm, self._last_stop) + REST:
                self.fail("rests", f"not at rest {REST:g} s after calm: {self._busy()}")
                return
            await asyncio.sleep(1.0)
        self.replayed.look()
        self.replayed.end()
        self._kept()
        if self.judge is not None:
            self.judge.rest(self.loop.time())
        self._look()

    # -- what it is made of --------------------------------------------------------------------------------------------

    async def _boot(self) -> None:
        seed = self.plan.seed
        self.kube = Process("kubesim")
        self.broker = Broker(self.loop, seed, f"{random.Random(f'log {seed}').getrandbits(128):032x}", self._stored, self._acknowledged)
        self.server = server = Server(
            controllers=True, clock=lambda: datetime.fromtimestamp(EPOCH + self.loop.time(), UTC),
            rng=random.Random(f"kube {seed}"), kubelet_speed=0.1, turns=self.loop.time,
        )  # fmt: skip
        for path in sorted((REPO / "deploy" / "crds").glob("*.yaml")):
            if path.name != "kustomization.yaml":
                kubesim_main.load(server, path)
        for path in objects() if self.plan.beside else ():
            kubesim_main.load(server, path)
        self.store = server.cluster.store
        await self.loop.create_task(server.start(), context=self.kube.context())
        self.kube_url = server.url
        self.store.subscribe(self._wrote)
        self.users, self.faults = Users(self), Faults(self)
        self.in_cluster(self._cluster)
        self.configure("scheduler_session", manifests.SCHEDULERS[self.plan.scheduler])
        self.configure("descheduler", manifests.policy(self.plan.policy, beside=self.plan.beside, budgets=self.plan.budgets))
        self.configure("garbage_collector", manifests.COLLECTOR)
        for name in SERVICES:
            for number in range(self.plan.replicas):
                unit = Unit(self, name, number)
                unit.skew = self.plan.skews.get(f"{name}-{number}", 0.0)
                self.units.append(unit)
                unit.start()

    def _cluster(self) -> None:
        for name in ("restow-system", manifests.NS):
            self.store.create(NAMESPACES, {"metadata": {"name": name}})
        for name, value in manifests.PRIORITIES.items():
            self.store.create(PRIORITYCLASSES, manifests.priority_class(name, value))
        for node in self.plan.nodes:
            self.users.register(node.name)

    def configure(self, service: str, text: str) -> None:
        """Write a service's file, as an editor does. Its time is the count of writes: a look cannot miss one."""
        path, self._stamp = self._folder / f"{service}.yaml", self._stamp + 1
        path.write_text(text)
        os.utime(path, ns=(self._stamp * 10**9, self._stamp * 10**9))
        self.configs[service] = str(path)

    def in_cluster(self, work: Callable[..., Any], *args: Any) -> Any:
        """Run it as the cluster's own, which nobody called."""
        return self.kube.context().run(work, *args)

    def leader(self, service: str) -> Unit | None:
        return next((unit for unit in self.units if unit.name == service and unit.leads), None)

    # -- what is judged ------------------------------------------------------------------------------------------------

    def _stored(self, record: Record) -> None:
        self._last_commit = self.loop.time()
        self.replayed.stored(record)
        if self.judge is not None:
            self.judge.commit(self.loop.time(), record.seq, record.family, record.envelope.headers(), record.body)
        self._look()
        if self.until and record.seq >= self.until:
            self._end()

    def _acknowledged(self, seq: int, id: str) -> None:
        if self.judge is not None:
            self.judge.acknowledged(self.loop.time(), seq, id)

    def _kept(self) -> None:
        """Whether everything that was acknowledged is in the log."""
        if self.judge is not None:
            first, ids = self.broker.contents()
            self.judge.kept(self.loop.time(), first, ids)
            self._look()

    def _wrote(self, change: Change) -> None:
        resource = f"{change.resource.plural}.{change.resource.group}".rstrip(".")
        if resource in ("events", "events.events.k8s.io"):
            return
        old, new = before_of(change), change.new
        by = caller.get() or (self._by())
        if resource == "pods":
            self._count_pod(old, new)
            if new is not None:
                self.users.asked(old, new)
        if self.judge is not None:
            verb = "deleted" if new is None else "created" if old is None else "modified"
            self.judge.wrote(self.loop.time(), verb, resource, old, new, by)
            if resource == "pods" and new is not None and _evicted(new) and not _evicted(old):
                self.judge.evicted(self.loop.time(), new, by)
            self._look()

    def _by(self) -> str:
        from simulation.loop import running

        process = running()
        return "user" if process is not None and process.name == "user" else "controller"

    @property
    def _last_stop(self) -> float:
        return max(self._stopping.values(), default=self._gone)

    def _count_pod(self, old: Any, new: Any) -> None:
        if new is None:
            self._stopping.pop(old["metadata"]["uid"], None)
            self._gone = self.loop.time()
        elif end := new["metadata"].get("deletionTimestamp"):
            self._stopping[new["metadata"]["uid"]] = datetime.fromisoformat(end).timestamp() - EPOCH
        if new is not None and new["spec"].get("nodeName") and not (old or {"spec": {}})["spec"].get("nodeName"):
            self.count["placements"] += 1
        if new is not None and _evicted(new) and not _evicted(old):
            self.count["evictions"] += 1

    def _look(self) -> None:
        """Take over what the judge has found since."""
        if self.judge is not None and len(self.judge.broken) > self._judged:
            found = [one for one in self.judge.broken[self._judged :] if one.promise not in self._ignore]
            self._judged = len(self.judge.broken)
            self._break(found)

    def fail(self, promise: str, sentence: str) -> None:
        """What the engine itself saw broken."""
        seq = self.broker.records[-1].seq if self.broker.records else 0
        if promise not in self._ignore:
            self._break([Broken(self.loop.time(), seq, promise, sentence)])

    def _break(self, found: list[Broken]) -> None:
        """The run ends at the first broken promise, with whatever else that moment shows."""
        self.broken += found
        if self.broken:
            self._end()

    def crashed(self, name: str, error: BaseException | None) -> None:
        """A service ended by what no rule foresees."""
        self.fail("crash", f"{name} ended: {type(error).__name__ if error else 'no error'}: {error}"[:600])

    def _end(self) -> None:
        self.over = True
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def _say(self, text: str) -> None:
        self.trail.append(f"{self.loop.time():9.3f} {text}")

    # -- rest ----------------------------------------------------------------------------------------------------------

    async def _until(self, what: str, probe: Callable[[], bool], seconds: float, promise: str) -> bool:
        end = self.loop.time() + seconds
        while not probe():
            if self.loop.time() > end:
                self.fail(promise, f"{what}: not within {seconds:g} s: {self._busy()}")
                return False
            await asyncio.sleep(0.5)
        return True

    def _idle(self) -> bool:
        return not self._busy()

    def _busy(self) -> str:
        """What is not at rest, "" where all is."""
        missing = [name for name in SERVICES if self.leader(name) is None]
        if missing:
            return f"nobody leads {', '.join(missing)}"
        leader = self.leader("descheduler")
        state = leader.state if leader is not None else None
        assert state is not None
        if state.seq < self.broker.records[-1].seq:
            return "the descheduler has not folded the whole log"
        if state.active or state.backlog:
            return f"{len(state.active)} migrations are under way: {sorted(state.active)[:5]}; {len(state.backlog)} wait: {sorted(state.backlog)[:5]}"
        if self.loop.time() < self._last_stop + IDLE:
            # The API counts in whole seconds, and the log hears of the end a moment later.
            return "pods have time still to stop"
        if self.loop.time() - self._last_commit < IDLE:
            return "there are still commits"
        return ""

    # -- the result ----------------------------------------------------------------------------------------------------

    def digest(self) -> str:
        """Of every byte of the log, with the moments at which it was stored."""
        told = hashlib.sha256()
        for record in self.broker.records:
            told.update(repr((record.seq, record.family, record.envelope, record.time)).encode() + record.body)
        return told.hexdigest()

    def result(self) -> Result:
        count, broker = self.count, self.broker
        if not self.broken and self.loop.problems:
            self.fail("callback", self.loop.problems[0])
        events = self.replayed.events
        return Result(
            seed=self.plan.seed, broken=[(b.at, b.seq, b.promise, b.sentence) for b in self.broken[:20]], digest=self.digest(),
            simulated=self.loop.time(), callbacks=self.loop.ran, commits=len(broker.records), writes=self.store.resource_version,
            placements=count["placements"], migrations=events["migration.holding"],
            landed=events["migration.landed"], beside=self.replayed.landed_beside, evictions=count["evictions"],
            faults=sum(count["act " + act] for act in {act.what for act in self.plan.faults}),
            acts=sum(number for name, number in count.items() if name.startswith("act ")), starts=sum(unit.starts for unit in self.units),
            kinds=self.plan.kinds, trail=self.trail, counts=dict(sorted({**count, **broker.count, **{f"event {k}": v for k, v in events.items()}}.items())),
        )  # fmt: skip


def _evicted(pod: Any) -> bool:
    conditions = ((pod or {}).get("status") or {}).get("conditions") or ()
    return any(c.get("type") == "DisruptionTarget" and c.get("reason") == "EvictionByEvictionAPI" for c in conditions)
