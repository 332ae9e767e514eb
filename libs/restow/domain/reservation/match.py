"""Who may use a Reservation: fields of one owner are ANDed, owners are ORed (RULES G-3)."""

from collections import Counter

from restow.contracts.events import PodObserved
from restow.contracts.values import ObjectRef, OwnerRule, ReservationSpec
from restow.domain.groups import Group
from restow.domain.records import Reservation
from restow.domain.selectors import selects
from restow.domain.state import ClusterState


def _refers(ref: ObjectRef, api_version: str, kind: str, namespace: str, name: str, uid: str) -> bool:
    """Every field that is given must be equal (004, ObjectReference). Of an older log's facts the API version is not known."""
    return (
        (not ref.api_version or not api_version or ref.api_version == api_version)
        and (not ref.kind or ref.kind == kind)
        and (not ref.namespace or ref.namespace == namespace)
        and (not ref.name or ref.name == name)
        and (not ref.uid or ref.uid == uid)
    )


def _controlled(state: ClusterState, ref: ObjectRef, pod: PodObserved) -> bool:
    """By its controller, or by that controller's own (the Deployment of a ReplicaSet)."""
    owner = pod.owner
    if owner is None or not (ref.kind or ref.name or ref.uid):
        return False
    if _refers(ref, owner.api_version, owner.kind, pod.namespace, owner.name, owner.uid):
        return True
    above = state.above(owner)
    return above is not None and _refers(ref, above.api_version, above.kind, pod.namespace, above.name, above.uid)


def owner_matches(state: ClusterState, rule: OwnerRule, pod: PodObserved) -> bool:
    """`object` is the pod itself or, as seed 000's users write it, the workload that controls it."""
    if rule.object is None and rule.controller is None and rule.selector is None:
        return False
    if rule.object is not None and not (
        _refers(rule.object, "v1", "Pod", pod.namespace, pod.name, pod.pod) or _controlled(state, rule.object, pod)
    ):
        return False
    if rule.controller is not None and not _controlled(state, rule.controller, pod):
        return False
    return rule.selector is None or selects(rule.selector, pod.labels)


def counts_match(state: ClusterState, spec: ReservationSpec, group: Group) -> bool:
    """Whether the group has as many pods of each pod spec as the Reservation has places (seed 000 `CheckReservationMatch`).
    Failed and terminating pods are no more of it: their replacements are."""
    have: Counter[str] = Counter()
    for pod in state.groups.get(group, ()):
        live = state.live[pod]
        if live.phase != "Failed" and not live.deleting:
            have[state.shapes[state.pods[pod].shape].spec_digest] += 1
    want: Counter[str] = Counter()
    for task in spec.tasks:
        want[state.shapes[task.shape].spec_digest] += task.replicas
    return have == want


def owned(state: ClusterState, record: Reservation, pod: PodObserved) -> bool:
    """Whether this pod may use this Reservation. A namespaced one serves only its own namespace."""
    spec = record.spec
    if spec is None or (record.fact.namespace and record.fact.namespace != pod.namespace):
        return False
    return any(owner_matches(state, rule, pod) for rule in spec.owners)
