"""Hundreds of migrations at once while descheduler, scheduler, cache and broker are killed at random: each ends landed or rolled
back, no pod is lost, no hold leaks. What the log says is judged by `tests/checker.py`, which shares no rule with Restow.

A failure names its seed; RESTOW_KILL_SEED repeats it (the kills are drawn from it; how far the saga is when they come depends on the
machine)."""

import asyncio
import os
import random
import time
from collections import Counter
from functools import partial

import aiohttp
import pytest
from checker import check

from restow.cli.demo.feed import Api, together
from restow.cli.demo.observer import Observer
from restow.cli.embedded import configs
from restow.cli.embedded.stack import Stack
from restow.domain.deciders import DECIDERS
from restow.domain.records import FINAL, Step
from restow.kubesim.nodes import NodeShape, build_node
from restow.replay.exported import write
from restow.replay.source import open_broker, open_path
from restow.replay.verify import verify

NS = "kill"
NODES, MOVERS = 40, 240
"""So many sources, as many targets; six pods on each source."""
FAMILY = {"descheduler": "migration", "scheduler_session": "session", "reservation_cache": "reservation"}
VICTIMS = (*FAMILY, "broker")
KILLS = 16
EVERY = (0.1, 0.7)
"""Seconds between kills."""
WHILE_STARTING = 0.2
"""How often one is chosen that does not lead (again) yet: killing those alone would disturb nobody."""
EARLY = 5
"""Kills while landing places are held; the others wait until pods are evicted: kills stop everything for a moment, and all of them
could come before that."""
IN_EVICTION = (Step.EVICTING, Step.ABORTING, Step.EVICTED)
KEPT = 3
"""ReplicaSets of movers whose budget lets nobody go: their moves must be rolled back, whoever is killed."""
PATIENCE = 90.0
AT_ONCE = 100
"""Migrations that must have been under way at once, or the test has not tested what it says."""
POLICY = configs.policy(resource="cpu", concurrent=MOVERS) + "  perNode: 50\n"


def replica_set(name: str, replicas: int, cpu: str, role: str = "") -> dict:
    spec = {
        "schedulerName": "restow", "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}],
    }  # fmt: skip
    if role:
        spec["nodeSelector"] = {"role": role}
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": NS},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }  # fmt: skip


async def nodes(api: Api, role: str) -> None:
    shapes = [NodeShape(f"{role}-{i:02}", 16_000, 64 << 30, labels={"role": role}) for i in range(NODES)]
    start = 0 if role == "source" else NODES
    await together(partial(api.create, "/api/v1/nodes", build_node(s, number=start + i)) for i, s in enumerate(shapes))


async def workloads(api: Api, observer: Observer) -> None:
    """Movers while there are sources alone, then targets, half full."""
    base = f"/apis/apps/v1/namespaces/{NS}/replicasets"
    await api.create("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    await nodes(api, "source")
    await together(partial(api.create, base, replica_set(f"mover-{i:02}", 6, "1")) for i in range(MOVERS // 6))
    for i in range(KEPT):
        spec = {"minAvailable": "100%", "selector": {"matchLabels": {"app": f"mover-{i:02}"}}}
        body = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": f"keep-{i:02}", "namespace": NS}, "spec": spec}
        await api.create(f"/apis/policy/v1/namespaces/{NS}/poddisruptionbudgets", body)
    await observer.until("the movers run", lambda: observer.running() == MOVERS, PATIENCE)
    await nodes(api, "target")
    await api.create(base, replica_set("filler", NODES, "8", "target"))
    await observer.until("the fillers run", lambda: observer.running() == MOVERS + NODES, PATIENCE)


async def ask(stack: Stack) -> None:
    url = f"{stack.http('descheduler')}/defragment"
    async with aiohttp.ClientSession(headers=stack.authorization) as session, session.post(url, json={}) as answer:
        assert answer.status == 200, await answer.text()


class Killer:
    """`hit`: what was killed, and how many migrations were under way then, by step."""

    def __init__(self, seed: int, stack: Stack, observer: Observer) -> None:
        self._random, self._stack, self._observer = random.Random(seed), stack, observer
        self.killed: Counter[str] = Counter()
        self.hit: Counter[Step] = Counter()
        self.most = 0
        self._killed_at = dict.fromkeys(FAMILY, 0)

    def watch(self) -> bool:
        self.most = max(self.most, len(self._observer.state.active))
        return False

    async def run(self) -> None:
        """Each of them once, in any order, then any; for as long as anything is under way."""
        order = self._random.sample(VICTIMS, len(VICTIMS))
        state = self._observer.state
        await self._observer.until("migrations are under way", lambda: self.watch() or len(state.active) >= AT_ONCE // 4, PATIENCE)
        for number in range(KILLS):
            if number == EARLY:
                await self._observer.until("evictions are under way", self.evicts, PATIENCE)
            if not state.active and not state.backlog:
                return
            names = [name for name in VICTIMS if self.leads(name)] if self._random.random() >= WHILE_STARTING else list(VICTIMS)
            left = [name for name in order if not self.killed[name]]
            if number < len(order):
                self.kill(left[0] if left else order[number])
            elif names:
                self.kill(self._random.choice(names))
            await asyncio.sleep(self._random.uniform(*EVERY))

    def evicts(self) -> bool:
        state = self._observer.state
        return not state.active or any(state.migrations[id].step in IN_EVICTION for id in state.active)

    def leads(self, name: str) -> bool:
        """Whether it leads (again) since it was killed last."""
        return name == "broker" or self._observer.state.leaders[FAMILY[name]].epoch > self._killed_at[name]

    def kill(self, name: str) -> None:
        state = self._observer.state
        if name == "broker":
            self._stack.kill_broker()
        elif self._stack.children[name].pid is not None:
            self._stack.children[name].kill()
            self._killed_at[name] = state.leaders[FAMILY[name]].epoch
        else:
            return
        self.hit.update(state.migrations[id].step for id in state.active)
        self.killed[name] += 1


async def play(seed: int, folder, said: dict) -> None:
    stack = Stack(folder / "stack", policy=POLICY, scheduler=configs.scheduler(), keep=True, kubelet_speed=0.1)
    async with stack, Api(stack.kube) as api, Observer(stack.nats, stack.cluster) as observer:
        await workloads(api, observer)
        state = observer.state
        killer = Killer(seed, stack, observer)
        await ask(stack)
        await observer.until("the plan", lambda: bool(state.migrations), PATIENCE)
        began = time.monotonic()
        kills = asyncio.create_task(killer.run())

        def over() -> bool:
            killer.watch()
            return bool(state.migrations) and all(m.step in FINAL for m in state.migrations.values())

        await observer.until("every migration has ended", over, PATIENCE)
        said["seconds"] = round(time.monotonic() - began, 1)
        await kills
        said |= {
            "kills": dict(killer.killed), "under way when killed": {str(k): n for k, n in killer.hit.items()}, "at once": killer.most,
            "ended": dict(Counter(f"{m.step} {m.reason}".strip() for m in state.migrations.values())),
        }  # fmt: skip

        def settled() -> bool:
            return observer.running() == MOVERS + NODES == len(state.pods) and not state.reservations and not observer.holds()

        await observer.until("all pods run and no hold is left", settled, PATIENCE)
        pods = await api.list(f"/api/v1/namespaces/{NS}/pods")
        ready = [p for p in pods if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", ()))]
        assert len(ready) == len(pods) == MOVERS + NODES, "pods were lost"
        assert await api.list("/apis/batch.volcano.sh/v1alpha1/reservations") == [], "holds have leaked"
        await asyncio.to_thread(judge, stack, folder / "log.jsonl.zst", said)


def judge(stack: Stack, file, said: dict) -> None:
    live = open_broker(stack.nats, stack.cluster)
    try:
        records = (record for batch in live.batches() for record in batch)
        write(file, records, first=live.first, last=live.last, log_id=live.log_id, cluster=live.cluster)
    finally:
        live.close()
    judged = check(file)
    said["leaders"] = dict(judged.leaders)
    assert judged.ok, f"{judged.broken[:10]} {judged.overtaken[:10]}"
    assert judged.holds_left == 0
    report = verify(open_path(file), DECIDERS)
    assert report.decisions == report.identical > 0


@pytest.mark.slow
def test_whoever_is_killed_every_migration_ends_no_pod_is_lost_and_no_hold_leaks(tmp_path, capsys):
    seed = int(os.environ.get("RESTOW_KILL_SEED") or random.randrange(10**6))
    said: dict = {}
    try:
        asyncio.run(play(seed, tmp_path, said))
    except BaseException as error:
        raise AssertionError(f"RESTOW_KILL_SEED={seed}: {error}; {said}") from error
    with capsys.disabled():
        print(f"\nseed {seed}: {said}")
    assert said["at once"] >= AT_ONCE, f"RESTOW_KILL_SEED={seed}: {said}"
    assert set(said["kills"]) == set(VICTIMS), f"RESTOW_KILL_SEED={seed}: {said}"
    assert all(said["leaders"][family] >= 2 for family in FAMILY.values()), f"no leader was killed; RESTOW_KILL_SEED={seed}: {said}"
    met = said["under way when killed"]
    assert met.get("holding", 0), f"no kill before an eviction; RESTOW_KILL_SEED={seed}: {said}"
    assert any(met.get(str(step), 0) for step in IN_EVICTION), f"no kill during evictions; RESTOW_KILL_SEED={seed}: {said}"
    ended = said["ended"]
    assert ended.get("landed", 0) >= MOVERS // 2, f"RESTOW_KILL_SEED={seed}: {said}"
    assert ended.get("failed Budget", 0) == 6 * KEPT, f"RESTOW_KILL_SEED={seed}: {said}"
