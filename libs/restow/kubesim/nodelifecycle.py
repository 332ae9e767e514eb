"""What keeps nodes and their pods together: readiness and its taints, NoExecute evictions, Leases, pod GC."""

from __future__ import annotations

from restow.kubesim.errors import ApiError
from restow.kubesim.nodes import READY, is_ours, liveness_of
from restow.kubesim.objects import Obj, rfc3339_micro
from restow.kubesim.placement import tolerates
from restow.kubesim.podstate import (
    condition_of,
    is_deleting,
    is_ready,
    is_terminal,
    key_of,
    node_of,
    set_condition,
    uid_of,
)
from restow.kubesim.resources import LEASES, NAMESPACES, NODES, PODS
from restow.kubesim.runtime import Runtime, before_of, write_status
from restow.kubesim.shelf import Change
from restow.kubesim.workloads.common import ignore_gone

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
LEASE_NAMESPACE = "kube-node-lease"
_OURS = (NOT_READY, UNREACHABLE, UNSCHEDULABLE)
_GC_BATCH = 50
_HEARTBEAT_TICK = 0.5

Key = tuple[str, ...]


class NodeLifecycle:
    """Keys: ("node", name), ("evict", namespace, name, uid), ("mark", namespace, name), ("gc", node), ("beat",)."""

    name = "nodelifecycle"
    watches = (NODES, PODS)

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.store = runtime.store
        self.queue = runtime.new_queue()
        self.evictions = 0
        """Pods deleted because of a NoExecute taint."""
        self._sentenced: dict[str, float] = {}
        """uid → loop time at which the pod met a NoExecute taint."""
        self._nodes: dict[str, None] = {}
        self._to_renew: list[str] = []
        if runtime.timings.heartbeat > 0:
            self.queue.add_after(("beat",), min(_HEARTBEAT_TICK, runtime.timings.heartbeat))

    # -- observing ------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        old, new = before_of(change), change.new
        if change.resource == PODS:
            self._observe_pod(old, new)
            return
        name = change.stored.obj["metadata"]["name"]
        if new is None:
            self._nodes.pop(name, None)
            self.queue.add_after(("gc", name), self.runtime.timings.pod_gc)
            return
        self._nodes[name] = None
        if old is None or _matters(old) != _matters(new):
            self.queue.add(("node", name))

    def _observe_pod(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            assert old is not None
            self._sentenced.pop(uid_of(old), None)
            return
        name = node_of(new)
        if not name or is_terminal(new):
            return
        if name not in self._nodes:
            self.queue.add_after(("gc", name), self.runtime.timings.pod_gc)
            return
        if old is not None and node_of(old) and _tolerations(old) == _tolerations(new):
            return
        if _no_execute(self.store.find(NODES, "", name)):
            self.queue.add(("evict", *key_of(new), uid_of(new)))

    # -- reconciling ----------------------------------------------------------------------------

    def reconcile(self, key: Key) -> float | None:
        match key[0]:
            case "node":
                return self._settle_node(key[1])
            case "evict":
                return self._evict(key[1], key[2], key[3])
            case "mark":
                return self._mark_not_ready(key[1], key[2])
            case "gc":
                return self._collect(key[1])
        return self._renew()

    def _settle_node(self, name: str) -> float | None:
        node = self.store.find(NODES, "", name)
        if node is None:
            return None
        live = liveness_of(node)
        conditions = (node.get("status") or {}).get("conditions") or []
        present = condition_of(node, "Ready")
        if present is None or present.get("status") != live or (live == "True" and is_ours(present)):
            now = self.store.now()
            reason, message = _told(live)
            fresh = set_condition(conditions, "Ready", live, reason, message, now, lastHeartbeatTime=now)
            node = write_status(self.store, NODES, node, {**(node.get("status") or {}), "conditions": fresh})
        taints = (node.get("spec") or {}).get("taints") or []
        wanted = self._taints(node, live, taints)
        if wanted != taints:
            spec = {**(node.get("spec") or {}), "taints": wanted}
            if not wanted:
                del spec["taints"]
            node = self.store.update(NODES, {**node, "spec": spec})
        self._ensure_lease(node)
        executing = _no_execute(node)
        for pod_key, pod in self.runtime.pods.on_node(name).items():
            if executing or uid_of(pod) in self._sentenced:
                self.queue.add(("evict", *pod_key, uid_of(pod)))
            if live != "True":
                self.queue.add(("mark", *pod_key))
        return None

    def _taints(self, node: Obj, live: str, taints: list[Obj]) -> list[Obj]:
        """The node's taints with those that its state calls for; the others are kept."""
        wanted: list[tuple[str, str]] = []
        if live == "False":
            wanted += [(NOT_READY, "NoSchedule"), (NOT_READY, "NoExecute")]
        elif live == "Unknown":
            wanted += [(UNREACHABLE, "NoSchedule"), (UNREACHABLE, "NoExecute")]
        if (node.get("spec") or {}).get("unschedulable"):
            wanted.append((UNSCHEDULABLE, "NoSchedule"))
        kept = [t for t in taints if t["key"] not in _OURS or (t["key"], t.get("effect")) in wanted]
        have = {(t["key"], t.get("effect")) for t in kept}
        now = self.store.now()
        return kept + [
            {"key": key, "effect": effect, "timeAdded": now}
            for key, effect in wanted
            if (key, effect) not in have
        ]

    # -- evictions by taint ---------------------------------------------------------------------

    def _evict(self, namespace: str, name: str, uid: str) -> float | None:
        """Delete the pod when its toleration of the node's NoExecute taints is over; seconds until then."""
        pod = self.store.find(PODS, namespace, name)
        if pod is None or uid_of(pod) != uid or is_deleting(pod) or is_terminal(pod):
            self._sentenced.pop(uid, None)
            return None
        taints = _no_execute(self.store.find(NODES, "", node_of(pod)))
        stay = self._stay(pod, taints)
        if not taints or stay is None:
            self._sentenced.pop(uid, None)
            return None
        now = self.runtime.time()
        left = self._sentenced.setdefault(uid, now) + stay - now
        if left > 1e-9:
            return left
        conditions = set_condition(
            (pod.get("status") or {}).get("conditions") or [], "DisruptionTarget", "True",
            "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint", self.store.now(),
        )  # fmt: skip
        write_status(self.store, PODS, pod, {**(pod.get("status") or {}), "conditions": conditions})
        ignore_gone(lambda: self.store.delete(PODS, namespace, name, uid=uid))
        self.evictions += 1
        return None

    def _stay(self, pod: Obj, taints: list[Obj]) -> float | None:
        """Seconds that the pod may stay; None for ever."""
        scale = self.runtime.timings.toleration_scale
        stays: list[float] = []
        for taint in taints:
            fitting = [t for t in pod["spec"].get("tolerations") or () if tolerates(t, taint)]
            seconds = [t["tolerationSeconds"] for t in fitting if t.get("tolerationSeconds") is not None]
            if fitting and not seconds:
                continue
            # Without any toleration at once; admission gives every pod 300 s for not-ready and unreachable.
            stays.append(max(min(seconds, default=0), 0) * scale)
        return min(stays) if stays else None

    def _mark_not_ready(self, namespace: str, name: str) -> float | None:
        """The node controller reports pods of a node that is not ready as not ready."""
        pod = self.store.find(PODS, namespace, name)
        if pod is None or not is_ready(pod):
            return None
        node = self.store.find(NODES, "", node_of(pod))
        if node is None or liveness_of(node) == "True":
            return None
        conditions = set_condition(
            (pod.get("status") or {}).get("conditions") or [], "Ready", "False", "NodeNotReady",
            "Node is not ready", self.store.now(), lastProbeTime=None,
        )  # fmt: skip
        write_status(self.store, PODS, pod, {**(pod.get("status") or {}), "conditions": conditions})
        return None

    # -- pod GC ---------------------------------------------------------------------------------

    def _collect(self, name: str) -> float | None:
        """Fail and remove the pods of a node that does not exist."""
        if name in self._nodes:
            return None
        ignore_gone(lambda: self.store.delete(LEASES, LEASE_NAMESPACE, name))
        for (namespace, pod_name), pod in list(self.runtime.pods.on_node(name).items())[:_GC_BATCH]:
            if not is_terminal(pod):
                status = dict(pod.get("status") or {})
                status["phase"] = "Failed"
                status["conditions"] = set_condition(
                    status.get("conditions") or [], "DisruptionTarget", "True", "DeletionByPodGC",
                    "PodGC: node no longer exists", self.store.now(),
                )  # fmt: skip
                pod = write_status(self.store, PODS, pod, status)
            uid = uid_of(pod)
            ignore_gone(
                lambda n=namespace, p=pod_name, u=uid: self.store.delete(PODS, n, p, grace_period=0, uid=u)
            )
        held = self.runtime.pods.on_node(name).values()
        # What a finalizer holds stays; its end is a change of its own.
        return 0.0 if any(not is_deleting(pod) for pod in held) else None

    # -- heartbeats -----------------------------------------------------------------------------

    def _ensure_lease(self, node: Obj) -> None:
        name = node["metadata"]["name"]
        if self.runtime.timings.heartbeat <= 0 or self.store.find(LEASES, LEASE_NAMESPACE, name) is not None:
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid_of(node)}
        body = {
            "metadata": {"name": name, "ownerReferences": [owner]},
            "spec": {
                "holderIdentity": name,
                "leaseDurationSeconds": self._lease_duration(),
                "renewTime": rfc3339_micro(self.store.clock()),
            },
        }
        if self.store.find(NAMESPACES, "", LEASE_NAMESPACE) is None:
            try:
                self.store.create(NAMESPACES, {"metadata": {"name": LEASE_NAMESPACE}})
            except ApiError as error:
                if error.reason != "AlreadyExists":
                    raise
        self.store.create(LEASES, body, LEASE_NAMESPACE, owned=True)

    def _lease_duration(self) -> int:
        """Seconds; four heartbeats even where many nodes stretch them."""
        timings = self.runtime.timings
        stretched = max(timings.heartbeat, len(self._nodes) / max(timings.heartbeats_per_second, 1.0))
        return max(40, int(4 * stretched))

    def _renew(self) -> float | None:
        """Renew the next few Leases; seconds until the next few."""
        timings = self.runtime.timings
        tick = min(_HEARTBEAT_TICK, timings.heartbeat)
        rate = min(len(self._nodes) / timings.heartbeat, timings.heartbeats_per_second)
        now = rfc3339_micro(self.store.clock())
        for _ in range(max(int(rate * tick + 0.999), 1)):
            if not self._to_renew:
                self._to_renew = list(reversed(self._nodes))
                if not self._to_renew:
                    break
            name = self._to_renew.pop()
            lease = self.store.find(LEASES, LEASE_NAMESPACE, name)
            node = self.store.find(NODES, "", name)
            if lease is None or node is None or liveness_of(node) == "Unknown":
                continue
            self.store.update(LEASES, {**lease, "spec": {**lease["spec"], "renewTime": now}}, owned=True)
        return tick


def _tolerations(pod: Obj) -> list[Obj]:
    return pod["spec"].get("tolerations") or []


def _matters(node: Obj) -> tuple[object, ...]:
    spec = node.get("spec") or {}
    ready = condition_of(node, "Ready") or {}
    return spec.get("unschedulable"), spec.get("taints"), liveness_of(node), ready.get("status")


def _no_execute(node: Obj | None) -> list[Obj]:
    taints = () if node is None else (node.get("spec") or {}).get("taints") or ()
    return [taint for taint in taints if taint.get("effect") == "NoExecute"]


def _told(live: str) -> tuple[str, str]:
    """(reason, message) of the Ready condition; the message names the annotation that explains it."""
    if live == "True":
        return "KubeletReady", "kubelet is posting ready status"
    if live == "False":
        return "KubeletNotReady", f"container runtime is down (annotation {READY})"
    return "NodeStatusUnknown", f"Kubelet stopped posting node status. (annotation {READY})"
