"""What kubesim's kubelets say of a pod that fares well needs no facts of its own."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from kubesim.simworld import World

from restow.domain.fold import apply
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import Delete, Upsert
from restow.kubesim.resources import PODS

START = {"pod_observed": 1, "pod_changed": 2}
LIVES = {
    "it starts": ({}, START),
    "it is ready at once": ({"kubesim.restow.dev/ready-after": "0s"}, {"pod_observed": 1, "pod_changed": 1}),
    "it succeeds": ({"kubesim.restow.dev/run-for": "1s"}, START | {"pod_changed": 3}),
    "it fails": ({"kubesim.restow.dev/fail-after": "1s"}, START | {"pod_changed": 3, "pod_troubled": 1}),
}


@pytest.mark.parametrize(("annotations", "facts"), LIVES.values(), ids=LIVES)
def test_each_status_of_a_pod_is_at_most_one_fact(annotations, facts):
    world, state, seen = World(nodes=1), ClusterState(), Counter()

    def observe(change):
        if change.resource != PODS:
            return
        batch = Batch(StateKnown(state))
        uid = change.stored.obj["metadata"]["uid"]
        one = d.PODS.object(json.dumps(change.stored.obj).encode())
        batch.add(d.PODS, Delete(uid, one) if change.type == "DELETED" else Upsert(one))
        apply(state, batch.events())
        seen.update(event.__struct_config__.tag.removeprefix("cluster.") for event in batch.events())

    world.store.subscribe(observe)
    world.pod(annotations=annotations, initContainers=[{"name": "i", "image": "x"}])
    world.run(2)
    del seen["shape_declared"]
    assert seen == facts
    world.delete(PODS, "p")
    world.run(2)
    assert seen["pod_gone"] == 1
    assert seen["pod_troubled"] == facts.get("pod_troubled", 0)
