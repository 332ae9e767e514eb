"""What a shape asks for, as far as a session tells pods apart by it."""

from restow.contracts.values import PodShape
from restow.domain.resources import PODS


def is_best_effort(shape: PodShape) -> bool:
    """Asks for nothing but a place: what `backfill` serves, and what reserved nodes still admit (RULES 002-2)."""
    if shape.devices is not None:
        return False
    for name, amount in shape.requests.items():
        if amount and name != PODS:
            return False
    return True
