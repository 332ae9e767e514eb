"""Pods that wait although nothing keeps them, and gates that cannot be taken off."""

from restow.domain.undecided import Undecided
from restow.runtime.service import Context
from restow.runtime.undecided_gauges import undecided_gauges


class SessionMetrics:
    def __init__(self, context: Context) -> None:
        undecided = Undecided(context.state)
        context.metrics.gauges(lambda: {"gates_refused": len(context.state.not_let_go)})
        context.metrics.labelled(lambda: undecided_gauges(undecided, context.clock.now()))
