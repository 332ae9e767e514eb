"""Planner `claims`: frees whole devices by claim of the parts that are in use, such as GPUs of MIG slices.

A whole device is emptied wholly or not at all: each pod that has a part of it moves to a node where its scheduler will give it a part of a device that is in use already. Which
part that is, is the scheduler's choice. It is foreseen as kube-scheduler 1.36 makes it: the first device that does (`held_by_claim.Free`). No pod goes to a node that another
one leaves: what becomes free there would be another choice. Of two that go to one node and ask for different devices the second waits for the first, for that one's choice
is a part of what is foreseen.

Those with the fewest pods are emptied first. One must gain `minimumGain` thousandths of a device for each pod that moves.
"""

from collections.abc import Iterator

from restow.contracts.ids import MigrationId, NodeName, PodUid
from restow.contracts.values import Move
from restow.domain.claim_devices import ClaimDevice, ClaimDevices, Count, claim_devices
from restow.domain.defragmentation.optimizing.world import Rows
from restow.domain.defragmentation.plan import Found, Stays, Task
from restow.domain.defragmentation.simulation import Simulation, Spot, simulated
from restow.domain.held_by_claim import Free, Wanted, owed_on, wanted
from restow.domain.verdicts import LIMIT, NO_GAIN, NO_TARGET, Stay, stay

Whole = tuple[str, str, str]
"""Driver, pool, and the name of a device with all of its parts."""
THOUSAND = 1000


def plan(task: Task, stays: Stays) -> Found:
    """The state stays as it is."""
    with simulated(task.state, task.time) as simulation:
        return _Compaction(simulation, task, stays).run()


def wholes_of(device: ClaimDevice) -> Iterator[Whole]:
    return ((device.driver, device.pool, whole) for whole in device.wholes)


def worth_freeing(known: ClaimDevices, node: NodeName) -> set[Whole]:
    """What is free once nobody has a part of it: of a whole device not all parts are tainted, and all slices of its pool are there."""
    return {whole for device in known.on(node) if not device.closed_by and known.is_complete((device.driver, device.pool)) for whole in wholes_of(device)}


class _Compaction:
    """One plan as it comes about."""

    def __init__(self, simulation: Simulation, task: Task, stays: Stays) -> None:
        self._simulation, self._task, self._state, self._stays = simulation, task, task.state, stays
        self._known, self._rows = claim_devices(task.state), Rows(task)
        self._quota = task.scope.quota.copy()
        self._moves: list[Move] = []
        self._ends: dict[PodUid, Spot] = {}
        self._why: dict[PodUid, Stay] = {}
        self._left = {NodeName(record.move.source) for record in task.state.migrations.values()}
        """What becomes free there is another choice: of this plan's moves, and of those that are under way."""
        self._joined: dict[NodeName, list[tuple[MigrationId, Wanted]]] = {}
        """Who goes there, in their order, and what they ask for."""
        self._free: dict[NodeName, Free] = {}
        self._given: dict[NodeName, list[Wanted]] = {}
        self._first: dict[tuple[NodeName, Wanted], ClaimDevice | None] = {}
        self._busy: dict[NodeName, set[Whole]] = {}

    def run(self) -> Found:
        used = self._used()
        for (node, whole), pods in sorted(used.items(), key=lambda one: (len(one[1]), one[0])):
            if node in self._joined or self._expects(node) or any(uid in self._ends for uid in pods):
                continue
            if isinstance(said := self._free_up(node, whole, pods), Stay):
                for uid in pods:
                    self._why.setdefault(uid, said)
        for (node, _), pods in used.items():
            for uid in pods:
                if uid not in self._ends and uid in self._state.pods and (why := self._why.pop(uid, None)) is not None:
                    self._stays(uid, node, why)
        return Found(self._moves, self._ends)

    def _used(self) -> dict[tuple[NodeName, Whole], list[PodUid]]:
        """Of each whole device that somebody has a part of, on nodes that something may leave, who that is. Not of those that nobody could have afterwards."""
        found: dict[tuple[NodeName, Whole], dict[PodUid, None]] = {}
        for node, row in self._state.table.rows.items():
            for device in self._known.on(node) if self._rows.sources[row] else ():
                pods = [pod for claim in device.claims for pod in self._state.resource_claims[claim].reserved or (PodUid(""),)]
                for whole in wholes_of(device) if pods else ():
                    found.setdefault((node, whole), {}).update(dict.fromkeys(pods))
        return {key: sorted(pods) for key, pods in found.items() if key[1] in worth_freeing(self._known, key[0])}

    def _free_up(self, source: NodeName, whole: Whole, pods: list[PodUid]) -> Stay | None:
        """Plans the moves of all that have a part of it; why it cannot be emptied."""
        for uid in pods:
            if uid not in self._state.pods:
                return Stay(NO_GAIN, f"{whole[2]} of {whole[0]} is somebody's whom nobody names")
            if said := self._rows.evictable.verdict(uid):
                if (why := stay(said)).id:
                    self._why.setdefault(uid, why)
                return Stay(NO_GAIN, f"pod {self._state.pods[uid].fact.name}, which has a part of {whole[2]} of {whole[0]}, stays")
            if (one := wanted(self._state, uid)) is not None and one.number > 1:
                return Stay(NO_GAIN, f"pod {self._state.pods[uid].fact.name}, which has a part of {whole[2]} of {whole[0]}, has {one.number} devices: only pods with one are moved to free whole ones")
        if len(pods) * self._task.args.minimumGain > THOUSAND:
            return Stay(NO_GAIN, f"{len(pods)} pods would move for one device")
        if len(self._moves) + len(pods) > self._task.max_moves:
            return stay(LIMIT)
        quota = self._quota.copy()
        taken: list[tuple[PodUid, Spot, NodeName, Wanted]] = []
        for uid in sorted(pods, key=lambda uid: (-self._size(uid), uid)):
            namespace, charged = self._state.pods[uid].fact.namespace, quota.charged(uid, source)
            end = stay(said) if (said := quota.reached(source, namespace, charged)) else self._take(uid, source)
            if isinstance(end, Stay):
                self._give_back(taken)
                return end
            quota.take(source, namespace, charged)
            taken.append((uid, *end))
        self._quota = quota
        self._left.add(source)
        for uid, spot, target, one in taken:
            pod, id = self._state.pods[uid].fact, MigrationId(f"{self._task.plan}-{len(self._moves) + 1}")
            before = self._joined.setdefault(target, [])
            after = tuple(other for other, asked in before if asked != one)
            before.append((id, one))
            self._ends[uid] = spot
            self._moves.append(Move(id, uid, pod.namespace, pod.name, source, target, spot.devices, spot.cores, after))
        return None

    def _size(self, uid: PodUid) -> int:
        """Of what it has, in counters: large parts are placed first."""
        return sum(sum(device.uses.values()) for claim in self._known.reserved_for(uid) for device in self._known.claim(claim))

    def _take(self, uid: PodUid, source: NodeName) -> tuple[Spot, NodeName, Wanted] | Stay:
        """The node whose device in use is the fullest of those that it would get a part of."""
        one = wanted(self._state, uid)
        assert one is not None, "a pod that may go has one"
        found: list[tuple[int, NodeName]] = []
        for node, row in self._state.table.rows.items():
            if not self._rows.open[row] or node == source or node in self._left or (device := self._would_get(node, one)) is None:
                continue
            if all(whole in self._busy[node] for whole in wholes_of(device)):
                found.append((-self._parts(node, device), node))
        for _, node in sorted(found):
            spot = self._simulation.best(uid, target=node)
            if spot is not None:
                self._simulation.session.nodes.take(spot.row, self._state.vectors[self._state.pods[uid].fact.shape], spot.devices)
                self._simulation.enter(uid, spot)
                self._given.setdefault(node, []).append(one)
                self._free[node].take(one)
                self._forget(node)
                return spot, node, one
        return Stay(f"{NO_TARGET}: no part of a device in use", "on no other node would it get a part of a device that is in use already")

    def _parts(self, node: NodeName, device: ClaimDevice) -> int:
        """How many of the whole that this is a part of are somebody's."""
        wholes = set(wholes_of(device))
        return sum(1 for other in self._known.on(node) if other.claims and wholes & set(wholes_of(other)))

    def _would_get(self, node: NodeName, one: Wanted) -> ClaimDevice | None:
        """None also of a node to which others are on their way: which devices these get is not known."""
        if (node, one) not in self._first:
            if node not in self._busy:
                self._busy[node] = {whole for device in self._known.on(node) if device.claims for whole in wholes_of(device)}
                self._free[node] = Free(self._state, node)
            self._first[node, one] = None if self._expects(node) else self._free[node].foreseen(one)
        return self._first[node, one]

    def _expects(self, node: NodeName) -> bool:
        """Moves that are under way bring somebody there."""
        return bool(self._state.promised.get(node)) or any(True for _ in owed_on(self._state, node))

    def _forget(self, node: NodeName) -> None:
        for key in [key for key in self._first if key[0] == node]:
            del self._first[key]

    def _give_back(self, taken: list[tuple[PodUid, Spot, NodeName, Wanted]]) -> None:
        """Undo `_take`."""
        for uid, spot, node, _ in reversed(taken):
            self._simulation.leave(uid, spot.row)
            self._simulation.session.nodes.give(spot.row, self._state.vectors[self._state.pods[uid].fact.shape], spot.devices)
            self._given[node].pop()
            self._free[node] = Free(self._state, node)
            for one in self._given[node]:
                self._free[node].take(one)
            self._forget(node)


def promise(task: Task, found: Found) -> str:
    """What the plan promises, as a sentence; empty where there is none."""
    known, gone = claim_devices(task.state), {move.pod for move in found.moves}
    touched = {(move.source, whole) for move in found.moves for claim in known.reserved_for(move.pod) for device in known.claim(claim) for whole in wholes_of(device)}
    kept = {
        (node, whole)
        for node in {node for node, _ in touched}
        for device in known.on(node)
        if any(not {*task.state.resource_claims[claim].reserved} <= gone for claim in device.claims)
        for whole in wholes_of(device)
    }
    leaving = {(node, whole) for node, whole in touched - kept if whole in worth_freeing(known, node)}
    if not leaving:
        return ""
    by_driver = known.by_driver()
    count = sum((by_driver[driver] for driver in {whole[0] for _, whole in leaving}), start=Count())
    drivers = ", ".join(sorted({whole[0] for _, whole in leaving}))
    return (
        f"{len(leaving)} more whole {'device' if len(leaving) == 1 else 'devices'} by claim of {drivers} {'becomes' if len(leaving) == 1 else 'become'} free (of {count.wholes} in all, {count.free_wholes} are), "
        "if the scheduler gives each pod the first device that does"
    )
