"""Pods that belong together: a PodGroup's. Volcano's is named by an annotation of each pod (RULES 000-6), that of `scheduling.k8s.io` by its
`spec.schedulingGroup`."""

from restow.contracts.events import PodObserved

GROUP_ANNOTATIONS = ("scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name")

Group = tuple[str, str]
"""Namespace and name."""
UPSTREAM = "scheduling.k8s.io:"
"""How the name of a PodGroup of `scheduling.k8s.io` begins in the log: Volcano may have one of the same name, and no name of an object has a colon."""


WORKLOAD_REF = "scheduling.k8s.io/workload-ref"
"""In a pod's fact, where an annotation would be: `spec.workloadRef` (Kubernetes 1.35 alone), as Workload/PodGroup of it/replica key. Nobody reads Workloads here."""


def is_upstream(group: Group) -> bool:
    """Whether it is a PodGroup of `scheduling.k8s.io`: its status and its moves are not ours to write."""
    return group[1].startswith(UPSTREAM)


def min_field(group: Group) -> str:
    """How its kind calls the number of pods that it needs at least."""
    return "minCount" if is_upstream(group) else "minMember"


def named(text: str) -> Group:
    """The group that is written `namespace/name`."""
    namespace, _, name = text.partition("/")
    return namespace, name


def group_of(pod: PodObserved) -> Group | None:
    """The group of a pod, None for a pod on its own."""
    said = pod.annotations
    name = said and (said.get(GROUP_ANNOTATIONS[0]) or said.get(GROUP_ANNOTATIONS[1]))
    return (pod.namespace, name) if name else None


QUEUE_ANNOTATIONS = ("scheduling.volcano.sh/queue-name", "volcano.sh/queue-name")


def queue_annotation(pod: PodObserved) -> str:
    """The queue that a pod without a PodGroup names; empty where it names none."""
    if pod.annotations:
        for annotation in QUEUE_ANNOTATIONS:
            if annotation in pod.annotations:
                return pod.annotations[annotation]
    return ""


TASK_ANNOTATION = "volcano.sh/task-spec"


_BELONGS = frozenset((*GROUP_ANNOTATIONS, *QUEUE_ANNOTATIONS, TASK_ANNOTATION))


def only_belongs(pod: PodObserved) -> bool:
    """Whether its annotations say no more than where it belongs: to which group, queue and task, if to any."""
    return not pod.annotations or pod.annotations.keys() <= _BELONGS


def task_of(pod: PodObserved) -> str:
    """The task of its group that a pod belongs to (`minTaskMember` counts by it)."""
    return pod.annotations.get(TASK_ANNOTATION, "")
