"""When the log takes no commits, or does not answer: why, and how long to wait before the next attempt."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from restow.eventlog.port import Unavailable, Unknown
from restow.runtime.logs import Logger
from restow.runtime.signals import within

RETRIES = (0.0, 0.1, 0.3, 1.0, 2.0, 5.0)
"""Seconds before a commit is tried again after so many in a row that got no answer, or were not taken; the last one repeats."""
SILENT = 3
"""Commits in a row without an answer, while the log answers whoever reads it, after which that is no lost answer: nats-server 2.15 is silent for good once its disk was full."""
BACKOFF = (0.02, 0.05, 0.1, 0.3, 1.0)
"""Seconds between questions to a log that does not answer; the last one repeats."""
T = TypeVar("T")


class LogTrouble:
    """Of one command loop. `why` the log takes no commit at present, empty while it does; `full`: because its store has no capacity. `on_stuck` is called each
    time that a commit has to be tried again."""

    def __init__(self, logger: Logger) -> None:
        self.why = ""
        self.full = False
        self.on_stuck: list[Callable[[], None]] = []
        self._logger = logger
        self._failures = 0
        self._try_again = asyncio.Event()

    def over(self, *, stored: bool) -> None:
        """Nothing is to be stored, or a commit was `stored`."""
        self.why, self.full = "", False
        if stored:
            self._failures = 0

    def retry(self) -> None:
        """What kept the log from taking commits may be over."""
        self._try_again.set()

    async def wait(self, error: Unknown, stopping: asyncio.Event) -> None:
        """Not at all the first time: an answer may get lost. After that longer and longer, and said: a store that is full, or a broker in
        trouble, is not helped by thousands of attempts."""
        pause = RETRIES[min(self._failures, len(RETRIES) - 1)]
        self._failures += 1
        self.why, self.full = error.why, error.full
        if self._failures >= SILENT and not error.full and not error.answered:
            # Between two attempts the log was read to its end.
            self.why += ", though it is read: if the broker's disk was full, give it space and start the broker again"
        self._try_again.clear()
        for call in self.on_stuck:
            call()
        if pause and not stopping.is_set():
            self._logger.warning("the log does not take commits", reason=self.why, again_in=pause)
            await within(self._try_again, pause)

    async def ask(self, question: Callable[[], Awaitable[T]]) -> T:
        """Ask the log until it answers."""
        attempt = 0
        while True:
            try:
                answer = await question()
            except Unavailable as error:
                pause = BACKOFF[min(attempt, len(BACKOFF) - 1)]
                attempt += 1
                self.why = str(error)
                self._logger.warning("the log does not answer", reason=str(error), again_in=pause)
                await asyncio.sleep(pause)
            else:
                self.why = ""
                return answer
