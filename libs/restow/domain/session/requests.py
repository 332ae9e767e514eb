"""What a shape asks for, as far as a session tells pods apart by it."""

from restow.contracts.values import PodShape
from restow.domain.resources import PODS


def is_best_effort(shape: PodShape) -> bool:
    """Asks for nothing but a place: what `backfill` serves, and what reserved nodes still admit (RULES 002-2)."""
    requests = shape.requests
    return shape.devices is None and sum(requests.values()) == requests.get(PODS, 0)
