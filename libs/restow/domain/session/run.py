"""What one session works with."""

from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName, ShapeId
from restow.domain import predicates
from restow.domain.fold import evolve_one
from restow.domain.session.handover import Offers
from restow.domain.session.placer import Placer
from restow.domain.state import ClusterState

Unit = tuple[tuple[int, int], str, Any]
"""Something to be considered: its turn (migration holds 0, all else 1; then `state.turn`), `hold` or `pod`, and its uid."""


class Session:
    """One run on a draft: what is emitted is applied at once, so that the next choice sees it."""

    def __init__(self, state: ClusterState, now: Millis) -> None:
        self.state = state
        self.now = now
        self.placer = Placer(state)
        self.offers = Offers(state)
        self.events: list[e.Event] = []
        self._reasons: dict[tuple[ShapeId, NodeName], tuple[int, tuple[int, dict[str, int]]]] = {}

    def emit(self, event: Any) -> None:
        self.events.append(event)
        evolve_one(self.state, event)
        node = getattr(event, "node", None)
        if node is not None:
            row = self.state.table.rows.get(node)
            if row is not None:
                self.placer.changed(row)

    def fit(self, shape: ShapeId, pin: NodeName) -> int | None:
        """The row of the best node, or of the only one that is allowed; None where it does not fit."""
        if not pin:
            return self.placer.best(shape)
        row = self.state.table.rows.get(pin)
        return row if row is not None and self.placer.fits(shape, row) else None

    def reasons(self, shape: ShapeId, pin: NodeName) -> tuple[int, dict[str, int]]:
        """`predicates.reasons`, counted once while no row changes: many Reservations may wait for the same."""
        known = self._reasons.get((shape, pin))
        if known is None or known[0] != self.placer.changes:
            known = self._reasons[shape, pin] = (self.placer.changes, predicates.reasons(self.state, shape, pin))
        return known[1]
