"""What NUMA alignment and disks add to a shape: little, and only where it is read."""

import json

import pytest
from kube.siblings import manifest

from restow.contracts import values as v
from restow.kube.decode import PODS
from restow.kube.describe import pod_fact
from restow.kube.shapes import Shaper


def shaped(**spec) -> v.PodShape:
    data = json.loads(manifest("deployment"))
    data["spec"] |= spec
    return pod_fact(PODS.object(json.dumps(data).encode()), Shaper())[0]


def disk(**volume) -> tuple[v.Disk, ...]:
    return shaped(volumes=[{"name": "d", **volume}]).disks


def test_disks_that_a_pod_names_itself_are_in_its_shape():
    assert disk(gcePersistentDisk={"pdName": "d", "readOnly": True}) == (v.Disk("gcePersistentDisk", "d", True),)
    assert disk(awsElasticBlockStore={"volumeID": "d", "readOnly": True}) == (v.Disk("awsElasticBlockStore", "d"),)
    assert disk(iscsi={"iqn": "d", "targetPortal": "p", "lun": 0}) == (v.Disk("iscsi", "d"),)
    assert disk(persistentVolumeClaim={"claimName": "d"}) == ()


def test_an_image_of_ceph_is_one_disk_for_each_monitor():
    image = {"monitors": ["m2", "m1"], "image": "i"}
    assert disk(rbd=image) == (v.Disk("rbd", "m1 rbd/i"), v.Disk("rbd", "m2 rbd/i"))
    assert disk(rbd=image) == disk(rbd={"monitors": ["m1", "m2"], "image": "i", "pool": "rbd"})


def container(name="c", requests=None, **limits) -> dict:
    resources = {"limits": limits} | ({"requests": requests} if requests else {})
    return {"name": name, "image": "i", "resources": resources if limits or requests else {}}


FULL = {"cpu": "2", "memory": "1Gi"}


@pytest.mark.parametrize(
    ("spec", "guaranteed"),
    [
        ({"containers": [container(**FULL)]}, True),
        ({"containers": [container(requests={"cpu": 2, "memory": "1024Mi"}, **FULL)]}, True),
        ({"containers": [container(requests={"cpu": "1"}, **FULL)]}, False),
        ({"containers": [container(requests=FULL)]}, False),
        ({"containers": [container(cpu="2")]}, False),
        ({"containers": [container(**FULL), container("d")]}, False),
        ({"containers": [container(**FULL)], "initContainers": [container("i")]}, False),
        ({"containers": [container(**FULL)], "initContainers": [container("i", **FULL)]}, True),
        ({"containers": [container()], "resources": {"limits": FULL}}, True),
        ({"containers": [container(**FULL)], "resources": {"limits": FULL, "requests": {"cpu": 1}}}, False),
        ({"containers": []}, False),
    ],
)
def test_a_pod_is_guaranteed_by_its_limits(spec, guaranteed):
    assert shaped(**spec).qos == ("Guaranteed" if guaranteed else "")


def test_containers_of_a_guaranteed_pod_say_what_they_ask_for():
    sidecar = container("s", **FULL) | {"restartPolicy": "Always"}
    gpu = container("g", **FULL, **{"nvidia.com/gpu": 1})
    shape = shaped(containers=[gpu], initContainers=[container("i", **FULL), sidecar])
    asked = {"cpu": 2000, "memory": 1 << 30}
    assert shape.containers == (
        v.Container("g", "i", asked | {"restow.dev/gpu-milli": 1000}),
        v.Container("i", "i", asked, init=True),
        v.Container("s", "i", asked),
    )


def test_containers_of_other_pods_do_not():
    assert shaped(containers=[container(requests=FULL)]).containers == (v.Container("c", "i"),)
