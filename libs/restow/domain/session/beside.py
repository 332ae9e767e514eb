"""What a session does for pods that another scheduler binds (`restow.domain.beside`): it hands held slots over to those that only our gate
keeps from that scheduler, and nothing else."""

from restow.contracts.events import PodLetGo
from restow.contracts.ids import NodeName, PodUid, ShapeId
from restow.domain.beside import is_kept_from
from restow.domain.gated import expected, may_get_slot
from restow.domain.predicates import switches, why_not
from restow.domain.reservation.beside import owns
from restow.domain.session.jobs import single
from restow.domain.session.session import Session
from restow.domain.state_maps import Maps


def land(session: Session) -> None:
    """Each in its turn takes the slot that its predecessor has left to it, if that is held by now, or one of a Reservation that it owns. Queues and plugins
    that are about ours have no say."""
    state = session.state
    if not session.offers.left_behind and not state.owner_gates:
        return
    for uid in sorted(state.gated, key=state.order_of):
        pod = state.pods[uid].fact
        if not may_get_slot(state, pod):
            continue
        if left := session.offers.holds_left(pod):
            if not is_kept_from(state, left[0]):
                session.hand_over(single(state, pod), pod)
        elif owns(state, uid) and session.hand_over(single(state, pod), pod) is None:
            session.events.append(PodLetGo(uid))


def waited_for(state: Maps) -> list[PodUid]:
    """Gated pods that something is held for: each waits for its turn, or for the slot."""
    return sorted(uid for uid in state.to_land.keys() | expected(state, may_run) if state.pods[uid].fact.landing)


def may_run(state: Maps, shape: ShapeId, node: NodeName) -> bool:
    """By the node's labels and taints; what becomes of a move whose target is gone is the move's to say."""
    known = state.nodes.get(node)
    return known is None or not why_not(state.shapes[shape], known, switches(state))  # type: ignore[arg-type]
