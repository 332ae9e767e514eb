"""ReplicaSets: so many pods, no more and no fewer (kube-controller-manager `pkg/controller/replicaset`)."""

from __future__ import annotations

from collections import Counter

from restow.kubesim.errors import ApiError
from restow.kubesim.objects import Obj, controller_of
from restow.kubesim.podindex import Group
from restow.kubesim.podstate import (
    DELETION_COST,
    PodKey,
    annotations_of,
    condition_of,
    is_active,
    is_deleting,
    is_ready,
    key_of,
    node_of,
    phase_of,
    seconds_of,
    set_condition,
    uid_of,
)
from restow.kubesim.resources import PODS, REPLICASETS
from restow.kubesim.runtime import write_status
from restow.kubesim.workloads.common import CREATE_BATCH, DELETE_BATCH, PodOwners, pod_from_template

_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}


class ReplicaSets(PodOwners):
    """Creates a replacement as soon as a pod gets its deletionTimestamp; that pod is no longer counted."""

    name = "replicaset"
    resource = REPLICASETS
    watches = (REPLICASETS, PODS)

    def reconcile(self, key: PodKey) -> float | None:
        owner = self.store.find(REPLICASETS, *key)
        if owner is None:
            return None
        failure: ApiError | None = None
        group = self.runtime.pods.group(uid_of(owner))
        if not is_deleting(owner):
            group = self.claim(owner)
            surplus = group.active - _replicas(owner)
            try:
                if surplus < 0:
                    self._create(owner, -surplus)
                elif surplus > 0:
                    self._delete(owner, group, surplus)
            except ApiError as error:
                failure = error
            group = self.runtime.pods.group(uid_of(owner))
            if failure is None and group.active != _replicas(owner):
                # A batch was done; the status can wait for the last one.
                self.queue.add(key)
                return None
        again = self._write_status(owner, group, failure)
        if failure is not None:
            raise failure
        return again

    def _create(self, owner: Obj, missing: int) -> None:
        template = owner["spec"]["template"]
        prefix = owner["metadata"]["name"] + "-"
        namespace = owner["metadata"].get("namespace", "")
        for _ in range(min(missing, CREATE_BATCH)):
            pod = pod_from_template(template, owner, REPLICASETS, prefix=prefix)
            self.store.create(PODS, pod, namespace, owned=True)

    def _delete(self, owner: Obj, group: Group, surplus: int) -> None:
        active = [pod for pod in group.members.values() if is_active(pod)]
        crowd = self._crowd(owner, active)
        active.sort(key=lambda pod: removal_rank(pod, crowd[node_of(pod)]))
        for pod in active[: min(surplus, DELETE_BATCH)]:
            self.delete_pod(pod)

    def _crowd(self, owner: Obj, active: list[Obj]) -> Counter[str]:
        """Active pods of all ReplicaSets of the same owner by node: doubled-up pods go first."""
        parent = controller_of(owner)
        if parent is None:
            return Counter(node_of(pod) for pod in active)
        crowd: Counter[str] = Counter()
        for sibling in self.runtime.replicasets.group(parent["uid"]).members.values():
            members = self.runtime.pods.group(uid_of(sibling)).members
            crowd.update(node_of(pod) for pod in members.values() if is_active(pod))
        return crowd

    def _write_status(self, owner: Obj, group: Group, failure: ApiError | None) -> float | None:
        template = (owner["spec"].get("template") or {}).get("metadata") or {}
        available, again = self.available(owner, group)
        status: Obj = {
            "replicas": group.active,
            "fullyLabeledReplicas": group.wearing(template.get("labels") or {}),
            "readyReplicas": group.ready,
            "availableReplicas": available,
        }
        status = {name: count for name, count in status.items() if count or name == "replicas"}
        status["observedGeneration"] = owner["metadata"].get("generation", 1)
        conditions = (owner.get("status") or {}).get("conditions") or []
        if failure is not None:
            reason = "FailedCreate" if group.active < _replicas(owner) else "FailedDelete"
            conditions = set_condition(
                conditions, "ReplicaFailure", "True", reason, failure.message, self.store.now()
            )
        else:
            conditions = [c for c in conditions if c["type"] != "ReplicaFailure"]
        if conditions:
            status["conditions"] = conditions
        current = self.store.find(REPLICASETS, *key_of(owner))
        if current is not None:
            write_status(self.store, REPLICASETS, current, status)
        return again


def _replicas(owner: Obj) -> int:
    replicas = owner["spec"].get("replicas")
    return 1 if replicas is None else replicas


def removal_rank(pod: Obj, crowd: int) -> tuple[object, ...]:
    """Sorts what goes first in a scale-down first (`controller.ActivePodsWithRanks`).

    Without a node, pending, not ready, low deletion cost, many relatives on the node, ready most recently,
    many restarts, created most recently.
    """
    try:
        cost = int(annotations_of(pod).get(DELETION_COST, "0"))
    except ValueError:
        cost = 0
    ready = is_ready(pod)
    condition = condition_of(pod, "Ready") if ready else None
    since = seconds_of(condition.get("lastTransitionTime")) if condition else 0.0
    containers = (pod.get("status") or {}).get("containerStatuses") or ()
    restarts = max((c.get("restartCount", 0) for c in containers), default=0)
    created = seconds_of(pod["metadata"].get("creationTimestamp"))
    return (
        bool(node_of(pod)),
        _PHASES.get(phase_of(pod), 1),
        ready,
        cost,
        -crowd,
        -since,
        -restarts,
        -created,
        uid_of(pod),
    )
