"""What rules about pods and rules about holds share: an event that is void, and what follows where a pod gets a node, or loses it."""

from restow.contracts import events as e
from restow.contracts.values import ClaimChoice
from restow.domain.state import ClusterState


def void(state: ClusterState, event: e.Event) -> None:
    state.void[str(event.__struct_config__.tag)] += 1


def choose_anew(state: ClusterState, choices: tuple[ClaimChoice, ...]) -> None:
    """What a provisioner gave back before counts no longer."""
    for choice in choices:
        state.drop(state.unselected, choice.claim)


def settled(state: ClusterState, pod) -> None:
    state.settle(pod)
    state.requeue(pod)
    state.touched.pods[pod] = None
