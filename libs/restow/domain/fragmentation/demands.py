"""What pods ask for: when two ask for the same, which demands are typical, and which pods count."""

from collections import Counter

import msgspec

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid, ShapeId
from restow.contracts.values import PodShape
from restow.domain.pods import Pod
from restow.domain.state import ClusterState

COVERAGE = 95
"""Percent of the pods that the typical ones stand for."""
MAX_TYPICAL = 256
"""At most so many typical shapes, so that a cluster where no two pods are alike costs no more than this."""

_COUNTED = ("Pending", "Running")


class Typical(msgspec.Struct, frozen=True):
    """A typical pod: one of the shapes that ask for the same, and how many pods do."""

    shape: ShapeId
    pods: int


def demand_of(shape: PodShape) -> tuple:
    """What two shapes must have in common to be the same to every node."""
    return (tuple(shape.requests.items()), shape.devices, rules_of(shape))


class Demands(dict[ShapeId, bytes]):
    """By shape what it asks for, as bytes that are equal for equal demands."""

    def key(self, state: ClusterState, shape: ShapeId) -> bytes:
        known = self.get(shape)
        if known is None:
            known = self[shape] = msgspec.json.encode(demand_of(state.shapes[shape]), order="deterministic")
        return known


def rules_of(shape: PodShape) -> tuple:
    """The part of a shape that rules about nodes read, capacity aside: shapes with equal ones have equal static masks."""
    return (
        tuple(shape.node_selector.items()),
        shape.node_affinity,
        shape.tolerations,
    )


class _Alike:
    """The first shape that was seen with equal rules, by shape and by rules."""

    def __init__(self) -> None:
        self.first: dict[ShapeId, ShapeId] = {}
        self.by_rules: dict[bytes, ShapeId] = {}


def alike(state: ClusterState, shape_id: ShapeId) -> ShapeId:
    """One shape for all with equal rules, to ask `predicates.static_mask` about: few masks, however many shapes."""
    known = state.memo.make(_Alike)
    like = known.first.get(shape_id)
    if like is None:
        key = msgspec.json.encode(rules_of(state.shapes[shape_id]), order="deterministic")
        like = known.first[shape_id] = known.by_rules.setdefault(key, shape_id)
    return like


def is_load(state: ClusterState, pod: PodUid) -> bool:
    """Whether a pod keeps its node from being free: DaemonSet and static pods do not."""
    return _is_placed(state.pods[pod].fact)


def _is_placed(pod: PodObserved) -> bool:
    """Whether a scheduler chooses its place, so that it could be elsewhere."""
    return not pod.static and (pod.owner is None or pod.owner.kind != "DaemonSet")


def is_counted(state: ClusterState, pod: PodUid) -> bool:
    """Whether a pod says what people ask for: one that waits or runs, and for which a scheduler chooses a place."""
    return _asks(state.pods[pod])


def _asks(pod: Pod) -> bool:
    return pod.live.phase in _COUNTED and _is_placed(pod.fact)


def heads(state: ClusterState) -> Counter[ShapeId]:
    """How many of the pods that count have each shape. O(pods)."""
    return Counter([pod.fact.shape for pod in state.pods.values() if _asks(pod)])


def typical_shapes(state: ClusterState, coverage: int = COVERAGE, counts: Counter[ShapeId] | None = None) -> tuple[Typical, ...]:
    """The most popular demands of pending and running pods, CPU-only ones included, that together make up `coverage`
    percent of them. DaemonSet and static pods are not counted: no scheduler chooses their place. Ties by shape id."""
    counts = heads(state) if counts is None else counts
    keys = state.memo.make(Demands)
    merged: dict[bytes, tuple[int, ShapeId]] = {}
    for shape, count in counts.items():
        key = keys.key(state, shape)
        before, first = merged.get(key, (0, shape))
        merged[key] = (before + count, min(first, shape))
    total, covered = counts.total(), 0
    chosen: list[Typical] = []
    for count, shape in sorted(merged.values(), key=lambda m: (-m[0], m[1])):
        if covered * 100 >= total * coverage or len(chosen) == MAX_TYPICAL:
            break
        chosen.append(Typical(shape, count))
        covered += count
    return tuple(chosen)
