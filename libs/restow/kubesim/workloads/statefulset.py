"""StatefulSets: pods with a number, made and removed in order (`pkg/controller/statefulset`)."""

from __future__ import annotations

from restow.kubesim.objects import Obj, clone
from restow.kubesim.podindex import Group
from restow.kubesim.podstate import (
    PodKey,
    available_in,
    is_active,
    is_deleting,
    is_ready,
    is_terminal,
    key_of,
    labels_of,
    uid_of,
)
from restow.kubesim.resources import PERSISTENTVOLUMECLAIMS, PODS, STATEFULSETS
from restow.kubesim.runtime import write_status
from restow.kubesim.shelf import Change
from restow.kubesim.workloads import revisions
from restow.kubesim.workloads.common import PodOwners, ignore_gone, pod_from_template

POD_NAME_LABEL = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL = "apps.kubernetes.io/pod-index"

_SMALL = 100
"""Pods up to which a set is looked at after every change."""
_GATHER = 50e-6
"""Seconds per pod that a larger set gathers changes."""
_STEP = 50
"""Pods that one reconcile of a Parallel set makes or deletes."""


class StatefulSets(PodOwners):
    """A pod comes again under its name only when the one before is removed."""

    name = "statefulset"
    resource = STATEFULSETS
    watches = (STATEFULSETS, PODS)

    def pod_changed(self, pod: PodKey, owner: Obj, change: Change) -> None:
        self._look_soon((pod[0], owner["name"]), owner["uid"])

    def pod_touched(self, pod: PodKey, owner: Obj, change: Change) -> None:
        """Readiness lets the next pod be made, so it does not wait for a batch."""
        self._look_soon((pod[0], owner["name"]), owner["uid"])

    def _look_soon(self, key: PodKey, uid: str) -> None:
        """At once for small sets. A look at a large one costs as much as it has pods, so it gathers changes."""
        size = len(self.runtime.pods.group(uid).members)
        self.queue.add_after(key, 0.0 if size <= _SMALL else size * _GATHER)

    def reconcile(self, key: PodKey) -> float | None:
        owner = self.store.find(STATEFULSETS, *key)
        if owner is None:
            return None
        group = self.runtime.pods.group(uid_of(owner))
        again: float | None = None
        if not is_deleting(owner):
            group = self.claim(owner)
            update = revisions.ensure(self.store, owner, STATEFULSETS)
            current = (owner.get("status") or {}).get("currentRevision") or update
            again = self._act(owner, _by_ordinal(owner, group), current, update)
            group = self.runtime.pods.group(uid_of(owner))
            self._write_status(owner, group, current, update)
        return again

    # -- one step -------------------------------------------------------------------------------

    def _act(self, owner: Obj, pods: dict[int, Obj], current: str, update: str) -> float | None:
        """Make, remove or update; with OrderedReady at most one pod. Returns the wait for minReadySeconds."""
        ordered = owner["spec"].get("podManagementPolicy", "OrderedReady") != "Parallel"
        start, end = _range(owner)
        done, soonest = 0, None
        for ordinal in range(start, end):
            pod = pods.get(ordinal)
            wait = None if pod is None else self._healthy_in(owner, pod)
            if wait == 0.0:
                continue
            if wait is not None:
                soonest = min(wait, soonest or wait)
            if pod is None:
                self._create(owner, ordinal, current, update)
                done += 1
            elif is_terminal(pod) and not is_deleting(pod):
                self.delete_pod(pod)
                done += 1
            if ordered:
                return soonest
            if done >= _STEP:
                return 0.0
        if self._scale_down(owner, pods, end, ordered):
            return soonest
        self._roll(owner, pods, start, end, update)
        return soonest

    def _healthy_in(self, owner: Obj, pod: Obj) -> float | None:
        """0 for a pod that is available, seconds while it waits for minReadySeconds, None otherwise."""
        if not is_active(pod):
            return None
        wait = available_in(pod, owner["spec"].get("minReadySeconds") or 0, self.runtime.now())
        return None if wait is None else max(wait, 0.0)

    def _scale_down(self, owner: Obj, pods: dict[int, Obj], end: int, ordered: bool) -> bool:
        """Remove from the highest ordinal down; True while there is something to remove."""
        condemned = sorted((o for o in pods if o >= end), reverse=True)
        if ordered:
            condemned = condemned[:1]
        for ordinal in [o for o in condemned if not is_deleting(pods[o])][:_STEP]:
            self.delete_pod(pods[ordinal])
        return bool(condemned)

    def _roll(self, owner: Obj, pods: dict[int, Obj], start: int, end: int, update: str) -> None:
        """RollingUpdate: the highest outdated ordinal, when all above it are healthy."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate":
            return
        partition = (strategy.get("rollingUpdate") or {}).get("partition") or 0
        for ordinal in range(end - 1, max(start, start + partition) - 1, -1):
            pod = pods.get(ordinal)
            if pod is None or is_deleting(pod):
                return
            if labels_of(pod).get(revisions.HASH_LABEL) != update:
                self.delete_pod(pod)
                return
            if self._healthy_in(owner, pod) != 0.0:
                return

    # -- making pods ----------------------------------------------------------------------------

    def _create(self, owner: Obj, ordinal: int, current: str, update: str) -> None:
        revision = current if _wants_current(owner, ordinal) else update
        template = revisions.template_of(self.store, owner, revision)
        name = f"{owner['metadata']['name']}-{ordinal}"
        namespace = owner["metadata"].get("namespace", "")
        spec = clone(template.get("spec") or {})
        claims = owner["spec"].get("volumeClaimTemplates") or []
        if claims:
            mine = {claim["metadata"]["name"] for claim in claims}
            volumes = [v for v in spec.get("volumes") or [] if v["name"] not in mine]
            for claim in claims:
                self._ensure_claim(owner, claim, f"{claim['metadata']['name']}-{name}")
                source = {"claimName": f"{claim['metadata']['name']}-{name}"}
                volumes.append({"name": claim["metadata"]["name"], "persistentVolumeClaim": source})
            spec["volumes"] = volumes
        spec["hostname"] = name
        if owner["spec"].get("serviceName"):
            spec["subdomain"] = owner["spec"]["serviceName"]
        pod = pod_from_template(template, owner, STATEFULSETS, name=name, spec=spec)
        pod["metadata"]["generateName"] = f"{owner['metadata']['name']}-"
        pod["metadata"]["labels"].update(
            {POD_NAME_LABEL: name, INDEX_LABEL: str(ordinal), revisions.HASH_LABEL: revision}
        )
        self.store.create(PODS, pod, namespace, owned=True)

    def _ensure_claim(self, owner: Obj, template: Obj, name: str) -> None:
        namespace = owner["metadata"].get("namespace", "")
        if self.store.find(PERSISTENTVOLUMECLAIMS, namespace, name) is not None:
            return
        labels = {
            **(template["metadata"].get("labels") or {}),
            **((owner["spec"].get("selector") or {}).get("matchLabels") or {}),
        }
        body = {"metadata": {"name": name, "labels": labels}, "spec": clone(template.get("spec") or {})}
        ignore_gone(lambda: self.store.create(PERSISTENTVOLUMECLAIMS, body, namespace))

    # -- status ---------------------------------------------------------------------------------

    def _write_status(self, owner: Obj, group: Group, current: str, update: str) -> None:
        members = [pod for pod in group.members.values() if not is_terminal(pod)]
        standing = [pod for pod in members if not is_deleting(pod)]

        def wearing(revision: str) -> int:
            return sum(labels_of(pod).get(revisions.HASH_LABEL) == revision for pod in standing)

        updated = wearing(update)
        ready = sum(is_ready(pod) for pod in members)
        wanted = _range(owner)[1] - _range(owner)[0]
        strategy = (owner["spec"].get("updateStrategy") or {}).get("type", "RollingUpdate")
        if strategy == "RollingUpdate" and updated == wanted == ready == len(members):
            current = update
        status: Obj = {
            "observedGeneration": owner["metadata"].get("generation", 1),
            "replicas": len(members),
            "readyReplicas": ready,
            "currentReplicas": wearing(current),
            "updatedReplicas": updated,
            "availableReplicas": sum(self._healthy_in(owner, pod) == 0.0 for pod in members),
            "currentRevision": current,
            "updateRevision": update,
            "collisionCount": 0,
        }
        kept = ("replicas", "availableReplicas", "collisionCount")
        status = {name: value for name, value in status.items() if value or name in kept}
        live = self.store.find(STATEFULSETS, *key_of(owner))
        if live is not None:
            write_status(self.store, STATEFULSETS, live, status)
        in_use = {labels_of(pod).get(revisions.HASH_LABEL, "") for pod in group.members.values()}
        revisions.clean_up(self.store, owner, in_use | {current, update})


def _range(owner: Obj) -> tuple[int, int]:
    """The first ordinal and the one after the last."""
    start = (owner["spec"].get("ordinals") or {}).get("start") or 0
    replicas = owner["spec"].get("replicas")
    return start, start + (1 if replicas is None else replicas)


def _by_ordinal(owner: Obj, group: Group) -> dict[int, Obj]:
    prefix = owner["metadata"]["name"] + "-"
    found = {}
    for (_, name), pod in group.members.items():
        number = name.removeprefix(prefix)
        if name.startswith(prefix) and number.isdigit():
            found[int(number)] = pod
    return found


def _wants_current(owner: Obj, ordinal: int) -> bool:
    """A pod below the partition, or not yet reached by the rolling update, comes back as it was."""
    strategy = owner["spec"].get("updateStrategy") or {}
    if strategy.get("type", "RollingUpdate") != "RollingUpdate":
        return False
    start, rolling = _range(owner)[0], strategy.get("rollingUpdate")
    if not rolling or "partition" not in rolling:
        return ordinal < start + ((owner.get("status") or {}).get("currentReplicas") or 0)
    return ordinal < start + (rolling.get("partition") or 0)
