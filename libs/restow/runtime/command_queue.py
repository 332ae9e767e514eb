"""Commands that wait to be decided, and whoever waits for their outcome."""

import asyncio
from collections import deque
from collections.abc import Callable

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e

MOST = 10_000
"""Most commands that wait to be decided."""


class Outcome(msgspec.Struct, frozen=True):
    """What became of a submitted command: the commit and its events; `seq` 0 where there was nothing to decide."""

    seq: int
    events: tuple[e.Event, ...] = ()


class Refused(RuntimeError):
    """The command was not taken: this process does not lead, stops, or has too much to do."""


class Unsure(Refused):
    """The process ends, and the log has not said yet whether it took this: it may have been done."""

    def __init__(self) -> None:
        super().__init__("this service is stopping, and it may have been done: look before you ask for it again")


class Waiting(msgspec.Struct, eq=False):
    """A command, and who waits for its outcome."""

    command: c.Command
    cause: str
    outcome: asyncio.Future[Outcome] | None = None

    @property
    def repairs(self) -> bool:
        """Nothing else is decided on a broken log."""
        return isinstance(self.command, c.RepairLog)

    def end(self, outcome: Outcome) -> None:
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_result(outcome)

    def fail(self, error: Exception) -> None:
        if self.outcome is not None and not self.outcome.done():
            self.outcome.set_exception(error)


class CommandQueue:
    """In the order in which they came. Closed, it takes nothing more."""

    def __init__(self) -> None:
        self._waiting: deque[Waiting] = deque()
        self._closed = False
        self._unanswered: set[asyncio.Future[Outcome]] = set()
        self._passed: Waiting | None = None
        """What may take long and has let others go first."""

    def submit(self, command: c.Command, cause: str) -> asyncio.Future[Outcome]:
        """The future ends with the outcome, or with Rejected or Refused."""
        outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        outcome.add_done_callback(_looked_at)
        outcome.add_done_callback(self._unanswered.discard)
        self._unanswered.add(outcome)
        if self._closed:
            outcome.set_exception(Refused("this service is stopping"))
        elif len(self._waiting) >= MOST:
            outcome.set_exception(Refused(f"{MOST} commands are waiting already; try again later"))
        else:
            self._waiting.append(Waiting(command, cause, outcome))
        return outcome

    def close(self) -> None:
        """Whoever waits is told; so is whoever is put back and waits when this is called again."""
        self._closed = True
        for waiting in self._waiting:
            waiting.fail(Refused("this service is stopping"))
        self._waiting.clear()

    def end(self) -> None:
        """Nobody is answered by this process any more, whatever it ends of: of what was taken, and has no outcome, nobody knows."""
        self.close()
        for outcome in self._unanswered:
            if not outcome.done():
                outcome.set_exception(Unsure())

    @property
    def repairs(self) -> bool:
        """Whether a repair of the log waits."""
        return any(waiting.repairs for waiting in self._waiting)

    def take_repairs(self) -> list[Waiting]:
        """Everything else waits on."""
        found = [waiting for waiting in self._waiting if waiting.repairs]
        self._waiting = deque(waiting for waiting in self._waiting if not waiting.repairs)
        return found

    def take(self, most: int) -> list[Waiting]:
        return [self._waiting.popleft() for _ in range(min(len(self._waiting), most))]

    def put_first(self, batch: list[Waiting]) -> None:
        """All of them are to be decided next, in their order."""
        self._waiting.extendleft(reversed(batch))

    def put_back(self, batch: list[Waiting]) -> None:
        """Submitted ones wait for the next decision, in their order; the rest is asked for anew."""
        self.put_first([waiting for waiting in batch if waiting.outcome is not None])

    def drop(self, done: set[int]) -> None:
        """These, by `id`, wait no more."""
        self._waiting = deque(waiting for waiting in self._waiting if id(waiting) not in done)

    def without_long(self, batch: list[Waiting], takes_long: Callable[[Waiting], bool]) -> list[Waiting]:
        """What is not to wait for the first of the batch that take long, once each: it may take two minutes, and of many that were asked for each as long. So a
        report of an eviction, or a deadline, waits for one at most, and none of them waits for ever. Of the others some are put back."""
        large = [waiting for waiting in batch if takes_long(waiting)]
        if not large:
            return batch
        first, others = large[0], [waiting for waiting in batch if not takes_long(waiting)]
        if others and first is not self._passed:
            self._passed = first
            self.put_first(large)
            return others
        self.put_back([waiting for waiting in batch if waiting is not first])
        return [first]


def _looked_at(outcome: asyncio.Future[Outcome]) -> None:
    """Whoever does not await an outcome is told by the logs."""
    if not outcome.cancelled():
        outcome.exception()
