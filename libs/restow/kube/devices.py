"""Device objects of Koordinator → facts: the GPUs of a node."""

from restow.contracts import events as e
from restow.contracts import values as v
from restow.contracts.ids import NodeName
from restow.kube import wire_objects as w

_GPU = "gpu"


def device_fact(device: w.Device) -> e.DeviceObserved:
    """Other kinds of devices are not read; a GPU without a number cannot be given to anybody, and is left out."""
    listed = (device.spec.devices if device.spec is not None else None) or ()
    found = {d.minor: _gpu(d, d.minor) for d in listed if d.type == _GPU and d.minor is not None and d.minor >= 0}
    return e.DeviceObserved(NodeName(device.metadata.name), tuple(found[minor] for minor in sorted(found)))


def _gpu(device: w.DeviceInfo, minor: int) -> v.Gpu:
    topology = device.topology
    return v.Gpu(minor, bool(device.health), -1 if topology is None else topology.node)
