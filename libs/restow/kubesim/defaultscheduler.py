"""A minimal `default-scheduler`: the first node with capacity. Pods of other schedulers are never touched.

Not fair, not clever: it exists so that DaemonSets and what is not Restow's business run. The search goes on where
the last one ended, so that filling a large cluster stays linear.
"""

from __future__ import annotations

from collections import Counter

from restow.kubesim import storage
from restow.kubesim.ledger import NodeAccount
from restow.kubesim.objects import Obj
from restow.kubesim.placement import affinity_matches, pinned_node, untolerated
from restow.kubesim.podstate import (
    PodKey,
    annotations_of,
    is_deleting,
    is_terminal,
    key_of,
    labels_of,
    node_of,
    set_condition,
    uid_of,
)
from restow.kubesim.resources import NODES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES, PODS
from restow.kubesim.runtime import Runtime, before_of, write_status
from restow.kubesim.shelf import Change
from restow.kubesim.workloads.common import safe_hash

SCHEDULER = "default-scheduler"


class DefaultScheduler:
    """Binds pods whose schedulerName is default-scheduler or empty."""

    name = "default-scheduler"
    watches = (NODES, PODS)

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.store = runtime.store
        self.queue = runtime.new_queue()
        self._accounts: dict[str, NodeAccount] = {}
        self._order: list[str] = []
        self._next = 0
        self._waiting: dict[PodKey, str] = {}
        """Pods that fit nowhere → their shape."""
        self._hopeless: dict[str, str] = {}
        """Shape → why it fitted nowhere; valid until something changes."""

    # -- observing ------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        old, new = before_of(change), change.new
        if change.resource == NODES:
            self._observe_node(old, new)
            return
        key = key_of(change.stored.obj)
        if old is not None and node_of(old) and (new is None or is_terminal(new)):
            account = self._accounts.get(node_of(old))
            if account is not None and account.release(uid_of(old)):
                self._free_rows()
        if new is None or is_terminal(new):
            self._waiting.pop(key, None)
        elif node_of(new):
            self._waiting.pop(key, None)
            account = self._accounts.get(node_of(new))
            if account is not None:
                account.take(new)
        elif _is_mine(new) and (old is None or old.get("spec") is not new.get("spec")):
            self.queue.add(key)

    def _observe_node(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            assert old is not None
            self._accounts.pop(old["metadata"]["name"], None)
            self._order.remove(old["metadata"]["name"])
            return
        name = new["metadata"]["name"]
        if old is None:
            self._accounts[name] = NodeAccount.of(new)
            self._order.append(name)
            for pod in self.runtime.pods.on_node(name).values():
                if not is_terminal(pod):
                    self._accounts[name].take(pod)
            self._free_rows()
        elif _matters(old) != _matters(new):
            self._accounts[name].refresh(new)
            self._free_rows()

    def _free_rows(self) -> None:
        """Something became free: what waits is tried again, soon and together."""
        self._hopeless.clear()
        for key in self._waiting:
            self.queue.add_after(key, self.runtime.timings.unschedulable_retry)

    # -- reconciling ----------------------------------------------------------------------------

    def reconcile(self, key: PodKey) -> float | None:
        pod = self.store.find(PODS, *key)
        if pod is None or node_of(pod) or is_deleting(pod) or is_terminal(pod) or not _is_mine(pod):
            self._waiting.pop(key, None)
            return None
        spec = pod["spec"]
        if spec.get("schedulingGates"):
            return None
        pinned = pinned_node(spec)
        # What volumes allow is a pod's own.
        shape = "" if pinned or storage.claims_of(pod) else _shape(spec)
        reason = self._hopeless.get(shape) if shape else None
        if reason is None:
            found = self._search([pinned] if pinned else self._order, pod)
            if isinstance(found, str):
                self._bind(pod, found)
                return None
            reason = _explain(found, len(self._order), pinned)
            if shape:
                self._hopeless[shape] = reason
        self._waiting[key] = shape
        self._tell(pod, reason)
        return None

    def _search(self, names: list[str], pod: Obj) -> str | Counter[str]:
        """The node that takes the pod (already counted there), or how many nodes refused for which reason."""
        refusals: Counter[str] = Counter()
        start = self._next if len(names) > 1 else 0
        for step in range(len(names)):
            index = (start + step) % len(names)
            name = names[index]
            refusal = self._try(name, pod)
            if not refusal:
                if len(names) > 1:
                    self._next = index
                return name
            refusals[refusal] += 1
        return refusals

    def _try(self, name: str, pod: Obj) -> str:
        """Why the node does not take the pod; "" if it does."""
        node, account = self.store.find(NODES, "", name), self._accounts.get(name)
        if node is None or account is None:
            return "node(s) not found"
        if not affinity_matches(pod["spec"], node):
            return "node(s) didn't match Pod's node affinity/selector"
        taint = untolerated(pod["spec"], node, ("NoSchedule", "NoExecute"))
        if taint is not None:
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
        if (node.get("spec") or {}).get("unschedulable") and not _tolerates_cordon(pod):
            return "node(s) were unschedulable"
        if not self._reachable(pod, node):
            return "node(s) didn't match PersistentVolume's node affinity"
        refusal = account.take(pod, choose=True)
        if refusal is None:
            return ""
        if refusal.reason.startswith("OutOf"):
            name = refusal.reason.removeprefix("OutOf")
            return "Too many pods" if name == "pods" else f"Insufficient {name}"
        if refusal.reason == "NodePorts":
            return "node(s) didn't have free ports for the requested pod ports"
        return "Insufficient nvidia.com/gpu"

    def _reachable(self, pod: Obj, node: Obj) -> bool:
        """Whether the node reaches the volumes of the pod's claims. Claims without one, and what a class allows, are not
        looked at: whoever needs a scheduler that does has one."""
        for namespace, name in storage.claims_of(pod):
            claim = self.store.find(PERSISTENTVOLUMECLAIMS, namespace, name)
            volume = None if claim is None else self.store.find(PERSISTENTVOLUMES, "", claim["spec"].get("volumeName", ""))
            if volume is not None and not storage.reachable(volume, node):
                return False
        return True

    def _select(self, pod: Obj, node: str) -> None:
        """Claims that are provisioned where their pod goes are so on this node."""
        for namespace, name in storage.claims_of(pod):
            claim = self.store.find(PERSISTENTVOLUMECLAIMS, namespace, name)
            if claim is None or claim["spec"].get("volumeName") or annotations_of(claim).get(storage.SELECTED_NODE):
                continue
            meta = storage.annotated(claim, {storage.SELECTED_NODE: node})
            self.store.update(PERSISTENTVOLUMECLAIMS, {**claim, "metadata": meta})

    def _bind(self, pod: Obj, node: str) -> None:
        """What POST pods/binding does, in one write."""
        self._select(pod, node)
        status = dict(pod.get("status") or {})
        kept = [c for c in status.get("conditions") or [] if c["type"] != "PodScheduled"]
        status["conditions"] = set_condition(
            kept, "PodScheduled", "True", "", "", self.store.now(), lastProbeTime=None
        )
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        try:
            self.store.update(PODS, bound, subresource="binding", owned=True)
        except Exception:
            self._accounts[node].release(uid_of(pod))
            raise

    def _tell(self, pod: Obj, reason: str) -> None:
        status = dict(pod.get("status") or {})
        conditions = status.get("conditions") or []
        status["conditions"] = set_condition(
            conditions, "PodScheduled", "False", "Unschedulable", reason, self.store.now(), lastProbeTime=None
        )
        write_status(self.store, PODS, pod, status)


def _is_mine(pod: Obj) -> bool:
    return ((pod.get("spec") or {}).get("schedulerName") or SCHEDULER) == SCHEDULER


def _tolerates_cordon(pod: Obj) -> bool:
    taint = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
    return untolerated(pod["spec"], {"spec": {"taints": [taint]}}, ("NoSchedule",)) is None


def _shape(spec: Obj) -> str:
    """Pods with the same shape fit the same nodes."""
    parts = [
        [c.get("resources"), c.get("ports"), c.get("restartPolicy")]
        for field in ("containers", "initContainers")
        for c in spec.get(field) or ()
    ]
    rest = [
        spec.get(f)
        for f in ("nodeSelector", "affinity", "tolerations", "overhead", "resources", "hostNetwork")
    ]
    return safe_hash([parts, rest])


def _matters(node: Obj) -> tuple[object, ...]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return spec.get("unschedulable"), spec.get("taints"), labels_of(node), status.get("allocatable")


def _explain(refusals: Counter[str], nodes: int, pinned: str) -> str:
    """`0/3 nodes are available: 2 Insufficient cpu, 1 …`, most frequent first."""
    if not nodes:
        return "no nodes available to schedule pods"
    counts = ", ".join(
        f"{count} {reason}" for reason, count in sorted(refusals.items(), key=lambda i: (-i[1], i[0]))
    )
    return f"0/{nodes} nodes are available: {counts}." + (f" It may run on {pinned} only." if pinned else "")
