"""RemovePodsViolatingNodeTaints: pods on a node whose taints they do not tolerate (any more)."""

from collections.abc import Iterator

from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import Taint, Toleration
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.plugins.remove_pods_violating_node_taints.args import Args
from restow.domain.descheduling.subjects import Subjects, evict_until_full
from restow.domain.predicates import tolerates


def run(handle: Handle, args: Args) -> None:
    about, welcome = Subjects.of(handle, args), _Welcome(handle, args)
    for node in handle.nodes:
        taints = tuple(taint for taint in handle.state.nodes[node].taints if args.counts(taint))
        evict_until_full(handle, node, _violating(handle, about, node, taints), welcome.of)
    about.tell()


class _Welcome:
    """Nodes that have no taint which counts and which the pod does not tolerate: elsewhere it would have to go again."""

    def __init__(self, handle: Handle, args: Args):
        self._state = handle.state
        self._taints = {node: tuple(t for t in handle.state.nodes[node].taints if args.counts(t)) for node in handle.nodes}
        self._known: dict[tuple[Toleration, ...], tuple[NodeName, ...]] = {}

    def of(self, uid: PodUid) -> tuple[NodeName, ...]:
        tolerations = self._state.shapes[self._state.pods[uid].shape].tolerations
        known = self._known.get(tolerations)
        if known is None:
            known = self._known[tolerations] = tuple(
                node for node, taints in self._taints.items() if all(tolerates(tolerations, taint) for taint in taints)
            )
        return known


def _violating(handle: Handle, about: Subjects, node: NodeName, taints: tuple[Taint, ...]) -> Iterator[tuple[PodUid, str]]:
    state = handle.state
    for uid in about.on(node):
        for taint in taints:
            if not tolerates(state.shapes[state.pods[uid].shape].tolerations, taint):
                said = f"{taint.key}={taint.value}" if taint.value else taint.key
                yield uid, f"does not tolerate the node's taint {said}:{taint.effect}"
                break
