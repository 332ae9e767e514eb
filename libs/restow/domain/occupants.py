"""Who occupies nodes, as far as the state says: for the indexes that follow `state.moved`, which names the same."""

from collections.abc import Iterator

from restow.contracts.ids import PodUid, ReservationUid, SlotName
from restow.domain.records import Slot
from restow.domain.state import ClusterState

Who = PodUid | tuple[ReservationUid, SlotName]
"""An occupant of a node: a pod, or a place that is held."""


def everybody(state: ClusterState) -> Iterator[Who]:
    """All that are charged to a node: pods, then what is held."""
    yield from state.charges
    for held in state.held_on.values():
        yield from held


def held_place(state: ClusterState, place: tuple[ReservationUid, SlotName]) -> Slot | None:
    """The place of a Reservation as long as it holds a node, None before and after."""
    slot = state.slots.get(place[0], {}).get(place[1])
    return slot if slot is not None and place in state.held_on.get(slot.node, ()) else None
