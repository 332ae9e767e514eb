"""`ClusterState`: everything that follows from the log, and the few ways in which it may change.

`timed_from` is the last plan's or configuration's time, from which timed triggers count. `capacity_epoch` grows when something that did not fit might fit now, or something new asks for room; `changed_rows` lists the table's rows whose node changed
(predicates refresh from there); `memo` holds what deciders have computed and would compute again: never a part of the state.

The maps are changed only through `put` and `drop`, the node table only through `settle`, `hold` and `unhold`; so a draft
(DESIGN 4: decide on the state that includes the earlier decisions, then take it back) is a journal of inverses.
`evolve` holds the rules; this module keeps indexes and charges right.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.events import (
    NodeObserved,
    PodChanged,
    PodObserved,
    WorkloadObserved,
)
from restow.contracts.ids import (
    FAMILIES,
    MigrationId,
    Millis,
    NodeName,
    PlanId,
    PodUid,
    ReservationUid,
    ShapeId,
    SlotName,
)
from restow.contracts.values import DeviceShare, PodShape
from restow.domain import groups
from restow.domain.accounts import DEFAULT_QUEUE, Accounts
from restow.domain.changes import Changes
from restow.domain.config import GcConfig, MigrationConfig, ReservationConfig, SessionConfig
from restow.domain.records import (
    Charge,
    Leader,
    Migration,
    Nomination,
    PhaseSince,
    Placement,
    Plan,
    Reservation,
    Slot,
    Tally,
    Victim,
    Waiting,
)
from restow.domain.table import Kind, NodeTable, Vector, vector_of

_ABSENT: Any = object()

Under = tuple[str, str]
"""What pods wait for that wait for the same: ("shape", shape and pinned node), or ("group", ...), ("reason", ...)."""
Parked = tuple[str, Under]
"""The key in `waiting` that says why a pod waits, and what it waits under."""
OVER = ("Succeeded", "Failed")
"""Pod phases that use no capacity."""
NODE_LOST = "NodeLost"
"""Why a hold, or a placement that is no fact yet, ends with its node."""


def turn(priority: int, order: int) -> int:
    """When it is considered: the higher priority first, then what came first. One integer, for it is compared a lot."""
    return ((1 << 31) - priority << 40) + order


def is_sociable(shape: PodShape) -> bool:
    """Whether a pod of this shape may fit because another pod has come: required affinity, or a hard spread."""
    return any(not t.weight for t in shape.pod_affinity) or any(s.when_unsatisfiable == "DoNotSchedule" for s in shape.spread)


class Touched:
    """What changed since somebody last looked: the incremental form of `pending` (effects still owed)."""

    __slots__ = ("groups", "migrations", "pods", "queues", "reservations", "shapes")

    def __init__(self) -> None:
        self.pods: dict[PodUid, None] = {}
        self.reservations: dict[ReservationUid, None] = {}
        self.migrations: dict[MigrationId, None] = {}
        self.shapes: dict[ShapeId, None] = {}
        self.groups: dict[groups.Group, None] = {}
        self.queues: dict[str, None] = {}


class ClusterState:
    """The fold of the log. Read it freely; change it only by folding (`restow.domain.fold`)."""

    def __init__(self) -> None:
        self.seq = 0
        self.time = Millis(0)
        self.last: dict[str, int] = dict.fromkeys(FAMILIES, 0)
        self.leaders: dict[str, Leader] = {family: Leader() for family in FAMILIES}
        self.configured: dict[str, str] = {}
        self.session_config = SessionConfig()
        self.reservation_config = ReservationConfig()
        self.migration_config = MigrationConfig()
        self.gc_config = GcConfig()
        self.synced: dict[str, str] = {}

        self.table = NodeTable()
        self.nodes: dict[NodeName, NodeObserved] = {}
        self.shapes: dict[ShapeId, PodShape] = {}
        self.vectors: dict[ShapeId, Vector] = {}
        self.pods: dict[PodUid, PodObserved] = {}
        self.live: dict[PodUid, PodChanged] = {}
        self.order: dict[PodUid, int] = {}
        self.clock = 0
        self.workloads: dict[str, WorkloadObserved] = {}
        self.pod_groups: dict[groups.Group, e.PodGroupObserved] = {}
        self.group_order: dict[groups.Group, int] = {}
        self.enqueued: dict[groups.Group, None] = {}
        self.unqueued: dict[groups.Group, None] = {}
        self.queues: dict[str, e.QueueObserved] = {}
        self.priority_classes: dict[str, e.PriorityClassObserved] = {}
        self.namespaces: dict[str, e.NamespaceObserved] = {}
        self.claims: dict[str, e.ClaimObserved] = {}
        self.volumes: dict[str, e.VolumeObserved] = {}
        self.storage_classes: dict[str, e.StorageClassObserved] = {}
        self.csi_nodes: dict[NodeName, e.CsiNodeObserved] = {}
        self.numa: dict[NodeName, e.NumaObserved] = {}
        self.unselected: dict[str, NodeName] = {}
        """Claim (`namespace/name`) → the node that its provisioner gave back since it was last chosen."""
        self.binding: dict[PodUid, None] = {}
        """Pods that are placed, not bound, and have chosen volumes: facts about claims and volumes concern them."""

        self.placed: dict[PodUid, Placement] = {}
        self.charges: dict[PodUid, Charge] = {}
        self.on_node: dict[NodeName, dict[PodUid, None]] = {}
        self.homeless: dict[PodUid, NodeName] = {}
        self.queue: dict[PodUid, int] = {}
        self.groups: dict[groups.Group, dict[PodUid, None]] = {}
        self.waiting: dict[str, Waiting] = {}
        self.parked: dict[PodUid, Parked] = {}
        self.parked_under: dict[Under, dict[PodUid, None]] = {}
        self.waiters: dict[str, int] = {}
        self.sociable: dict[PodUid, None] = {}
        self.accounts = Accounts()
        self.nominations: dict[PodUid, Nomination] = {}
        self.nominated_on: dict[NodeName, dict[PodUid, None]] = {}
        self.victims_of: dict[PodUid, Victim] = {}
        self.stuck: dict[PodUid, Millis] = {}
        """Pods whose eviction was refused or did not come about: until when they are not chosen as victims again."""
        self.reserved_tasks: dict[PodUid, NodeName] = {}
        self.reserved_on: dict[NodeName, dict[PodUid, None]] = {}

        self.reservations: dict[ReservationUid, Reservation] = {}
        self.slots: dict[ReservationUid, dict[SlotName, Slot]] = {}
        self.phases: dict[ReservationUid, PhaseSince] = {}
        self.available: dict[ReservationUid, None] = {}
        self.held_on: dict[NodeName, dict[tuple[ReservationUid, SlotName], None]] = {}
        self.slot_queue: dict[tuple[ReservationUid, SlotName], None] = {}
        self.tallies: dict[ReservationUid, Tally] = {}
        self.unfit_slots: dict[ReservationUid, dict[SlotName, None]] = {}
        self.unreviewed: dict[ReservationUid, None] = {}
        self.to_release: dict[tuple[ReservationUid, SlotName], str] = {}

        self.plans: dict[PlanId, Plan] = {}
        self.migrations: dict[MigrationId, Migration] = {}
        self.backlog: dict[MigrationId, None] = {}
        self.active: dict[MigrationId, None] = {}
        self.victims: dict[PodUid, MigrationId] = {}
        self.successors: dict[PodUid, MigrationId] = {}
        self.expecting: dict[str, dict[MigrationId, None]] = {}
        self.armed: dict[str, dict[MigrationId, None]] = {}
        self.cooling: dict[NodeName, int] = {}
        self.timed_from = Millis(0)

        self.snapshot_seq = 0
        self.archived = 0
        self.truncated = 0

        self.capacity_epoch = 0
        self.changed_rows: Changes[int] = Changes()
        self.moved: Changes[PodUid | tuple[ReservationUid, SlotName]] = Changes()
        self.objects: Changes[tuple[str, str]] = Changes()
        """Of the objects that pods refer to: the name of their map here, and the key."""
        self.memo: dict = {}
        self.void: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.events = 0
        self.touched = Touched()
        self._journal: list[tuple] | None = None

    # -- maps --------------------------------------------------------------------------------------------------------

    def put(self, mapping: dict, key: Any, value: Any) -> None:
        if self._journal is not None:
            self._journal.append((mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def drop(self, mapping: dict, key: Any) -> Any:
        """Remove and return, or None."""
        old = mapping.pop(key, _ABSENT)
        if old is _ABSENT:
            return None
        if self._journal is not None:
            self._journal.append((mapping, key, old))
        return old

    def put_in(self, index: dict, key: Any, member: Any) -> None:
        """Add to a set kept as a dict of dicts."""
        inner = index.get(key)
        if inner is None:
            inner = {}
            self.put(index, key, inner)
        self.put(inner, member, None)

    def drop_in(self, index: dict, key: Any, member: Any) -> None:
        inner = index.get(key)
        if inner is not None:
            self.drop(inner, member)
            if not inner:
                self.drop(index, key)

    # -- drafts ------------------------------------------------------------------------------------------------------

    @contextmanager
    def draft(self) -> Iterator["ClusterState"]:
        """Changes made inside are taken back at the end. Drafts nest. Facts (`cluster` events) cannot be drafted."""
        outer, self._journal = self._journal, []
        scalars = (self.seq, self.time, self.clock, self.capacity_epoch, self.snapshot_seq, self.archived, self.truncated, self.timed_from)
        moved = self.moved.position
        events, touched, self.touched = self.events, self.touched, Touched()
        void, unknown, configs = self.void.copy(), self.unknown.copy(), self._configs()
        try:
            yield self
        finally:
            for mapping, key, old in reversed(self._journal):
                if mapping is None:
                    key(*old)
                elif old is _ABSENT:
                    mapping.pop(key, None)
                else:
                    mapping[key] = old
            # What was moved has moved back: whoever has looked meanwhile looks again.
            back = self.moved.since(moved)
            if back is None:
                self.moved.forget()
            else:
                self.moved.extend(back)
            self._journal, self.touched, self.events = outer, touched, events
            self.void, self.unknown = void, unknown
            (self.seq, self.time, self.clock, self.capacity_epoch) = scalars[:4]
            (self.snapshot_seq, self.archived, self.truncated, self.timed_from) = scalars[4:]
            self.session_config, self.reservation_config, self.migration_config, self.gc_config = configs

    def _configs(self) -> tuple:
        return self.session_config, self.reservation_config, self.migration_config, self.gc_config

    @property
    def drafting(self) -> bool:
        return self._journal is not None

    def _charge(self, row: int, v: Vector, devices: tuple[DeviceShare, ...], sign: int, kind: Kind) -> None:
        self.table.charge(row, v, devices, sign, kind)
        if self._journal is not None:
            self._journal.append((None, self.table.charge, (row, v, devices, -sign, kind)))

    def _account(self, queue: str, v: Vector, sign: int) -> None:
        if not queue:
            return
        self.accounts.add(queue, v, sign)
        self.touched.queues[queue] = None
        if self._journal is not None:
            self._journal.append((None, self.accounts.add, (queue, v, -sign)))

    # -- charges -----------------------------------------------------------------------------------------------------

    def node_of(self, pod: PodUid) -> NodeName | None:
        """Facts beat intents: a pod's node is its fact's, otherwise the session's (DESIGN 5)."""
        live = self.live.get(pod)
        if live is not None and live.node is not None:
            return live.node
        placement = self.placed.get(pod)
        return None if placement is None else placement.node

    def settle(self, pod: PodUid) -> None:
        """Make the charge of a pod what facts and intents say it is."""
        self.moved.append(pod)
        self._note_binding(pod)
        wanted = self._wanted_charge(pod)
        if wanted is not None and wanted.node not in self.table.rows:
            self.put(self.homeless, pod, wanted.node)
            wanted = None
        else:
            self.drop(self.homeless, pod)
        old = self.charges.get(pod)
        if old == wanted:
            return
        if old is not None:
            self._uncharge(pod, old)
        if wanted is not None:
            self._recharge(pod, wanted)
        if old is not None:
            self.top_up(old.node)

    def _note_binding(self, pod: PodUid) -> None:
        placement, live = self.placed.get(pod), self.live.get(pod)
        if placement is not None and placement.volumes and live is not None and live.node is None:
            self.put(self.binding, pod, None)
        else:
            self.drop(self.binding, pod)

    def _wanted_charge(self, pod: PodUid) -> Charge | None:
        observed, live = self.pods.get(pod), self.live.get(pod)
        node = self.node_of(pod)
        if observed is None or live is None or node is None or live.phase in OVER:
            return None
        old = self.charges.get(pod)
        devices = live.devices
        placement = self.placed.get(pod)
        if not devices and placement is not None and placement.node == node:
            devices = placement.devices
        request = self.shapes[observed.shape].devices
        if not devices and request is not None:
            if old is not None and old.node == node and old.shape == observed.shape:
                devices = old.devices
            else:
                row = self.table.rows.get(node)
                devices = () if row is None else self.table.choose_devices(row, request) or ()
        releasing = live.deleting > 0
        return Charge(node, observed.shape, devices, releasing, "" if releasing else self.queue_of(observed))

    def queue_of(self, pod: PodObserved) -> str:
        """The queue that a pod of ours is accounted to; empty for others."""
        if not self.ours(pod):
            return ""
        group = groups.group_of(pod)
        known = self.pod_groups.get(group) if group is not None else None
        said = known.queue if known is not None else groups.queue_annotation(pod)
        return said or DEFAULT_QUEUE

    def _uncharge(self, pod: PodUid, charge: Charge) -> None:
        row = self.table.rows.get(charge.node)
        v = self.vectors[charge.shape]
        if row is not None:
            self._charge(row, v, charge.devices, -1, Kind.RELEASING if charge.releasing else Kind.USED)
        self._account(charge.queue, v, -1)
        self.drop(self.charges, pod)
        self.drop_in(self.on_node, charge.node, pod)
        self.capacity_epoch += 1

    def _recharge(self, pod: PodUid, charge: Charge) -> None:
        row = self.table.rows[charge.node]
        v = self.vectors[charge.shape]
        self._charge(row, v, charge.devices, 1, Kind.RELEASING if charge.releasing else Kind.USED)
        self._account(charge.queue, v, 1)
        self.put(self.charges, pod, charge)
        self.put_in(self.on_node, charge.node, pod)
        if self.sociable:
            self.capacity_epoch += 1  # somebody may have waited for company

    def hold(self, reservation: ReservationUid, slot: SlotName, held: Slot) -> None:
        """Charge a held place. On a node that has vanished since the decision it is lost at once."""
        self.moved.append((reservation, slot))
        row = self.table.rows.get(held.node)
        if row is None:
            self.put(self.to_release, (reservation, slot), NODE_LOST)
            return
        v = self.vectors[held.shape]
        self._charge(row, v, held.devices, 1, Kind.HELD)
        self._account(held.queue, v, 1)
        self.put_in(self.held_on, held.node, (reservation, slot))

    def unhold(self, reservation: ReservationUid, slot: SlotName, held: Slot) -> None:
        """Take the charge of a held place back. The caller tops nominations up when what follows is charged."""
        self.moved.append((reservation, slot))
        self.drop(self.to_release, (reservation, slot))
        if (reservation, slot) in self.held_on.get(held.node, ()):
            v = self.vectors[held.shape]
            self._charge(self.table.rows[held.node], v, held.devices, -1, Kind.HELD)
            self._account(held.queue, v, -1)
            self.drop_in(self.held_on, held.node, (reservation, slot))
            self.capacity_epoch += 1

    # -- nominations -------------------------------------------------------------------------------------------------

    def nominate(self, pod: PodUid, nomination: Nomination) -> None:
        """Hold what is free on the node now; the rest as it is freed. Another nomination of the pod ends."""
        self.denominate(pod)
        if nomination.node not in self.table.rows:
            return
        self.put(self.nominations, pod, nomination)
        self.put_in(self.nominated_on, nomination.node, pod)
        self.top_up(nomination.node)

    def denominate(self, pod: PodUid, placing: bool = False) -> None:
        """Nothing is held for it any more. `placing`: the pod is charged next, and the caller tops up after that."""
        nomination = self.drop(self.nominations, pod)
        if nomination is None:
            return
        self.drop_in(self.nominated_on, nomination.node, pod)
        for victim in nomination.victims:
            # Who has not been told to go yet stays: nobody needs its room any more.
            chosen = self.victims_of.get(victim)
            if chosen is not None and chosen.by == pod:
                self.drop(self.victims_of, victim)
                self.touched.pods[victim] = None
        row = self.table.rows.get(nomination.node)
        if row is not None and (nomination.held or nomination.held_devices):
            self._charge(row, vector_of(nomination.held), nomination.held_devices, -1, Kind.HELD)
        self.capacity_epoch += 1
        if not placing:
            self.top_up(nomination.node)

    def top_up(self, node: NodeName) -> None:
        """What is free on a node goes to its nominations first, in their order."""
        nominated = self.nominated_on.get(node)
        row = self.table.rows.get(node)
        if not nominated or row is None:
            return
        for pod in list(nominated):
            nomination = self.nominations[pod]
            if nomination.complete:
                continue
            free, held = self.table.free[row].tolist(), dict(nomination.held)
            more = []
            for column, amount in nomination.wanted:
                take = min(amount - held.get(column, 0), max(free[column], 0))
                if take > 0:
                    more.append((column, take))
                    held[column] = held.get(column, 0) + take
            shares = self.table.device_free[row].tolist()
            devices = tuple(
                d for d in nomination.devices
                if d not in nomination.held_devices and d.index < len(shares) and shares[d.index] >= d.milli
            )
            if not more and not devices:
                continue
            self._charge(row, vector_of(more), devices, 1, Kind.HELD)
            topped = replace(
                nomination,
                held=tuple((c, held[c]) for c, _ in nomination.wanted if c in held),
                held_devices=tuple(d for d in nomination.devices if d in nomination.held_devices or d in devices),
            )
            self.put(self.nominations, pod, topped)

    def reserve(self, pod: PodUid, node: NodeName) -> None:
        """A starving job's task waits for this node (seed 002)."""
        self.unreserve(pod)
        self.put(self.reserved_tasks, pod, node)
        self.put_in(self.reserved_on, node, pod)

    def unreserve(self, pod: PodUid) -> None:
        node = self.drop(self.reserved_tasks, pod)
        if node is not None:
            self.drop_in(self.reserved_on, node, pod)
            self.capacity_epoch += 1

    def forget_node(self, name: NodeName) -> None:
        """The node is gone, and with it what was charged to it: pods wait for their own end, holds are lost."""
        for pod in list(self.on_node.get(name, ())):
            charge = self.charges[pod]
            self._account(charge.queue, self.vectors[charge.shape], -1)
            self.moved.append(pod)
            self.drop(self.charges, pod)
            self.drop_in(self.on_node, name, pod)
            self.put(self.homeless, pod, name)
        for key in list(self.held_on.get(name, ())):
            self._lose(name, key)
        for pod in list(self.nominated_on.get(name, ())):
            self.denominate(pod, placing=True)
            self.requeue(pod)
        for pod in list(self.reserved_on.get(name, ())):
            self.unreserve(pod)
        self.changed_rows.append(self.table.rows[name])
        self.table.remove_node(name)
        self.drop(self.nodes, name)
        self.capacity_epoch += 1

    def _lose(self, name: NodeName, key: tuple[ReservationUid, SlotName]) -> None:
        uid, slot = key
        held = self.slots[uid][slot]
        self._account(held.queue, self.vectors[held.shape], -1)
        self.moved.append(key)
        self.drop_in(self.held_on, name, key)
        self.put(self.to_release, key, NODE_LOST)

    # -- questions that several deciders ask -------------------------------------------------------------------------

    def ours(self, pod: PodObserved) -> bool:
        """Whether Restow schedules this pod."""
        return self.shapes[pod.shape].scheduler in self.session_config.scheduler_names

    def awaits_placement(self, pod: PodUid) -> bool:
        """Whether the session should find a node for it."""
        observed, live = self.pods.get(pod), self.live.get(pod)
        return (
            observed is not None
            and live is not None
            and live.node is None
            and live.phase == "Pending"
            and not live.deleting
            and not observed.gated
            and pod not in self.placed
            and self.ours(observed)
        )

    def requeue(self, pod: PodUid) -> None:
        """Put a pod into the session's queue, or take it out, as facts and intents say."""
        if self.awaits_placement(pod):
            if pod not in self.queue and pod not in self.parked and pod not in self.nominations:
                self.put(self.queue, pod, self.turn(pod))
        else:
            self.drop(self.queue, pod)
            self.unpark(pod)
            if pod in self.nominations:
                self.denominate(pod)
            if pod in self.reserved_tasks:
                self.unreserve(pod)

    def turn(self, pod: PodUid) -> int:
        return turn(self.shapes[self.pods[pod].shape].priority, self.order[pod])

    def park(self, pod: PodUid, key: str, under: Under) -> None:
        """It cannot be placed now: out of the queue until something changes that may let it. `key` leads to why."""
        self.drop(self.queue, pod)
        self.unpark(pod)
        self.put(self.parked, pod, (key, under))
        self.put_in(self.parked_under, under, pod)
        self.put(self.waiters, key, self.waiters.get(key, 0) + 1)
        if is_sociable(self.shapes[self.pods[pod].shape]):
            self.put(self.sociable, pod, None)

    def unpark(self, pod: PodUid) -> None:
        parked = self.drop(self.parked, pod)
        if parked is None:
            return
        key, under = parked
        self.drop_in(self.parked_under, under, pod)
        self.drop(self.sociable, pod)
        left = self.waiters[key] - 1
        if left:
            self.put(self.waiters, key, left)
        else:
            self.drop(self.waiters, key)
            self.drop(self.waiting, key)

    def regroup(self, before: PodObserved | None, after: PodObserved | None) -> None:
        """Keep the index of groups right when a pod is seen, changes or goes."""
        old, new = (None if pod is None else groups.group_of(pod) for pod in (before, after))
        if old == new:
            return
        if old is not None and before is not None:
            self.drop_in(self.groups, old, before.pod)
        if new is not None and after is not None:
            self.put_in(self.groups, new, after.pod)

    def settled_nominations(self, now: Millis) -> bool:
        """Whether some nomination can be used, or is to be given up."""
        return any(n.complete or n.deadline <= now for n in self.nominations.values())

    def stranded(self) -> list[PodUid]:
        """Pods that were placed on a node that has vanished before they were bound to it."""
        return [pod for pod in self.homeless if pod in self.placed and self.live[pod].node is None]

    def lineage(self, pod: PodObserved) -> str:
        """What a successor has in common with this pod: its top controller, and its name where that is part of its
        identity (StatefulSet). Empty for a bare pod."""
        if pod.owner is None:
            return ""
        if pod.owner.kind == "StatefulSet":
            return f"{pod.owner.uid}/{pod.name}"
        above = self.workloads.get(pod.owner.uid)
        return pod.owner.uid if above is None else above.owner.uid

    def counts(self) -> dict[str, int]:
        """Sizes, for logs and metrics."""
        return {
            "nodes": len(self.nodes),
            "pods": len(self.pods),
            "shapes": len(self.shapes),
            "queue": len(self.queue) + len(self.parked),
            "reservations": len(self.reservations),
            "holds": sum(len(v) for v in self.held_on.values()),
            "migrations": len(self.migrations),
            "active_migrations": len(self.backlog) + len(self.active),
            "void": sum(self.void.values()),
            "unknown": sum(self.unknown.values()),
        }


