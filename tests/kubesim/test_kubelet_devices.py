"""KS-340..346: GPU devices."""

from __future__ import annotations

import json

import pytest
from kubesim.simworld import World, phase

from restow.kubesim.devices import DeviceError, Devices, GpuRequest, gpu_request
from restow.kubesim.resources import NODES, PODS

ALLOCATED = "scheduling.koordinator.sh/device-allocated"
MILLI, COUNT = "alibabacloud.com/gpu-milli", "alibabacloud.com/gpu-count"
GPU = "koordinator.sh/gpu"


@pytest.fixture
def world() -> World:
    return World(nodes=1, cpu=64_000, gpus=2, gpu_model="P100")


def share(world: World, name: str, milli: int, *, minor: int | None = None) -> None:
    """A pod that asks for `milli` of one device, on device `minor` if given."""
    annotations = {}
    if minor is not None:
        percent = {"koordinator.sh/gpu-core": milli // 10, "koordinator.sh/gpu-memory-ratio": milli // 10}
        annotations[ALLOCATED] = json.dumps({"gpu": [{"minor": minor, "resources": percent}]})
    world.pod(name, requests={MILLI: str(milli), COUNT: "1"}, annotations=annotations)


def free(world: World) -> list[int]:
    return world.running.kubelet.account("n0").devices.free


def rejected(world: World, name: str) -> bool:
    pod = world.get(PODS, name)
    return phase(pod) == "Failed" and pod["status"]["reason"] == "UnexpectedAdmissionError"


@pytest.mark.parametrize(
    ("requests", "expected"),
    [
        ({"nvidia.com/gpu": 2}, GpuRequest(2, 1000)),
        ({GPU: 50}, GpuRequest(1, 500)),
        ({GPU: 100}, GpuRequest(1, 1000)),
        ({GPU: 200}, GpuRequest(2, 1000)),
        ({"koordinator.sh/gpu-core": 30, "koordinator.sh/gpu-memory-ratio": 40}, GpuRequest(1, 400)),
        ({MILLI: 460, COUNT: 1}, GpuRequest(1, 460)),
        ({MILLI: 1000, COUNT: 4}, GpuRequest(4, 1000)),
        ({COUNT: 3}, GpuRequest(3, 1000)),
        ({"cpu": 1000}, None),
    ],
)
def test_every_way_to_ask_for_gpus_is_understood(requests, expected):
    """KS-340"""
    assert gpu_request(requests) == expected


@pytest.mark.parametrize("requests", [{GPU: 150}, {MILLI: 1001, COUNT: 1}])
def test_a_request_that_no_device_can_meet_is_an_error(requests):
    """KS-340"""
    with pytest.raises(DeviceError):
        gpu_request(requests)


def test_the_schedulers_choice_of_device_is_kept(world):
    """KS-341"""
    share(world, "a", 460, minor=1)
    assert free(world) == [1000, 540]


def test_a_choice_that_would_overcommit_a_device_is_rejected_though_another_has_capacity(world):
    """KS-342"""
    share(world, "a", 600, minor=0)
    share(world, "b", 500, minor=0)
    assert rejected(world, "b")
    assert (free(world), world.running.kubelet.rejections) == ([400, 1000], 1)


def test_two_shares_of_more_than_a_device_never_split_across_devices(world):
    """KS-342"""
    for name in ("a", "b"):
        share(world, name, 600)
    share(world, "c", 500)
    assert rejected(world, "c")
    assert free(world) == [400, 400]


def test_without_a_choice_the_fullest_device_with_capacity_is_taken(world):
    """KS-343"""
    share(world, "a", 600, minor=1)
    share(world, "b", 300)
    assert free(world) == [1000, 100]


def test_whole_gpus_need_empty_devices(world):
    """KS-344"""
    share(world, "a", 100)
    world.pod("whole", requests={"nvidia.com/gpu": "1"})
    world.pod("two", requests={"nvidia.com/gpu": "1"})
    assert (phase(world.get(PODS, "whole")), rejected(world, "two")) == ("Pending", True)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"gpu":[{"minor":7,"resources":{"koordinator.sh/gpu-core":50}}]}',
        '{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-core":20}}]}',
        '{"gpu":[{"resources":{}}]}',
    ],
)
def test_a_choice_that_is_malformed_or_contradicts_the_request_is_rejected(world, text):
    """KS-345"""
    world.pod("p", requests={GPU: "50"}, annotations={ALLOCATED: text})
    assert rejected(world, "p")
    assert free(world) == [1000, 1000]


def test_shares_come_back_when_the_pod_is_gone(world):
    """KS-346"""
    share(world, "a", 460)
    world.run(0.1)
    world.delete(PODS, "a")
    world.run(0.1)
    assert free(world) == [1000, 1000]


def test_gpu_names_are_judged_per_device_and_other_resources_as_usual(world):
    """KS-346"""
    world.pod("p", requests={MILLI: "500", COUNT: "1", "example.com/fpga": "1"})
    assert world.status(PODS, "p")["reason"] == "OutOfexample.com/fpga"
    assert MILLI not in world.status(NODES, "n0")["allocatable"]


def test_a_refused_pod_takes_nothing():
    """KS-342"""
    devices = Devices(2)
    with pytest.raises(DeviceError):
        devices.take({0: 500, 5: 500})
    assert devices.free == [1000, 1000]
