"""Who has to go so that a pod fits, and from which node (kube-scheduler, `preemption`; Volcano, `preempt` and `reclaim`).

Nodes are asked in the order of what freeing them costs at least (`evictable.Key`), until no other can be cheaper. On a node all
who may go are thought away, the pod is tried with every rule, and then as many as possible are spared, the most important
first: the higher priority, then the one that has run for longer. So what is found is what kube-scheduler finds where it looks
at every node, but for what is protected: kube-scheduler prefers victims that violate no disruption budget, here nobody goes whom
the Eviction API would refuse, or another protection keeps (RULES G-11), and several go together only where all of them may.
"""

from collections.abc import Hashable, Iterator, Sequence
from enum import Enum
from heapq import heapify, heappop, heappush

import numpy as np

from restow.contracts import events as e
from restow.contracts.ids import NodeName, PodUid
from restow.contracts.values import DeviceShare
from restow.domain import accounts
from restow.domain.memo import kept
from restow.domain.node_table import vector_of
from restow.domain.occupants import Who
from restow.domain.predicates import only, static_mask
from restow.domain.session.framework import Filter
from restow.domain.session.jobs import Job, is_best_effort
from restow.domain.session.preemption.claims import favoured
from restow.domain.session.preemption.evictable import (
    FREE,
    LEAST_PRIORITY,
    Candidates,
    Evictable,
    Key,
    may_be_given_up,
    may_go,
    ranked,
    since,
)
from restow.domain.session.preemption.future_idle import Choice, RowIdle, Unit, future_idle
from restow.domain.session.session import Session

NODES = 500
"""Nodes looked at closely in one run of an action, for all its pods together, each pod at most half of what is left, and one job on as
many as there are: what keeps a decision short. Only where rules or plugins keep many nodes from being freed does it come to that;
then sessions follow in which others are that job (RULES G-17)."""
EVERY = 1 << 30
"""More than there are nodes."""
TOGETHER, ASKS = 32, 4
"""On one node plugins are asked at most so often who may go together; so many questions count for one node more."""
RULED = 5
"""As many nodes does one count for where rules that depend on what runs have to be asked."""


class Scope(Enum):
    """Whom a pod may take from."""

    QUEUE = "other jobs of its queue"
    JOB = "its own job"
    OTHERS = "other queues"


class _Nodes:
    """A heap of (key, row) for claimers that are alike. `again` has the rows whose key was made anew, None where nothing can
    be freed; `seen` is the position in what was touched."""

    def __init__(self, heap: list[tuple[Key, int]], seen: int) -> None:
        self.heap, self.seen = heap, seen
        self.again: dict[int, Key | None] = {}


class Hunt:
    """The search of one action in one session, for these jobs."""

    def __init__(self, session: Session, jobs: list[Job]) -> None:
        self.session = session
        self._windows, self._jobs = session.parts, len(jobs)
        self._favoured = favoured(session, jobs).key
        self.coming = future_idle(session)
        self.left = NODES
        self.asked = 0
        """How often plugins were asked who may go together, on the node that was looked at last."""
        self._evictable = kept(session.state, Evictable)
        self._steps = np.unique(self._evictable.least)
        self._by_priority = session.extensions.in_every_tier("preemptable", "priority")
        self._lines: dict[tuple, Candidates] = {}
        self._ranked: dict[tuple, list[tuple[Key, int]]] = {}
        self._nodes: dict[tuple, _Nodes] = {}

    def find(self, job: Job, pod: e.PodObserved, scope: Scope) -> Choice | None:
        """The cheapest node to be freed for a pod, None where there is none."""
        nodes = self._refreshed(job, pod, scope)
        step = RULED if self.session.concerned(pod) else 1
        least = self.left // 2 if job.key != self._favoured else 0
        best: Choice | None = None
        best_key: Key | None = None
        keep: list[tuple[Key, int]] = []
        budget = self.left if job.key != self._favoured else EVERY
        while nodes.heap and (best_key is None or nodes.heap[0][0] < best_key):
            if budget <= least:
                self._cut_off(best)
                break
            key, row = heappop(nodes.heap)
            if row in nodes.again and nodes.again[row] != key:
                continue
            budget -= step
            self.asked = 0
            choice = self._free(job, pod, scope, row)
            budget -= self.asked // ASKS
            if choice is None:
                nodes.again[row] = None
                continue
            keep.append((key, row))
            cost = self._key(row, choice.victims)
            if best_key is None or cost < best_key:
                best, best_key = choice, cost
        for item in keep:
            heappush(nodes.heap, item)
        if job.key != self._favoured:
            self.left = budget
        return best

    def _cut_off(self, best: Choice | None) -> None:
        """Not all nodes were looked at. Whoever has found one may have found a cheaper one there, but does not wait for it."""
        if best is None:
            self.session.parts = max(self.session.parts, self._windows * self._jobs)

    # -- where to look -----------------------------------------------------------------------------------------------

    def _refreshed(self, job: Job, pod: e.PodObserved, scope: Scope) -> _Nodes:
        touched = self.coming.touched
        key = (scope, job.key, self.session.equivalence_class(pod, self.session.concerned(pod)))
        nodes = self._nodes.get(key)
        if nodes is None:
            nodes = self._nodes[key] = _Nodes(self._all(job, pod, scope), 0)
            again = set(touched)
        else:
            again = set(touched[nodes.seen :])
        nodes.seen = len(touched)
        if again:
            open_rows = self._open(pod)
            for row in sorted(again):
                cost = self._cost(job, pod, scope, row) if open_rows[row] else None
                if nodes.again.get(row, FREE) == cost:
                    continue
                nodes.again[row] = cost
                if cost is not None:
                    heappush(nodes.heap, (cost, row))
        return nodes

    def _all(self, job: Job, pod: e.PodObserved, scope: Scope) -> list[tuple[Key, int]]:
        session, state = self.session, self.session.state
        if scope is Scope.JOB:
            open_rows = self._open(pod)
            charges = [state.charges[u] for u in state.groups.get(job.group, ()) if u in state.charges] if job.group else []
            rows = sorted({row for c in charges if open_rows[row := state.table.rows[c.node]]})
            heap = [(cost, row) for row in rows if (cost := self._cost(job, pod, scope, row)) is not None]
            heapify(heap)
            return heap
        others = scope is Scope.OTHERS
        # Between two priorities that anybody has, all are alike.
        about = (scope, job.queue, None if others else int(np.searchsorted(self._steps, job.priority)))
        line = self._lines.get(about)
        if line is None:
            below = None if others else job.priority + (not self._by_priority)
            line = self._lines[about] = Candidates.of(self._evictable, job.queue, others, below, job.priority, self._out_of_question())
        concerned = session.concerned(pod)
        equivalence_class = (*about, pod.shape, pod.pinned_node, *[rule.key(pod) for rule in concerned if rule.for_others or rule.lasting])
        known = self._ranked.get(equivalence_class)
        if known is None:
            known = self._ranked[equivalence_class] = ranked(session, self.coming, pod, line, self._open(pod))
        return list(known)

    def _out_of_question(self) -> Iterator[Who]:
        """Who goes already or is not to be asked again yet, and holds that this session has given something of."""
        session, state = self.session, self.session.state
        for pods in (state.victims_of, session.victims, state.victims):
            yield from pods
        yield from session.offers.touched()
        yield from (uid for uid, until in state.stuck.items() if until > session.now)

    def _open(self, pod: e.PodObserved) -> np.ndarray:
        """`(nodes,) bool`: rows that nobody's leaving would have to open: the node itself takes the pod, and it is not
        reserved (RULES 002-2)."""
        session, state = self.session, self.session.state
        rows = static_mask(state, pod.shape) & state.table.alive
        if pod.pinned_node:
            rows = rows & only(state, pod.pinned_node)
        for rule in session.concerned(pod):
            if rule.for_others or rule.lasting:
                for _, failing in rule.failing(pod):
                    rows = rows & ~failing
        return rows

    def _key(self, row: int, victims: Sequence[Unit]) -> Key:
        rank = int(self.session.state.table.rank[row])
        if not victims:
            return FREE, 0, 0, 0, rank
        # In the order of importance: the first is the highest one that has run for longest.
        total = sum(unit.priority - LEAST_PRIORITY for unit in victims)
        return victims[0].priority, total, len(victims), -victims[0].since, rank

    # -- one node ----------------------------------------------------------------------------------------------------

    def _cost(self, job: Job, pod: e.PodObserved, scope: Scope, row: int) -> Key | None:
        """By amounts alone."""
        spared = self._spare(pod, row, self._units(job, pod, scope, row))
        return None if spared is None else self._key(row, spared)

    def _free(self, job: Job, pod: e.PodObserved, scope: Scope, row: int) -> Choice | None:
        """With everybody's agreement. Plugins that let only so much go take the least important first; where those do not leave
        enough capacity, somebody may whose leaving alone does, or others together."""
        units = self._units(job, pod, scope, row)
        allowed = self._allowed(pod, scope, units)
        choice = self._freed(job, pod, row, allowed)
        if choice is not None or len(allowed) == len(units):
            return choice
        for unit in self._each_enough(pod, row, units):
            if self._allowed(pod, scope, [unit]) and (choice := self._freed(job, pod, row, [unit])) is not None:
                return choice
        for several in self._enough_together(pod, scope, row, units):
            if (choice := self._freed(job, pod, row, several)) is not None:
                return choice
        return None

    def _each_enough(self, pod: e.PodObserved, row: int, units: list[Unit]) -> list[Unit]:
        """Those whose leaving alone frees capacity enough, the least important first."""
        idle, found = RowIdle(self.session, self.coming, pod, row), []
        for unit in reversed(units):
            idle.give(unit, 1)
            if idle.suffices():
                found.append(unit)
            idle.give(unit, -1)
        return found

    def _enough_together(self, pod: e.PodObserved, scope: Scope, row: int, units: list[Unit]) -> Iterator[list[Unit]]:
        """Those whose leaving together frees capacity enough and who are let go together, the least important first, as far as so many
        questions find them. (A queue that is to lose exactly four cores has them in pods of 1, 2, 2: whoever takes the first of them first gets
        three.) Of those that are alike the first one stands for all."""
        idle, chosen = RowIdle(self.session, self.coming, pod, row), list[Unit]()
        asks = TOGETHER
        for unit in units:
            idle.give(unit, 1)

        def deeper(rest: list[Unit]) -> Iterator[list[Unit]]:
            nonlocal asks
            refused = set[Hashable]()
            # All of `rest` are thought away here, and are put back one by one.
            for at, unit in enumerate(rest):
                if not idle.suffices() or not asks:
                    break
                equivalence_class = self._alike(unit)
                if equivalence_class not in refused:
                    asks -= 1
                    self.asked += 1
                    chosen.append(unit)
                    if len(self._allowed(pod, scope, chosen[::-1])) == len(chosen):
                        if self._fits(pod, row, chosen):
                            yield chosen[::-1]
                        else:
                            yield from deeper(rest[at + 1 :])
                    chosen.pop()
                    refused.add(equivalence_class)
                idle.give(unit, -1)
            else:
                at = len(rest)
            for unit in rest[:at]:
                idle.give(unit, 1)

        yield from deeper(units[::-1])

    def _alike(self, unit: Unit) -> Hashable:
        """What no plugin that lets only so much go tells apart."""
        if not isinstance(unit.who, str):
            return unit.who
        job = self.session.job_for(PodUid(unit.who))
        whose = job.key if job.group is not None or not job.account else job.account
        return unit.shape, unit.devices, whose, *self.session.extensions.allowances(PodUid(unit.who))

    def _freed(self, job: Job, pod: e.PodObserved, row: int, units: list[Unit]) -> Choice | None:
        victims = self._spare(pod, row, units)
        if victims is not None and self._together(pod, row, victims) != victims:
            units = self._together(pod, row, units)
            victims = self._spare(pod, row, units)
        if victims is None:
            return None
        concerned = self.session.concerned(pod)
        if not self._agreed(job, pod, row, victims, concerned):
            units = self._together(pod, row, units)
            if len(victims) == len(units) or not self._agreed(job, pod, row, units, concerned):
                return None
            victims = list(units)
            for unit in units:
                fewer = [other for other in victims if other is not unit]
                if self._fits(pod, row, fewer) and self._agreed(job, pod, row, fewer, concerned):
                    victims = fewer
        with self.session.attempt():
            self._empty(row, victims)
            fit = self.session.fit_at(pod, row)
        return Choice(fit, tuple(victims))

    def _units(self, job: Job, pod: e.PodObserved, scope: Scope, row: int) -> list[Unit]:
        """Who may come into question, plugins aside; the most important first."""
        session, state = self.session, self.session.state
        node = session.name(row)
        modest = is_best_effort(state.shapes[pod.shape])
        units: list[Unit] = []
        for uid in state.on_node.get(node, ()):
            if not self._in_scope(uid, job, scope) or self._spared(uid) or self._above(uid, job, pod, scope):
                continue
            charge = state.charges[uid]
            if modest and not is_best_effort(state.shapes[charge.shape]):
                continue
            priority = state.shapes[state.pods[uid].fact.shape].priority
            units.append(Unit(uid, priority, since(state, uid), state.pods[uid].order, charge.shape, charge.queue, state.devices_of(uid)))
        if scope is Scope.QUEUE and not modest:
            units += self._holds(job, node)
        units.sort(key=lambda unit: unit.importance)
        return units

    def _in_scope(self, uid: PodUid, job: Job, scope: Scope) -> bool:
        session, state = self.session, self.session.state
        queue = state.charges[uid].queue
        if scope is Scope.OTHERS:
            said = state.queues.get(queue)
            return queue not in ("", job.queue) and (said is None or said.reclaimable)
        return queue == job.queue and (session.job_key(uid) == job.key) is (scope is Scope.JOB)

    def _above(self, uid: PodUid, job: Job, pod: e.PodObserved, scope: Scope) -> bool:
        """Whether it is more important than who asks. Nobody preempts from below, whichever plugins a tier has: without `priority` they
        choose among equals. What a queue deserves is taken back whoever has it."""
        if scope is Scope.OTHERS:
            return False
        if scope is Scope.JOB:
            shapes, pods = self.session.state.shapes, self.session.state.pods
            return shapes[pods[uid].fact.shape].priority > shapes[pod.shape].priority
        return self.session.job_priority(uid) > job.priority

    def _spared(self, uid: PodUid) -> bool:
        """Who goes already, is being moved, or could not be evicted lately."""
        session, state = self.session, self.session.state
        if uid in state.victims_of or uid in session.victims or uid in state.victims:
            return True
        return state.stuck.get(uid, 0) > session.now or not may_go(state, uid)

    def _holds(self, job: Job, node: NodeName) -> Iterator[Unit]:
        """Holds of a lower priority that nobody has taken (RULES G-7); a migration's never."""
        session, state = self.session, self.session.state
        for uid, name in state.held_on.get(node, ()):
            record, slot = state.reservations[uid], state.slots[uid][name]
            priority = state.shapes[slot.shape].priority
            if slot.queue != job.queue or priority >= job.priority:
                continue
            if may_be_given_up(state, (uid, name)) and session.offers.is_untouched((uid, name)):
                yield Unit((uid, name), priority, record.fact.created, record.order, slot.shape, slot.queue, slot.devices)

    def _allowed(self, pod: e.PodObserved, scope: Scope, units: list[Unit]) -> list[Unit]:
        # A plugin that lets only so many go takes them as they come: the least important first.
        pods = [PodUid(unit.who) for unit in reversed(units) if isinstance(unit.who, str)]
        extensions = self.session.extensions
        allowed = set(extensions.reclaimable(pod.pod, pods) if scope is Scope.OTHERS else extensions.victims("preemptable", pod.pod, pods))
        return [unit for unit in units if not isinstance(unit.who, str) or unit.who in allowed]

    def _together(self, pod: e.PodObserved, row: int, units: list[Unit]) -> list[Unit]:
        """Of these so many as protections let go together: where too many have something in common, the more important ones of
        them are spared, as long as the capacity suffices without them; where that does not do, the less important ones."""
        allowances = {unit: dict(self.session.extensions.allowances(PodUid(unit.who))) for unit in units if isinstance(unit.who, str)}
        left: dict[tuple[str, ...], int] = {}
        for said in allowances.values():
            for of, many in said.items():
                left[of] = left.get(of, many) - 1
        if all(many >= 0 for many in left.values()):
            return units
        for order in (units, units[::-1]):
            idle, over, going = RowIdle(self.session, self.coming, pod, row), dict(left), list(units)
            for unit in units:
                idle.give(unit, 1)
            for unit in order:
                said = allowances.get(unit, {})
                if all(over[of] >= 0 for of in said):
                    continue
                idle.give(unit, -1)
                if not idle.suffices():
                    idle.give(unit, 1)
                    continue
                going.remove(unit)
                for of in said:
                    over[of] += 1
            if all(many >= 0 for many in over.values()):
                return going
        return []

    # -- does it fit -------------------------------------------------------------------------------------------------

    def _spare(self, pod: e.PodObserved, row: int, units: Sequence[Unit]) -> list[Unit] | None:
        """Who has to go at least, by amounts and devices; None where all of them are not enough."""
        idle = RowIdle(self.session, self.coming, pod, row)
        for unit in units:
            idle.give(unit, 1)
        if not idle.suffices():
            return None
        victims: list[Unit] = []
        for unit in units:
            idle.give(unit, -1)
            if not idle.suffices():
                idle.give(unit, 1)
                victims.append(unit)
        return victims

    def _fits(self, pod: e.PodObserved, row: int, victims: Sequence[Unit]) -> bool:
        idle = RowIdle(self.session, self.coming, pod, row)
        for unit in victims:
            idle.give(unit, 1)
        return idle.suffices()

    def _agreed(self, job: Job, pod: e.PodObserved, row: int, victims: Sequence[Unit], concerned: list[Filter]) -> bool:
        """Whether its queue and every rule let the pod run there with these gone. Amounts are known to suffice."""
        session = self.session
        if not concerned and not session.extensions.at("allocatable"):
            return True
        with session.attempt():
            self._empty(row, victims)
            if session.gates.later_quota(job, pod) is not None:
                return False
            return not concerned or session.fits_at(pod, row, concerned)

    def _empty(self, row: int, victims: Sequence[Unit]) -> None:
        """The row is as it will be: who is on the way out and the victims have left, and promises are kept."""
        session, state = self.session, self.session.state
        amounts, devices = self.coming.at(row)
        for unit in victims:
            accounts.charge(amounts, state.vectors[unit.shape].items)
            for d in unit.devices:
                devices[d.index] = devices.get(d.index, 0) + d.milli
            session.charge_queue(unit.queue, unit.shape, -1)
        leaving: list[Who] = [*self.coming.going(row), *(unit.who for unit in victims)]
        session.nodes.give(row, vector_of(amounts.items()), [DeviceShare(index, milli) for index, milli in devices.items()])
        for who in leaving:
            session.overlook(who, session.extensions.filters)
