"""GPUs of which nobody says who has which.

A pod that another scheduler binds for `nvidia.com/gpu` has as many devices as it asks for, and the kubelet chooses them: the API has their number
alone. On such a node devices are given by count, too: whole ones are left to the node's device plugin, as that scheduler does it, and nobody
gets a share of a device there, for the device may be a stranger's. Vendors say the same of their plugins: one way of giving devices to a node.

A placeholder (`restow.domain.beside`) is such a pod. What its slot holds is charged as named devices, as every slot's; which of them are
its own is as unknown.
"""

import numpy as np

from restow.contracts.ids import ShapeId
from restow.contracts.values import DeviceRequest, DeviceShare
from restow.domain.node_table import WHOLE
from restow.domain.state import ClusterState

BY_COUNT = "node(s) gave devices by count, so that no share of one was certain to be free"


def is_share(request: DeviceRequest | None) -> bool:
    """Whether it is for parts of devices, which have to be named."""
    return request is not None and request.milli != WHOLE


def rows(state: ClusterState) -> np.ndarray:
    """`(nodes,) bool`: where somebody has devices and nobody says which."""
    found = state.table.unsaid > 0
    for pod in state.stand_ins.values():
        live = state.live_of(pod)
        if live is not None and state.shapes[state.pods[pod].fact.shape].devices is not None and live.node in state.table.rows:
            found[state.table.rows[live.node]] = True
    return found


def said(state: ClusterState, shape: ShapeId, row: int, devices: tuple[DeviceShare, ...]) -> tuple[DeviceShare, ...]:
    """Of the devices that a pod is to get on a row those that it is told: none where they are given by count."""
    whole = devices and not is_share(state.shapes[shape].devices)
    return () if whole and rows(state)[row] else devices


def of_hold(request: DeviceRequest | None, held: tuple[DeviceShare, ...]) -> tuple[DeviceShare, ...]:
    """What a pod that is told no devices takes of those that are held for it, as many as it asks for."""
    return tuple(d for d in held if d.milli >= WHOLE)[: request.count] if request is not None else ()
