"""RemovePodsViolatingNodeTaints: pods on a node whose taints they do not tolerate (any more)."""

from collections.abc import Iterator

from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import Taint, Toleration
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import PodArgs, Subjects, evict_until_full
from restow.domain.predicates import tolerates

NAME = "RemovePodsViolatingNodeTaints"
POINTS = ("deschedule",)

class Args(PodArgs, frozen=True):
    """Taints are named by `key` or by `key=value`; of the two lists at most one. Taints of effect NoSchedule count, and with
    `includePreferNoSchedule` those of effect PreferNoSchedule."""

    include_prefer_no_schedule: bool = False
    excluded_taints: tuple[str, ...] = ()
    included_taints: tuple[str, ...] = ()

    def check(self) -> str:
        if self.excluded_taints and self.included_taints:
            return "includedTaints: excludedTaints is set, too; allowed: one of them"
        return super().check()

    def counts(self, taint: Taint) -> bool:
        if taint.effect != "NoSchedule" and not (self.include_prefer_no_schedule and taint.effect == "PreferNoSchedule"):
            return False
        names = (taint.key, f"{taint.key}={taint.value}" if taint.value else taint.key)
        if any(name in self.excluded_taints for name in names):
            return False
        return not self.included_taints or any(name in self.included_taints for name in names)


def run(handle: Handle, args: Args) -> None:
    about, welcome = Subjects.from_args(handle, args), _Welcome(handle, args)
    for node in handle.nodes:
        taints = tuple(taint for taint in handle.state.nodes[node].taints if args.counts(taint))
        evict_until_full(handle, node, _violating(handle, about, node, taints), welcome.nodes)
    about.warn()


class _Welcome:
    """Nodes that have no taint which counts and which the pod does not tolerate: elsewhere it would have to go again."""

    def __init__(self, handle: Handle, args: Args):
        self._state = handle.state
        self._taints = {node: tuple(t for t in handle.state.nodes[node].taints if args.counts(t)) for node in handle.nodes}
        self._known: dict[tuple[Toleration, ...], tuple[NodeName, ...]] = {}

    def nodes(self, uid: PodUid) -> tuple[NodeName, ...]:
        tolerations = self._state.shapes[self._state.pods[uid].fact.shape].tolerations
        known = self._known.get(tolerations)
        if known is None:
            known = self._known[tolerations] = tuple(
                node for node, taints in self._taints.items() if all(tolerates(tolerations, taint) for taint in taints)
            )
        return known


def _violating(handle: Handle, about: Subjects, node: NodeName, taints: tuple[Taint, ...]) -> Iterator[tuple[PodUid, str]]:
    state = handle.state
    for uid in about.pods_on(node):
        for taint in taints:
            if not tolerates(state.shapes[state.pods[uid].fact.shape].tolerations, taint):
                said = f"{taint.key}={taint.value}" if taint.value else taint.key
                yield uid, f"does not tolerate the node's taint {said}:{taint.effect}"
                break
