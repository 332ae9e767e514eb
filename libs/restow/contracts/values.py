"""Values that events carry: the slim form of what scheduling reads, and nothing else.

Quantities are integers in canonical units: `cpu` in thousandths of a core, `memory` and storage in bytes, everything
else in whole units (rounded up, as Kubernetes does). Devices are in thousandths of one device.
"""

from typing import Literal

import msgspec

from restow.contracts.ids import Int, MigrationId, Millis, NodeName, PodUid, ShapeId


class Value(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Base of small values. `gc=False`: none of them can be part of a reference cycle."""


class DeviceShare(Value):
    """A share of one device of a node: `milli` thousandths (1..1000) of the device with this index."""

    index: Int
    milli: Int


class DeviceRequest(Value):
    """`count` devices, `milli` thousandths (1..1000) of each. A whole device is 1000."""

    count: Int
    milli: Int


class CoreRequest(Value):
    """`count` whole CPUs of its own (a cpuset), for pods of Koordinator's QoS classes LSE and LSR; 0 where it asks for no whole
    number of them: then it fits nowhere. `policy`: FullPCPUs (whole physical cores), SpreadByPCPUs (one logical CPU of each), or
    empty for either; with `required` a node that cannot keep to it does not do. `exclusive`: PCPULevel or NUMANodeLevel, not to
    share that with another such pod where it can be helped."""

    count: Int
    policy: str = ""
    required: bool = False
    exclusive: str = ""


class Cpu(Value, array_like=True):
    """One logical CPU of a node: its physical core, socket and NUMA zone."""

    id: Int
    core: Int
    socket: Int
    zone: Int


class Gpu(Value):
    """One GPU of a Device object."""

    index: Int
    healthy: bool = True
    zone: Int = -1


class Expression(Value):
    """One requirement of a selector. Operators: In, NotIn, Exists, DoesNotExist, and Gt, Lt for nodes."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class LabelSelector(Value):
    """metav1.LabelSelector. Empty selects everything; where a selector is optional, None selects nothing."""

    labels: dict[str, str] = {}
    expressions: tuple[Expression, ...] = ()


class NodeTerm(Value):
    """One term of node affinity: expressions over labels and over fields (`metadata.name`), all of them."""

    labels: tuple[Expression, ...] = ()
    fields: tuple[Expression, ...] = ()


class PreferredNodeTerm(Value):
    weight: Int
    term: NodeTerm


class PodTerm(Value):
    """One inter-pod (anti-)affinity term. `weight` 0 means required."""

    topology_key: str
    selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()
    weight: Int = 0


class Spread(Value):
    """A topology spread constraint."""

    max_skew: Int
    topology_key: str
    when_unsatisfiable: str
    selector: LabelSelector | None = None
    min_domains: Int = 0
    node_affinity_policy: str = "Honor"
    node_taints_policy: str = "Ignore"
    match_label_keys: tuple[str, ...] = ()

    @property
    def is_hard(self) -> bool:
        """Whether it keeps pods off nodes; else it only prefers others."""
        return self.when_unsatisfiable == "DoNotSchedule"


class Taint(Value):
    key: str
    effect: str
    value: str = ""


class Toleration(Value):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    seconds: Int | None = None


class NumaZone(Value):
    """One NUMA node: what it has for pods (`allocatable`), in canonical units."""

    name: str
    allocatable: dict[str, Int] = {}


class ClaimChoice(Value):
    """For an unbound claim (`namespace/name`): the PersistentVolume to bind it to, or "" to have one provisioned."""

    claim: str
    volume: str = ""


class HostPort(Value):
    port: Int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"


class Disk(Value):
    """A volume named in the pod itself that no two nodes may use at once (`kind`: gcePersistentDisk,
    awsElasticBlockStore, iscsi, rbd); `id` identifies it."""

    kind: str
    id: str
    read_only: bool = False


class Container(Value):
    """What a rule may compare of a container: never its env, args or mounts. `requests` only in Guaranteed pods, where NUMA
    alignment reads them; `init`: it ends before the others start (a sidecar does not)."""

    name: str
    image: str = ""
    requests: dict[str, Int] = {}
    init: bool = False


class ContainerTrouble(Value):
    """What a container's status says beyond running: how often it was restarted, why it waits, or how it ended (`exit_code`
    None: it has not). `kind`: `init` or `ephemeral`, empty for any other."""

    name: str
    kind: str = ""
    restarts: Int = 0
    waiting: str = ""
    terminated: str = ""
    exit_code: Int | None = None


class PodCondition(Value):
    """A condition of a pod; `since` is its lastTransitionTime."""

    type: str
    status: str
    reason: str = ""
    since: Millis = Millis(0)


class PodShape(Value):
    """What is equal in siblings, and so the scheduler's equivalence class.

    `requests` are effective: containers, init containers, sidecars and overhead, as the scheduler counts them; `pods`
    is always 1. `spec_digest` identifies the part of the pod spec that `matchPolicy: PodSpec` compares.
    `volumes` are kinds that scheduling reads, such as `persistentVolumeClaim`. `qos`: Guaranteed or "" (NUMA alignment).
    `resource_claims` are the names of its claims to dynamically allocated resources, `claim_templates` the templates of those that are made for it. `cores` are CPUs of its own.
    `local_storage`: it has an emptyDir or a hostPath, which stay behind when it goes. `unreadable`: why what it asks for, or was given, cannot be read, with
    path, value and what is allowed; `requests` are then what can be, and whole GPUs where it is not clear how much of them.
    """

    requests: dict[str, Int]
    scheduler: str = "default-scheduler"
    devices: DeviceRequest | None = None
    cores: CoreRequest | None = None
    node_selector: dict[str, str] = {}
    node_affinity: tuple[NodeTerm, ...] | None = None
    node_preferences: tuple[PreferredNodeTerm, ...] = ()
    pod_affinity: tuple[PodTerm, ...] = ()
    pod_anti_affinity: tuple[PodTerm, ...] = ()
    spread: tuple[Spread, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    host_ports: tuple[HostPort, ...] = ()
    volumes: tuple[str, ...] = ()
    disks: tuple[Disk, ...] = ()
    qos: str = ""
    resource_claims: tuple[str, ...] = ()
    claim_templates: dict[str, str] = {}
    priority: Int = 0
    priority_class: str = ""
    preemption: str = "PreemptLowerPriority"
    containers: tuple[Container, ...] = ()
    spec_digest: str = ""
    local_storage: bool = False
    unreadable: str = ""

    @property
    def is_beyond_us(self) -> bool:
        """Whether no rule of ours can say where such a pod fits: it is never placed, and nothing is held for it."""
        return bool(self.resource_claims or self.unreadable)


class OwnerRef(Value):
    """A controller reference."""

    kind: str
    name: str
    uid: str
    api_version: str = ""


Evicted = Literal["", "counted", "ignored", "fatal", "unknown"]
"""What a Job makes of a pod that is evicted."""
Busy = Literal["", "rollout", "paused", "scaling_down", "suspended", "over", "deleting"]
"""What a controller does with its pods for which none of them is moved."""
PodPhase = Literal["Pending", "Running", "Succeeded", "Failed", "Unknown"]


class OwnerRule(Value):
    """Who may use a Reservation: the fields of one rule are ANDed, rules are ORed. None means "any"."""

    object: "ObjectRef | None" = None
    controller: "ObjectRef | None" = None
    selector: LabelSelector | None = None


class ObjectRef(Value):
    """A reference to an object; empty fields match anything."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""


class ReservationTask(Value):
    """`replicas` equal slots of one shape. `preferred_nodes` are soft, in order (`reservationNodeNames`);
    `node` is a hard pin. `namespace`, `labels` and `claims` (PVC names) are what rules about pods see of it."""

    name: str
    replicas: Int
    shape: ShapeId
    labels: dict[str, str] = {}
    preferred_nodes: tuple[NodeName, ...] = ()
    node: NodeName = NodeName("")
    namespace: str = ""
    claims: tuple[str, ...] = ()


MatchPolicy = Literal["PodSpec", "Owner"]
AllocatePolicy = Literal["Aligned", "Restricted", "Covering"]
"""What an owner may take that the hold lacks: from the node (Aligned); nothing of the resources that the hold names
(Restricted); nothing at all (Covering)."""


ReservationForm = Literal["", "tasks", "template"]


class ReservationSpec(Value):
    """Both APIs in one form, before validation: what the object says, in canonical units.

    `ttl` is in milliseconds, None where absent; `expires` is a time, 0 where absent. `min_available` 0 means "all".
    `restricted` are the only resources that Restricted is about, all of the hold's where empty. An `unschedulable` one is
    handed over to nobody but who names or tolerates that, one with `taints` to who tolerates them. With `pre_allocation` a slot
    may be chosen whose capacity is still in use. `gpu` is the name under which its templates ask for GPUs. `form`: whether it has
    `spec.tasks` or one `spec.template` (whose task nobody has named); empty in logs that do not say.
    """

    tasks: tuple[ReservationTask, ...] = ()
    owners: tuple[OwnerRule, ...] = ()
    min_available: Int = 0
    queue: str = ""
    ttl: Int | None = None
    expires: Millis = Millis(0)
    match_policy: MatchPolicy = "PodSpec"
    allocate_once: bool = False
    scheduler: str = ""
    allocate_policy: AllocatePolicy = "Aligned"
    restricted: tuple[str, ...] = ()
    pre_allocation: bool = False
    unschedulable: bool = False
    taints: tuple[Taint, ...] = ()
    gpu: str = ""
    form: ReservationForm = ""


class Move(Value):
    """One migration of a plan: ⟨source, target, pod⟩ with the devices and CPUs that are promised on the target. `after`: moves
    that must have landed before it begins, since their pods leave what it takes. `follows`: it moves the successor of that
    migration on (`pod` is empty then). `swap` is of older logs: two pods were to change places.
    `cost` is what it was weighed with, in thousandths of a unit (that of the plan's `worth`), `reason` why a plugin wants it gone. Where `target` is empty the pod is only evicted, and nothing
    is held: it has ended, or nobody makes it again. `gang`: the PodGroup (`namespace/name`) that is moved as one: all moves of the plan that name it, or none."""

    migration: MigrationId
    pod: PodUid
    namespace: str
    name: str
    source: NodeName
    target: NodeName
    devices: tuple[DeviceShare, ...] = ()
    cores: tuple[Int, ...] = ()
    after: tuple[MigrationId, ...] = ()
    follows: MigrationId = MigrationId("")
    swap: bool = False
    cost: Int = 0
    reason: str = ""
    gang: str = ""


class NetworkTopology(Value):
    """How near to each other in the network the pods of a group are to be. `mode`: hard (in one block of nodes, or nowhere) or soft (in the narrowest that
    there is). A hard one names the widest tier that will do: by number (Volcano's `highestTierAllowed`, 1 is the narrowest group of nodes), by name (`highestTierName`),
    or by the node `label` whose values tell its blocks apart (`scheduling.k8s.io`, Kueue)."""

    mode: Literal["hard", "soft"]
    tier: Int | None = None
    name: str = ""
    label: str = ""


class BlockMember(Value):
    """Who belongs to a HyperNode: the HyperNode of this `name` (`inner`), or the node of this name, nodes whose name has the `pattern` (a regular
    expression, anywhere in it), or those that the `selector` selects."""

    name: str = ""
    inner: bool = False
    pattern: str = ""
    selector: LabelSelector | None = None


class SlotFor(Value):
    """Capacity that a plan makes for a pod that waits: the Reservation of this name holds it on this node as it becomes free."""

    name: str
    pod: PodUid
    namespace: str
    node: NodeName


class Fitting(Value):
    """How many more pods that ask for this would fit, beside each other and alone in the cluster: `devices` with `milli` thousandths of each (0
    for pods without), and `requests` of everything else. `running` of the pods that are there, those that wait included, ask for so many devices."""

    devices: Int
    milli: Int
    requests: dict[str, Int]
    running: Int
    pods: Int


class Dear(Value):
    """What one move costs, and what of it for what: the move itself (`move`), and by the keys of `costs`."""

    migration: MigrationId
    cost: Int
    parts: dict[str, Int]


class Missed(Value):
    """Moves that would have gained something, where none was worth it: how many pods, the first off `source`. `gain` is in thousandths of what the
    `objective` counts, and with a `minimumGain` of at most `least` they would have been made; below zero: the cost is larger than the gain."""

    objective: str
    moves: Int
    source: NodeName
    gain: Int
    cost: Int
    least: Int


class GangsWorth(Value):
    """How many whole gangs of so many `pods` (`devices` with `milli` thousandths of each; 0 for pods without) there is room for, each in one block of this `tier` of the network topology, `before` and `after`, and
    what that is worth, `was` and `will`: in thousandths of the unit, beside what their pods count for one by one. `name` is the tier's."""

    tier: Int
    name: str
    pods: Int
    devices: Int
    milli: Int
    before: Int
    after: Int
    was: Int
    will: Int


class Worth(Value):
    """What a plan wins and costs, in thousandths of `unit`: what the free capacity of all nodes is worth to the demands that there are, for so many `hours`,
    `before` and `after`, and what its moves cost; the `dearest` of them, the dearest first. `missed` where the optimizing planner has found nothing worth it. `gangs`: what of it is for
    gangs that are to be near to each other."""

    unit: str
    hours: Int
    before: Int
    after: Int
    cost: Int
    dearest: tuple[Dear, ...] = ()
    missed: Missed | None = None
    gangs: tuple[GangsWorth, ...] = ()


class MoveSeen(Value):
    """A move that was planned and not made, when somebody looked later. `pod`: `there`, or `ended` (it would have been moved for nothing). `slot`, where the pod is there:
    `free`, `taken` (`why` not: the rules that refuse it) or `gone` (there is no such node); empty where it is not asked."""

    migration: MigrationId
    pod: str
    slot: str = ""
    why: str = ""


class GangFitting(Value):
    """How many more gangs of so many `pods` of the largest size (`devices` with `milli` thousandths of each; 0 for pods without) would fit, each in one block
    of this `tier` of the network topology, beside each other and alone in the cluster. `name` is the tier's."""

    tier: Int
    name: str
    pods: Int
    devices: Int
    milli: Int
    gangs: Int


class Packing(Value):
    """How well the cluster is packed. `fragmented` is idle device share that the typical pods cannot use, `idle` all
    idle device share, `total` all of it (thousandths of a device); `free_devices` are wholly idle; `free_nodes` run
    no pod that counts as load (DaemonSet and static pods do not). `fits`: what could be run besides, the largest first; `gangs`: the same
    of gangs, the narrowest tier first, where the session knows tiers of nodes that are near to each other."""

    nodes: Int
    free_nodes: Int
    total: Int
    idle: Int
    fragmented: Int
    free_devices: Int
    fits: tuple[Fitting, ...] = ()
    gangs: tuple[GangFitting, ...] = ()
