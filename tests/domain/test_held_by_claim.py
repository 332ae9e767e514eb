"""Pods with ResourceClaims stay, and say why: asked for by name, in a plan, and by a policy's plugin."""

import pytest
from domain.build import NOW, given, node, pod, replica_of, shape

from restow.contracts import events as e
from restow.contracts.dynamic_resources import AllocatedDevice, PublishedDevice
from restow.domain.config import DefragmentationArgs
from restow.domain.decider import Rejected
from restow.domain.defragmentation.evictable import Evictable
from restow.domain.migration.move import move_pod
from restow.domain.migration.targets import stays

DRIVER = "gpu.example.com"


def world(*facts):
    """A pod on a, with a claim, and room on b."""
    published = [e.ResourceSliceObserved(n, DRIVER, n, node=n, devices=tuple(PublishedDevice(f"gpu-{i}") for i in range(4))) for n in "ab"]
    return given(node("a"), node("b"), shape("s", resource_claims=("gpu",)), pod("p", node="a", owner=replica_of("web")), *published, *facts)


def claim(*devices: str, owner: str = "", uid: str = "p") -> e.ResourceClaimObserved:
    return e.ResourceClaimObserved("default", "c", "u", owner=owner, allocated=tuple(AllocatedDevice("gpu", DRIVER, "a", one) for one in devices), reserved=(uid,))


def said(state) -> set[str]:
    """By all who may be asked."""
    (uid,) = state.pods
    with pytest.raises(Rejected) as refused:
        move_pod(state, NOW, "m", uid, "")
    words = {stays(state, uid), *(Evictable(state, DefragmentationArgs(), "cpu", by_rules).verdict(uid) for by_rules in (False, True))}
    (word,) = words
    id, _, sentence = word.partition(": ")
    assert id == "Unsupported"
    assert str(refused.value).endswith(f"cannot be moved: {sentence}")
    return sentence


def test_a_claim_of_its_own_names_the_devices():
    (uid,) = world().pods
    assert said(world(claim("gpu-0", owner=uid, uid=uid))) == f"it has gpu-0 of {DRIVER} by ResourceClaim, and claimNamespaces of the policy does not name default"
    text = said(world(claim("gpu-0", "gpu-1", "gpu-2", "gpu-3", owner=uid, uid=uid)))
    assert text.startswith(f"it has gpu-0 of {DRIVER}, gpu-1 of {DRIVER}, gpu-2 of {DRIVER} and 1 more by ResourceClaim")


def test_a_claim_that_is_not_its_own():
    (uid,) = world().pods
    assert said(world(claim("gpu-0", uid=uid))) == "ResourceClaim default/c is not made for it alone, and its devices are where it is"


def test_a_claim_that_nobody_has_told_of():
    assert said(world()) == "it has devices by ResourceClaim, and claimNamespaces of the policy does not name default"
