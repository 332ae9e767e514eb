"""Which devices of a node may be given to pods: what its Device object says, where there is one."""

from collections.abc import Collection

from restow.contracts.events import DeviceObserved, NodeObserved
from restow.contracts.ids import NodeName
from restow.domain.state import ClusterState


def devices_of(node: NodeObserved, said: DeviceObserved | None) -> int | Collection[int]:
    """How many, or which: GPUs that its Device object does not have, or has as unhealthy, are nobody's. The node's amount of
    GPUs stays what the node says: who runs on one that has failed uses none of the others."""
    return node.devices if said is None else tuple(gpu.index for gpu in said.gpus if gpu.healthy)


def set_node(state: ClusterState, name: NodeName) -> None:
    """Make the table's row what is said of a node that exists, and of its devices."""
    node = state.nodes[name]
    devices = devices_of(node, state.device_objects.get(name))
    state.changed_rows.append(state.table.set_node(name, node.allocatable, devices))
