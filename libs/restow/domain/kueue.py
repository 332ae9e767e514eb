"""What Kueue makes of the eviction of a pod that it manages by itself (its webhook gates such pods one by one). Of Jobs, JobSets and the like it manages the
owner, whose pods come and go within what was admitted: there is nothing to know.

Read in Kueue's pod integration (pkg/controller/jobs/pod). Its Workload objects are not read: whether a pod is let in is in the pod, which is gated until
then and has its flavor's node selector afterwards; who would be admitted next is in no Workload.
"""

from collections.abc import Iterable

from restow.contracts.events import PodObserved

ADMISSION = "kueue.x-k8s.io/admission"
"""The gate of a pod that is not admitted yet."""
MANAGED = "kueue.x-k8s.io/managed"
QUEUE_NAME = "kueue.x-k8s.io/queue-name"
"""Label of what is to go through a LocalQueue of its namespace: a pod, or what makes it."""
GROUP = "kueue.x-k8s.io/pod-group-name"
REQUIRED_TOPOLOGY, PREFERRED_TOPOLOGY = "kueue.x-k8s.io/podset-required-topology", "kueue.x-k8s.io/podset-preferred-topology"
"""Annotations of a pod: all pods of its set on nodes with one value of the node label that they name; or, if that cannot be, as near as can be."""
RETRIABLE = "kueue.x-k8s.io/retriable-in-group"
"""Annotation: one pod of a group that says "false" ends it for all, as soon as none runs."""


def manages(pod: PodObserved) -> bool:
    return pod.labels.get(MANAGED) == "true"


def ends_with(pod: PodObserved, siblings: Iterable[PodObserved], is_made_at_once: bool) -> str:
    """Why a move of the pod would be in vain, or end more than the pod; empty where it would not. `is_made_at_once`: its controller makes its successor
    while it terminates. A pod that terminates on a node is one of its group still, and of one too many Kueue deletes the youngest."""
    group = pod.labels.get(GROUP, "")
    if not group or not manages(pod):
        return ""
    if any(one.annotations.get(RETRIABLE) == "false" and one.labels.get(GROUP) == group for one in (pod, *siblings)):
        return f"its pod group {group} is not replaced pod by pod ({RETRIABLE}: false)"
    if is_made_at_once:
        return f"its successor would be one too many for its pod group {group} while it terminates, and be deleted"
    return ""


def is_workload(pod: PodObserved) -> bool:
    """Whether the pod alone is what Kueue has admitted: with it ends its Workload, and its successor waits for admission behind all others."""
    return manages(pod) and not pod.labels.get(GROUP)
