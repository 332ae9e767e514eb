"""Which pods a plugin is about: those of its namespaces that its label selector selects."""

from collections.abc import Callable, Iterator, Sequence

from restow.contracts.ids import NodeName, PodUid
from restow.domain.descheduling.args import Args, LabelSelector, Namespaces, below, first
from restow.domain.descheduling.framework import Handle
from restow.domain.selectors import selects

NO_MORE = "Limit: this run evicts nothing more from the node"


class PodArgs(Args, frozen=True):
    """What most plugins have in common. Pods that these leave out are not looked at, and get no verdict."""

    namespaces: Namespaces | None = None
    label_selector: LabelSelector | None = None

    def check(self) -> str:
        return first(
            (
                below("namespaces", self.namespaces.check() if self.namespaces else ""),
                below("labelSelector", self.label_selector.check() if self.label_selector else ""),
            )
        )


class Subjects:
    """The pods of a run that the arguments are about, node by node; `tell` warns of arguments that have selected nothing."""

    def __init__(self, handle: Handle, namespaces: Namespaces | None = None, labels: LabelSelector | None = None):
        self._handle = handle
        self._namespaces = namespaces
        self._labels = None if labels is None else labels.selects
        self._about: dict[str, bool] = {}
        self._found = False

    @classmethod
    def of(cls, handle: Handle, args: PodArgs) -> "Subjects":
        return cls(handle, args.namespaces, args.label_selector)

    def has(self, uid: PodUid) -> bool:
        pod = self._handle.state.pods[uid]
        about = self._about.get(pod.namespace)
        if about is None:
            about = self._about[pod.namespace] = self._namespaces is None or self._namespaces.has(pod.namespace)
        found = about and (self._labels is None or selects(self._labels, pod.labels))
        self._found = self._found or found
        return found

    def on(self, node: NodeName, finished: bool = False) -> Iterator[PodUid]:
        """In the handle's order."""
        return (uid for uid in self._handle.pods(node, finished) if self.has(uid))

    def tell(self) -> None:
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
    node = handle.state.live[pod].node
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
