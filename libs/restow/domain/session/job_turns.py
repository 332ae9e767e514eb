"""Whose turn it is: jobs that wait, by queue and sorted, and queues beside each other.

Jobs of which nothing runs are kept across sessions (`Standing`), so that a session makes only those that it comes to, however many there is capacity for
when it opens (RULES G-17). The turn of such a job depends on what the job says of itself and on nothing that runs or is placed (`framework.POINTS`,
jobOrder), so it is asked once. All others are made when a session opens: jobs that have something already, and pods of one controller that wait in
several classes, whose turn is that of the first one with capacity."""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush, heapreplace
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from restow.domain.changes import Seen
from restow.domain.groups import group_of, named
from restow.domain.session.jobs import Job, gang, single
from restow.domain.session.sums import ledger, owners
from restow.domain.state import ClusterState

if TYPE_CHECKING:
    from restow.domain.session.backlog import Backlog

T = TypeVar("T")


class QueueLines(Generic[T]):
    """`by_queue`: each sorted by `key`, which tells any two apart and never changes; a queue of which nothing waits has no line."""

    def __init__(self, key: Callable[[T], Any]) -> None:
        self._key = key
        self._known: dict[Hashable, tuple[str, T]] = {}
        self.by_queue: dict[str, list[T]] = {}

    def __contains__(self, name: Hashable) -> bool:
        return name in self._known

    def put(self, name: Hashable, queue: str, item: T) -> None:
        """It must not be there under this name."""
        self._known[name] = queue, item
        insort(self.by_queue.setdefault(queue, []), item, key=self._key)

    def drop(self, name: Hashable) -> None:
        """Nothing where it is not there."""
        known = self._known.pop(name, None)
        if known is not None:
            queue, item = known
            line = self.by_queue[queue]
            del line[bisect_left(line, self._key(item), key=self._key)]
            if not line:
                del self.by_queue[queue]


Name = Hashable
"""What makes one job: its group, or what pods on their own have in common that are one."""


class Entry(NamedTuple):
    """`turn` is unique: it ends with the job's key."""

    turn: tuple
    name: Name


class Standing:
    """`lines`: by queue, sorted. `loose`: the others, which are made when a session opens."""

    def __init__(self, backlog: "Backlog") -> None:
        self._backlog = backlog
        self._lines = QueueLines[Entry](attrgetter("turn"))
        self.lines = self._lines.by_queue
        self.loose: dict[Name, None] = {}
        self._seen: Seen | None = None

    def refresh(self, state: ClusterState, turn: Callable[[Job], tuple]) -> None:
        """Up to what has stirred in the backlog. `turn`: when a job is considered, as this configuration's plugins say."""
        backlog = self._backlog
        self._seen = self._seen or Seen(state.objects)
        [objects] = self._seen.news()
        if objects is None or any(kind == "priority_classes" for kind, _ in objects):
            backlog.stirred.update(dict.fromkeys(backlog.jobs))
        stirred, backlog.stirred = backlog.stirred, {}
        for name in stirred:
            self.loose.pop(name, None)
            self._lines.drop(name)
            if name not in backlog.jobs:
                continue
            job = self._alone(state, name)
            if job is None:
                self.loose[name] = None
                continue
            self._lines.put(name, job.queue, Entry((*turn(job), job.key), name))

    def __contains__(self, name: Name) -> bool:
        return name in self._lines

    def _alone(self, state: ClusterState, name: Name) -> Job | None:
        """The job, as far as its turn goes; None for one that has something already, or whose turn depends on where there is capacity."""
        classes = self._backlog.jobs[name]
        if len(classes) != 1:
            return None
        under, equivalence_class = next(iter(classes))
        first = self._backlog.classes[under][equivalence_class][0][1]
        if under[0] == "group":
            group = named(under[1])
            known = group in state.pod_groups and group not in ledger(state).groups
            return gang(state, group) if known else None
        pod = state.pods[first].fact
        if pod.annotations and group_of(pod) is not None:
            return None  # of a gang that is complete, and for something that is its own
        if pod.owner is not None:
            use = owners(state).of(state, pod.owner.uid)
            if use.ready or use.used:
                return None
        return single(state, pod)


class Feed:
    """The standing jobs of one queue, for one session: those that still have capacity when their turn comes."""

    def __init__(self, entries: list[Entry], backlog: "Backlog", snapshot: Any, left_out: Collection[Name], make: Callable[[Name], Job | None]) -> None:
        self._entries, self._backlog, self._snapshot = entries, backlog, snapshot
        self._left_out, self._make = left_out, make
        self._at = 0
        self.valid: Callable[[Job], bool] = lambda job: True
        """Whether a job may be looked at; says of those that may not why."""
        self.refused: Callable[[Name], bool] = lambda name: False
        """Whether it would be told what it was told last, for sure."""

    def first(self) -> tuple | None:
        """The turn of the next one that may fit; None where none is left. Who has been passed over comes in the next session: capacity
        only shrinks meanwhile."""
        entries, left_out, backlog = self._entries, self._left_out, self._backlog
        while self._at < len(entries):
            entry = entries[self._at]
            if entry.name in left_out:
                self._at += 1
            elif backlog.may_fit(entry.name, self._snapshot):
                if not self.refused(entry.name):
                    return entry.turn
                self._at += 1
            else:
                self._at = backlog.following(entries, self._at + 1)
        return None

    def pop(self) -> Job | None:
        """The one whose turn was named by `first`; None where it waits for something else."""
        self._at += 1
        job = self._make(self._entries[self._at - 1].name)
        return job if job is not None and self.valid(job) else None

    def rest(self, reason: str, message: str) -> Iterator[Job]:
        """All that are left, in their turns, and were not told this last."""
        self.refused = lambda name: False
        while self.first() is not None:
            name = self._entries[self._at].name
            if self._backlog.was_told(name, reason, message):
                self._at += 1
            elif (job := self.pop()) is not None:
                yield job


Made = tuple[tuple, Job]
"""(key, job): smaller keys first, no two are equal."""


class Line:
    """First things first. Most jobs have one turn, and those are sorted once; who comes back is put into a heap."""

    __slots__ = ("_again", "_feed", "_granted", "_sorted")

    def __init__(self, entries: Iterable[Made], granted: Mapping[str, int], feed: Feed | None = None) -> None:
        """`granted`: how often the session has given something to each account (`Job.granted`)."""
        self._feed, self._granted = feed, granted
        self._sorted = sorted(entries, key=itemgetter(0), reverse=True)
        self._again: list[Made] = []

    def __bool__(self) -> bool:
        return bool(self._sorted) or bool(self._again) or (self._feed is not None and self._feed.first() is not None)

    def untold(self, reason: str, message: str) -> Iterator[Job]:
        """All that are left and were not told this last; those that were made when the session opened in any case."""
        yield from (job for _, job in sorted((*self._sorted, *self._again), key=itemgetter(0)))
        if self._feed is not None:
            yield from self._feed.rest(reason, message)

    def pop(self, key: Callable[[Job], tuple]) -> Job | None:
        """The next one; None where all that are left wait for something else. Of jobs that share an account another one may have got
        something since: then this one's turn has changed, to a later one."""
        while (first := self._next()) is not None:
            known, job = first
            if job is None:
                continue
            if job.granted == self._granted.get(job.account, 0) or (now := key(job)) <= known:
                return job
            self.push(now, job)
        return None

    def _next(self) -> tuple[tuple, Job | None] | None:
        again, once, feed = self._again, self._sorted, self._feed
        comes_back = bool(again) and not (once and once[-1][0] < again[0][0])
        if feed is not None and (fed := feed.first()) is not None:
            made = again[0][0] if comes_back else once[-1][0] if once else None
            if made is None or fed < made:
                return fed, feed.pop()
        if comes_back:
            return heappop(again)
        return once.pop() if once else None

    def push(self, key: tuple, job: Job) -> None:
        heappush(self._again, (key, job))


class Turns:
    """A heap of queues by their `queueOrder` and then their name. A queue that is charged can only come later, so the first
    one in the heap is first if its key is still what it was; where anything was taken back, all keys are made anew."""

    def __init__(self, session: Any, queues: Collection[str]) -> None:
        self._session = session
        self._queues = queues
        self._made(queues)

    def _made(self, queues: Collection[str]) -> None:
        self._lowered = self._session.lowered
        self._heap = [self._key(name) for name in queues]
        heapify(self._heap)

    def _key(self, queue: str) -> tuple:
        return (*self._session.extensions.key("queueOrder", queue), queue)

    def first(self) -> str:
        """Of the queues (at least one) that are left in the collection. Whoever has left it may come back before the next
        question, and not later."""
        if len(self._queues) == 1:
            return next(iter(self._queues))
        if self._lowered != self._session.lowered:
            self._made(self._queues)
        while True:
            known = self._heap[0]
            name: str = known[-1]
            if name not in self._queues:
                heappop(self._heap)
                continue
            key = self._key(name)
            if key == known:
                return name
            heapreplace(self._heap, key)
