"""Sums that plugins need at open, kept in `state.memo` and refreshed by what changed: none costs O(pods) or O(nodes).

`Totals` are the nodes': O(rows changed since the last session). The `Ledger` has what waits and what groups use: O(pods moved
since); after a restart once O(what waits and what is in groups)."""

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np

from restow.contracts.events import PodGroupObserved, PodObserved
from restow.contracts.ids import PodUid, ShapeId
from restow.domain.accounts import Amounts
from restow.domain.changes import Seen
from restow.domain.groups import Group, group_of
from restow.domain.memo import kept
from restow.domain.session.jobs import has_groups, is_ready, job_of, known_apis
from restow.domain.state import ClusterState

_LOW = (1 << 32) - 1


class Totals:
    """`allocatable` and `charged` (used and held) of all nodes together, `largest` and `smallest` of any one, by column. Python integers:
    sums of absurd quantities do not fit into int64. A node counts as long as it exists: one that is not ready for a moment
    must not make a queue look overused, for evictions may follow from that."""

    def __init__(self, state: ClusterState) -> None:
        self.allocatable: list[int] = []
        self.charged: list[int] = []
        self.largest: list[int] = []
        self.smallest: list[int] = []
        self._offered = np.zeros((0, 0), np.int64)
        self._taken = np.zeros((0, 0), np.int64)
        self._seen = Seen(state.changed_rows, state.table.dirty)

    def refresh(self, state: ClusterState) -> None:
        table = state.table
        if self._seen.all() and self._offered.shape == table.allocatable.shape:
            return
        self._widen(*table.allocatable.shape)
        changed, dirty = self._seen.news()
        if changed is None or dirty is None:
            changed = range(len(self._offered))
        if changed:
            where = np.array(sorted(set(changed)), np.int64)
            _add(self.allocatable, table.allocatable[where], self._offered[where])
            self._offered[where] = table.allocatable[where]
            self.largest, self.smallest = table.allocatable.max(axis=0).tolist(), table.allocatable.min(axis=0).tolist()
        touched = [*changed, *(dirty or ())]
        if touched:
            where = np.array(sorted(set(touched)), np.int64)
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
        for sums in (self.allocatable, self.charged, self.largest, self.smallest):
            sums += [0] * (columns - len(sums))


def _add(sums: list[int], now: np.ndarray, before: np.ndarray) -> None:
    """Rows `(rows, columns) int64` that were `before` are `now`."""
    for amounts, sign in ((now, 1), (before, -1)):
        high, low = (amounts >> 32).sum(axis=0).tolist(), (amounts & _LOW).sum(axis=0).tolist()
        for column, (h, rest) in enumerate(zip(high, low, strict=True)):
            sums[column] += sign * ((h << 32) + rest)


def totals(state: ClusterState) -> Totals:
    """Of the nodes as they are in the state."""
    return kept(state, Totals)


class Use:
    """What pods are charged, by column (terminating ones are not counted), and how many of them are ready in the sense of a gang: they have
    their node, or have succeeded."""

    __slots__ = ("ready", "used")

    def __init__(self) -> None:
        self.ready = 0
        self.used: Amounts = {}


_Wish = tuple[str, ShapeId, Group | None]
"""The queue that a pod waits in, its shape and its group."""
_Part = tuple[Hashable, bool, ShapeId | None]
"""What a pod's use counts for, whether it is ready there, and the shape that it is charged with."""


class _Uses:
    """Of what pods count for: a group, or a controller."""

    def __init__(self) -> None:
        self.of: dict[Any, Use] = {}
        self.parts: dict[PodUid, _Part] = {}

    def put(self, state: ClusterState, uid: PodUid, name: Hashable | None) -> tuple[_Part | None, _Part | None]:
        """A pod counts for this from now on, or for nothing. Returns what it was before and what it is; nothing where that is the same."""
        part: _Part | None = None
        if name is not None:
            charge = state.charges.get(uid)
            charged = charge.shape if charge is not None and not charge.releasing else None
            part = name, is_ready(state, uid, state.pods[uid].live), charged
        before = self.parts.pop(uid, None)
        if part is not None:
            self.parts[uid] = part
        if part == before:
            return None, None
        for entry, sign in ((before, -1), (part, 1)):
            if entry is not None:
                use = self.of.setdefault(entry[0], Use())
                use.ready += sign * entry[1]
                if entry[2] is not None:
                    _charge(use.used, state.vectors[entry[2]].items, sign)
        return before, part


class Ledger:
    """`waiting[queue][column]`: what pods ask for that wait for a node. `shapes[queue][shape]`: how many such pods;
    `incoming[queue][group][shape]` how many of each group. `groups`: of each group with pods that are ready or charged."""

    def __init__(self, state: ClusterState) -> None:
        self.waiting: dict[str, Amounts] = {}
        self.shapes: dict[str, dict[ShapeId, int]] = {}
        self.incoming: dict[str, dict[Group, dict[ShapeId, int]]] = {}
        self._uses = _Uses()
        self.groups: dict[Group, Use] = self._uses.of
        self._wishes: dict[PodUid, _Wish] = {}
        self._seen = Seen(state.moved)
        self._hopeless: dict[Group, tuple[PodGroupObserved | None, bool]] = {}
        self._offered: list[int] = []

    def is_hopeless(self, state: ClusterState, nodes: Totals, group: Group, shapes: dict[ShapeId, int]) -> bool:
        """`hopeless`, kept until the group, its pods or the nodes are others."""
        if nodes.allocatable != self._offered:
            self._hopeless, self._offered = {}, list(nodes.allocatable)
        known, spec = self._hopeless.get(group), state.pod_groups.get(group)
        if known is None or known[0] is not spec or spec is None:
            use = self.groups.get(group)
            known = spec, hopeless(state, nodes, group, shapes, use.ready if use is not None else 0)
            self._hopeless[group] = known
        return known[1]

    def refresh(self, state: ClusterState) -> None:
        [moved] = self._seen.news()
        wishes, parts = self._wishes, self._uses.parts
        changed: dict[_Wish, int] = {}
        for uid in dict.fromkeys([*wishes, *parts, *_anyone(state)] if moved is None else moved):
            if isinstance(uid, tuple):
                continue  # a slot of a Reservation
            pod = state.fact_of(uid)
            group = group_of(pod) if pod is not None else None
            wish: _Wish | None = None
            if pod is not None and state.awaits_placement(uid):
                wish = state.queue_of(pod), pod.shape, group
            before = wishes.get(uid)
            if wish != before:
                if before is not None:
                    changed[before] = changed.get(before, 0) - 1
                    del wishes[uid]
                if wish is not None:
                    changed[wish] = changed.get(wish, 0) + 1
                    wishes[uid] = wish
            if group is not None or uid in parts:
                self._regroup(state, uid, group)
        for wish, times in changed.items():
            if times:
                self._count(state, wish, times)

    def _count(self, state: ClusterState, wish: _Wish, times: int) -> None:
        queue, shape, group = wish
        _charge(self.waiting.setdefault(queue, {}), state.vectors[shape].items, times)
        _tally(self.shapes.setdefault(queue, {}), shape, times)
        if not self.shapes[queue]:
            del self.shapes[queue], self.waiting[queue]
        if group is not None:
            self._hopeless.pop(group, None)
            groups = self.incoming.setdefault(queue, {})
            _tally(groups.setdefault(group, {}), shape, times)
            if not groups[group]:
                del groups[group]
            if not groups:
                del self.incoming[queue]

    def _regroup(self, state: ClusterState, uid: PodUid, group: Group | None) -> None:
        """Who is neither ready nor charged counts for no group."""
        charge = state.charges.get(uid)
        if group is not None and (charge is None or charge.releasing) and not is_ready(state, uid, state.pods[uid].live):
            group = None
        if group is None and uid not in self._uses.parts:
            return  # it counted for none before
        for entry in self._uses.put(state, uid, group):
            if entry is not None:
                self._hopeless.pop(entry[0], None)  # type: ignore[call-overload]
                use = self.groups.get(entry[0])  # type: ignore[call-overload]
                if use is not None and not use.ready and not use.used:
                    del self.groups[entry[0]]  # type: ignore[arg-type]


def _tally(counts: dict[ShapeId, int], shape: ShapeId, times: int) -> None:
    counts[shape] = counts.get(shape, 0) + times
    if not counts[shape]:
        del counts[shape]


def _charge(amounts: Amounts, items: Sequence[tuple[int, int]], times: int) -> None:
    for column, amount in items:
        left = amounts.get(column, 0) + amount * times
        if left:
            amounts[column] = left
        else:
            del amounts[column]


def _anyone(state: ClusterState) -> Iterator[PodUid]:
    """All that may count."""
    yield from (*state.queue, *state.parked, *state.nominations)
    for members in state.groups.values():
        yield from members


def ledger(state: ClusterState) -> Ledger:
    """Of what waits and what groups use, as it is in the state."""
    return kept(state, Ledger)


class Owners:
    """`of(owner)`: what the pods of a controller use that are in no group. Of controllers that were asked for; O(their pods) the first time,
    then O(pods moved)."""

    def __init__(self, state: ClusterState) -> None:
        self._uses = _Uses()
        self._seen = Seen(state.moved)
        self._apis = (False, False)

    def refresh(self, state: ClusterState) -> None:
        [moved] = self._seen.news()
        apis = known_apis(state)
        if moved is None or apis != self._apis:
            self._uses, self._apis = _Uses(), apis
            return
        for uid in dict.fromkeys(moved):
            if isinstance(uid, tuple):
                continue
            pod = state.fact_of(uid)
            owner = pod.owner.uid if pod is not None and pod.owner is not None else None
            if uid in self._uses.parts or owner in self._uses.of:
                self._put(state, uid, pod, owner)

    def of(self, state: ClusterState, owner: str) -> Use:
        known = self._uses.of.get(owner)
        if known is None:
            known = self._uses.of[owner] = Use()
            for uid in state.owned.get(owner, ()):
                self._put(state, uid, state.fact_of(uid), owner)
        return known

    def _put(self, state: ClusterState, uid: PodUid, pod: PodObserved | None, owner: str | None) -> None:
        if uid not in self._uses.parts and (uid in state.queue or uid in state.parked):
            return  # who waits uses nothing
        counts = pod is not None and owner in self._uses.of and job_of(state, pod) is None
        self._uses.put(state, uid, owner if counts else None)


def owners(state: ClusterState) -> Owners:
    """Of what controllers' pods use, as it is in the state."""
    return kept(state, Owners)


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


def still_to_come(state: ClusterState, spec: PodGroupObserved, use: Use | None) -> dict[str, int]:
    """`minResources` less what the group uses."""
    if use is None:
        return spec.min_resources
    columns = state.table.columns
    left = {name: amount - use.used.get(columns.get(name, -1), 0) for name, amount in spec.min_resources.items()}
    return {name: amount for name, amount in left.items() if amount > 0}


def too_large(state: ClusterState, known: Totals, shape: ShapeId) -> bool:
    """Whether the shape asks for more of something than any node has, so that no node will ever take it as it is."""
    return any(amount > known.largest[column] for column, amount in state.vectors[shape].items)


def hopeless(state: ClusterState, nodes: Totals, group: Group, incoming: dict[ShapeId, int], ready: int) -> bool:
    """Whether a gang with these pods waiting and so many ready cannot be complete: it is not there, cannot be read, has too few
    pods, or the least that it needs is more than all nodes together have."""
    spec = state.pod_groups.get(group)
    if spec is None:
        return has_groups(state, group)
    missing = spec.min_member - ready
    if spec.invalid or missing > sum(incoming.values()):
        return True
    if missing <= 0:
        return False
    columns = {column for shape in incoming for column, _ in state.vectors[shape].items}
    for column in columns:
        amounts = sorted((dict(state.vectors[shape].items).get(column, 0), count) for shape, count in incoming.items())
        need, left = 0, missing
        for amount, count in amounts:
            need += amount * min(count, left)
            left -= min(count, left)
        if need > nodes.allocatable[column]:
            return True
    return False
