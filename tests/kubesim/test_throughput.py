"""KS-206..208: the work per pod is bounded, whatever the number of pods. Counts, not times."""

from __future__ import annotations

from collections import Counter

import pytest
from kubesim.simworld import World, pod_spec, workload

from restow.kubesim.podindex import Group
from restow.kubesim.resources import DEPLOYMENTS, PODS, REPLICASETS


def _counted(world: World) -> Counter[str]:
    """Counts the changes of the store by resource and type from now on."""
    counts: Counter[str] = Counter()
    world.store.subscribe(lambda c: counts.update([f"{c.resource.plural} {c.type}"]))
    return counts


@pytest.mark.parametrize("replicas", [50, 500])
def test_a_pod_of_a_large_deployment_costs_a_creation_a_binding_and_two_status_writes(replicas):
    """KS-206"""
    world = World(nodes=5, cpu=64_000, pods=1000)
    counts = _counted(world)
    world.create(DEPLOYMENTS, "web", workload(spec=pod_spec(cpu="10m", memory="1Mi"), replicas=replicas))
    world.run(1)
    assert world.status(DEPLOYMENTS, "web")["readyReplicas"] == replicas
    # The binding and at most two status writes of the kubelet.
    assert counts["pods ADDED"] == replicas
    assert counts["pods MODIFIED"] == 3 * replicas
    assert counts["replicasets MODIFIED"] + counts["deployments MODIFIED"] < 30


def test_ten_times_as_many_sets_cost_the_same_writes_each():
    """KS-206"""
    each = []
    for sets in (20, 200):
        world = World()
        counts = _counted(world)
        for number in range(sets):
            spec = workload({"app": f"a{number}"}, spec=pod_spec(schedulerName="nobody"), replicas=1)
            world.store.create(REPLICASETS, {"metadata": {"name": f"r{number}"}, "spec": spec}, "default")
        world.run(1)
        assert world.store.count(PODS) == sets
        each.append(sum(counts.values()) / sets)
    assert each[0] == each[1] == 3


def test_a_reconcile_with_nothing_to_do_does_not_look_at_the_pods(monkeypatch):
    """KS-207"""
    world = World()
    world.create(REPLICASETS, "web", workload(spec=pod_spec(schedulerName="nobody"), replicas=100))
    world.run(1)
    group = world.running.runtime.pods.group(world.get(REPLICASETS, "web")["metadata"]["uid"])

    class Untouchable(dict):
        def __iter__(self):
            raise AssertionError("looked at all pods")

        values = items = keys = __iter__

    assert isinstance(group, Group)
    group.members = Untouchable(group.members)
    world.running.by_name["replicaset"].queue.add(("default", "web"))
    world.run(1)
    assert world.running.runtime.failures == 0


def test_one_reconcile_makes_a_bounded_number_of_pods():
    """KS-208"""
    world = World()
    sets = world.running.by_name["replicaset"]
    world.running.close()
    spec = workload(spec=pod_spec(schedulerName="nobody"), replicas=1000)
    world.create(REPLICASETS, "web", spec)
    sets.reconcile(("default", "web"))
    assert 0 < world.store.count(PODS) <= 16
