"""The pod of a migration: whether it is still there, and still what was planned for.

A pod that is only evicted (`Move.target` is empty) has ended, or nobody makes it again: nothing can be held for it.
"""

from restow.contracts.ids import NodeName
from restow.domain.disruption import not_admitted
from restow.domain.hooks import is_asked
from restow.domain.migration import consents
from restow.domain.migration.holds import Reason
from restow.domain.migration.whole_nodes import is_of_gang
from restow.domain.movable import protected, unmovable
from restow.domain.records import Migration, Step
from restow.domain.state import OVER, ClusterState
from restow.domain.verdicts import NOT_ASKED, ended


def is_only_evicted(migration: Migration) -> bool:
    return not migration.move.target and bool(migration.move.pod)


def is_gone(state: ClusterState, migration: Migration) -> bool:
    """Whether the pod is terminating or no more."""
    live = state.live_of(migration.move.pod)
    return live is None or live.deleting > 0


def has_ended(state: ClusterState, migration: Migration) -> bool:
    """Whether it is terminating, gone, or failed, so that its controller makes a successor. One that is only evicted may have failed before."""
    return is_gone(state, migration) or (not is_only_evicted(migration) and state.pods[migration.move.pod].live.phase == "Failed")


def is_followed(migration: Migration) -> bool:
    """Whether a successor took the slot, so that the pod's end is a fact (only then it is armed)."""
    return bool(migration.successor and migration.armed)


def unfit(state: ClusterState, migration: Migration) -> Reason | None:
    """Why there is nothing to move any more, or nothing that may be moved."""
    move = migration.move
    live = state.live_of(move.pod)
    if has_ended(state, migration) or live is None:
        return "PodGone", "the pod ended before its landing slot was held"
    if live.phase == "Succeeded":
        return "PodFinished", "the pod finished before its landing slot was held"
    if live.node != move.source:
        return "PodMoved", f"the pod is on {live.node or 'no node'}, not on {move.source}"
    return changed(state, migration)


def changed(state: ClusterState, migration: Migration) -> Reason | None:
    """Whether nobody, or somebody else than when it was planned, would make the pod again, or what is made would not be let in. Whatever
    made the plan: a pod that no controller makes again elsewhere is never moved."""
    pod = state.fact_of(migration.move.pod)
    if pod is None:
        return None
    if pod.static or pod.owner is None or pod.owner.kind == "DaemonSet":
        what = "a static pod" if pod.static else "a bare pod" if pod.owner is None else "a DaemonSet's pod"
        return "NotMovable", f"it is {what}: nobody would make it again on {NodeName(migration.move.target)}"
    if pod.shape != migration.shape:
        return ended("PodChanged")
    if state.lineage(pod) != migration.lineage:
        return ended("OwnerChanged")
    if migration.done:
        return ended(migration.done)
    if migration.step is Step.EVICTING and is_asked(state, pod) and not _agreed(state, migration):
        return NOT_ASKED, "its workload is to be asked before a move since its eviction was decided"
    as_gang = is_of_gang(state, migration)
    if migration.id in state.consents and (not as_gang or migration.step is Step.HELD):
        # What it has said may be taken back as long as it can be heeded. (Who has not been asked yet is asked in his turn.)
        said = consents.annotated(state, migration)
        if said is not None and not said.agrees:
            return consents.refusal(said.message)
    if as_gang and migration.step in (Step.EVICTING, Step.ABORTING):
        # What begins to start again is at work on its pods.
        word, _, why = protected(state, migration.move.pod).partition(": ")
    else:
        word, _, why = (unmovable(state, migration.move.pod, as_gang) or not_admitted(state, migration.move.pod)).partition(": ")
    return (word, why) if word else None


def _agreed(state: ClusterState, migration: Migration) -> bool:
    known = state.consents.get(migration.id)
    return known is not None and known.given > 0


def unfit_to_evict(state: ClusterState, migration: Migration) -> Reason | None:
    """Why a pod must not be only evicted any more: it is gone, or it is not what was planned for."""
    move = migration.move
    if is_gone(state, migration):
        return ended("PodGone")
    pod, live = state.pods[move.pod].fact, state.pods[move.pod].live
    if live.node != move.source:
        return "PodMoved", f"the pod is on {live.node or 'no node'}, not on {move.source}"
    if pod.static or (pod.owner is not None and pod.owner.kind == "DaemonSet"):
        return "NotMovable", "only its node's kubelet can end it" if pod.static else "a DaemonSet's pod belongs to its node"
    if pod.owner is not None and live.phase not in OVER:
        return "OwnerChanged", "the pod has a controller, and runs: nothing was held for its successor"
    if live.phase not in OVER and is_asked(state, pod):
        return ended(NOT_ASKED)
    word, _, why = (protected(state, move.pod) if live.phase not in OVER else "").partition(": ")
    return (word, why) if word else None
