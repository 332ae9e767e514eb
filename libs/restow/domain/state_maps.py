"""The maps of the fold, and the only ways in which they change: so that whatever is changed in a draft can be taken back."""

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from operator import attrgetter
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
from restow.domain import config
from restow.domain.accounts import Accounts
from restow.domain.changes import Changes
from restow.domain.config import Config, GcConfig, MigrationConfig, ReservationConfig, SessionConfig
from restow.domain.draft_writes import AtOnce, Journal
from restow.domain.groups import Group
from restow.domain.history import History
from restow.domain.memo import Memo
from restow.domain.node_table import ChargedAs, NodeTable, Seats, Vector
from restow.domain.pods import IMAGE as PODS
from restow.domain.pods import Pod, numbers
from restow.domain.records import (
    Allocation,
    Charge,
    Consent,
    Demand,
    DemandSlot,
    Disturbed,
    Emptied,
    GroupMoves,
    Landing,
    Leader,
    Left,
    LeftAlone,
    Migration,
    Mode,
    Needs,
    Nomination,
    NominationsChecked,
    Pause,
    PhaseSince,
    Placement,
    Plan,
    Refusal,
    Rejections,
    Reservation,
    Score,
    Search,
    Slot,
    Tally,
    Telling,
    Times,
    Victim,
    Waiting,
)
from restow.domain.snapshot_columns import Columns, packed, unpacked
from restow.domain.state_attributes import Drafted, Image, derived, passing, stored, values

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

    __slots__ = ("findings", "groups", "migrations", "nodes", "pods", "queues", "reservations", "shapes")

    def __init__(self) -> None:
        self.pods: dict[PodUid, None] = {}
        self.reservations: dict[ReservationUid, None] = {}
        self.migrations: dict[MigrationId, None] = {}
        self.shapes: dict[ShapeId, None] = {}
        self.groups: dict[Group, None] = {}
        self.queues: dict[str, None] = {}
        self.findings: dict[tuple[str, NodeName], None] = {}
        self.nodes: dict[NodeName, None] = {}


def _path(event: Any) -> str:
    return f"{event.namespace}/{event.name}"


_NAME, _NODE, _POD, _UID, _GROUP = (attrgetter(*names.split()) for names in ("name", "node", "pod", "uid", "namespace name"))
_CHARGES = Columns(Charge, (), ("node",))


def _load_charges(state: "Maps", said: Any) -> dict[PodUid, Charge]:
    (of, charges), pods = said, list(state.pods)
    return dict(zip([pods[i] for i in unpacked(of)], _CHARGES.load(charges), strict=True))


def _dump_owned(state: "Maps", owned: dict[str, dict[PodUid, None]]) -> Any:
    who = iter(numbers(state.pods, (pod for pods in owned.values() for pod in pods)))
    return {owner: list(islice(who, len(pods))) for owner, pods in owned.items()}


def _load_owned(state: "Maps", said: dict[str, list[int]]) -> dict[str, dict[PodUid, None]]:
    pods = list(state.pods)
    return {owner: {pods[i]: None for i in of} for owner, of in said.items()}


_EXCEEDED = Image(list[str], lambda state, known: list(known), lambda state, said: {path: state.quotas[path] for path in said})
_LEFT_ALONE = Image(
    {"left_alone": dict[tuple[str, NodeName], int], "alone_since": dict[tuple[str, NodeName], Millis]},
    lambda state, known: ({key: one.times for key, one in known.items()}, {key: one.since for key, one in known.items()}),
    lambda state, said: {key: LeftAlone(times, said[1][key]) for key, times in said[0].items()},
)
_WHO_WAITS = Image(list[PodUid], lambda state, queue: list(queue), lambda state, said: {pod: state.turn(pod) for pod in said})


def _keys(kind: Any) -> Image:
    """Of an index its keys, in their order: who is under each of them follows from what is stored, in that one's order."""
    return Image(list[kind], lambda state, index: list(index), lambda state, said: {key: {} for key in said})


def _config(kind: type[Config]) -> Image:
    """As its text, which later releases read, too."""
    return Image(str, lambda state, known: config.text_of(known), lambda state, said: config.read(kind, said))


@dataclasses.dataclass(eq=False, repr=False, slots=True)
class Maps:
    """The one place that names every attribute of the state (`restow.domain.state_attributes`).

    Changed only through `put` and `drop`, `put_in` and `drop_in` (`restow.domain.draft_writes`), and what is charged only through `_charge`
    and `account`: a draft (DESIGN 4: decide on the state that includes the earlier decisions, then take it back) is a journal of inverses.

    `timed_from` is the last plan's or configuration's time, from which timed triggers count. `capacity_epoch` grows when
    something that did not fit might fit now, or something new asks for capacity. `changed_rows`, `moved` and `objects` say what
    changed: rows whose node did, pods and holds, objects that pods refer to. `memo` holds what deciders have computed and
    would compute again: never a part of the state."""

    seq: int = stored(int)
    time: Millis = stored(lambda: Millis(0))
    last: dict[str, int] = stored(lambda: dict.fromkeys(FAMILIES, 0))
    leaders: dict[str, Leader] = stored(lambda: {family: Leader() for family in FAMILIES})
    configured: dict[str, str] = stored(dict)
    session_config: SessionConfig = stored(SessionConfig, _config(SessionConfig))
    reservation_config: ReservationConfig = stored(ReservationConfig, _config(ReservationConfig))
    migration_config: MigrationConfig = stored(MigrationConfig, _config(MigrationConfig))
    gc_config: GcConfig = stored(GcConfig, _config(GcConfig))
    synced: dict[str, str] = stored(dict)

    table: NodeTable = stored(NodeTable, Image(Seats, lambda state, table: table.seats, lambda state, said: NodeTable.of(said)))
    nodes: dict[NodeName, NodeObserved] = stored(dict, values(NodeObserved, _NAME))
    shapes: dict[ShapeId, PodShape] = stored(dict)
    vectors: dict[ShapeId, Vector] = derived(dict)
    pods: dict[PodUid, Pod] = stored(dict, PODS)
    clock: int = stored(int)
    workloads: dict[str, WorkloadObserved] = stored(dict, values(WorkloadObserved, _UID))
    pod_groups: dict[Group, e.PodGroupObserved] = stored(dict, values(e.PodGroupObserved, _GROUP))
    group_order: dict[Group, int] = stored(dict)
    enqueued: dict[Group, None] = stored(dict)
    unqueued: dict[Group, None] = stored(dict)
    queues: dict[str, e.QueueObserved] = stored(dict, values(e.QueueObserved, _NAME))
    priority_classes: dict[str, e.PriorityClassObserved] = stored(dict, values(e.PriorityClassObserved, _NAME))
    namespaces: dict[str, e.NamespaceObserved] = stored(dict, values(e.NamespaceObserved, _NAME))
    budgets: dict[str, e.BudgetObserved] = stored(dict, values(e.BudgetObserved, _path))
    quotas: dict[str, e.QuotaObserved] = stored(dict, values(e.QuotaObserved, _path))
    exceeded: dict[str, e.QuotaObserved] = stored(dict, _EXCEEDED)
    """Those of them that keep pods out: mostly none."""
    troubles: dict[PodUid, e.PodTroubled] = stored(dict, values(e.PodTroubled, _POD))
    claims: dict[str, e.ClaimObserved] = stored(dict, values(e.ClaimObserved, _path))
    volumes: dict[str, e.VolumeObserved] = stored(dict, values(e.VolumeObserved, _NAME))
    storage_classes: dict[str, e.StorageClassObserved] = stored(dict, values(e.StorageClassObserved, _NAME))
    csi_nodes: dict[NodeName, e.CsiNodeObserved] = stored(dict, values(e.CsiNodeObserved, _NODE))
    numa: dict[NodeName, e.NumaObserved] = stored(dict, values(e.NumaObserved, _NODE))
    unselected: dict[str, NodeName] = stored(dict)
    """Claim (`namespace/name`) → the node that its provisioner gave back since it was last chosen."""
    unserved: dict[str, dict[NodeName, Millis]] = stored(dict)
    """Claim → nodes that its provisioner gave back, and until when none is asked for there again."""
    binding: dict[PodUid, None] = stored(dict)
    """Pods that are placed, not bound, and have chosen volumes: facts about claims and volumes concern them."""

    placed: dict[PodUid, Placement] = stored(dict)
    charges: dict[PodUid, Charge] = stored(dict, Image(
        tuple[bytes, _CHARGES.type], lambda state, known: (packed(numbers(state.pods, known)), _CHARGES.dump(list(known.values()))), _load_charges  # type: ignore[valid-type, name-defined]
    ))  # fmt: skip
    on_node: dict[NodeName, dict[PodUid, None]] = stored(dict, _keys(NodeName))
    homeless: dict[PodUid, NodeName] = stored(dict)
    queue: dict[PodUid, int] = stored(dict, _WHO_WAITS)
    groups: dict[Group, dict[PodUid, None]] = stored(dict)
    waiting: dict[str, Waiting] = stored(dict)
    parked: dict[PodUid, Parked] = stored(dict)
    parked_under: dict[Under, dict[PodUid, None]] = stored(dict, _keys(Under))
    waiters: dict[str, int] = stored(dict)
    sociable: dict[PodUid, None] = derived(dict)
    accounts: Accounts = derived(Accounts)
    nominations: dict[PodUid, Nomination] = stored(dict)
    nominated_on: dict[NodeName, dict[PodUid, None]] = stored(dict, _keys(NodeName))
    victims_of: dict[PodUid, Victim] = stored(dict)
    stuck: dict[PodUid, Millis] = stored(dict)
    """Pods whose eviction was refused or did not come about: until when they are not chosen as victims again."""
    reserved_tasks: dict[PodUid, NodeName] = stored(dict)
    reserved_on: dict[NodeName, dict[PodUid, None]] = stored(dict, _keys(NodeName))

    reservations: dict[ReservationUid, Reservation] = stored(dict)
    slots: dict[ReservationUid, dict[SlotName, Slot]] = stored(dict)
    phases: dict[ReservationUid, PhaseSince] = stored(dict)
    available: dict[ReservationUid, None] = stored(dict)
    held_on: dict[NodeName, dict[tuple[ReservationUid, SlotName], None]] = stored(dict)
    slot_queue: dict[tuple[ReservationUid, SlotName], None] = stored(dict)
    tallies: dict[ReservationUid, Tally] = stored(dict)
    unfit_slots: dict[ReservationUid, dict[SlotName, None]] = stored(dict)
    unreviewed: dict[ReservationUid, None] = stored(dict)
    to_release: dict[tuple[ReservationUid, SlotName], str] = stored(dict)
    waiting_on: dict[NodeName, dict[tuple[ReservationUid, SlotName], None]] = stored(dict)
    """Slots that wait for capacity on their node, in the order in which they get it."""
    whole: dict[tuple[ReservationUid, SlotName], None] = stored(dict)
    """Slots that wait and hold all of their capacity now: the session is to say that they are ready."""
    allocations: dict[PodUid, Allocation] = stored(dict)
    slot_users: dict[tuple[ReservationUid, SlotName], dict[PodUid, None]] = stored(dict)
    """The pods that have taken from a slot and are there, in order."""
    unsettled: dict[ReservationUid, None] = derived(dict)
    """Reservations whose phase may be another one now; worked out at the end of each event."""
    resizes: dict[tuple[ReservationUid, SlotName], None] = stored(dict)
    """Slots that are held in another size than the accepted generation asks for."""
    device_objects: dict[NodeName, e.DeviceObserved] = stored(dict, values(e.DeviceObserved, _NODE))
    hyper_nodes: dict[str, e.HyperNodeObserved] = stored(dict, values(e.HyperNodeObserved, _NAME))
    resource_slices: dict[str, e.ResourceSliceObserved] = stored(dict, values(e.ResourceSliceObserved, _NAME))
    resource_claims: dict[str, e.ResourceClaimObserved] = stored(dict, values(e.ResourceClaimObserved, _path))
    device_classes: dict[str, e.DeviceClassObserved] = stored(dict, values(e.DeviceClassObserved, _NAME))
    placeholders: dict[PodUid, tuple[ReservationUid, SlotName]] = stored(dict)
    """Pods that stand in slots for another scheduler to see (`domain.beside`)."""
    stand_ins: dict[tuple[ReservationUid, SlotName], PodUid] = stored(dict)
    """The same by slot: the first where there are several."""
    gated: dict[PodUid, None] = stored(dict)
    """Pods of other schedulers that only our gate keeps from them, or that may follow one that was moved, and to which no slot was handed over, in order; and
    ours that our gate is on in vain."""
    passed: dict[PodUid, None] = stored(dict)
    """Of these, owners of Reservations who get nothing of them."""
    not_let_go: dict[PodUid, Refusal] = stored(dict)
    """Of these, who is to be let go, and whom the API has refused to let go."""
    owner_gates: dict[ReservationUid, Millis] = stored(dict)
    """Reservations whose owners the API gates, and until when; 0 where it is to let go of that."""
    to_land: dict[PodUid, Millis] = stored(dict)
    """Pods of other schedulers to which a slot was handed over, and which are not bound; and since when they may be, 0 while our gate is on them."""

    plans: dict[PlanId, Plan] = stored(dict)
    migrations: dict[MigrationId, Migration] = stored(dict)
    backlog: dict[MigrationId, None] = stored(dict)
    active: dict[MigrationId, None] = stored(dict)
    victims: dict[PodUid, MigrationId] = stored(dict)
    successors: dict[PodUid, MigrationId] = stored(dict)
    armed: dict[str, dict[MigrationId, None]] = stored(dict)
    cooling: dict[NodeName, int] = stored(dict)
    timed_from: Millis = stored(lambda: Millis(0))
    cancelled: dict[PlanId, str] = stored(dict)
    """Plans of which nothing more is begun, and why."""
    mode: Mode = stored(Mode)
    proposals: dict[PlanId, Millis] = stored(dict)
    """Plans that wait for a person, and until when."""
    observed: dict[PlanId, int] = stored(dict)
    """Plans that were only observed and are looked at again, and how often they were."""
    score: Score = stored(Score)
    left_alone: dict[tuple[str, NodeName], LeftAlone] = stored(dict, _LEFT_ALONE)
    """Lineages whose pods bounced off a node."""
    evictions: dict[MigrationId, Millis] = stored(dict)
    """When evictions were decided: those of the minute before the last one."""
    ended_at: dict[MigrationId, Millis] = stored(dict)
    """When moves ended whose pods had left: those of the minute before the last one."""
    budgeted: dict[MigrationId, tuple[str, ...]] = stored(dict)
    """Moves that are not over, and the eviction budgets that they are charged to, if any (`domain.eviction_budgets`)."""
    budget_spent: dict[str, dict[MigrationId, Millis]] = stored(dict)
    """By eviction budget: when evictions were decided that are charged to it, as long as they may count."""
    followers: dict[MigrationId, MigrationId] = stored(dict)
    """Migration → the one that moves its successor on."""
    promised: dict[NodeName, dict[MigrationId, None]] = stored(dict)
    """By target, moves whose slot is promised and not held yet (`domain.promises`)."""
    demand_slots: dict[str, DemandSlot] = stored(dict)
    """By the Reservation's `namespace/name`: capacity that plans make for pods that wait."""
    demands: dict[str, Demand] = stored(dict)
    """By job: what was tried for pods that wait."""
    landings: dict[MigrationId, Landing] = stored(dict)
    """Moves for which the API gates what a controller makes."""
    emptied: dict[NodeName, Emptied] = stored(dict)
    """Nodes that a plan empties, or has emptied, for somebody to take away."""
    nominations_checked: dict[str, NominationsChecked] = stored(dict)
    """By scheduler that is not ours (`domain.nomination_checks`)."""
    consents: dict[MigrationId, Consent] = stored(dict)
    """Moves under way whose workload was asked whether its pod may go."""
    tellings: dict[MigrationId, Telling] = stored(dict)
    """Moves of which a workload is still to be told."""
    group_moves: dict[Group, GroupMoves] = stored(dict)
    thefts: dict[MigrationId, Millis] = stored(dict)
    """When moves ended because their hold was stolen: the last ones (`domain.thefts`)."""
    missed: dict[MigrationId, Millis] = stored(dict)
    """When evicted pods missed the slots that were held for them: the last ones since moves were resumed (`evolve.pauses`)."""
    pause: Pause = stored(Pause)
    refused: dict[PodUid, Refusal] = stored(dict)
    """Pods that were to be moved, and whose eviction or hold the API refused."""
    resized: dict[PodUid, ShapeId] = stored(dict)
    """Pods that ask for something else than when they were first seen, and what that was: whoever makes them again goes by a template."""
    ended_well: dict[str, None] = stored(dict)
    """Jobs, by uid, of which a pod ended with success when it was moved: it counts as done, and nobody makes it again."""
    owned: dict[str, dict[PodUid, None]] = stored(dict, Image(dict[str, list[int]], _dump_owned, _load_owned))
    """Controller's uid → its pods."""
    left: dict[str, tuple[Left, ...]] = stored(dict)
    """By lineage: moved pods that run elsewhere, until their own successor has come somewhere."""
    returned: dict[PodUid, int] = stored(dict)
    """Pods that bounced, and how often in a row their lineage did."""
    found: dict[tuple[str, NodeName], int] = stored(dict)
    """Lineages that bounced off a node too often, or (node "") whose moves somebody else disturbs, to be reported (`migration.bounced`)."""

    disturbed: dict[str, Disturbed] = stored(dict)
    """By lineage of another scheduler's pods: moves that somebody else has disturbed (`evolve.bounces`)."""

    nominees: dict[PodUid, NodeName] = stored(dict)
    """Pods of other schedulers that wait for their victims to go, and the node that they are nominated for."""
    rejections: dict[str, Rejections] = stored(dict)
    """By lineage: workloads whose pods kubelets have rejected (`evolve.rejections`)."""
    refusing: dict[NodeName, Times] = stored(dict)
    """Nodes where a device that a pod of ours was given is somebody else's, whom nobody knows."""

    search: Search = stored(Search)

    snapshot_seq: int = stored(int)
    archived: int = stored(int)
    archive_first: int = stored(int)
    """First sequence of the archive, 0 where there is none. Above 1: an archive was lost, and what was before is in none."""
    truncated: int = stored(int)
    shapes_kept: int = stored(int)
    """Shapes that were needed when somebody looked last (`evolve.shapes`)."""

    log: str = stored(str)
    """The id of the log that this is the fold of; empty where nobody has said it."""
    history: History = stored(History, Image(tuple[int, bytes], lambda state, known: known.dumped(), lambda state, said: History(*said)))
    """The digests of what was folded (`domain.history`)."""
    broken: int = stored(int)
    """The first record that is missing, or follows from another history; 0 where the log is whole, or was repaired. Nothing is decided meanwhile."""
    repairs: int = stored(int)
    """How often the log was repaired."""
    reader: Needs = stored(Needs)
    """Who must not decide on this log (`domain.too_old`)."""
    capacity_epoch: int = stored(int)
    changed_rows: Changes[int] = passing(Changes)
    moved: Changes[PodUid | tuple[ReservationUid, SlotName]] = passing(Changes)
    objects: Changes[tuple[str, str]] = passing(Changes)
    """Of the objects that pods refer to: the name of their map here, and the key."""
    reviewed: Changes[ReservationUid] = passing(Changes)
    """Reservations whose record, slots or phase changed, or whose migration did: also those that are gone now."""
    parkings: Changes[PodUid] = passing(Changes)
    """Pods that were parked, or are not any more; forgotten where those that are parked may turn out to be owners."""
    memo: Memo = passing(Memo)
    void: Counter[str] = stored(Counter)
    unknown: Counter[str] = stored(Counter)
    events: int = stored(int)
    overtaken: set[NodeName] = passing(set)
    """Nodes with a slot whose hand-over, or other size, was void in the commit that is being folded: facts came between the decision and its commit."""
    touched: Touched = passing(Touched)
    put: Callable[[dict, Any, Any], None] = passing(lambda: AtOnce.put)
    drop: Callable[[dict, Any], Any] = passing(lambda: AtOnce.drop)
    put_in: Callable[[dict, Any, Any], None] = passing(lambda: AtOnce.put_in)
    drop_in: Callable[[dict, Any, Any], None] = passing(lambda: AtOnce.drop_in)
    _journal: Journal | None = dataclasses.field(default=None)

    # -- drafts ------------------------------------------------------------------------------------------------------

    @contextmanager
    def draft(self) -> Iterator[Self]:
        """Changes made inside are taken back at the end, with the order of maps. Drafts nest. Facts (`cluster` events) cannot be drafted."""
        before = Drafted(self)
        outer, journal = self._journal, Journal()
        touched, self.touched = self.touched, Touched()
        self._write(journal)
        try:
            yield self
        finally:
            journal.take_back()
            before.put_back()
            self.touched = touched
            self._write(outer)

    def _write(self, journal: Journal | None) -> None:
        """From here on, with this journal or at once."""
        self._journal = journal
        way = AtOnce if journal is None else journal
        self.put, self.drop, self.put_in, self.drop_in = way.put, way.drop, way.put_in, way.drop_in

    @property
    def drafting(self) -> bool:
        return self._journal is not None

    # -- pods ----------------------------------------------------------------------------------------------------------

    def fact_of(self, pod: PodUid) -> PodObserved | None:
        known = self.pods.get(pod)
        return None if known is None else known.fact

    def live_of(self, pod: PodUid) -> PodChanged | None:
        known = self.pods.get(pod)
        return None if known is None else known.live

    def order_of(self, pod: PodUid) -> int:
        return self.pods[pod].order

    # -- what is charged -----------------------------------------------------------------------------------------------

    def _charge(self, row: int, v: Vector, devices: tuple[DeviceShare, ...], sign: int, charged_as: ChargedAs) -> None:
        self.table.charge(row, v, devices, sign, charged_as)
        if self._journal is not None:
            self._journal.did(self.table.charge, row, v, devices, -sign, charged_as)

    def account(self, queue: str, v: Vector, sign: int) -> None:
        if not queue:
            return
        self.accounts.add(queue, v, sign)
        self.touched.queues[queue] = None
        if self._journal is not None:
            self._journal.did(self.accounts.add, queue, v, -sign)
