"""Volume controllers: binding, provisioning, releasing, protection, ephemeral claims; kubelets and the default scheduler."""

import pytest
from kubesim.simworld import World, phase

from restow.kubesim.resources import NODES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS, STORAGECLASSES
from restow.kubesim.storage import BIND_COMPLETED, BOUND_BY_CONTROLLER, SELECTED_NODE

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"


@pytest.fixture
def world() -> World:
    there = World(nodes=2)
    for name, zone in (("n0", "a"), ("n1", "b")):
        there.label(NODES, name, **{ZONE: zone})
    return there


def storage_class(world, name, binding="Immediate", provisioner="example.com/driver", **more):
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": binding, **more}
    world.store.create(STORAGECLASSES, body)
    world.run()


def claim(world, name="c", storage="1Gi", storage_class="local", **more):
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    spec = {**asked, **({"storageClassName": storage_class} if storage_class is not None else {}), **more}
    return world.create(PERSISTENTVOLUMECLAIMS, name, spec)


def volume(world, name, storage="1Gi", storage_class="local", **more):
    source = {"capacity": {"storage": storage}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/d"}}
    return world.create(PERSISTENTVOLUMES, name, {**source, "storageClassName": storage_class, **more})


def on(*nodes):
    rule = {"key": HOST, "operator": "In", "values": list(nodes)}
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}


def volume_of(world, name="c") -> str:
    """The volume that the claim is bound to; "" where it is not."""
    there = world.get(PERSISTENTVOLUMECLAIMS, name)
    bound = BIND_COMPLETED in there["metadata"].get("annotations", {})
    assert bound == (there["status"]["phase"] == "Bound")
    return there["spec"]["volumeName"] if bound else ""


def phase_of(world, name) -> str:
    return world.status(PERSISTENTVOLUMES, name)["phase"]


def using(world, *claims, node="n0", name="p", **more):
    volumes = [{"name": c, "persistentVolumeClaim": {"claimName": c}} for c in claims]
    return world.pod(name, node, volumes=volumes, **more)


# -- binding -----------------------------------------------------------------------------------------------------------


def test_a_claim_gets_the_smallest_volume_of_its_class_that_fits(world):
    """KS-370"""
    volume(world, "other", storage_class="else")
    volume(world, "small", "1Gi")
    volume(world, "big", "5Gi")
    volume(world, "better", "3Gi")
    claim(world, storage="2Gi")
    assert volume_of(world) == "better"
    ref = world.get(PERSISTENTVOLUMES, "better")["spec"]["claimRef"]
    assert (ref["name"], ref["uid"]) == ("c", world.get(PERSISTENTVOLUMECLAIMS, "c")["metadata"]["uid"])
    assert [phase_of(world, name) for name in ("better", "big", "small")] == ["Bound", "Available", "Available"]
    assert world.status(PERSISTENTVOLUMECLAIMS, "c")["capacity"] == {"storage": "3Gi"}


def test_a_claim_waits_for_a_volume(world):
    """KS-371"""
    claim(world, "block", volumeMode="Block")
    claim(world, "many", accessModes=["ReadWriteMany"])
    volume(world, "v")
    assert (volume_of(world, "block"), volume_of(world, "many")) == ("", "")
    claim(world)
    assert volume_of(world) == "v"
    volume(world, "w", volumeMode="Block")
    assert volume_of(world, "block") == "w"


def test_a_volume_that_is_reserved_for_a_claim_goes_to_it_alone(world):
    """KS-372"""
    storage_class(world, "wait", "WaitForFirstConsumer", "kubernetes.io/no-provisioner")
    volume(world, "v", storage_class="wait")
    claim(world, storage_class="wait")
    assert volume_of(world) == ""
    there = world.get(PERSISTENTVOLUMECLAIMS, "c")
    ref = {"namespace": "default", "name": "c", "uid": there["metadata"]["uid"]}
    world.change(PERSISTENTVOLUMES, "v", claimRef=ref)
    assert volume_of(world) == "v"
    volume(world, "mine", claimRef={"namespace": "default", "name": "later"})
    claim(world, "d")
    assert volume_of(world, "d") == ""
    claim(world, "later")
    assert volume_of(world, "later") == "mine"
    assert BOUND_BY_CONTROLLER not in world.get(PERSISTENTVOLUMES, "mine")["metadata"].get("annotations", {})


def test_a_claim_may_name_its_volume(world):
    """KS-373"""
    volume(world, "v", "2Gi")
    volume(world, "w", "1Gi")
    claim(world, volumeName="v")
    assert volume_of(world) == "v"
    claim(world, "d", volumeName="v")
    assert volume_of(world, "d") == ""


# -- provisioning ----------------------------------------------------------------------------------------------------------


def test_a_class_with_a_provisioner_makes_volumes(world):
    """KS-374"""
    storage_class(world, "fast")
    claim(world, storage_class="fast", storage="3Gi")
    name = volume_of(world)
    made = world.get(PERSISTENTVOLUMES, name)["spec"]
    assert name == f"pvc-{world.get(PERSISTENTVOLUMECLAIMS, 'c')['metadata']['uid']}"
    assert made["csi"] == {"driver": "example.com.driver", "volumeHandle": name}
    assert (made["capacity"], made["persistentVolumeReclaimPolicy"]) == ({"storage": "3Gi"}, "Delete")
    assert "nodeAffinity" not in made


def test_a_claim_that_waits_for_its_consumer_is_provisioned_for_the_selected_node(world):
    """KS-375"""
    terms = [{"matchLabelExpressions": [{"key": ZONE, "values": ["a", "b"]}]}]
    storage_class(world, "wait", "WaitForFirstConsumer", allowedTopologies=terms)
    claim(world, storage_class="wait")
    assert volume_of(world) == ""
    world.annotate(PERSISTENTVOLUMECLAIMS, "c", **{SELECTED_NODE: "n1"})
    made = world.get(PERSISTENTVOLUMES, volume_of(world))["spec"]
    rule = {"key": ZONE, "operator": "In", "values": ["b"]}
    assert made["nodeAffinity"] == {"required": {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}}


@pytest.mark.parametrize(
    "more",
    [
        {"parameters": {"kubesim.restow.dev/fail-on": "n0,n1"}},
        {"allowedTopologies": [{"matchLabelExpressions": [{"key": ZONE, "values": ["a"]}]}]},
    ],
)
def test_a_provisioner_that_fails_gives_the_node_back(world, more):
    """KS-376"""
    storage_class(world, "wait", "WaitForFirstConsumer", **more)
    claim(world, storage_class="wait")
    world.annotate(PERSISTENTVOLUMECLAIMS, "c", **{SELECTED_NODE: "n1"})
    there = world.get(PERSISTENTVOLUMECLAIMS, "c")
    assert SELECTED_NODE not in there["metadata"].get("annotations", {})
    assert (there["status"]["phase"], world.store.list(PERSISTENTVOLUMES)) == ("Pending", [])


def test_a_claim_without_a_class_gets_the_default_one_also_later(world):
    """KS-377"""
    assert [c["metadata"]["name"] for c in world.store.list(STORAGECLASSES)] == ["standard"]
    world.delete(STORAGECLASSES, "standard")
    claim(world, storage_class=None)
    claim(world, "none", storage_class="")
    assert volume_of(world) == ""
    storage_class(world, "late", metadata={"name": "late", "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}})
    assert world.get(PERSISTENTVOLUMECLAIMS, "c")["spec"]["storageClassName"] == "late"
    assert volume_of(world) != ""
    assert volume_of(world, "none") == ""


# -- the end ---------------------------------------------------------------------------------------------------------------


def test_a_volume_without_its_claim_is_released_or_deleted(world):
    """KS-378"""
    volume(world, "v")
    claim(world)
    claim(world, "made", storage_class=None)
    name = volume_of(world, "made")
    world.delete(PERSISTENTVOLUMECLAIMS, "c")
    world.delete(PERSISTENTVOLUMECLAIMS, "made")
    assert (world.find(PERSISTENTVOLUMECLAIMS, "c"), phase_of(world, "v")) == (None, "Released")
    assert world.find(PERSISTENTVOLUMES, name) is None
    claim(world)
    assert volume_of(world) == ""


def test_a_claim_whose_volume_is_gone_is_lost(world):
    """KS-379"""
    volume(world, "v")
    claim(world)
    world.store.finalize(PERSISTENTVOLUMES, "", "v", remove=["kubernetes.io/pv-protection"])
    world.delete(PERSISTENTVOLUMES, "v")
    assert world.status(PERSISTENTVOLUMECLAIMS, "c")["phase"] == "Lost"


def test_what_is_in_use_stays_until_it_is_not(world):
    """KS-380"""
    volume(world, "v")
    claim(world)
    using(world, "c")
    world.run(1)
    world.delete(PERSISTENTVOLUMECLAIMS, "c")
    world.delete(PERSISTENTVOLUMES, "v")
    assert "deletionTimestamp" in world.get(PERSISTENTVOLUMECLAIMS, "c")["metadata"]
    assert "deletionTimestamp" in world.get(PERSISTENTVOLUMES, "v")["metadata"]
    world.delete(PODS, "p", grace_period=0)
    world.run(1)
    assert (world.find(PERSISTENTVOLUMECLAIMS, "c"), world.find(PERSISTENTVOLUMES, "v")) == (None, None)


# -- pods ------------------------------------------------------------------------------------------------------------------


def test_a_pod_starts_when_its_claims_are_bound(world):
    """KS-381"""
    using(world, "c")
    world.run(1)
    assert phase(world.get(PODS, "p")) == "Pending"
    claim(world)
    world.run(1)
    assert phase(world.get(PODS, "p")) == "Pending"
    volume(world, "v")
    world.run(1)
    assert phase(world.get(PODS, "p")) == "Running"


def test_a_pod_does_not_start_where_its_volume_cannot_be_reached(world):
    """KS-382"""
    volume(world, "v", nodeAffinity=on("n1"))
    claim(world)
    using(world, "c", node="n0")
    using(world, "c", node="n1", name="q")
    world.run(1)
    assert [phase(world.get(PODS, name)) for name in ("p", "q")] == ["Pending", "Running"]


def test_ephemeral_volumes_get_claims_that_go_with_their_pod(world):
    """KS-383"""
    template = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}
    world.pod("p", "n0", volumes=[{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}])
    world.run(1)
    assert phase(world.get(PODS, "p")) == "Running"
    owner = world.get(PERSISTENTVOLUMECLAIMS, "p-scratch")["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"]) == ("Pod", "p")
    world.delete(PODS, "p", grace_period=0)
    world.run(1)
    assert world.find(PERSISTENTVOLUMECLAIMS, "p-scratch") is None


def test_the_default_scheduler_goes_where_volumes_are_and_selects_nodes(world):
    """KS-384"""
    storage_class(world, "wait", "WaitForFirstConsumer")
    volume(world, "v", nodeAffinity=on("n1"))
    claim(world)
    claim(world, "d", storage_class="wait")
    using(world, "c", "d", node=None, schedulerName="default-scheduler")
    world.run(1)
    there = world.get(PODS, "p")
    assert (there["spec"]["nodeName"], phase(there)) == ("n1", "Running")
    assert world.get(PERSISTENTVOLUMECLAIMS, "d")["metadata"]["annotations"][SELECTED_NODE] == "n1"
