"""Whether a session would look at the pod that follows a moved one at all. A hold is of no use to who waits for something that no
room helps against: a queue that takes no jobs, a PodGroup that is no more, a configuration that hands nothing over (RULES G-13).

Answered from the state alone, for it is asked after every fold; a session raises the same where it validates jobs. What a plugin
refuses at `jobValid` it says here, too, by a function `turns_away(state, args, pod)`. How much of a queue is in use does not count:
what is drawn of a migration's hold is within any quota (RULES G-12)."""

from restow.contracts.ids import PodUid
from restow.domain.session import queues
from restow.domain.session.actions import handover
from restow.domain.session.framework import Refusal
from restow.domain.session.registry import acting, opened
from restow.domain.state import ClusterState


def turned_away(state: ClusterState, uid: PodUid) -> str:
    """Why a pod like this one would wait whatever is held for it; empty where it would not."""
    pod = state.pods[uid]
    if not state.ours(pod):
        return f"scheduler {state.shapes[pod.shape].scheduler} is not among schedulerNames"
    if all(module is not handover for module, _ in acting(state)):
        return "no action reserve before allocate hands over what is held"
    refusal = queues.refused(state, state.queue_of(pod)) or _of_plugins(state, uid)
    return "" if refusal is None else f"{refusal.reason}: {refusal.message}"


def _of_plugins(state: ClusterState, uid: PodUid) -> Refusal | None:
    for _, _, module, args in opened(state):
        turns_away = getattr(module, "turns_away", None)
        if turns_away is not None and (refusal := turns_away(state, args, state.pods[uid])) is not None:
            return refusal
    return None
