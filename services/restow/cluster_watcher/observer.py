"""Changes of the Kubernetes API, gathered while a commit is in flight, as one commit's facts (DESIGN 3).

The diff is made when the commit is decided, against a fold that includes our own last commit. Until a commit is folded its
changes stay in the buffer: whatever becomes of the commit, they are diffed again, and nothing is said twice.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from restow.contracts import commands as c
from restow.contracts.codec import Decision
from restow.contracts.ids import Millis
from restow.domain import decider as core
from restow.domain.effects import Effect
from restow.domain.state import ClusterState, Touched
from restow.kube.decode import Collection, Undecodable
from restow.kube.facts import Batch
from restow.kube.known import StateKnown
from restow.kube.reflector import Bookmark, Change, Replace
from restow.runtime.commander import Book

AT_ONCE = 3_000
"""Events of one commit: under 4 MiB with ordinary pods; a larger one is split."""

BUFFER = 20_000
"""Changes that may wait. Beyond it the watches are not read on, and the API server buffers or ends them."""

QUIET = 60_000
"""How often, in ms, a collection in which nothing happens says in the log how far it was seen."""


class Seen:
    """One change, and up to which version everything was handed on with it (empty during a list)."""

    __slots__ = ("change", "collection", "how", "version")

    def __init__(self, collection: Collection[Any], change: Change, version: str, how: str) -> None:
        self.collection, self.change, self.version, self.how = collection, change, version, how


class Observer(Book):
    """The cluster family's decider. `decide` is never asked: there is nothing to decide about facts."""

    family = "cluster"
    logic = "cluster@1"

    def __init__(self) -> None:
        self.undecodable: list[Undecodable] = []
        """Objects that could not be read, for the caller to log and count; taken at each commit."""
        self.relist = asyncio.Event()
        """Set when somebody else wrote facts: what is buffered was seen before that, and is dropped."""
        self._buffer: deque[Seen] = deque()
        self._room = asyncio.Event()
        self._room.set()
        self._taken = 0
        self._budget = AT_ONCE
        self._said_at: dict[str, int] = {}

    # -- from the watches ------------------------------------------------------------------------------------------------

    async def room(self) -> None:
        await self._room.wait()

    def add(self, collection: Collection[Any], changes: Sequence[Change], version: str) -> None:
        """What the network has delivered; the version holds from the last of them on."""
        last = len(changes) - 1
        how = "list" if not version or any(isinstance(change, Replace) for change in changes) else "watch"
        self._buffer.extend(Seen(collection, change, version if i == last else "", how) for i, change in enumerate(changes))
        if len(self._buffer) >= BUFFER:
            self._room.clear()

    def forget(self) -> None:
        """Everything will be listed again."""
        self._buffer.clear()
        self._taken = 0
        self._room.set()

    @property
    def waiting(self) -> int:
        return len(self._buffer)

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
        for command in commands:
            if isinstance(command, c.Observe):
                decision = self._observe(state)
                if decision is not None:
                    decisions.append(decision)
            else:
                decisions.append(Decision(command, tuple(core.decide(state, self, command))))  # type: ignore[arg-type]
        return decisions

    def _observe(self, state: ClusterState) -> Decision | None:
        """The next part of the buffer that says anything; what says nothing is dropped on the way."""
        while self._buffer:
            batch, taken, worth, kinds, how = Batch(StateKnown(state)), 0, False, set(), "watch"
            for seen in self._buffer:
                batch.add(seen.collection, seen.change)
                if seen.version:
                    batch.synced(seen.collection, seen.version)
                taken += 1
                kinds.add(seen.collection.name)
                if seen.how == "list":
                    how = "list"
                worth = worth or isinstance(seen.change, Replace) or self._worth(state, seen)
                if len(batch) >= self._budget:
                    break
            self.undecodable.extend(batch.undecodable)
            if len(batch) or worth:
                self._taken = taken
                for kind in kinds:
                    self._said_at[kind] = state.time
                return Decision(c.Observe(",".join(sorted(kinds)), how), batch.events())
            self._drop(taken)
        return None

    def _worth(self, state: ClusterState, seen: Seen) -> bool:
        """A bookmark alone is logged now and then only."""
        return isinstance(seen.change, Bookmark) and state.time - self._said_at.get(seen.collection.name, 0) >= QUIET

    def _drop(self, count: int) -> None:
        for _ in range(min(count, len(self._buffer))):
            self._buffer.popleft()
        if len(self._buffer) < BUFFER // 2:
            self._room.set()

    def smaller(self, command: c.Command) -> c.Command | None:
        """The commit was too large: take less. A single object that cannot be logged is left out, and said."""
        if not isinstance(command, c.Observe):
            return None
        if self._budget > 1:
            self._budget = max(1, min(self._budget, self._taken) // 2)
        else:
            seen = self._buffer[0]
            key = getattr(getattr(seen.change, "object", None), "metadata", None)
            self.undecodable.append(
                Undecodable(seen.collection.kind, getattr(key, "namespace", ""), getattr(key, "name", ""),
                            getattr(key, "uid", ""), "too large for the log")
            )
            self._drop(1)
        return command

    def committed(self, seq: int) -> None:
        self._drop(self._taken)
        self._taken = 0
        self._budget = min(AT_ONCE, self._budget * 2)

    def conflicted(self) -> None:
        self.forget()
        self.relist.set()
