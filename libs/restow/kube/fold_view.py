"""The fold, as the diff of `facts` asks it."""

from collections.abc import Iterable
from typing import Any

from restow.contracts import events as e
from restow.contracts.ids import NodeName, PodUid, ReservationUid, ShapeId
from restow.domain.groups import UPSTREAM, is_upstream
from restow.domain.state import ClusterState
from restow.kube import decode as d
from restow.kube.objects import OBJECTS, logged, place


class StateKnown:
    """`facts.Known` on a ClusterState. Valid as long as the state is not folded further while a batch is open."""

    def __init__(self, state: ClusterState):
        self._state = state

    def shape(self, shape: ShapeId) -> bool:
        return shape in self._state.shapes

    def ours(self, scheduler: str) -> bool:
        return scheduler in self._state.session_config.scheduler_names

    def node(self, name: NodeName) -> e.NodeObserved | None:
        return self._state.nodes.get(name)

    def pod(self, uid: PodUid) -> tuple[e.PodObserved, e.PodChanged] | None:
        pod = self._state.fact_of(uid)
        return None if pod is None else (pod, self._state.pods[uid].live)

    def trouble(self, uid: PodUid) -> e.PodTroubled | None:
        return self._state.troubles.get(uid)

    def workload(self, uid: str) -> e.WorkloadObserved | None:
        return self._state.workloads.get(uid)

    def reservation(self, uid: ReservationUid) -> e.ReservationObserved | None:
        known = self._state.reservations.get(uid)
        return None if known is None or known.gone else known.fact

    def fact(self, collection: str, key: str) -> e.Event | None:
        held: dict[Any, e.Event] = getattr(self._state, OBJECTS[collection].held_in)
        if collection == d.UPSTREAM_GROUPS.name:
            return held.get(logged(key))
        return held.get(place(key) if collection == d.POD_GROUPS.name else key)

    def keys(self, collection: str) -> Iterable[str]:
        state = self._state
        match collection:
            case d.NODES.name:
                return list(state.nodes)
            case d.PODS.name:
                return list(state.pods)
            case d.VOLCANO_RESERVATIONS.name:
                return self._reservations("volcano")
            case d.KOORDINATOR_RESERVATIONS.name:
                return self._reservations("koordinator")
            case name if name in d.WORKLOADS:
                return [uid for uid, known in state.workloads.items() if (known.kind, known.group) == d.WORKLOADS[name]]
            case d.POD_GROUPS.name:
                return ["/".join(group) for group in state.pod_groups if not is_upstream(group)]
            case d.UPSTREAM_GROUPS.name:
                return [f"{namespace}/{name.removeprefix(UPSTREAM)}" for namespace, name in state.pod_groups if is_upstream((namespace, name))]
            case name if name in OBJECTS:
                return list(getattr(state, OBJECTS[name].held_in))
            case _:
                raise ValueError(f"{collection!r} is not watched; allowed: {', '.join(c.name for c in d.COLLECTIONS)}")

    def _reservations(self, api: str) -> list[ReservationUid]:
        known = self._state.reservations
        return [uid for uid, one in known.items() if one.fact.api == api and not one.gone]
