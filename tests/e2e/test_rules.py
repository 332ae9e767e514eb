"""The rules about other pods and about what a pod asks for, as kube-scheduler decides them and `kubectl` shows them.

On a shared cluster there are more nodes than a test's: its pods select its own, and a node counts for its first failing rule,
so the counts of the rules here are those of the test's nodes everywhere."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e.world import APPS, TAG, World, node_of

HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"
Obj = dict[str, Any]


def term(labels: Obj, key: str = HOST, **more: Any) -> Obj:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": key, **more}


def near(*terms: Obj) -> Obj:
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def apart(*terms: Obj) -> Obj:
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}


def rather(kind: str, *terms: Obj) -> Obj:
    return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": t} for t in terms]}}


def spread(key: str, labels: Obj, **more: Any) -> list[Obj]:
    rule = {"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": labels}}
    return [rule | more]


def at(world: World, node: str) -> Obj:
    """Pins a pod, by what its spec says alone."""
    return {"nodeSelector": {TAG: world.ns, HOST: node}}


async def elsewhere(world: World, labels: Obj) -> str:
    """Another namespace of the test; `inside` makes its pods."""
    name = f"{world.ns}-other"
    await world.make("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    await world.account(name)
    return name


async def inside(world: World, ns: str, name: str, labels: Obj, **spec: Any) -> None:
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": world.spec(**spec)}
    await world.make(f"/api/v1/namespaces/{ns}/pods", body)

    async def bound() -> bool:
        return bool(node_of(await world.api.ok("GET", f"/api/v1/namespaces/{ns}/pods/{name}")))

    await world.until(f"{ns}/{name} has a node", bound)


# -- affinity ------------------------------------------------------------------------------------------------------------


async def test_a_pod_goes_to_the_zone_of_the_pods_that_it_needs(world: World) -> None:
    full = await world.node("full", cpu="1", labels={ZONE: "east"})
    east = await world.node("east", cpu="1", labels={ZONE: "east"})
    west = await world.node("west", labels={ZONE: "west"})
    await world.pod("web", affinity=near(term({"app": "db"}, ZONE)))
    await world.waits("web", "3 node(s) didn't match pod affinity rules")
    await world.pod("db", "950m", labels={"app": "db"}, **at(world, full))
    await world.lands("db", full)
    await world.lands("web", east)
    await world.pod("large", "2", affinity=near(term({"app": "db"}, ZONE)))
    await world.waits("large", "2 Insufficient cpu", "1 node(s) didn't match pod affinity rules")
    await world.pod("db2", "100m", labels={"app": "db"}, **at(world, west))
    await world.lands("large", west)


async def test_the_first_of_pods_that_need_each_other_goes_anywhere_and_the_others_follow(world: World) -> None:
    await world.node("a")
    await world.node("b")
    rule = near(term({"app": "ring"}))
    for i in range(3):
        await world.pod(f"r{i}", "1", labels={"app": "ring"}, affinity=rule)
    assert len({node_of(pod) for pod in await world.running("r0", "r1", "r2")}) == 1


async def test_pods_that_avoid_each_other_wait_for_a_node_of_their_own(world: World) -> None:
    nodes = [await world.node("a"), await world.node("b")]
    for i in range(3):
        await world.pod(f"p{i}", labels={"app": "solo"}, affinity=apart(term({"app": "solo"})))
    await world.until("two run", lambda: _count(world, "solo", 2))
    (waiting,) = [pod["metadata"]["name"] for pod in await world.pods("solo") if not node_of(pod)]
    await world.waits(waiting, "2 node(s) didn't match pod anti-affinity rules")
    assert {node_of(pod) for pod in await world.pods("solo")} == {*nodes, ""}
    await world.lands(waiting, await world.node("c"))


async def _count(world: World, app: str, bound: int) -> bool:
    return sum(bool(node_of(pod)) for pod in await world.pods(app)) == bound


async def test_a_running_pod_keeps_those_away_that_it_avoids(world: World) -> None:
    a = await world.node("a", labels={ZONE: "east"})
    await world.node("b", labels={ZONE: "east"})
    await world.pod("guard", affinity=apart(term({"app": "noisy"}, ZONE)), **at(world, a))
    await world.lands("guard", a)
    await world.pod("noisy", labels={"app": "noisy"})
    await world.waits("noisy", "2 node(s) didn't satisfy existing pods anti-affinity rules")
    await world.pod("quiet", labels={"app": "quiet"})
    await world.running("quiet")
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/guard", grace=0)
    await world.running("noisy")


async def test_a_pod_may_need_pods_of_namespaces_that_it_selects_by_label(world: World) -> None:
    await world.node("a")
    b = await world.node("b")
    other = await elsewhere(world, {"team": "blue"})
    await inside(world, other, "db", {"app": "db"}, **at(world, b))
    await world.pod("own", affinity=near(term({"app": "db"})))
    await world.waits("own", "2 node(s) didn't match pod affinity rules")
    await world.pod("blue", affinity=near(term({"app": "db"}, namespaceSelector={"matchLabels": {"team": "blue"}})))
    await world.lands("blue", b)
    await world.pod("named", affinity=near(term({"app": "db"}, namespaces=[other])))
    await world.lands("named", b)
    await world.pod("red", affinity=near(term({"app": "db"}, namespaceSelector={"matchLabels": {"team": "red"}})))
    await world.waits("red", "2 node(s) didn't match pod affinity rules")
    await world.patch(f"/api/v1/namespaces/{other}", {"metadata": {"labels": {"team": "red"}}})
    await world.lands("red", b)
    assert not node_of(await world.get("own") or {"spec": {}})


async def test_a_preference_for_company_wins_over_the_emptier_node(world: World) -> None:
    a = await world.node("a")
    b = await world.node("b")
    await world.pod("db", "1", labels={"app": "db"}, **at(world, a))
    await world.lands("db", a)
    await world.pod("friend", affinity=rather("podAffinity", term({"app": "db"})))
    await world.lands("friend", a)
    await world.pod("bulk", "2", **at(world, b))
    await world.lands("bulk", b)
    # Now a is the emptier one.
    await world.pod("foe", affinity=rather("podAntiAffinity", term({"app": "db"})))
    await world.lands("foe", b)
    # A preference keeps nobody from running.
    await world.pod("large", "2500m", affinity=rather("podAntiAffinity", term({"app": "db"})))
    await world.lands("large", a)


# -- topology spread -------------------------------------------------------------------------------------------------------


async def test_with_too_few_zones_min_domains_keeps_pods_waiting_for_another_one(world: World) -> None:
    east = await world.node("east", labels={ZONE: "east"})
    bare = await world.node("bare")
    rule = spread(ZONE, {"app": "web"}, minDomains=2)
    await world.pod("p0", labels={"app": "web"}, topologySpreadConstraints=rule)
    await world.lands("p0", east)
    await world.pod("p1", labels={"app": "web"}, topologySpreadConstraints=rule)
    await world.waits(
        "p1", "1 node(s) didn't match pod topology spread constraints (missing required label)",
        "1 node(s) didn't match pod topology spread constraints,",
    )  # fmt: skip
    await world.patch(f"/api/v1/nodes/{bare}", {"metadata": {"labels": {ZONE: "west"}}})
    await world.lands("p1", bare)


async def test_a_zone_without_capacity_holds_the_others_back(world: World) -> None:
    east = await world.node("east", labels={ZONE: "east"})
    west = await world.node("west", cpu="1", labels={ZONE: "west"})
    await world.pod("bulk", "950m", **at(world, west))
    await world.lands("bulk", west)
    rule = spread(ZONE, {"app": "web"})
    await world.pod("p0", labels={"app": "web"}, topologySpreadConstraints=rule)
    await world.lands("p0", east)
    await world.pod("p1", labels={"app": "web"}, topologySpreadConstraints=rule)
    await world.waits("p1", "1 Insufficient cpu", "1 node(s) didn't match pod topology spread constraints")
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/bulk", grace=0)
    await world.lands("p1", west)


async def test_in_a_rolling_update_each_revision_is_spread_by_itself(world: World) -> None:
    """With all pods counted, both new ones would go to the node that has none of the old ones."""
    a = await world.node("a")
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "100%", "maxUnavailable": 0}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": world.spec()}
    body = {
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2, "strategy": strategy, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }  # fmt: skip
    path = f"{APPS}/namespaces/{world.ns}/deployments"
    await world.api.ok("POST", path, body)
    old = await world.replicas("web", 2)
    assert {node_of(pod) for pod in old} == {a}
    b = await world.node("b")
    rule = spread(HOST, {"app": "web"}, matchLabelKeys=["pod-template-hash"])
    await world.patch(f"{path}/web", {"spec": {"template": {"spec": {"topologySpreadConstraints": rule}}}})
    before = {pod["metadata"]["uid"] for pod in old}

    async def rolled() -> list[Obj] | None:
        pods = await world.replicas("web", 2)
        return pods if not before & {pod["metadata"]["uid"] for pod in pods} else None

    assert sorted(node_of(pod) for pod in await world.until("the roll-out is over", rolled)) == [a, b]


# -- host ports ------------------------------------------------------------------------------------------------------------


def listening(port: int, **more: Any) -> Obj:
    return {"ports": [{"containerPort": port, "hostPort": port, **more}]}


async def test_a_host_port_is_given_out_once_per_node_protocol_and_address(world: World) -> None:
    a = await world.node("a")

    async def pod(name: str, **port: Any) -> None:
        spec = world.spec()
        spec["containers"][0].update(listening(8080, **port))
        await world.pod(name, containers=spec["containers"])

    await pod("first")
    await world.lands("first", a)
    await pod("second")
    await world.waits("second", "1 node(s) didn't have free ports for the requested pod ports")
    await pod("udp", protocol="UDP")
    await world.lands("udp", a)
    await pod("one", hostIP="10.0.0.1")
    await world.waits("one", "1 node(s) didn't have free ports for the requested pod ports")
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/second", grace=0)
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/first", grace=0)
    await world.lands("one", a)
    await pod("two", hostIP="10.0.0.2")
    await world.lands("two", a)


async def test_two_pods_with_one_host_port_go_to_two_nodes(world: World) -> None:
    nodes = {await world.node("a"), await world.node("b", cpu="1")}
    for name in ("p0", "p1"):
        spec = world.spec()
        spec["containers"][0].update(listening(9000))
        await world.pod(name, containers=spec["containers"])
    assert {node_of(pod) for pod in await world.running("p0", "p1")} == nodes


# -- scheduling gates --------------------------------------------------------------------------------------------------------


async def test_a_gated_pod_takes_no_capacity_and_no_session_speaks_of_it_until_its_last_gate_goes(world: World) -> None:
    a = await world.node("a", cpu="1")
    await world.pod("gated", "800m", schedulingGates=[{"name": "example.com/one"}, {"name": "example.com/two"}])
    await world.pod("free", "800m")
    await world.lands("free", a)
    path = f"/api/v1/namespaces/{world.ns}/pods/gated"
    await world.patch(path, {"spec": {"schedulingGates": [{"name": "example.com/two"}]}})
    await world.pod("late", "800m")
    await world.waits("late", "1 Insufficient cpu")
    pod = await world.api.ok("GET", path)
    assert not node_of(pod)
    assert [c["reason"] for c in pod["status"].get("conditions") or () if c["type"] == "PodScheduled"] in ([], ["SchedulingGated"])
    await world.patch(path, {"spec": {"schedulingGates": []}})
    await world.waits("gated", "1 Insufficient cpu")
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/late", grace=0)
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/free", grace=0)
    await world.lands("gated", a)


# -- what a pod asks for -------------------------------------------------------------------------------------------------------


def container(name: str, cpu: str, **more: Any) -> Obj:
    resources = {"requests": {"cpu": cpu, "memory": "16Mi"}}
    return {"name": name, "image": "registry.k8s.io/pause:3.10", "resources": resources, **more}


def sidecar(name: str, cpu: str) -> Obj:
    return container(name, cpu, restartPolicy="Always")


ASKS = {
    "the largest init container, where that is more": (
        {"initContainers": [container("i", "1500m"), container("j", "300m")], "containers": [container("m", "200m")]}, 1500),
    "the containers, where they are more": (
        {"initContainers": [container("i", "300m")], "containers": [container("m", "400m"), container("n", "300m")]}, 700),
    "sidecars beside the containers": (
        {"initContainers": [container("i", "300m"), sidecar("s", "500m")], "containers": [container("m", "400m")]}, 900),
    "an init container beside the sidecars that were started before it": (
        {"initContainers": [sidecar("s", "500m"), container("i", "1200m")], "containers": [container("m", "400m")]}, 1700),
}  # fmt: skip


async def exactly(world: World, milli: int) -> None:
    """On the node with 2 cores nothing is left but what these thousandths leave."""
    await world.pod("over", f"{2001 - milli}m", "16Mi")
    await world.waits("over", "1 Insufficient cpu")
    await world.pod("rest", f"{2000 - milli}m", "16Mi")
    await world.running("rest")


@pytest.mark.parametrize("case", ASKS)
async def test_a_pod_asks_for(world: World, case: str) -> None:
    spec, milli = ASKS[case]
    a = await world.node("a", cpu="2")
    await world.pod("p", **json.loads(json.dumps(spec)))
    await world.lands("p", a)
    await exactly(world, milli)


async def test_a_pod_asks_for_the_overhead_of_its_runtime_too(world: World) -> None:
    a = await world.node("a", cpu="2")
    name, overhead = f"{world.ns}-vm", {"cpu": "250m", "memory": "32Mi"}
    body = {
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name},
        "handler": "vm", "overhead": {"podFixed": overhead},
    }  # fmt: skip
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    answer = await world.api.call("POST", classes, body)
    # kubesim has no such objects; a real API server's admission fills in the overhead from them.
    assert answer.status < 300 or (world.stack.simulated and answer.status == 404), answer.body
    world.also_remove(f"{classes}/{name}")

    async def admitted() -> bool:
        pod = {"metadata": {"name": "p"}, "spec": world.spec("1", runtimeClassName=name, overhead=overhead)}
        return (await world.api.call("POST", f"/api/v1/namespaces/{world.ns}/pods", pod)).status < 300

    await world.until("admission knows the RuntimeClass", admitted)
    await world.lands("p", a)
    await exactly(world, 1250)
