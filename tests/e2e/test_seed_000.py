"""Seed 000's reservation and the jobs that use it, with objects that `kubectl` shows: PodGroups, queues, named Reservations."""

from __future__ import annotations

from typing import Any

import yaml
from e2e.world import DATA, VOLCANO, Obj, World, node_of

SCHEDULING = "/apis/scheduling.volcano.sh/v1beta1"
TARGET = "scheduling.volcano.sh/target-reservation"
OWNED = {"restow.dev/owner": "job"}
OWNERS = [{"labelSelector": {"matchLabels": OWNED}}]


async def group(world: World, name: str, need: int, ns: str = "", **annotations: str) -> None:
    path = f"{SCHEDULING}/namespaces/{ns or world.ns}/podgroups"
    world.also_remove(f"{path}/{name}")
    body = {
        "apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "PodGroup", "metadata": {"name": name, "annotations": annotations},
        "spec": {"minMember": need},
    }  # fmt: skip
    await world.api.ok("POST", path, body)


async def owner(world: World, name: str, target: str = "", cpu: str = "800m", **labels: str) -> None:
    annotations = {TARGET: target} if target else {}
    metadata = {"name": name, "labels": labels or OWNED, "annotations": annotations}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": world.spec(cpu)}
    await world.api.ok("POST", f"/api/v1/namespaces/{world.ns}/pods", body)


async def state_of(world: World, name: str) -> Obj:
    return (await world.api.ok("GET", f"{VOLCANO}/namespaces/{world.ns}/reservations/{name}")).get("status", {}).get("state", {})


# -- the seed's example, verbatim ----------------------------------------------------------------------------------------


class JobMulti:
    """The job that the seed's Reservation waits for, in namespace default."""

    def __init__(self, world: World, text: str) -> None:
        self._world = world
        self._tasks = {task["name"]: task["template"] for task in yaml.safe_load(text)["spec"]["tasks"]}
        self.group = f"{world.ns}-job-multi"
        self.pods: list[str] = []

    async def start(self, need: int) -> None:
        await group(self._world, self.group, need, "default", **{TARGET: "complex-reservation"})

    async def pod(self, task: str, index: int) -> str:
        name = f"{self._world.ns}-{task}-{index}"
        path = "/api/v1/namespaces/default/pods"
        self._world.also_remove(f"{path}/{name}?gracePeriodSeconds=0")
        metadata: Obj = {
            "name": name,
            "labels": {"volcano.sh/reservation-job": "job-multi"},
            "annotations": {"scheduling.k8s.io/group-name": self.group, "volcano.sh/task-spec": task},
        }
        body = {
            "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
            "spec": {"schedulerName": "volcano", **self._tasks[task]["spec"]},
        }  # fmt: skip
        await self._world.api.ok("POST", path, body)
        self.pods.append(name)
        return name

    async def seen(self) -> list[Obj]:
        return [await self._world.api.ok("GET", f"/api/v1/namespaces/default/pods/{name}") for name in self.pods]


async def test_the_seeds_job_comes_pod_by_pod_and_takes_what_was_held_for_it_at_once(world: World) -> None:
    """Held, kept from others, not given in parts, then all three bound to its node."""
    node = await world.node("a", cpu="1250m", memory="2Gi")
    text = (DATA / "complex-reservation.yaml").read_text()
    await world.remove(f"{VOLCANO}/namespaces/default/reservations/complex-reservation")
    await world.apply(text)
    status = await world.held("complex-reservation", "Available", "default")
    assert status["allocatable"]["cpu"] == "1250m"
    await world.pod("stranger", "100m")
    await world.unschedulable("stranger", "Insufficient cpu")

    job = JobMulti(world, text)
    await job.start(need=2)
    await job.pod("nginx", 0)
    await job.pod("busybox", 0)

    async def refused() -> bool:
        said = [c.get("message", "") for pod in await job.seen() for c in pod["status"].get("conditions") or ()]
        return sum("has not as many pods of each spec" in message for message in said) == 2

    await world.until("two of three pods are told that they are too few", refused)
    assert not any(node_of(pod) for pod in await job.seen())
    await job.pod("nginx", 1)
    status = await world.held("complex-reservation", "Succeeded", "default")
    assert {one["name"] for one in status["currentOwners"]} == set(job.pods)

    async def bound() -> bool:
        return all(node_of(pod) == node for pod in await job.seen())

    await world.until("all three are on the node that was held", bound)
    assert not node_of(await world.get("stranger") or {})


# -- jobs that name their Reservation ------------------------------------------------------------------------------------


async def test_a_pod_waits_for_the_reservation_that_it_names_although_there_is_capacity(world: World) -> None:
    await world.node("a")
    await owner(world, "p", "r")
    await world.undetermined("p", "there is no Reservation r in namespace")
    await world.reservation("r", {"t": (1, world.spec("800m"))}, owners=OWNERS)
    await world.running("p")
    status = await world.held("r", "Succeeded")
    assert status["currentOwner"]["name"] == "p"


async def test_who_names_a_reservation_of_others_or_for_others_is_told_why(world: World) -> None:
    await world.node("a")
    await world.reservation("r", {"t": (1, world.spec("800m"))}, owners=OWNERS)
    await world.held("r", "Available")
    await owner(world, "stranger", "r", app="else")
    await world.undetermined("stranger", "pod stranger matches no owner of Reservation")
    await owner(world, "large", "r", cpu="900m")
    await world.undetermined("large", "pod large has not the spec of any task of Reservation")
    await owner(world, "free", cpu="900m")
    await world.running("free")
    assert (await world.held("r", "Available"))["available"] == 1


# -- queues and preferred nodes ------------------------------------------------------------------------------------------


async def test_a_reservation_of_a_missing_queue_is_pending_until_there_is_one(world: World) -> None:
    await world.node("a")
    name = f"queue-{world.ns}"
    await world.reservation("r", {"t": (1, world.spec("800m"))}, owners=OWNERS, queue=name)

    async def pending() -> bool:
        state = await state_of(world, "r")
        return (state.get("phase"), state.get("reason")) == ("Pending", "QueueNotFound") and name in state.get("message", "")

    await world.until("its status says what is missing", pending)
    await world.events("r", "QueueNotFound")
    world.also_remove(f"{SCHEDULING}/queues/{name}")
    queue: dict[str, Any] = {"apiVersion": "scheduling.volcano.sh/v1beta1", "kind": "Queue", "metadata": {"name": name}, "spec": {"weight": 1}}
    await world.api.ok("POST", f"{SCHEDULING}/queues", queue)
    await world.held("r", "Available")


async def test_the_nodes_that_a_task_prefers_are_held_first(world: World) -> None:
    await world.node("big", cpu="16", memory="32Gi")
    small = await world.node("small", cpu="2")
    task = {"name": "t", "replicas": 1, "template": {"spec": world.spec("800m")}, "reservationNodeNames": ["missing", small]}
    body = {
        "apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": "r"},
        "spec": {"schedulerName": "restow", "owners": OWNERS, "tasks": [task]},
    }  # fmt: skip
    await world.api.ok("POST", f"{VOLCANO}/namespaces/{world.ns}/reservations", body)
    await world.held("r", "Available")
    await owner(world, "p")
    assert node_of((await world.running("p"))[0]) == small
