"""What tests share that kill services and broker at random while pods are moved: the kills, and the judgement of the log."""

import asyncio
import random
from collections import Counter

from checker import check

from restow.cli.demo.feed import Api
from restow.cli.demo.observer import Observer
from restow.cli.embedded.stack import Stack
from restow.domain.deciders import DECIDERS
from restow.domain.records import Step
from restow.replay.source import open_broker, open_path, save
from restow.replay.verify import verify

FAMILY = {"descheduler": "migration", "scheduler_session": "session", "reservation_cache": "reservation"}
VICTIMS = (*FAMILY, "broker")
SOON, EVERY = (0.05, 0.2), (0.1, 0.7)
"""Seconds between kills: until each has been killed once, which must be before a fast machine is done; and from then on."""
WHILE_STARTING = 0.2
"""How often one is chosen that does not lead (again) yet: killing those alone would disturb nobody."""
IN_EVICTION = (Step.EVICTING, Step.ABORTING, Step.EVICTED)
PATIENCE = 240.0


def replica_set(namespace: str, name: str, replicas: int, cpu: str, **pod) -> dict:
    """`pod`: more of the pods' spec."""
    spec = {
        "schedulerName": "restow", "terminationGracePeriodSeconds": 2,
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "16Mi"}}}],
    } | pod  # fmt: skip
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }  # fmt: skip


def budget(namespace: str, name: str, app: str) -> dict:
    """That lets nobody go."""
    spec = {"minAvailable": "100%", "selector": {"matchLabels": {"app": app}}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


class Killer:
    """`killed`: what was, and how often; `hit`: how many moves were under way then, by step.

    So many `kills`; the first of them when `at_once` migrations are under way, and those after `early` ones wait until pods are evicted:
    kills stop everything for a moment, and all of them could come before that."""

    def __init__(self, seed: int, stack: Stack, observer: Observer, *, kills: int, early: int, at_once: int) -> None:
        self._random, self._stack, self._observer = random.Random(seed), stack, observer
        self._kills, self._early, self._at_once = kills, early, at_once
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
        await self._observer.until("migrations are under way", lambda: self.watch() or len(state.active) >= self._at_once, PATIENCE)
        for number in range(self._kills):
            if number == self._early:
                await self._observer.until("evictions are under way", self.evicts, PATIENCE)
            if not state.active and not state.backlog:
                return
            names = [name for name in VICTIMS if self.leads(name)] if self._random.random() >= WHILE_STARTING else list(VICTIMS)
            left = [name for name in order if not self.killed[name]]
            if number < len(order):
                self.kill(left[0] if left else order[number])
            elif names:
                self.kill(self._random.choice(names))
            await asyncio.sleep(self._random.uniform(*(SOON if number < len(order) else EVERY)))

    def evicts(self) -> bool:
        state = self._observer.state
        return not state.active or any(step in IN_EVICTION for step in self.moves())

    def moves(self) -> list[Step]:
        """Steps of what is under way, those aside that are only evicted."""
        state = self._observer.state
        return [m.step for m in map(state.migrations.__getitem__, state.active) if m.move.target]

    def recovered(self) -> bool:
        """Whether all of them lead, those too that were killed when all was done."""
        return all(map(self.leads, VICTIMS))

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
        self.hit.update(self.moves())
        self.killed[name] += 1


async def nobody_is_lost(api: Api, namespace: str, pods: int) -> None:
    """So many, all ready; and no hold is left."""
    there = await api.list(f"/api/v1/namespaces/{namespace}/pods")
    ready = [p for p in there if any(c["type"] == "Ready" and c["status"] == "True" for c in p["status"].get("conditions", ()))]
    assert len(ready) == len(there) == pods, "pods were lost"
    assert await api.list("/apis/batch.volcano.sh/v1alpha1/reservations") == [], "holds have leaked"


def judge(stack: Stack, file, said: dict) -> None:
    """The whole log, by `tests/checker.py`, which shares no rule with Restow; and every decision again."""
    live = open_broker(stack.nats, stack.cluster)
    try:
        save(live, file)
    finally:
        live.close()
    judged = check(file)
    said["leaders"] = dict(judged.leaders)
    assert judged.ok, f"{judged.broken[:10]} {judged.overtaken[:10]}"
    assert judged.holds_left == 0
    report = verify(open_path(file), DECIDERS)
    assert report.decisions == report.identical > 0
