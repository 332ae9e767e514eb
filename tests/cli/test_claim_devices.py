"""Devices by claim, where people look: describe, why, state."""

import json

import pytest
from cli.conftest import export
from replay.handmade import Handmade, node, pod, shape

from restow.contracts import events as e
from restow.contracts.dynamic_resources import AllocatedDevice, CounterSet, PublishedDevice
from restow.replay.sentences import sentence

DRIVER = "gpu.nvidia.com"


def parts(whole: str) -> list[PublishedDevice]:
    def uses(first: int, many: int) -> tuple[CounterSet, ...]:
        return (CounterSet(whole, {f"memory-slice-{i}": 1_000 for i in range(first, first + many)}),)

    return [PublishedDevice(whole, {"type": "gpu"}, consumes=uses(0, 2)), *(PublishedDevice(f"{whole}-mig-{i}", {"type": "mig"}, consumes=uses(i, 1)) for i in range(2))]


def published(where: str, *wholes: str) -> e.ResourceSliceObserved:
    counters = tuple(CounterSet(whole, {f"memory-slice-{i}": 1_000 for i in range(2)}) for whole in wholes)
    return e.ResourceSliceObserved(f"{where}-{DRIVER}", DRIVER, where, node=where, devices=tuple(one for whole in wholes for one in parts(whole)), counters=counters)


@pytest.fixture
def log(tmp_path):
    """Two GPUs on a that can be cut in halves; a pod has one half."""
    made = Handmade()
    claim = e.ResourceClaimObserved("shop", "web-1-gpu-x", "uid-c", allocated=(AllocatedDevice("gpu", DRIVER, "a", "gpu-0-mig-1"),), reserved=("uid-web-1",))
    made.facts(node("a"), node("b"), shape(1000), published("a", "gpu-0", "gpu-1"), claim, e.DeviceClassObserved("mig"), kind="nodes")
    made.facts(pod("web-1"))
    return export(tmp_path / "d.jsonl", made)


def test_describe_node_lists_them_those_that_somebody_has_first(restow, log):
    lines = restow("describe", "node/a", "--log", log).output.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("DEVICES BY CLAIM"))
    assert lines[at] == "DEVICES BY CLAIM, 4 of 6 free"
    assert lines[at + 2].split() == [DRIVER, "gpu-0-mig-1", "allocated", "shop/web-1-gpu-x", "shop/web-1"]
    assert lines[at + 3].split() == [DRIVER, "gpu-0", "parts", "allocated"]
    assert lines[at + 4].split() == [DRIVER, "gpu-0-mig-0", "free"]
    said = json.loads(restow("describe", "node/a", "--log", log, "-o", "json").output)["claim_devices"]
    assert said[2] == {
        "driver": DRIVER, "pool": "a", "name": "gpu-0-mig-1", "state": "allocated", "claims": ["shop/web-1-gpu-x"], "pods": ["shop/web-1"], "attributes": {"type": "mig"},
    }  # fmt: skip
    assert "BY CLAIM" not in restow("describe", "node/b", "--log", log).output


def test_why_says_what_a_node_has_left_and_what_a_pod_has(restow, log):
    text = restow("why", "node/a", "--log", log).output
    assert f"devices by claim of {DRIVER}: 4 of 6 free, 1 of 2 whole" in text
    assert "gpu-0-mig-1: allocated to shop/web-1-gpu-x, reserved for shop/web-1" in text
    assert f"ResourceClaim shop/web-1-gpu-x: has gpu-0-mig-1 of {DRIVER}" in restow("why", "pod/shop/web-1", "--log", log).output


def test_state_counts_them(restow, log):
    assert f"by claim          4 free of 6 devices of {DRIVER}; 1 of 2 whole; 1 allocated" in restow("state", "--log", log).output
    header, first, second = restow("state", "nodes", "--log", log).output.splitlines()
    assert header.endswith("FREE BY CLAIM")
    assert (first.split()[-1], second.split()[-1]) == ("4/6", "-")
    nodes = json.loads(restow("state", "nodes", "--log", log, "-o", "json").output)["items"]
    assert nodes[0]["claimDevices"] == {DRIVER: {"devices": 6, "allocated": 1, "free": 4, "wholes": 2, "freeWholes": 1}}
    assert nodes[1]["claimDevices"] == {}


def test_a_cluster_without_them_says_nothing_of_them(restow, tmp_path):
    made = Handmade()
    made.facts(node("a"), kind="nodes")
    log = export(tmp_path / "e.jsonl", made)
    for command in (("state",), ("state", "nodes"), ("why", "node/a"), ("describe", "node/a")):
        assert "claim" not in restow(*command, "--log", log).output.lower()


def test_each_fact_is_a_sentence():
    claim = e.ResourceClaimObserved("shop", "c", "u", allocated=(AllocatedDevice("gpu", DRIVER, "a", "gpu-0"),), reserved=("1",), deleting=5)
    assert sentence(published("a", "gpu-0"), {}) == f"ResourceSlice a-{DRIVER} is seen: 3 devices of {DRIVER} on a"
    assert sentence(claim, {"1": "shop/web"}) == f"ResourceClaim shop/c is seen: it has gpu-0 of {DRIVER} (pool a), reserved for shop/web; it is being deleted"
    assert sentence(e.ResourceClaimObserved("shop", "c", "u"), {}) == "ResourceClaim shop/c is seen: it has no device"
    assert sentence(e.ResourceClaimGone("shop", "c"), {}) == "ResourceClaim shop/c is gone"
    assert sentence(e.DeviceClassObserved("gpu"), {}) == "DeviceClass gpu is seen"
