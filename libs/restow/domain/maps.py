"""The maps of the fold, and the only ways in which they change: so that whatever is changed in a draft can be taken back."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

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
from restow.domain.accounts import Accounts
from restow.domain.changes import Changes
from restow.domain.config import GcConfig, MigrationConfig, ReservationConfig, SessionConfig
from restow.domain.memo import Memo
from restow.domain.records import (
    Charge,
    Demand,
    Draw,
    GroupMoves,
    Leader,
    Left,
    Migration,
    Nomination,
    PhaseSince,
    Placement,
    Plan,
    PlanRoom,
    Refusal,
    Reservation,
    Search,
    Slot,
    Tally,
    Victim,
    Waiting,
)
from restow.domain.table import Kind, NodeTable, Vector

_ABSENT: Any = object()

Under = tuple[str, str]
"""What pods wait for that wait for the same: ("shape", shape and pinned node), or ("group", ...), ("reason", ...)."""
Parked = tuple[str, Under]
"""The key in `waiting` that says why a pod waits, and what it waits under."""
OVER = ("Succeeded", "Failed")
"""Pod phases that use no capacity."""
NODE_LOST = "NodeLost"
"""Why a hold, or a placement that is no fact yet, ends with its node."""


class Touched:
    """What changed since somebody last looked: the incremental form of `pending` (effects still owed)."""

    __slots__ = ("findings", "groups", "migrations", "pods", "queues", "reservations", "shapes")

    def __init__(self) -> None:
        self.pods: dict[PodUid, None] = {}
        self.reservations: dict[ReservationUid, None] = {}
        self.migrations: dict[MigrationId, None] = {}
        self.shapes: dict[ShapeId, None] = {}
        self.groups: dict[groups.Group, None] = {}
        self.queues: dict[str, None] = {}
        self.findings: dict[tuple[str, NodeName], None] = {}


class Maps:
    """Changed only through `put` and `drop`, and what is charged only through `_charge` and `_account`: a draft (DESIGN 4:
    decide on the state that includes the earlier decisions, then take it back) is a journal of inverses.

    `timed_from` is the last plan's or configuration's time, from which timed triggers count. `capacity_epoch` grows when
    something that did not fit might fit now, or something new asks for room. `changed_rows`, `moved` and `objects` say what
    changed: rows whose node did, pods and holds, objects that pods refer to. `memo` holds what deciders have computed and
    would compute again: never a part of the state."""

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
        self.budgets: dict[str, e.BudgetObserved] = {}
        self.quotas: dict[str, e.QuotaObserved] = {}
        self.exceeded: dict[str, e.QuotaObserved] = {}
        """Those of them that keep pods out: mostly none."""
        self.troubles: dict[PodUid, e.PodTroubled] = {}
        self.claims: dict[str, e.ClaimObserved] = {}
        self.volumes: dict[str, e.VolumeObserved] = {}
        self.storage_classes: dict[str, e.StorageClassObserved] = {}
        self.csi_nodes: dict[NodeName, e.CsiNodeObserved] = {}
        self.numa: dict[NodeName, e.NumaObserved] = {}
        self.unselected: dict[str, NodeName] = {}
        """Claim (`namespace/name`) → the node that its provisioner gave back since it was last chosen."""
        self.unserved: dict[str, dict[NodeName, Millis]] = {}
        """Claim → nodes that its provisioner gave back, and until when none is asked for there again."""
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
        self.waiting_on: dict[NodeName, dict[tuple[ReservationUid, SlotName], None]] = {}
        """Places that wait for room on their node, in the order in which they get it."""
        self.whole: dict[tuple[ReservationUid, SlotName], None] = {}
        """Places that wait and hold all of their room now: the session is to say that they are ready."""
        self.draws: dict[PodUid, Draw] = {}
        self.drawers: dict[tuple[ReservationUid, SlotName], dict[PodUid, None]] = {}
        """The pods that have drawn from a place and are there, in order."""
        self.unsettled: dict[ReservationUid, None] = {}
        """Reservations whose phase may be another one now; worked out at the end of each event."""
        self.resizes: dict[tuple[ReservationUid, SlotName], None] = {}
        """Places that are held in another size than the accepted generation asks for."""
        self.device_objects: dict[NodeName, e.DeviceObserved] = {}

        self.plans: dict[PlanId, Plan] = {}
        self.migrations: dict[MigrationId, Migration] = {}
        self.backlog: dict[MigrationId, None] = {}
        self.active: dict[MigrationId, None] = {}
        self.victims: dict[PodUid, MigrationId] = {}
        self.successors: dict[PodUid, MigrationId] = {}
        self.armed: dict[str, dict[MigrationId, None]] = {}
        self.cooling: dict[NodeName, int] = {}
        self.timed_from = Millis(0)
        self.cancelled: dict[PlanId, str] = {}
        """Plans of which nothing more is begun, and why."""
        self.left_alone: dict[tuple[str, NodeName], int] = {}
        """Lineages whose pods came back to a node, and how often."""
        self.alone_since: dict[tuple[str, NodeName], Millis] = {}
        """Since when each of them is left alone."""
        self.evictions: dict[MigrationId, Millis] = {}
        """When evictions were decided: those of the minute before the last one."""
        self.followers: dict[MigrationId, MigrationId] = {}
        """Migration → the one that moves its successor on."""
        self.promised: dict[NodeName, dict[MigrationId, None]] = {}
        """By target, moves whose slot is promised and not held yet (`domain.promises`)."""
        self.plan_rooms: dict[str, PlanRoom] = {}
        """By the Reservation's `namespace/name`: room that plans make for pods that wait."""
        self.demands: dict[str, Demand] = {}
        """By job: what was tried for pods that wait."""
        self.group_moves: dict[groups.Group, GroupMoves] = {}
        self.refused: dict[PodUid, Refusal] = {}
        """Pods that were to be moved, and whose eviction or hold the API refused."""
        self.resized: dict[PodUid, ShapeId] = {}
        """Pods that ask for something else than when they were first seen, and what that was: whoever makes them again goes by a template."""
        self.owned: dict[str, dict[PodUid, None]] = {}
        """Controller's uid → its pods."""
        self.left: dict[str, tuple[Left, ...]] = {}
        """By lineage: moved pods that run elsewhere, until their own successor has come somewhere."""
        self.returned: dict[PodUid, int] = {}
        """Pods that came back to where their lineage was moved off, and how often in a row that has happened."""
        self.found: dict[tuple[str, NodeName], int] = {}
        """Lineages that came back to a node too often, to be reported (`migration.came_back`)."""

        self.search = Search()

        self.snapshot_seq = 0
        self.archived = 0
        self.archive_first = 0
        self.shapes_kept = 0
        """Shapes that were needed when somebody looked last (`evolve.shapes`)."""
        """First sequence of the archive, 0 where there is none. Above 1: an archive was lost, and what was before is in none."""
        self.truncated = 0

        self.log = ""
        """The id of the log that this is the fold of; empty where nobody has said it."""
        self.capacity_epoch = 0
        self.changed_rows: Changes[int] = Changes()
        self.moved: Changes[PodUid | tuple[ReservationUid, SlotName]] = Changes()
        self.objects: Changes[tuple[str, str]] = Changes()
        """Of the objects that pods refer to: the name of their map here, and the key."""
        self.reviewed: Changes[ReservationUid] = Changes()
        """Reservations whose record, places or phase changed, or whose migration did: also those that are gone now."""
        self.parkings: Changes[PodUid] = Changes()
        """Pods that were parked, or are not any more; forgotten where those that are parked may turn out to be owners."""
        self.memo = Memo()
        self.void: Counter[str] = Counter()
        self.unknown: Counter[str] = Counter()
        self.events = 0
        self.touched = Touched()
        self._journal: list[tuple] | None = None
        self._orders: dict[int, tuple[dict, list]] = {}
        """In a draft, by its id: a map that has lost an entry, and its keys before."""

    # -- maps --------------------------------------------------------------------------------------------------------

    def put(self, mapping: dict, key: Any, value: Any) -> None:
        if self._journal is not None:
            self._journal.append((mapping, key, mapping.get(key, _ABSENT)))
        mapping[key] = value

    def drop(self, mapping: dict, key: Any) -> Any:
        """Remove and return, or None."""
        old = mapping.get(key, _ABSENT)
        if old is _ABSENT:
            return None
        if self._journal is not None:
            self._journal.append((mapping, key, old))
            if id(mapping) not in self._orders:
                self._orders[id(mapping)] = mapping, list(mapping)
        del mapping[key]
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
    def draft(self) -> Iterator[Self]:
        """Changes made inside are taken back at the end, with the order of maps. Drafts nest. Facts (`cluster` events) cannot be drafted."""
        outer, self._journal = self._journal, []
        orders, self._orders = self._orders, {}
        scalars = (self.seq, self.time, self.clock, self.capacity_epoch, self.snapshot_seq, self.archived, self.truncated, self.timed_from, self.archive_first)
        followed = tuple((changes, changes.position) for changes in (self.moved, self.reviewed, self.parkings))
        events, touched, self.touched = self.events, self.touched, Touched()
        void, unknown, configs, search = self.void.copy(), self.unknown.copy(), self._configs(), self.search
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
            for mapping, order in self._orders.values():
                _reorder(mapping, order)
            self._orders = orders
            # What was changed has changed back: whoever has looked meanwhile looks again.
            for changes, position in followed:
                changes.repeat(position)
            self._journal, self.touched, self.events = outer, touched, events
            self.void, self.unknown, self.search = void, unknown, search
            (self.seq, self.time, self.clock, self.capacity_epoch) = scalars[:4]
            (self.snapshot_seq, self.archived, self.truncated, self.timed_from, self.archive_first) = scalars[4:]
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


def _reorder(mapping: dict, order: list) -> None:
    """What was taken out and put back stands at the end: the state would differ from its log in the order of a map."""
    if len(order) > len(mapping):
        order = [key for key in order if key in mapping]
    if list(mapping) != order:
        entries = {key: mapping[key] for key in order}
        mapping.clear()
        mapping.update(entries)
