"""One attempt to place a pod: which node takes it, and why the others do not."""

from __future__ import annotations

from dataclasses import dataclass

from restow.kubesim import storage
from restow.kubesim.objects import Obj
from restow.kubesim.placement import affinity_matches, untolerated
from restow.kubesim.podstate import PodKey, labels_of, uid_of
from restow.kubesim.resources import NAMESPACES, PERSISTENTVOLUMECLAIMS, PERSISTENTVOLUMES
from restow.kubesim.stock.allocation import Devices
from restow.kubesim.stock.book import Book, priority_of
from restow.kubesim.stock.pairs import Pairs
from restow.kubesim.stock.usage import Ask, NodeUsage
from restow.kubesim.store import Store

_CORDON = {"spec": {"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]}}
_SINGLE = "ReadWriteOncePod"


@dataclass(frozen=True, slots=True)
class No:
    """Why a node does not take a pod. `helps`: whether fewer pods on it could change that."""

    reasons: tuple[str, ...]
    helps: bool


class Attempt:
    """A pod against the book as it is now."""

    def __init__(self, pod: Obj, book: Book, store: Store):
        self.pod, self.book, self.priority = pod, book, priority_of(pod)
        self.ask = Ask.of(pod)
        self._uid = uid_of(pod)
        self._store = store
        self._claims = storage.claims_of(pod)
        self._devices = Devices(store, pod) if pod["spec"].get("resourceClaims") else None
        self._pairs = self._pair_up()

    def _pair_up(self) -> Pairs | None:
        """None where no other pod matters: the real one's PreFilter skips the plugins then, so that the anti-affinity of pods that
        are nominated, not bound, is seen by those alone that look at others anyway."""
        pairs = Pairs(self.pod, self._namespace_labels, frozenset(c for c in self._claims if self._is_single(c)))
        if not (pairs.wants or self.book.repels):
            return None
        usages = self.book.usages.values()
        pairs.count((usage.node for usage in usages), self.book.everybody() if pairs.wants else self.book.repelling())
        return pairs if pairs.wants or pairs.repelled else None

    def _namespace_labels(self, name: str) -> dict[str, str]:
        namespace = self._store.find(NAMESPACES, "", name)
        return {} if namespace is None else labels_of(namespace)

    def _is_single(self, key: PodKey) -> bool:
        claim = self._store.find(PERSISTENTVOLUMECLAIMS, *key)
        return claim is not None and _SINGLE in (claim["spec"].get("accessModes") or ())

    # -- asking -----------------------------------------------------------------------------------

    def refusal(self, name: str) -> No | None:
        """Why the node does not take the pod; None if it does."""
        usage = self.book.usages.get(name)
        if usage is None:
            return No(("node(s) not found",), False)
        return self._by_node(usage.node) or self.crowded(usage) or self._by_claim(usage.node)

    def _by_claim(self, node: Obj) -> No | None:
        """Nominations keep no devices, and nobody is pushed aside for them."""
        why = self._devices.refusal(node) if self._devices is not None else ""
        return No((why,), False) if why else None

    def crowded(self, usage: NodeUsage) -> No | None:
        """The same of what is on the node. Pods that are nominated to it, with this priority or more, count as if they were
        there (but nobody may depend on them: the pod must fit without them, too)."""
        node = usage.node
        guests = [
            p for p in self.book.guests(node["metadata"]["name"])
            if priority_of(p) >= self.priority and uid_of(p) != self._uid and uid_of(p) not in usage.pods
        ]  # fmt: skip
        if guests:
            full = usage.copy()
            for guest in guests:
                full.hold(guest)
                self.change(guest, node, 1)
            refused = self._by_pods(full)
            for guest in guests:
                self.change(guest, node, -1)
            if refused is not None:
                return refused
        return self._by_pods(usage)

    def change(self, other: Obj, node: Obj, sign: int) -> None:
        if self._pairs is not None:
            self._pairs.change(other, node, sign)

    def _by_node(self, node: Obj) -> No | None:
        """What no removal of pods can change."""
        spec = self.pod["spec"]
        if (node.get("spec") or {}).get("unschedulable") and untolerated(spec, _CORDON, ("NoSchedule",)):
            return No(("node(s) were unschedulable",), False)
        taint = untolerated(spec, node, ("NoSchedule", "NoExecute"))
        if taint is not None:
            return No((f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}",), False)
        if not affinity_matches(spec, node):
            return No(("node(s) didn't match Pod's node affinity/selector",), False)
        if not self._reachable(node):
            return No(("node(s) didn't match PersistentVolume's node affinity",), False)
        return None

    def _by_pods(self, usage: NodeUsage) -> No | None:
        if usage.port_taken(self.ask):
            return No(("node(s) didn't have free ports for the requested pod ports",), True)
        lacking = usage.lacks(self.ask)
        if lacking:
            said = tuple("Too many pods" if name == "pods" else f"Insufficient {name}" for name in lacking)
            return No(said, not usage.never(self.ask))
        refused = None if self._pairs is None else self._pairs.refusal(usage.node)
        return None if refused is None else No((refused[0],), refused[1])

    def _reachable(self, node: Obj) -> bool:
        """Whether the node reaches the volumes of the pod's claims. Claims without one, and what a class allows, are not
        looked at: whoever needs a scheduler that does has one."""
        for key in self._claims:
            claim = self._store.find(PERSISTENTVOLUMECLAIMS, *key)
            volume = None if claim is None else self._store.find(PERSISTENTVOLUMES, "", claim["spec"].get("volumeName", ""))
            if volume is not None and not storage.reachable(volume, node):
                return False
        return True
