"""Which moves must wait for which because of rules about what runs: those only whose being under way a rule would notice.

A move that waits for nobody may run at the same time as others, and any of these may be at its source, at both ends or at its target, or may
fail and stay. So each rule of a pod is held against the worst of it: of the pods that it counts (`Counter`) all that may have come
have come where that is bad, and all that may have gone have gone. Where the rule would not hold, the two moves keep the order in which
they were found, in which each is legal. Rules of other sorts (CPUs, NUMA zones, volumes) are about one node or one claim: moves that
touch the same keep their order.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.simulation import Simulation
from restow.domain.host_ports import met_by
from restow.domain.topology import Subject, Topology
from restow.domain.topology.asker import Spreading
from restow.domain.topology.domains import Count, Domains, Eligible
from restow.domain.topology.ports import keys as port_keys

MANY = 500
"""Of more moves that one rule counts each waits for the one before it."""


class Step(NamedTuple):
    """A move in the order in which moves were found: from row to row, after moves with these numbers."""

    uid: PodUid
    source: int
    target: int
    after: tuple[int, ...]
    ruled: bool


class Counter:
    """Pods that a rule counts, by domain: `start` `(domains,) int64` before any move; `ends` are the domains of the moves of such pods,
    by number (0 is none)."""

    def __init__(self, count: Count, domains: Domains, eligible: Eligible | None) -> None:
        self.count, self.domains, self.eligible = count, domains, eligible
        self.ends: dict[int, tuple[int, int]] = {}
        self.start = np.zeros(0, np.int64)

    def domain(self, row: int) -> int:
        return 0 if self.eligible is not None and not self.eligible.ids[row] else self.domains.ids[row]

    def begin(self) -> None:
        """All moves of `ends` have been carried out so far: this takes them back."""
        self.start = self.count.per_domain(self.domains, self.eligible).copy()
        for source, target in self.ends.values():
            self.start[source] += 1
            self.start[target] -= 1
        self.start[0] = 0


class Check:
    """One rule of one move: in domain `at` there must be nobody, or somebody, or (`spread`) not too many more than elsewhere. `high`:
    how many there are at most; `low`: at least, by domain; `least`: the smallest of these that counts."""

    def __init__(self, counter: Counter, at: int, somebody: bool = False, spread: Spreading | None = None, itself: bool = False) -> None:
        self.counter, self.at, self.somebody, self.spread, self.itself = counter, at, somebody, spread, itself
        self.high = 0
        self.low = np.zeros(0, np.int64)
        self._eligible: np.ndarray | None = None
        if spread is not None and spread.eligible is not None:
            among = spread.eligible.domains(spread.domains)
            self._eligible = among if len(among) >= max(spread.min_domains, 1) else None
        self._counts = np.zeros(0, bool)
        self.least = 0

    def begin(self, number: int, before: int) -> None:
        """As it is when the move `number` has its turn: of the others before it those in `before` (bits) have landed, and nobody knows of
        the rest. It does not count itself."""
        high, low = self.counter.start.copy(), self.counter.start.copy()
        for other, (source, target) in self.counter.ends.items():
            if other == number:
                high[source] -= 1
                low[source] -= 1
            elif before >> other & 1:
                for counts in (high, low):
                    counts[source] -= 1
                    counts[target] += 1
            elif other < number:
                high[target] += 1
                if source != target:
                    low[source] -= 1
        self.high, self.low = int(high[self.at]), low
        self._counts = np.zeros(len(low), bool)
        if self._eligible is not None:
            self._counts[self._eligible] = True
            self.least = int(low[self._eligible].min())

    def holds(self) -> bool:
        return self._holds(self.high, int(self.low[self.at]), self.least)

    def _holds(self, high: int, low: int, least: int) -> bool:
        if self.spread is not None:
            return high <= self.spread.max_skew + least - self.itself
        return low > 0 if self.somebody else high == 0

    def holds_with(self, other: int) -> bool:
        """Whether it also holds if this one, which comes later, does not wait. It is remembered by `add`."""
        source, target = self.counter.ends[other]
        low, least = int(self.low[self.at]), self.least
        if source != target:
            low -= source == self.at
            if self._eligible is not None and self._counts[source]:
                least = min(least, int(self.low[source]) - 1)
        return self._holds(self.high + (target == self.at), low, least)

    def add(self, other: int) -> None:
        source, target = self.counter.ends[other]
        self.high += target == self.at
        if source != target:
            self.low[source] -= 1
            if self._eligible is not None and self._counts[source]:
                self.least = min(self.least, int(self.low[source]))

    def helps(self, other: int) -> bool:
        """Whether it is better if this one, which comes before it, has landed for certain."""
        source, target = self.counter.ends[other]
        if self.somebody:
            return target == self.at != source
        if source == self.at:
            return True
        return self.spread is not None and source != target and bool(self._counts[target]) and int(self.low[target]) <= self.least


class RuleOrder:
    """For the moves of one plan, when all have been carried out in the simulation."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        others = simulation.session.other_pods
        self._index = others
        self._topology: Topology | None = others.topology if others is not None and not others.topology.idle else None
        self._counters: dict[tuple[Count, Domains, Eligible | None], Counter] = {}

    def predecessors(self, steps: Sequence[Step]) -> list[list[int]]:
        """For each move the numbers of those that must have landed before it."""
        checks = [list(self._checks(step)) if step.ruled else [] for step in steps]
        local = [step.ruled and self._is_local(step.uid) for step in steps]
        self._count(steps)
        before: list[int] = []
        waits: list[list[int]] = []
        for number, step in enumerate(steps):
            earlier = _Predecessors(list(step.after), before)
            self._mine(number, checks[number], earlier)
            self._others(number, checks, earlier)
            for other in range(number - 1, -1, -1):
                if (local[number] or local[other]) and not earlier.has(other) and self._meet(step, steps[other]):
                    earlier.add(other)
            for check in checks[number]:
                check.begin(number, earlier.mask)
            before.append(earlier.mask)
            waits.append(earlier.after)
        return waits

    def _mine(self, number: int, checks: list[Check], earlier: "_Predecessors") -> None:
        """Whom this move waits for, so that its own rules hold."""
        for check in checks:
            ends = check.counter.ends
            if len(ends) > MANY:
                earlier.add_all(other for other in reversed(ends) if other < number)
            check.begin(number, earlier.mask)
            while not check.holds():
                might = (other for other in reversed(ends) if other < number and not earlier.has(other))
                helping = next((other for other in might if check.helps(other)), None)
                if helping is None:
                    break
                earlier.add(helping)
                check.begin(number, earlier.mask)

    def _others(self, number: int, checks: list[list[Check]], earlier: "_Predecessors") -> None:
        """Whom it waits for so that their rules hold."""
        for other in range(number - 1, -1, -1):
            if earlier.has(other):
                continue
            about = [check for check in checks[other] if number in check.counter.ends]
            if any(len(check.counter.ends) > MANY or not check.holds_with(number) for check in about):
                earlier.add(other)
            else:
                for check in about:
                    check.add(number)

    # -- what is asked -----------------------------------------------------------------------------------------------

    def _subject(self, uid: PodUid) -> Subject:
        assert self._index is not None, "asked where there is a topology"
        subject: Subject = self._index.subject(self._simulation.twin(uid))
        return subject

    def _is_local(self, uid: PodUid) -> bool:
        """Of what nobody's leaving opens (blocks of gangs) all that meet at one node are allowed in any order."""
        return any(not rule.of_pods and not rule.lasting for rule in self._simulation.rules(uid))

    def _meet(self, one: Step, other: Step) -> bool:
        if {one.source, one.target} & {other.source, other.target}:
            return True
        pods = self._simulation.state.pods
        mine, theirs = pods[one.uid].fact, pods[other.uid].fact
        return mine.namespace == theirs.namespace and bool(set(mine.claims) & set(theirs.claims))

    def _counter(self, count: Count, domains: Domains, eligible: Eligible | None = None) -> Counter:
        key = count, domains, eligible
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = Counter(count, domains, eligible)
        return found

    def _checks(self, step: Step) -> Iterator[Check]:
        topology, row = self._topology, step.target
        if topology is None:
            return
        topology.settle()
        subject = self._subject(step.uid)
        asker, label_class = topology.asks(subject), topology.label_class(subject)
        if asker.affinity is not None:
            alone = sum(asker.affinity.rows.values()) == (asker.affinity in label_class.matched)
            for domains in asker.affinity_domains if not alone else ():
                yield Check(self._counter(asker.affinity, domains), domains.ids[row], somebody=True)
        for domains, count in asker.anti:
            if domains.ids[row]:
                yield Check(self._counter(count, domains), domains.ids[row])
        for term in topology.hits(label_class):
            if not term.term.weight and term.domains.ids[row]:
                yield Check(self._counter(term, term.domains), term.domains.ids[row])
        for spread in asker.hard:
            if spread.domains.ids[row]:
                counter = self._counter(spread.count, spread.domains, spread.eligible)
                yield Check(counter, spread.domains.ids[row], spread=spread, itself=spread.is_about(label_class))
        for port in topology.wants(subject.shape).ports:
            for address in met_by(port):
                used = topology.used_ports.get((port.protocol, port.port, address))
                if used is not None:
                    yield Check(self._counter(used, topology.rows), topology.rows.ids[row])

    def _count(self, steps: Sequence[Step]) -> None:
        """Which moves are of pods that somebody counts."""
        by_count: dict[Count, list[Counter]] = {}
        for (count, _, _), counter in self._counters.items():
            by_count.setdefault(count, []).append(counter)
        for number, step in enumerate(steps) if by_count else ():
            for count in self._counted(step.uid):
                for counter in by_count.get(count, ()):
                    counter.ends[number] = counter.domain(step.source), counter.domain(step.target)
        for counter in self._counters.values():
            counter.begin()

    def _counted(self, uid: PodUid) -> Iterator[Count]:
        topology = self._topology
        assert topology is not None
        subject = self._subject(uid)
        yield from topology.label_class(subject).matched
        yield from topology.brings(subject)
        for port in topology.wants(subject.shape).ports:
            for key in port_keys(port):
                if (used := topology.used_ports.get(key)) is not None:
                    yield used


class _Predecessors:
    """Whom one move waits for: `after` by name, `mask` (bits) with all whom these wait for."""

    def __init__(self, after: list[int], before: list[int]) -> None:
        self.after: list[int] = []
        self.mask = 0
        self._before = before
        for other in after:
            self.after.append(other)
            self.mask |= before[other] | 1 << other

    def has(self, other: int) -> bool:
        return bool(self.mask >> other & 1)

    def add(self, other: int) -> None:
        self.after.append(other)
        self.mask |= self._before[other] | 1 << other

    def add_all(self, others: Iterable[int]) -> None:
        for other in others:
            if not self.has(other):
                self.add(other)
