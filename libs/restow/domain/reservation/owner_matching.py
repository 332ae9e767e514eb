"""Who may use a Reservation: fields of one owner are ANDed, owners are ORed (RULES G-3); and which one a job names (RULES 000-2)."""

from collections import Counter

from restow.contracts.events import PodObserved
from restow.contracts.ids import ReservationUid
from restow.contracts.values import ObjectRef, OwnerRule, ReservationSpec
from restow.domain.groups import Group, group_of
from restow.domain.records import Reservation
from restow.domain.selectors import selects
from restow.domain.state import ClusterState

TARGET = "scheduling.volcano.sh/target-reservation"
NOBODY = ReservationUid("")
"""What a name leads to that no Reservation has."""


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
    """Whether the group has as many pods of each pod spec as the Reservation has slots (seed 000 `CheckReservationMatch`).
    Failed and terminating pods are no more of it: their replacements are."""
    have: Counter[str] = Counter()
    for pod in state.groups.get(group, ()):
        live = state.pods[pod].live
        if live.phase != "Failed" and not live.deleting:
            have[state.shapes[state.pods[pod].fact.shape].spec_digest] += 1
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


def is_migration_hold(state: ClusterState, record: Reservation) -> bool:
    """Our label counts only where the log knows the migration: anybody can write a label."""
    migration = state.migrations.get(record.fact.migration)  # type: ignore[call-overload]
    return migration is not None and migration.reservation == record.fact.reservation


def by_spec(record: Reservation) -> bool:
    """Whether owners match by an equal pod spec (RULES G-4)."""
    return record.spec is not None and record.spec.match_policy == "PodSpec"


# -- the one that a job names --------------------------------------------------------------------------------------------


def target_of(state: ClusterState, pod: PodObserved) -> str:
    """The name, empty where the pod names none. A PodGroup's says it for all its pods."""
    if not pod.annotations:
        return ""
    group = group_of(pod)
    known = state.pod_groups.get(group) if group is not None else None
    return (known.annotations.get(TARGET, "") if known is not None else "") or pod.annotations.get(TARGET, "")


class Names:
    """Reservations by namespace and name, as they are now: looked up once for a session, when a pod first names one."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._known: dict[tuple[str, str], ReservationUid] | None = None

    def find(self, namespace: str, target: str) -> ReservationUid:
        """What a job in this namespace calls so: one of its own namespace, else one of the cluster; NOBODY where there is
        none. `namespace/name` may be said; a namespaced one serves only its own (RULES G-3)."""
        said, _, name = target.rpartition("/")
        if said not in ("", namespace):
            return NOBODY
        known = self._by_name()
        return known.get((namespace, name)) or known.get(("", name), NOBODY)

    def _by_name(self) -> dict[tuple[str, str], ReservationUid]:
        if self._known is None:
            # An object made anew under its name comes after the former one, which may still hold something.
            records = [r for r in self._state.reservations.values() if not r.gone]
            records.sort(key=lambda record: record.order)
            self._known = {(r.fact.namespace, r.fact.name): r.fact.reservation for r in records}
        return self._known
