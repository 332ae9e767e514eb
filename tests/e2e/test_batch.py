"""Gangs and queues as kubectl shows them: phases, counts, conditions, Events (the issue's lines about Jobs)."""

from __future__ import annotations

from typing import Any

from e2e.world import World, node_of

BATCH = "/apis/scheduling.volcano.sh/v1beta1"
Obj = dict[str, Any]


class Batch:
    """PodGroups and Queues of one test."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def queue(self, name: str, **spec: Any) -> str:
        full = f"e2e-{self.world.ns}-{name}"
        path = f"{BATCH}/queues/{full}"
        self.world.also_remove(path)
        body = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": full}, "spec": {"weight": 1} | spec}
        await self.world.api.ok("POST", f"{BATCH}/queues", body)
        return full

    async def gang(self, name: str, members: int, cpu: str, need: int = 0, **spec: Any) -> None:
        world = self.world
        body = {
            "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name},
            "spec": {"minMember": need or members, **spec},
        }  # fmt: skip
        groups = f"{BATCH}/namespaces/{world.ns}/podgroups"
        world.also_remove(f"{groups}/{name}")
        await world.api.ok("POST", groups, body)
        for i in range(members):
            meta = {"name": f"{name}-{i}", "annotations": {"scheduling.k8s.io/group-name": name}}
            pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": world.spec(cpu)}
            await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", pod)

    async def status(self, name: str) -> Obj:
        path = f"{BATCH}/namespaces/{self.world.ns}/podgroups/{name}"
        return (await self.world.api.ok("GET", path)).get("status") or {}

    async def phase(self, name: str, phase: str, **counts: int) -> Obj:
        """The status, once it has this phase and these counts."""

        async def probe() -> Obj | None:
            status = await self.status(name)
            right = status.get("phase") == phase and all(status.get(what, 0) == count for what, count in counts.items())
            return status if right else None

        return await self.world.until(f"PodGroup {name} is {phase} {counts}", probe)

    async def condition(self, name: str, kind: str, status: str = "True", *, says: str = "") -> Obj:
        async def probe() -> Obj | None:
            conditions = (await self.status(name)).get("conditions") or ()
            return next((c for c in conditions if (c["type"], c["status"]) == (kind, status) and says in c["message"]), None)

        return await self.world.until(f"{kind} of {name} is {status}", probe)

    async def counted(self, queue: str, **wanted: Any) -> Obj:
        async def probe() -> Obj | None:
            status = (await self.world.api.ok("GET", f"{BATCH}/queues/{queue}")).get("status") or {}
            return status if all(status.get(what) == value for what, value in wanted.items()) else None

        return await self.world.until(f"queue {queue} says {wanted}", probe)


async def test_a_gang_that_does_not_fit_says_so_and_runs_as_soon_as_it_fits(world: World) -> None:
    batch = Batch(world)
    await world.node("a", cpu="2")
    await batch.gang("train", 3, "1")
    said = await batch.condition("train", "Unschedulable", says="3/3 tasks in gang")
    assert said["reason"] == "NotEnoughResources"
    assert said["message"].startswith("3/3 tasks in gang unschedulable: pod group is not ready, 3 Pending, 3 minAvailable; 0/")
    assert "1 Insufficient cpu" in said["message"]
    assert len(said["transitionID"]) == 36
    assert (await batch.status("train"))["phase"] == "Inqueue"
    await world.unschedulable("train-0", "the gang needs 3 pods together")
    await world.events("train", "Unschedulable")
    assert not [pod for pod in await world.pods() if node_of(pod)], "no half gang"

    why = await world.restow("why", f"podgroup/{world.ns}/train")
    assert "2 of them fit now" in why
    assert "would start with 1 more empty node like" in why

    await world.node("b", cpu="2")
    await world.running("train-0", "train-1", "train-2")
    status = await batch.phase("train", "Running", running=3)
    assert [(c["type"], c["status"]) for c in status["conditions"]] == [("Unschedulable", "False"), ("Scheduled", "True")]
    assert status["conditions"][1]["reason"] == "tasks in gang are ready to be scheduled"
    assert (await world.events("train-0", "Scheduled"))[0]["message"].startswith(f"Successfully assigned {world.ns}/train-0 to ")
    await world.events("train", "Scheduled")


async def test_kubectl_shows_phase_and_count_of_a_podgroup(world: World) -> None:
    batch = Batch(world)
    await world.node("a")
    await batch.gang("pair", 2, "500m")
    await batch.phase("pair", "Running", running=2)
    head, row = (await world.kubectl("get", "podgroup", "-n", world.ns)).splitlines()
    assert head.split()[:4] == ["NAME", "STATUS", "MINMEMBER", "RUNNINGS"]
    assert row.split()[:4] == ["pair", "Running", "2", "2"]


async def test_a_gang_that_loses_a_member_is_unknown_and_completes_no_other_s_status(world: World) -> None:
    """The descheduler's migrationState (seed 003) is in the same status and stays."""
    batch = Batch(world)
    await world.node("a")
    await batch.gang("pair", 2, "500m")
    await batch.phase("pair", "Running", running=2)
    path = f"{BATCH}/namespaces/{world.ns}/podgroups/pair"
    await world.patch(f"{path}/status", {"status": {"migrationState": {"phase": "Running"}}})
    await world.remove(f"/api/v1/namespaces/{world.ns}/pods/pair-1", grace=0)
    status = await batch.phase("pair", "Unknown", running=1)
    assert status["migrationState"] == {"phase": "Running"}
    assert (await batch.condition("pair", "Unschedulable"))["reason"] == "NotEnoughTasks"


async def test_a_queue_counts_its_groups_and_what_they_use(world: World) -> None:
    batch = Batch(world)
    await world.node("a")
    queue = await batch.queue("q", capability={"cpu": "2"})
    assert (await batch.counted(queue, state="Open"))["running"] == 0
    await batch.gang("runs", 2, "500m", queue=queue)
    await batch.phase("runs", "Running", running=2)
    status = await batch.counted(queue, running=1)
    assert status["allocated"] == {"cpu": "1", "memory": "128Mi", "pods": "2"}
    await batch.gang("waits", 2, "800m", queue=queue)
    await batch.counted(queue, running=1, inqueue=1)
    waits = await batch.condition("waits", "Unschedulable")
    assert queue in waits["message"]
    assert f"queue {queue}: capability cpu 600m more" in " ".join((await world.restow("why", f"{world.ns}/waits-0")).split())
    for i in range(2):
        await world.remove(f"/api/v1/namespaces/{world.ns}/pods/runs-{i}", grace=0)
    await batch.phase("waits", "Running", running=2)
    await batch.counted(queue, running=1, allocated={"cpu": "1600m", "memory": "128Mi", "pods": "2"})


async def test_a_closed_queue_stays_closed_and_says_so_to_who_waits(world: World) -> None:
    batch = Batch(world)
    await world.node("a")
    queue = await batch.queue("shut")
    await batch.counted(queue, state="Open")
    await world.patch(f"{BATCH}/queues/{queue}/status", {"status": {"state": "Closed"}})
    await batch.gang("late", 1, "100m", queue=queue)
    await world.undetermined("late-0", f"queue {queue} is Closed")
    await batch.counted(queue, state="Closed")
    await world.patch(f"{BATCH}/queues/{queue}/status", {"status": {"state": "Open"}})
    await batch.phase("late", "Running", running=1)


async def test_pods_that_name_a_group_which_does_not_exist_wait_for_it(world: World) -> None:
    await world.node("a")
    meta = {"name": "early", "annotations": {"scheduling.k8s.io/group-name": "g"}}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": world.spec()}
    await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", pod)
    await world.undetermined("early", f"PodGroup {world.ns}/g does not exist")
    await Batch(world).gang("g", 0, "100m", need=1)
    await world.running("early")
