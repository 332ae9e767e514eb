"""Changes of the Kubernetes API, gathered while a commit is in flight, as one commit's facts.

The diff is made when the commit is decided, against a fold that includes our own last commit. Until a commit is folded its
changes stay in the buffer: whatever becomes of the commit, they are diffed again, and nothing is said twice. Changes are numbered,
and a commit is known by the last one that it took: one that comes into the log late takes just its own along.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from restow import machine
from restow.contracts import commands as c
from restow.contracts.codec import Decision
from restow.contracts.ids import Millis
from restow.domain import decider as core
from restow.domain.effects import Effect
from restow.domain.state import ClusterState, Touched
from restow.eventlog.port import LogError, TooLarge
from restow.kube.decode import NODES, PODS, Collection, Undecodable
from restow.kube.facts import Batch
from restow.kube.fold_view import StateKnown
from restow.kube.reflector import Bookmark, Change, Delete, Replace, Upsert
from restow.runtime.commander import Book

AT_ONCE = 3_000
"""Events of one commit: under 4 MiB with ordinary pods; a larger one is split."""

BUFFER = 20_000
"""Changes that may wait. Beyond it the watches are not read on, and the API server buffers or ends them."""

QUIET = 60_000
"""How often, in ms, a collection in which nothing happens says in the log how far it was seen."""
OFTEN = 45.0
"""The same of pods while some of them are to be gated, in seconds: less than the minute that is between two bookmarks of the API."""


_NAMED, _LONGEST = 5, 200
"""Objects that a note names, and characters of each reason."""


class Seen:
    """One change, and up to which version everything was handed on with it (empty during a list)."""

    __slots__ = ("at", "change", "collection", "how", "number", "version")

    def __init__(self, number: int, collection: Collection[Any], change: Change, version: str, how: str, at: float) -> None:
        self.number, self.collection, self.change, self.version, self.how = number, collection, change, version, how
        self.at = at
        """When it came, in seconds of the steady clock."""


class Observer(Book):
    """The cluster family's decider. `decide` is never asked: there is nothing to decide about facts."""

    family = "cluster"
    logic = "cluster@1"

    def __init__(self) -> None:
        self.undecodable: list[Undecodable] = []
        """Objects that could not be read, for the caller to log and count; taken at each commit."""
        self.unread: dict[tuple[str, str], Undecodable] = {}
        """Those that cannot be read now, by collection and key."""
        self.relist = asyncio.Event()
        """Set when somebody else wrote facts: what is buffered was seen before that, and is dropped."""
        self._buffer: deque[Seen] = deque()
        self._space = asyncio.Event()
        self._space.set()
        self._numbers = 0
        self._mark = 0
        """Number of the last change that the decision made last has taken."""
        self._size = 0
        """How many events that decision has."""
        self._doubt = False
        """A commit that is not in the log may still arrive."""
        self._budget = AT_ONCE
        self._said_at: dict[str, int] = {}
        self._said: dict[str, float] = {}
        """The same by our own seconds: a log in which nothing happens has no time."""
        self.lagged: Callable[[float], None] = lambda seconds: None
        """Told with each commit of changes how long the oldest of them has waited for being in the log."""

    # -- from the watches ------------------------------------------------------------------------------------------------

    async def space(self) -> None:
        await self._space.wait()

    def add(self, collection: Collection[Any], changes: Sequence[Change], version: str, *, reset: bool = False) -> None:
        """What the network has delivered; the version holds from the last of them on. `reset`: it is a list of an API whose history
        is another one than the log knows, and the log says so."""
        last = len(changes) - 1
        how = "list" if not version or any(isinstance(change, Replace) for change in changes) else "watch"
        how = "reset" if reset else how
        at = machine.steady()
        for i, change in enumerate(changes):
            self._numbers += 1
            self._buffer.append(Seen(self._numbers, collection, change, version if i == last else "", how, at))
        if len(self._buffer) >= BUFFER:
            self._space.clear()

    def forget(self) -> None:
        """Everything will be listed again."""
        self._buffer.clear()
        self._space.set()

    @property
    def waiting(self) -> int:
        return len(self._buffer)

    @property
    def lag(self) -> float:
        """For how many seconds the oldest change waits that is not in the log."""
        return machine.steady() - self._buffer[0].at if self._buffer else 0.0

    # -- the decider's port ------------------------------------------------------------------------------------------------

    def decide(self, state: ClusterState, command: c.Command) -> Sequence[Any]:
        raise TypeError(f"facts are not decided; got {type(command).__name__}")

    def due(self, state: ClusterState, now: Millis) -> c.Command | None:
        return c.Observe("", "watch") if self._buffer else None

    def deadline(self, state: ClusterState) -> Millis | None:
        return None

    def pending(self, state: ClusterState, touched: Touched | None) -> Iterator[Effect]:
        return iter(())

    def owed(self, state: ClusterState, effect: Effect) -> bool:
        return False

    # -- one commit ----------------------------------------------------------------------------------------------------------

    def propose(self, state: ClusterState, commands: Sequence[c.Command]) -> list[Decision]:
        """Leadership as everywhere; the rest is the buffer's difference to the fold."""
        decisions = []
        self._mark = self._size = 0
        for command in commands:
            if isinstance(command, c.Observe):
                decision = self._observe(state)
                if decision is not None:
                    decisions.append(decision)
            else:
                decisions.append(Decision(command, tuple(core.decide(state, self, command))))  # type: ignore[arg-type]
        return decisions

    def _observe(self, state: ClusterState) -> Decision | None:
        """The next part of the buffer that says anything. What says nothing is dropped on the way, except while a commit is in
        doubt: after that one it may say something, and the commit that is made of nothing ends the doubt."""
        while self._buffer:
            batch, mark, worth, kinds, how = Batch(StateKnown(state)), 0, self._doubt, set(), "watch"
            for seen in self._buffer:
                kinds.add(seen.collection.name)
                found = len(batch.undecodable)
                if how != "reset" and seen.how != "watch":
                    how = seen.how
                worth = worth or isinstance(seen.change, Replace) or self._worth(state, seen)
                if not batch.add(seen.collection, seen.change, self._budget - len(batch), listed=seen.how != "watch"):
                    break
                mark = seen.number
                self._keep_unread(seen, batch.undecodable[found:])
                if seen.version:
                    batch.synced(seen.collection, seen.version)
                if len(batch) >= self._budget:
                    break
            self.undecodable.extend(batch.undecodable)
            if len(batch) or worth:
                self._mark, self._size = mark, len(batch)
                for kind in kinds:
                    self._said_at[kind], self._said[kind] = state.time, machine.steady()
                return Decision(c.Observe(",".join(sorted(kinds)), how), batch.events())
            self._drop(mark)
        return None

    def _keep_unread(self, seen: Seen, found: Sequence[Undecodable]) -> None:
        """`found`: what of this change cannot be read."""
        collection = seen.collection
        match seen.change:
            case Upsert(one):
                self.unread.pop((collection.name, collection.key(one)), None)
            case Delete(key):
                self.unread.pop((collection.name, key), None)
            case Replace(keys):
                for known in [known for known in self.unread if known[0] == collection.name and known[1] not in keys]:
                    del self.unread[known]
        for one in found:
            self.unread[collection.name, collection.key(one)] = one

    def note(self) -> str:
        """What people should know: objects that are for Restow as they were before."""
        if not self.unread:
            return ""
        named = [f"{one.kind} {f'{one.namespace}/' * bool(one.namespace)}{one.name} ({one.message[:_LONGEST]})" for one in islice(self.unread.values(), _NAMED)]
        more = f" and {len(self.unread) - _NAMED} more" if len(self.unread) > _NAMED else ""
        return f"objects that cannot be read stay as they were known last: {', '.join(named)}{more}"

    def _worth(self, state: ClusterState, seen: Seen) -> bool:
        """A bookmark alone is logged now and then only: where otherwise nothing happens, of pods while any are gated, for the session asks for that only while it hears
        of them (`scheduler_session.landing_leases`)."""
        name = seen.collection.name
        if not isinstance(seen.change, Bookmark):
            return False
        if state.time - self._said_at.get(name, 0) >= QUIET:
            return True
        return name == PODS.name and bool(state.landings or state.owner_gates) and machine.steady() - self._said.get(name, 0.0) >= OFTEN

    def _drop(self, mark: int) -> None:
        """All changes up to this one."""
        while self._buffer and self._buffer[0].number <= mark:
            self._buffer.popleft()
        if len(self._buffer) < BUFFER // 2:
            self._space.set()

    def smaller(self, command: c.Command, error: LogError) -> c.Command | None:
        """The log cannot hold the commit: take less. A single object that it cannot hold is left out, and said."""
        if not isinstance(command, c.Observe):
            return None
        if self._budget > 1:
            self._budget = max(1, min(self._budget, self._size) // 2)
        else:
            seen = next(seen for seen in self._buffer if seen.number >= self._mark)
            said = getattr(seen.change, "object", None)
            key = getattr(said, "metadata", None)
            left = Undecodable(seen.collection.kind, getattr(key, "namespace", ""), getattr(key, "name", ""),
                               getattr(key, "uid", ""), "too large for the log" if isinstance(error, TooLarge) else str(error))  # fmt: skip
            if key is not None and seen.collection is NODES:
                # Whoever could not be read takes no more pods; that fits into the log, as the one before did.
                seen.change = Upsert(left)
            else:
                self.undecodable.append(left)
                self._keep_unread(seen, (left,) if key is not None else ())
                self._buffer.remove(seen)
        return command

    # -- what became of it ---------------------------------------------------------------------------------------------------

    def mark(self) -> int:
        return self._mark

    def committed(self, seq: int, mark: int) -> None:
        self._doubt = False
        if self._buffer and self._buffer[0].number <= mark:
            self.lagged(self.lag)
        self._drop(mark)
        self._budget = min(AT_ONCE, self._budget * 2)

    def unanswered(self) -> None:
        self._doubt = True

    def conflicted(self) -> None:
        self._doubt = False
        self.forget()
        self.relist.set()
