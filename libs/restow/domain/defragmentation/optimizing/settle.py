"""No churn: a plan is carried on until a plan made after it would move nothing.

The search is no proof: from where a plan ends it may find a little more. So it is made again there, in a world that begins at the end of
the plan, exactly as it will be made when the plan has been carried out; what it finds becomes a part of the plan. The moves of both
together are put in order anew, so that nobody goes twice; where they find no order, the second part goes after the first. It
ends when nothing more is found (then the next plan is empty as well), with the steps of search, or with the limit of moves.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from restow.contracts.ids import PodUid
from restow.domain.defragmentation.optimizing.order import Ordered
from restow.domain.defragmentation.simulation import Spot

Ends = Mapping[PodUid, Spot]
NOWHERE: Ends = {}
"""Nobody has moved yet."""


class Found(NamedTuple):
    """Rows of those who are to move. `full`: a limit kept more from moving."""

    wanted: dict[PodUid, int]
    steps: int
    full: bool


class Maker(Protocol):
    """How one plan is made. `ends` is where an earlier part of it ends."""

    def search(self, steps: int, ends: Ends) -> Found: ...

    def order(self, wanted: dict[PodUid, int], ends: Ends) -> Ordered:
        """All moves that can be carried out and are worth it."""
        ...

    def after(self, first: Ordered, then: Ordered) -> Ordered | None:
        """The same moves and then these, which begin where those end; None where that cannot be."""
        ...

    def net(self, ordered: Ordered) -> int:
        """What it gains beyond what it costs, from where the pods are now."""
        ...


def settle(maker: Maker, plan: Ordered, steps: int) -> tuple[Ordered, int]:
    """The plan carried on, and the steps that this took."""
    taken, net = 0, maker.net(plan)
    while plan.moves and taken < steps:
        found = maker.search(steps - taken, plan.ends)
        taken += found.steps
        if not found.wanted:
            break
        better = _joined(maker, plan, found.wanted, net)
        if better is None:
            break
        plan, net = better, maker.net(better)
        if found.full:
            break
    return plan, taken


def _joined(maker: Maker, plan: Ordered, wanted: dict[PodUid, int], net: int) -> Ordered | None:
    """Both parts as one plan that gains more; None where there is none."""
    together = {uid: spot.row for uid, spot in plan.ends.items()} | wanted
    whole = maker.order(together, NOWHERE)
    if whole.moves and maker.net(whole) > net:
        return whole
    rest = maker.order(wanted, plan.ends)
    if not rest.moves:
        return None
    both = maker.after(plan, rest)
    return both if both is not None and maker.net(both) > net else None
