"""What capacity is worth per hour, in one unit: that is what plans are weighed in.

A node has a price per hour: its own (label `restow.dev/price-per-hour`), that of its class (`prices`, by the value of a label), or else that of what it
has, a GPU counting 1, a core 0.02, a GiB 0.0025, and a MIG slice of a device plugin so many sevenths as its profile says: GPU-hours. A request is worth its part of the node's price. All in integers, in millionths of the unit.
"""

import re
from decimal import Decimal, InvalidOperation

import msgspec

from restow.contracts.events import NodeObserved
from restow.domain.config import PriceArgs
from restow.domain.node_table import Vector
from restow.domain.quantity import CPU
from restow.domain.resources import GPU_MILLI, MEMORY
from restow.domain.state import ClusterState

UNIT, UNSAID = "GPU-hours", "units"
"""What amounts are called where `prices.unit` says nothing: the first where no price is said either."""
OWN_PRICE = "restow.dev/price-per-hour"
MILLIONTHS = 1_000_000
MOST = 10**4
"""Units per hour that a price may say at most."""
_PER_GPU_MILLI, _PER_CPU_MILLI, _PER_GIB = 1_000, 20, 2_500
_MIG, _MIG_SLICES = re.compile(r"nvidia\.com/mig-([1-7])g\."), 7
"""Profiles as NVIDIA's device plugin names them (`nvidia.com/mig-3g.20gb`), and how many slices a GPU has."""
WHOLE_DEVICES = frozenset({"amd.com/gpu", "google.com/tpu", "habana.ai/gaudi"})
"""Resources of other device plugins, one of which counts as a GPU."""
_GIB = 30
"""Bits of a GiB."""
_LARGEST = 1 << 28
"""A node is no larger, nor does a request count more, whatever somebody writes into a pod: amounts times prices are to fit into int64."""


def micros(said: str) -> int | None:
    """A price in millionths; None where it is none: not a number, negative, or beyond `MOST`."""
    try:
        value = Decimal(said)
    except InvalidOperation:
        return None
    if not value.is_finite() or not 0 <= value <= MOST:
        return None
    return int(value * MILLIONTHS)


class Sizes(msgspec.Struct, frozen=True):
    """What a request counts, in millionths of a GPU, by column; -1 for a column that the cluster does not have."""

    gpu: int
    cpu: int
    memory: int
    others: dict[int, int] = {}
    """Of other devices: what one of them counts."""

    def of(self, v: Vector) -> int:
        size = 0
        for column, amount in v.items:
            if column == self.gpu:
                size += amount * _PER_GPU_MILLI
            elif column == self.cpu:
                size += amount * _PER_CPU_MILLI
            elif column == self.memory:
                size += amount * _PER_GIB >> _GIB
            elif column in self.others:
                size += amount * self.others[column]
        return min(size, _LARGEST)


def sizes(state: ClusterState) -> Sizes:
    columns = state.table.columns
    others = {column: size for name, column in columns.items() if (size := _of_device(name))}
    return Sizes(columns.get(GPU_MILLI, -1), columns.get(CPU, -1), columns.get(MEMORY, -1), others)


def _of_device(resource: str) -> int:
    """Of a device that is no GPU of ours, by its resource's name; 0 where nobody knows what it is worth."""
    if resource in WHOLE_DEVICES:
        return MILLIONTHS
    profile = _MIG.match(resource)
    return MILLIONTHS * int(profile[1]) // _MIG_SLICES if profile else 0


class Prices:
    """By row of the node table: `per_hour` of the whole node, and its `size`, which is what it would be worth with no price of its own. `unit`: what amounts
    are called."""

    def __init__(self, state: ClusterState, args: PriceArgs) -> None:
        self.sizes = sizes(state)
        classes = {name: micros(str(price)) for name, price in args.perHour.items()}
        self.size = [0] * len(state.table.names)
        self.per_hour = [0] * len(state.table.names)
        said = bool(args.perHour)
        for name, row in state.table.rows.items():
            node = state.nodes.get(name)
            if node is not None:
                self.size[row] = self.sizes.of(state.table.vector(node.allocatable, None))
                own = priced(node, args.label, classes)
                self.per_hour[row] = self.size[row] if own is None else own
                said = said or own is not None
        self.unit = args.unit or (UNSAID if said else UNIT)

    def part(self, row: int, size: int) -> int:
        """What so much of a node is worth per hour."""
        whole = self.size[row]
        return self.per_hour[row] * size // whole if whole else 0


def priced(node: NodeObserved, label: str, classes: dict[str, int | None]) -> int | None:
    """Its price in millionths; None where nobody has said one that can be read."""
    own = node.labels.get(OWN_PRICE)
    if own is not None and (said := micros(own)) is not None:
        return said
    return classes.get(node.labels.get(label, ""))
