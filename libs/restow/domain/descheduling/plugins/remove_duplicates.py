"""RemoveDuplicates: pods of one owner and with equal images are spread evenly over the nodes that they may run on."""

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import PodShape
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import Subjects, evict_unless_full, owners_of
from restow.domain.node_labels import Chosen
from restow.domain.policy_args import Args as Base
from restow.domain.policy_args import Namespaces
from restow.domain.predicates import node_rules, repels, tolerance

NAME = "RemoveDuplicates"
POINTS = ("balance",)

class Args(Base, frozen=True):
    """Pods that have an owner of an excluded kind are left alone."""

    namespaces: Namespaces | None = None
    exclude_owner_kinds: tuple[str, ...] = ()


class Copies(NamedTuple):
    """What pods have in common that serve one purpose; `images` are sorted."""

    namespace: str
    kind: str
    owner: str
    images: tuple[str, ...]


def run(handle: Handle, args: Args) -> None:
    state = handle.state
    about = Subjects(handle, args.namespaces)
    excluded = frozenset(args.exclude_owner_kinds)
    counts: dict[Copies, Counter[NodeName]] = {}
    duplicates: dict[Copies, dict[NodeName, list[PodUid]]] = {}
    images: dict[str, tuple[str, ...]] = {}
    for node in handle.nodes:
        seen: set[tuple[Copies, ...]] = set()
        for uid in about.pods_on(node):
            pod = state.pods[uid].fact
            of = owners_of(pod)
            if not of or any(o.kind in excluded for o in of) or handle.evictable(uid):
                continue
            used = images.get(pod.shape)
            if used is None:
                used = images[pod.shape] = _images(state.shapes[pod.shape])
            copies = tuple(sorted({Copies(pod.namespace, o.kind, o.name, used) for o in of}))
            for one in copies:
                counts.setdefault(one, Counter())[node] += 1
            if copies not in seen:
                seen.add(copies)
                continue
            for one in copies:
                duplicates.setdefault(one, {}).setdefault(node, []).append(uid)
    targets = _Targets(handle)
    for one, by_node in duplicates.items():
        _spread(handle, targets, one, counts[one], by_node)
    about.warn()


def _images(shape: PodShape) -> tuple[str, ...]:
    return tuple(sorted(container.image for container in shape.containers if not container.init))


def _spread(
    handle: Handle, targets: "_Targets", copies: Copies, has: Counter[NodeName], by_node: dict[NodeName, list[PodUid]]
) -> None:
    """The first copy on a node is no duplicate. Of the others those go that the node has above the average, rounded up. `has`:
    copies by node."""
    count = has.total()
    name = f"{copies.kind} {copies.namespace}/{copies.owner}"
    nodes = targets.count({handle.state.pods[uid].fact.shape for there in by_node.values() for uid in there})
    if nodes < 2:
        for uid in (uid for there in by_node.values() for uid in there):
            handle.keep(uid, f"Spread: copies of {name} may run on less than two of the nodes")
        return
    average = -(-count // nodes)
    few = [one for one in handle.nodes if has[one] < average]
    for there in by_node.values():
        here = len(there) + 1
        reason = f"{here} of {count} copies of {name} on one node; at most {average} where {nodes} may have some"
        for uid in there[: average - 1]:
            handle.keep(uid, f"Spread: {here} of {count} copies of {name} on its node, at most {average} may stay")
        # A pod with several owners is a copy of each; it can leave only once.
        for uid in there[max(average - 1, 0) :]:
            if evict_unless_full(handle, uid, reason, to=few) and (landing := handle.lands_on(uid)) is not None:
                has[landing] += 1
                few = [one for one in few if has[one] < average]


class _Targets:
    """How many nodes may have pods like these, capacity aside. Rules that only one node keeps to do not count: from there
    is no way out."""

    def __init__(self, handle: Handle):
        self._handle = handle
        self._known: dict[Hashable, frozenset[NodeName]] = {}

    def count(self, shapes: Iterable[str]) -> int:
        found = {self._nodes(self._handle.state.shapes[shape]) for shape in shapes}  # type: ignore[index]
        many = [nodes for nodes in found if len(nodes) > 1]
        return len(many[0] if len(many) == 1 else frozenset().union(*many))

    def _nodes(self, shape: PodShape) -> frozenset[NodeName]:
        rules = node_rules(shape)
        nodes = self._known.get(rules)
        if nodes is None:
            state = self._handle.state
            chosen, tolerate, rows = Chosen(state, shape), tolerance(shape.tolerations), state.table.rows
            nodes = self._known[rules] = frozenset(
                name for name in self._handle.nodes if not repels(state.nodes[name], tolerate) and chosen(rows[name])
            )
        return nodes
