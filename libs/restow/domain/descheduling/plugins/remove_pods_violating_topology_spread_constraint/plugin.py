"""RemovePodsViolatingTopologySpreadConstraint: domains with too many pods give some away, so that those with too few get them."""

from collections.abc import Sequence

from restow.contracts.ids import NodeName, PodUid
from restow.domain.descheduling.crowd import Crowd
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint.args import (
    Args,
)
from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint.balance import moves
from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint.constraints import (
    Constraint,
    Constraints,
)
from restow.domain.descheduling.subjects import Subjects, evict_unless_full


def run(handle: Handle, args: Args) -> None:
    state = handle.state
    about = Subjects.of(handle, args)
    pods = [uid for node in handle.nodes for uid in about.on(node) if not handle.evictable(uid)]
    about.tell()
    constraints = Constraints(handle)
    wanted = dict.fromkeys(c for uid in pods if state.shapes[state.pods[uid].shape].spread for c in constraints.of(uid))
    balance = _Balance(handle, args, constraints, pods)
    for constraint in wanted:
        if constraint.when in args.constraints:
            balance.look(constraint)
    for uid, (reason, to) in balance.chosen.items():
        evict_unless_full(handle, uid, reason, skewed=True, to=to)


class _Balance:
    def __init__(self, handle: Handle, args: Args, constraints: Constraints, pods: Sequence[PodUid]):
        self._handle, self._args, self._constraints = handle, args, constraints
        self._crowd = Crowd(handle.state, (uid for uid in pods if not handle.state.live[uid].deleting))
        self.chosen: dict[PodUid, tuple[str, Sequence[NodeName]]] = {}
        """Who is to go, why, and to which nodes; in order."""

    def _home(self, constraint: Constraint) -> dict[str, list[PodUid]]:
        """The pods that it counts, by domain. Those on nodes that are not eligible count, too, as upstream has it."""
        homes: dict[str, list[PodUid]] = {}
        state = self._handle.state
        for uid in self._crowd.about(constraint.rule):
            value = state.nodes[state.live[uid].node].labels.get(constraint.topology_key)  # type: ignore[index]
            if value is not None:
                homes.setdefault(value, []).append(uid)
        return homes

    def look(self, constraint: Constraint) -> None:
        homes, grid = self._home(constraint), self._constraints.grid(constraint)
        empty = [value for value in grid.domains if value not in homes]
        used = sorted(homes, key=lambda value: (len(homes[value]), value))
        if not used or len(homes[used[-1]]) - (0 if empty else len(homes[used[0]])) <= constraint.max_skew:
            return
        values = empty + used
        sizes = [0] * len(empty) + [len(homes[value]) for value in used]
        total, domains = sum(sizes), len(sizes)
        few = [value for value, size in zip(values, sizes, strict=True) if size * domains < total]
        nodes = self._constraints.nodes(constraint, few)
        lines: dict[int, _Line] = {}
        for high, low, count in moves(list(sizes), constraint.max_skew):
            line = lines.get(high)
            if line is None:
                line = lines[high] = _Line(self._handle, homes[values[high]], nodes)
            going, stuck = line.take(count)
            for uid in going if self._args.topology_balance_node_fit else (*going, *stuck):
                self._say(uid, constraint, values[high], values[low], sizes[high], nodes)

    def _say(self, uid: PodUid, constraint: Constraint, source: str, target: str, size: int, to: Sequence[NodeName]) -> None:
        key, skew = constraint.topology_key, constraint.max_skew
        reason = f"{size} pods like it in {key}={source}, fewer in {key}={target}; the skew may be {skew}"
        self.chosen.setdefault(uid, (reason, to))


class _Line:
    """Pods of a domain in the order in which they go: those that fit elsewhere before those that do not (`stuck`); of each the
    least important first, and those that are choosy about nodes last. Nobody is asked before it is their turn."""

    def __init__(self, handle: Handle, pods: list[PodUid], nodes: Sequence[NodeName]):
        state = handle.state

        def key(uid: PodUid) -> tuple[bool, int]:
            shape = state.shapes[state.pods[uid].shape]
            choosy = bool(shape.node_selector) or shape.node_affinity is not None or bool(shape.node_preferences)
            return not choosy, -shape.priority

        self._handle, self._nodes = handle, nodes
        self._left = sorted(pods, key=key)
        self._stuck: list[PodUid] = []

    def take(self, count: int) -> tuple[list[PodUid], list[PodUid]]:
        """The next ones that fit elsewhere, and the next ones that do not where there are too few of these."""
        going: list[PodUid] = []
        while self._left and len(going) < count:
            uid = self._left.pop()
            if self._handle.fits_any(uid, self._nodes):
                going.append(uid)
            else:
                self._handle.keep(uid, "Fit: no node of a domain with fewer pods would take it")
                self._stuck.append(uid)
        lacking = count - len(going)
        stuck, self._stuck = self._stuck[:lacking], self._stuck[lacking:]
        return going, stuck
