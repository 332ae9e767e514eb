"""A log read to its end, and on from there while it is live, in a thread of its own; what it says is in `index`."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any

import structlog

from restow.console.health import health
from restow.console.index import Index
from restow.domain.records import Mode, Pause
from restow.domain.state import ClusterState
from restow.eventlog.port import LogError, Record
from restow.replay.snapshots import beginning, oldest
from restow.replay.source import LiveSource, Source
from restow.replay.state_at import ReplayError, examine_record, fold_examined

log = structlog.get_logger(__name__)

AGAIN = 1.0
"""Seconds until a log that could not be read is read on."""
SAVED_ASKED_EVERY = 30.0
"""Seconds between two looks for a snapshot by somebody who has read of a broken log what is missing in it now."""


class Follower:
    """`lock` is held while a commit is folded: hold it to read `index`. `error`: why it has stopped, or waits; empty while it reads."""

    def __init__(self, source: Source) -> None:
        self.source, self.index, self.lock = source, Index(), threading.Lock()
        self.live = isinstance(source, LiveSource)
        self.run = secrets.token_hex(8)
        """Which reading of the log `index` is of: a page of another one is to load anew."""
        self._look_at = 0.0
        self.error, self.done = "", False
        self.void = self.unknown = self.broken = 0
        self._started, self._stopped = False, threading.Event()
        self._state = ClusterState()
        self._thread = threading.Thread(target=self._run, name="restow-console-fold", daemon=True)

    def start(self) -> None:
        """Begin to read, unless it has begun. In the event loop only."""
        if not self._started:
            self._started = True
            self._thread.start()

    def stop(self, wait: float = 5.0) -> None:
        """Ends the thread; a live source has to be closed after it, which wakes it where it waits for more."""
        self._stopped.set()
        if self._started and not self.live:
            self._thread.join(wait)

    @property
    def tail(self) -> int:
        """The last sequence that there is, as far as is known."""
        return max(self.source.last, self.index.last)

    @property
    def away(self) -> str:
        """Of a live log whose broker is away: that it is. The reader waits for it without a word."""
        if isinstance(self.source, LiveSource) and not self.source.log.connected:
            return "the broker does not answer: this is as of the last event that was read; it is read on as soon as it is there again"
        return ""

    def health(self) -> dict[str, Any]:
        """How the log and those who write to it are, at the end."""
        with self.lock:
            return health(self.index, self._state)

    @property
    def mode(self) -> Mode:
        """What becomes of plans, at the end."""
        return self._state.mode

    @property
    def pause(self) -> Pause:
        """Whether moves are paused, at the end."""
        return self._state.pause

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                self._read()
                self.done = True
                return
            except ReplayError as error:
                self.error = str(error)
                return
            except (LogError, OSError, TimeoutError) as error:
                if not self.live or self._stopped.is_set():
                    self.error = str(error)
                    return
                self.error = f"{error or type(error).__name__}; it is read on as soon as it is there again"
                self._stopped.wait(AGAIN)
            except Exception as error:
                # A thread that dies silently would leave a page that looks alive.
                if not self._stopped.is_set():
                    self.error = f"{type(error).__name__}: {error}"
                    log.exception("the log cannot be folded")
                return

    def _read(self) -> None:
        source = self.source
        if not self.index.last:
            # It has let go what was before.
            self._begin(beginning(source))
        while not self._stopped.is_set():
            begin = self.index.last + 1 if self.index.last else source.first
            for batch in source.follow(begin) if isinstance(source, LiveSource) else source.batches(begin):
                for record in batch:
                    if self._stopped.is_set():
                        return
                    self._fold(record)
                self.error = ""
                if isinstance(source, LiveSource):
                    source.last = max(source.last, self.index.last)
                    if self._begin(self._behind_the_break(source)):
                        break
                # Others want the interpreter, too.
                time.sleep(0)
            else:
                return

    def _begin(self, state: ClusterState | None) -> bool:
        """From a snapshot, if there is one: nothing is known of what was before."""
        if state is None:
            return False
        with self.lock:
            if self.index.last:
                self.index, self.run = Index(), secrets.token_hex(8)
            self._state, self.broken = state, 0
            self.index.begin(state)
        return True

    def _behind_the_break(self, source: LiveSource) -> ClusterState | None:
        """Of a log that is broken as it is read here, what somebody has stored who had read before what is missing now: with that services go on, too (`runtime.loading`)."""
        if not self._state.broken or (now := time.monotonic()) < self._look_at:
            return None
        self._look_at = now + SAVED_ASKED_EVERY
        return oldest(source, self._state.broken)

    def _fold(self, record: Record) -> None:
        examined = examine_record(record, self.source.log_id)
        with self.lock:
            found = fold_examined(self._state, record, examined, self.source.log_id)
            told = [] if found.kind else [event for decision in found.decisions for event in decision.events]
            self.index.note(self._state, record.family, len(record.body), told)
            self.void, self.unknown, self.broken = sum(self._state.void.values()), sum(self._state.unknown.values()), self._state.broken
