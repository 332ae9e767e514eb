"""Who may be evicted at all, as columns that follow the state: O(pods moved) a session, and vectorised from there.

Whether one of them is a victim for somebody is for plugins to say (`preemptable`, `reclaimable`); here is what no plugin is
asked about.
"""

import numpy as np

from restow.contracts.ids import Millis, PodUid, ShapeId
from restow.domain.fragmentation import is_load
from restow.domain.groups import group_of
from restow.domain.state import ClusterState

PREEMPTABLE = "volcano.sh/preemptable"
"""The annotation that keeps a pod from being a victim. Where it is absent, plugins decide."""
_NO = frozenset({"0", "f", "F", "false", "False", "FALSE"})
"""What Go's ParseBool reads as false."""
VACANT = -1


def may_go(state: ClusterState, uid: PodUid) -> bool:
    """Whether a pod can be a victim: ours, bound, not on its way out, and not one that its node or its controller would
    bring back to the same place, or whose room would be a hold's again."""
    charge, live = state.charges.get(uid), state.live.get(uid)
    if charge is None or charge.releasing or live is None or live.node is None:
        return False
    if not is_load(state, uid) or state.owes(uid):
        return False
    pod = state.pods[uid]
    return state.ours(pod) and pod.annotations.get(PREEMPTABLE) not in _NO


def since(state: ClusterState, uid: PodUid) -> Millis:
    """When it started, as far as anybody knows."""
    return state.live[uid].started or state.pods[uid].created


class Crowd:
    """Entries, `(entries,) int64` each: `row` (VACANT where there is none), `queue` (a number), `priority`, `least` (its job's
    priority is at least that), `since`, `order`; `amounts` is `(entries, resources) int64`."""

    def __init__(self) -> None:
        self._slots: dict[PodUid, int] = {}
        self._free: list[int] = []
        self._queues: dict[str, int] = {}
        self._moved = self._objects = -1
        self._columns(64, 0)

    def _columns(self, entries: int, resources: int) -> None:
        self.row = np.full(entries, VACANT, np.int64)
        self.queue, self.priority, self.least, self.since, self.order = (np.zeros(entries, np.int64) for _ in range(5))
        self.amounts = np.zeros((entries, resources), np.int64)

    @staticmethod
    def of(state: ClusterState) -> "Crowd":
        """As it is now."""
        kept: Crowd | None = state.memo.get("crowd")
        if kept is None:
            kept = state.memo["crowd"] = Crowd()
        kept._refresh(state)
        return kept

    def number(self, queue: str) -> int:
        """Of a queue; of one that nobody is in, too."""
        return self._queues.setdefault(queue, len(self._queues))

    def _refresh(self, state: ClusterState) -> None:
        moved, objects = state.moved.since(self._moved), state.objects.since(self._objects)
        self._moved, self._objects = state.moved.position, state.objects.position
        if moved is None or objects is None or any(kind == "priority_classes" for kind, _ in objects):
            self._build(state)
            return
        if self.amounts.shape[1] < len(state.table.columns):
            more = len(state.table.columns) - self.amounts.shape[1]
            self.amounts = np.pad(self.amounts, ((0, 0), (0, more)))
        for uid in dict.fromkeys(moved):
            if isinstance(uid, str):
                self._set(state, uid)

    def _build(self, state: ClusterState) -> None:
        """Of everybody, column by column: after a restart there may be very many."""
        uids = [uid for uid in state.charges if may_go(state, uid)]
        self._slots = {uid: slot for slot, uid in enumerate(uids)}
        self._free = []
        self._columns(max(64, len(uids)), len(state.table.columns))
        charges = [state.charges[uid] for uid in uids]
        rows = state.table.rows
        n = len(uids)
        self.row[:n] = [rows[charge.node] for charge in charges]
        self.queue[:n] = [self.number(charge.queue) for charge in charges]
        self.priority[:n] = [state.shapes[state.pods[uid].shape].priority for uid in uids]
        self.least[:n] = [_least(state, uid) for uid in uids]
        self.since[:n] = [since(state, uid) for uid in uids]
        self.order[:n] = [state.order[uid] for uid in uids]
        by_shape: dict[ShapeId, list[int]] = {}
        for slot, charge in enumerate(charges):
            by_shape.setdefault(charge.shape, []).append(slot)
        for shape, slots in by_shape.items():
            v = state.vectors[shape]
            self.amounts[np.array(slots)[:, None], v.columns] = v.amounts

    def _set(self, state: ClusterState, uid: PodUid) -> None:
        slot = self._slots.get(uid)
        if not may_go(state, uid):
            if slot is not None:
                del self._slots[uid]
                self.row[slot] = VACANT
                self._free.append(slot)
            return
        if slot is None:
            slot = self._slots[uid] = self._free.pop() if self._free else len(self._slots)
            if slot >= len(self.row):
                self._grow()
        charge, pod = state.charges[uid], state.pods[uid]
        self.row[slot] = state.table.rows[charge.node]
        self.queue[slot] = self.number(charge.queue)
        self.priority[slot] = state.shapes[pod.shape].priority
        self.least[slot] = _least(state, uid)
        self.since[slot], self.order[slot] = since(state, uid), state.order[uid]
        self.amounts[slot] = 0
        v = state.vectors[charge.shape]
        self.amounts[slot, v.columns] = v.amounts

    def _grow(self) -> None:
        size = len(self.row)
        self.row = np.concatenate([self.row, np.full(size, VACANT, np.int64)])
        for name in ("queue", "priority", "least", "since", "order"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self.amounts = np.concatenate([self.amounts, np.zeros_like(self.amounts)])


def _least(state: ClusterState, uid: PodUid) -> int:
    """A gang's priority is its class's; otherwise at least that of each of its pods (`jobs.gang`)."""
    pod = state.pods[uid]
    group = group_of(pod) if pod.annotations else None
    spec = state.pod_groups.get(group) if group is not None else None
    named = state.priority_classes.get(spec.priority_class) if spec is not None else None
    return named.value if named is not None else state.shapes[pod.shape].priority
