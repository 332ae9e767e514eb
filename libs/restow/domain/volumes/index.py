"""`Volumes`: what kube-scheduler's volume plugins say of a pod on every node.

Matched: VolumeRestrictions, NodeVolumeLimits (CSI), VolumeBinding and VolumeZone of Kubernetes 1.35. Left out:
CSIStorageCapacity (a provisioner that has no capacity is noticed when it gives the node back, see `rejected`; unlike
kube-scheduler, which may choose that node again and again, others are tried for a minute first); in-tree volumes
that nodes have migrated to CSI count towards no limit; label selectors of claims, which are no facts; and whether a generic
ephemeral volume's claim is really owned by its pod. In one case this is stricter: a claim that a volume is reserved for
(spec.claimRef) goes only where that volume can be reached; kube-scheduler may have another one provisioned, which then is
never used.
"""

from collections.abc import Iterable

import numpy as np

from restow.contracts.events import ClaimObserved, PodObserved
from restow.contracts.ids import Millis, NodeName
from restow.contracts.values import ClaimChoice, Disk
from restow.domain.occupants import Who, everybody
from restow.domain.state import ClusterState
from restow.domain.volumes.binding import Binding
from restow.domain.volumes.nodes import Nodes
from restow.domain.volumes.occupants import Occupant, claims_of, clash, is_bound, occupant
from restow.domain.volumes.usage import Usage
from restow.domain.volumes.zones import zone_conflicts

DISK = "node(s) had no available disk"
ONCE_POD = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
LIMIT = "node(s) exceed max volume count"
NODE_AFFINITY = "node(s) didn't match PersistentVolume's node affinity"
NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
ZONE = "node(s) had no available volume zone"

READ_WRITE_ONCE_POD = "ReadWriteOncePod"


class Volumes:
    """Kept in `state.memo` and refreshed by what has changed. Between refreshes a session may `add` and `remove` occupants
    tentatively; `close` makes the index what the state says again."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._rebuild()

    @staticmethod
    def of(state: ClusterState) -> "Volumes":
        """The index of this state, up to date."""
        known = state.memo.find(Volumes)
        if known is None:
            return state.memo.keep(Volumes(state))
        known._refresh()
        return known

    # -- questions ---------------------------------------------------------------------------------------------------

    def at(self, now: Millis) -> None:
        """When the questions that follow are asked: a node for which no volume could be made is left out for a while."""
        self._binding.now = now

    def concerns(self, pod: PodObserved) -> bool:
        """Whether any of this matters for the pod."""
        return bool(pod.claims) or bool(self._state.shapes[pod.shape].disks)

    def waits(self, pod: PodObserved) -> str:
        """Why no node will do before something else happens; "" where that is not so. The words are kube-scheduler's."""
        state = self._state
        found = []
        for path in claims_of(pod):
            claim = state.claims.get(path)
            reason = _unusable(claim) if claim is not None else self._missing(pod, path.partition("/")[2])
            if claim is None or reason:
                return reason
            found.append(claim)
        if any(not is_bound(claim) and not self._binding.is_delayed(claim) for claim in found):
            return "pod has unbound immediate PersistentVolumeClaims"
        for claim in found:
            if claim.volume and claim.volume not in state.volumes:
                return f'persistentvolume "{claim.volume}" not found'
        return ""

    def _missing(self, pod: PodObserved, name: str) -> str:
        if "ephemeral" in self._state.shapes[pod.shape].volumes and name.startswith(f"{pod.name}-"):
            return f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
        return f'persistentvolumeclaim "{name}" not found'

    def filters(self, pod: PodObserved) -> list[tuple[str, np.ndarray]]:
        """Reason and `(nodes,) bool` rows that fail by it, in the order of kube-scheduler's plugins; rules that no row fails
        by are left out. Only for a pod that `waits` for nothing else. Vacant rows never fail."""
        state, alive = self._state, self._state.table.alive
        paths = claims_of(pod)
        claims = [state.claims[path] for path in paths]
        found = (
            (DISK, self._taken_disks(pod, state.shapes[pod.shape].disks)),
            (ONCE_POD, self._used_elsewhere(pod)),
            (LIMIT, self._usage.beyond(paths)),
            (NODE_AFFINITY, self._binding.out_of_reach(claims)),
            (NO_VOLUME, self._binding.without_volume(claims, pod.pod)),
            (ZONE, zone_conflicts(self._nodes, [state.volumes[c.volume] for c in claims if c.volume])),
        )
        return [(reason, rows) for reason, failing in found if (rows := failing & alive).any()]

    def choose(self, pod: PodObserved, row: int) -> tuple[ClaimChoice, ...]:
        """What the unbound claims get on this row, in the order of the pod's volumes: smaller claims choose first, each the
        smallest volume that fits and is left (ties by name), else "": a new one. Raises ValueError where `filters` rules
        the row out."""
        return self._binding.choose([self._state.claims[path] for path in claims_of(pod)], row, pod.pod)

    def _taken_disks(self, pod: PodObserved, disks: Iterable[Disk]) -> np.ndarray:
        failing = np.zeros(len(self._nodes), bool)
        for disk in disks:
            for key, (row, read_only) in self._disks.get((disk.kind, disk.id), {}).items():
                if key != pod.pod and clash(disk, read_only):
                    failing[row] = True
        return failing

    def _used_elsewhere(self, pod: PodObserved) -> np.ndarray:
        """All rows or none: the claim is one pod's alone, wherever that runs."""
        used = any(
            READ_WRITE_ONCE_POD in self._state.claims[path].modes and self._usage.users(path).keys() - {pod.pod}
            for path in claims_of(pod)
        )
        return np.full(len(self._nodes), used)

    # -- occupants ---------------------------------------------------------------------------------------------------

    def add(self, uid: Who, row: int, pod: PodObserved, choices: tuple[ClaimChoice, ...] = ()) -> None:
        """A pod is on this row, as far as this session goes; anew where `remove` has taken it away."""
        disks = self._state.shapes[pod.shape].disks
        self._tentative[uid] = None
        self._set(uid, Occupant(row, claims_of(pod), disks, choices) if pod.claims or disks else None)

    def remove(self, uid: Who) -> None:
        """An occupant is gone, as far as this session goes: one that `add` named, or a victim."""
        self._tentative[uid] = None
        self._set(uid, None)

    def restore(self, uid: Who) -> None:
        """An occupant is again what the state says."""
        self._set(uid, occupant(self._state, uid))

    def close(self) -> None:
        """Takes back whatever was added and removed."""
        for key in list(self._tentative):
            self._set(key, occupant(self._state, key))
        self._tentative.clear()

    def _set(self, key: Who, new: Occupant | None) -> None:
        old = self._at.get(key)
        if old == new:
            return
        if old is not None:
            self._leave(key, old)
        if new is not None:
            self._enter(key, new)

    def _enter(self, key: Who, who: Occupant) -> None:
        self._at[key] = who
        for path in who.claims:
            self._usage.enter(path, key, who.row)
        for disk in who.disks:
            users = self._disks.setdefault((disk.kind, disk.id), {})
            # Who names a disk twice and writes it once writes it.
            users[key] = (who.row, disk.read_only and users.get(key, (0, True))[1])
        self._binding.assume(key, who)

    def _leave(self, key: Who, who: Occupant) -> None:
        del self._at[key]
        for path in who.claims:
            self._usage.leave(path, key)
        for id in {(disk.kind, disk.id) for disk in who.disks}:
            del self._disks[id][key]
            if not self._disks[id]:
                del self._disks[id]
        self._binding.forget(key, who)

    # -- keeping up ----------------------------------------------------------------------------------------------------

    def _rebuild(self) -> None:
        state = self._state
        self._nodes = Nodes()
        self._usage = Usage(state)
        self._binding = Binding(state, self._nodes)
        self._at: dict[Who, Occupant] = {}
        self._disks: dict[tuple[str, str], dict[Who, tuple[int, bool]]] = {}
        self._tentative: dict[Who, None] = {}
        self._objects, self._moved = state.objects.position, state.moved.position
        self._refresh_rows()
        for name in state.volumes:
            self._binding.observe(name)
        for who in everybody(state):
            self._set(who, occupant(state, who))

    def _refresh(self) -> None:
        state = self._state
        objects, moved = state.objects.since(self._objects), state.moved.since(self._moved)
        if objects is None or moved is None:
            return self._rebuild()
        self._refresh_rows()
        self._objects, self._moved = state.objects.position, state.moved.position
        for kind, name in dict.fromkeys(objects):
            if kind == "volumes":
                self._binding.observe(name)
            elif kind == "csi_nodes" and (row := state.table.rows.get(NodeName(name))) is not None:
                self._usage.limit(row)
            self._usage.observe(kind, name)
        for key in dict.fromkeys(moved):
            self._set(key, occupant(state, key))
        return None

    def _refresh_rows(self) -> None:
        before = len(self._nodes)
        other = self._nodes.refresh(self._state)
        self._usage.grow(len(self._nodes))
        for row in other:
            self._usage.limit(row)
        if other or len(self._nodes) != before:
            self._binding.rebuild()

    def image(self) -> tuple:
        """All that is kept, to compare with another index."""
        return self._at, self._disks, self._usage.image(), self._binding.image()


def _unusable(claim: ClaimObserved) -> str:
    if claim.phase == "Lost":
        return f'persistentvolumeclaim "{claim.name}" bound to non-existent persistentvolume "{claim.volume}"'
    if claim.deleting:
        return f'persistentvolumeclaim "{claim.name}" is being deleted'
    return ""
