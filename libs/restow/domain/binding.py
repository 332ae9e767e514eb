"""What a placed pod is bound with."""

from restow.contracts.ids import PodUid, ReservationUid
from restow.domain.effects import Bind
from restow.domain.reservation.index import is_migration_hold
from restow.domain.state import ClusterState


def bind(state: ClusterState, pod: PodUid) -> Bind:
    """For a pod that is placed."""
    placement = state.placed[pod]
    return Bind(pod, placement.node, placement.devices, placement.cores, _drawn_from(state, pod))


def _drawn_from(state: ClusterState, pod: PodUid) -> ReservationUid:
    """A migration's hold is nobody's business but ours: that pod is where its predecessor was to go."""
    draw = state.draws.get(pod)
    record = state.reservations.get(draw.reservation) if draw is not None else None
    return record.fact.reservation if record is not None and not is_migration_hold(state, record) else ReservationUid("")
