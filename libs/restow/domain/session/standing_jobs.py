"""Jobs of which nothing runs, kept across sessions in their turns, so that a session makes only those that it comes to, however many there is capacity for when
it opens (RULES G-17). The turn of such a job depends on what the job says of itself and on nothing that runs or is placed (`framework.POINTS`, jobOrder),
so it is asked once. All others are made when a session opens: jobs that have something already, and pods of one controller that wait in several classes,
whose turn is that of the first one with capacity."""

from collections.abc import Callable, Collection, Iterator
from operator import attrgetter
from typing import Any, NamedTuple

from restow.domain.changes import Seen
from restow.domain.groups import group_of, named
from restow.domain.session.backlog import Backlog, Name
from restow.domain.session.jobs import Job, gang, single
from restow.domain.session.queue_lines import QueueLines
from restow.domain.session.sums import ledger, owners
from restow.domain.state import ClusterState


class Entry(NamedTuple):
    """`turn` is unique: it ends with the job's key."""

    turn: tuple
    name: Name


class Standing:
    """`lines`: by queue, sorted. `loose`: the others, which are made when a session opens."""

    def __init__(self, backlog: Backlog) -> None:
        self._backlog = backlog
        self._lines = QueueLines[Entry](attrgetter("turn"))
        self.lines = self._lines.by_queue
        self.loose: dict[Name, None] = {}
        self._seen: Seen | None = None

    @staticmethod
    def of(state: ClusterState, backlog: Backlog, turn: Callable[[Job], tuple]) -> "Standing":
        """As the backlog is now. `turn`: when a job is considered, as this configuration's plugins say."""
        kept = state.memo.find(Standing)
        if kept is None or kept._backlog is not backlog:
            kept = state.memo.keep(Standing(backlog))
        kept._refresh(state, turn)
        return kept

    def _refresh(self, state: ClusterState, turn: Callable[[Job], tuple]) -> None:
        """Up to what has stirred in the backlog."""
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

    def __init__(self, entries: list[Entry], backlog: Backlog, snapshot: Any, left_out: Collection[Name], make: Callable[[Name], Job | None]) -> None:
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
                self._at = self._following(self._at + 1)
        return None

    def _following(self, at: int) -> int:
        """The first position from this on whose job may fit, as far as all were last counted: of many that wait most have no capacity."""
        able, entries = self._backlog.able, self._entries
        if able is None:
            return at
        end = len(entries)
        if not able:
            return end
        while at < end and entries[at].name not in able:
            at += 1
        return at

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
