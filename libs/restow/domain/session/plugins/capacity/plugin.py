"""Plugin `capacity`: queues have amounts of their own, in a tree. A queue may borrow beyond what it deserves up to its capability,
beside what others are guaranteed; what it has borrowed is reclaimed by those who have less than they deserve. What limits a
queue limits all below it; only leaves take jobs.

A queue that names a parent is below it whether `enableHierarchy` is on or not: an amount that is said and passed over in
silence is worse than one that counts. Without parents all queues are below the root, and nothing changes.
"""

from collections.abc import Sequence
from typing import NamedTuple

from restow.contracts.events import PodObserved, QueueObserved
from restow.contracts.ids import PodUid
from restow.domain.accounts import Amounts, by_column, charge
from restow.domain.resources import title
from restow.domain.session.admission import admission
from restow.domain.session.args import NoArgs as Args
from restow.domain.session.framework import PERMITTED, Answer, Refusal
from restow.domain.session.jobs import GUARANTEED, NOT_ENQUEUED, Job
from restow.domain.session.plugins.capacity.claims import Claims, Items
from restow.domain.session.plugins.capacity.hierarchy import ROOT, TreeQueue, plant
from restow.domain.session.queues import CLOSED, INVALID, SCALE, beyond, may_lose, share
from restow.domain.session.session import Session
from restow.domain.session.sums import totals
from restow.domain.state import ClusterState

NOT_A_LEAF = "QueueNotLeaf"
FIRST = -(1 << 40)
"""Before any priority of a queue."""
MAY_USE = "that it may use"
NO_MORE = "its queue would use more than it deserves"


def open(session: Session, args: Args) -> None:
    tree = Tree(session)
    session.extensions.order("queueOrder", tree.order)
    session.extensions.veto("jobValid", lambda job: tree.refuses(job.queue))
    session.extensions.veto("jobEnqueueable", tree.enqueueable)
    session.extensions.veto("allocatable", tree.allocatable)
    session.extensions.veto("preemptive", lambda queue, pod: "" if tree.preemptive(queue, pod) else NO_MORE)
    session.extensions.veto("reclaimable", tree.reclaimable)
    session.extensions.hear("charged", tree.charged)


class _Planted(NamedTuple):
    facts: list[QueueObserved]
    total: dict[str, int]
    tree: dict[str, TreeQueue]


def tree_queues(state: ClusterState) -> dict[str, TreeQueue]:
    """The tree, made anew when a queue or what the cluster has is another."""
    offered = totals(state).allocatable
    total = {name: offered[column] for name, column in state.table.columns.items()}
    facts = list(state.queues.values())
    kept = state.memo.find(_Planted)
    if kept is None or kept.facts != facts or kept.total != total:
        kept = state.memo.keep(_Planted(facts, total, plant(state.queues, total)))
    return kept.tree


def turns_away(state: ClusterState, args: Args, pod: PodObserved) -> Refusal | None:
    return _wrong(tree_queues(state).get(state.queue_of(pod)))


def _wrong(tree_queue: TreeQueue | None) -> Refusal | None:
    """Why a queue's place in the tree lets no job in."""
    if tree_queue is None:
        return None
    if tree_queue.wrong:
        return Refusal(INVALID, f"queue {tree_queue.name}: {tree_queue.wrong}")
    if tree_queue.shut:
        return Refusal(CLOSED, f"queue {tree_queue.name} is {tree_queue.shut}")
    if tree_queue.below or tree_queue.name == ROOT:
        return Refusal(NOT_A_LEAF, f"queue {tree_queue.name} has queues below it; only those take jobs")
    return None


class Tree:
    """One session's. `used` is what each queue and all below it use, by column."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._state = session.state
        self._tree_queues = tree_queues(session.state)
        self._admission = admission(session)
        others = [name for name in session.state.accounts.queues() if name not in self._tree_queues]
        columns, offered = session.state.table.columns, totals(session.state).allocatable
        self._claims = Claims(self._tree_queues, columns, offered, session.usage, others)
        self._used: dict[str, Amounts] = {}
        self._shares: dict[str, int] = {}
        self._columns: dict[tuple[str, str], Amounts] = {}

    # -- the tree ----------------------------------------------------------------------------------------------------

    def _chain(self, queue: str) -> tuple[str, ...]:
        """The queue and its ancestors, the nearest first."""
        tree_queue = self._tree_queues.get(queue)
        return (queue, *tree_queue.above) if tree_queue is not None else (queue,)

    def _of(self, queue: str, what: str) -> Amounts:
        """`real`, `capability`, `deserved` or `guarantee` of a queue, by column."""
        known = self._columns.get((queue, what))
        if known is None:
            tree_queue = self._tree_queues.get(queue)
            said = getattr(tree_queue, what) if tree_queue is not None else {}
            known = self._columns[queue, what] = by_column(said, self._state.table.columns)
        return known

    def _leaves(self, queue: str) -> list[str]:
        """The queue and all below it: whatever uses something there counts."""
        found = [queue]
        for name in found:
            tree_queue = self._tree_queues.get(name)
            found += tree_queue.below if tree_queue is not None else ()
        return found

    def used(self, queue: str) -> Amounts:
        tree_queue = self._tree_queues.get(queue)
        if tree_queue is None or not tree_queue.below:
            return self._session.usage(queue)
        known = self._used.get(queue)
        if known is None:
            known = self._used[queue] = {}
            for name in self._leaves(queue):
                charge(known, self._session.usage(name).items())
        return known

    def charged(self, queue: str, items: Sequence[tuple[int, int]], sign: int) -> None:
        self._claims.charge(queue, items, sign)
        for name in self._chain(queue):
            self._shares.pop(name, None)
            if name in self._used:
                charge(self._used[name], items, sign)

    # -- who comes first ---------------------------------------------------------------------------------------------

    def order(self, queue: str) -> tuple[int, ...]:
        """The queue's priority; then down from the root how much each uses of what it deserves, as a queue competes with its
        siblings, and its parent with theirs. Who deserves nothing comes after all who have less than they deserve; what is in
        no queue (holds of migrations) before all."""
        if not queue:
            return (FIRST,)
        tree_queue = self._tree_queues.get(queue)
        path = [name for name in reversed(self._chain(queue)) if name != ROOT]
        key = [-(tree_queue.priority if tree_queue is not None else 0)]
        for name in path:
            key += self._share(name), not any(self._of(name, "deserved").values())
        return tuple(key)

    def _share(self, queue: str) -> int:
        known = self._shares.get(queue)
        if known is None:
            deserved = self._of(queue, "deserved")
            known = share(self.used(queue), deserved) if any(deserved.values()) else SCALE
            self._shares[queue] = known
        return known

    # -- what a queue may use ----------------------------------------------------------------------------------------

    def refuses(self, queue: str) -> Refusal | None:
        """Where the queue's place in the tree lets no job in."""
        return _wrong(self._tree_queues.get(queue))

    def allocatable(self, job: Job, pod: PodObserved, items: Items) -> str:
        if not job.queue:
            return ""
        if job.hold is not None and (why := self.refuses(job.queue)) is not None:
            return why.message
        full = self._claims.refuses(job.queue, items)
        if full is None:
            return ""
        name, column = full
        left = GUARANTEED if self._claims.is_the_clusters(name, column) else MAY_USE
        return f"queue {name} has no {title(self._state.table.resources[column])} left {left}{self._for(name, job.queue)}"

    def _for(self, name: str, queue: str) -> str:
        return f" (queue {queue} is below it)" if name != queue else ""

    def enqueueable(self, job: Job) -> Answer:
        if (why := self.refuses(job.queue)) is not None:
            return why.message
        for name in self._chain(job.queue):
            real = self._of(name, "real")
            if real and (resource := self._admission.lacking(job, self._leaves(name), real)):
                column = self._state.table.columns[resource]
                left = MAY_USE if any(column in self._of(one, "capability") for one in self._chain(job.queue)) else GUARANTEED
                said = f"queue {name} has no {title(resource)} left {left} for the group's minimum{self._for(name, job.queue)}"
                return Refusal(NOT_ENQUEUED, said, resource, self._admission.asks(job)[resource])
        return PERMITTED

    # -- reclaiming --------------------------------------------------------------------------------------------------

    def preemptive(self, queue: str, pod: PodObserved) -> bool:
        """Whether with this pod the queue uses no more than it deserves, of something that it deserves at all: only then it may take
        from others. (For Volcano one resource is enough; then a queue takes what is taken back at once.) What is above it depends on
        from whom it takes (`reclaimable`)."""
        tree_queue = self._tree_queues.get(queue)
        if tree_queue is None or tree_queue.wrong or tree_queue.shut:
            return False
        items = self._state.vectors[pod.shape].items
        deserved = self._of(queue, "deserved")
        if not any(deserved.get(column) for column, _ in items):
            return False
        return self._deserves(queue, items)

    def _deserves(self, name: str, items: Items) -> bool:
        return all(beyond(self.used(name), items, self._of(name, what)) is None for what in ("real", "deserved"))

    def reclaimable(self, claimer: PodUid, candidates: Sequence[PodUid]) -> list[PodUid]:
        """Pods of queues that use more than they deserve, and are not above another one for the claimer: from the leaf up to
        where both meet each queue must be reclaimable, above what it deserves, and keep what it is guaranteed. On the claimer's side each queue
        up to there uses no more than it deserves with it; from there on what it takes is what the victims leave."""
        state = self._state
        mine = self._session.job_for(claimer).queue
        own = set(self._chain(mine))
        wanted = state.vectors[state.pods[claimer].fact.shape].items
        asked = [column for column, _ in wanted]
        deserves = {name: self._deserves(name, wanted) for name in own if name not in (mine, ROOT)}
        left: dict[str, Amounts] = {}
        allowed: list[PodUid] = []
        for uid in candidates:
            queue = state.queue_of(state.pods[uid].fact)
            if not queue or queue == mine:
                continue
            items = state.vectors[state.pods[uid].fact.shape].items
            theirs = self._chain(queue)
            if not all(deserves[name] for name in deserves if name not in theirs):
                continue
            chain = [name for name in theirs if name not in own and name != ROOT]
            for name in chain:
                left.setdefault(name, dict(self.used(name)))
            if all(self._gives(name, left[name], items, asked) for name in chain):
                for name in chain:
                    charge(left[name], items, -1)
                allowed.append(uid)
        return allowed

    def _gives(self, name: str, used: Amounts, items: Sequence[tuple[int, int]], asked: list[int]) -> bool:
        tree_queue = self._tree_queues.get(name)
        if tree_queue is not None and not tree_queue.reclaimable:
            return False
        return may_lose(used, items, self._of(name, "deserved"), asked, self._of(name, "guarantee"))
