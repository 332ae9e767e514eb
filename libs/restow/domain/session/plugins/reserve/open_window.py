"""What one window keeps free in one session (seed 001, OpenSession and PredicateFn)."""

from collections.abc import Iterable

import numpy as np

from restow.contracts.events import NodeObserved, PodObserved
from restow.contracts.ids import PodUid
from restow.domain.accounts import by_column, charge
from restow.domain.node_table import MOST
from restow.domain.predicates import static_mask
from restow.domain.session.plugins.reserve.args import ReserveLabel
from restow.domain.session.plugins.reserve.forbidden import enough, forbidden
from restow.domain.session.plugins.reserve.reserve_tasks import (
    Index,
    Released,
    scheduled_at,
    uses_capacity,
)
from restow.domain.session.plugins.reserve.windows import Window
from restow.domain.session.session import Session
from restow.domain.state import ClusterState


class Selected:
    """`mask` `(nodes,) bool`: the nodes of a selector that a pod can be put on at all."""

    def __init__(self, selector: dict[str, str]) -> None:
        self._selector = selector
        self._seen = 0
        self.mask = np.zeros(0, bool)

    @classmethod
    def of(cls, state: ClusterState, selector: dict[str, str]) -> np.ndarray:
        """Must not be changed."""
        kept = state.memo.make(_Selectors)
        key = tuple(sorted(selector.items()))
        selected = kept.get(key)
        if selected is None:
            selected = kept[key] = cls(selector)
        selected._refresh(state)
        return selected.mask

    def _refresh(self, state: ClusterState) -> None:
        size = len(state.table.names)
        changed = state.changed_rows.since(self._seen)
        rows: Iterable[int] = range(size) if changed is None else {*changed, *range(len(self.mask), size)}
        self.mask = np.concatenate([self.mask, np.zeros(size - len(self.mask), bool)])
        for row in rows:
            node = state.nodes.get(state.table.names[row])
            self.mask[row] = node is not None and self._takes(node)
        self._seen = state.changed_rows.position

    def _takes(self, node: NodeObserved) -> bool:
        if not node.ready or node.unschedulable:
            return False
        return all(node.labels.get(key) == value for key, value in self._selector.items())


class _Selectors(dict[tuple[tuple[str, str], ...], Selected]):
    """By the labels that a selector asks for."""


class Kept:
    """`rows` `(nodes,) bool` are the selector's nodes. `scheduled` counts reserve tasks that were placed there since the
    window's lead start and still exist; `allocated` and `pending` are their requests, by column, and of those that wait and
    could run there."""

    def __init__(self, session: Session, label: ReserveLabel, window: Window) -> None:
        self._session, self._label, self._window = session, label, window
        state = session.state
        self.rows = Selected.of(state, label.nodeSelector)
        self._at = np.flatnonzero(self.rows)
        self._place = {row: i for i, row in enumerate(self._at.tolist())}
        index = Index.of(state)
        table = state.table
        self._extra = table.releasing[self._at]
        if session.now < window.start:
            # Once it has started nothing is released before it any more (RULES 001-2).
            self._extra = self._extra + Released.of(state, index, window.start)[self._at]
        self._most = MOST // max(len(self._at), 1)
        self._idle = self._future(self._at, self._extra)
        self._total: list[int] = self._idle.sum(axis=0).tolist()
        self._seen = len(session.nodes.changes)
        self.configured = _offered(state, label, self._at)
        self._forbidden: np.ndarray | None = None
        self.scheduled = 0
        self.allocated: dict[int, int] = {}
        self.pending: dict[int, int] = {}
        self._waiting: dict[PodUid, None] = {}
        self._could: dict[tuple[str, str], bool] = {}
        self._count(index)

    def denies(self, pod: PodObserved) -> bool:
        """Whether a pod that is no reserve task is kept off the forbidden nodes: the rules of PredicateFn from the third on
        (RULES 001-3); within the window is where this exists."""
        if not self.waits:
            return False
        self._refresh()
        tasks = dict(self.allocated)
        charge(tasks, self.pending.items())
        request = dict(self._session.state.vectors[pod.shape].items)
        return not enough(self._total, request, tasks, self.configured)

    @property
    def waits(self) -> bool:
        """Whether there is anything to keep, and reserve tasks are still to come."""
        limit = self._label.podNumToReserve
        return len(self._at) > 0 and bool(self.configured) and not (limit and self.scheduled >= limit)

    @property
    def forbidden(self) -> np.ndarray:
        """`(nodes,) bool`: the selector's nodes that are kept for reserve tasks. Chosen when a session first denies somebody,
        by what is idle then: as long as everybody is permitted it does not matter, and before that the session may have
        filled the nodes that were the emptiest when it opened. From then on they stay."""
        if self._forbidden is None:
            self._refresh()
            table, columns = self._session.state.table, list(self.configured)
            chosen = forbidden(
                table.allocatable[self._at][:, columns],
                self._idle[:, columns],
                list(self.configured.values()),
                table.rank[self._at],
            )
            self._forbidden = np.zeros(len(self.rows), bool)
            self._forbidden[self._at[chosen]] = True
        return self._forbidden

    def placed(self, pod: PodObserved, row: int, sign: int) -> None:
        """The session has placed a reserve task, or (with sign -1) taken it back."""
        items = self._session.state.vectors[pod.shape].items
        if pod.pod in self._waiting:
            charge(self.pending, items, -sign)
        if row in self._place:
            self.scheduled += sign
            charge(self.allocated, items, sign)

    def _count(self, index: Index) -> None:
        state = self._session.state
        for uid in index.tasks:
            pod = state.pods[uid].fact
            items = state.vectors[pod.shape].items
            if state.awaits_placement(uid):
                if self._could_run(pod):
                    self._waiting[uid] = None
                    charge(self.pending, items)
                continue
            at, node = scheduled_at(state, uid), state.node_of(uid)
            if at is None or at < self._window.opens or node is None or state.table.rows.get(node, -1) not in self._place:
                continue
            self.scheduled += 1
            if uses_capacity(state, uid):
                charge(self.allocated, items)

    def _could_run(self, pod: PodObserved) -> bool:
        """Whether rules about nodes let a waiting reserve task run on one of the selector's."""
        key = pod.shape, pod.pinned_node
        known = self._could.get(key)
        if known is None:
            state = self._session.state
            if pod.pinned_node:
                row = state.table.rows.get(pod.pinned_node, -1)
                known = row in self._place and bool(static_mask(state, pod.shape)[row])
            else:
                known = bool((static_mask(state, pod.shape) & self.rows).any())
            self._could[key] = known
        return known

    def _future(self, at: np.ndarray, extra: np.ndarray) -> np.ndarray:
        """`(rows, resources) int64`: what is unused, plus what will be released in time; nothing where facts over-commit."""
        return np.clip(self._session.state.table.free[at] + extra, 0, self._most)

    def _refresh(self) -> None:
        """Take what the session has charged since into account."""
        changes = self._session.nodes.changes
        for row in dict.fromkeys(changes[self._seen :]):
            i = self._place.get(row)
            if i is None:
                continue
            now = self._future(self._at[i : i + 1], self._extra[i : i + 1])[0]
            for column, change in enumerate((now - self._idle[i]).tolist()):
                self._total[column] += change
            self._idle[i] = now
        self._seen = len(changes)


def _offered(state: ClusterState, label: ReserveLabel, at: np.ndarray) -> dict[int, int]:
    """The configured amounts by column, of resources that a node of the selector has: no waiting frees capacity for others."""
    columns = by_column(label.columns, state.table.columns)
    return {column: columns[column] for column in sorted(columns) if (state.table.allocatable[at, column] > 0).any()}
