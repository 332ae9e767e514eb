"""Pods as plugins look at them: which they are about, in which order they go, who owns them, and whom a rule about pods is about."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from restow.contracts.events import PodObserved
from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import OwnerRef, PodShape
from restow.domain.descheduling.framework import Handle
from restow.domain.policy_args import Args, LabelSelector, Namespaces
from restow.domain.protection import PREFER_NO_EVICTION
from restow.domain.selectors import selects
from restow.domain.state import ClusterState
from restow.domain.topology.label_classes import LabelClass, LabelClasses
from restow.domain.topology.terms import Rule

NO_MORE = "Limit: this run evicts nothing more from the node"
EVICT = "descheduler.alpha.kubernetes.io/evict"
IN_PROGRESS = "descheduler.alpha.kubernetes.io/eviction-in-progress"
"""Annotations of pods. Their presence counts, not their value."""

BEST_EFFORT, BURSTABLE, GUARANTEED = 0, 1, 2


def qos(shape: PodShape) -> int:
    """BEST_EFFORT where nothing is asked for, GUARANTEED where limits equal requests, else BURSTABLE."""
    if shape.qos:
        return GUARANTEED
    return BURSTABLE if any(shape.requests.get(name) for name in ("cpu", "memory")) else BEST_EFFORT


def by_priority(state: ClusterState, pods: Iterable[PodUid]) -> list[PodUid]:
    """The order in which pods go where a plugin has no other, as upstream's SortPodsBasedOnPriorityLowToHigh: the lowest priority first, then BestEffort
    before Burstable before Guaranteed, then those that do not mind before those that prefer to stay, then as they were given."""

    def key(uid: PodUid) -> tuple[int, int, bool]:
        pod = state.pods[uid].fact
        shape = state.shapes[pod.shape]
        return shape.priority, qos(shape), PREFER_NO_EVICTION in pod.annotations

    return sorted(pods, key=key)


def owners_of(pod: PodObserved) -> tuple[OwnerRef, ...]:
    """All owner references; the controller's first."""
    return pod.owners if pod.owner is None else (pod.owner, *pod.owners)


class PodArgs(Args, frozen=True):
    """What most plugins have in common. Pods that these leave out are not looked at, and get no verdict."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None


class Subjects:
    """The pods of a run that the arguments are about, node by node; `warn` warns of arguments that have selected nothing."""

    def __init__(self, handle: Handle, namespaces: Namespaces | None = None, labels: LabelSelector | None = None):
        self._handle = handle
        self._namespaces = namespaces
        self._labels = None if labels is None else labels.selects
        self._about: dict[str, bool] = {}
        self._found = False

    @classmethod
    def from_args(cls, handle: Handle, args: PodArgs) -> "Subjects":
        return cls(handle, args.namespaces, args.label_selector)

    def has(self, uid: PodUid) -> bool:
        pod = self._handle.state.pods[uid].fact
        about = self._about.get(pod.namespace)
        if about is None:
            about = self._about[pod.namespace] = self._namespaces is None or self._namespaces.has(pod.namespace)
        found = about and (self._labels is None or selects(self._labels, pod.labels))
        self._found = self._found or found
        return found

    def pods_on(self, node: NodeName, finished: bool = False) -> Iterator[PodUid]:
        """In the handle's order."""
        return (uid for uid in self._handle.pods(node, finished) if self.has(uid))

    def warn(self) -> None:
        """To be called when all nodes were looked at."""
        known = self._handle.state.namespaces
        if self._namespaces is not None and known:
            for name in (*self._namespaces.include, *self._namespaces.exclude):
                if name not in known:
                    self._handle.warn(f"namespaces: {name} does not exist")
        if self._labels is not None and not self._found:
            self._handle.warn("labelSelector: selects no pod on these nodes")


def evict_unless_full(handle: Handle, pod: PodUid, reason: str, skewed: bool = False, to: Sequence[NodeName] | None = None) -> bool:
    """As `handle.evict`, which is not asked where a limit of its node, or in total, is reached: that is the verdict then."""
    node = handle.state.pods[pod].live.node
    if node is not None and handle.full(node):
        handle.keep(pod, NO_MORE)
        return False
    return handle.evict(pod, reason, skewed, to)


def evict_until_full(
    handle: Handle,
    node: NodeName,
    wanted: Iterator[tuple[PodUid, str]],
    to: Callable[[PodUid], Sequence[NodeName] | None] = lambda pod: None,
) -> None:
    """Evict each for its reason, in this order, until a limit is reached; of the others is said that it was. `to`: where each may
    land."""
    full = False
    for pod, reason in wanted:
        full = full or handle.full(node)
        if full:
            handle.keep(pod, NO_MORE)
        else:
            handle.evict(pod, reason, to=to(pod))


class PodIndex:
    """Pods, found by the terms and constraints that are about them: no term looks at every pod. A snapshot, in the order in which the pods were given;
    those of one namespace with equal labels are matched once."""

    def __init__(self, state: ClusterState, pods: Iterable[PodUid]):
        self._state = state
        self._label_classes = LabelClasses()
        self._members: dict[LabelClass, list[tuple[int, PodUid]]] = {}
        self._found: dict[Rule, tuple[PodUid, ...]] = {}
        for order, uid in enumerate(pods):
            pod = state.pods[uid].fact
            key = frozenset(pod.labels.items())
            label_class = self._label_classes.get(pod.namespace, key)
            if label_class is None:
                label_class = LabelClass(self, pod.namespace, pod.labels, key)
                self._label_classes.add(label_class)
                self._members[label_class] = []
            self._members[label_class].append((order, uid))

    def about(self, rule: Rule) -> tuple[PodUid, ...]:
        """Those that the rule is about."""
        found = self._found.get(rule)
        if found is None:
            known = self._state.namespaces
            label_classes = [
                label_class
                for label_class in dict.fromkeys(self._label_classes.candidates(rule))
                if rule.about(label_class.namespace, label_class.labels, known, arriving=False)
            ]
            members = sorted(member for label_class in label_classes for member in self._members[label_class])
            found = self._found[rule] = tuple(uid for _, uid in members)
        return found
