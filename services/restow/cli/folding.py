"""A running log folded in a thread of its own, for commands that show the present."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from restow.domain.state import ClusterState
    from restow.replay.source import LiveSource
    from restow.replay.state_at import Watch

AGAIN = 1.0
"""Seconds until a broker that is away is asked again."""


class Folding:
    """Begins with the newest snapshot. Hold `lock` to read `state`; `error` says why it is not read on. `begun` hears of the state that it begins with, `watch` of
    every record that is folded from there on."""

    def __init__(self, source: LiveSource, begun: Callable[[ClusterState], None] | None = None, watch: Watch | None = None) -> None:
        from restow.domain.state import ClusterState
        from restow.replay.snapshots import newest
        from restow.replay.state_at import nobody

        self._source, self.lock, self.error, self._watch = source, threading.Lock(), "", watch or nobody
        self.state: ClusterState = newest(source) or ClusterState()
        if begun is not None:
            begun(self.state)
        threading.Thread(target=self._run, name="restow-fold", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                self._read()
            except Exception as error:
                self.error = f"{error or type(error).__name__}; it is read on as soon as it can be"
            time.sleep(AGAIN)

    def _read(self) -> None:
        from restow.domain.state import Touched
        from restow.replay.state_at import ReplayError, examine_next, fold_examined

        if self.state.seq + 1 < self._source.first:
            raise ReplayError(f"the log begins at sequence {self._source.first}, and no snapshot continues it")
        for batch in self._source.follow(self.state.seq + 1):
            with self.lock:
                for record in batch:
                    examined = examine_next(self.state, record, self._source.log_id)
                    self._watch(self.state, record, fold_examined(self.state, record, examined, self._source.log_id))
                self.state.touched = Touched()
            self.error = ""
