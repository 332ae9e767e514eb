"""Controllers of pods → facts: whose they are, what an eviction means to them, and whether they are at work on their pods.

`busy` goes by what a controller is to have and has, never by which of its pods are ready: an eviction of ours must not look like a rollout.
Of each controller there is a fact as long as it exists, also of one at rest: where none is any more, nobody makes its pods again.
"""

from typing import Literal

from restow.contracts import events as e
from restow.contracts import values as v
from restow.domain.hooks import DECLARED
from restow.domain.pod_controllers import MOVABLE, group_of_version
from restow.kube import wire
from restow.kube.decode import WORKLOADS, Collection
from restow.kube.describe import controller, has_condition

ROLLING_UPDATE = "RollingUpdate"
DISRUPTION_TARGET = "DisruptionTarget"
"""The condition of a pod that is evicted."""
OWN_CONTROLLER = "kubernetes.io/job-controller"
JOB_RETRIES, UNLIMITED = 6, 2**31 - 1
"""backoffLimit, where none is set: without and with a backoffLimitPerIndex."""
ENDED = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
"""Conditions of a Job that makes no more pods; the last two come first, while its pods terminate."""
VOLCANO_EVICTED = ("PodEvicted", "*")
"""Events of a Volcano Job's policies that an eviction is: Volcano looks at the deletion of a pod, not at the phase that it ends with."""
VOLCANO_GOES_ON = "SyncJob"
"""The action after which the pod is made again, and nothing else happens. RestartPod uses up one of the Job's `maxRetry`, three where none is set, as RestartJob does."""
PARALLEL = "Parallel"
"""The podManagementPolicy of a StatefulSet whose pods do not wait for each other."""
AT_REST = ("", "", 0)
"""`revision`, `kept` and `kept_below` of a StatefulSet whose pods are all of one revision, or which is being updated."""
VOLCANO_RUNS = ("", "Pending", "Inqueue", "Running")
"""Phases of a Volcano Job in which it makes pods."""


def workload_fact(workload: wire.Workload, collection: Collection) -> e.WorkloadObserved:
    """Lists leave `kind` out of their items, so the collection tells it."""
    meta, (kind, group) = workload.metadata, WORKLOADS[collection.name]
    owner = None
    if not isinstance(workload, wire.Deployment | wire.StatefulSet):
        owner = controller(meta)
    # A ReplicaSet has its Deployment's annotations, and those that were taken off that, for they are copied and never taken away.
    is_deployments = owner is not None and owner.kind == "Deployment" and group_of_version(owner.api_version) == "apps"
    said = {} if is_deployments else meta.annotations or {}
    movable, hooks = said.get(MOVABLE, ""), {key: text for key in DECLARED if (text := said.get(key))}
    evicted: v.Evicted = ""
    retries, parallel, made_by = 0, False, AT_REST
    per_index = workload.spec.backoff_limit_per_index if isinstance(workload, wire.Job) and workload.spec is not None else None
    if isinstance(workload, wire.Job):
        evicted, retries = _of_eviction(workload.spec or wire.JobSpec(), workload.status or wire.JobStatus())
    elif isinstance(workload, wire.VolcanoJob):
        evicted = _of_policies(workload.spec or wire.VolcanoJobSpec())
    elif isinstance(workload, wire.StatefulSet):
        parallel = (workload.spec or wire.StatefulSetSpec()).pod_management_policy == PARALLEL
        made_by = _made_by(workload.spec or wire.StatefulSetSpec(), workload.status or wire.StatefulSetStatus())
    busy: v.Busy = "deleting" if meta.deletion_timestamp is not None else _busy(workload)
    wanted = _wanted(workload, owner)
    return e.WorkloadObserved(meta.uid, kind, meta.namespace, meta.name, owner, movable, evicted, retries, busy, group, hooks, parallel, *made_by, per_index, wanted)


def _wanted(workload: wire.Workload, owner: v.OwnerRef | None) -> int | None:
    """Of a ReplicaSet that somebody controls only that one's number counts: in a rollout pods of the next one follow its own."""
    if isinstance(workload, wire.ReplicaSet) and owner is None:
        return _number((workload.spec or wire.ScaledSpec()).replicas)
    if isinstance(workload, wire.StatefulSet):
        spec = workload.spec or wire.StatefulSetSpec()
        return (spec.ordinals or wire.Ordinals()).start + _number(spec.replicas)
    return None


def _busy(workload: wire.Workload) -> v.Busy:
    match workload:
        case wire.Deployment(metadata=meta, spec=spec, status=status):
            return _of_deployment(meta, spec or wire.ScaledSpec(), status or wire.ScaledStatus())
        case wire.ReplicaSet(spec=spec, status=status):
            return _of_scale((spec or wire.ScaledSpec()).replicas, (status or wire.ScaledStatus()).replicas)
        case wire.StatefulSet(metadata=meta, spec=spec, status=status):
            return _of_stateful_set(meta, spec or wire.StatefulSetSpec(), status or wire.StatefulSetStatus())
        case wire.Job(spec=spec, status=status):
            return _of_job(spec or wire.JobSpec(), status or wire.JobStatus())
        case wire.VolcanoJob(status=status):
            state = (status or wire.VolcanoJobStatus()).state
            return "" if state is None or state.phase in VOLCANO_RUNS else "over"
    return ""


def _of_scale(wanted: int | None, are: int) -> Literal["", "scaling_down"]:
    return "scaling_down" if are > _number(wanted) else ""


def _number(said: int | None) -> int:
    """Of pods, by a controller's spec; the API's default is one."""
    return 1 if said is None else said


def _of_deployment(meta: wire.Meta, spec: wire.ScaledSpec, status: wire.ScaledStatus) -> v.Busy:
    """Pods of other revisions, or a change that nobody has looked at yet. How many the newest is to have yet is no matter: that many are short
    after every eviction, too."""
    if spec.paused:
        return "paused"
    if status.observed_generation < meta.generation or status.updated_replicas < status.replicas:
        return "rollout"
    return _of_scale(spec.replicas, status.replicas)


def _of_stateful_set(meta: wire.Meta, spec: wire.StatefulSetSpec, status: wire.StatefulSetStatus) -> v.Busy:
    """Beyond its partition all are to be of the newest revision; below it they are made again as they are. Without a partition an update goes on until its
    controller says that it is complete: pods may be of a revision between the two. With OnDelete nothing goes on by itself."""
    if status.observed_generation < meta.generation:
        return "rollout"
    strategy = spec.update_strategy or wire.UpdateStrategy()
    if status.current_revision != status.update_revision and strategy.type == ROLLING_UPDATE:
        keep = (strategy.rolling_update or wire.RollingUpdate()).partition or 0
        if not keep or status.current_replicas > keep:
            return "rollout"
    return _of_scale(spec.replicas, status.replicas)


def _made_by(spec: wire.StatefulSetSpec, status: wire.StatefulSetStatus) -> tuple[str, str, int]:
    """The revision that its pods are made by, where some may be of another one; below which ordinal another one, and which (kubernetes, newVersionedStatefulSetPod). With
    OnDelete its `currentRevision` stays for ever what it was first. Without a partition an update ends."""
    strategy, new = spec.update_strategy or wire.UpdateStrategy(), status.update_revision
    if status.current_revision == new:
        return AT_REST
    if strategy.type != ROLLING_UPDATE:
        return new, "", 0
    keep = (strategy.rolling_update or wire.RollingUpdate()).partition or 0
    return (new, status.current_revision, (spec.ordinals or wire.Ordinals()).start + keep) if keep else AT_REST


def _of_job(spec: wire.JobSpec, status: wire.JobStatus) -> v.Busy:
    if spec.suspend:
        return "suspended"
    if any(has_condition(status.conditions, one) for one in ENDED):
        return "over"
    if spec.completions is None and status.succeeded:
        # A work queue: once one of its pods has succeeded no more are made.
        return "over"
    return _of_scale(spec.parallelism, status.active or 0)


def _of_policies(spec: wire.VolcanoJobSpec) -> v.Evicted:
    """Of a task its own policies count first, and the first that is about an eviction. Which task a pod is of is not asked: where one of them
    would take the whole job along, all of its pods are asked about."""
    tasks = spec.tasks or [wire.VolcanoTask()]
    said = {_answer([*(task.policies or ()), *(spec.policies or ())]) for task in tasks}
    return "ignored" if said == {VOLCANO_GOES_ON} else "fatal"


def _answer(policies: list[wire.VolcanoPolicy]) -> str:
    about = (policy.action for policy in policies if any(event in VOLCANO_EVICTED for event in (policy.event, *(policy.events or ()))))
    return next(about, VOLCANO_GOES_ON)


def _of_eviction(spec: wire.JobSpec, status: wire.JobStatus) -> tuple[v.Evicted, int]:
    """Rules are asked in order, and the first that matches counts. Which exit code the containers will end with nobody knows before; a rule about
    those that says more than Ignore or Count leaves it open."""
    if spec.managed_by not in ("", OWN_CONTROLLER):
        return "unknown", 0
    may_count = False
    for rule in (spec.pod_failure_policy.rules or ()) if spec.pod_failure_policy is not None else ():
        about = rule.on_pod_conditions
        disrupted = any(c.type == DISRUPTION_TARGET and c.status == "True" for c in about or ())
        if disrupted and rule.action == "Ignore" and not may_count:
            return "ignored", 0
        if disrupted and rule.action not in ("Ignore", "Count"):
            return "fatal", 0
        if disrupted:
            break
        if about is None and rule.action not in ("Ignore", "Count"):
            return "unknown", 0
        may_count = may_count or (about is None and rule.action == "Count")
    usual = JOB_RETRIES if spec.backoff_limit_per_index is None else UNLIMITED
    limit = usual if spec.backoff_limit is None else spec.backoff_limit
    # Those are counted in a moment.
    uncounted = len((status.uncounted_terminated_pods or wire.Uncounted()).failed or ())
    return "counted", max(limit - (status.failed or 0) - uncounted, 0)
