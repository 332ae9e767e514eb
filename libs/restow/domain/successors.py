"""Which pod is the successor of one that was moved. `migration.successor` says which of several it is, `gated` what becomes of those that are gated."""

from restow.contracts.events import PodObserved
from restow.domain.pod_controllers import asks_same
from restow.domain.records import Migration
from restow.domain.state_maps import Maps


def may_follow(state: Maps, pod: PodObserved, migration: Migration) -> bool:
    """Whether the migration's hold is for this pod, once its victim has ended: it came later, is of the same lineage and asks for the
    same. Someone smaller gets nothing of it, for what he left would be nobody's, and the move would land by him (RULES G-12). Nor does someone of another
    namespace: the API takes any uid for an owner's, so that whoever makes pods could take what is held for others'."""
    if state.pods[pod.pod].order <= migration.came_before or not migration.lineage or pod.namespace != migration.move.namespace:
        return False
    if pod.shape != migration.shape and not asks_same(state.shapes[pod.shape], state.shapes[migration.shape]):
        return False
    return bool(state.lineage(pod) == migration.lineage)  # type: ignore[attr-defined]
