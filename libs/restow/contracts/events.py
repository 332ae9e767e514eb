"""Every event, one Struct each. The tag is the event's name on the wire: `<family>.<what happened>`.

Rules of change (`proto/README.md`): fields are added with defaults and never change their meaning; anything else is a new
tag with a suffix (`session.pod_placed.v2`) and an upcaster. A type that a reader does not know is kept, counted and skipped.

Only `cluster` and `session` events move the node table (DESIGN 1).
"""

import msgspec

from restow.contracts.ids import (
    MigrationId,
    Millis,
    NodeName,
    PlanId,
    PodUid,
    ReservationUid,
    ShapeId,
    SlotName,
)
from restow.contracts.values import (
    ClaimChoice,
    DeviceShare,
    Move,
    NodeTerm,
    NumaZone,
    OwnerRef,
    Packing,
    PodPhase,
    PodShape,
    ReservationSpec,
    Taint,
)


class Event(msgspec.Struct, frozen=True, omit_defaults=True, gc=False, tag_field="type"):
    """Base of all events."""


# -- in every family -------------------------------------------------------------------------------------------------


class _Led(Event):
    """A leader's first commit. Whoever folds a higher epoch in its own family stops deciding and acting (DESIGN 2)."""

    epoch: int
    holder: str


class _Configured(Event):
    """Configuration or policy, in full, before it is used. `digest` is the SHA-256 of `text`, hex."""

    text: str
    digest: str


class ClusterLed(_Led, tag="cluster.led"): ...
class SessionLed(_Led, tag="session.led"): ...
class ReservationLed(_Led, tag="reservation.led"): ...
class MigrationLed(_Led, tag="migration.led"): ...
class GcLed(_Led, tag="gc.led"): ...
class ClusterConfigured(_Configured, tag="cluster.configured"): ...
class SessionConfigured(_Configured, tag="session.configured"): ...
class ReservationConfigured(_Configured, tag="reservation.configured"): ...
class MigrationConfigured(_Configured, tag="migration.configured"): ...
class GcConfigured(_Configured, tag="gc.configured"): ...


LED = {"cluster": ClusterLed, "session": SessionLed, "reservation": ReservationLed, "migration": MigrationLed, "gc": GcLed}
CONFIGURED = {
    "cluster": ClusterConfigured,
    "session": SessionConfigured,
    "reservation": ReservationConfigured,
    "migration": MigrationConfigured,
    "gc": GcConfigured,
}


# -- cluster: facts --------------------------------------------------------------------------------------------------


class Synced(Event, tag="cluster.synced"):
    """The fold holds collection `kind` as of this resourceVersion; a relist must not be older."""

    kind: str
    version: str


class NodeObserved(Event, tag="cluster.node_observed"):
    """A node as scheduling reads it. `devices` is the number of its GPUs."""

    name: NodeName
    uid: str
    allocatable: dict[str, int]
    labels: dict[str, str] = {}
    taints: tuple[Taint, ...] = ()
    devices: int = 0
    ready: bool = True
    unschedulable: bool = False


class NodeGone(Event, tag="cluster.node_gone"):
    name: NodeName


class ShapeDeclared(Event, tag="cluster.shape_declared"):
    """Logged once, before the first fact that names it."""

    shape: ShapeId
    spec: PodShape


class PodObserved(Event, tag="cluster.pod_observed"):
    """A pod that the log has not seen, or one whose described part changed. `labels` and the annotations that some rule
    reads are here, as is whatever differs between siblings: `claims` (PVC names) and `pinned_node` (a DaemonSet's)."""

    pod: PodUid
    namespace: str
    name: str
    shape: ShapeId
    created: Millis
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    owner: OwnerRef | None = None
    claims: tuple[str, ...] = ()
    pinned_node: NodeName = NodeName("")
    gated: bool = False
    static: bool = False
    node: NodeName | None = None
    phase: PodPhase = "Pending"
    ready: bool = False
    deleting: Millis = Millis(0)
    reason: str = ""
    devices: tuple[DeviceShare, ...] = ()
    started: Millis = Millis(0)


class PodChanged(Event, tag="cluster.pod_changed"):
    """The moving part of a pod, in full. `deleting` is its deletionTimestamp; `reason` is status.reason (`OutOfcpu`);
    `started` is status.startTime, 0 before the kubelet has it."""

    pod: PodUid
    node: NodeName | None = None
    phase: PodPhase = "Pending"
    ready: bool = False
    deleting: Millis = Millis(0)
    reason: str = ""
    devices: tuple[DeviceShare, ...] = ()
    started: Millis = Millis(0)


class PodGone(Event, tag="cluster.pod_gone"):
    pod: PodUid


class WorkloadObserved(Event, tag="cluster.workload_observed"):
    """A controller that is itself controlled: the ReplicaSet of a Deployment. Needed to know a pod's real owner."""

    uid: str
    kind: str
    namespace: str
    name: str
    owner: OwnerRef


class WorkloadGone(Event, tag="cluster.workload_gone"):
    uid: str


class ReservationObserved(Event, tag="cluster.reservation_observed"):
    """A Reservation object of either front door (`volcano`, `koordinator`). `invalid` says, with path, value and what is
    allowed, why it could not be read; then `spec` is None. `migration` is our own label, to be checked against the log."""

    reservation: ReservationUid
    door: str
    namespace: str
    name: str
    created: Millis
    generation: int = 1
    deleting: Millis = Millis(0)
    migration: MigrationId = MigrationId("")
    spec: ReservationSpec | None = None
    invalid: str = ""


class ReservationGone(Event, tag="cluster.reservation_gone"):
    reservation: ReservationUid


class PodGroupObserved(Event, tag="cluster.pod_group_observed"):
    """A scheduling.volcano.sh PodGroup: a gang. `min_member` and `min_task_member` (by `volcano.sh/task-spec`) must run
    together; amounts in canonical units. `phase` is its status.phase as it is. `invalid` says, with path, value and what
    is allowed, what cannot be read; then the group's pods wait with that reason."""

    namespace: str
    name: str
    uid: str
    created: Millis
    queue: str = ""
    min_member: int = 1
    min_task_member: dict[str, int] = {}
    min_resources: dict[str, int] = {}
    priority_class: str = ""
    annotations: dict[str, str] = {}
    phase: str = ""
    deleting: Millis = Millis(0)
    invalid: str = ""


class PodGroupGone(Event, tag="cluster.pod_group_gone"):
    namespace: str
    name: str


class QueueObserved(Event, tag="cluster.queue_observed"):
    """A scheduling.volcano.sh Queue; amounts in canonical units. `state` is spec.state or status.state, `Open` where
    neither says."""

    name: str
    uid: str
    created: Millis
    weight: int = 1
    capability: dict[str, int] = {}
    guarantee: dict[str, int] = {}
    deserved: dict[str, int] = {}
    reclaimable: bool = True
    parent: str = ""
    priority: int = 0
    state: str = "Open"
    invalid: str = ""


class QueueGone(Event, tag="cluster.queue_gone"):
    name: str


class PriorityClassObserved(Event, tag="cluster.priority_class_observed"):
    name: str
    value: int
    default: bool = False
    preemption: str = "PreemptLowerPriority"


class PriorityClassGone(Event, tag="cluster.priority_class_gone"):
    name: str


class NamespaceObserved(Event, tag="cluster.namespace_observed"):
    """Labels of a namespace, for `namespaceSelector` of inter-pod affinity."""

    name: str
    labels: dict[str, str] = {}


class NamespaceGone(Event, tag="cluster.namespace_gone"):
    name: str


class ClaimObserved(Event, tag="cluster.claim_observed"):
    """A PersistentVolumeClaim. `volume` is spec.volumeName, `storage_class` its class ("" for none), `selected_node` the
    annotation `volume.kubernetes.io/selected-node`; `request` bytes of storage."""

    namespace: str
    name: str
    uid: str
    phase: str = "Pending"
    volume: str = ""
    storage_class: str = ""
    modes: tuple[str, ...] = ()
    request: int = 0
    block: bool = False
    selected_node: NodeName = NodeName("")
    bound: bool = False
    deleting: Millis = Millis(0)


class ClaimGone(Event, tag="cluster.claim_gone"):
    namespace: str
    name: str


class VolumeObserved(Event, tag="cluster.volume_observed"):
    """A PersistentVolume. `claim` is spec.claimRef as `namespace/name`, `claim_uid` its uid; `affinity` is
    spec.nodeAffinity.required (None for everywhere); `zones` are the zone and region labels; `driver` and `handle` of CSI
    volumes."""

    name: str
    uid: str
    phase: str = "Available"
    capacity: int = 0
    storage_class: str = ""
    modes: tuple[str, ...] = ()
    block: bool = False
    claim: str = ""
    claim_uid: str = ""
    affinity: tuple[NodeTerm, ...] | None = None
    zones: dict[str, str] = {}
    driver: str = ""
    handle: str = ""
    deleting: Millis = Millis(0)


class VolumeGone(Event, tag="cluster.volume_gone"):
    name: str


class StorageClassObserved(Event, tag="cluster.storage_class_observed"):
    """`binding` is volumeBindingMode; `topologies` are allowedTopologies, ORed, empty for everywhere."""

    name: str
    provisioner: str = ""
    binding: str = "Immediate"
    topologies: tuple[NodeTerm, ...] = ()
    default: bool = False


class StorageClassGone(Event, tag="cluster.storage_class_gone"):
    name: str


class CsiNodeObserved(Event, tag="cluster.csi_node_observed"):
    """How many volumes of each CSI driver may be attached to a node; a driver without a limit is absent."""

    node: NodeName
    limits: dict[str, int] = {}


class CsiNodeGone(Event, tag="cluster.csi_node_gone"):
    node: NodeName


class NumaObserved(Event, tag="cluster.numa_observed"):
    """A NodeResourceTopology (topology.node.k8s.io): the NUMA zones of the node of the same name, and its kubelet's
    topology manager `policy` (such as `single-numa-node`) and `scope` (`container` or `pod`)."""

    node: NodeName
    policy: str = ""
    scope: str = "container"
    zones: tuple[NumaZone, ...] = ()


class NumaGone(Event, tag="cluster.numa_gone"):
    node: NodeName


# -- session: who holds and uses capacity ----------------------------------------------------------------------------


class PodPlaced(Event, tag="session.pod_placed"):
    """A node is chosen for a pod. `volumes`: what its unbound claims get there; the pod is bound when they are bound."""

    pod: PodUid
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    volumes: tuple[ClaimChoice, ...] = ()


class PodReleased(Event, tag="session.pod_released"):
    """A placement is withdrawn before it became a fact: the bind was refused for good."""

    pod: PodUid
    reason: str


class HoldPlaced(Event, tag="session.hold_placed"):
    """Capacity is held for a place of a Reservation. This *is* availability (DESIGN 1)."""

    reservation: ReservationUid
    slot: SlotName
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()


class HandedOver(Event, tag="session.handed_over"):
    """A hold is released and its capacity given to a pod, in one step (RULES G-5). `volumes` as in `PodPlaced`."""

    reservation: ReservationUid
    slot: SlotName
    pod: PodUid
    node: NodeName
    devices: tuple[DeviceShare, ...] = ()
    volumes: tuple[ClaimChoice, ...] = ()


class HoldReleased(Event, tag="session.hold_released"):
    """A hold ends without an owner. Reasons: Expired, NodeLost, Deleted, Superseded."""

    reservation: ReservationUid
    slot: SlotName
    reason: str


class Unfit(Event, tag="session.unfit"):
    """Nothing fits pods of this shape now. `reasons` counts nodes per rule, of `nodes` in all; `pods` are those that
    began to wait. `key` is set where more than the shape counts (labels, namespace, claims): equal for pods alike. Logged when pods begin to wait, and anew at most every ten seconds a shape when capacity has moved."""

    shape: ShapeId
    nodes: int
    reasons: dict[str, int]
    pods: tuple[PodUid, ...] = ()
    key: str = ""


class Withheld(Event, tag="session.withheld"):
    """These pods wait for something that is not a node: their group, their queue, a named Reservation. `reason` is one
    CamelCase word, `message` a sentence; `group` (`namespace/name`) where a whole gang waits."""

    reason: str
    message: str
    pods: tuple[PodUid, ...]
    group: str = ""
    nodes: int = 0
    reasons: dict[str, int] = {}


class Enqueued(Event, tag="session.enqueued"):
    """The pods of this PodGroup may be scheduled: phase Inqueue (action enqueue)."""

    namespace: str
    group: str


class Preempted(Event, tag="session.preempted"):
    """Intent: evict a pod in favour of another. `action`: preempt or reclaim. Its capacity goes to `by` (RULES 004-6)."""

    pod: PodUid
    by: PodUid
    action: str
    reason: str = ""


class PreemptionEnded(Event, tag="session.preemption_ended"):
    """The pod is no longer to be evicted: its eviction was refused for good, or nobody needs its room any more."""

    pod: PodUid
    reason: str


class Nominated(Event, tag="session.nominated"):
    """Capacity on this node is held for a pod: what is free now at once, the rest as the victims leave (RULES 004-6).
    After `deadline` it is given up."""

    pod: PodUid
    node: NodeName
    deadline: Millis
    devices: tuple[DeviceShare, ...] = ()
    victims: tuple[PodUid, ...] = ()


class NominationEnded(Event, tag="session.nomination_ended"):
    """Nothing is held for the pod any more."""

    pod: PodUid
    reason: str


class TaskReserved(Event, tag="session.task_reserved"):
    """A task of a starving job waits for this node (status Reserved, seed 002): it uses nothing, and no other task that
    is not BestEffort comes to the node meanwhile."""

    pod: PodUid
    node: NodeName


class TaskUnreserved(Event, tag="session.task_unreserved"):
    """Reasons: Ready, Deleted (too few pods are left), NodeLost, Preempted (by a starving job of higher priority), Discarded
    (its job cannot become ready with what is reserved, or such jobs are not served any more)."""

    pod: PodUid
    reason: str


class HoldUnfit(Event, tag="session.hold_unfit"):
    """Nothing fits this place of a Reservation now; or, with `reason` (one CamelCase word) and `message`, it waits for
    something that is not a node, such as a queue."""

    reservation: ReservationUid
    slot: SlotName
    nodes: int
    reasons: dict[str, int]
    reason: str = ""
    message: str = ""


# -- reservation: which Reservations are valid -----------------------------------------------------------------------


class ReservationAccepted(Event, tag="reservation.accepted"):
    """This generation is valid and may be held. `expires` is absolute, 0 for never (RULES G-2)."""

    reservation: ReservationUid
    generation: int
    min_available: int
    expires: Millis = Millis(0)


class ReservationRefused(Event, tag="reservation.refused"):
    """This generation can never be held: phase Failed. `reason` is one CamelCase word."""

    reservation: ReservationUid
    generation: int
    reason: str
    message: str


# -- migration: plans and the saga -----------------------------------------------------------------------------------


class Planned(Event, tag="migration.planned"):
    """A plan: moves in order, what it does to packing, and why candidates stayed (counts per verdict). `trigger`: interval,
    cron, api."""

    plan: PlanId
    plugin: str
    moves: tuple[Move, ...]
    before: Packing
    after: Packing
    sources: tuple[NodeName, ...] = ()
    kept: dict[str, int] = {}
    trigger: str = ""


class Holding(Event, tag="migration.holding"):
    """Intent: create the Reservation `restow-<migration>` that holds the landing place."""

    migration: MigrationId
    deadline: Millis


class Held(Event, tag="migration.held"):
    migration: MigrationId


class Evicting(Event, tag="migration.evicting"):
    """Intent: evict the pod, with its uid and resourceVersion as preconditions."""

    migration: MigrationId
    deadline: Millis


class Evicted(Event, tag="migration.evicted"):
    """The pod's deletionTimestamp, or its end, is a fact. Arms the hold."""

    migration: MigrationId
    deadline: Millis


class Aborting(Event, tag="migration.aborting"):
    """Intent: mark the pod `restow.dev/migration: aborted`, so that no late eviction can succeed, then roll back."""

    migration: MigrationId
    reason: str
    message: str = ""


class Landed(Event, tag="migration.landed"):
    """The successor is ready on the target."""

    migration: MigrationId
    pod: PodUid
    node: NodeName


class MigrationFailed(Event, tag="migration.failed"):
    """Rolled back: the pod stays, the hold is released. `reason` is one CamelCase word."""

    migration: MigrationId
    reason: str
    message: str = ""


class NotRecreated(Event, tag="migration.not_recreated"):
    """The pod was evicted and its controller made no successor in time; the hold is released."""

    migration: MigrationId


# -- gc: what is due -------------------------------------------------------------------------------------------------


class Expired(Event, tag="gc.expired"):
    """A Reservation's time is over. The session answers with `hold_released` for what no pod uses."""

    reservation: ReservationUid


class Collected(Event, tag="gc.collected"):
    """Intent: delete the Reservation object. `reason`: Retention (finished long enough ago) or Orphaned (its migration is
    over or unknown)."""

    reservation: ReservationUid
    reason: str


class SnapshotTaken(Event, tag="gc.snapshot_taken"):
    """State as of sequence `seq` is stored."""

    seq: int
    fold: int
    size: int


class Archived(Event, tag="gc.archived"):
    """Sequences first..last are in an archive segment with this digest."""

    first: int
    last: int
    file: str
    digest: str


class Truncated(Event, tag="gc.truncated"):
    """Intent: drop every message up to and including `upto`; snapshot and archive cover them."""

    upto: int


class Unknown(msgspec.Struct, frozen=True):
    """An event of a type that this version does not know. Kept as it came, counted, skipped by every fold."""

    name: str
    raw: bytes


EVENTS: tuple[type[Event], ...] = (
    ClusterLed,
    ClusterConfigured,
    Synced,
    NodeObserved,
    NodeGone,
    ShapeDeclared,
    PodObserved,
    PodChanged,
    PodGone,
    WorkloadObserved,
    WorkloadGone,
    ReservationObserved,
    ReservationGone,
    PodGroupObserved,
    PodGroupGone,
    QueueObserved,
    QueueGone,
    PriorityClassObserved,
    PriorityClassGone,
    NamespaceObserved,
    NamespaceGone,
    ClaimObserved,
    ClaimGone,
    VolumeObserved,
    VolumeGone,
    StorageClassObserved,
    StorageClassGone,
    CsiNodeObserved,
    CsiNodeGone,
    NumaObserved,
    NumaGone,
    SessionLed,
    SessionConfigured,
    PodPlaced,
    PodReleased,
    HoldPlaced,
    HandedOver,
    HoldReleased,
    Unfit,
    Withheld,
    Enqueued,
    Preempted,
    PreemptionEnded,
    Nominated,
    NominationEnded,
    TaskReserved,
    TaskUnreserved,
    HoldUnfit,
    ReservationLed,
    ReservationConfigured,
    ReservationAccepted,
    ReservationRefused,
    MigrationLed,
    MigrationConfigured,
    Planned,
    Holding,
    Held,
    Evicting,
    Evicted,
    Aborting,
    Landed,
    MigrationFailed,
    NotRecreated,
    GcLed,
    GcConfigured,
    Expired,
    Collected,
    SnapshotTaken,
    Archived,
    Truncated,
)
