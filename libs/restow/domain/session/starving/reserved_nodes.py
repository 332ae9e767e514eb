"""Nodes that tasks of starving jobs wait for: who may go there, and what fits there one day (seed 002, RULES 002-2).

The rule is the session's, whichever plugins there are: it holds in every action, for new holds and migration targets, too
(RULES G-8). Exempt are BestEffort tasks, hand-overs of holds, pods that the node was nominated for before, and the reserved
tasks themselves on their own nodes, one after the other: who comes later leaves to the earlier ones what they asked for.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import DeviceRequest
from restow.domain import resources
from restow.domain.device_choice import fullest
from restow.domain.node_table import NO_DEVICE, WHOLE, Vector
from restow.domain.quantity import CPU, format_resource
from restow.domain.session.framework import Filter
from restow.domain.session.jobs import is_best_effort
from restow.domain.state import ClusterState

RESERVED = "node(s) resource was(were) reserved"


class Reserved(Filter):
    """The reservations of a session: those of the state, and what the action `reserve` changes. A filter of the stage
    "reserved". In a session a node that was reserved stays so, though its task is placed: what is left is shared out in the
    next one."""

    stage, for_others = "reserved", True

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._at: dict[PodUid, int] = {}
        self._on: dict[int, dict[PodUid, None]] = {}
        self._placed: set[PodUid] = set()
        self._asked = np.zeros(state.table.free.shape, np.int64)
        self.mask = np.zeros(len(state.table.names), bool)
        """`(nodes,) bool`: rows with reserved tasks."""
        for pod, node in state.reserved_tasks.items():
            self.reserve(pod, state.table.rows[node])

    # -- who is reserved where ---------------------------------------------------------------------------------------

    def __contains__(self, pod: object) -> bool:
        return pod in self._at

    def tasks(self) -> list[PodUid]:
        """All that are reserved and not placed in this session, in their turns."""
        return sorted(self._at.keys() - self._placed, key=self._state.turn)

    def row(self, pod: PodUid) -> int:
        return self._at[pod]

    def leaves_capacity(self, v: Vector, rows: np.ndarray) -> np.ndarray:
        """`(rows,) bool`: where what is reserved and this request are no more than the node has; devices are not looked at."""
        left = self._state.table.allocatable[rows[:, None], v.columns] - self._asked[rows[:, None], v.columns]
        return np.asarray((left >= v.amounts).all(axis=1))

    def on(self, row: int) -> list[PodUid]:
        """The tasks reserved on a row that are not placed in this session, in their turns: by priority, then as the log saw
        them."""
        return sorted(self._on.get(row, {}).keys() - self._placed, key=self._state.turn)

    def reserve(self, pod: PodUid, row: int) -> None:
        self._at[pod] = row
        self._on.setdefault(row, {})[pod] = None
        self.mask[row] = True
        self._ask(pod, 1)

    def release(self, pod: PodUid) -> None:
        self._ask(pod, -1)
        self._placed.discard(pod)
        row = self._at.pop(pod)
        del self._on[row][pod]
        if not self._on[row]:
            del self._on[row]
            self.mask[row] = False

    def nodes(self, v: Vector, rows: np.ndarray, most: int, besides: bool) -> int:
        """At most how many such requests, of `most`, these rows have capacity for in all, `besides` what is reserved."""
        left = self._state.table.allocatable[rows[:, None], v.columns]
        if besides:
            left = left - self._asked[rows[:, None], v.columns]
        times = np.clip((left // v.amounts).min(axis=1), 0, most) if len(v.columns) else np.full(len(rows), most)
        return min(int(times.sum()), most)

    def _ask(self, pod: PodUid, sign: int) -> None:
        if pod not in self._placed:
            v = self._state.vectors[self._state.pods[pod].fact.shape]
            self._asked[self._at[pod], v.columns] += v.amounts * sign

    # -- the filter --------------------------------------------------------------------------------------------------

    def concerns(self, pod: PodObserved) -> bool:
        return bool(self._on) and not is_best_effort(self._state.shapes[pod.shape])

    def key(self, pod: PodObserved) -> Hashable:
        return pod.pod if pod.pod in self._at or pod.pod in self._state.nominations else self.stage

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, np.ndarray]]:
        mask = self.mask
        row = self._at.get(pod.pod)
        if row is not None and self._is_its_turn(pod, row):
            mask = mask.copy()
            mask[row] = False
        nomination = self._state.nominations.get(pod.pod)
        if nomination is not None:
            mask = mask.copy()
            mask[self._state.table.rows[nomination.node]] = False
        return [(RESERVED, mask)]

    def _is_its_turn(self, pod: PodObserved, row: int) -> bool:
        """Whether it would leave the earlier ones on its node what they ask for."""
        vectors = [self._state.vectors[self._state.pods[uid].fact.shape] for uid in before(self.on(row), pod.pod)]
        return not vectors or fits_behind(self._state, row, vectors, self._state.vectors[pod.shape])

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        if pod.pod in self._at:
            self._ask(pod.pod, -1)
            self._placed.add(pod.pod)

    def removed(self, pod: PodObserved, row: int) -> None:
        if pod.pod in self._placed:
            self._placed.discard(pod.pod)
            self._ask(pod.pod, 1)


def reserved_nodes(session: Any) -> Reserved:
    """The session's; it has one where tasks are reserved, or may be in this session (`registry.open_session`)."""
    return next(rule for rule in session.extensions.filters if isinstance(rule, Reserved))


def before(tasks: Sequence[PodUid], pod: PodUid) -> Sequence[PodUid]:
    """Those that come before this one, which is one of them."""
    return tasks[: tasks.index(pod)] if pod in tasks else tasks


def fits_behind(state: ClusterState, row: int, earlier: Iterable[Vector], v: Vector) -> bool:
    """Whether a request fits on what is free now, with what the earlier ones ask for set aside."""
    free, asked = state.table.free[row].tolist(), [*earlier, v]
    for one in asked:
        for column, amount in one.items:
            free[column] -= amount
    shares = state.table.device_free[row].tolist()
    return all(free[column] >= 0 for column, _ in v.items) and _share(shares, [one.devices for one in asked])


def fits_empty(state: ClusterState, row: int, asked: Sequence[Vector]) -> bool:
    """Whether all of these fit together on a node on which nothing else runs."""
    total = state.table.allocatable[row].tolist()
    for one in asked:
        for column, amount in one.items:
            total[column] -= amount
    shares = [WHOLE for share in state.table.device_free[row].tolist() if share > NO_DEVICE // 2]
    return all(total[column] >= 0 for one in asked for column, _ in one.items) and _share(shares, [one.devices for one in asked])


def _share(shares: list[int], requests: Iterable[DeviceRequest | None]) -> bool:
    """Whether the devices suffice, chosen one request after the other as `NodeTable.choose_devices` does."""
    for request in requests:
        if request is None:
            continue
        chosen = fullest(shares, request)
        if chosen is None:
            return False
        for i in chosen:
            shares[i] -= request.milli
    return True


# -- in words --------------------------------------------------------------------------------------------------------


def sentence(state: ClusterState, pod: PodUid) -> str:
    """What a reserved task waits for, for people: `reserved on node a (its job starves); waits there for cpu (asks for 3,
    1 free)`. Empty for any other pod."""
    node = state.reserved_tasks.get(pod)
    if node is None:
        return ""
    tasks = sorted(state.reserved_on[node], key=state.turn)
    earlier = before(tasks, pod)
    v, vectors = state.vectors[state.pods[pod].fact.shape], [state.vectors[state.pods[uid].fact.shape] for uid in earlier]
    said = f"reserved on node {node} (its job starves)"
    row = state.table.rows[node]
    if fits_behind(state, row, vectors, v):
        return f"{said}, where it fits now; waits for the rest of its job"
    short = _short(state, node, vectors, v)
    behind = f", behind {len(earlier)} reserved there before" if earlier else ""
    return f"{said}; waits there{behind} for {' and '.join(short) or 'GPUs'}"


def _short(state: ClusterState, node: NodeName, earlier: Sequence[Vector], v: Vector) -> list[str]:
    """Each resource that is short, with what is free of it."""
    names = state.table.resources
    free = state.table.free[state.table.rows[node]].tolist()
    for one in earlier:
        for column, amount in one.items:
            free[column] -= amount
    lacking = {names[c]: (amount, max(free[c], 0)) for c, amount in v.items if free[c] < amount}
    return [_shortage(name, *lacking[name]) for name in resources.ordered(lacking)]


def _shortage(resource: str, asked: int, free: int) -> str:
    if resource == resources.GPU_MILLI:
        # Thousandths, as those of cpu are.
        return f"gpu (asks for {format_resource(CPU, asked)}, {format_resource(CPU, free)} free)"
    return f"{resource} (asks for {format_resource(resource, asked)}, {format_resource(resource, free)} free)"
