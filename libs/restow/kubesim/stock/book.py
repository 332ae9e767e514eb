"""What the stock scheduler knows: nodes with their pods, and who is nominated where. A restart begins a new one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from restow.kubesim.objects import Obj
from restow.kubesim.podstate import node_of, uid_of
from restow.kubesim.stock.pairs import required
from restow.kubesim.stock.usage import NodeUsage


def priority_of(pod: Obj) -> int:
    return pod["spec"].get("priority") or 0


def nominated_to(pod: Obj) -> str:
    return (pod.get("status") or {}).get("nominatedNodeName") or ""


class Book:
    """What is used, by node, in the order of coming; nominations of pods that are not bound."""

    def __init__(self) -> None:
        self.usages: dict[str, NodeUsage] = {}
        self.order: list[str] = []
        self._priorities: Counter[int] = Counter()
        self._repelling: dict[str, str] = {}
        """Pods with hard anti-affinity → their node."""
        self._nominated: dict[str, dict[str, Obj]] = {}
        self._nominations: dict[str, str] = {}

    # -- nodes ------------------------------------------------------------------------------------

    def add_node(self, node: Obj) -> None:
        name = node["metadata"]["name"]
        self.usages[name] = NodeUsage.of(node)
        self.order.append(name)

    def remove_node(self, name: str) -> None:
        for uid in list(self.usages[name].pods):
            self.drop(name, uid)
        del self.usages[name]
        self.order.remove(name)

    # -- pods -------------------------------------------------------------------------------------

    def hold(self, pod: Obj) -> None:
        """The pod is bound, to a node that may not exist."""
        usage = self.usages.get(node_of(pod))
        if usage is None:
            return
        uid = uid_of(pod)
        if uid not in usage.pods:
            self._priorities[priority_of(pod)] += 1
            if required(pod, "podAntiAffinity"):
                self._repelling[uid] = node_of(pod)
        usage.hold(pod)

    def drop(self, name: str, uid: str) -> bool:
        usage = self.usages.get(name)
        held = None if usage is None else usage.drop(uid)
        if held is None:
            return False
        priority = priority_of(held.pod)
        self._priorities[priority] -= 1
        if not self._priorities[priority]:
            del self._priorities[priority]
        self._repelling.pop(uid, None)
        return True

    def any_below(self, priority: int) -> bool:
        """Whether some bound pod has a lower priority."""
        return any(one < priority for one in self._priorities)

    @property
    def repels(self) -> bool:
        """Whether some bound pod has hard anti-affinity."""
        return bool(self._repelling)

    def repelling(self) -> Iterator[tuple[Obj, Obj]]:
        """Pods with hard anti-affinity, and their nodes."""
        for uid, name in self._repelling.items():
            yield self.usages[name].pods[uid].pod, self.usages[name].node

    def everybody(self) -> Iterator[tuple[Obj, Obj]]:
        for usage in self.usages.values():
            for held in usage.pods.values():
                yield held.pod, usage.node

    # -- nominations ------------------------------------------------------------------------------

    def nominate(self, pod: Obj, node: str) -> bool:
        """The pod is nominated to the node, or to none ("") any more; whether capacity became free by that."""
        uid = uid_of(pod)
        before = self._nominations.pop(uid, "")
        if before:
            there = self._nominated[before]
            del there[uid]
            if not there:
                del self._nominated[before]
        if node:
            self._nominations[uid] = node
            self._nominated.setdefault(node, {})[uid] = pod
        return bool(before) and before != node

    def guests(self, node: str) -> list[Obj]:
        """Pods that are nominated to the node."""
        return list(self._nominated.get(node, {}).values())
