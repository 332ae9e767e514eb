"""Devices that are had by ResourceClaims, in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from restow.contracts.ids import NodeName, PodUid
from restow.domain.claim_devices import ClaimDevice, claim_devices, count, users
from restow.domain.state import ClusterState

MOST = 16
"""Devices of one node that are named; GPUs can be cut in more parts than anybody wants to read of."""


def node_lines(state: ClusterState, node: NodeName) -> Iterator[str]:
    """How many of each driver's devices are free, and who has the others."""
    for driver, devices in claim_devices(state).by_driver_on(node).items():
        many = count(devices)
        whole = "" if many.wholes == many.devices else f", {many.free_wholes} of {many.wholes} whole"
        yield f"devices by claim of {driver}: {many.free} of {many.devices} free{whole}"
        taken = [one for one in devices if one.claims]
        yield from (f"{one.name}: {_who(state, one)}" for one in taken[:MOST])
        if len(taken) > MOST:
            yield f"and {len(taken) - MOST} more are allocated"


def pod_lines(state: ClusterState, pod: PodUid) -> Iterator[str]:
    """The claims that are reserved for a pod, and what they have."""
    known = claim_devices(state)
    for path in known.reserved_for(pod):
        got = ", ".join(f"{one.name} of {one.driver}" for one in known.claim(path))
        yield f"ResourceClaim {path}: " + (f"has {got}" if got else "has no device")


def _who(state: ClusterState, device: ClaimDevice) -> str:
    pods = users(state, device.claims)
    return f"allocated to {', '.join(device.claims)}" + (f", reserved for {', '.join(pods)}" if pods else ", which no pod uses")
