"""Which pods are reserve tasks, and when pods end that say so: kept beside the state, and refreshed by what moved."""

from functools import lru_cache

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.domain.changes import Changes
from restow.domain.duration import DurationError, milliseconds
from restow.domain.groups import group_of
from restow.domain.state import OVER, ClusterState

RESERVEABLE = "volcano.sh/reserveable"
MAXIMUM_RUNTIME = "volcano.sh/maximum-runtime"


def annotation(state: ClusterState, pod: PodObserved, name: str) -> str:
    """The pod's own beats its PodGroup's (RULES 001-4); empty where neither has it."""
    if name in pod.annotations:
        return pod.annotations[name]
    group = group_of(pod) if pod.annotations else None
    known = state.pod_groups.get(group) if group is not None else None
    return known.annotations.get(name, "") if known is not None else ""


def is_reserve_task(state: ClusterState, pod: PodObserved) -> bool:
    return bool(pod.annotations) and annotation(state, pod, RESERVEABLE) == "true"


def scheduled_at(state: ClusterState, uid: PodUid) -> Millis | None:
    """When a pod got its node: when this was decided, or for pods of other schedulers when they started. None for a pod that
    has none."""
    placement, live = state.placed.get(uid), state.live_of(uid)
    if placement is not None:
        return placement.at
    if live is None or live.node is None:
        return None
    return live.started or state.pods[uid].fact.created


def runtime(state: ClusterState, pod: PodObserved) -> int | None:
    """Milliseconds that it runs at most; None where nothing, or nothing that can be read, says so (RULES 001-4)."""
    text = annotation(state, pod, MAXIMUM_RUNTIME) if pod.annotations else ""
    return _duration(text) if text else None


@lru_cache(maxsize=1024)
def _duration(text: str) -> int | None:
    try:
        said = milliseconds(text)
    except DurationError:
        return None
    return said if said >= 0 else None


class Ending:
    """A pod that uses a node until `at`."""

    __slots__ = ("at", "node", "shape")

    def __init__(self, node: NodeName, shape: ShapeId, at: Millis) -> None:
        self.node, self.shape, self.at = node, shape, at


class Index:
    """`tasks`: reserve tasks, wherever they are. `endings`: pods that use a node for no longer than known; `changed` lists
    those whose entry is another now."""

    def __init__(self) -> None:
        self.tasks: dict[PodUid, None] = {}
        self.endings: dict[PodUid, Ending] = {}
        self.changed: Changes[PodUid] = Changes()
        self._seen = -1

    @classmethod
    def of(cls, state: ClusterState) -> "Index":
        """As the state is now. Costs what has moved since it was asked for, and all pods the first time."""
        index = state.memo.make(cls)
        moved = state.moved.since(index._seen)
        if moved is None:
            for uid in [*index.endings]:
                index._forget(uid)
            index.tasks = {}
        uids = state.pods if moved is None else dict.fromkeys(uid for uid in moved if isinstance(uid, str))
        for uid in uids:
            index._look(state, PodUid(uid))
        index._seen = state.moved.position
        index.changed.trim()
        return index

    def _look(self, state: ClusterState, uid: PodUid) -> None:
        pod = state.fact_of(uid)
        if pod is None or not pod.annotations:
            self.tasks.pop(uid, None)
            self._forget(uid)
            return
        if is_reserve_task(state, pod):
            self.tasks[uid] = None
        else:
            self.tasks.pop(uid, None)
        charge, most, at = state.charges.get(uid), runtime(state, pod), scheduled_at(state, uid)
        self._forget(uid)
        # What terminates already is in the table's `releasing`.
        if charge is not None and not charge.releasing and most is not None and at is not None:
            self.endings[uid] = Ending(charge.node, charge.shape, Millis(at + most))
            self.changed.append(uid)

    def _forget(self, uid: PodUid) -> None:
        if self.endings.pop(uid, None) is not None:
            self.changed.append(uid)


class Released:
    """What pods that end by `before` will have given back then: `amounts` `(nodes, resources) int64`."""

    def __init__(self, before: Millis) -> None:
        self.before = before
        self.amounts: np.ndarray = np.zeros((0, 0), np.int64)
        self._applied: dict[PodUid, tuple[int, ShapeId]] = {}
        self._seen = -1

    @classmethod
    def of(cls, state: ClusterState, index: Index, before: Millis) -> np.ndarray:
        """The amounts as the state is now; must not be changed. Only the latest few instants are remembered."""
        kept = state.memo.make(_Instants)
        released = kept.pop(before, None) or cls(before)
        kept[before] = released
        while len(kept) > REMEMBERED:
            del kept[next(iter(kept))]
        released._refresh(state, index)
        return released.amounts

    def _refresh(self, state: ClusterState, index: Index) -> None:
        shape = state.table.free.shape
        if self.amounts.shape != shape:
            grown: np.ndarray = np.zeros(shape, np.int64)
            rows, columns = self.amounts.shape
            grown[:rows, :columns] = self.amounts
            self.amounts = grown
        changed = index.changed.since(self._seen)
        if changed is None:
            self.amounts[:] = 0
            self._applied.clear()
        for uid in dict.fromkeys(index.endings if changed is None else changed):
            self._apply(state, uid, index.endings.get(uid))
        self._seen = index.changed.position

    def _apply(self, state: ClusterState, uid: PodUid, ending: Ending | None) -> None:
        if (old := self._applied.pop(uid, None)) is not None:
            self._add(state, *old, -1)
        row = state.table.rows.get(ending.node) if ending is not None and ending.at <= self.before else None
        if ending is not None and row is not None:
            self._applied[uid] = row, ending.shape
            self._add(state, row, ending.shape, 1)

    def _add(self, state: ClusterState, row: int, shape: ShapeId, sign: int) -> None:
        for column, amount in state.vectors[shape].items:
            self.amounts[row, column] += amount * sign


REMEMBERED = 16


def uses_capacity(state: ClusterState, uid: PodUid) -> bool:
    live = state.live_of(uid)
    return live is not None and live.phase not in OVER and uid in state.charges


class _Instants(dict[Millis, Released]):
    """What will have been given back by the instants that were asked about last."""
