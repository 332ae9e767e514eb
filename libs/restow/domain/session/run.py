"""What one session works with."""

from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import Millis
from restow.domain.fold import evolve_one
from restow.domain.session.handover import Offers
from restow.domain.session.placer import Placer
from restow.domain.state import ClusterState


class Session:
    """One run on a draft: what is emitted is applied at once, so that the next choice sees it."""

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self.state = state
        self.now = now
        self.placer = Placer(state)
        self.offers = Offers(state)
        self.events: list[e.Event] = []

    def emit(self, event: Any) -> None:
        self.events.append(event)
        evolve_one(self.state, event)
        node = getattr(event, "node", None)
        if node is not None:
            row = self.state.table.rows.get(node)
            if row is not None:
                self.placer.changed(row)
