"""Seed 003, "Resource Reservation Flow", steps 1 to 6: Volcano's Reservation with a template, as `kubectl` shows it."""

from __future__ import annotations

import json

from e2e.koordinator import amounts, containers, end, fill, pod, still_waits
from e2e.world import VOLCANO, Obj, World, node_of, uid_of

OWNED = {"app": "next-release"}
HELD = {"cpu": "2", "memory": "1Gi"}
HALF = {"cpu": "1", "memory": "512Mi"}


async def until(world: World, phase: str, *owners: str) -> Obj:
    """The status of Reservation `r`, once the phase is this and these pods, and no others, use it."""
    path, seen = f"{VOLCANO}/namespaces/{world.ns}/reservations/r", {}

    async def probe() -> bool:
        seen.clear()
        seen.update((await world.api.ok("GET", path)).get("status") or {})
        return seen.get("phase") == phase and {one["name"] for one in seen.get("currentOwners") or ()} == set(owners)

    try:
        await world.until(f"the Reservation is {phase}, used by {owners}", probe)
    except AssertionError as error:
        raise AssertionError(f"{error}\nits status: {json.dumps(seen)}") from None
    return seen


async def test_reservation_flow_steps_1_to_6(world: World) -> None:
    nodes = {await world.node("a", "4"), await world.node("b", "4")}

    # 1. The user declares the pods to come (template) and who they are (owners). Without ttl it lives for a day (RULES G-2).
    body = {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": "r"},
        "spec": {
            "schedulerName": "restow", "owners": [{"labelSelector": {"matchLabels": OWNED}}],
            "template": {"metadata": {"labels": OWNED}, "spec": world.spec(containers=containers(HELD))},
        },
    }  # fmt: skip
    await world.api.ok("POST", f"{VOLCANO}/namespaces/{world.ns}/reservations", body)

    # 2. The scheduler finds a node for such a pod and writes that into the status. The capacity is nobody else's.
    status = await until(world, "Available")
    held = status["nodeName"]
    assert held in nodes
    assert amounts(status["allocatable"]) == amounts(HELD)
    assert not amounts(status.get("allocated"))
    assert status["conditions"]
    await fill(world, "rest", held, {"cpu": "2"})
    (other,) = nodes - {held}

    # 3. A new pod of an owner takes it, though the other node has more capacity; who is no owner does not. The hold must cover
    #    what the pod asks for: who asks for more runs as any other pod.
    await pod(world, "large", {"cpu": "3", "memory": "512Mi"}, labels=OWNED)
    await world.lands("large", other)
    await pod(world, "stranger", {"cpu": "2"})
    await world.waits("stranger", "2 Insufficient cpu")
    await until(world, "Available")
    await pod(world, "first", HALF, labels=OWNED)
    first = await world.lands("first", held)

    # 4. Once it is bound the status tells who has consumed how much.
    status = await until(world, "Available", "first")
    assert amounts(status["allocated"]) == amounts(HALF)
    (using,) = status["currentOwners"]
    assert (using["namespace"], using["uid"]) == (world.ns, uid_of(first))
    assert status["currentOwner"] == using
    await pod(world, "second", HALF, labels=OWNED)
    await world.lands("second", held)
    status = await until(world, "Available", "first", "second")
    assert amounts(status["allocated"]) == amounts(HELD)
    # One core is free on the other node, none in the hold.
    await pod(world, "third", {"cpu": "1100m"}, labels=OWNED)
    await world.waits("third", "2 Insufficient cpu")

    # 5. A pod that is gone is a record less; what it had is the Reservation's again, for other owners.
    await end(world, "first", "third")
    status = await until(world, "Available", "second")
    assert amounts(status["allocated"]) == amounts(HALF)
    await still_waits(world, "stranger")
    await pod(world, "fourth", HALF, labels=OWNED)
    await world.lands("fourth", held)
    await until(world, "Available", "second", "fourth")
    await end(world, "fourth")
    await until(world, "Available", "second")

    # 6. It expires: what nobody has consumed is free for all, and the pod that has is left alone.
    await world.patch(f"{VOLCANO}/namespaces/{world.ns}/reservations/r", {"spec": {"ttl": "1s"}})
    status = await until(world, "Failed", "second")
    assert "Expired" in {status["state"]["reason"], *(c.get("reason") for c in status["conditions"])}
    await fill(world, "late", held, {"cpu": "1"})
    (second,) = await world.running("second")
    assert node_of(second) == held
    await still_waits(world, "stranger")
