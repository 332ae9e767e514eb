"""Why pods wait, as one sentence: what their condition, their PodGroup and Events say."""

from restow.contracts.ids import PodUid
from restow.domain.evolve.reservations import fit_message
from restow.domain.records import Waiting
from restow.domain.session.jobs import UNSCHEDULABLE
from restow.domain.session.starving import sentence
from restow.domain.state import ClusterState


def why(waiting: Waiting) -> str:
    """The sentence alone: for a gang that does not fit, what its first pod lacks beside the others."""
    if waiting.reasons or not waiting.message:
        return fit_message(waiting.nodes, waiting.reasons)
    return waiting.message


def told(waiting: Waiting) -> str:
    """For one pod: with what it waits for together with others."""
    if waiting.reasons and waiting.message and waiting.reason == UNSCHEDULABLE:
        return f"{waiting.message}; {fit_message(waiting.nodes, waiting.reasons)}"
    return waiting.message or fit_message(waiting.nodes, waiting.reasons)


def said(state: ClusterState, pod: PodUid) -> str:
    """What a parked pod's condition says: why it waits, and for which node, if one is reserved for it."""
    waiting = state.waiting.get(state.parked[pod][0])
    parts = ("" if waiting is None else told(waiting), sentence(state, pod) if pod in state.reserved_tasks else "")
    return "; ".join(part for part in parts if part)


def still_so(state: ClusterState, pod: PodUid, message: str) -> bool:
    """Whether the pod waits for what the message says. What is free on a reserved node may have changed meanwhile: that is
    said with the next news."""
    parked = state.parked.get(pod)
    waiting = state.waiting.get(parked[0]) if parked is not None else None
    return waiting is not None and message.startswith(told(waiting))
