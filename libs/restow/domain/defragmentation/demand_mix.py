"""What capacity is wanted for: the demands that pods have, each with its part of all that is asked for.

By what is asked for and not by heads: a hundred pods with a tenth of a GPU each ask for as much as one with ten. Who waits counts several times.
"""

from collections import Counter
from itertools import islice
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import ShapeId
from restow.domain.defragmentation.prices import Sizes
from restow.domain.fragmentation.demands import Demands, alike, is_counted
from restow.domain.node_table import Vector
from restow.domain.state import ClusterState

WAITING = 8
"""As how many of those that run one counts that waits."""
MOST = 12
"""Demands that are told apart, those with the largest parts."""
WHOLE_PART = 1024


class Wanted(NamedTuple):
    """`part` of all that is asked for, in `WHOLE_PART`ths; `size` of one request (`prices.Sizes`); `rules`: a shape with its rules about nodes."""

    v: Vector
    rules: ShapeId
    size: int
    part: int


def mix(state: ClusterState, sizes: Sizes) -> tuple[Wanted, ...]:
    """The largest part first. O(pods). Who asks for more than any node has is left out: no plan helps them, and beside a mistyped one nobody else would count."""
    heads: Counter[ShapeId] = Counter()
    for uid, pod in state.pods.items():
        if is_counted(state, uid):
            heads[pod.fact.shape] += WAITING if pod.live.node is None and uid not in state.placed else 1
    keys = state.memo.make(Demands)
    merged: dict[bytes, tuple[int, ShapeId]] = {}
    for shape, count in heads.items():
        key = keys.key(state, shape)
        before, first = merged.get(key, (0, shape))
        merged[key] = before + count, min(first, shape)
    every = sorted(((count * sizes.of(state.vectors[shape]), shape) for count, shape in merged.values()), key=lambda one: (-one[0], one[1]))
    asked = list(islice((one for one in every if _has_some_node(state, state.vectors[one[1]])), MOST))
    total = sum(much for much, _ in asked)
    if not total:
        return ()
    return tuple(
        Wanted(state.vectors[shape], alike(state, shape), sizes.of(state.vectors[shape]), part)
        for much, shape in asked
        if (part := much * WHOLE_PART // total)
    )


def _has_some_node(state: ClusterState, v: Vector) -> bool:
    """Whether a node would have enough of each, were it empty. O(nodes)."""
    columns, amounts = [column for column, _ in v.items], np.array([amount for _, amount in v.items], np.int64)
    return bool((state.table.allocatable[:, columns] >= amounts).all(axis=1).any())
