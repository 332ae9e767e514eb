"""The Reservation that a job names (annotation `scheduling.volcano.sh/target-reservation`, RULES 000-2)."""

from restow.contracts.events import PodObserved
from restow.contracts.ids import ReservationUid
from restow.domain.groups import group_of
from restow.domain.state import ClusterState

TARGET = "scheduling.volcano.sh/target-reservation"
NOBODY = ReservationUid("")
"""What a name leads to that no Reservation has."""


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
