"""kube-scheduler's rules that depend on what runs, as filters of a session: each asks one of the indexes that follow the
state, and tells it what the session does."""

from collections.abc import Hashable, Sequence
from typing import Any

from restow.contracts.events import PodObserved
from restow.contracts.ids import Millis
from restow.domain.groups import group_of
from restow.domain.numa import EmptyNuma, Numa
from restow.domain.occupants import Who
from restow.domain.predicates import AND
from restow.domain.session.framework import Filter
from restow.domain.session.other_pods import OtherPods
from restow.domain.state import ClusterState
from restow.domain.volumes import LIMIT, NO_VOLUME, NODE_AFFINITY, ZONE, Volumes


class _OfOtherPods(Filter):
    """The base of rules about other pods; `shrinks` where another pod can only make it worse."""

    of_pods = True

    def __init__(self, others: OtherPods) -> None:
        self._others = others
        self._topology = others.topology
        self.active = not self._topology.idle

    def key(self, pod: PodObserved) -> Hashable:
        key = self._topology.key(self._others.subject(pod))
        return (key, group_of(pod)) if self._others.nominees else key


class Ports(_OfOtherPods):
    stage = "ports"

    def concerns(self, pod: PodObserved) -> bool:
        return not self._topology.idle and bool(self._topology.wants(pod.shape).ports)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return self._topology.ports(self._others.subject(pod))


class TopologySpread(_OfOtherPods):
    stage, shrinks = "spread", False

    def concerns(self, pod: PodObserved) -> bool:
        return not self._topology.idle and bool(self._topology.wants(pod.shape).hard)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return self._others.spread(pod)


class InterPodAffinity(_OfOtherPods):
    stage, shrinks = "affinity", False

    def concerns(self, pod: PodObserved) -> bool:
        return not self._topology.idle and self._topology.requires(self._others.subject(pod))

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return self._others.affinity(pod)


class Occupants(_OfOtherPods):
    """No rule: tells the index, once, who comes and goes."""

    stage = "affinity"

    def concerns(self, pod: PodObserved) -> bool:
        return False

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return ()

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        if not self._topology.idle:
            self._topology.add(pod.pod, row, self._others.subject(pod))

    def removed(self, pod: PodObserved, row: int) -> None:
        self._topology.remove(pod.pod)

    def vacated(self, who: Who) -> None:
        self._topology.remove(who)

    def restored(self, who: Who) -> None:
        self._topology.restore(who)


class NumaZones(Filter):
    """Alignment with the NUMA zones of nodes whose kubelet insists on it."""

    stage, of_capacity, borrowable = "numa", True, True

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._numa = Numa.of(state)
        self.active = not self._numa.idle

    def concerns(self, pod: PodObserved) -> bool:
        return self._numa.concerns(pod.shape)

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return self._numa.filter(pod.shape)

    def never(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        return EmptyNuma.of(self._state).filter(pod.shape)

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        if self._numa.concerns(pod.shape):
            self._numa.add(pod.pod, row, pod)

    def removed(self, pod: PodObserved, row: int) -> None:
        if self._numa.concerns(pod.shape):
            self._numa.remove(pod.pod)

    def vacated(self, who: Who) -> None:
        self._numa.remove(who)

    def restored(self, who: Who) -> None:
        self._numa.restore(who)

    def close(self) -> None:
        self._numa.close()


class VolumeRules(Filter):
    """Claims and disks: restrictions, limits, binding, zones, and what a placement gives to unbound claims."""

    stage = "volumes"

    def __init__(self, state: ClusterState, now: Millis, limits: bool, zones: bool, binding: bool) -> None:
        self._state = state
        self._volumes = Volumes.of(state)
        self._volumes.at(now)
        self._shapes = state.shapes
        self._off = frozenset(
            reason
            for on, reasons in (
                (limits, (LIMIT,)),
                (zones, (ZONE,)),
                (binding, (NODE_AFFINITY, NO_VOLUME)),
            )
            if not on
            for reason in reasons
        )

    def concerns(self, pod: PodObserved) -> bool:
        return bool(pod.claims) or bool(self._shapes[pod.shape].disks)

    def key(self, pod: PodObserved) -> Hashable:
        return pod.namespace, pod.claims

    def waits(self, pod: PodObserved) -> str:
        """Why no node will do before something else happens."""
        return self._volumes.waits(pod) if pod.claims else ""

    def failing(self, pod: PodObserved) -> Sequence[tuple[str, Any]]:
        if reason := self.waits(pod):
            # Who takes holds, or looks again at what was said, has not asked before.
            return [(reason, self._state.table.alive)]
        found: list[tuple[str, Any]] = []
        for reason, rows in self._volumes.filters(pod):
            if reason in self._off:
                continue
            if reason == NO_VOLUME and found and found[-1][0] == NODE_AFFINITY:
                # kube-scheduler's binder gives both reasons of a node that fails by both.
                found.insert(-1, (f"{NODE_AFFINITY}{AND}{NO_VOLUME}", found[-1][1] & rows))
            found.append((reason, rows))
        return found

    def choose(self, pod: PodObserved, row: int) -> tuple[Any, ...]:
        return self._volumes.choose(pod, row)

    def placed(self, pod: PodObserved, row: int, volumes: Any) -> None:
        if self.concerns(pod):
            self._volumes.add(pod.pod, row, pod, volumes)

    def removed(self, pod: PodObserved, row: int) -> None:
        if self.concerns(pod):
            self._volumes.remove(pod.pod)

    def vacated(self, who: Who) -> None:
        self._volumes.remove(who)

    def restored(self, who: Who) -> None:
        self._volumes.restore(who)

    def close(self) -> None:
        self._volumes.close()
