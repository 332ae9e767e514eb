"""Policies that go by what is used, from a metrics-server and from a real Prometheus: the YAML is that of docs/descheduling.md."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.stack import Running
from e2e.test_descheduler import descheduled
from e2e.world import APPS, TAG, World, node_of, uid_of
from prometheus import exporter, lines, needs_prometheus, prometheus

PAGE = Path(__file__).parents[2] / "docs" / "descheduling.md"
USAGE = "kubesim.restow.dev/usage"
METRICS = "/apis/metrics.k8s.io/v1beta1"
AT_ONCE = {"resolution": 0, "youngest": 0}
pytestmark = pytest.mark.simulated("who measures here is kubesim")


def documented(which: int, world: World, plugin: str = "LoadAware", url: str = "", interval: str = "0s") -> Any:
    """The first or second policy of the page, for this test's nodes alone."""
    section = PAGE.read_text().partition("\n## Policies that use metrics\n")[2]
    policies = [one for text in section.split("```yaml\n")[1:] if (one := yaml.safe_load(text.partition("```")[0])).get("kind") == "DeschedulerPolicy"]
    said = policies[which]
    said["nodeSelector"] = f"{TAG}={world.ns}"
    said["restow"]["interval"] = interval
    (profile,) = said["profiles"]
    profile["plugins"]["balance"]["enabled"] = [plugin]
    configs = {one["name"]: one["args"] for one in profile["pluginConfig"]}
    if which == 1:
        said["metricsProviders"][0]["prometheus"]["url"] = url
        # Nobody wants to wait for minutes.
        configs["LoadAware"]["duration"] = "5s"
        configs["LowNodeUtilization"]["evictionLimits"] = {"node": 2}
        asked = configs["LowNodeUtilization"]["metricsUtilization"]["prometheus"]
        asked["query"] = asked["query"].replace("[2m]", "[5s]")
    elif plugin == "LowNodeUtilization":
        args = configs["LoadAware"] | {"metricsUtilization": {"source": "KubernetesMetrics"}}
        profile["pluginConfig"] = [{"name": plugin, "args": args}]
    return said


async def hungry(world: World, name: str, replicas: int, usage: str, cpu: str = "100m") -> None:
    template = {"metadata": {"labels": {"app": name}, "annotations": {USAGE: usage}}, "spec": world.spec(cpu)}
    body = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }  # fmt: skip
    await world.api.ok("POST", f"{APPS}/namespaces/{world.ns}/replicasets", body)
    await world.replicas(name, replicas)


async def measuring(world: World, **settings: Any) -> None:
    await world.api.ok("PUT", "/kubesim/metrics", AT_ONCE | settings)


@pytest.fixture(autouse=True)
async def no_metrics_server_afterwards(world: World) -> AsyncIterator[None]:
    yield
    await world.api.ok("DELETE", "/kubesim/metrics")


async def used(world: World, node: str) -> str:
    return str((await world.api.ok("GET", f"{METRICS}/nodes/{node}"))["usage"]["cpu"])


async def hot_and_cool(world: World) -> tuple[str, str, str]:
    """Four pods that ask for little and use 900m each, on one node; beside it two idle ones."""
    hot = await world.node("hot")
    await hungry(world, "web", 4, "cpu=900m,memory=100Mi")
    return hot, await world.node("cool-a"), await world.node("cool-b")


async def once(world: World, policy: Any, tmp_path: Path, *more: str) -> Any:
    """`restow descheduler run --once --policy` with the same policy, without what is the service's alone."""
    file = tmp_path / "policy.yaml"
    file.write_text(yaml.safe_dump({key: value for key, value in policy.items() if key != "restow"}))
    return json.loads(await world.restow("descheduler", "run", "--once", "--policy", str(file), "--kube", world.stack.kubectl[1], "-o", "json", *more))


async def spreads(world: World, policy: Any, tmp_path: Path, hot: str, cool: set[str]) -> None:
    """A pass moves two pods off the hot node, hold first; the command line says the same of the same policy."""
    before, moves = {uid_of(pod) for pod in await world.pods("web")}, 2

    async def ready() -> bool:
        (plan,) = await descheduled(world, dry=True)
        return len(plan["moves"]) == moves

    async def said() -> bool:
        found = [(one["node"], one["plugin"], one["result"]) for one in (await once(world, policy, tmp_path, "--dry-run"))["evictions"]]
        return found == [(hot, policy["profiles"][0]["plugins"]["balance"]["enabled"][0], "dry-run")] * moves

    async def done() -> Any:
        (plan,) = await descheduled(world)
        return plan if plan["moves"] else None

    await world.until("the descheduler would move two", ready)
    await world.until("the command line would evict two", said)
    plan = await world.until("the descheduler has a plan", done)
    assert len(plan["moves"]) == moves, plan
    assert {move["source"] for move in plan["moves"]} == {hot}
    assert {move["target"] for move in plan["moves"]} <= cool
    assert set((await world.migrated(plan)).values()) == {"landed"}
    web = await world.replicas("web", 4)
    assert sorted(node_of(pod) == hot for pod in web) == [False] * moves + [True] * (4 - moves)
    assert len(before & {uid_of(pod) for pod in web}) == 4 - moves
    for move in plan["moves"]:
        because = (await world.restow("why", f"migration/{move['migration']}")).partition("latest first")[2]
        assert because.index(": evicts the") < because.index(": its landing"), because


@pytest.mark.parametrize("plugin", ["LoadAware", "LowNodeUtilization"])
async def test_a_hot_nodes_pods_move_to_cool_nodes_and_the_next_pass_does_nothing(world: World, plugin: str, tmp_path: Path) -> None:
    hot, *cool = await hot_and_cool(world)
    policy = documented(0, world, plugin)
    await measuring(world)
    assert await used(world, hot) == "3700m"
    with world.stack.configured("descheduler", yaml.safe_dump(policy)):
        await spreads(world, policy, tmp_path, hot, set(cool))
        assert await used(world, hot) == "1900m", "47.5 % of 4 CPUs"
        # Who is new is not measured for a while, and nobody else is too busy.
        (plan,) = await descheduled(world)
        assert plan["moves"] == []
        assert "no node is overutilized" in plan["reason"] or "all nodes are underutilized" in plan["reason"]
    assert (await once(world, policy, tmp_path))["evictions"] == []
    assert "identical" in await world.restow("verify")


async def test_metrics_that_lag_behind_do_not_make_a_node_give_away_more(world: World, tmp_path: Path) -> None:
    hot, *cool = await hot_and_cool(world)
    policy = documented(0, world)
    await measuring(world)
    with world.stack.configured("descheduler", yaml.safe_dump(policy)):

        async def ready() -> bool:
            return len((await descheduled(world, dry=True))[0]["moves"]) == 2

        await world.until("two would move", ready)
        # From here on every answer is of one scrape.
        await measuring(world, resolution=3600)
        assert await used(world, hot) == "3700m"
        (plan,) = await descheduled(world)
        assert set((await world.migrated(plan)).values()) == {"landed"}
        assert await used(world, hot) == "3700m"
        (again,) = await descheduled(world)
        assert again["moves"] == []
        assert "all nodes that pods would leave have moving pods, or had since they were measured" in again["reason"]
        stays = next(pod for pod in await world.replicas("web", 4) if node_of(pod) == hot)
        said = " ".join((await world.restow("why", f"pod/{world.ns}/{stays['metadata']['name']}")).split())
        assert "LoadAware (profile load): pods are moving from or to its node, or have moved since" in said
    assert await cpu_free(world, hot, cool)


async def cpu_free(world: World, hot: str, cool: list[str]) -> bool:
    where = [node_of(pod) for pod in await world.replicas("web", 4)]
    return where.count(hot) == 2 and sum(map(where.count, cool)) == 2


async def test_a_source_that_is_down_or_stale_stops_the_plugin_says_so_and_recovers(world: World) -> None:
    hot, *cool = await hot_and_cool(world)
    (first, *_) = await world.replicas("web", 4)
    pod = f"pod/{world.ns}/{first['metadata']['name']}"
    await measuring(world, down=True)
    with world.stack.configured("descheduler", yaml.safe_dump(documented(0, world, interval="1s"))):

        async def told(*words: str) -> Any:
            for plan in (await world.restow_json("get", "plans"))["items"]:
                if plan["plugin"] == "LoadAware" and plan["profile"] == "load" and all(word in plan["reason"] for word in words):
                    assert plan["moves"] == 0
                    return plan
            return None

        await world.until("a plan says that the source is down", lambda: told("nothing is evicted: metrics.k8s.io: 503"))
        assert await usable(world) == 0
        assert "metrics cannot be relied on" in world.stack.log("descheduler")
        said = " ".join((await world.restow("why", pod)).split())
        assert "metrics.k8s.io: 503" in said, said
        await measuring(world, behind=600)
        await world.until("a plan says that they are old", lambda: told("nothing is evicted: metrics.k8s.io: its metrics are 60", "s old"))
        assert await usable(world) == 0
        assert [node_of(one) for one in await world.replicas("web", 4)] == [hot] * 4
        assert await world.reservations() == []
        await measuring(world)

        async def moved() -> bool:
            return await cpu_free(world, hot, cool)

        await world.until("it has recovered, and pods have moved", moved)
        assert await usable(world) == 1
        assert "metrics can be relied on again" in world.stack.log("descheduler")


async def usable(world: World, source: str = "metrics.k8s.io") -> float:
    url = f"{world.stack.service_url('descheduler')}/metrics"
    async with world.api.session.get(url) as answer:
        text = await answer.text()
    return next(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith("restow_metrics_source_usable") and source in line)


async def test_what_one_plugin_packs_another_does_not_spread_within_the_cooldown(world: World) -> None:
    """By what pods ask for the lone one fits beside the others; by what they use that node is too hot then."""
    full = await world.node("full")
    await hungry(world, "many", 5, "cpu=600m,memory=10Mi", "500m")
    thin = await world.node("thin")
    await hungry(world, "lone", 1, "cpu=600m,memory=10Mi", "500m")
    assert [node_of(pod) for pod in await world.pods("lone")] == [thin]
    defragmentation = {
        "name": "Defragmentation",
        "args": {
            "resourceType": "cpu", "lowThresholds": {"cpu": 30}, "defragmentThresholds": {"cpu": 40}, "protectionThresholds": {"cpu": 95},
            "coolDownTime": 3600,
        },
    }  # fmt: skip
    args = {"thresholds": {"cpu": 20}, "targetThresholds": {"cpu": 80}, "nodeSelector": f"{TAG}={world.ns}"}
    policy = {
        "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",
        "profiles": [
            {
                "name": "both", "pluginConfig": [defragmentation, {"name": "LoadAware", "args": args}],
                "plugins": {"balance": {"enabled": ["Defragmentation", "LoadAware"]}},
            }
        ],
        "restow": {"interval": "1s"},
    }  # fmt: skip
    await measuring(world)
    with world.stack.configured("descheduler", yaml.safe_dump(policy)):

        async def packed() -> bool:
            return [node_of(pod) for pod in await world.pods()] == [full] * 6

        await world.until("the lone pod is packed", packed)
        await world.replicas("many", 5)
        await world.replicas("lone", 1)
        assert await used(world, full) == "3700m", "92.5 %, which LoadAware would spread"
        assert await used(world, thin) == "100m"

        async def rested() -> int:
            plans = (await world.restow_json("get", "plans"))["items"]
            return sum(plan["plugin"] == "LoadAware" and "were touched by a plan within coolDownTime" in plan["reason"] for plan in plans) >= 3

        await world.until("LoadAware has looked at it several times", rested)
        assert [node_of(pod) for pod in await world.pods()] == [full] * 6


class Measured:
    """What a node_exporter and a kubelet would say of kubesim's nodes: counters that rise as fast as kubesim has said that CPU is used."""

    def __init__(self, stack: Running) -> None:
        self._stack, self._lock, self._end = stack, threading.Lock(), threading.Event()
        self._at = time.monotonic()
        self._nodes: dict[str, float] = {}
        """The share that is idle."""
        self._pods: dict[str, tuple[str, float]] = {}
        """`namespace/name` → its node, and the cores that it uses."""
        self._counted: dict[str, float] = {}
        """Seconds: of nodes that were idle, of pods that they used."""
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self.down = False

    def __enter__(self) -> Measured:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def __call__(self, node: str) -> str | None:
        if self.down:
            return None
        with self._lock:
            self._count()
            idle = self._counted.get(node)
            of_pods = {key: self._counted[key] for key, (where, _) in self._pods.items() if where == node}
        if idle is None:
            return ""
        labels = [dict(zip(("namespace", "pod"), key.split("/"), strict=True)) | {"container": ""} for key in of_pods]
        size = 2.0**33
        return (
            lines("node_cpu_seconds_total", "counter", [({"cpu": "0", "mode": "idle"}, idle)])
            + lines("node_memory_MemAvailable_bytes", "gauge", [({}, size / 2)])
            + lines("node_memory_MemTotal_bytes", "gauge", [({}, size)])
            + lines("container_cpu_usage_seconds_total", "counter", list(zip(labels, of_pods.values(), strict=True)))
            + lines("container_memory_working_set_bytes", "gauge", [(one, 1e8) for one in labels])
        )

    def _follow(self) -> None:
        while not self._end.wait(0.2):
            nodes = {one["metadata"]["name"]: 1 - _cores(one["usage"]["cpu"]) / 4 for one in self._get(f"{METRICS}/nodes")}
            where = {_key(one): one["spec"].get("nodeName", "") for one in self._get("/api/v1/pods")}
            used = {_key(one): sum(_cores(c["usage"]["cpu"]) for c in one["containers"]) for one in self._get(f"{METRICS}/pods")}
            with self._lock:
                self._count()
                self._nodes, self._pods = nodes, {key: (where.get(key, ""), cores) for key, cores in used.items()}
                for name in (*nodes, *used):
                    # As of what has run for a while: where a counter begins a rate is not what it will be.
                    self._counted.setdefault(name, 10_000.0)

    def _count(self) -> None:
        now = time.monotonic()
        passed, self._at = now - self._at, now
        for name, idle in self._nodes.items():
            self._counted[name] += passed * max(idle, 0.0)
        for key, (_, cores) in self._pods.items():
            self._counted[key] += passed * cores

    def _get(self, path: str) -> Any:
        target = self._stack.target
        request = urllib.request.Request(target.url + path, headers=target.headers)
        context = target.ssl if not isinstance(target.ssl, bool) else None
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return json.load(answer)["items"]


def _key(obj: Any) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _cores(text: str) -> float:
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


@needs_prometheus
@pytest.mark.parametrize("plugin", ["LoadAware", "LowNodeUtilization"])
async def test_the_same_with_a_real_prometheus_until_nothing_is_scraped_any_more(world: World, plugin: str, tmp_path: Path) -> None:
    hot, *cool = await hot_and_cool(world)
    await measuring(world)
    with Measured(world.stack) as say, exporter(say) as scraped, prometheus(tmp_path, scraped.scraped(hot, *cool)) as server:
        policy = documented(1, world, plugin, server.url)
        with world.stack.configured("descheduler", yaml.safe_dump(policy)):
            await spreads(world, policy, tmp_path, hot, set(cool))

            async def nothing() -> Any:
                (plan,) = await descheduled(world)
                assert plan["moves"] == [], plan
                return plan["reason"]

            assert await nothing()
            say.down = True
            none = "no node has metrics" if plugin == "LoadAware" else "the query has no sample with instance="

            async def gone() -> bool:
                return none in await nothing()

            await world.until("what was scraped is too old", gone)
            server.process.terminate()
            await asyncio.to_thread(server.process.wait)

            async def down() -> bool:
                return "does not answer" in await nothing()

            await world.until("Prometheus is down", down)
