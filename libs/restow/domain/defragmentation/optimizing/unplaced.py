"""Who waits for capacity that is nowhere as things are: the scheduler gives it to them as soon as moves leave as much anywhere."""

from typing import NamedTuple

import numpy as np

from restow.domain.defragmentation.appraisal import waiting
from restow.domain.fragmentation.demands import is_counted
from restow.domain.node_table import Vector
from restow.domain.predicates import static_mask
from restow.domain.state import ClusterState


class Unplaced(NamedTuple):
    """What pods of one shape ask for, and on which rows they may be, `(nodes,) bool`."""

    vector: Vector
    mask: np.ndarray


def unplaced(state: ClusterState) -> list[Unplaced]:
    """One for each shape of those who wait and fit nowhere."""
    shapes = sorted({state.pods[uid].fact.shape for uid in waiting(state) if is_counted(state, uid)})
    asked = [Unplaced(state.vectors[shape], static_mask(state, shape) & state.table.alive) for shape in shapes]
    return [one for one in asked if not (state.table.fits(one.vector) & one.mask).any()]
