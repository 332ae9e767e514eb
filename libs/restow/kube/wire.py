"""The slim wire form: the fields of Kubernetes objects that scheduling reads, decoded straight from JSON bytes.

What is not named here is skipped by the decoder and never becomes a Python object: env, args, commands, mounts, managed
fields, container states. `None` is allowed wherever Go may write `null`.
"""

from datetime import datetime

import msgspec

from restow.contracts.ids import Int

Quantity = str | int | float


class Wire(msgspec.Struct, rename="camel", gc=False, omit_defaults=True):
    """Base of wire forms. Their JSON encoding (without defaults) also serves as a cache key, see `shapes`."""


class Owner(Wire):
    kind: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""
    controller: bool | None = None


class Meta(Wire):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: Int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None


class Expression(Wire):
    key: str = ""
    operator: str = ""
    values: list[str] | None = None


class LabelSelector(Wire):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class NodeTerm(Wire):
    match_expressions: list[Expression] | None = None
    match_fields: list[Expression] | None = None


class NodeSelector(Wire):
    node_selector_terms: list[NodeTerm] | None = None


class PreferredNodeTerm(Wire):
    weight: Int = 0
    preference: NodeTerm | None = None


class NodeAffinity(Wire):
    required: NodeSelector | None = msgspec.field(default=None, name="requiredDuringSchedulingIgnoredDuringExecution")
    preferred: list[PreferredNodeTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class PodTerm(Wire):
    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None
    match_label_keys: list[str] | None = None
    mismatch_label_keys: list[str] | None = None


class WeightedPodTerm(Wire):
    weight: Int = 0
    pod_affinity_term: PodTerm | None = None


class PodAffinity(Wire):
    required: list[PodTerm] | None = msgspec.field(
        default=None, name="requiredDuringSchedulingIgnoredDuringExecution"
    )
    preferred: list[WeightedPodTerm] | None = msgspec.field(
        default=None, name="preferredDuringSchedulingIgnoredDuringExecution"
    )


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Wire):
    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: Int | None = None


class Spread(Wire):
    max_skew: Int = 1
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: Int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class Resources(Wire):
    requests: dict[str, Quantity] | None = None
    limits: dict[str, Quantity] | None = None


class Port(Wire):
    container_port: Int = 0
    host_port: Int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class Container(Wire):
    name: str = ""
    image: str = ""
    resources: Resources | None = None
    ports: list[Port] | None = None
    restart_policy: str | None = None


class Claim(Wire):
    claim_name: str = ""


class Present(Wire):
    """Whatever is inside is not read."""


class GceDisk(Wire):
    pd_name: str = ""
    read_only: bool | None = None


class AwsDisk(Wire):
    volume_id: str = msgspec.field(default="", name="volumeID")


class IscsiDisk(Wire):
    iqn: str = ""
    read_only: bool | None = None


class RbdDisk(Wire):
    monitors: list[str] | None = None
    image: str = ""
    pool: str | None = None
    read_only: bool | None = None


class Volume(Wire):
    """Only the kinds that a scheduler reads; a volume of any other kind has a name and nothing else."""

    name: str = ""
    persistent_volume_claim: Claim | None = None
    ephemeral: Present | None = None
    csi: Present | None = None
    gce_persistent_disk: GceDisk | None = None
    aws_elastic_block_store: AwsDisk | None = None
    azure_disk: Present | None = None
    cinder: Present | None = None
    fc: Present | None = None
    iscsi: IscsiDisk | None = None
    rbd: RbdDisk | None = None
    empty_dir: Present | None = None
    host_path: Present | None = None


class PodClaim(Wire):
    """Of dynamic resource allocation: how the pod calls a claim, and the template that it is made from, if it is made for the pod."""

    name: str
    resource_claim_template_name: str | None = None


class Gate(Wire):
    name: str = ""


class SchedulingGroup(Wire):
    pod_group_name: str | None = None


class WorkloadRef(Wire):
    name: str = ""
    pod_group: str = ""
    pod_group_replica_key: str = ""


class PodSpec(Wire):
    node_name: str | None = None
    scheduler_name: str | None = None
    node_selector: dict[str, str] | None = None
    affinity: Affinity | None = None
    tolerations: list[Toleration] | None = None
    topology_spread_constraints: list[Spread] | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    overhead: dict[str, Quantity] | None = None
    resources: Resources | None = None
    volumes: list[Volume] | None = None
    priority: Int | None = None
    priority_class_name: str | None = None
    preemption_policy: str | None = None
    scheduling_gates: list[Gate] | None = None
    resource_claims: list[PodClaim] | None = None
    host_network: bool | None = None
    scheduling_group: SchedulingGroup | None = None
    workload_ref: WorkloadRef | None = None
    eviction_responders: list[Gate] | None = None
    termination_grace_period_seconds: Int | None = None


class Condition(Wire):
    type: str = ""
    status: str = ""


class PodCondition(Condition):
    reason: str = ""
    last_transition_time: datetime | None = None


class Waits(Wire):
    reason: str = ""


class Ended(Wire):
    reason: str = ""
    exit_code: Int = 0


class ContainerState(Wire):
    waiting: Waits | None = None
    terminated: Ended | None = None


class ContainerStatus(Wire):
    name: str = ""
    restart_count: Int = 0
    state: ContainerState | None = None
    allocated_resources: dict[str, Quantity] | None = None
    resources: Resources | None = None


class PodStatus(Wire):
    phase: str = ""
    reason: str = ""
    nominated_node_name: str = ""
    start_time: datetime | None = None
    conditions: list[PodCondition] | None = None
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class Pod(Wire):
    metadata: Meta
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Taint(Wire):
    key: str = ""
    effect: str = ""
    value: str = ""


class NodeSpec(Wire):
    unschedulable: bool | None = None
    taints: list[Taint] | None = None


class NodeStatus(Wire):
    allocatable: dict[str, Quantity] | None = None
    conditions: list[Condition] | None = None


class Node(Wire):
    metadata: Meta
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class Workload(Wire):
    """Whatever may be controlled, or control pods itself."""

    metadata: Meta


class ScaledSpec(Wire):
    replicas: Int | None = None
    paused: bool | None = None


class ScaledStatus(Wire):
    observed_generation: Int = 0
    replicas: Int = 0
    updated_replicas: Int = 0


class ReplicaSet(Workload):
    spec: ScaledSpec | None = None
    status: ScaledStatus | None = None


class Deployment(ReplicaSet):
    pass


class RollingUpdate(Wire):
    partition: Int | None = None


class UpdateStrategy(Wire):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None


class Ordinals(Wire):
    start: Int = 0


class StatefulSetSpec(Wire):
    replicas: Int | None = None
    ordinals: Ordinals | None = None
    update_strategy: UpdateStrategy | None = None
    pod_management_policy: str = ""


class StatefulSetStatus(Wire):
    observed_generation: Int = 0
    replicas: Int = 0
    current_replicas: Int = 0
    current_revision: str = ""
    update_revision: str = ""


class StatefulSet(Workload):
    spec: StatefulSetSpec | None = None
    status: StatefulSetStatus | None = None


class FailureCondition(Wire):
    type: str = ""
    status: str = "True"


class FailureRule(Wire):
    action: str = ""
    on_pod_conditions: list[FailureCondition] | None = None


class FailurePolicy(Wire):
    rules: list[FailureRule] | None = None


class JobSpec(Wire):
    backoff_limit: Int | None = None
    backoff_limit_per_index: Int | None = None
    pod_failure_policy: FailurePolicy | None = None
    managed_by: str = ""
    suspend: bool | None = None
    completions: Int | None = None
    parallelism: Int | None = None


class Uncounted(Wire):
    failed: list[str] | None = None


class JobStatus(Wire):
    failed: Int | None = None
    uncounted_terminated_pods: Uncounted | None = None
    active: Int | None = None
    succeeded: Int | None = None
    conditions: list[Condition] | None = None


class Job(Workload):
    """What says whether it outlives the eviction of a pod."""

    spec: JobSpec | None = None
    status: JobStatus | None = None


class VolcanoPolicy(Wire):
    """One of both is set; in the older API the first."""

    event: str = ""
    events: list[str] | None = None
    action: str = ""


class VolcanoTask(Wire):
    name: str = ""
    policies: list[VolcanoPolicy] | None = None


class VolcanoJobSpec(Wire):
    policies: list[VolcanoPolicy] | None = None
    tasks: list[VolcanoTask] | None = None


class VolcanoState(Wire):
    phase: str = ""


class VolcanoJobStatus(Wire):
    state: VolcanoState | None = None


class VolcanoJob(Workload):
    """Volcano's own Job: what it does when a pod of it is evicted, its policies say."""

    spec: VolcanoJobSpec | None = None
    status: VolcanoJobStatus | None = None


class Reservation(Wire):
    """Either API. The spec is read later, so that a bad one is a fact and not an error."""

    metadata: Meta
    spec: msgspec.Raw = msgspec.Raw()


class TemplateMeta(Wire):
    namespace: str | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class Template(Wire):
    metadata: TemplateMeta | None = None
    spec: PodSpec | None = None


class Task(Wire):
    name: str = ""
    replicas: Int | None = None
    template: Template | None = None
    reservation_node_names: list[str] | None = None


class Reference(Wire):
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""
    api_version: str = ""


class ObjectReference(Reference):
    """The last two are checked and not used."""

    field_path: str = ""
    resource_version: str = ""


class ControllerReference(Reference):
    """The last two are checked and not used: who controls a pod is its controller."""

    controller: bool | None = None
    block_owner_deletion: bool | None = None


class OwnerRule(Wire):
    object: ObjectReference | None = None
    controller: ControllerReference | None = None
    label_selector: LabelSelector | None = None


class ReservationTaint(Taint):
    """`time_added` is checked and not used: nobody is evicted from a hold."""

    time_added: datetime | None = None


class ReservationSpec(Wire):
    """The union of seeds 000, 003 and 004: each API and form says which fields it allows."""

    scheduler_name: str | None = None
    min_available: Int | None = None
    tasks: list[Task] | None = None
    template: Template | None = None
    queue: str | None = None
    owners: list[OwnerRule] | None = None
    ttl: str | None = None
    expires: datetime | None = None
    match_policy: str | None = None
    allocate_once: bool | None = None
    allocate_policy: str | None = None
    pre_allocation: bool | None = None
    unschedulable: bool | None = None
    taints: list[ReservationTaint] | None = None


class StatusCause(Wire):
    reason: str = ""


class StatusDetails(Wire):
    retry_after_seconds: Int | None = None
    causes: list[StatusCause] | None = None


class Status(Wire):
    """metav1.Status, as error bodies and ERROR lines carry it."""

    code: Int = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None
