"""What rules about pods and rules about holds share: what follows where a pod gets a node, or loses it."""

from restow.contracts.values import ClaimChoice
from restow.domain.state import ClusterState


def choose_anew(state: ClusterState, choices: tuple[ClaimChoice, ...]) -> None:
    """What a provisioner gave back before counts no longer."""
    for choice in choices:
        state.drop(state.unselected, choice.claim)


def settled(state: ClusterState, pod) -> None:
    state.settle(pod)
    state.requeue(pod)
    state.touched.pods[pod] = None
