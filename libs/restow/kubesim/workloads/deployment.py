"""Deployments: which ReplicaSets there should be (kube-controller-manager `pkg/controller/deployment`).

How many replicas each of them gets is decided in `rollout.py`, the status in `deploymentstatus.py`.
"""

from __future__ import annotations

from restow.kubesim.errors import ApiError
from restow.kubesim.objects import Obj, clone, controller_of
from restow.kubesim.placement import selector_matches
from restow.kubesim.podindex import SelectorIndex
from restow.kubesim.podstate import (
    PodKey,
    annotations_of,
    is_deleting,
    is_terminal,
    key_of,
    labels_of,
    owner_reference,
    seconds_of,
    uid_of,
)
from restow.kubesim.resources import DEPLOYMENTS, PODS, REPLICASETS
from restow.kubesim.runtime import Runtime, before_of
from restow.kubesim.shelf import Change
from restow.kubesim.workloads import deploymentstatus, rollout
from restow.kubesim.workloads.common import ignore_gone, safe_hash
from restow.kubesim.workloads.rollout import DESIRED, HASH_LABEL, MAX, REVISION, replicas_of

_NOT_COPIED = ("kubectl.kubernetes.io/last-applied-configuration", REVISION, DESIRED, MAX,
               "deployment.kubernetes.io/revision-history", "deprecated.deployment.rollback.to")  # fmt: skip


class Deployments:
    """Owns ReplicaSets; never touches a pod itself."""

    name = "deployment"
    watches = (DEPLOYMENTS, REPLICASETS, PODS)

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.store = runtime.store
        self.queue = runtime.new_queue()
        self.selectors = SelectorIndex()

    # -- observing ------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        old, new = before_of(change), change.new
        if change.resource == DEPLOYMENTS:
            if old is not None and new is not None and new.get("spec") is old.get("spec"):
                return
            self.selectors.change(old, new)
            self.queue.add(key_of(change.stored.obj))
        elif change.resource == REPLICASETS:
            for state in (old, new):
                owner = None if state is None else controller_of(state)
                if owner is not None and owner.get("kind") == "Deployment":
                    self.queue.add((key_of(change.stored.obj)[0], owner["name"]))
            if new is not None and controller_of(new) is None:
                for key in self.selectors.wanting(new):
                    self.queue.add(key)
        elif new is None and old is not None:
            self._pod_gone(old)

    def _pod_gone(self, pod: Obj) -> None:
        """Recreate waits until the old pods are really gone."""
        owner = controller_of(pod)
        if owner is None or owner.get("kind") != "ReplicaSet":
            return
        replicaset = self.store.find(REPLICASETS, key_of(pod)[0], owner["name"])
        parent = None if replicaset is None else controller_of(replicaset)
        if parent is None:
            return
        key = (key_of(pod)[0], parent["name"])
        deployment = self.store.find(DEPLOYMENTS, *key)
        if deployment is not None and rollout.is_recreate(deployment):
            self.queue.add(key)

    # -- reconciling ----------------------------------------------------------------------------

    def reconcile(self, key: PodKey) -> float | None:
        deployment = self.store.find(DEPLOYMENTS, *key)
        if deployment is None:
            return None
        if is_deleting(deployment):
            sets = self._owned(deployment)
            return deploymentstatus.write(self.runtime, deployment, newest(deployment, sets), sets)
        sets = self._claim(deployment)
        new = newest(deployment, sets)
        if deployment["spec"].get("paused"):
            self._scale_all(deployment, sets, new)
            return self._finish(deployment)
        if new is not None and self._is_scaling(deployment, sets):
            self._mark_revision(deployment, new, sets)
            self._scale_all(deployment, sets, new)
            return self._finish(deployment)
        if rollout.is_recreate(deployment):
            self._recreate(deployment, sets, new)
        else:
            new = self._ensure_new(deployment, sets, new)
            self._roll(deployment, new)
        return self._finish(deployment)

    def _finish(self, deployment: Obj) -> float | None:
        """Status, and the removal of old ReplicaSets once the rollout is complete."""
        current = self.store.find(DEPLOYMENTS, *key_of(deployment))
        if current is None:
            return None
        sets = self._owned(current)
        new = newest(current, sets)
        again = deploymentstatus.write(self.runtime, current, new, sets)
        if new is not None and deploymentstatus.is_complete(current, new, sets):
            self._clean_up(current, [s for s in sets if s is not new])
        return again

    def _owned(self, deployment: Obj) -> list[Obj]:
        return list(self.runtime.replicasets.group(uid_of(deployment)).members.values())

    def _claim(self, deployment: Obj) -> list[Obj]:
        selector = deployment["spec"].get("selector")
        namespace = deployment["metadata"].get("namespace", "")
        for orphan in self.runtime.replicasets.orphans(namespace, selector):
            self._set_owner(orphan, [owner_reference(deployment, DEPLOYMENTS.api_version, "Deployment")])
        for owned in self._owned(deployment):
            if not is_deleting(owned) and not selector_matches(selector, labels_of(owned)):
                self._set_owner(owned, [])
        return self._owned(deployment)

    def _set_owner(self, replicaset: Obj, owners: list[Obj]) -> None:
        others = [r for r in replicaset["metadata"].get("ownerReferences") or () if not r.get("controller")]
        meta = {**replicaset["metadata"], "ownerReferences": [*others, *owners]}
        ignore_gone(lambda: self.store.update(REPLICASETS, {**replicaset, "metadata": meta}))

    # -- the newest ReplicaSet ------------------------------------------------------------------

    def _ensure_new(self, deployment: Obj, sets: list[Obj], new: Obj | None) -> Obj:
        if new is None:
            new = self._create_new(deployment, sets)
        return self._mark_revision(deployment, new, sets)

    def _create_new(self, deployment: Obj, sets: list[Obj]) -> Obj:
        spec, meta = deployment["spec"], deployment["metadata"]
        collisions = (deployment.get("status") or {}).get("collisionCount") or 0
        digest = safe_hash([spec["template"], collisions]) if collisions else safe_hash(spec["template"])
        template = clone(spec["template"])
        labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
        template["metadata"] = {**(template.get("metadata") or {}), "labels": labels}
        selector = clone(spec.get("selector") or {})
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: digest}
        annotations = {k: v for k, v in annotations_of(deployment).items() if k not in _NOT_COPIED}
        annotations[REVISION] = str(_last_revision(sets) + 1)
        annotations.update(rollout.size_annotations(deployment))
        body = {
            "metadata": {
                "name": f"{meta['name']}-{digest}",
                "namespace": meta.get("namespace", "default"),
                "labels": labels,
                "annotations": annotations,
                "ownerReferences": [owner_reference(deployment, DEPLOYMENTS.api_version, "Deployment")],
            },
            "spec": {
                "replicas": rollout.first_size(deployment, sets),
                "minReadySeconds": spec.get("minReadySeconds") or 0,
                "selector": selector,
                "template": template,
            },
        }
        try:
            return self.store.create(REPLICASETS, body, meta.get("namespace", ""))
        except ApiError as error:
            if error.reason == "AlreadyExists":
                status = {**(deployment.get("status") or {}), "collisionCount": collisions + 1}
                self.store.update(
                    DEPLOYMENTS, {"metadata": meta, "status": status}, subresource="status", owned=True
                )
            raise

    def _mark_revision(self, deployment: Obj, new: Obj, sets: list[Obj]) -> Obj:
        """The newest ReplicaSet has the highest revision (a rollback raises it), the Deployment wears the same."""
        last = _last_revision([s for s in sets if uid_of(s) != uid_of(new)])
        annotations = dict(annotations_of(new))
        if _revision(new) <= last:
            annotations[REVISION] = str(last + 1)
        min_ready = deployment["spec"].get("minReadySeconds") or 0
        if annotations != annotations_of(new) or (new["spec"].get("minReadySeconds") or 0) != min_ready:
            meta = {**new["metadata"], "annotations": annotations}
            spec = {**new["spec"], "minReadySeconds": min_ready}
            new = self.store.update(REPLICASETS, {**new, "metadata": meta, "spec": spec})
        if annotations_of(deployment).get(REVISION) != annotations[REVISION]:
            wearing = {**annotations_of(deployment), REVISION: annotations[REVISION]}
            meta = {**deployment["metadata"], "annotations": wearing}
            self.store.update(DEPLOYMENTS, {**deployment, "metadata": meta})
        return new

    # -- sizes ----------------------------------------------------------------------------------

    def _resize(self, replicaset: Obj, size: int, deployment: Obj) -> bool:
        """Write the size and the annotations that tell the Deployment's; False if all is so already."""
        annotations = {**annotations_of(replicaset), **rollout.size_annotations(deployment)}
        if replicas_of(replicaset) == size and annotations == annotations_of(replicaset):
            return False
        current = self.store.find(REPLICASETS, *key_of(replicaset))
        if current is None:
            return False
        meta = {**current["metadata"], "annotations": annotations}
        spec = {**current["spec"], "replicas": size}
        self.store.update(REPLICASETS, {**current, "metadata": meta, "spec": spec})
        return True

    def _is_scaling(self, deployment: Obj, sets: list[Obj]) -> bool:
        wanted = str(replicas_of(deployment))
        return any(replicas_of(s) > 0 and annotations_of(s).get(DESIRED, wanted) != wanted for s in sets)

    def _scale_all(self, deployment: Obj, sets: list[Obj], new: Obj | None) -> None:
        for replicaset, size in rollout.scaled(deployment, sets, new):
            self._resize(replicaset, size, deployment)

    def _roll(self, deployment: Obj, new: Obj) -> None:
        """RollingUpdate: one step up, or else one step down."""
        sets = self._owned(deployment)
        if self._resize(new, rollout.new_size(deployment, new, sets), deployment):
            return
        for replicaset, size in rollout.old_sizes(deployment, new, sets):
            self._resize(replicaset, size, deployment)

    def _recreate(self, deployment: Obj, sets: list[Obj], new: Obj | None) -> None:
        """Recreate: all old pods are gone before the first new one is made."""
        scaled_down = False
        old = [s for s in sets if new is None or uid_of(s) != uid_of(new)]
        for replicaset in old:
            if replicas_of(replicaset) > 0:
                scaled_down |= self._resize(replicaset, 0, deployment)
        if scaled_down or self._old_pods_live(old):
            return
        new = self._ensure_new(deployment, sets, new)
        self._resize(new, replicas_of(deployment), deployment)

    def _old_pods_live(self, old: list[Obj]) -> bool:
        groups = (self.runtime.pods.group(uid_of(s)).members.values() for s in old)
        return any(not is_terminal(pod) for members in groups for pod in members)

    def _clean_up(self, deployment: Obj, old: list[Obj]) -> None:
        """Keep `revisionHistoryLimit` old ReplicaSets, the newest revisions."""
        limit = deployment["spec"].get("revisionHistoryLimit")
        empty = [s for s in old if not is_deleting(s) and _is_empty(s)]
        surplus = len(empty) - (10 if limit is None else limit)
        empty.sort(key=lambda s: (_revision(s), seconds_of(s["metadata"]["creationTimestamp"])))
        for replicaset in empty[: max(surplus, 0)]:
            namespace, name = key_of(replicaset)
            uid = uid_of(replicaset)
            self.store.delete(REPLICASETS, namespace, name, uid=uid, propagation="Background")


def _is_empty(replicaset: Obj) -> bool:
    return replicas_of(replicaset) == 0 and not (replicaset.get("status") or {}).get("replicas")


def _revision(replicaset: Obj) -> int:
    try:
        return int(annotations_of(replicaset).get(REVISION, "0"))
    except ValueError:
        return 0


def _last_revision(sets: list[Obj]) -> int:
    return max((_revision(s) for s in sets), default=0)


def _bare(template: Obj) -> Obj:
    """The template without the hash label."""
    meta = template.get("metadata") or {}
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != HASH_LABEL}
    rest = {k: v for k, v in meta.items() if k not in ("labels", "creationTimestamp") and v}
    return {**template, "metadata": {**rest, "labels": labels}}


def newest(deployment: Obj, sets: list[Obj]) -> Obj | None:
    """The oldest ReplicaSet with the Deployment's template (`FindNewReplicaSet`)."""
    wanted = _bare(deployment["spec"]["template"])
    same = [s for s in sets if _bare(s["spec"]["template"]) == wanted]
    return min(same, key=lambda s: (seconds_of(s["metadata"]["creationTimestamp"]), key_of(s)), default=None)
