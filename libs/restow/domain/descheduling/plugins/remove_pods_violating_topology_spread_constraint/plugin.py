"""RemovePodsViolatingTopologySpreadConstraint: domains with too many pods give some away, so that those with too few get them."""

from collections import Counter
from collections.abc import Sequence

from restow.contracts.ids import NodeName, PodUid
from restow.domain.descheduling.crowd import Crowd
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint.args import (
    HARD,
    Args,
)
from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint.balance import moves
from restow.domain.descheduling.plugins.remove_pods_violating_topology_spread_constraint.constraints import (
    Constraint,
    Constraints,
)
from restow.domain.descheduling.subjects import NO_MORE, Subjects


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
    for uid, reason in balance.chosen.items():
        node = state.live[uid].node
        if node is not None and handle.full(node):
            handle.keep(uid, NO_MORE)
        else:
            handle.evict(uid, reason)


class _Balance:
    def __init__(self, handle: Handle, args: Args, constraints: Constraints, pods: Sequence[PodUid]):
        self._handle, self._args, self._constraints = handle, args, constraints
        self._crowd = Crowd(handle.state, (uid for uid in pods if not handle.state.live[uid].deleting))
        self._homes: dict[Constraint, dict[str, list[PodUid]]] = {}
        self.chosen: dict[PodUid, str] = {}
        """Who is to go, and why; in order."""

    def _home(self, constraint: Constraint) -> dict[str, list[PodUid]]:
        """The pods that it counts, by domain. Those on nodes that are not eligible count, too, as upstream has it."""
        homes = self._homes.get(constraint)
        if homes is None:
            homes = self._homes[constraint] = {}
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
        nodes = [node for value in few for node in grid.domains.get(value, ())]
        queues: dict[int, list[PodUid]] = {}
        for high, low, count in moves(list(sizes), constraint.max_skew):
            line = queues.get(high)
            if line is None:
                line = queues[high] = self._line(homes[values[high]], nodes)
            going, queues[high] = line[-count:], line[:-count]
            for uid in going:
                self._choose(uid, constraint, nodes, values[high], values[low], sizes[high])

    def _line(self, pods: list[PodUid], nodes: list[NodeName]) -> list[PodUid]:
        """In the order in which they stay: those that fit nowhere else, those that are choosy about nodes, then the more
        important."""
        state = self._handle.state

        def key(uid: PodUid) -> tuple[bool, bool, int]:
            shape = state.shapes[state.pods[uid].shape]
            choosy = bool(shape.node_selector) or shape.node_affinity is not None or bool(shape.node_preferences)
            return self._handle.fits_any(uid, nodes), not choosy, -shape.priority

        return sorted(pods, key=key)

    def _choose(self, uid: PodUid, constraint: Constraint, nodes: list[NodeName], source: str, target: str, size: int) -> None:
        if self._args.topology_balance_node_fit:
            if not self._handle.fits_any(uid, nodes):
                self._handle.keep(uid, f"Fit: no node of a {constraint.topology_key} with fewer would take it")
                return
            if not self._lands(uid, constraint, nodes):
                self._handle.keep(uid, "Fit: every node that would take it breaks another of its spread constraints")
                return
        key = constraint.topology_key
        self.chosen.setdefault(uid, f"{size} pods like it in {key}={source}, fewer in {key}={target}; the skew may be {constraint.max_skew}")

    def _lands(self, uid: PodUid, balanced: Constraint, nodes: list[NodeName]) -> bool:
        """Whether one of these nodes would take it and keep to its other hard constraints, as if it had left already."""
        others = [
            c
            for c in self._constraints.of(uid)
            if c.when == HARD and not (balanced.when == HARD and c.topology_key == balanced.topology_key)
        ]
        if not others:
            return True
        state = self._handle.state
        counted = [(c.topology_key, *self._counts(uid, c), c.max_skew) for c in others]
        for node in nodes:
            labels = state.nodes[node].labels
            keeps = all(
                key not in labels or counts[labels[key]] + 1 - least <= max_skew for key, counts, least, max_skew in counted
            )
            if keeps and not self._handle.fits_on(uid, node):
                return True
        return False

    def _counts(self, uid: PodUid, constraint: Constraint) -> tuple[Counter[str], int]:
        """Pods by domain without this one, on eligible nodes; and the smallest number, 0 with fewer domains than minDomains."""
        grid, live = self._constraints.grid(constraint), self._handle.state.live
        counts = Counter(
            {
                value: sum(live[other].node in grid.eligible and other != uid for other in there)
                for value, there in self._home(constraint).items()
            }
        )
        if len(grid.domains) < constraint.min_domains:
            return counts, 0
        return counts, min((counts[value] for value in grid.domains), default=0)
