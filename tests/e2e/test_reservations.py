"""Reservations of both APIs, from kubectl to hand-over, expiry and deletion (seed 000, RULES)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml
from e2e.world import DATA, KOORDINATOR, TAG, VOLCANO, World, fresh, node_of, refused, uid_of

OWNED = {"restow.dev/owner": "job"}
OWNERS = [{"labelSelector": {"matchLabels": OWNED}}]


async def full(world: World) -> str:
    """A node that a held core fills: what does not own the hold must wait."""
    return await world.node("a", cpu="1")


async def hold(world: World, name: str = "r", replicas: int = 1, cpu: str = "800m", **spec: Any) -> None:
    await world.reservation(name, {"t": (replicas, world.spec(cpu))}, **({"owners": OWNERS} | spec))


# -- seed 000's own example ----------------------------------------------------------------------------------------------


async def test_the_seeds_reservation_applies_verbatim_and_is_taken_by_its_job(world: World) -> None:
    """Seed 000, `complex-reservation`: two nginx and one busybox, Available with all three, Succeeded when all are used."""
    node = await world.node("a")
    text = (DATA / "complex-reservation.yaml").read_text()
    seed = yaml.safe_load(text)
    await world.remove(f"{VOLCANO}/namespaces/default/reservations/complex-reservation")
    await world.apply(text)
    status = await world.held("complex-reservation", "Available", "default")
    assert status["taskStatusCount"] == {"nginx": {"phase": {"Available": 2}}, "busybox": {"phase": {"Available": 1}}}
    assert (status["minAvailable"], status["available"], status["pending"]) == (3, 3, 0)
    assert status["allocatable"]["cpu"] == "1250m"
    names = []
    for task, index in (("nginx", 0), ("busybox", 0), ("nginx", 1)):
        template = next(t["template"] for t in seed["spec"]["tasks"] if t["name"] == task)
        name = f"{world.ns}-{task}-{index}"
        path = f"/api/v1/namespaces/default/pods/{name}"
        world.also_remove(f"{path}?gracePeriodSeconds=0")
        labels = {"volcano.sh/reservation-job": "job-multi"}
        body = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels},
            "spec": {"schedulerName": "volcano", **template["spec"]},
        }  # fmt: skip
        await world.api.ok("POST", "/api/v1/namespaces/default/pods", body)
        names.append(name)
    status = await world.held("complex-reservation", "Succeeded", "default")
    assert status["taskStatusCount"] == {"nginx": {"phase": {"Succeeded": 2}}, "busybox": {"phase": {"Succeeded": 1}}}
    assert (status["succeeded"], status["available"]) == (3, 0)
    assert {owner["name"] for owner in status["currentOwners"]} == set(names)
    if world.stack.kind != "cluster":

        async def bound() -> bool:
            pods = [await world.api.ok("GET", f"/api/v1/namespaces/default/pods/{name}") for name in names]
            return all(node_of(pod) == node for pod in pods)

        await world.until("all three are on the node that was held", bound)


# -- holding -------------------------------------------------------------------------------------------------------------


async def test_a_hold_keeps_its_capacity_from_others_and_gives_it_to_its_owner(world: World) -> None:
    node = await full(world)
    await hold(world)
    await world.held("r", "Available")
    await world.pod("stranger", "800m")
    await world.unschedulable("stranger", "Insufficient cpu")
    owner = await world.pod("owner", "800m", labels=OWNED)
    (pod,) = await world.running("owner")
    assert node_of(pod) == node
    status = await world.held("r", "Succeeded")
    assert status["currentOwner"]["uid"] == uid_of(owner)
    assert not node_of(await world.get("stranger") or {})


async def test_min_available_is_enough_to_be_available(world: World) -> None:
    """The gang is placed with what fits, but not with less than minAvailable."""
    await world.node("a", cpu="2")
    await hold(world, replicas=3, minAvailable=2)
    status = await world.held("r", "Available")
    assert (status["available"], status["pending"], status["minAvailable"]) == (2, 1, 2)
    await hold(world, "all", replicas=3)

    async def told() -> bool:
        (one,) = [r for r in await world.reservations() if r["metadata"]["name"] == "all"]
        state = (one.get("status") or {}).get("state") or {}
        return state.get("phase") == "Pending" and "Insufficient cpu" in state.get("message", "")

    await world.until("the gang that does not fit says why", told)
    await world.events("all", "Unschedulable")
    await world.node("b", cpu="4")
    status = await world.held("all", "Available")
    assert status["available"] == 3


async def test_holds_count_per_task_and_phase(world: World) -> None:
    await world.node("a")
    await world.reservation("r", {"x": (2, world.spec("500m")), "y": (1, world.spec("250m"))}, owners=OWNERS)
    await world.held("r", "Available")
    await world.pod("p", "500m", labels=OWNED)
    await world.running("p")

    async def counted() -> bool:
        status = await world.held("r", "Available")
        x = {"Available": 1, "Succeeded": 1}
        return status["taskStatusCount"] == {"x": {"phase": x}, "y": {"phase": {"Available": 1}}}

    await world.until("one place of x is used", counted)


async def test_a_koordinator_reservation_is_available_and_taken(world: World) -> None:
    """Seed 004's API: cluster-scoped, one template, once only (RULES 004-1)."""
    node = await world.node("a", cpu="1")
    name = f"e2e-{world.ns}"
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": name},
        "spec": {"template": {"spec": world.spec("800m", schedulerName="koord-scheduler")}, "owners": OWNERS, "ttl": "1h"},
    }  # fmt: skip
    world.also_remove(f"{KOORDINATOR}/{name}")
    await world.api.ok("POST", KOORDINATOR, body)

    async def phase(wanted: str) -> bool:
        status = (await world.api.ok("GET", f"{KOORDINATOR}/{name}")).get("status") or {}
        return status.get("phase") == wanted and status.get("nodeName") == node

    await world.until("it is Available", lambda: phase("Available"))
    await world.pod("stranger", "800m")
    await world.unschedulable("stranger")
    await world.pod("owner", "800m", labels=OWNED, schedulerName="koord-scheduler")
    await world.running("owner")
    await world.until("it is Succeeded", lambda: phase("Succeeded"))


async def test_one_for_another_scheduler_is_never_touched(world: World) -> None:
    """DESIGN 6: not held, no status, no Event, whatever it says; not even told that it cannot be read."""
    await full(world)
    theirs = {"t": (1, world.spec("800m", schedulerName="somebody-else"))}
    odd = {"t": (1, world.spec("800m", more={"koordinator.sh/gpu": "150"}, schedulerName="somebody-else"))}
    made = [await world.reservation(name, tasks, owners=OWNERS) for name, tasks in (("theirs", theirs), ("odd", odd))]
    await hold(world)
    await world.held("r", "Available")
    await world.pod("owner", "800m", labels=OWNED)
    await world.running("owner")
    left = {r["metadata"]["name"]: r for r in await world.reservations()}
    assert [left[r["metadata"]["name"]] for r in made] == made
    query = "fieldSelector=involvedObject.kind%3DReservation"
    told = (await world.api.ok("GET", f"/api/v1/namespaces/{world.ns}/events?{query}"))["items"]
    assert {event["involvedObject"]["name"] for event in told} == {"r"}
    listed = {r["name"]: r["foreign"] for r in (await world.restow_json("get", "reservations", "-n", world.ns))["items"]}
    assert listed == {"theirs": "somebody-else", "odd": "somebody-else", "r": ""}
    assert "for scheduler somebody-else" in await world.restow("describe", f"reservation/{world.ns}/theirs")


async def test_one_that_names_no_scheduler_is_held(world: World) -> None:
    """Nobody else would: `default-scheduler` serves no Reservations."""
    await full(world)
    unnamed = world.spec("800m")
    del unnamed["schedulerName"]
    body = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": f"e2e-{world.ns}"},
        "spec": {"template": {"spec": unnamed}, "owners": OWNERS},
    }  # fmt: skip
    await world.make(KOORDINATOR, body)

    async def available() -> bool:
        status = (await world.api.ok("GET", f"{KOORDINATOR}/e2e-{world.ns}")).get("status") or {}
        return status.get("phase") == "Available"

    await world.until("it is Available", available)


# -- owners --------------------------------------------------------------------------------------------------------------


async def test_an_owner_can_be_named_as_an_object(world: World) -> None:
    await full(world)
    await hold(world, owners=[{"object": {"kind": "Pod", "name": "chosen"}}])
    await world.held("r", "Available")
    await world.pod("other", "800m")
    await world.unschedulable("other")
    await world.pod("chosen", "800m")
    await world.running("chosen")
    await world.held("r", "Succeeded")


async def test_an_owner_can_be_a_controller(world: World) -> None:
    await full(world)
    await hold(world, owners=[{"controller": {"kind": "ReplicaSet", "name": "web"}}])
    await world.held("r", "Available")
    await world.pod("other", "800m")
    await world.unschedulable("other")
    await world.replicaset("web", 1, "800m")
    await world.replicas("web", 1)
    await world.held("r", "Succeeded")


async def test_an_owner_can_be_the_deployment_above(world: World) -> None:
    await full(world)
    await hold(world, owners=[{"controller": {"kind": "Deployment", "name": "web"}}])
    await world.held("r", "Available")
    await world.replicaset("web", 1, "800m", kind="Deployment")
    await world.replicas("web", 1)
    await world.held("r", "Succeeded")


async def test_fields_of_one_owner_are_anded_and_owners_are_ored(world: World) -> None:
    """RULES G-3."""
    await full(world)
    both = {"object": {"kind": "Pod", "name": "a"}, "labelSelector": {"matchLabels": OWNED}}
    await hold(world, owners=[both, {"object": {"kind": "Pod", "name": "b"}}])
    await world.held("r", "Available")
    await world.pod("a", "800m")
    await world.unschedulable("a")
    await world.pod("b", "800m")
    await world.running("b")
    await world.held("r", "Succeeded")


async def test_a_reservation_serves_its_own_namespace_only(world: World) -> None:
    await full(world)
    await hold(world)
    await world.held("r", "Available")
    other = World(world.api, world.stack, fresh())
    await other.open()
    try:
        await other.pod("foreign", "800m", labels=OWNED, nodeSelector={TAG: world.ns})
        await other.unschedulable("foreign")
        await world.held("r", "Available")
    finally:
        await other.remove(f"/api/v1/namespaces/{other.ns}/pods/foreign", grace=0)
        await other.remove(f"/api/v1/namespaces/{other.ns}")


async def test_a_pod_spec_that_differs_does_not_match(world: World) -> None:
    """RULES G-4: PodSpec is the default of the tasks form."""
    await full(world)
    await hold(world)
    await world.held("r", "Available")
    await world.pod("larger", "900m", labels=OWNED)
    await world.unschedulable("larger")
    await world.pod("equal", "800m", labels=OWNED)
    await world.running("equal")


# -- the end -------------------------------------------------------------------------------------------------------------


async def test_a_ttl_ends_a_reservation(world: World) -> None:
    """RULES G-1: Expired is phase Failed, reason Expired."""
    await full(world)
    await hold(world, ttl="1s")
    status = await world.held("r", "Failed")
    assert status["state"]["reason"] == "Expired"
    await world.events("r", "Expired")


async def test_an_expiry_frees_what_is_held_and_leaves_the_pods_of_used_places_alone(world: World) -> None:
    """RULES G-1: pods that use the hold keep running. The ttl is shortened once all is in place."""
    await world.node("a", cpu="2")
    await hold(world, replicas=2, ttl="1h")
    await world.held("r", "Available")
    owner = await world.pod("owner", "800m", labels=OWNED)
    await world.running("owner")
    await world.pod("stranger", "900m")
    await world.unschedulable("stranger")
    await world.patch(f"{VOLCANO}/namespaces/{world.ns}/reservations/r", {"spec": {"ttl": "1s"}})
    status = await world.held("r", "Failed")
    assert status["state"]["reason"] == "Expired"
    await world.running("stranger")
    (still,) = await world.running("owner")
    assert uid_of(still) == uid_of(owner)


async def test_expires_wins_over_ttl(world: World) -> None:
    """RULES G-2."""
    await full(world)
    soon = (datetime.now(UTC) + timedelta(seconds=3)).strftime("%Y-%m-%dT%H:%M:%SZ")
    await hold(world, ttl="24h", expires=soon)
    status = await world.held("r", "Failed")
    assert status["state"]["reason"] == "Expired"


async def test_a_ttl_of_zero_never_ends(world: World) -> None:
    await full(world)
    await hold(world, ttl="0")
    await world.held("r", "Available")
    rows = await world.restow_json("get", "reservations", "-n", world.ns)
    assert [row["expires"] for row in rows["items"]] == [""]


async def test_deleting_a_reservation_releases_its_capacity(world: World) -> None:
    await full(world)
    await hold(world)
    await world.held("r", "Available")
    await world.pod("stranger", "800m")
    await world.unschedulable("stranger")
    await world.remove(f"{VOLCANO}/namespaces/{world.ns}/reservations/r")
    await world.running("stranger")


async def test_a_nodes_deletion_expires_what_is_held_on_it(world: World) -> None:
    node = await full(world)
    await hold(world)
    await world.held("r", "Available")
    await world.remove(f"/api/v1/nodes/{node}")
    status = await world.held("r", "Failed")
    assert status["state"]["reason"] == "Expired"


async def test_losing_one_of_two_nodes_makes_it_wait(world: World) -> None:
    """RULES 000-1: 0 < held < minAvailable after a loss is Waiting."""
    await world.node("a", cpu="1")
    await world.node("b", cpu="1")
    await hold(world, replicas=2)
    await world.held("r", "Available")
    await world.remove(f"/api/v1/nodes/e2e-{world.ns}-b")
    status = await world.held("r", "Waiting")
    assert status["available"] == 1


# -- bad input -----------------------------------------------------------------------------------------------------------

SPEC = {"containers": [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "100m"}}}]}


def tasks(**task: Any) -> list[Any]:
    return [{"name": "t", "replicas": 1, "template": {"spec": SPEC}, **task}]


def container(**requests: str) -> Any:
    return {"spec": {"containers": [{"name": "c", "image": "i", "resources": {"requests": requests}}]}}


BAD: dict[str, tuple[Any, list[str]]] = {
    "min-available-above-the-sum": ({"tasks": tasks(), "owners": OWNERS, "minAvailable": 5}, ["minAvailable", "5", "to 1, the sum of replicas"]),
    "no-owners": ({"tasks": tasks()}, ["spec.owners", "at least one owner"]),
    "no-replicas": ({"tasks": tasks(replicas=0), "owners": OWNERS}, ["spec.tasks[0].replicas", "0", "1 or more"]),
    "a-quantity-that-is-none": (
        {"tasks": tasks(template=container(cpu="lots")), "owners": OWNERS},
        ["spec.tasks[0].template.spec.containers[0]", "cpu", "lots"],
    ),
    "a-negative-quantity": (
        {"tasks": tasks(template=container(cpu="-1")), "owners": OWNERS},
        ["spec.tasks[0].template.spec.containers[0]", "-1", "0 or more"],
    ),
    "a-share-that-spans-devices": (
        {"tasks": tasks(template=container(**{"koordinator.sh/gpu": "150"})), "owners": OWNERS},
        ["spec.tasks[0].template", "150", "multiple of 100"],
    ),
    "containers-that-are-no-list": (
        {"tasks": tasks(template={"spec": {"containers": "none"}}), "owners": OWNERS},
        ["spec.tasks[0].template.spec.containers", "none", "array"],
    ),
    "a-template-without-spec": ({"tasks": tasks(template={}), "owners": OWNERS}, ["spec.tasks[0].template.spec", "missing"]),
    "neither-tasks-nor-template": ({"owners": OWNERS}, ["tasks", "template"]),
    "tasks-and-template": ({"tasks": tasks(), "template": {"spec": SPEC}, "owners": OWNERS}, ["tasks", "template"]),
    "two-tasks-of-one-name": ({"tasks": tasks() + tasks(), "owners": OWNERS}, ["tasks[1]"]),
    "a-ttl-that-is-none": ({"tasks": tasks(), "owners": OWNERS, "ttl": "tomorrow"}, ["spec.ttl", "tomorrow"]),
    "a-negative-ttl": ({"tasks": tasks(), "owners": OWNERS, "ttl": "-5s"}, ["spec.ttl", "-5s"]),
    "an-owner-without-fields": ({"tasks": tasks(), "owners": [{}]}, ["spec.owners[0]"]),
    "an-unknown-match-policy": ({"tasks": tasks(), "owners": OWNERS, "matchPolicy": "Name"}, ["matchPolicy", "Name"]),
}


@pytest.mark.parametrize("case", BAD)
async def test_a_bad_reservation_is_refused_or_failed_with_path_value_and_what_is_allowed(world: World, case: str) -> None:
    """The API server's schema and CEL may refuse it at once; what gets through becomes Failed, never a crash loop."""
    spec, words = BAD[case]
    body = {"apiVersion": "batch.volcano.sh/v1alpha1", "kind": "Reservation", "metadata": {"name": "bad"}, "spec": spec}
    answer = await world.api.call("POST", f"{VOLCANO}/namespaces/{world.ns}/reservations", body)
    if answer.status == 201:
        status = await world.held("bad", "Failed")
        assert status["state"]["reason"] == "InvalidSpec"
        said = status["state"]["message"]
        await world.events("bad", "InvalidSpec")
    else:
        said = refused(answer)
    missing = [word for word in words if word not in said]
    assert not missing, said
    # Whoever read it goes on.
    await world.node("a")
    await hold(world, "good")
    await world.held("good", "Available")


async def test_a_bad_reservation_that_is_corrected_is_held(world: World) -> None:
    await full(world)
    await hold(world, cpu="lots")  # Neither schema nor CEL reads templates.
    await world.held("r", "Failed")
    tasks = [{"name": "t", "replicas": 1, "template": {"spec": world.spec("800m")}}]
    await world.patch(f"{VOLCANO}/namespaces/{world.ns}/reservations/r", {"spec": {"tasks": tasks}})
    await world.held("r", "Available")
