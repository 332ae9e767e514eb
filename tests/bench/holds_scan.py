"""The plain baseline for holds: for each pod a look at all of them, one after another, written from the rules and not from the
session's index. It knows what the benchmark's worlds have: owners by one label or one controller, allocatePolicy Aligned, no
devices, no preferences of the pods.

Of the holds that a pod owns and whose node has what the hold lacks, it takes the one that covers most of the request, then
the one that would be fullest, then the one whose Reservation was seen first (RULES 004-3); else the best node.
"""

import time
from collections.abc import Sequence

from restow.contracts import events as e
from restow.domain.state import ClusterState

from .session_scan import WHOLE, Scan


class _Hold:
    __slots__ = ("controller", "label", "left", "made", "once", "row", "turn", "uid")

    def __init__(self, uid: str, row: int, once: bool, turn: tuple, made: dict[str, int]) -> None:
        self.uid, self.row, self.once, self.turn = uid, row, once, turn
        self.label: tuple[str, str] | None = None
        self.controller = ""
        self.made = {resource: amount for resource, amount in made.items() if resource != "pods"}
        self.left = dict(made)


class HoldScan(Scan):
    def __init__(self, state: ClusterState) -> None:
        self.all_holds: list[_Hold] = []
        super().__init__(state)

    def _find_holds(self) -> None:
        state = self.state
        for uid in state.available:
            record = state.reservations[uid]
            spec = record.spec
            assert spec is not None, "an available Reservation"
            for name, slot in state.slots[uid].items():
                row, shape = self.rows[slot.node], state.shapes[slot.shape]
                self._charge(row, shape)
                hold = _Hold(uid, row, spec.allocate_once, (record.order, int(name.rpartition("-")[2])), shape.requests)
                owner = spec.owners[0]
                if owner.selector is not None:
                    [hold.label] = owner.selector.labels.items()
                elif owner.controller is not None:
                    hold.controller = owner.controller.name
                self.all_holds.append(hold)

    def take_all(self, pods: Sequence[e.PodObserved]) -> tuple[float, dict[str, tuple[str, str]]]:
        """Seconds, and node and Reservation of each pod that fits, one pod after another."""
        chosen: dict[str, tuple[str, str]] = {}
        started = time.perf_counter()
        for pod in pods:
            row, uid = self.take(pod)
            if row >= 0:
                chosen[pod.pod] = self.names[row], uid
        return time.perf_counter() - started, chosen

    def take(self, pod: e.PodObserved) -> tuple[int, str]:
        """The row that the pod gets, -1 where nothing fits, and the Reservation, empty where it takes none."""
        wanted = self.state.shapes[pod.shape].requests
        best: _Hold | None = None
        least: tuple = ()
        for hold in self.all_holds:
            if not _owns(pod, hold) or any(self.free[r][hold.row] + hold.left.get(r, 0) < a for r, a in wanted.items()):
                continue
            rank = (*_suits(wanted, hold), hold.turn)
            if best is None or rank < least:
                best, least = hold, rank
        if best is None:
            return self.place(pod), ""
        drawn = {resource: min(amount, best.left.get(resource, 0)) for resource, amount in wanted.items()}
        if best.once:
            self.all_holds.remove(best)
            drawn = best.left
        for resource, amount in drawn.items():
            self.free[resource][best.row] += amount
        if not best.once:
            best.left = {resource: amount - drawn.get(resource, 0) for resource, amount in best.left.items()}
        self._charge(best.row, self.state.shapes[pod.shape])
        return best.row, best.uid


def _owns(pod: e.PodObserved, hold: _Hold) -> bool:
    if hold.label is not None:
        return pod.labels.get(hold.label[0]) == hold.label[1]
    return pod.owner is not None and pod.owner.kind == "ReplicaSet" and pod.owner.name == hold.controller


def _suits(wanted: dict[str, int], hold: _Hold) -> tuple[int, int]:
    """The less, the better: what the hold covers of the request, and what would be taken of what it was made for."""
    covers = [min(amount, hold.left.get(r, 0)) * WHOLE // amount for r, amount in wanted.items() if r != "pods"]
    taken = {r: amount - hold.left[r] + wanted.get(r, 0) for r, amount in hold.made.items()}
    full = [taken[r] * WHOLE // amount if taken[r] <= amount else 0 for r, amount in hold.made.items()]
    return -(sum(covers) // len(covers)), -(sum(full) // len(full))
