"""What a placement that has chosen volumes still needs before its pod can be bound, and when it must be given up."""

from restow.contracts.events import ClaimObserved
from restow.contracts.ids import PodUid
from restow.contracts.values import ClaimChoice
from restow.domain.binding import bind
from restow.domain.effects import BindClaim, Effect
from restow.domain.predicates import term_matches
from restow.domain.records import Placement
from restow.domain.state import ClusterState
from restow.domain.volumes.occupants import is_bound


def owed(state: ClusterState, pod: PodUid) -> list[Effect]:
    """For a placed pod that is not bound: `Bind` as soon as every claim that it chose for is bound; before that a `BindClaim`
    for each claim that the API has not been told of. Empty while the volume controller or a provisioner is at work, and
    where the placement is `rejected`."""
    placement, live = state.placed.get(pod), state.live_of(pod)
    if placement is None or live is None or live.node is not None:
        return []
    if placement.volumes and rejected(state, pod):
        return []
    claims = [(choice, state.claims[choice.claim]) for choice in placement.volumes]
    if all(is_bound(claim) for _, claim in claims):
        return [bind(state, pod)]
    return [
        BindClaim(choice.claim, choice.volume, placement.node)
        for choice, claim in claims
        if not is_bound(claim) and not _told(state, choice, claim, placement)
    ]


def asks(state: ClusterState, effect: BindClaim) -> bool:
    """Whether this effect is still owed to some pod."""
    return any(effect in owed(state, pod) for pod in state.binding)


def _told(state: ClusterState, choice: ClaimChoice, claim: ClaimObserved, placement: Placement) -> bool:
    if claim.volume:
        return True
    if not choice.volume:
        return claim.selected_node == placement.node
    volume = state.volumes[choice.volume]
    return volume.claim == choice.claim and volume.claim_uid == claim.uid


def rejected(state: ClusterState, pod: PodUid) -> str:
    """Why a placement whose pod is not bound can never be: the session releases it (`PodReleased` with this reason), and the
    pod is placed anew. "" where it may still be, and for pods without a placement.

    A provisioner that cannot make the volume there removes the claim's selected-node annotation again: `state.unselected`
    then has the claim, until somebody chooses for it anew. What the API was told is not taken back: a volume that was
    reserved stays reserved for its claim, and the next choice takes it where it can be reached (as with kube-scheduler)."""
    placement, live = state.placed.get(pod), state.live_of(pod)
    if placement is None or live is None or live.node is not None:
        return ""
    for choice in placement.volumes:
        claim = state.claims.get(choice.claim)
        name = choice.claim.partition("/")[2]
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.deleting:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if claim.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume}"'
        if reason := _astray(state, choice, claim, placement):
            return reason
    return ""


def _astray(state: ClusterState, choice: ClaimChoice, claim: ClaimObserved, placement: Placement) -> str:
    """The claim gets, or has, something else than was chosen, and that does not do."""
    if claim.volume:
        return _unreachable(state, claim.volume, placement)
    if not choice.volume:
        if state.unselected.get(choice.claim) == placement.node:
            return f'provisioning failed for PVC "{claim.name}"'
        if claim.selected_node not in ("", placement.node):
            return f'persistentvolumeclaim "{claim.name}" is provisioned for node "{claim.selected_node}"'
        return ""
    volume = state.volumes.get(choice.volume)
    if volume is None:
        return f'persistentvolume "{choice.volume}" not found'
    if volume.deleting:
        return f'persistentvolume "{choice.volume}" is being deleted'
    if volume.claim and (volume.claim != choice.claim or volume.claim_uid not in ("", claim.uid)):
        return f'persistentvolume "{choice.volume}" is bound to another persistentvolumeclaim "{volume.claim}"'
    return _unreachable(state, choice.volume, placement)


def _unreachable(state: ClusterState, name: str, placement: Placement) -> str:
    """A volume that is not there (yet) is waited for: the claim may be seen before it."""
    volume, node = state.volumes.get(name), state.nodes.get(placement.node)
    if volume is None or node is None or volume.affinity is None:
        return ""
    if any(term_matches(term, node) for term in volume.affinity):
        return ""
    return f'pv "{name}" node affinity doesn\'t match node "{node.name}"'
