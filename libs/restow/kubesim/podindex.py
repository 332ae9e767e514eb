"""Objects by their controller, and orphans by their labels; so that no reconcile looks at pods of others.

Fed by the store's changes. Counts are kept, not computed: a reconcile of 5 000 replicas that has nothing to do
costs the same as one of a single replica.
"""

from __future__ import annotations

from collections import Counter

from restow.kubesim.objects import Obj, controller_of
from restow.kubesim.placement import Selector, selector_matches
from restow.kubesim.podstate import (
    PodKey,
    is_active,
    is_deleting,
    is_ready,
    is_terminal,
    key_of,
    labels_of,
    node_of,
)

Labels = frozenset[tuple[str, str]]


class Group:
    """The objects of one controller, with the counts that its status needs."""

    __slots__ = ("active", "members", "ready", "shapes", "terminal", "terminating")

    def __init__(self) -> None:
        self.members: dict[PodKey, Obj] = {}
        self.active = 0
        self.ready = 0
        self.terminating = 0
        self.terminal = 0
        self.shapes: Counter[Labels] = Counter()
        """How many *active* members wear exactly these labels."""

    def count(self, obj: Obj, sign: int) -> None:
        if is_deleting(obj):
            self.terminating += sign
        if is_terminal(obj):
            self.terminal += sign
        if not is_active(obj):
            return
        self.active += sign
        if is_ready(obj):
            self.ready += sign
        shape = frozenset(labels_of(obj).items())
        self.shapes[shape] += sign
        if not self.shapes[shape]:
            del self.shapes[shape]

    def wearing(self, wanted: dict[str, str]) -> int:
        """Active members whose labels include `wanted`."""
        pairs = wanted.items()
        return sum(count for shape, count in self.shapes.items() if pairs <= shape)

    def strangers(self, selector: Selector) -> list[Obj]:
        """Active members that the selector no longer matches."""
        if all(selector_matches(selector, dict(shape)) for shape in self.shapes):
            return []
        return [
            m for m in self.members.values() if is_active(m) and not selector_matches(selector, labels_of(m))
        ]


_EMPTY = Group()


class OwnerIndex:
    """Objects of one resource by the uid of their controller; orphans by namespace and label."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._orphans: dict[tuple[str, str, str], dict[PodKey, Obj]] = {}
        self._orphans_of: dict[str, dict[PodKey, Obj]] = {}

    def change(self, old: Obj | None, new: Obj | None) -> None:
        """Take one change of the store; `old` is None for a new object, `new` for a removed one."""
        if old is not None:
            self._take(old, -1)
        if new is not None:
            self._take(new, 1)

    def _take(self, obj: Obj, sign: int) -> None:
        owner = controller_of(obj)
        if owner is None:
            self._orphan(obj, sign)
            return
        group = self._groups.get(owner["uid"])
        if group is None:
            group = self._groups[owner["uid"]] = Group()
        group.count(obj, sign)
        if sign > 0:
            group.members[key_of(obj)] = obj
            return
        group.members.pop(key_of(obj), None)
        if not group.members:
            del self._groups[owner["uid"]]

    def _orphan(self, obj: Obj, sign: int) -> None:
        key = key_of(obj)
        if sign > 0:
            self._orphans_of.setdefault(key[0], {})[key] = obj
            for pair in labels_of(obj).items():
                self._orphans.setdefault((key[0], *pair), {})[key] = obj
            return
        self._orphans_of.get(key[0], {}).pop(key, None)
        for pair in labels_of(obj).items():
            bucket = self._orphans.get((key[0], *pair))
            if bucket is not None:
                bucket.pop(key, None)
                if not bucket:
                    del self._orphans[(key[0], *pair)]

    def group(self, uid: str) -> Group:
        """What the controller with this uid owns; an empty group if nothing."""
        return self._groups.get(uid, _EMPTY)

    def orphans(self, namespace: str, selector: Selector) -> list[Obj]:
        """Objects without a controller that the selector matches and that are not being deleted."""
        if selector is None:
            return []
        pairs = (selector.get("matchLabels") or {}).items()
        if pairs:
            buckets = [self._orphans.get((namespace, *pair)) for pair in pairs]
            if not all(buckets):
                return []
            candidates = min((b for b in buckets if b), key=len)
        else:
            candidates = self._orphans_of.get(namespace, {})
        return [
            o for o in candidates.values() if not is_deleting(o) and selector_matches(selector, labels_of(o))
        ]


class PodIndex(OwnerIndex):
    """Pods by controller, and by node."""

    def __init__(self) -> None:
        super().__init__()
        self._nodes: dict[str, dict[PodKey, Obj]] = {}

    def _take(self, obj: Obj, sign: int) -> None:
        super()._take(obj, sign)
        node = node_of(obj)
        if not node:
            return
        if sign > 0:
            self._nodes.setdefault(node, {})[key_of(obj)] = obj
            return
        bucket = self._nodes.get(node)
        if bucket is not None:
            bucket.pop(key_of(obj), None)
            if not bucket:
                del self._nodes[node]

    def on_node(self, node: str) -> dict[PodKey, Obj]:
        """Pods whose spec names the node. Do not change the dict."""
        return self._nodes.get(node, {})

    def nodes(self) -> list[str]:
        """Names that pods are bound to, whether or not such a node exists."""
        return list(self._nodes)


class SelectorIndex:
    """Controllers by one label of their selector: who may want this orphan?"""

    def __init__(self) -> None:
        self._by_pair: dict[tuple[str, str, str], set[PodKey]] = {}
        self._any: dict[str, set[PodKey]] = {}

    def change(self, old: Obj | None, new: Obj | None) -> None:
        if old is not None:
            self._bucket(old).discard(key_of(old))
        if new is not None:
            self._bucket(new).add(key_of(new))

    def _bucket(self, owner: Obj) -> set[PodKey]:
        namespace = key_of(owner)[0]
        labels = ((owner.get("spec") or {}).get("selector") or {}).get("matchLabels") or {}
        if not labels:
            return self._any.setdefault(namespace, set())
        # The template hash is the most selective pair where there is one.
        key = "pod-template-hash" if "pod-template-hash" in labels else min(labels)
        return self._by_pair.setdefault((namespace, key, labels[key]), set())

    def wanting(self, orphan: Obj) -> set[PodKey]:
        """Keys of the controllers whose selector may match; the caller's reconcile makes sure."""
        namespace = key_of(orphan)[0]
        found = set(self._any.get(namespace, ()))
        for key, value in labels_of(orphan).items():
            found |= self._by_pair.get((namespace, key, value), set())
        return found
