"""What nodes have free, to think with."""

from restow.contracts.values import DeviceShare
from restow.domain.node_table import NodeTable, Vector


class FreeCapacity:
    """A copy of what the node table has free, for hypothetical moves: `free` `(nodes, resources) int64`, `device_free`
    `(nodes, devices) int64`."""

    __slots__ = ("device_free", "free")

    def __init__(self, table: NodeTable):
        self.free = table.free.copy()
        self.device_free = table.device_free.copy()

    def take(self, row: int, v: Vector, devices: tuple[DeviceShare, ...], sign: int = 1) -> None:
        """Charge a request, or (`sign` -1) give it back."""
        self.free[row, v.columns] -= v.amounts * sign
        shares = self.device_free[row]
        for d in devices:
            if d.index < len(shares):
                shares[d.index] -= d.milli * sign
