"""RemovePodsViolatingTopologySpreadConstraint: domains with too many pods give some away, so that those with too few get them."""

from collections import Counter
from collections.abc import Container, Hashable, Iterator, Sequence
from itertools import chain
from typing import NamedTuple

from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.contracts.values import PodShape, Spread
from restow.domain.descheduling.framework import Handle
from restow.domain.descheduling.pods import PodArgs, PodIndex, Subjects, evict_unless_full
from restow.domain.node_labels import Chosen
from restow.domain.predicates import repels, tolerance
from restow.domain.topology.terms import Rule, spread_rule

NAME = "RemovePodsViolatingTopologySpreadConstraint"
POINTS = ("balance",)

HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"


class Args(PodArgs, frozen=True):
    """`constraints`: by their whenUnsatisfiable. `topologyBalanceNodeFit`: only pods go that some node of a domain with too
    few would take. All rules of the scheduler count there, other spread constraints too; without it pods go that may have to wait
    for new nodes, and `nodeFit` of DefaultEvictor does not ask about topology spread."""

    constraints: tuple[str, ...] = (HARD,)
    topology_balance_node_fit: bool = True

    def check(self) -> str:
        for i, constraint in enumerate(self.constraints):
            if constraint not in (HARD, SOFT):
                return f"constraints[{i}]: {constraint!r}; allowed: {HARD}, {SOFT}"
        return super().check()


def moves(sizes: list[int], max_skew: int) -> Iterator[tuple[int, int, int]]:
    """(from, to, how many) over domains whose `sizes` ascend, until none is above the average or all are within the skew. No
    domain falls below the average, none rises above it (both rounded up), and each pair comes together by half of what its
    skew has too much. `sizes` are changed. Behaviour of upstream's balanceDomains."""
    total, domains = sum(sizes), len(sizes)
    low, high = 0, domains - 1
    grown = False
    while low < high:
        if sizes[high] * domains <= total:
            high -= 1
        skew = sizes[high] - sizes[low]
        if skew <= max_skew:
            if not grown:
                # Those that follow are no smaller, and `high` stays where it is or comes to a smaller one.
                return
            low, grown = low + 1, False
            continue
        above = sizes[high] - total // domains
        below = -(-total // domains) - sizes[low]
        count = min(above, below, -(-(skew - max_skew) // 2))
        if count <= 0:
            low, grown = low + 1, False
            continue
        sizes[high] -= count
        sizes[low] += count
        grown = True
        yield high, low, count


HONOR = "Honor"
FEW = 100


class Choice(NamedTuple):
    """What of a pod decides which nodes are eligible; None where a policy ignores it."""

    affinity: Hashable
    tolerations: Hashable


class Constraint(NamedTuple):
    """Whom it counts (`rule`), where (`eligible`), and how far domains may differ."""

    rule: Rule
    topology_key: str
    max_skew: int
    when: str
    min_domains: int
    eligible: Choice


class Grid(NamedTuple):
    """The eligible nodes, and by domain."""

    eligible: frozenset[NodeName]
    domains: dict[str, tuple[NodeName, ...]]


class Constraints:
    """Remembers what was made of a shape."""

    def __init__(self, handle: Handle):
        self._handle = handle
        self._known: dict[Hashable, tuple[Constraint, ...]] = {}
        self._shapes: dict[Choice, PodShape] = {}
        self._grids: dict[tuple[Choice, str], Grid] = {}
        self._unions: dict[tuple[Choice, str, tuple[str, ...]], tuple[NodeName, ...]] = {}
        self._nodes: dict[Choice, frozenset[NodeName]] = {}
        self._keys: dict[ShapeId, tuple[str, ...]] = {}

    def of_pod(self, uid: PodUid) -> tuple[Constraint, ...]:
        """All of a pod, soft ones too."""
        state = self._handle.state
        pod = state.pods[uid].fact
        keys = self._keys.get(pod.shape)
        if keys is None:
            spread = state.shapes[pod.shape].spread
            keys = self._keys[pod.shape] = tuple(dict.fromkeys(key for s in spread for key in s.match_label_keys))
        asked = pod.shape, pod.namespace, tuple(pod.labels.get(key) for key in keys)
        found = self._known.get(asked)
        if found is None:
            shape = state.shapes[pod.shape]
            found = self._known[asked] = tuple(self._made(shape, s, pod.namespace, pod.labels) for s in shape.spread)
        return found

    def _made(self, shape: PodShape, spread: Spread, namespace: str, labels: dict[str, str]) -> Constraint:
        affinity = spread.node_affinity_policy == HONOR
        taints = spread.node_taints_policy == HONOR
        eligible = Choice(
            (tuple(sorted(shape.node_selector.items())), shape.node_affinity) if affinity else None,
            shape.tolerations if taints else None,
        )
        self._shapes.setdefault(eligible, shape)
        return Constraint(
            spread_rule(spread, namespace, labels),
            spread.topology_key,
            spread.max_skew,
            spread.when_unsatisfiable,
            max(spread.min_domains, 1),
            eligible,
        )

    def grid(self, constraint: Constraint) -> Grid:
        asked = constraint.eligible, constraint.topology_key
        grid = self._grids.get(asked)
        if grid is None:
            nodes = self._handle.state.nodes
            eligible = self._eligible(constraint.eligible)
            domains: dict[str, list[NodeName]] = {}
            for name in self._handle.nodes:
                value = nodes[name].labels.get(constraint.topology_key)
                if value is not None and name in eligible:
                    domains.setdefault(value, []).append(name)
            grid = self._grids[asked] = Grid(eligible, {value: tuple(domains[value]) for value in sorted(domains)})
        return grid

    def nodes(self, constraint: Constraint, domains: Sequence[str]) -> tuple[NodeName, ...]:
        """Of these domains. Where they are few the same answer comes again for other constraints."""
        asked = constraint.eligible, constraint.topology_key, tuple(domains)
        nodes = self._unions.get(asked)
        if nodes is None:
            by_domain = self.grid(constraint).domains
            nodes = tuple(node for domain in domains for node in by_domain.get(domain, ()))
            if len(domains) <= FEW:
                self._unions[asked] = nodes
        return nodes

    def _eligible(self, asked: Choice) -> frozenset[NodeName]:
        eligible = self._nodes.get(asked)
        if eligible is None:
            shape, state = self._shapes[asked], self._handle.state
            chosen, tolerate, rows = Chosen(state, shape), tolerance(shape.tolerations), state.table.rows
            eligible = self._nodes[asked] = frozenset(
                name
                for name in self._handle.nodes
                if (asked.affinity is None or chosen(rows[name]))
                and (asked.tolerations is None or not repels(state.nodes[name], tolerate))
            )
        return eligible


def run(handle: Handle, args: Args) -> None:
    state = handle.state
    about = Subjects.from_args(handle, args)
    pods = [uid for node in handle.nodes for uid in about.pods_on(node) if not handle.evictable(uid)]
    about.warn()
    constraints = Constraints(handle)
    wanted = dict.fromkeys(c for uid in pods if state.shapes[state.pods[uid].fact.shape].spread for c in constraints.of_pod(uid))
    balance = _Balance(handle, args, constraints, pods)
    for constraint in wanted:
        if constraint.when in args.constraints:
            balance.look(constraint)
    trades = _Trades(handle, args, constraints, balance) if handle.holds else None
    for uid, (reason, to, line) in list(balance.chosen.items()):
        if trades is None:
            evict_unless_full(handle, uid, reason, skewed=True, to=to)
            continue
        # Where one would trade, another one of its domain may not.
        for one in chain((uid,), line.others(balance.chosen)):
            if where := trades.none_on(one, to):
                evict_unless_full(handle, one, reason, skewed=True, to=where)
                trades.landed(one)
                break
            handle.keep(one, TRADED)


TRADED = "Fit: wherever a domain has fewer pods, another of its constraints would be broken by it instead"


class _Trades:
    """Where a pod may land without breaking another one of the constraints that are balanced: those that only are preferred nobody else asks
    about. What one run traded, the next would trade back."""

    def __init__(self, handle: Handle, args: Args, constraints: Constraints, balance: "_Balance"):
        self._handle, self._args, self._constraints, self._balance = handle, args, constraints, balance
        self._known: dict[Constraint, tuple[Counter[str], frozenset[PodUid]]] = {}

    def none_on(self, uid: PodUid, to: Sequence[NodeName]) -> Sequence[NodeName]:
        """O(nodes) where the pod has several."""
        asked = [one for one in self._constraints.of_pod(uid) if one.when in self._args.constraints]
        for one in asked if len(asked) > 1 else ():
            counts, counted = self._counts(one)
            if uid in counted:
                to = self._fine(one, counts, self._value(one, self._home(uid)), to)
        return to

    def _fine(self, one: Constraint, counts: Counter[str], home: str, to: Sequence[NodeName]) -> list[NodeName]:
        """It is within the skew there, or better than where it is."""
        least = min((counts[value] - (value == home) for value in self._constraints.grid(one).domains), default=0)
        most = max(least + one.max_skew, counts[home] - 1)
        return [node for node in to if (value := self._value(one, node)) in ("", home) or counts[value] < most]

    def landed(self, uid: PodUid) -> None:
        target = self._handle.lands_on(uid)
        for one in self._constraints.of_pod(uid) if target is not None else ():
            counts, counted = self._counts(one)
            if uid in counted:
                counts[self._value(one, self._home(uid))] -= 1
                counts[self._value(one, target)] += 1

    def _counts(self, one: Constraint) -> tuple[Counter[str], frozenset[PodUid]]:
        """How many pods it counts by domain, and which."""
        known = self._known.get(one)
        if known is None:
            homes = self._balance.homes(one)
            counts = Counter({value: len(pods) for value, pods in homes.items()})
            known = self._known[one] = counts, frozenset(uid for pods in homes.values() for uid in pods)
        return known

    def _home(self, uid: PodUid) -> NodeName:
        return self._handle.state.pods[uid].live.node or NodeName("")

    def _value(self, one: Constraint, node: NodeName | None) -> str:
        known = self._handle.state.nodes.get(node) if node else None
        return "" if known is None else known.labels.get(one.topology_key, "")


class _Balance:
    def __init__(self, handle: Handle, args: Args, constraints: Constraints, pods: Sequence[PodUid]):
        self._handle, self._args, self._constraints = handle, args, constraints
        self._index = PodIndex(handle.state, (uid for uid in pods if not handle.state.pods[uid].live.deleting))
        self.chosen: dict[PodUid, tuple[str, Sequence[NodeName], _Line]] = {}
        """Who is to go, why, to which nodes, and who else might; in order."""

    def homes(self, constraint: Constraint) -> dict[str, list[PodUid]]:
        """The pods that it counts, by domain. Those on nodes that are not eligible count, too, as upstream has it."""
        homes: dict[str, list[PodUid]] = {}
        state = self._handle.state
        for uid in self._index.about(constraint.rule):
            value = state.nodes[state.pods[uid].live.node].labels.get(constraint.topology_key)  # type: ignore[index]
            if value is not None:
                homes.setdefault(value, []).append(uid)
        return homes

    def look(self, constraint: Constraint) -> None:
        homes, grid = self.homes(constraint), self._constraints.grid(constraint)
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
                key, skew = constraint.topology_key, constraint.max_skew
                reason = f"{sizes[high]} pods like it in {key}={values[high]}, fewer in {key}={values[low]}; the skew may be {skew}"
                self.chosen.setdefault(uid, (reason, nodes, line))


class _Line:
    """Pods of a domain in the order in which they go: those that fit elsewhere before those that do not (`stuck`); of each the
    least important first, and those that are choosy about nodes last. Nobody is asked before it is their turn."""

    def __init__(self, handle: Handle, pods: list[PodUid], nodes: Sequence[NodeName]):
        state = handle.state

        def key(uid: PodUid) -> tuple[bool, int]:
            shape = state.shapes[state.pods[uid].fact.shape]
            choosy = bool(shape.node_selector) or shape.node_affinity is not None or bool(shape.node_preferences)
            return not choosy, -shape.priority

        self._handle, self._nodes = handle, nodes
        self._left = sorted(pods, key=key)
        self._stuck: list[PodUid] = []

    def others(self, taken: Container[PodUid]) -> Iterator[PodUid]:
        """Those that nobody has chosen, in their order. Each is taken off the line."""
        while self._left:
            uid = self._left.pop()
            if uid not in taken and self._handle.fits_any(uid, self._nodes):
                yield uid

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
