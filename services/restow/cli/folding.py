"""A running log folded in a thread of its own, for commands that show the present."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from restow.domain.state import ClusterState
    from restow.replay.source import LiveSource

AGAIN = 1.0
"""Seconds until a broker that is away is asked again."""


class Folding:
    """Begins with the newest snapshot. Hold `lock` to read `state`; `error` says why it is not read on."""

    def __init__(self, source: LiveSource) -> None:
        from restow.domain.state import ClusterState
        from restow.replay.snapshots import newest

        self._source, self.lock, self.error = source, threading.Lock(), ""
        self.state: ClusterState = newest(source) or ClusterState()
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
                    fold_examined(self.state, record, examine_next(self.state, record, self._source.log_id), self._source.log_id)
                self.state.touched = Touched()
            self.error = ""
