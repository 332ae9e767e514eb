"""The puppet does what the suite relies on where an API server has no controllers (and real ones do the same)."""

from __future__ import annotations

from typing import Any

from e2e.world import APPS, World, node_of, uid_of


async def placed(world: World, name: str, replicas: int, **more: Any) -> list[Any]:
    await world.node("a")
    await world.replicaset(name, replicas, **more)
    return await world.replicas(name, replicas)


async def test_a_replicaset_has_as_many_pods_as_it_asks_for(world: World) -> None:
    pods = await placed(world, "web", 3)
    assert all(pod["metadata"]["ownerReferences"][0]["kind"] == "ReplicaSet" for pod in pods)
    await world.patch(f"{APPS}/namespaces/{world.ns}/replicasets/web", {"spec": {"replicas": 1}})
    await world.replicas("web", 1)
    await world.patch(f"{APPS}/namespaces/{world.ns}/replicasets/web", {"spec": {"replicas": 2}})
    await world.replicas("web", 2)


async def test_a_replacement_is_made_while_its_predecessor_terminates(world: World) -> None:
    (pod,) = await placed(world, "web", 1)
    path = f"/api/v1/namespaces/{world.ns}/pods"
    listed = await world.api.ok("GET", path)
    # The finalizer keeps the first one for as long as the test looks.
    await world.patch(f"{path}/{pod['metadata']['name']}", {"metadata": {"finalizers": ["example.com/wait"]}})
    try:
        async with world.api.watch(path, resourceVersion=listed["metadata"]["resourceVersion"]) as watch:
            await world.remove(f"{path}/{pod['metadata']['name']}")
            terminating = False
            while True:
                event = await watch.next(30)
                meta = event["object"]["metadata"]
                if meta["uid"] == uid_of(pod):
                    terminating = terminating or bool(meta.get("deletionTimestamp"))
                    assert event["type"] != "DELETED"
                elif event["type"] == "ADDED":
                    assert terminating
                    break
    finally:
        await world.patch(f"{path}/{pod['metadata']['name']}", {"metadata": {"finalizers": None}})
    (successor,) = await world.replicas("web", 1)
    assert uid_of(successor) != uid_of(pod)


async def test_a_pod_terminates_gracefully_and_goes(world: World) -> None:
    await world.node("a")
    await world.pod("p")
    await world.running("p")
    answer = await world.api.call("DELETE", f"/api/v1/namespaces/{world.ns}/pods/p")
    assert answer.body["metadata"]["deletionTimestamp"]

    async def gone() -> bool:
        return await world.get("p") is None

    await world.until("the pod is gone", gone)


async def test_a_deployments_pods_are_owned_through_a_replicaset(world: World) -> None:
    await world.node("a")
    deployment = await world.replicaset("web", 2, kind="Deployment")
    await world.replicas("web", 2)
    (owner,) = (await world.api.ok("GET", f"{APPS}/namespaces/{world.ns}/replicasets"))["items"]
    assert owner["metadata"]["ownerReferences"][0]["uid"] == uid_of(deployment)


async def test_the_pods_of_a_deleted_replicaset_go(world: World) -> None:
    await placed(world, "web", 2)
    await world.remove(f"{APPS}/namespaces/{world.ns}/replicasets/web")

    async def gone() -> bool:
        return not await world.pods("web")

    await world.until("the pods are gone", gone)


async def test_a_new_node_takes_pods(world: World) -> None:
    """Also where admission taints it first (`node.kubernetes.io/not-ready`), as every real API server does."""
    node = await world.node("a")
    await world.pod("p")
    (pod,) = await world.running("p")
    assert node_of(pod) == node
    if world.stack.puppet is not None:
        assert not world.stack.puppet.failures
