"""How well the cluster is packed (`packing.py`), what could be run besides (`fitting.py`), and fragmentation quickly, node by node, for whoever scores
nodes (`model.py`)."""

from restow.domain.fragmentation.demands import Typical as Typical
from restow.domain.fragmentation.demands import alike as alike
from restow.domain.fragmentation.demands import demand_of as demand_of
from restow.domain.fragmentation.demands import is_load as is_load
from restow.domain.fragmentation.demands import rules_of as rules_of
from restow.domain.fragmentation.demands import typical_shapes as typical_shapes
from restow.domain.fragmentation.free_capacity import FreeCapacity as FreeCapacity
from restow.domain.fragmentation.packing import Asked as Asked
from restow.domain.fragmentation.packing import asked_for as asked_for
from restow.domain.fragmentation.packing import packing as packing
