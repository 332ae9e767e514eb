"""Who may be evicted at all, and which holds may be given up, as columns that follow the state: O(pods and holds moved) a
session, and vectorised from there. And by amounts alone, which nodes could be freed for a request, and at what cost: what plugins and rules add can only make
a node's highest victim more important, so this is where a search begins.

Whether one of them is a victim for somebody is for plugins to say (`preemptable`, `reclaimable`); here is what no plugin is asked about."""

from collections.abc import Iterable

import numpy as np

from restow.contracts.events import BudgetObserved, PodObserved
from restow.contracts.ids import Millis, NodeName, PodUid, ShapeId
from restow.contracts.values import LabelSelector
from restow.domain.changes import Seen
from restow.domain.fragmentation import is_load
from restow.domain.groups import group_of
from restow.domain.occupants import Who
from restow.domain.protection import NO, PREEMPTABLE, Budgets, asked_to_stay, is_critical
from restow.domain.records import SlotPhase
from restow.domain.reservation.owner_matching import is_migration_hold
from restow.domain.session.preemption.future_idle import FutureIdle
from restow.domain.session.session import Session
from restow.domain.slots import SlotKey
from restow.domain.state import ClusterState

VACANT = -1
LEAVING = "they are leaving or being moved already"


def may_go(state: ClusterState, uid: PodUid) -> bool:
    """Whether a pod can be a victim."""
    return not stays(state, uid)


def stays(state: ClusterState, uid: PodUid) -> str:
    """Why a pod can be no victim, as it is said of several; empty of one that can: ours, bound, not on its way out, not one that its node or its controller would bring
    back to the same place, or whose capacity would be a hold's again, and not one that is to stay whoever asks."""
    charge, live = state.charges.get(uid), state.live_of(uid)
    if charge is None or charge.releasing or live is None or live.node is None:
        return LEAVING
    pod = state.pods[uid].fact
    if not state.ours(pod):
        return "they are another scheduler's"
    if is_critical(state, pod):
        return "the cluster lives on them (system-critical)"
    if said := asked_to_stay(pod):
        return f"they say {said}"
    if pod.annotations.get(PREEMPTABLE) in NO:
        return f"they say {PREEMPTABLE}: {pod.annotations[PREEMPTABLE]}"
    return "they belong to their nodes, or what they have is a hold's" if not is_load(state, uid) or state.owes(uid) else ""


def may_be_given_up(state: ClusterState, key: SlotKey) -> bool:
    """Whether a hold may be taken from its Reservation: nobody has anything of it, and it is no migration's (RULES G-7)."""
    slot, record = state.slots.get(key[0], {}).get(key[1]), state.reservations.get(key[0])
    if slot is None or record is None or slot.phase is not SlotPhase.HELD or slot.node not in state.table.rows:
        return False
    return key not in state.slot_users and not is_migration_hold(state, record)


def since(state: ClusterState, uid: PodUid) -> Millis:
    """When it started, as far as anybody knows."""
    return state.pods[uid].live.started or state.pods[uid].fact.created


class Evictable:
    """Entries of pods and of holds (`hold`), `(entries,) int64` each: `row` (VACANT where there is none), `queue` (a number), `priority`, `least` (its job's
    priority is at least that), `since`, `order`, `kept` (by a budget that lets nobody go); `amounts` is `(entries, resources) int64`."""

    def __init__(self, state: ClusterState) -> None:
        self._slots: dict[Who, int] = {}
        self._free: list[int] = []
        self._queues: dict[str, int] = {}
        self._seen = Seen(state.moved, state.objects, state.reviewed)
        self._budgets: dict[str, BudgetObserved] = {}
        self._columns(64, 0)

    def _columns(self, entries: int, resources: int) -> None:
        self.row = np.full(entries, VACANT, np.int64)
        self.kept, self.hold = np.zeros(entries, bool), np.zeros(entries, bool)
        self.queue, self.priority, self.least, self.since, self.order = (np.zeros(entries, np.int64) for _ in range(5))
        self.amounts = np.zeros((entries, resources), np.int64)

    def slot(self, who: Who) -> int | None:
        """Of its entry; None where it has none."""
        return self._slots.get(who)

    def number(self, queue: str) -> int:
        """Of a queue; of one that nobody is in, too."""
        return self._queues.setdefault(queue, len(self._queues))

    def refresh(self, state: ClusterState) -> None:
        moved, objects, reviewed = self._seen.news()
        changed = self._changed(state)
        if moved is None or objects is None or reviewed is None or any(kind == "priority_classes" for kind, _ in objects):
            self._build(state)
            return
        if self.amounts.shape[1] < len(state.table.columns):
            more = len(state.table.columns) - self.amounts.shape[1]
            self.amounts = np.pad(self.amounts, ((0, 0), (0, more)))
        for uid in dict.fromkeys(moved):
            if isinstance(uid, str):
                self._set(state, PodUid(uid))
            else:
                self._set_hold(state, uid)
        for reservation in dict.fromkeys(reviewed):
            for name in state.slots.get(reservation, ()):
                self._set_hold(state, (reservation, name))
        self._keep(state, {budget.namespace for budget in changed}, moved)

    def _changed(self, state: ClusterState) -> list[BudgetObserved]:
        """Budgets that are about other pods than before, or let somebody go now, or nobody any more."""
        before, now = self._budgets, state.budgets
        self._budgets = dict(now)
        both = [(before.get(path), now.get(path)) for path in {**before, **now} if before.get(path) is not now.get(path)]
        return [new or old for old, new in both if _says(old) != _says(new) and (new or old)]  # type: ignore[misc]

    def _keep(self, state: ClusterState, spaces: set[str], moved: Iterable[object]) -> None:
        """Who is kept by a budget, of those that have moved or whose budgets have."""
        if not state.budgets:
            self.kept[:] = False
            return
        again = {PodUid(uid) for uid in moved if isinstance(uid, str) and uid in self._slots}
        if spaces:
            again |= {uid for uid in self._slots if isinstance(uid, str) and state.pods[uid].fact.namespace in spaces}  # type: ignore[misc]
        if again:
            budgets = Budgets(state)
            for uid in again:
                self.kept[self._slots[uid]] = budgets.keep(uid)

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
        self.priority[:n] = [state.shapes[state.pods[uid].fact.shape].priority for uid in uids]
        self.least[:n] = [_least(state, uid) for uid in uids]
        self.since[:n] = [since(state, uid) for uid in uids]
        self.order[:n] = [state.pods[uid].order for uid in uids]
        self._keep(state, set(), uids)
        by_shape: dict[ShapeId, list[int]] = {}
        for slot, charge in enumerate(charges):
            by_shape.setdefault(charge.shape, []).append(slot)
        for shape, slots in by_shape.items():
            v = state.vectors[shape]
            self.amounts[np.array(slots)[:, None], v.columns] = v.amounts
        for keys in state.held_on.values():
            for key in keys:
                self._set_hold(state, key)

    def _set(self, state: ClusterState, uid: PodUid) -> None:
        if not may_go(state, uid):
            self._drop(uid)
            return
        charge, pod = state.charges[uid], state.pods[uid].fact
        slot = self._put(state, uid, charge.node, charge.queue, charge.shape)
        self.priority[slot] = state.shapes[pod.shape].priority
        self.least[slot] = _least(state, uid)
        self.since[slot], self.order[slot] = since(state, uid), state.pods[uid].order

    def _set_hold(self, state: ClusterState, key: SlotKey) -> None:
        if not may_be_given_up(state, key):
            self._drop(key)
            return
        held, record = state.slots[key[0]][key[1]], state.reservations[key[0]]
        slot = self._put(state, key, held.node, held.queue, held.shape)
        self.priority[slot] = self.least[slot] = state.shapes[held.shape].priority
        self.since[slot], self.order[slot] = record.fact.created, record.order
        self.hold[slot] = True

    def _drop(self, who: Who) -> None:
        slot = self._slots.pop(who, None)
        if slot is not None:
            self.row[slot] = VACANT
            self._free.append(slot)

    def _put(self, state: ClusterState, who: Who, node: NodeName, queue: str, shape: ShapeId) -> int:
        slot = self._slots.get(who)
        if slot is None:
            slot = self._slots[who] = self._free.pop() if self._free else len(self._slots)
            if slot >= len(self.row):
                self._grow()
        self.row[slot], self.queue[slot] = state.table.rows[node], self.number(queue)
        self.kept[slot] = self.hold[slot] = False
        self.amounts[slot] = 0
        v = state.vectors[shape]
        self.amounts[slot, v.columns] = v.amounts
        return slot

    def _grow(self) -> None:
        size = len(self.row)
        self.row = np.concatenate([self.row, np.full(size, VACANT, np.int64)])
        for name in ("queue", "priority", "least", "since", "order", "kept", "hold"):
            old = getattr(self, name)
            setattr(self, name, np.concatenate([old, np.zeros_like(old)]))
        self.amounts = np.concatenate([self.amounts, np.zeros_like(self.amounts)])


def _says(budget: BudgetObserved | None) -> tuple[LabelSelector | None, bool, bool]:
    return (None, True, True) if budget is None else (budget.selector, budget.allowed > 0, budget.unready)


def _least(state: ClusterState, uid: PodUid) -> int:
    """A gang's priority is its class's; otherwise at least that of each of its pods (`jobs.gang`)."""
    pod = state.pods[uid].fact
    group = group_of(pod) if pod.annotations else None
    spec = state.pod_groups.get(group) if group is not None else None
    named = state.priority_classes.get(spec.priority_class) if spec is not None else None
    return named.value if named is not None else state.shapes[pod.shape].priority


Key = tuple[int, int, int, int, int]
"""What it costs to free a node, the cheapest first, as kube-scheduler orders them: the highest priority among the victims,
the sum of their priorities (each from the least that there is, so that more victims cost more), how many they are, when the
first of the highest ones started (the latest is the cheapest), and the node's name."""

FREE = -(1 << 62)
"""In place of a priority, where there is no victim."""
LEAST_PRIORITY = -(1 << 31)


class Candidates:
    """Those who come into question for a claimer, row by row, in each the most important first."""

    def __init__(self, evictable: Evictable, chosen: np.ndarray) -> None:
        at = np.flatnonzero(chosen)
        # A priority has 32 bits: row and priority are one key.
        key = (evictable.row[at] << 33) + (1 << 32) - evictable.priority[at]
        at = at[np.lexsort((evictable.order[at], evictable.since[at], key))]
        self.priority, self.since, self.amounts = evictable.priority[at], evictable.since[at], evictable.amounts[at]
        self.rows, self.first, self.count = np.unique(evictable.row[at], return_index=True, return_counts=True)

    @staticmethod
    def of(evictable: Evictable, queue: str, other_queues: bool, below: int | None, holds_below: int, spared: Iterable[Who]) -> "Candidates":
        """Of the same queue or of all others; `below`: only whose job may have a lower priority. Holds of the same queue that are
        below `holds_below` come into question, too. Who is `spared` does not, whatever it is."""
        number = evictable.number(queue)
        chosen = (evictable.row != VACANT) & ~evictable.kept
        chosen &= (evictable.queue != number) if other_queues else (evictable.queue == number)
        pods = ~evictable.hold if below is None else ~evictable.hold & (evictable.least < below)
        chosen &= pods if other_queues else pods | (evictable.hold & (evictable.priority < holds_below))
        slots = [slot for who in spared if (slot := evictable.slot(who)) is not None]
        chosen[slots] = False
        return Candidates(evictable, chosen)


def ranked(session: Session, coming: FutureIdle, pod: PodObserved, line: Candidates, open_rows: np.ndarray) -> list[tuple[Key, int]]:
    """(key, row), the cheapest first, of the rows in `open_rows` `(nodes,) bool` where there is enough capacity once all of the
    line have gone. Of devices only those that are asked for together are counted, as amounts."""
    table, v = session.state.table, session.state.vectors[pod.shape]
    columns = v.columns
    free = table.free[:, columns] + table.releasing[:, columns] + coming.amounts[:, columns]
    amounts = line.amounts[:, columns]
    if len(line.rows):
        free[line.rows] += np.add.reduceat(amounts, line.first, axis=0)
    able = open_rows & (free >= v.amounts).all(axis=1)
    nodes = len(able)
    worst = np.full(nodes, FREE, np.int64)
    total, count, since = (np.zeros(nodes, np.int64) for _ in range(3))
    here = able[line.rows] if len(line.rows) else np.zeros(0, bool)
    rows, first, many = line.rows[here], line.first[here], line.count[here]
    for nth in range(int(many.max()) if len(many) else 0):
        still = many > nth
        row, at = rows[still], first[still] + nth
        stays = (free[row] - amounts[at] >= v.amounts).all(axis=1)
        free[row[stays]] -= amounts[at[stays]]
        row, at = row[~stays], at[~stays]
        highest = count[row] == 0
        worst[row[highest]], since[row[highest]] = line.priority[at[highest]], line.since[at[highest]]
        total[row] += line.priority[at] - LEAST_PRIORITY
        count[row] += 1
    found = np.flatnonzero(able)
    keys = (worst[found], total[found], count[found], -since[found], table.rank[found])
    order = np.lexsort(keys[::-1])
    columns_of = [key[order].tolist() for key in keys]
    return list(zip(zip(*columns_of, strict=True), found[order].tolist(), strict=True))  # type: ignore[arg-type]
