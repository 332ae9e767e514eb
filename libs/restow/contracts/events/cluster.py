"""Facts: what the Kubernetes API says is."""

import msgspec

from restow.contracts.dynamic_resources import (
    AllocatedDevice,
    ClaimConstraint,
    ClaimRequest,
    CounterSet,
    PublishedDevice,
)
from restow.contracts.events.base import Event
from restow.contracts.ids import (
    Int,
    MigrationId,
    Millis,
    NodeName,
    PodUid,
    ReservationUid,
    ShapeId,
)
from restow.contracts.values import (
    BlockMember,
    Busy,
    ContainerTrouble,
    Cpu,
    DeviceShare,
    Evicted,
    Expression,
    Gpu,
    LabelSelector,
    NetworkTopology,
    NodeTerm,
    NumaZone,
    OwnerRef,
    PodCondition,
    PodPhase,
    PodShape,
    ReservationSpec,
    Taint,
)


class Synced(Event, tag="cluster.synced"):
    """The fold holds collection `kind` as of this resourceVersion; a relist must not be older."""

    kind: str
    version: str


class NodeObserved(Event, tag="cluster.node_observed"):
    """A node, as scheduling reads it. `devices` is the number of its GPUs; `cpus` are its logical CPUs, if an annotation
    lists them. `unreadable`: why its object cannot be read; all else is then as it was known last, and it is `unschedulable`.
    `marks`: the annotations that say what Restow itself has set on it (`restow.dev/protected`, `restow.dev/cordoned`).
    `do_not_disrupt`: somebody else asks Karpenter to leave it alone."""

    name: NodeName
    uid: str
    allocatable: dict[str, Int]
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    devices: Int = 0
    ready: bool = True
    unschedulable: bool = False
    cpus: tuple[Cpu, ...] = ()
    unreadable: str = ""
    marks: dict[str, str] = msgspec.field(default_factory=dict)
    do_not_disrupt: bool = False


class NodeGone(Event, tag="cluster.node_gone"):
    name: NodeName


class ShapeDeclared(Event, tag="cluster.shape_declared"):
    """Logged once, before the first fact that names it."""

    shape: ShapeId
    spec: PodShape


class PodObserved(Event, tag="cluster.pod_observed"):
    """A pod that the log has not seen, or whose description has changed. It has `labels`, the annotations that some rule
    reads, and what differs between siblings: `claims` (PVC names) and `pinned_node` (of a DaemonSet's pod). `owner` is its
    controller; `owners` are all other owner references. `gates`: its scheduling gates; none in older logs. `landing`: the only
    one is Restow's (`restow.dev/landing`). `nominated`: while it has no node, the node that another
    scheduler has nominated it for (or Restow, where it is a placeholder that is never bound). `grace`: its terminationGracePeriodSeconds,
    where that is more than five minutes; 0 in older logs.
    Fields that `PodChanged` also has are its moving part."""

    pod: PodUid
    namespace: str
    name: str
    shape: ShapeId
    created: Millis
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
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
    cores: tuple[Int, ...] = ()
    owners: tuple[OwnerRef, ...] = ()
    unready: Millis = Millis(0)
    initialized: Millis = Millis(0)
    sandboxless: Millis = Millis(0)
    waiting: str = ""
    well: tuple[Int, ...] = ()
    landing: bool = False
    gates: tuple[str, ...] = ()
    nominated: NodeName = NodeName("")
    grace: Int = 0

    def moving(self) -> "PodChanged":
        """Its moving part."""
        # One by one: this is half as long as asking for all of them at once, and every pod that comes is asked.
        return PodChanged(
            self.pod, self.node, self.phase, self.ready, self.deleting, self.reason, self.devices, self.started, self.cores, self.unready,
            self.initialized, self.sandboxless, self.waiting, self.well,
        )  # fmt: skip


WELL = ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
"""Conditions of a pod that runs well, in the order in which they become True."""


class PodChanged(Event, tag="cluster.pod_changed"):
    """The moving part of a pod, in full. `deleting` is its first deletionTimestamp; `reason` is status.reason (`OutOfcpu`);
    `started` is status.startTime, 0 until the kubelet sets it. `well` says since when the conditions `WELL` have been True
    without a reason, in this order, in seconds after the pod's creation: -1 for a condition that is not; empty for a pod
    without a node, for one that is being deleted, and in older logs. The last fields hold what every pod reports while it
    starts, is not ready, or has succeeded, so that this needs no `PodTroubled`; they mean nothing for a pod that reports
    anything else or is being deleted. Their times are a lastTransitionTime, or 0. `unready`: Ready and ContainersReady are
    False, with reason ContainersNotReady (in phase Succeeded: PodCompleted; then all containers have ended with 0,
    Completed). `initialized`: Initialized is False with ContainersNotInitialized (in phase Succeeded: True with
    PodCompleted). `sandboxless`: PodReadyToStartContainers is False. `waiting`: the one reason why containers wait,
    ContainerCreating or PodInitializing."""

    pod: PodUid
    node: NodeName | None = None
    phase: PodPhase = "Pending"
    ready: bool = False
    deleting: Millis = Millis(0)
    reason: str = ""
    devices: tuple[DeviceShare, ...] = ()
    started: Millis = Millis(0)
    cores: tuple[Int, ...] = ()
    unready: Millis = Millis(0)
    initialized: Millis = Millis(0)
    sandboxless: Millis = Millis(0)
    waiting: str = ""
    well: tuple[Int, ...] = ()


class PodTroubled(Event, tag="cluster.pod_troubled"):
    """What a pod on a node reports that a pod which starts, runs or succeeds normally does not: containers that were
    restarted, wait or have ended, and conditions; in full, for descheduling. If both are empty, `PodChanged` says
    everything (again). A pod without trouble has none of these. Nothing more is reported once a pod is being deleted."""

    pod: PodUid
    containers: tuple[ContainerTrouble, ...] = ()
    conditions: tuple[PodCondition, ...] = ()


class PodGone(Event, tag="cluster.pod_gone"):
    pod: PodUid


class WorkloadObserved(Event, tag="cluster.workload_observed"):
    """A ReplicaSet (which leads to its pods' real owner), Deployment, StatefulSet, Job or Volcano Job, as long as it exists; by watchers up to 0.2, a
    StatefulSet only while something else than `wanted` was to be said of it. `movable` is its annotation
    `restow.dev/movable`. `evicted` is what a Job makes of an evicted pod: `counted` as failed (`retries` more may fail before
    the Job does; of each index so many as `per_index` says, if it does), `ignored`, `fatal` for the Job, or `unknown`. Empty if it is not a Job. `busy`: why it may not make an
    evicted pod again just now, or makes another one. `group`: its API group, if `kind` alone does not tell. `owner` is of
    ReplicaSets and Jobs only. `hooks` are its annotations that say who is asked before its
    pods are moved, and told after it. Of a StatefulSet: `parallel` if its pods are made without waiting for each other, and
    `revision` is what they are made by if it is updated by deletions or beyond a partition, and some may be of another one; those whose ordinal
    is less than `kept_below` are made by `kept`. `wanted`: the ordinal from which on
    it makes none; of a Deployment, and of a ReplicaSet that nobody controls, how many pods it wants."""

    uid: str
    kind: str
    namespace: str
    name: str
    owner: OwnerRef | None = None
    movable: str = ""
    evicted: Evicted = ""
    retries: Int = 0
    busy: Busy = ""
    group: str = ""
    hooks: dict[str, str] = msgspec.field(default_factory=dict)
    parallel: bool = False
    revision: str = ""
    kept: str = ""
    kept_below: Int = 0
    per_index: Int | None = None
    wanted: Int | None = None


class WorkloadGone(Event, tag="cluster.workload_gone"):
    """It was deleted; by a watcher of 0.2 or older, or a StatefulSet is at rest again."""

    uid: str


class ReservationObserved(Event, tag="cluster.reservation_observed"):
    """A Reservation object of either API (`volcano`, `koordinator`). If it could not be read, `invalid` says why, with
    path, value and what is allowed, and `spec` is None. `migration` is our own label, to be checked against the log.
    `labels` are all of its labels, which affinity to Reservations reads. `unknown` lists the paths of fields without
    meaning. `schedulers` are named by the templates of a Reservation that could not be read; those of any other are in
    their shapes."""

    reservation: ReservationUid
    api: str
    namespace: str
    name: str
    created: Millis
    generation: Int = 1
    deleting: Millis = Millis(0)
    migration: MigrationId = MigrationId("")
    spec: ReservationSpec | None = None
    invalid: str = ""
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    schedulers: tuple[str, ...] = ()


class ReservationGone(Event, tag="cluster.reservation_gone"):
    reservation: ReservationUid


class PodGroupObserved(Event, tag="cluster.pod_group_observed"):
    """A PodGroup, a gang: of scheduling.volcano.sh or, where `name` begins with `scheduling.k8s.io:`, of scheduling.k8s.io.
    `min_member` and `min_task_member` (by `volcano.sh/task-spec`) must run together. Amounts are in canonical units. `phase` is its current status.phase. `invalid` says what cannot be read or
    honoured, with path, value and what is allowed; the group's pods then wait with that reason. `unheeded` names
    preferences that are accepted but not honoured. `together`: its pods are disrupted all at once or not at all. `topology`: how near its pods are to be."""

    namespace: str
    name: str
    uid: str
    created: Millis
    queue: str = ""
    min_member: Int = 1
    min_task_member: dict[str, Int] = msgspec.field(default_factory=dict)
    min_resources: dict[str, Int] = msgspec.field(default_factory=dict)
    priority_class: str = ""
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    phase: str = ""
    deleting: Millis = Millis(0)
    invalid: str = ""
    unheeded: str = ""
    together: bool = False
    topology: NetworkTopology | None = None


class PodGroupGone(Event, tag="cluster.pod_group_gone"):
    namespace: str
    name: str


class QueueObserved(Event, tag="cluster.queue_observed"):
    """A scheduling.volcano.sh Queue. Amounts are in canonical units. `state` is spec.state or status.state, or `Open` if
    neither is set. `unheeded` names preferences that are accepted but not honoured."""

    name: str
    uid: str
    created: Millis
    weight: Int = 1
    capability: dict[str, Int] = msgspec.field(default_factory=dict)
    guarantee: dict[str, Int] = msgspec.field(default_factory=dict)
    deserved: dict[str, Int] = msgspec.field(default_factory=dict)
    reclaimable: bool = True
    parent: str = ""
    priority: Int = 0
    state: str = "Open"
    invalid: str = ""
    unheeded: str = ""


class QueueGone(Event, tag="cluster.queue_gone"):
    name: str


class PriorityClassObserved(Event, tag="cluster.priority_class_observed"):
    name: str
    value: Int
    default: bool = False
    preemption: str = "PreemptLowerPriority"


class PriorityClassGone(Event, tag="cluster.priority_class_gone"):
    name: str


class NamespaceObserved(Event, tag="cluster.namespace_observed"):
    """Labels of a namespace, for `namespaceSelector` of inter-pod affinity."""

    name: str
    labels: dict[str, str] = msgspec.field(default_factory=dict)


class NamespaceGone(Event, tag="cluster.namespace_gone"):
    name: str


class BudgetObserved(Event, tag="cluster.budget_observed"):
    """A PodDisruptionBudget: the pods it covers (`selector` None: no pod), and how many of them may be evicted now.
    `unready`: pods that are not ready may be evicted besides (`unhealthyPodEvictionPolicy: AlwaysAllow`, or as many pods
    are healthy as it wants)."""

    namespace: str
    name: str
    uid: str
    selector: LabelSelector | None = None
    allowed: Int = 0
    unready: bool = False


class BudgetGone(Event, tag="cluster.budget_gone"):
    namespace: str
    name: str


class QuotaObserved(Event, tag="cluster.quota_observed"):
    """A ResourceQuota: the pod resources (`pods`, `requests.cpu`, `limits.memory`, …) of which more is in use than it
    allows, so that no other pod requesting them is admitted. `scopes` limit it to pods that match all of them. Empty if
    nothing is exceeded."""

    namespace: str
    name: str
    uid: str
    exceeded: tuple[str, ...] = ()
    scopes: tuple[Expression, ...] = ()


class QuotaGone(Event, tag="cluster.quota_gone"):
    namespace: str
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
    request: Int = 0
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
    capacity: Int = 0
    storage_class: str = ""
    modes: tuple[str, ...] = ()
    block: bool = False
    claim: str = ""
    claim_uid: str = ""
    affinity: tuple[NodeTerm, ...] | None = None
    zones: dict[str, str] = msgspec.field(default_factory=dict)
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
    limits: dict[str, Int] = msgspec.field(default_factory=dict)


class CsiNodeGone(Event, tag="cluster.csi_node_gone"):
    node: NodeName


class NumaObserved(Event, tag="cluster.numa_observed"):
    """A NodeResourceTopology (topology.node.k8s.io): the NUMA zones of the node of that name, and its kubelet's topology
    manager `policy` (such as `single-numa-node`) and `scope` (`container` or `pod`). `cpus` are the node's logical CPUs, if
    an annotation lists them."""

    node: NodeName
    policy: str = ""
    scope: str = "container"
    zones: tuple[NumaZone, ...] = ()
    cpus: tuple[Cpu, ...] = ()


class NumaGone(Event, tag="cluster.numa_gone"):
    node: NodeName


class DeviceObserved(Event, tag="cluster.device_observed"):
    """A Device (scheduling.koordinator.sh): the GPUs of the node of that name."""

    node: NodeName
    gpus: tuple[Gpu, ...] = ()


class DeviceGone(Event, tag="cluster.device_gone"):
    node: NodeName


class HyperNodeObserved(Event, tag="cluster.hyper_node_observed"):
    """A HyperNode (topology.volcano.sh): nodes that are near to each other in the network, the nearer the lower the `tier`. `invalid` says what cannot be
    read, with path, value and what is allowed; then it has no members."""

    name: str
    tier: Int = 1
    tier_name: str = ""
    members: tuple[BlockMember, ...] = ()
    invalid: str = ""


class HyperNodeGone(Event, tag="cluster.hyper_node_gone"):
    name: str


class ResourceSliceObserved(Event, tag="cluster.resource_slice_observed"):
    """A ResourceSlice (resource.k8s.io): devices that a driver publishes in a pool, of which this is one of `slices` of its `generation`. It is about the
    node `node`, or about those that meet `nodes` (terms, ORed), or about all (`everywhere`), or (if none of these) each device says
    where it is. `common`: attributes that all of its devices have alike. `counters` are what devices of the pool share."""

    name: str
    driver: str
    pool: str
    generation: Int = 0
    slices: Int = 1
    node: NodeName = NodeName("")
    nodes: tuple[NodeTerm, ...] | None = None
    everywhere: bool = False
    common: dict[str, str] = msgspec.field(default_factory=dict)
    devices: tuple[PublishedDevice, ...] = ()
    counters: tuple[CounterSet, ...] = ()


class ResourceSliceGone(Event, tag="cluster.resource_slice_gone"):
    name: str


class ResourceClaimObserved(Event, tag="cluster.resource_claim_observed"):
    """A ResourceClaim (resource.k8s.io). `owner`: the pod that it was made for from a template, and `pod_claim` how that pod calls it. `allocated`: the devices
    that it has; `reserved`: the pods that may use them, `reserved_otherwise` if somebody else may, too."""

    namespace: str
    name: str
    uid: str
    owner: PodUid = PodUid("")
    pod_claim: str = ""
    requests: tuple[ClaimRequest, ...] = ()
    constraints: tuple[ClaimConstraint, ...] = ()
    allocated: tuple[AllocatedDevice, ...] = ()
    reserved: tuple[PodUid, ...] = ()
    reserved_otherwise: bool = False
    deleting: Millis = Millis(0)


class ResourceClaimGone(Event, tag="cluster.resource_claim_gone"):
    namespace: str
    name: str


class DeviceClassObserved(Event, tag="cluster.device_class_observed"):
    """A DeviceClass (resource.k8s.io). `selectors` are CEL, all of which its devices meet. `extended_resource`: pods that request this resource by name get devices of the class."""

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""


class DeviceClassGone(Event, tag="cluster.device_class_gone"):
    name: str
