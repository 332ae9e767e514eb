"""What a placed pod is bound with."""

from restow.contracts.events import ReservationObserved
from restow.contracts.ids import PodUid
from restow.domain.effects import Bind
from restow.domain.reservation.owner_matching import is_migration_hold
from restow.domain.state import ClusterState


def bind(state: ClusterState, pod: PodUid) -> Bind:
    """For a pod that is placed. It follows from the placement alone, so that it is owed for as long as that stands."""
    placement = state.placed[pod]
    return Bind(pod, placement.node, placement.devices, placement.cores)


def allocated_from(state: ClusterState, pod: PodUid) -> ReservationObserved | None:
    """The Reservation that it has taken from, for others to read; None where there is none any more. A migration's hold is nobody's
    business but ours: that pod is where its predecessor was to go."""
    allocation = state.allocations.get(pod)
    record = state.reservations.get(allocation.reservation) if allocation is not None else None
    return record.fact if record is not None and not is_migration_hold(state, record) else None
