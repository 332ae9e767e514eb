"""Pods that wait although nothing keeps them, and gates that cannot be taken off."""

from collections.abc import Iterable

from restow.domain.undecided import Undecided
from restow.runtime.service import Context
from restow.runtime.telemetry import Labelled


class SessionMetrics:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._undecided = Undecided(context.state)
        context.metrics.gauges(lambda: {"gates_refused": len(context.state.not_let_go)})
        context.metrics.labelled(self.read)

    def read(self) -> Iterable[Labelled]:
        now = self._context.clock.now()
        oldest = self._undecided.look(now)
        seconds = 0.0 if oldest is None else max(now - oldest[1], 0) / 1000
        yield Labelled.one("undecided", "Pods that nothing keeps from running, and that nobody has decided on yet", len(self._undecided))
        yield Labelled.one("undecided_oldest_seconds", "For how long the first of them waits", seconds)
