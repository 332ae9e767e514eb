"""The typical pods of a cluster, as a value that changes seldom: what demands there are, and how popular each is.

Popularity is a demand's share of all pods in 256ths, rounded. So it follows from the state alone (a replay finds the same), a
few pods more or less change nothing, and what is asked for by less than half of a 256th is not typical. Counting is
incremental: it costs what has moved since the last session, not what there is.
"""

from collections import Counter
from collections.abc import Iterable

import msgspec

from restow.contracts.ids import PodUid, ShapeId
from restow.domain.fragmentation.demands import MAX_TYPICAL, Demands, alike, is_counted
from restow.domain.resources import GPU_MILLI
from restow.domain.state import ClusterState

PARTS = 256
"""Popularity is counted in so many parts of all pods."""

class Demand(msgspec.Struct, frozen=True):
    """What some typical pods ask for: `count` devices with `milli` thousandths of each (0 for none), `needs` (column,
    amount) of everything else. `rule` is the index of its rules about nodes, `weight` its popularity."""

    weight: int
    count: int
    milli: int
    rule: int
    needs: tuple[tuple[int, int], ...]


class Typical(msgspec.Struct, frozen=True):
    """`rules`: one shape for each set of rules about nodes. `weights` is the sum of the demands' weights."""

    demands: tuple[Demand, ...] = ()
    rules: tuple[ShapeId, ...] = ()
    weights: int = 0


class Census:
    """Pending and running pods by what they ask for, DaemonSet and static pods apart: no scheduler chooses their place.

    `_likely` holds every demand that can be popular while there are between half and twice as many pods as when it was
    made: so that a cluster of many thousand shapes is looked through once in a doubling."""

    def __init__(self, state: ClusterState) -> None:
        self._seen = state.moved.position
        self._asks: dict[PodUid, ShapeId] = {}
        self._keys = state.memo.make(Demands)
        self._counts: Counter[bytes] = Counter()
        self._shapes: dict[bytes, ShapeId] = {}
        self._total = self._looked_at = 0
        self._likely: dict[bytes, None] = {}
        self.typical: tuple[tuple[tuple[int, ShapeId], ...], Typical] | None = None
        """What was popular last, and the value that was made of it."""
        self._count(state, state.pods)

    def refresh(self, state: ClusterState) -> bool:
        """Count what has moved. False where that is forgotten."""
        moved = state.moved.since(self._seen)
        if moved is None:
            return False
        self._seen = state.moved.position
        self._count(state, [who for who in moved if isinstance(who, str)])
        return True

    def popular(self) -> list[tuple[int, ShapeId]]:
        """(weight, a shape that asks for it), the most popular demand first, among equals by what is asked for."""
        if not self._looked_at <= 2 * self._total <= 4 * self._looked_at:
            self._looked_at = self._total
            self._likely = {key: None for key, count in self._counts.items() if self._can_be_popular(count)}
        total = self._total
        weighed = [((2 * PARTS * self._counts[key] + total) // (2 * total), key) for key in self._likely] if total else []
        chosen = sorted((-weight, key) for weight, key in weighed if weight)[:MAX_TYPICAL]
        return [(-weight, self._shapes[key]) for weight, key in chosen]

    def _can_be_popular(self, count: int) -> bool:
        return 4 * PARTS * count >= self._looked_at

    def _count(self, state: ClusterState, pods: Iterable[PodUid]) -> None:
        asks = self._asks
        for uid in pods:
            before, now = asks.get(uid), _asks(state, uid)
            if now == before:
                continue
            if before is not None:
                self._change(state, before, -1)
                del asks[uid]
            if now is not None:
                self._change(state, now, 1)
                asks[uid] = now

    def _change(self, state: ClusterState, shape: ShapeId, by: int) -> None:
        key = self._keys.key(state, shape)
        self._total += by
        self._counts[key] += by
        count = self._counts[key]
        if not count:
            del self._counts[key], self._shapes[key]
            self._likely.pop(key, None)
            return
        self._shapes.setdefault(key, shape)
        if self._can_be_popular(count):
            self._likely[key] = None


def _asks(state: ClusterState, uid: PodUid) -> ShapeId | None:
    """The shape of a pod that counts."""
    if uid not in state.pods or not is_counted(state, uid):
        return None
    return state.pods[uid].fact.shape


def typical(state: ClusterState) -> Typical:
    """As the pods are now."""
    census = state.memo.find(Census)
    if census is None or not census.refresh(state):
        census = state.memo.keep(Census(state))
    popular = tuple(census.popular())
    if census.typical is None or census.typical[0] != popular:
        census.typical = popular, _valued(state, popular)
    return census.typical[1]


def _valued(state: ClusterState, popular: Iterable[tuple[int, ShapeId]]) -> Typical:
    rules: dict[ShapeId, int] = {}
    demands: list[Demand] = []
    gpu = state.table.columns.get(GPU_MILLI)
    for weight, shape in popular:
        v = state.vectors[shape]
        rule = rules.setdefault(alike(state, shape), len(rules))
        # Whether there is GPU enough is what the devices say.
        needs = tuple((column, amount) for column, amount in v.items if column != gpu)
        count, milli = (v.devices.count, v.devices.milli) if v.devices is not None else (0, 0)
        demands.append(Demand(weight, count, milli, rule, needs))
    return Typical(tuple(demands), tuple(rules), sum(d.weight for d in demands))
