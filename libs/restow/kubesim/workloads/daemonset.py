"""DaemonSets: one pod on every node that they may run on (`pkg/controller/daemon`).

A change of one node or one pod makes only that node be looked at again: with 5 000 nodes a reconcile stays small.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from restow.kubesim.objects import Obj, clone
from restow.kubesim.placement import affinity_matches, pinned_node, untolerated
from restow.kubesim.podindex import Group
from restow.kubesim.podstate import (
    PodKey,
    available_in,
    int_or_percent,
    is_active,
    is_deleting,
    is_ready,
    is_terminal,
    key_of,
    labels_of,
    node_of,
    uid_of,
)
from restow.kubesim.resources import DAEMONSETS, NODES, PODS
from restow.kubesim.runtime import Runtime, before_of, write_status
from restow.kubesim.shelf import Change
from restow.kubesim.workloads import revisions
from restow.kubesim.workloads.common import PodOwners, pod_from_template

NODES_A_STEP = 200
"""Nodes that one reconcile looks at."""

_EVERYWHERE = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)
_HOST_NETWORK = ("node.kubernetes.io/network-unavailable", "NoSchedule")


@dataclass(slots=True)
class _View:
    """What is known of one DaemonSet's nodes."""

    spec: Obj | None = None
    """The spec object that `unseen` was filled for."""
    unseen: dict[str, None] = field(default_factory=dict)
    """Nodes to look at."""
    seen: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Node → what it counts as in the status."""
    counts: Counter[str] = field(default_factory=Counter)
    pods: dict[str, dict[PodKey, None]] = field(default_factory=dict)
    """Node → pods on it or meant for it; some may be gone."""

    def note(self, node: str, facts: tuple[str, ...]) -> None:
        self.counts.subtract(self.seen.pop(node, ()))
        if facts:
            self.seen[node] = facts
            self.counts.update(facts)


class DaemonSets(PodOwners):
    """Pods are pinned to their node by node affinity and bound by a scheduler."""

    name = "daemonset"
    resource = DAEMONSETS
    watches = (DAEMONSETS, NODES, PODS)

    def __init__(self, runtime: Runtime):
        super().__init__(runtime)
        self._views: dict[PodKey, _View] = {}

    # -- observing ------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        if change.resource == NODES:
            self._observe_node(change)
        else:
            super().observe(change)

    def _observe_node(self, change: Change) -> None:
        old, new = before_of(change), change.new
        if old is not None and new is not None:
            same_labels = labels_of(new) == labels_of(old)
            if same_labels and (new.get("spec") or {}) == (old.get("spec") or {}):
                return
        name = change.stored.obj["metadata"]["name"]
        for key, view in self._views.items():
            view.unseen[name] = None
            self.queue.add(key)

    def observe_owner(self, change: Change) -> None:
        key = key_of(change.stored.obj)
        if change.new is None:
            self._views.pop(key, None)
        else:
            self._views.setdefault(key, _View())
        super().observe_owner(change)

    def pod_changed(self, pod: PodKey, owner: Obj, change: Change) -> None:
        self._look_again(pod, owner, change)
        super().pod_changed(pod, owner, change)

    def pod_touched(self, pod: PodKey, owner: Obj, change: Change) -> None:
        self._look_again(pod, owner, change)
        super().pod_touched(pod, owner, change)

    def _look_again(self, pod: PodKey, owner: Obj, change: Change) -> None:
        view = self._views.get((pod[0], owner["name"]))
        if view is not None:
            node = _target(change.stored.obj)
            view.unseen[node] = None
            view.pods.setdefault(node, {})[pod] = None

    # -- reconciling ----------------------------------------------------------------------------

    def reconcile(self, key: PodKey) -> float | None:
        owner = self.store.find(DAEMONSETS, *key)
        view = self._views.get(key)
        if owner is None or view is None or is_deleting(owner):
            return None
        group = self.claim(owner)
        if view.spec is not owner["spec"]:
            if view.spec != owner["spec"]:
                names = [node["metadata"]["name"] for node in self.store.list(NODES)]
                view.unseen = dict.fromkeys([*names, *map(_target, group.members.values())])
            view.spec = owner["spec"]
        revision = revisions.ensure(self.store, owner, DAEMONSETS)
        digest = revision.rpartition("-")[2]
        soonest: float | None = None
        for name in list(view.unseen)[:NODES_A_STEP]:
            del view.unseen[name]
            wait = self._settle(owner, view, name, self._pods_of(group, view, name), digest)
            if wait is not None:
                view.unseen[name] = None
                soonest = min(wait, soonest or wait)
        if view.unseen and soonest is None:
            return 0.0
        self._roll(owner, view, digest)
        self._write_status(owner, view)
        if not view.unseen:
            revisions.clean_up(self.store, owner, {revision, *self._hashes(owner)})
        return soonest

    def _pods_of(self, group: Group, view: _View, node: str) -> list[Obj]:
        """The members on the node or meant for it."""
        known = view.pods.get(node)
        if known is None:
            return []
        for key in [key for key in known if key not in group.members]:
            del known[key]
        return [group.members[key] for key in known]

    def _settle(self, owner: Obj, view: _View, name: str, pods: list[Obj], digest: str) -> float | None:
        """Make or remove the pod of one node and note what the node counts as; seconds until available."""
        node = self.store.find(NODES, "", name)
        should_run, should_stay = (False, False) if node is None else wanted_on(owner, node)
        active: list[Obj] = []
        for pod in pods:
            if is_terminal(pod) and not is_deleting(pod):
                self.delete_pod(pod)
            elif is_active(pod):
                active.append(pod)
        if not should_stay:
            for pod in active:
                self.delete_pod(pod)
        elif should_run and not any(not is_terminal(pod) for pod in pods):
            self._create(owner, name, digest)
            view.unseen.pop(name, None)
        else:
            # Two pods of one node: the older stays.
            active.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], key_of(pod)))
            for pod in active[1:]:
                self.delete_pod(pod)
        kept = active[0] if active and should_stay else None
        facts, wait = self._facts(owner, should_run, kept, digest)
        view.note(name, facts)
        return wait

    def _facts(
        self, owner: Obj, should_run: bool, pod: Obj | None, digest: str
    ) -> tuple[tuple[str, ...], float | None]:
        facts = ["desired"] if should_run else []
        if pod is None:
            return tuple(facts), None
        facts.append("current" if should_run else "misscheduled")
        if not should_run:
            return tuple(facts), None
        min_ready = owner["spec"].get("minReadySeconds") or 0
        wait = available_in(pod, min_ready, self.runtime.now())
        if is_ready(pod):
            facts.append("ready")
        if wait is not None and wait <= 0:
            facts.append("available")
        facts.append("updated" if labels_of(pod).get(revisions.HASH_LABEL) == digest else "outdated")
        return tuple(facts), wait if wait is not None and wait > 0 else None

    def _create(self, owner: Obj, node: str, digest: str) -> None:
        template = owner["spec"]["template"]
        spec = clone(template.get("spec") or {})
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        affinity: Obj = spec.get("affinity") or {}
        node_affinity: Obj = affinity.get("nodeAffinity") or {}
        node_affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
        spec["affinity"] = {**affinity, "nodeAffinity": node_affinity}
        spec["tolerations"] = with_daemon_tolerations(spec)
        prefix = owner["metadata"]["name"] + "-"
        pod = pod_from_template(template, owner, DAEMONSETS, prefix=prefix, spec=spec)
        pod["metadata"]["labels"][revisions.HASH_LABEL] = digest
        generation = owner["metadata"].get("generation", 1)
        pod["metadata"]["labels"]["pod-template-generation"] = str(generation)
        self.store.create(PODS, pod, owner["metadata"].get("namespace", ""), owned=True)

    def _roll(self, owner: Obj, view: _View, digest: str) -> None:
        """RollingUpdate: replace outdated pods, unavailable ones first, within maxUnavailable."""
        strategy = owner["spec"].get("updateStrategy") or {}
        if strategy.get("type", "RollingUpdate") != "RollingUpdate" or not view.counts["outdated"]:
            return
        rolling = strategy.get("rollingUpdate") or {}
        limit = int_or_percent(rolling.get("maxUnavailable", 1), view.counts["desired"], up=True)
        budget = max(limit, 1) - (view.counts["desired"] - view.counts["available"])
        outdated = [
            pod
            for pod in self.runtime.pods.group(uid_of(owner)).members.values()
            if is_active(pod) and labels_of(pod).get(revisions.HASH_LABEL) != digest
        ]
        for pod in outdated:
            if not is_ready(pod):
                self.delete_pod(pod)
        for pod in [pod for pod in outdated if is_ready(pod)][: max(budget, 0)]:
            self.delete_pod(pod)

    def _hashes(self, owner: Obj) -> set[str]:
        name = owner["metadata"]["name"]
        members = self.runtime.pods.group(uid_of(owner)).members.values()
        return {f"{name}-{labels_of(pod).get(revisions.HASH_LABEL, '')}" for pod in members}

    def _write_status(self, owner: Obj, view: _View) -> None:
        counts = view.counts
        status: Obj = {
            "currentNumberScheduled": counts["current"],
            "numberMisscheduled": counts["misscheduled"],
            "desiredNumberScheduled": counts["desired"],
            "numberReady": counts["ready"],
            "observedGeneration": owner["metadata"].get("generation", 1),
            "updatedNumberScheduled": counts["updated"],
            "numberAvailable": counts["available"],
            "numberUnavailable": max(counts["desired"] - counts["available"], 0),
        }
        optional = ("updatedNumberScheduled", "numberAvailable", "numberUnavailable")
        status = {name: value for name, value in status.items() if value or name not in optional}
        live = self.store.find(DAEMONSETS, *key_of(owner))
        if live is not None:
            write_status(self.store, DAEMONSETS, live, status)


def _target(pod: Obj) -> str:
    """The node that the pod runs on or is meant for."""
    return node_of(pod) or pinned_node(pod.get("spec") or {})


def with_daemon_tolerations(spec: Obj) -> list[Obj]:
    """The spec's tolerations and those that every daemon pod gets."""
    tolerations = list(spec.get("tolerations") or [])
    wanted = [*_EVERYWHERE, *([_HOST_NETWORK] if spec.get("hostNetwork") else [])]
    for key, effect in wanted:
        extra = {"key": key, "operator": "Exists", "effect": effect}
        if extra not in tolerations:
            tolerations.append(extra)
    return tolerations


def wanted_on(owner: Obj, node: Obj) -> tuple[bool, bool]:
    """(should run, may go on running) of the DaemonSet on the node (`NodeShouldRunDaemonPod`)."""
    spec = owner["spec"]["template"].get("spec") or {}
    name = node["metadata"]["name"]
    if spec.get("nodeName") and spec["nodeName"] != name:
        return False, False
    if not affinity_matches(spec, node):
        return False, False
    tolerant = {**spec, "tolerations": with_daemon_tolerations(spec)}
    if untolerated(tolerant, node, ("NoExecute",)) is not None:
        return False, False
    return untolerated(tolerant, node, ("NoSchedule",)) is None, True
