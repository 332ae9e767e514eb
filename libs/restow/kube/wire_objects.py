"""The slim wire form of what pods refer to: groups, queues, classes, volumes, NUMA zones, devices (see `wire`).

Objects of Volcano's CRDs keep spec and status raw: they are read later, so that a bad one is a fact and not an error. The
rest is validated by the API server.
"""

from typing import Any

import msgspec

from restow.contracts.ids import Int
from restow.kube.wire import LabelSelector, Meta, NodeSelector, Quantity, Resources, Wire


class Named(Wire):
    """Only its metadata counts: a Namespace."""

    metadata: Meta


class Custom(Wire):
    """A PodGroup, a Queue or a HyperNode."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw()
    status: msgspec.Raw = msgspec.Raw()


class NetworkTopology(Wire):
    mode: str | None = None
    highest_tier_allowed: Int | None = None
    highest_tier_name: str | None = None


class SubGroup(Wire):
    network_topology: NetworkTopology | None = None


class PodGroupSpec(Wire):
    min_member: Int | None = None
    min_task_member: dict[str, Int] | None = None
    min_resources: dict[str, Quantity] | None = None
    queue: str | None = None
    priority_class_name: str | None = None
    network_topology: NetworkTopology | None = None
    sub_group_policy: list[SubGroup] | None = None
    preemptable: bool | None = None


class ExactMatch(Wire):
    name: str = ""


class Pattern(Wire):
    pattern: str = ""


class MemberSelector(Wire):
    exact_match: ExactMatch | None = None
    regex_match: Pattern | None = None
    label_match: LabelSelector | None = None


class HyperNodeMember(Wire):
    type: str = ""
    selector: MemberSelector | None = None


class HyperNodeSpec(Wire):
    tier: Int = 0
    tier_name: str | None = None
    members: list[HyperNodeMember] | None = None


class Gang(Wire):
    min_count: Int


class SchedulingPolicy(Wire):
    gang: Gang | None = None


class DisruptionModes(Wire):
    """A union: `all` is an empty object."""

    all: dict[str, Any] | None = None


class TopologyConstraint(Wire):
    key: str


class SchedulingConstraints(Wire):
    topology: list[TopologyConstraint] | None = None


class UpstreamPodGroupSpec(Wire):
    """Of `scheduling.k8s.io`. v1alpha2 says its disruptionMode as a word (`PodGroup`), later versions as a union."""

    scheduling_policy: SchedulingPolicy
    scheduling_constraints: SchedulingConstraints | None = None
    disruption_mode: str | DisruptionModes | None = None
    priority_class_name: str | None = None
    parent_composite_pod_group_name: str | None = None


class PodGroupStatus(Wire):
    phase: str | None = None


class Guarantee(Wire):
    resource: dict[str, Quantity] | None = None


class NodeGroups(Wire):
    required: list[str] | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)
    preferred: list[str] | None = msgspec.field(name="preferredDuringSchedulingIgnoredDuringExecution", default=None)


class QueueAffinity(Wire):
    node_group_affinity: NodeGroups | None = None
    node_group_anti_affinity: NodeGroups | None = None


class QueueSpec(Wire):
    """`state` is where the v1alpha2 form had it."""

    weight: Int | None = None
    capability: dict[str, Quantity] | None = None
    guarantee: Guarantee | None = None
    deserved: dict[str, Quantity] | None = None
    reclaimable: bool | None = None
    parent: str | None = None
    priority: Int | None = None
    state: str | None = None
    dequeue_strategy: str | None = None
    affinity: QueueAffinity | None = None
    type: str | None = None
    extend_clusters: msgspec.Raw = msgspec.Raw()


class QueueStatus(Wire):
    state: str | None = None


class PriorityClass(Wire):
    metadata: Meta
    value: Int = 0
    global_default: bool | None = None
    preemption_policy: str | None = None


class ClaimSpec(Wire):
    volume_name: str | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    resources: Resources | None = None
    volume_mode: str | None = None


class Phase(Wire):
    phase: str | None = None


class Claim(Wire):
    """A PersistentVolumeClaim."""

    metadata: Meta
    spec: ClaimSpec | None = None
    status: Phase | None = None


class ClaimReference(Wire):
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Wire):
    required: NodeSelector | None = None


class CsiSource(Wire):
    driver: str = ""
    volume_handle: str = ""


class VolumeSpec(Wire):
    capacity: dict[str, Quantity] | None = None
    storage_class_name: str | None = None
    access_modes: list[str] | None = None
    volume_mode: str | None = None
    claim_ref: ClaimReference | None = None
    node_affinity: VolumeNodeAffinity | None = None
    csi: CsiSource | None = None


class Volume(Wire):
    """A PersistentVolume."""

    metadata: Meta
    spec: VolumeSpec | None = None
    status: Phase | None = None


class TopologyRule(Wire):
    key: str = ""
    values: list[str] | None = None


class TopologyTerm(Wire):
    match_label_expressions: list[TopologyRule] | None = None


class StorageClass(Wire):
    metadata: Meta
    provisioner: str = ""
    volume_binding_mode: str | None = None
    allowed_topologies: list[TopologyTerm] | None = None


class CsiLimit(Wire):
    count: Int | None = None


class CsiDriver(Wire):
    name: str = ""
    allocatable: CsiLimit | None = None


class CsiNodeSpec(Wire):
    drivers: list[CsiDriver] | None = None


class CsiNode(Wire):
    metadata: Meta
    spec: CsiNodeSpec | None = None


class ZoneResource(Wire):
    """`available` is not read: it changes with every pod, and what is left is the fold's to know."""

    name: str = ""
    allocatable: Quantity | None = None


class Zone(Wire):
    name: str = ""
    type: str = ""
    resources: list[ZoneResource] | None = None


class Attribute(Wire):
    name: str = ""
    value: str = ""


class DeviceTopology(Wire):
    node: Int = msgspec.field(default=-1, name="nodeID")


class DeviceInfo(Wire):
    type: str = ""
    minor: Int | None = None
    health: bool | None = None
    topology: DeviceTopology | None = None


class DeviceSpec(Wire):
    devices: list[DeviceInfo] | None = None


class Device(Wire):
    """A Device of Koordinator: all devices of the node of the same name."""

    metadata: Meta
    spec: DeviceSpec | None = None


class BudgetSpec(Wire):
    selector: LabelSelector | None = None
    unhealthy_pod_eviction_policy: str = ""


class BudgetStatus(Wire):
    disruptions_allowed: Int = 0
    current_healthy: Int = 0
    desired_healthy: Int = 0


class Budget(Wire):
    """A PodDisruptionBudget."""

    metadata: Meta
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class QuotaScope(Wire):
    scope_name: str = ""
    operator: str = ""
    values: list[str] | None = None


class QuotaScopes(Wire):
    match_expressions: list[QuotaScope] | None = None


class QuotaSpec(Wire):
    scopes: list[str] | None = None
    scope_selector: QuotaScopes | None = None


class QuotaStatus(Wire):
    hard: dict[str, Quantity] | None = None
    used: dict[str, Quantity] | None = None


class Quota(Wire):
    """A ResourceQuota."""

    metadata: Meta
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


class Topology(Wire):
    """A NodeResourceTopology. It has no spec and no status."""

    metadata: Meta
    topology_policies: list[str] | None = None
    attributes: list[Attribute] | None = None
    zones: list[Zone] | None = None
