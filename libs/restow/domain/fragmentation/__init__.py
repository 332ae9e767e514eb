"""How well the cluster is packed (`packing.py`), and the same quickly, node by node, for whoever scores nodes (`model.py`)."""

from restow.domain.fragmentation.packing import FreeCapacity as FreeCapacity
from restow.domain.fragmentation.packing import Typical as Typical
from restow.domain.fragmentation.packing import alike as alike
from restow.domain.fragmentation.packing import demand_of as demand_of
from restow.domain.fragmentation.packing import is_load as is_load
from restow.domain.fragmentation.packing import packing as packing
from restow.domain.fragmentation.packing import rules_of as rules_of
from restow.domain.fragmentation.packing import typical_shapes as typical_shapes
