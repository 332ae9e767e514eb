"""What people are told that a pod does: its phase, or what the log knows beyond it."""

from restow.contracts.ids import PodUid
from restow.contracts.times import rfc3339
from restow.domain.session.reasons import pod_sentence
from restow.domain.state import ClusterState
from restow.domain.state_maps import OVER

STATUSES = ("Pending", "Waiting", "Gated", "Nominated", "Placed", "Running", "Terminating", "Succeeded", "Failed", "Unknown")
"""Every answer of `pod_status`."""


def pod_status(state: ClusterState, uid: PodUid) -> str:
    """The phase, or Placed, Nominated, Waiting, Gated, Terminating where that says more."""
    live = state.pods[uid].live
    if live.deleting and live.phase not in OVER:
        return "Terminating"
    if live.phase == "Pending" and live.node is None:
        if uid in state.placed:
            return "Placed"
        if uid in state.nominations:
            return "Nominated"
        return "Waiting" if uid in state.parked else "Gated" if state.pods[uid].fact.gated else "Pending"
    return live.phase


def running(state: ClusterState) -> int:
    """How many pods run; those that terminate do not."""
    return sum(pod.live.phase == "Running" and not pod.live.deleting for pod in state.pods.values())


def why_waits(state: ClusterState, uid: PodUid) -> str:
    """Of a pod without a node: what its scheduler has said, in a sentence."""
    nomination = state.nominations.get(uid)
    if nomination is not None:
        return f"runs on {nomination.node} next, until {rfc3339(nomination.deadline)}"
    parked = state.parked.get(uid)
    return pod_sentence(state.waiting[parked[0]]) if parked is not None else "no session has looked at it yet"
