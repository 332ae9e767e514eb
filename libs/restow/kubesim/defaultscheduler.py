"""The stock scheduler, `default-scheduler`: queue, filters, nominations, preemption. Pods of other schedulers are never touched.

What it decides is what kube-scheduler with its default plugins decides, as far as tests/kubesim/conformance/test_scheduling.py asks
both; how much it looks at is less (`LOOKED_AT`), its one score is least-allocated, and among equals the next node wins, not chance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from restow.kubesim import storage
from restow.kubesim.objects import Obj, dig
from restow.kubesim.placement import pinned_node
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
from restow.kubesim.resources import (
    DEVICECLASSES,
    NODES,
    PERSISTENTVOLUMECLAIMS,
    PODS,
    RESOURCECLAIMS,
    RESOURCESLICES,
)
from restow.kubesim.runtime import Runtime, before_of, write_status
from restow.kubesim.shelf import Change
from restow.kubesim.stock.allocation import allocate
from restow.kubesim.stock.book import Book, nominated_to, priority_of
from restow.kubesim.stock.filters import Attempt, No
from restow.kubesim.stock.pairs import is_social
from restow.kubesim.stock.preemption import REASON, Plan, may_preempt, plan
from restow.kubesim.stock.queue import ByPriority
from restow.kubesim.workloads.common import safe_hash
from restow.kubesim.workqueue import WorkQueue

SCHEDULER = "default-scheduler"
LOOKED_AT = 16
"""So many nodes that fit are compared; the real one takes at least 100."""
LISTED = 0.05
"""Seconds between who has gone and what has changed, when pods are listed again: in the real one other work may come between."""
EVERYBODY, FRIENDS = ("", "everybody"), ("", "friends")
"""Keys of no pod: all that wait are tried again, or those whose place depends on other pods. Together, so that priority decides."""


class DefaultScheduler:
    """Binds pods whose schedulerName is default-scheduler or empty."""

    name = "default-scheduler"
    watches = (NODES, DEVICECLASSES, RESOURCESLICES, RESOURCECLAIMS, PODS)

    def __init__(self, runtime: Runtime):
        self.runtime = runtime
        self.store = runtime.store
        self.queue: WorkQueue = ByPriority(runtime, self._priority)
        self._forget()

    def _forget(self) -> None:
        self.book = Book()
        self._next = 0
        self._waiting: dict[PodKey, bool] = {}
        """Pods that fitted nowhere → whether their place depends on other pods."""
        self._again = 0.0
        """The loop's time before which they are not tried again."""
        self._hopeless: dict[str, str] = {}
        """Shape → why it fitted nowhere; valid until capacity becomes free."""
        self._known: dict[str, Obj] | None = None
        """Pods as they were when the watch was cut, by uid; None while it hears of them."""
        self._still = False
        self._kept: dict[PodKey, None] = {}
        """Keys that came up meanwhile."""

    def restart(self) -> None:
        """As if the process began again. Nominations of gated pods are unknown until these pods are updated: the real one reads
        nominations of new pods only when it queues them."""
        self._forget()
        for node in self.store.list(NODES):
            self._observe_node(None, node)
        for pod in self.store.list(PODS):
            self._observe_pod(None, pod)

    def cut(self) -> None:
        """Its API server goes away: it hears of no pod and binds none until `list_again`."""
        if self._known is None:
            self._known, self._still = {uid_of(pod): pod for pod in self.store.list(PODS)}, True

    def list_again(self) -> None:
        """It lists pods. As client-go does it, it takes in who has gone before what has changed, and it schedules meanwhile."""
        if self._known is None:
            return
        self._still = False
        self._take_in_gone()
        kept, self._kept = self._kept, {}
        for key in kept:
            self.queue.add(key)
        self.runtime.timers.after(LISTED, self._take_in)

    def _take_in_gone(self) -> None:
        assert self._known is not None
        there = {uid_of(pod) for pod in self.store.list(PODS)}
        for uid in self._known.keys() - there:
            self._observe_pod(self._known.pop(uid), None)

    def _take_in(self) -> None:
        if self._known is None or self._still:
            return  # It was restarted, or cut again, meanwhile.
        self._take_in_gone()
        known, self._known = self._known, None
        for pod in self.store.list(PODS):
            self._observe_pod(known.get(uid_of(pod)), pod)

    # -- observing ------------------------------------------------------------------------------

    def observe(self, change: Change) -> None:
        old, new = before_of(change), change.new
        if change.resource == NODES:
            self._observe_node(old, new)
        elif change.resource != PODS:
            self._free()
        elif self._known is None:
            self._observe_pod(old, new)

    def _observe_pod(self, old: Obj | None, new: Obj | None) -> None:
        if new is None or is_terminal(new):
            gone = new or old
            assert gone is not None
            dropped = self.book.drop(node_of(gone), uid_of(gone))
            if self._settle(gone) or dropped:
                self._free()
            return
        if node_of(new):
            self.book.hold(new)
            self._settle(new)
            if old is None or not node_of(old) or labels_of(old) != labels_of(new):
                self._meet()
            return
        if not _is_mine(new):
            return
        gated = bool(new["spec"].get("schedulingGates"))
        # A gated pod is not read when it is new, only when it changes.
        if not (gated and old is None) and self.book.nominate(new, nominated_to(new)):
            self._free()
        if not gated and (old is None or _asks(old) != _asks(new)):
            self.queue.add(key_of(new))

    def _settle(self, pod: Obj) -> bool:
        """The pod waits no longer; whether its nomination kept others away."""
        self._waiting.pop(key_of(pod), None)
        return self.book.nominate(pod, "")

    def _observe_node(self, old: Obj | None, new: Obj | None) -> None:
        if new is None:
            assert old is not None
            self.book.remove_node(old["metadata"]["name"])
            return
        name = new["metadata"]["name"]
        if old is None:
            self.book.add_node(new)
            for pod in self.runtime.pods.on_node(name).values():
                if not is_terminal(pod):
                    self.book.hold(pod)
            self._free()
        elif _matters(old) != _matters(new):
            self.book.usages[name].refresh(new)
            self._free()

    def _free(self) -> None:
        """Something became free."""
        self._hopeless.clear()
        self._try_again(EVERYBODY)

    def _meet(self) -> None:
        """A pod came to a node, or has other labels now."""
        self._try_again(FRIENDS)

    def _try_again(self, who: PodKey) -> None:
        if self._waiting:
            self.queue.add_after(who, self._again - self.runtime.time())

    def _priority(self, key: PodKey) -> int:
        pod = self.store.find(PODS, *key)
        return 1 << 31 if pod is None else priority_of(pod)

    # -- reconciling ----------------------------------------------------------------------------

    def reconcile(self, key: PodKey) -> float | None:
        if self._still:
            self._kept[key] = None
            return None
        if key in (EVERYBODY, FRIENDS):
            self._again = self.runtime.time() + self.runtime.timings.unschedulable_retry
            for waiting, social in self._waiting.items():
                if social or key == EVERYBODY:
                    self.queue.add(waiting)
            return None
        pod = self.store.find(PODS, *key)
        if pod is None or node_of(pod) or is_deleting(pod) or is_terminal(pod) or not _is_mine(pod):
            self._waiting.pop(key, None)
            return None
        if pod["spec"].get("schedulingGates"):
            return None
        shape = self._shape(pod)
        reason = self._hopeless.get(shape) if shape else None
        if reason is None:
            attempt = Attempt(pod, self.book, self.store)
            found = self._search(attempt)
            if isinstance(found, str):
                self._bind(pod, found)
                return None
            reason = _explain(found, len(self.book.order), pinned_node(pod["spec"]))
            if shape:
                self._hopeless[shape] = reason
            else:
                self._fail(attempt, found, reason)
                return None
        self._waiting[key_of(pod)] = is_social(pod)
        self._tell(pod, reason, "")
        return None

    def _shape(self, pod: Obj) -> str:
        """Equal for pods that fit the same nodes; "" where the answer is a pod's own."""
        spec = pod["spec"]
        if pinned_node(spec) or storage.claims_of(pod) or spec.get("resourceClaims") or is_social(pod) or nominated_to(pod) or self.book.repels:
            return ""
        if spec.get("preemptionPolicy") != "Never" and self.book.any_below(priority_of(pod)):
            return ""
        return _shape(spec)

    def _search(self, attempt: Attempt) -> str | dict[str, No]:
        """The node for the pod, or why each does not take it. Where it is nominated it goes, if it can."""
        nominated = nominated_to(attempt.pod)
        if nominated and attempt.refusal(nominated) is None:
            return nominated
        pinned = pinned_node(attempt.pod["spec"])
        names = [pinned] if pinned else self.book.order
        refused: dict[str, No] = {}
        best, most, fitting = "", -1, 0
        start, step = self._next if len(names) > 1 else 0, 0
        for step in range(len(names)):
            name = names[(start + step) % len(names)]
            no = attempt.refusal(name)
            if no is not None:
                refused[name] = no
                continue
            score = self.book.usages[name].score(attempt.ask)
            if score > most:
                best, most = name, score
            fitting += 1
            if fitting == LOOKED_AT:
                break
        if not best:
            return refused
        if len(names) > 1:
            self._next = (start + step + 1) % len(names)
        return best

    def _fail(self, attempt: Attempt, refused: Mapping[str, No], reason: str) -> None:
        """Push others aside, or wait. A nomination that did not help is cleared, except where nothing may be pushed aside now."""
        pod = attempt.pod
        self._waiting[key_of(pod)] = is_social(pod)
        if not may_preempt(attempt, refused):
            self._tell(pod, reason, nominated_to(pod))
            return
        made = plan(attempt, refused, self.store)
        if made is not None:
            self._preempt(attempt, made)
        self._tell(pod, reason, made.node if made is not None else "")

    def _preempt(self, attempt: Attempt, made: Plan) -> None:
        why = f"{SCHEDULER}: preempting to accommodate a higher priority pod"
        # Nominated before the victims go: the capacity is nobody else's then.
        self.book.nominate(attempt.pod, made.node)
        for victim in made.victims:
            if not is_deleting(victim):
                self._push_aside(victim, why)
        for guest in self.book.guests(made.node):
            if priority_of(guest) < attempt.priority:
                self._denominate(guest)

    def _push_aside(self, victim: Obj, why: str) -> None:
        key = key_of(victim)
        live = self.store.find(PODS, *key)
        if live is None or uid_of(live) != uid_of(victim):
            return
        status = dict(live.get("status") or {})
        status["conditions"] = set_condition(
            status.get("conditions") or [], "DisruptionTarget", "True", REASON, why, self.store.now(), lastProbeTime=None
        )
        write_status(self.store, PODS, live, status)
        self.store.delete(PODS, *key, uid=uid_of(victim))

    def _denominate(self, pod: Obj) -> None:
        live = self.store.find(PODS, *key_of(pod))
        if live is not None and uid_of(live) == uid_of(pod):
            status = {k: v for k, v in live["status"].items() if k != "nominatedNodeName"}
            write_status(self.store, PODS, live, status)

    # -- writing --------------------------------------------------------------------------------

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
        if not allocate(self.store, pod, node):
            # Somebody was faster, or has deleted a claim: it is heard of, and the pod is tried again.
            self._waiting[key_of(pod)] = is_social(pod)
            return
        status = {k: v for k, v in (pod.get("status") or {}).items() if k != "nominatedNodeName"}
        kept = [c for c in status.get("conditions") or [] if c["type"] != "PodScheduled"]
        status["conditions"] = set_condition(kept, "PodScheduled", "True", "", "", self.store.now(), lastProbeTime=None)
        bound = {**pod, "spec": {**pod["spec"], "nodeName": node}, "status": status}
        self.store.update(PODS, bound, subresource="binding", owned=True)
        if self._known is not None:
            # It assumes what it has decided, and does not wait until it hears of it.
            self.book.hold(bound)
            self._settle(bound)

    def _tell(self, pod: Obj, reason: str, nominated: str) -> None:
        """Writes why the pod waits, and where it is nominated ("" for nowhere)."""
        live = self.store.find(PODS, *key_of(pod))
        if live is None or uid_of(live) != uid_of(pod):
            return
        status: dict[str, Any] = {k: v for k, v in (live.get("status") or {}).items() if k != "nominatedNodeName"}
        if nominated:
            status["nominatedNodeName"] = nominated
        status["conditions"] = set_condition(
            status.get("conditions") or [], "PodScheduled", "False", "Unschedulable", reason, self.store.now(), lastProbeTime=None
        )
        write_status(self.store, PODS, live, status)


def _is_mine(pod: Obj) -> bool:
    return ((pod.get("spec") or {}).get("schedulerName") or SCHEDULER) == SCHEDULER


def _asks(pod: Obj) -> tuple[object, ...]:
    """What makes another attempt worth while if it changes."""
    return pod["spec"], labels_of(pod), dig(pod, "status", "resourceClaimStatuses")


def _shape(spec: Obj) -> str:
    parts = [
        [c.get("resources"), c.get("ports"), c.get("restartPolicy")]
        for field in ("containers", "initContainers")
        for c in spec.get(field) or ()
    ]
    rest = [
        spec.get(f)
        for f in ("nodeSelector", "affinity", "tolerations", "overhead", "resources", "hostNetwork", "priority", "preemptionPolicy")
    ]
    return safe_hash([parts, rest])


def _matters(node: Obj) -> tuple[object, ...]:
    spec, status = node.get("spec") or {}, node.get("status") or {}
    return spec.get("unschedulable"), spec.get("taints"), labels_of(node), status.get("allocatable")


def _explain(refused: Mapping[str, No], nodes: int, pinned: str) -> str:
    """`0/3 nodes are available: 2 Insufficient cpu, 1 …`, most frequent first."""
    if not nodes:
        return "no nodes available to schedule pods"
    reasons = Counter(reason for no in refused.values() for reason in no.reasons)
    counts = ", ".join(f"{count} {reason}" for reason, count in sorted(reasons.items(), key=lambda i: (-i[1], i[0])))
    return f"0/{nodes} nodes are available: {counts}." + (f" It may run on {pinned} only." if pinned else "")
