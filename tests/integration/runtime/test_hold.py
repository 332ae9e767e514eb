"""The Reservation that a migration creates says to the log exactly what the victim asks for, pinned to the target."""

import msgspec
import pytest
from domain.build import given, node, pod, replica_of, shape

from restow.contracts import events as e
from restow.contracts.values import Move, OwnerRef, Packing, Toleration
from restow.descheduler.hold import manifest
from restow.kube import wire
from restow.kube.reservations import reservation_fact

PACKING = Packing(0, 0, 0, 0, 0, 0)


def hold(declared, victim, *more, door="volcano"):
    move = Move("plan-0", victim.pod, victim.namespace, victim.name, "n0", "n1")
    state = given(node("n0", gpus=8), node("n1", gpus=8), declared, victim, *more, e.Planned("plan", "x", (move,), PACKING, PACKING))
    body = manifest(state, state.migrations["plan-0"], door)
    shapes, fact = reservation_fact(msgspec.json.decode(msgspec.json.encode(body), type=wire.Reservation), door)
    assert fact.invalid == ""
    return body, shapes, fact


@pytest.mark.parametrize("gpu", [None, (1, 1000), (4, 1000), (1, 300)])
@pytest.mark.parametrize("door", ["volcano", "koordinator"])
def test_the_hold_asks_for_what_the_victim_asks_for(gpu, door):
    declared = shape("s", cpu=1_500, memory=3 << 30, gpu=gpu)
    _, shapes, fact = hold(declared, pod("v", node="n0", owner=replica_of("rs")), door=door)
    (task,) = fact.spec.tasks
    held = shapes[task.shape]
    assert held.requests == declared.spec.requests
    assert held.devices == declared.spec.devices
    assert (task.node, task.replicas, held.scheduler) == ("n1", 1, "restow")


def test_it_never_expires_is_used_once_and_serves_the_top_controller():
    above = e.WorkloadObserved("uid-rs", "ReplicaSet", "default", "rs", OwnerRef("Deployment", "web", "uid-web", "apps/v1"))
    body, _, fact = hold(shape("s"), pod("v", node="n0", owner=replica_of("rs")), above)
    assert fact.migration == "plan-0"
    assert body["metadata"]["name"] == "restow-plan-0"
    assert (fact.spec.ttl, fact.spec.allocate_once, fact.spec.match_policy) == (0, True, "Owner")
    assert (fact.spec.owners[0].controller.kind, fact.spec.owners[0].controller.uid) == ("Deployment", "uid-web")


def test_priority_and_tolerations_go_with_it():
    declared = shape("s", priority=100, tolerations=(Toleration("gpu", "Exists", effect="NoSchedule"),))
    _, shapes, _ = hold(declared, pod("v", node="n0", owner=replica_of("rs")))
    (held,) = shapes.values()
    assert held.priority == 100
    assert held.tolerations == declared.spec.tolerations
