"""What users do: each act of the plan's list, through the API store, or over HTTP where a tool would."""

import asyncio
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import aiohttp

from restow.kubesim.errors import ApiError
from restow.kubesim.nodes import READY
from restow.kubesim.objects import clone
from restow.kubesim.resources import NODES, PODS, Resource
from simulation import manifests
from simulation.loop import Process
from simulation.manifests import NS, PLURALS, Obj
from simulation.network import Connector
from simulation.plan import Act, Workload
from simulation.processes import TOKEN

if TYPE_CHECKING:
    from simulation.world import World

REQUESTED = "restow.dev/move-requested"
DRAIN_RETRY = 2.0
"""Seconds after which `kubectl drain` asks again for what a budget refused; the tool waits five."""


class Users:
    """`do` carries out one act; what finds nothing to act on does nothing."""

    def __init__(self, world: "World") -> None:
        self._world, self._store = world, world.store
        self.process = Process("user")
        self._workloads = {one.name: one for one in world.plan.workloads}
        self._nodes = {one.name: number for number, one in enumerate(world.plan.nodes)}
        self._session: aiohttp.ClientSession | None = None
        self._rollouts = 0
        self.refused = 0
        """Writes that the API refused, as it may."""

    def do(self, act: Act) -> None:
        run: Callable[..., Any] = getattr(self, "_" + act.what)
        context = self.process.context()
        found = context.run(self._tried, run, act.args)
        if asyncio.iscoroutine(found):
            self._world.loop.create_task(self._safely(found), context=context)

    def _tried(self, run: Callable[..., Any], args: dict[str, Any]) -> Any:
        try:
            return run(**args)
        except ApiError:
            self.refused += 1
            return None

    async def _safely(self, doing: Any) -> None:
        try:
            await doing
        except (ApiError, aiohttp.ClientError, TimeoutError):
            self.refused += 1

    def later(self, seconds: float, what: Callable[..., Any], *args: Any) -> None:
        """The end of an act. Calm does not wait for it, and does not hurry it."""
        context = self.process.context()
        self._world.loop.call_later(seconds, lambda: self._tried(lambda: what(*args), {}), context=context)

    # -- workloads -----------------------------------------------------------------------------------------------------

    def _resource(self, group: str, plural: str) -> Resource:
        found = self._store.registry.find(group, plural)
        assert found is not None, plural
        return found

    def _makes(self, workload: str) -> tuple[Workload, Resource] | None:
        one = self._workloads.get(workload)
        return None if one is None else (one, self._resource(*PLURALS[one.kind]))

    def _create(self, workload: str) -> None:
        if (found := self._makes(workload)) is None:
            return
        one, resource = found
        if one.budget:
            self._store.create(self._resource("policy", "poddisruptionbudgets"), manifests.budget(one.name, one.budget), NS)
        if one.kind == "Gang":
            self._store.create(self._resource("scheduling.volcano.sh", "podgroups"), manifests.group(one), NS)
        self._store.create(resource, manifests.workload(one), NS)

    def _delete(self, workload: str) -> None:
        if (found := self._makes(workload)) is not None:
            self._store.delete(found[1], NS, workload)

    def _change(self, resource: Resource, name: str, how: Callable[[Obj], Any], namespace: str = NS) -> None:
        obj = clone(self._store.get(resource, namespace, name))
        how(obj)
        self._store.update(resource, obj)

    def _scale(self, workload: str, replicas: int) -> None:
        found = self._makes(workload)
        if found is not None and found[0].kind in ("Deployment", "ReplicaSet", "StatefulSet"):
            self._change(found[1], workload, lambda obj: obj["spec"].update(replicas=replicas))

    def _rollout(self, workload: str) -> None:
        found = self._makes(workload)
        if found is not None and found[0].kind in ("Deployment", "StatefulSet"):
            self._rollouts += 1
            stamp = {"restarted": str(self._rollouts)}
            self._change(found[1], workload, lambda obj: obj["spec"]["template"]["metadata"].setdefault("annotations", {}).update(stamp))

    def _pod(self, workload: str, which: int, force: bool) -> None:
        there = self._pods_of(workload)
        if there:
            self._store.delete(PODS, NS, there[which % len(there)], grace_period=0 if force else None)

    def asked(self, old: Obj | None, pod: Obj) -> None:
        """A workload that is asked on its pod answers in a while, some of them too late."""
        meta = pod["metadata"]
        id = (meta.get("annotations") or {}).get(REQUESTED)
        one = self._workloads.get((meta.get("labels") or {}).get("app", ""))
        before = (((old or {}).get("metadata") or {}).get("annotations") or {}).get(REQUESTED)
        if not id or id == before or one is None or one.hook not in ("agrees", "refuses"):
            return
        said = {"restow.dev/move-acknowledged": id} if one.hook == "agrees" else {"restow.dev/move-refused": f"{id} retry-after=20s busy"}
        pause = random.Random(f"word {self._world.plan.seed} {id}").choice((0.1, 1.0, 4.0, 4.0, 20.0))
        self._world.count[f"asked {one.hook}"] += 1
        self.later(pause, self._change, PODS, meta["name"], lambda obj: _annotate(obj, meta["uid"], said))

    def _pods_of(self, workload: str) -> list[str]:
        pods = self._store.list(PODS, NS)
        return [pod["metadata"]["name"] for pod in pods if (pod["metadata"].get("labels") or {}).get("app") == workload]

    def _budget(self, workload: str, most: str) -> None:
        self.refuse(workload, most)

    def refuse(self, workload: str, most: str) -> None:
        """Make or change the budget of a workload."""
        if workload not in self._workloads:
            return
        budgets, made = self._resource("policy", "poddisruptionbudgets"), manifests.budget(workload, most)
        if self._store.find(budgets, NS, workload) is None:
            self._store.create(budgets, made, NS)
        else:
            self._change(budgets, workload, lambda obj: obj["spec"].update(made["spec"]))

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def register(self, name: str) -> None:
        """The node joins the cluster."""
        spec, number = self._world.plan.nodes[self._nodes[name]], self._nodes[name]
        if self._store.find(NODES, "", name) is None:
            self._store.create(NODES, manifests.node(spec, number, self._store.now()))

    def heal(self, name: str) -> None:
        """Registered, ready and schedulable."""
        if name in self._nodes:
            self.register(name)
            self._change(NODES, name, _healed, "")

    def _cordon(self, node: str, seconds: float) -> None:
        self._change(NODES, node, lambda obj: obj["spec"].update(unschedulable=True), "")
        self.later(seconds, self.uncordon, node)

    def uncordon(self, node: str) -> None:
        self._change(NODES, node, lambda obj: obj["spec"].pop("unschedulable", None), "")

    async def _drain(self, node: str, seconds: float) -> None:
        self._cordon(node, seconds)
        end = self._world.loop.time() + seconds
        while self._world.loop.time() < end:
            pods = [pod for pod in self._store.list(PODS, NS) if pod["spec"].get("nodeName") == node and "deletionTimestamp" not in pod["metadata"]]
            if not pods:
                return
            for pod in pods:
                name = pod["metadata"]["name"]
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NS}}
                await self._post(f"{self._world.kube_url}/api/v1/namespaces/{NS}/pods/{name}/eviction", body)
            await asyncio.sleep(DRAIN_RETRY)

    def _node(self, node: str, seconds: float) -> None:
        """Taken out of the cluster, and brought back."""
        self._store.delete(NODES, "", node)
        self.later(seconds, self.register, node)

    # -- reservations, queues ------------------------------------------------------------------------------------------

    def _reserve(self, workload: str, name: str, replicas: int, ttl: int, seconds: float, owners: str = "labels") -> None:
        if workload in self._workloads:
            resource = self._resource("batch.volcano.sh", "reservations")
            self._store.create(resource, manifests.reservation(name, self._workloads[workload], replicas, ttl, owners), NS)
            if seconds:
                self.later(seconds, self._store.delete, resource, NS, name)

    def _koordinator(self, workload: str, name: str, once: bool, ttl: int, seconds: float, owners: str = "labels", waits: bool = False) -> None:
        """`waits`: also for capacity that is in use."""
        if workload in self._workloads:
            resource = self._resource("scheduling.koordinator.sh", "reservations")
            self._store.create(resource, manifests.koordinator(name, self._workloads[workload], once, ttl, owners, waits))
            if seconds:
                self.later(seconds, self._store.delete, resource, "", name)

    def _queue(self, name: str, weight: int, cpu: int, gpus: int) -> None:
        resource, made = self._resource("scheduling.volcano.sh", "queues"), manifests.queue(name, weight, cpu, gpus)
        if self._store.find(resource, "", name) is None:
            self._store.create(resource, made)
        else:
            self._change(resource, name, lambda obj: obj.update(spec=made["spec"]), "")

    # -- the programs --------------------------------------------------------------------------------------------------

    def _config(self, scheduler: int, policy: int) -> None:
        self._world.configure("scheduler_session", manifests.SCHEDULERS[scheduler])
        self._world.configure("descheduler", manifests.policy(policy, beside=self._world.plan.beside, budgets=self._world.plan.budgets))

    async def _ask(self, what: str, which: int) -> None:
        """Over the descheduler's HTTP API, as `restow defrag` and `restow migrate` do."""
        unit = self._world.leader("descheduler")
        if unit is None:
            return
        if what == "move":
            pods = [pod["metadata"]["name"] for pod in self._store.list(PODS, NS) if pod["spec"].get("nodeName")]
            if pods:
                await self._post(f"{unit.address}/migrations", {"pod": f"{NS}/{pods[which % len(pods)]}"})
        else:
            await self._post(f"{unit.address}/{'defragment' if what == 'defragmentation' else 'plans/cancel'}", {})

    async def _mode(self, mode: str) -> None:
        """As `restow mode` does."""
        if (unit := self._world.leader("descheduler")) is not None:
            await self._post(f"{unit.address}/mode", {"mode": mode, "by": "somebody"})

    async def _answer(self, what: str, which: int) -> None:
        """As `restow plans`, `approve` and `reject` do; some: one of the plan's moves."""
        unit = self._world.leader("descheduler")
        status, known = await self._call("GET", f"{unit.address}/status") if unit is not None else (0, {})
        if unit is None or status != 200 or not known["proposed"]:
            return
        path = f"{unit.address}/plans/{known['proposed'][0]['plan']}"
        if what == "reject":
            await self._post(f"{path}/reject", {"by": "somebody", "reason": "no"})
            return
        moves = (await self._call("GET", path))[1].get("migrations", []) if what == "some" else []
        await self._post(f"{path}/approve", {"by": "somebody", "moves": [moves[which % len(moves)]["id"]] if moves else []})

    async def _post(self, url: str, body: Obj) -> int:
        return (await self._call("POST", url, body))[0]

    async def _call(self, method: str, url: str, body: Obj | None = None) -> tuple[int, Obj]:
        if self._session is None:
            self._session = aiohttp.ClientSession(connector=Connector(self._world.loop), cookie_jar=aiohttp.DummyCookieJar())
        timeout = aiohttp.ClientTimeout(total=20)
        async with self._session.request(method, url, json=body, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=timeout) as answer:
            return answer.status, await answer.json()


def _annotate(pod: Obj, uid: str, said: Obj) -> None:
    if pod["metadata"]["uid"] == uid:
        pod["metadata"].setdefault("annotations", {}).update(said)


def _healed(node: Obj) -> None:
    node["spec"].pop("unschedulable", None)
    (node["metadata"].get("annotations") or {}).pop(READY, None)
