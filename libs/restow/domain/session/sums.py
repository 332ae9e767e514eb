"""Sums that plugins need at open, kept in `state.memo` and refreshed by what changed: none costs O(pods) or O(nodes).

`Totals` are the nodes': O(rows changed since the last session). The `Ledger` has what waits and what groups use: O(pods moved
since); after a restart once O(what waits and what is in groups)."""

from collections.abc import Iterator, Sequence

import numpy as np

from restow.contracts.events import PodGroupObserved
from restow.contracts.ids import PodUid, ShapeId
from restow.domain.accounts import Amounts
from restow.domain.groups import Group, group_of
from restow.domain.state import OVER, ClusterState

_LOW = (1 << 32) - 1


class Totals:
    """`allocatable` and `charged` (used and held) of all nodes together, and `largest` of any one, by column. Python integers:
    sums of absurd quantities do not fit into int64. A node counts as long as it exists: one that is not ready for a moment
    must not make a queue look overused, for evictions may follow from that."""

    def __init__(self) -> None:
        self.allocatable: list[int] = []
        self.charged: list[int] = []
        self.largest: list[int] = []
        self._offered = np.zeros((0, 0), np.int64)
        self._taken = np.zeros((0, 0), np.int64)
        self._at = (-1, -1)

    def refresh(self, state: ClusterState) -> None:
        table = state.table
        self._widen(*table.allocatable.shape)
        changed, dirty = state.changed_rows.since(self._at[0]), table.dirty.since(self._at[1])
        self._at = state.changed_rows.position, table.dirty.position
        if changed is None or dirty is None:
            changed = range(len(self._offered))
        if changed:
            where = np.unique(np.asarray(changed, np.int64))
            _add(self.allocatable, table.allocatable[where], self._offered[where])
            self._offered[where] = table.allocatable[where]
            self.largest = table.allocatable.max(axis=0).tolist()
        touched = [*changed, *(dirty or ())]
        if touched:
            where = np.unique(np.asarray(touched, np.int64))
            taken = table.used[where] + table.reserved[where]
            _add(self.charged, taken, self._taken[where])
            self._taken[where] = taken

    def _widen(self, nodes: int, columns: int) -> None:
        if self._offered.shape == (nodes, columns):
            return
        for name in ("_offered", "_taken"):
            old, wide = getattr(self, name), np.zeros((nodes, columns), np.int64)
            wide[: old.shape[0], : old.shape[1]] = old
            setattr(self, name, wide)
        for sums in (self.allocatable, self.charged, self.largest):
            sums += [0] * (columns - len(sums))


def _add(sums: list[int], now: np.ndarray, before: np.ndarray) -> None:
    """Rows `(rows, columns) int64` that were `before` are `now`."""
    for amounts, sign in ((now, 1), (before, -1)):
        high, low = (amounts >> 32).sum(axis=0).tolist(), (amounts & _LOW).sum(axis=0).tolist()
        for column, (h, rest) in enumerate(zip(high, low, strict=True)):
            sums[column] += sign * ((h << 32) + rest)


def totals(state: ClusterState) -> Totals:
    """Of the nodes as they are in the state."""
    known: Totals | None = state.memo.get("sums-totals")
    if known is None:
        known = state.memo["sums-totals"] = Totals()
    known.refresh(state)
    return known


class GroupUse:
    """What a group's pods are charged, by column (terminating ones are not counted), and how many of them are ready in the
    sense of a gang: they have their place, or have succeeded."""

    __slots__ = ("ready", "used")

    def __init__(self) -> None:
        self.ready = 0
        self.used: Amounts = {}


_Entry = tuple[str, ShapeId, Group | None, bool, ShapeId | None]
"""Queue where the pod waits (else empty), its shape, its group, whether it is ready there, the shape it is charged with."""
_NOTHING: _Entry = ("", ShapeId(""), None, False, None)


class Ledger:
    """`waiting[queue][column]`: what pods ask for that wait for a place. `kinds[queue][shape]`: how many such pods.
    `groups`: of each group with pods in any of these ways."""

    def __init__(self) -> None:
        self.waiting: dict[str, Amounts] = {}
        self.kinds: dict[str, dict[ShapeId, int]] = {}
        self.groups: dict[Group, GroupUse] = {}
        self._pods: dict[PodUid, _Entry] = {}
        self._at = -1

    def refresh(self, state: ClusterState) -> None:
        moved = state.moved.since(self._at)
        self._at = state.moved.position
        for uid in dict.fromkeys([*self._pods, *_anyone(state)] if moved is None else moved):
            if isinstance(uid, tuple):
                continue  # a place of a Reservation
            entry = _entry(state, uid)
            before = self._pods.get(uid, _NOTHING)
            if entry == before:
                continue
            self._count(state, before, -1)
            self._count(state, entry, 1)
            if entry == _NOTHING:
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = entry

    def _count(self, state: ClusterState, entry: _Entry, sign: int) -> None:
        queue, shape, group, ready, charged = entry
        if queue:
            _charge(self.waiting.setdefault(queue, {}), state.vectors[shape].items, sign)
            kinds = self.kinds.setdefault(queue, {})
            kinds[shape] = kinds.get(shape, 0) + sign
            if not kinds[shape]:
                del kinds[shape]
            if not kinds:
                del self.kinds[queue], self.waiting[queue]
        if group is not None and (ready or charged is not None):
            use = self.groups.setdefault(group, GroupUse())
            use.ready += sign * ready
            if charged is not None:
                _charge(use.used, state.vectors[charged].items, sign)
            if not use.ready and not use.used:
                del self.groups[group]


def _charge(amounts: Amounts, items: Sequence[tuple[int, int]], sign: int) -> None:
    for column, amount in items:
        left = amounts.get(column, 0) + amount * sign
        if left:
            amounts[column] = left
        else:
            del amounts[column]


def _anyone(state: ClusterState) -> Iterator[PodUid]:
    """All that may count."""
    yield from (*state.queue, *state.parked, *state.nominations)
    for members in state.groups.values():
        yield from members


def _entry(state: ClusterState, uid: PodUid) -> _Entry:
    pod = state.pods.get(uid)
    if pod is None:
        return _NOTHING
    waits = state.awaits_placement(uid)
    group = group_of(pod) if pod.annotations else None
    if group is None:
        return (state.queue_of(pod), pod.shape, None, False, None) if waits else _NOTHING
    live, charge = state.live[uid], state.charges.get(uid)
    charged = charge.shape if charge is not None and not charge.releasing else None
    placed = live.phase not in OVER and not live.deleting and (live.node is not None or uid in state.placed)
    return state.queue_of(pod) if waits else "", pod.shape, group, placed or live.phase == "Succeeded", charged


def ledger(state: ClusterState) -> Ledger:
    """Of what waits and what groups use, as it is in the state."""
    known: Ledger | None = state.memo.get("sums-ledger")
    if known is None:
        known = state.memo["sums-ledger"] = Ledger()
    known.refresh(state)
    return known


COMPLETED = "Completed"
"""The phase of a PodGroup that asks for nothing more."""


def inqueue(state: ClusterState) -> dict[Group, dict[str, int]]:
    """What is still promised to groups that were admitted: of those whose minimum has not started yet, `minResources` less
    what they use already, by resource. O(groups), and asked only where another one wants to be admitted."""
    known = ledger(state)
    promised: dict[Group, dict[str, int]] = {}
    for group, spec in state.pod_groups.items():
        if not spec.min_resources or group in state.unqueued or spec.deleting or spec.phase == COMPLETED:
            continue
        use = known.groups.get(group)
        if use is None or use.ready < spec.min_member:
            promised[group] = still_to_come(state, spec, use)
    return promised


def still_to_come(state: ClusterState, spec: PodGroupObserved, use: GroupUse | None) -> dict[str, int]:
    """`minResources` less what the group uses."""
    if use is None:
        return spec.min_resources
    columns = state.table.columns
    left = {name: amount - use.used.get(columns.get(name, -1), 0) for name, amount in spec.min_resources.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def too_large(state: ClusterState, known: Totals, shape: ShapeId) -> bool:
    """Whether the shape asks for more of something than any node has, so that no node will ever take it as it is."""
    return any(amount > known.largest[column] for column, amount in state.vectors[shape].items)
