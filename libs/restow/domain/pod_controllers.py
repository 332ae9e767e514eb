"""Who makes a pod again, and as what: the controllers that are known, by kind. The one home of that table.

A pod is moved by evicting it, so whoever made it must make it again, for the same and in the same role (RULES G-12, G-15)."""

from functools import lru_cache
from typing import Literal, NamedTuple

from restow.contracts.events import PodObserved, WorkloadObserved
from restow.contracts.values import PodShape
from restow.domain.groups import TASK_ANNOTATION

Again = Literal["always", "name", "retries", "told", "worker", "asked", "never"]
"""What follows when a pod of it is evicted. `always`: another is made. `name`: one with the same name. `retries`: a Job's own rules say
(`WorkloadObserved.retries`). `told`: one is made, unless its own policies answer an eviction otherwise (`WorkloadObserved.evicted`). `worker`: one is made but for the head, and for one of several hosts. `asked`: what follows depends on things that are no facts here, so it is
moved only where somebody has said that it may be. `never`: it belongs to its node."""

MOVABLE = "restow.dev/movable"
"""On a pod (annotation or label), or its controller: "true" where evicting it is all right though nobody knows its controller, "false", also on a
PodGroup, where nothing is to move it. "gang", also on a PodGroup: where evicting all of the gang together is all right."""
GANG = "gang"
REVISION = "controller-revision-hash"
"""Label of a StatefulSet's pod: the ControllerRevision that it was made by."""
COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
INDEX_FAILURES = "batch.kubernetes.io/job-index-failure-count"
"""On a pod of a Job with backoffLimitPerIndex: how often pods of its index have failed before it."""
REPLICA_TYPE, REPLICA_INDEX = "training.kubeflow.org/replica-type", "training.kubeflow.org/replica-index"
RAY_TYPE, RAY_GROUP = "ray.io/node-type", "ray.io/group"
RAY_REPLICA, RAY_INDEX, RAY_HOST = "ray.io/worker-group-replica-name", "ray.io/worker-group-replica-index", "ray.io/replica-host-index"
"""KubeRay 1.5 and newer. The first only where several hosts are one replica: KubeRay deletes them all when one is missing."""
TASK_INDEX = "volcano.sh/task-index"
JOBSET_JOB, JOBSET_INDEX = "jobset.sigs.k8s.io/replicatedjob-name", "jobset.sigs.k8s.io/job-index"
LWS_GROUP, LWS_INDEX = "leaderworkerset.sigs.k8s.io/group-index", "leaderworkerset.sigs.k8s.io/worker-index"


class Owner(NamedTuple):
    """`kind` and API `group` of a controller, "" for the core group. `roles`: labels that tell its pods apart. `why`: one sentence."""

    kind: str
    group: str
    again: Again
    why: str
    roles: tuple[str, ...] = ()


KUBEFLOW = tuple(
    Owner(kind, "kubeflow.org", "asked", "a pod of `restartPolicy` OnFailure or Always is made again; with Never, or ExitCode and a code below 128, the job fails; others of it may fail with it", (REPLICA_TYPE, REPLICA_INDEX))
    for kind in ("MPIJob", "PaddleJob", "PyTorchJob", "TFJob", "XGBoostJob", "JAXJob")
)
OWNERS: tuple[Owner, ...] = (
    Owner("ReplicaSet", "apps", "always", "another pod is made as soon as one terminates"),
    Owner("ReplicationController", "", "always", "another pod is made as soon as one terminates"),
    Owner("CloneSet", "apps.kruise.io", "always", "another pod is made as soon as one terminates"),
    Owner("StatefulSet", "apps", "name", "the pod of the same name, with its claims, is made when the old one is gone"),
    Owner("StatefulSet", "apps.kruise.io", "name", "the pod of the same name, with its claims, is made when the old one is gone"),
    Owner("DaemonSet", "apps", "never", "the pod belongs to its node"),
    Owner(
        "Job", "batch", "retries",
        "while its `podFailurePolicy` ignores DisruptionTarget, or its `backoffLimit` (or the index's `backoffLimitPerIndex`) leaves a retry beside those that evictions take; not with `managedBy`",
        (JOBSET_JOB, JOBSET_INDEX, COMPLETION_INDEX),
    ),
    Owner(
        "RayCluster", "ray.io", "worker",
        "workers are made again, but for those of several hosts (`numOfHosts`), whose others go with them; with its head the cluster's state is gone",
        (RAY_TYPE, RAY_GROUP, RAY_INDEX, RAY_HOST),
    ),
    Owner(
        "Job", "batch.volcano.sh", "told",
        "another pod is made, unless a policy answers `PodEvicted` or `*` with anything but SyncJob: RestartJob restarts all, RestartPod uses up one of `maxRetry`",
        (TASK_ANNOTATION, TASK_INDEX),
    ),
    *KUBEFLOW,
    Owner("Workflow", "argoproj.io", "asked", "a step whose pod is deleted fails, unless a `retryStrategy` is about errors and failures"),
    Owner("TaskRun", "tekton.dev", "asked", "it fails with its pod"),
    Owner("VirtualMachineInstance", "kubevirt.io", "asked", "KubeVirt answers an eviction with a live migration of its own, which takes no slot, or the machine stops with its pod"),
    Owner("SparkApplication", "sparkoperator.k8s.io", "asked", "with its driver it fails"),
    Owner("Node", "", "never", "only the node's kubelet can end its pod"),
)  # fmt: skip
LWS_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUPED = Owner(
    "LeaderWorkerSet", "leaderworkerset.x-k8s.io", "asked", "by its restartPolicy the whole group is made anew (its pods are StatefulSets')",
    (LWS_GROUP, LWS_INDEX),
)  # fmt: skip
"""Known by a label, for its pods belong to StatefulSets."""
FAMILY = "lws:"
"""How a family's name begins; no uid does."""
_BY_KIND = {(owner.kind, owner.group): owner for owner in OWNERS}
_BY_NAME = {owner.kind: owner for owner in reversed(OWNERS)}
"""For facts of old logs, which do not say the apiVersion."""
_ROLES = tuple(dict.fromkeys(label for owner in (*OWNERS, GROUPED) for label in owner.roles))
"""Of a controller that nobody knows any of them may tell pods apart."""


AGAIN: dict[Again, str] = {
    "always": "yes", "name": "yes", "retries": "it depends", "told": "it depends", "worker": "workers", "asked": "where they are said to be movable", "never": "never",
}  # fmt: skip


def rows() -> list[str]:
    """The table as `docs/descheduling.md` has it."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for owner in (*OWNERS, GROUPED):
        found.setdefault((owner.group, AGAIN[owner.again], owner.why), []).append(owner.kind)
    return [f"| {', '.join(kinds)}{f' ({group})' if group else ''} | {how} | {why} |" for (group, how, why), kinds in found.items()]


def group_of_version(version: str) -> str:
    """The API group of an apiVersion."""
    group, slash, _ = version.partition("/")
    return group if slash else ""


def known_owner(pod: PodObserved) -> Owner | None:
    """What is known of the pod's controller; None where it has none, or nobody knows it."""
    if pod.owner is None:
        return None
    if LWS_NAME in pod.labels:
        return GROUPED
    if not pod.owner.api_version:
        return _BY_NAME.get(pod.owner.kind)
    return _of_version(pod.owner.kind, pod.owner.api_version)


@lru_cache(1024)
def _of_version(kind: str, version: str) -> Owner | None:
    return _BY_KIND.get((kind, group_of_version(version)))


def job_of(pod: PodObserved) -> str:
    """The uid of the Job that a pod is of, empty of any other pod."""
    known = known_owner(pod)
    return pod.owner.uid if pod.owner is not None and known is not None and known.again == "retries" else ""


def is_last(controller: WorkloadObserved) -> bool:
    """Whether nobody makes another Job for the pods of this one when it has ended, as a JobSet may. (A CronJob's next one is about something else.)"""
    return controller.owner is None or controller.owner.kind == "CronJob"


def is_beyond(controller: WorkloadObserved | None, name: str) -> bool:
    """Whether a StatefulSet is to have no pod of this name, for it has fewer: as far as is known."""
    ordinal = name.rpartition("-")[2]
    if controller is None or controller.kind != "StatefulSet" or controller.wanted is None or not ordinal.isdecimal():
        return False
    return int(ordinal[:10]) >= controller.wanted


def is_deleted(controller: WorkloadObserved) -> bool:
    """Whether one of which this was told last was deleted when it goes from the log. Watchers up to 0.2 told nothing of a StatefulSet at rest, so theirs go there each time that
    they have been at work; how many pods it wants they told only while it was scaled down."""
    is_told_until_its_end = bool(controller.evicted) or (controller.wanted is not None and (controller.kind, controller.busy) != ("StatefulSet", "scaling_down"))
    return controller.busy == "deleting" or is_told_until_its_end


def check_owners(names: tuple[str, ...]) -> None:
    """Names of `movableOwners`. Raises ValueError."""
    never = {f"{owner.kind}.{owner.group}".rstrip(".") for owner in OWNERS if owner.again == "never"}
    for i, name in enumerate(names):
        kind, _, group = name.partition(".")
        if not kind[:1].isupper() or group != group.lower() or "/" in name or name in never:
            raise ValueError(f"movable_owners[{i}]: {name!r}; allowed: a kind with its API group, such as PyTorchJob.kubeflow.org; never {', '.join(sorted(never))}")


def family_of(pod: PodObserved) -> str:
    """What a LeaderWorkerSet's pods have in common, whichever StatefulSet each of them is of: a group that is made anew has other StatefulSets than
    before. Empty of any other pod."""
    name = pod.labels.get(LWS_NAME) if pod.labels else None
    return f"{FAMILY}{pod.namespace}:{name}" if name else ""


def role_of(pod: PodObserved) -> str:
    """What it is among the pods of its controller, "" where they are all alike."""
    known = known_owner(pod)
    labels = _ROLES if known is None else known.roles
    if not labels:
        return ""
    said = [pod.labels.get(label) or pod.annotations.get(label, "") for label in labels]
    return ",".join(said) if any(said) else ""


def asks_same(one: PodShape, other: PodShape) -> bool:
    """Whether what is held for one is what the other asks for (RULES G-12)."""
    return (one.requests, one.devices, one.cores) == (other.requests, other.devices, other.cores)
