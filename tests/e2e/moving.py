"""What tests of single moves and of the optimizing planner share: policies, pods that may move, and what has become of them."""

from __future__ import annotations

from typing import Any

import yaml
from e2e.world import APPS, World, node_of, uid_of

Obj = dict[str, Any]


def optimizing(resource: str = "cpu", interval: str = "0s", restow: Obj | None = None, **args: Any) -> str:
    """A policy with Defragmentation by the optimizing planner alone, with these arguments."""
    said = {"planner": "optimizing", "resourceType": resource, "protectionThresholds": {resource: 100}, **args}
    policy = {
        "apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy",
        "profiles": [{
            "name": "restow",
            "pluginConfig": [{"name": "Defragmentation", "args": said}],
            "plugins": {"balance": {"enabled": ["Defragmentation"]}},
        }],
        "restow": {"interval": interval, "maxUnavailable": 0, "evictionsPerMinute": 0, **(restow or {})},
    }  # fmt: skip
    return yaml.safe_dump(policy)


async def workload(
    world: World, name: str, spec: Obj, replicas: int = 1, *, labels: Obj | None = None, annotations: Obj | None = None
) -> list[Obj]:
    """Pods that a ReplicaSet makes again, once they run."""
    chosen = {"app": name, **(labels or {})}
    template = {"metadata": {"labels": chosen, "annotations": annotations or {}}, "spec": spec}
    body = {
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template},
    }  # fmt: skip
    await world.api.ok("POST", f"{APPS}/namespaces/{world.ns}/replicasets", body)
    return await world.replicas(name, replicas)


async def only(world: World, app: str) -> Obj:
    """The one pod of this app, once it runs."""
    (pod,) = await world.replicas(app, 1)
    return pod


async def moved(world: World, app: str, before: Obj, target: str) -> Obj:
    """The successor of a pod, which runs on the target."""
    after = await only(world, app)
    assert uid_of(after) != uid_of(before), "it was made again"
    assert node_of(after) == target, (node_of(after), target)
    return after


async def stays(world: World, *before: Obj) -> None:
    """Nobody has touched these: the same pods, on the same nodes, and not on their way out."""
    for pod in before:
        after = await world.get(pod["metadata"]["name"])
        assert after is not None, pod["metadata"]["name"]
        assert (uid_of(after), node_of(after)) == (uid_of(pod), node_of(pod))
        assert "deletionTimestamp" not in after["metadata"]


async def nothing_is_held(world: World) -> None:
    async def probe() -> bool:
        return not await world.reservations()

    await world.until("no Reservation is left", probe)


async def why(world: World, what: str) -> str:
    """What `restow why` says, in one line."""
    return " ".join((await world.restow("why", what)).split())


async def says(world: World, what: str, *texts: str) -> str:
    """What `restow why` says, once it says all of this."""

    async def probe() -> str:
        said = await why(world, what)
        return said if all(text in said for text in texts) else ""

    try:
        return await world.until(f"restow why {what} says {texts}", probe)
    except AssertionError as error:
        raise AssertionError(f"{error}\nit says: {await why(world, what)}") from None


async def since(world: World, path: str) -> str:
    """Where a watch begins that sees all that comes."""
    version: str = (await world.api.ok("GET", path))["metadata"]["resourceVersion"]
    return version


async def added(world: World, path: str, version: str, count: int) -> list[Obj]:
    """The first so many objects that were created there, also where they are gone again."""
    found: list[Obj] = []
    async with world.api.watch(path, resourceVersion=version) as watch:
        while len(found) < count:
            event = await watch.next(30)
            if event["type"] == "ADDED":
                found.append(event["object"])
    return found
