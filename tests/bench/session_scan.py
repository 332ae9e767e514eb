"""The plain baseline: for each pod a pass over all nodes in NumPy, written from the rules and not from the session.

A node will do if it has capacity, devices, no pod of the same app where the pod demands that, and if its zone is not ahead of the
emptiest by more than the skew. The best has the most left: of each of cpu and memory (and GPU for pods with devices) the
part that stays free, in ten-thousandths; their mean, and 10 000 less half the distance between the largest and the smallest;
the lexicographically first name among equals. An owner takes its Reservation's hold without a look at other nodes.
"""

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from restow.contracts import events as e
from restow.contracts.values import PodShape
from restow.domain.state import ClusterState

WHOLE = 10_000
DEVICE = 1_000
GPU = "restow.dev/gpu-milli"
GROUP = "scheduling.k8s.io/group-name"
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


class Scan:
    """Reads facts, and who is where; `names` are sorted, so that the first of the best rows is the first name. `free` and
    `whole` are a `(nodes,) int64` for each resource."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state
        self.names = sorted(state.nodes)
        self.rows = {name: row for row, name in enumerate(self.names)}
        nodes = [state.nodes[name] for name in self.names]
        resources = sorted({r for node in nodes for r in node.allocatable})
        self.whole = {r: np.array([node.allocatable.get(r, 0) for node in nodes]) for r in resources}
        self.free = {r: amounts.copy() for r, amounts in self.whole.items()}
        zones = sorted({node.labels.get(ZONE, "") for node in nodes})
        self.zone = np.array([zones.index(node.labels.get(ZONE, "")) for node in nodes])
        most = max((node.devices for node in nodes), default=0)
        self.devices = np.array([[DEVICE] * node.devices + [0] * (most - node.devices) for node in nodes]).reshape(len(nodes), most)
        self.here: dict[str, np.ndarray] = {}
        self.in_zone: dict[str, np.ndarray] = {}
        self.holds: list[tuple[dict[str, str], str, int]] = []
        self._find_running()
        self._find_holds()

    def _find_running(self) -> None:
        state = self.state
        for uid, pod in state.pods.items():
            name = state.placed[uid].node if uid in state.placed else pod.live.node
            if name:
                self._charge(self.rows[name], state.shapes[pod.fact.shape])

    def _find_holds(self) -> None:
        """In the order of their Reservations, then of their names."""
        state = self.state
        for uid in state.available:
            spec = state.reservations[uid].spec
            for _, slot in sorted(state.slots[uid].items()):
                row = self.rows[slot.node]
                self._charge(row, state.shapes[slot.shape])
                self.holds.append((spec.owners[0].selector.labels, slot.shape, row))  # type: ignore[union-attr]

    def all(self, pods: Sequence[e.PodObserved]) -> tuple[float, dict[str, str]]:
        """Seconds, and the node of each pod that fits, one pod after another."""
        chosen: dict[str, str] = {}
        started = time.perf_counter()
        for pod in pods:
            row = self.place(pod)
            if row >= 0:
                chosen[pod.pod] = self.names[row]
        return time.perf_counter() - started, chosen

    def place(self, pod: e.PodObserved) -> int:
        """The row that the pod gets, -1 where nothing fits."""
        if self.holds and (row := self._hold_of(pod)) >= 0:
            return row
        shape = self.state.shapes[pod.shape]
        able = self._capacity(shape)
        app = pod.labels.get("app", "")
        if shape.pod_anti_affinity:
            able &= ~self._here(app)
        for rule in shape.spread:
            counts = self._in_zone(app)
            able &= (counts + 1 - counts.min() <= rule.max_skew)[self.zone]
        row = int(np.where(able, self._scores(shape), -1).argmax())
        if not able[row]:
            return -1
        self._charge(row, shape)
        if shape.pod_anti_affinity:
            self._here(app)[row] = True
        if shape.spread:
            self._in_zone(app)[self.zone[row]] += 1
        return row

    def _hold_of(self, pod: e.PodObserved) -> int:
        for i, (labels, shape, row) in enumerate(self.holds):
            if shape == pod.shape and all(pod.labels.get(key) == value for key, value in labels.items()):
                del self.holds[i]
                return row
        return -1

    def _capacity(self, shape: PodShape) -> np.ndarray:
        able = np.ones(len(self.names), bool)
        for resource, amount in shape.requests.items():
            able &= self.free[resource] >= amount
        if shape.devices is not None:
            able &= (self.devices >= shape.devices.milli).sum(axis=1) >= shape.devices.count
        return able

    def _scores(self, shape: PodShape) -> np.ndarray:
        counted = ("cpu", "memory") if shape.devices is None else ("cpu", "memory", GPU)
        parts = []
        for resource in counted:
            left = np.maximum(self.free[resource] - shape.requests.get(resource, 0), 0)
            parts.append(left * WHOLE // np.maximum(self.whole[resource], 1))
        most, least = parts[0], parts[0]
        for part in parts[1:]:
            most, least = np.maximum(most, part), np.minimum(least, part)
        mean: np.ndarray = sum(parts[1:], parts[0]) // len(parts)
        return mean + WHOLE - (most - least) // 2

    def _charge(self, row: int, shape: PodShape) -> None:
        for resource, amount in shape.requests.items():
            self.free[resource][row] -= amount
        if shape.devices is not None:
            # The fullest devices that will do, as the session takes them: later pods see what is left.
            fullest = sorted((free, i) for i, free in enumerate(self.devices[row].tolist()) if free >= shape.devices.milli)
            for _, i in fullest[: shape.devices.count]:
                self.devices[row, i] -= shape.devices.milli

    def _here(self, app: str) -> np.ndarray:
        """`(nodes,) bool`: where a pod of the app is."""
        return self.here.setdefault(app, np.zeros(len(self.names), bool))

    def _in_zone(self, app: str) -> np.ndarray:
        """`(zones,) int64`: how many pods of the app are there."""
        return self.in_zone.setdefault(app, np.zeros(int(self.zone.max()) + 1, np.int64))


def in_turn(state: ClusterState, uids: Iterable[str]) -> list[e.PodObserved]:
    """As the session takes them, all of one priority, nobody of whose controllers runs: gangs first, by their order; then one of each controller, as
    the log saw them; then always one of the controller that has the least dominant share, in billionths."""
    pods = sorted((state.pods[uid].fact for uid in uids), key=lambda pod: state.pods[pod.pod].order)  # type: ignore[index]
    groups = {name: order for (_, name), order in state.group_order.items()}
    gangs = [pod for pod in pods if pod.annotations.get(GROUP) in groups]
    whole: Counter[str] = Counter()
    for node in state.nodes.values():
        whole.update(node.allocatable)
    waiting: dict[str, deque[e.PodObserved]] = {}
    for pod in pods:
        if pod.annotations.get(GROUP) not in groups:
            waiting.setdefault(pod.owner.uid if pod.owner else pod.pod, deque()).append(pod)
    used: dict[str, Counter[str]] = {who: Counter() for who in waiting}
    turns = [(0, 0, state.pods[own[0].pod].order, who) for who, own in waiting.items()]
    heapify(turns)
    taken = sorted(gangs, key=lambda pod: groups[pod.annotations[GROUP]])
    while turns:
        *_, who = heappop(turns)
        pod = waiting[who].popleft()
        taken.append(pod)
        used[who].update(state.shapes[pod.shape].requests)
        if waiting[who]:
            share = max(amount * 10**9 // whole[name] for name, amount in used[who].items() if whole[name])
            heappush(turns, (1, share, state.pods[waiting[who][0].pod].order, who))
    return taken
