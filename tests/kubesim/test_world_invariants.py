"""KS-209: whatever happens in whatever order, counts and books agree with what is in the store.

Seeded: a failure names its seed. The checks recompute everything from the store alone.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from kubesim.simworld import GIB, World, deleting, is_ready, phase, pod_spec, workload

from restow.kubesim.nodes import set_ready
from restow.kubesim.objects import controller_of
from restow.kubesim.resources import DAEMONSETS, DEPLOYMENTS, JOBS, NODES, PODS, REPLICASETS, STATEFULSETS

GPU = {"alibabacloud.com/gpu-milli": "300", "alibabacloud.com/gpu-count": "1"}


def _populate(world: World) -> None:
    world.create(DEPLOYMENTS, "web", workload(spec=pod_spec(cpu="300m"), replicas=6))
    world.create(DEPLOYMENTS, "gpu", workload({"app": "gpu"}, spec=pod_spec(requests=GPU), replicas=5))
    world.create(STATEFULSETS, "db", workload({"app": "db"}, replicas=3, serviceName="db"))
    world.create(DAEMONSETS, "agent", workload({"app": "agent"}, spec=pod_spec(cpu="10m")))
    template = {"spec": {**pod_spec(), "restartPolicy": "Never"}}
    world.create(
        JOBS, "job", {"parallelism": 2, "completions": 8, "backoffLimit": 1000, "template": template}
    )


def _disturb(world: World, rng: random.Random) -> None:
    """One thing that users, schedulers and fate do."""
    nodes = [node["metadata"]["name"] for node in world.store.list(NODES)]
    match rng.randrange(8):
        case 0 | 1 | 2:
            if world.pods():
                world.delete(PODS, rng.choice(world.names()))
        case 3:
            world.change(DEPLOYMENTS, rng.choice(["web", "gpu"]), replicas=rng.randrange(8))
        case 4:
            world.change(STATEFULSETS, "db", replicas=rng.randrange(5))
        case 5:
            set_ready(world.store, rng.choice(nodes), rng.choice([True, False, None]))
        case 6:
            if len(nodes) > 2:
                world.delete(NODES, rng.choice(nodes))
        case 7:
            # New names, as autoscalers give them.
            world.add_node(f"x{rng.getrandbits(32):x}", cpu=4000, memory=8 * GIB, gpus=2)
    world.run(rng.choice([0.0, 0.005, 0.02, 0.1]))


def _check_books(world: World) -> None:
    """The kubelet's books are the sum over the pods that it admitted and that have not ended."""
    for node in world.store.list(NODES):
        name = node["metadata"]["name"]
        account = world.running.kubelet.account(name)
        here = [p for p in world.pods() if p["spec"].get("nodeName") == name]
        started = {p["metadata"]["uid"] for p in here if phase(p) == "Running"}
        unfinished = {p["metadata"]["uid"] for p in here if phase(p) in ("Pending", "Running")}
        assert started <= set(account.pods) <= unfinished
        assert all(0 <= free <= 1000 for free in account.devices.free)
        assert sum(1000 - free for free in account.devices.free) == sum(
            sum(taken.shares.values()) for taken in account.pods.values()
        )
        used: Counter[str] = Counter()
        for taken in account.pods.values():
            used.update(taken.amounts)
        assert {k: v for k, v in account.used.items() if v} == {k: v for k, v in used.items() if v}
        assert all(account.used[k] <= account.allocatable.get(k, 0) for k in account.used if account.used[k])


def _check_index(world: World) -> None:
    """The index of pods by owner is what the store says."""
    owned: dict[str, list[dict]] = {}
    for pod in world.pods():
        owned.setdefault(controller_of(pod)["uid"], []).append(pod)
    alive = {pod["metadata"]["uid"] for pod in world.alive()}
    for uid, pods in owned.items():
        group = world.running.runtime.pods.group(uid)
        active = [pod for pod in pods if pod["metadata"]["uid"] in alive]
        assert len(group.members) == len(pods)
        assert group.active == len(active) == sum(group.shapes.values())
        assert group.ready == sum(is_ready(pod) for pod in active)
        assert group.terminating == sum(deleting(pod) for pod in pods)


def _check_sizes(world: World) -> None:
    """After peace returned, there is what was asked for."""
    for name in ("web", "gpu"):
        sets = [s for s in world.store.list(REPLICASETS, "default") if controller_of(s)["name"] == name]
        wanted = world.get(DEPLOYMENTS, name)["spec"]["replicas"]
        assert sum(s["spec"]["replicas"] for s in sets) == wanted
        uids = {s["metadata"]["uid"] for s in sets}
        assert sum(controller_of(p)["uid"] in uids for p in world.alive()) == wanted
    db = world.get(STATEFULSETS, "db")["spec"]["replicas"]
    names = {p["metadata"]["name"] for p in world.alive() if controller_of(p)["kind"] == "StatefulSet"}
    assert names == {f"db-{number}" for number in range(db)}
    agents = [p["spec"]["nodeName"] for p in world.alive() if controller_of(p)["kind"] == "DaemonSet"]
    assert sorted(agents) == sorted(node["metadata"]["name"] for node in world.store.list(NODES))
    assert world.status(JOBS, "job")["succeeded"] == 8


@pytest.mark.parametrize("seed", range(25))
def test_counts_books_and_sizes_hold_through_any_disturbance(seed):
    """KS-209"""
    rng = random.Random(seed)
    world = World(nodes=4, cpu=16_000, gpus=4)
    _populate(world)
    for _ in range(60):
        _disturb(world, rng)
        _check_books(world)
        _check_index(world)
    for node in world.store.list(NODES):
        set_ready(world.store, node["metadata"]["name"], True)
    world.add_nodes(4, cpu=16_000, gpus=4, prefix="peace")
    world.run(60)
    _check_books(world)
    _check_index(world)
    _check_sizes(world)
    assert world.running.runtime.failures == 0
