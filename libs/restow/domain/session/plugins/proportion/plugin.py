"""Plugin `proportion`: queues share the cluster by their weights; what one does not want, others may borrow.

A queue's request is what it uses and what waits in it; pods that no node can ever take do not count, nor gangs that cannot be
complete, nor what waits in a queue that takes no jobs: none of them may keep capacity from others. What a queue deserves limits it only as far as others deserve
something: a queue may use all that nobody else deserves, so that a pod which fits nowhere anyway is told about nodes, not
about quotas.
"""

from collections.abc import Sequence

from restow.contracts.events import PodObserved
from restow.contracts.ids import PodUid, ShapeId
from restow.domain import resources as r
from restow.domain.accounts import DEFAULT_QUEUE, Amounts, by_column, charge
from restow.domain.session import queues
from restow.domain.session.admission import admission
from restow.domain.session.args import NoArgs as Args
from restow.domain.session.framework import PERMITTED, Answer, Refusal
from restow.domain.session.jobs import BESIDE_OTHERS, GUARANTEED, NOT_ENQUEUED, Job
from restow.domain.session.plugins.proportion.shares import Claim, fill
from restow.domain.session.queues import Items, beyond, may_lose, share
from restow.domain.session.session import Session
from restow.domain.session.sums import Ledger, ledger, too_large, totals
from restow.domain.state import ClusterState

NO_MORE = "its queue would use more than it deserves"


def open(session: Session, args: Args) -> None:
    shares = Shares(session)
    session.extensions.order("queueOrder", shares.order)
    session.extensions.veto("jobValid", lambda job: shares.refuses(job.queue))
    session.extensions.veto("jobEnqueueable", shares.enqueueable)
    if shares.limit:
        session.extensions.veto("overused", shares.overused)
    if shares.limit or any(shares.capability.values()) or session.state.reservations:
        session.extensions.veto("allocatable", shares.allocatable)
    session.extensions.veto("preemptive", lambda queue, pod: "" if shares.preemptive(queue, pod) else NO_MORE)
    session.extensions.veto("reclaimable", shares.reclaimable)
    session.extensions.hear("charged", shares.charged)


def turns_away(state: ClusterState, args: Args, pod: PodObserved) -> Refusal | None:
    return _beyond_the_cluster(state, state.queue_of(pod))


def _beyond_the_cluster(state: ClusterState, name: str) -> Refusal | None:
    """Of a queue that is guaranteed more than there is."""
    queue, columns = state.queues.get(name), state.table.columns
    for resource, amount in queue.guarantee.items() if queue is not None else ():
        there = totals(state).allocatable[columns[resource]] if resource in columns else 0
        if amount > there:
            said = f"guarantee of {r.shown(resource, amount)} is above what the cluster has, {r.amount(resource, there)}"
            return Refusal(queues.INVALID, f"queue {name}: {said}")
    return None


class Shares:
    """One session's. `deserved[queue]` by column; `limit[queue]` is what others leave it, for columns of which they deserve
    anything. O(queues · resources) to make."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._state = session.state
        self._admission = admission(session)
        self._totals = totals(session.state)
        self._gangs = any(plugin.name == "gang" for tier in session.config.tiers for plugin in tier)
        self._orders: dict[str, int] = {}
        self._large: dict[ShapeId, bool] = {}
        self._may_start: dict[str, dict[ShapeId, int]] = {}
        self._refusals: dict[str, Refusal | None] = {}
        self._least: dict[tuple[str, int], int] = {}
        self._unclaimed_by: dict[tuple[str, int], int] = {}
        self.deserved: dict[str, Amounts] = {}
        self.limit: dict[str, Amounts] = {}
        self.capability: dict[str, Amounts] = {}
        self.wanted: dict[str, Amounts] = {}
        self._divide()

    @property
    def _ledger(self) -> Ledger:
        return ledger(self._state)

    # -- what each deserves ------------------------------------------------------------------------------------------

    def _divide(self) -> None:
        state = self._state
        names = {DEFAULT_QUEUE, *state.queues, *state.accounts.queues()}
        if len(names) == 1:
            # It shares with nobody; what waits in queues that are not there takes nothing from it.
            guarantees = self._guarantees = {DEFAULT_QUEUE: self._amounts(DEFAULT_QUEUE, "guarantee")}
            self.capability[DEFAULT_QUEUE] = self._real(DEFAULT_QUEUE, guarantees[DEFAULT_QUEUE], guarantees[DEFAULT_QUEUE])
            self.deserved[DEFAULT_QUEUE] = dict(enumerate(self._totals.allocatable))
            return
        names |= self._ledger.waiting.keys()
        guarantees = self._guarantees = {name: self._amounts(name, "guarantee") for name in names}
        promised = _sum(guarantees)
        for name in names:
            self.wanted[name] = self._wants(name)
            self.capability[name] = self._real(name, guarantees[name], promised)
        used = {name: state.accounts.of(name) for name in names}
        for column, total in enumerate(self._totals.allocatable):
            claims: dict[str, Claim] = {}
            for name in names:
                want = used[name].get(column, 0) + self.wanted[name].get(column, 0)
                least = guarantees[name].get(column, 0)
                most = self.capability[name].get(column)
                if want or least:
                    claims[name] = Claim(self._weight(name), least, want if most is None else min(want, most))
            got = fill(total, claims)
            taken = sum(got.values())
            for name, amount in got.items():
                self.deserved.setdefault(name, {})[column] = amount
            for name in names:
                others = taken - got.get(name, 0)
                if others:
                    self.limit.setdefault(name, {})[column] = max(total - others, got.get(name, 0))

    def _weight(self, name: str) -> int:
        queue = self._state.queues.get(name)
        return max(queue.weight, 1) if queue is not None else 1

    def refuses(self, name: str) -> Refusal | None:
        """Why the queue takes no jobs. One that is guaranteed more than the cluster has would keep all from the others."""
        if name not in self._refusals:
            self._refusals[name] = queues.refused(self._state, name) or _beyond_the_cluster(self._state, name)
        return self._refusals[name]

    def _amounts(self, name: str, what: str) -> Amounts:
        """Of a queue that is there and right, by column."""
        queue = self._state.queues.get(name)
        if queue is None or self.refuses(name) is not None:
            return {}
        return by_column(getattr(queue, what), self._state.table.columns)

    def _real(self, name: str, guarantee: Amounts, promised: Amounts) -> Amounts:
        """Capability, and what is not guaranteed to others."""
        real = self._amounts(name, "capability")
        for column, amount in promised.items():
            own = guarantee.get(column, 0)
            if amount > own:
                most = max(self._totals.allocatable[column] - amount, 0) + own
                real[column] = min(real.get(column, most), most)
        return real

    def _wants(self, name: str) -> Amounts:
        """What it wants besides what it uses, by column."""
        wanted: Amounts = {}
        for shape, count in self._coming(name).items():
            charge(wanted, self._state.vectors[shape].items, count)
        return wanted

    def _coming(self, name: str) -> dict[ShapeId, int]:
        """How many pods of each shape wait in it and may start one day. O(classes of pods and groups that wait), once a session."""
        coming = self._may_start.get(name)
        if coming is None:
            known = self._ledger
            waiting = known.shapes.get(name, {}) if self.refuses(name) is None else {}
            coming = self._may_start[name] = {shape: count for shape, count in waiting.items() if not self._too_large(shape)}
            for group, shapes in known.incoming.get(name, {}).items() if self._gangs and coming else ():
                if known.is_hopeless(self._state, self._totals, group, shapes):
                    for shape in shapes.keys() & coming.keys():
                        coming[shape] -= shapes[shape]
        return coming

    def _too_large(self, shape: ShapeId) -> bool:
        known = self._large.get(shape)
        if known is None:
            known = self._large[shape] = too_large(self._state, self._totals, shape)
        return known

    # -- what follows ------------------------------------------------------------------------------------------------

    def order(self, queue: str) -> int:
        """The share of what it deserves that it uses: who has least of it comes first. What is in no queue (holds of
        migrations) comes before all."""
        if not queue:
            return -1
        known = self._orders.get(queue)
        if known is None:
            known = self._orders[queue] = share(self._session.usage(queue), self.deserved.get(queue, {}))
        return known

    def charged(self, queue: str, items: Sequence[tuple[int, int]], sign: int) -> None:
        self._orders.pop(queue, None)
        if self._unclaimed_by:
            self._unclaimed_by.clear()

    def overused(self, queue: str) -> str:
        """Whether nothing that it wants is left to it."""
        limit = self.limit.get(queue)
        if not limit:
            return ""
        used = self._session.usage(queue)
        wanted = [column for column, amount in self.wanted.get(queue, {}).items() if amount]
        if not wanted or any(c not in limit or used.get(c, 0) < limit[c] for c in wanted):
            return ""
        return f"queue {queue} uses all that it deserves {BESIDE_OTHERS}"

    def allocatable(self, job: Job, pod: PodObserved, items: Items) -> str:
        queue = job.queue
        if not queue:
            return ""
        if job.hold is not None and (why := self.refuses(queue)) is not None:
            return why.message
        limit, capability = self.limit.get(queue), self.capability.get(queue)
        if not limit and not capability:
            return ""
        used = self._session.usage(queue)
        if capability and (column := beyond(used, items, capability)) is not None:
            own = beyond(used, items, self._amounts(queue, "capability"))
            return f"queue {queue} has no {self._name(column if own is None else own)} left {GUARANTEED if own is None else 'of its capability'}"
        if limit and beyond(used, items, limit) is not None and not self._too_large(pod.shape):
            column = beyond(used, items, {column: self._unclaimed(queue, column) for column in limit})
            if column is not None:
                return f"queue {queue} has no {self._name(column)} left of what it deserves {BESIDE_OTHERS}"
        return ""

    def _unclaimed(self, queue: str, column: int) -> int:
        """What others leave a queue now: also the rest of what one deserves that is too small for any pod that waits in it, or will wait
        in place of a victim. (For Volcano eight devices for three queues are two for each, and two idle ones.) O(queues + victims), kept
        until somebody is charged."""
        known = self._unclaimed_by.get((queue, column))
        if known is None:
            again = self._made_again(column)
            others = sum(self._needs(name, column, again.get(name, 0)) for name in self.deserved if name != queue)
            least = self.limit[queue][column]
            known = self._unclaimed_by[queue, column] = max(self._totals.allocatable[column] - others, least)
        return known

    def _needs(self, queue: str, column: int, again: int) -> int:
        deserved, used = self.deserved[queue].get(column, 0), self._session.usage(queue).get(column, 0)
        guarantee = self._guarantees[queue].get(column, 0)
        waiting = self._smallest(queue, column)
        if used < deserved > guarantee and deserved - used < (min(waiting, again) if again else waiting):
            return max(used, guarantee)
        return deserved

    def _made_again(self, column: int) -> dict[str, int]:
        """By queue, the least that a victim's successor will ask for; without it somebody else would preempt for what is claimed back
        before it is there."""
        state, least = self._state, dict[str, int]()
        for uid in (*state.victims_of, *self._session.victims):
            pod = state.fact_of(uid)
            if pod is None or pod.owner is None:
                continue
            queue, amount = state.queue_of(pod), dict(state.vectors[pod.shape].items).get(column, 0)
            if amount:
                least[queue] = min(least.get(queue, amount), amount)
        return least

    def _smallest(self, queue: str, column: int) -> int:
        """Of what waits in a queue and may start one day, the least that a pod asks for; 0 where none does."""
        known = self._least.get((queue, column))
        if known is None:
            vectors = self._state.vectors
            asked = [dict(vectors[shape].items).get(column, 0) for shape, count in self._coming(queue).items() if count]
            known = self._least[queue, column] = min((amount for amount in asked if amount), default=0)
        return known

    def _name(self, column: int) -> str:
        return r.title(self._state.table.resources[column])

    def enqueueable(self, job: Job) -> Answer:
        if (why := self.refuses(job.queue)) is not None:
            return why.message
        resource = self._admission.lacking(job, (job.queue,), self.capability.get(job.queue, {}))
        if not resource:
            return PERMITTED
        amount = self._admission.asks(job)[resource]
        own = self._admission.lacking(job, (job.queue,), self._amounts(job.queue, "capability"))
        said = f"queue {job.queue} has no {r.title(resource)} left {'of its capability' if own else GUARANTEED} for the group's minimum"
        return Refusal(NOT_ENQUEUED, said, resource, amount)

    def preemptive(self, queue: str, pod: PodObserved) -> bool:
        """Whether with this pod it uses no more than it deserves: only then it may take from others."""
        items = self._state.vectors[pod.shape].items
        used = self._session.usage(queue)
        return beyond(used, items, self.capability.get(queue, {})) is None and beyond(used, items, self.deserved.get(queue, {})) is None

    def reclaimable(self, claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        """Pods of queues that use more than they deserve of something that the claimer asks for, down to what they deserve."""
        state, session = self._state, self._session
        mine = session.job_for(claimer).queue
        asked = [column for column, _ in state.vectors[state.pods[claimer].fact.shape].items]
        used: dict[str, Amounts] = {}
        allowed: list[PodUid] = []
        for uid in candidates:
            pod = state.pods[uid].fact
            queue = state.queue_of(pod)
            fact = state.queues.get(queue)
            if not queue or queue == mine or (fact is not None and not fact.reclaimable):
                continue
            have = used.setdefault(queue, dict(session.usage(queue)))
            items = state.vectors[pod.shape].items
            if may_lose(have, items, self.deserved.get(queue, {}), asked, self._guarantees.get(queue, {})):
                charge(have, items, -1)
                allowed.append(uid)
        return allowed


def _sum(several: dict[str, Amounts]) -> Amounts:
    total: Amounts = {}
    for amounts in several.values():
        charge(total, amounts.items())
    return total
