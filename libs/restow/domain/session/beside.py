"""What a session does for pods that another scheduler binds (`restow.domain.beside`): it hands held slots over to those that only our gate
keeps from that scheduler, and nothing else."""

from restow.domain.session.jobs import single
from restow.domain.session.session import Session


def land(session: Session) -> None:
    """Each in its turn takes the slot that its predecessor has left to it, if that is held by now. Queues and plugins that are about ours have no say."""
    state = session.state
    if not session.offers.left_behind:
        return
    for uid in sorted(state.gated, key=state.order_of):
        pod = state.pods[uid].fact
        if session.offers.left_to(pod):
            session.hand_over(single(state, pod), pod)
