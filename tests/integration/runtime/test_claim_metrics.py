"""What the cluster watcher's metrics say of devices by claim."""

from domain.build import given, node

from restow.cluster_watcher.metrics import by_claim
from restow.contracts import events as e
from restow.contracts.dynamic_resources import AllocatedDevice, DeviceTaint, PublishedDevice


def test_devices_of_each_driver_by_whether_they_can_be_had():
    devices = (PublishedDevice("g0"), PublishedDevice("g1"), PublishedDevice("g2", taints=(DeviceTaint("k", "NoSchedule"),)))
    published = [e.ResourceSliceObserved(driver, driver, "a", node="a", devices=devices) for driver in ("gpu.x", "nic.y")]
    state = given(node("a"), *published, e.ResourceClaimObserved("default", "c", "u", allocated=(AllocatedDevice("r", "gpu.x", "a", "g0"),)))
    found = {labelled.name: dict(labelled.samples) for labelled in by_claim(state)}
    assert found["claim_devices"] == {
        ("gpu.x", "allocated"): 1, ("gpu.x", "free"): 1, ("gpu.x", "unavailable"): 1, ("nic.y", "allocated"): 0, ("nic.y", "free"): 2, ("nic.y", "unavailable"): 1,
    }  # fmt: skip
    assert found["claim_whole_devices"][("gpu.x", "free")] == 1
    assert found["claim_whole_devices"][("gpu.x", "other")] == 2


def test_without_drivers_there_are_none():
    assert all(not list(labelled.samples) for labelled in by_claim(given(node("a"))))
