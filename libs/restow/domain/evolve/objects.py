"""Facts about objects that pods refer to: groups, queues, classes, namespaces, volumes, NUMA zones.

Each bumps the capacity epoch: pods that wait may fit now.
"""

from collections.abc import Callable
from typing import Any

from restow.contracts import events as e
from restow.domain.evolve.rules import Rules
from restow.domain.state import ClusterState

Key = Callable[[Any], Any]


def _kept(name: str, key: Key) -> Callable[[ClusterState, Any], None]:
    def rule(state: ClusterState, event: Any) -> None:
        state.put(getattr(state, name), key(event), event)
        state.capacity_epoch += 1

    return rule


def _gone(name: str, key: Key) -> Callable[[ClusterState, Any], None]:
    def rule(state: ClusterState, event: Any) -> None:
        if state.drop(getattr(state, name), key(event)) is None:
            state.void[str(type(event).__struct_config__.tag)] += 1
            return
        state.capacity_epoch += 1

    return rule


def _name(event: Any) -> Any:
    return event.name


def _node(event: Any) -> Any:
    return event.node


def _path(event: Any) -> str:
    return f"{event.namespace}/{event.name}"


def pod_group_observed(state: ClusterState, event: e.PodGroupObserved) -> None:
    key = (event.namespace, event.name)
    known = state.pod_groups.get(key)
    if known is not None and known.uid != event.uid:
        state.drop(state.enqueued, key)
    if known is None:
        state.clock += 1
        state.put(state.group_order, key, state.clock)
    state.put(state.pod_groups, key, event)
    _regrouped(state, key)


def pod_group_gone(state: ClusterState, event: e.PodGroupGone) -> None:
    key = (event.namespace, event.name)
    if state.drop(state.pod_groups, key) is None:
        state.void["cluster.pod_group_gone"] += 1
        return
    state.drop(state.group_order, key)
    state.drop(state.enqueued, key)
    _regrouped(state, key)


def _regrouped(state: ClusterState, key: tuple[str, str]) -> None:
    """The queue of its pods may be another one now, and those that wait are considered anew."""
    state.capacity_epoch += 1
    state.touched.groups[key] = None
    for pod in list(state.groups.get(key, ())):
        state.settle(pod)
        state.unpark(pod)
        state.requeue(pod)


def queue_observed(state: ClusterState, event: e.QueueObserved) -> None:
    state.put(state.queues, event.name, event)
    state.touched.queues[event.name] = None
    state.capacity_epoch += 1


RULES: Rules = {
    e.PodGroupObserved: pod_group_observed,
    e.PodGroupGone: pod_group_gone,
    e.QueueObserved: queue_observed,
    e.QueueGone: _gone("queues", _name),
    e.PriorityClassObserved: _kept("priority_classes", _name),
    e.PriorityClassGone: _gone("priority_classes", _name),
    e.NamespaceObserved: _kept("namespaces", _name),
    e.NamespaceGone: _gone("namespaces", _name),
    e.ClaimObserved: _kept("claims", _path),
    e.ClaimGone: _gone("claims", _path),
    e.VolumeObserved: _kept("volumes", _name),
    e.VolumeGone: _gone("volumes", _name),
    e.StorageClassObserved: _kept("storage_classes", _name),
    e.StorageClassGone: _gone("storage_classes", _name),
    e.CsiNodeObserved: _kept("csi_nodes", _node),
    e.CsiNodeGone: _gone("csi_nodes", _node),
    e.NumaObserved: _kept("numa", _node),
    e.NumaGone: _gone("numa", _node),
}
