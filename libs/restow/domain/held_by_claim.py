"""Why a pod with ResourceClaims stays.

A nomination keeps cpu and memory of a node for a gated successor, and none of its devices: kube-scheduler gives those to the pod that it looks at first.
Nor can a device be handed over from one claim to another: kube-scheduler has it free as soon as one of two that have it is gone. (Both as of 1.36,
`tests/kubernetes/test_dynamic_resources.py`.)
"""

from restow.contracts.ids import PodUid
from restow.domain.claim_devices import claim_devices
from restow.domain.state import ClusterState
from restow.domain.verdicts import UNSUPPORTED

MOST = 3
"""Devices that are named."""


def why_it_stays(state: ClusterState, uid: PodUid) -> str:
    """The verdict with its sentence, of a pod whose shape has ResourceClaims."""
    known = claim_devices(state)
    named = [path for path in known.reserved_for(uid) if state.resource_claims[path].owner != uid]
    if named:
        return f"{UNSUPPORTED}: ResourceClaim {named[0]} is not made for it alone, and its devices are where it is"
    devices = [f"{one.name} of {one.driver}" for path in known.reserved_for(uid) for one in known.claim(path)]
    has = ", ".join(devices[:MOST]) + f" and {len(devices) - MOST} more" * (len(devices) > MOST)
    return f"{UNSUPPORTED}: it has {has or 'devices'} by ResourceClaim, and no scheduler keeps devices for a successor"
