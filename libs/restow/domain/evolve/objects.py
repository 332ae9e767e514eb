"""Facts about objects that pods refer to: groups, queues, classes, namespaces, volumes, NUMA zones, devices.

Each bumps the capacity epoch, for pods that wait may fit now; but not those of dynamic resource allocation.
"""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from restow.contracts import events as e
from restow.contracts.ids import Millis, NodeName
from restow.domain import usable_devices
from restow.domain.evolve.rules import Rules, void
from restow.domain.state import ClusterState

Key = Callable[[Any], Any]

ELSEWHERE = 60_000
"""Milliseconds for which a node that a provisioner has given back is left out where its claim is chosen for again: most
likely it would fail there again, and other nodes may do."""
NOBODY = 0
"""Pods with ResourceClaims are not placed by us, so nobody of ours may fit now."""


def _kept(name: str, key: Key, may_fit: int = 1) -> Callable[[ClusterState, Any], None]:
    """`may_fit`: 0 where no pod of ours waits for it."""

    def rule(state: ClusterState, event: Any) -> None:
        at = key(event)
        state.put(getattr(state, name), at, event)
        state.objects.append((name, at))
        state.capacity_epoch += may_fit

    return rule


def _gone(name: str, key: Key, may_fit: int = 1) -> Callable[[ClusterState, Any], None]:
    def rule(state: ClusterState, event: Any) -> None:
        at = key(event)
        if state.drop(getattr(state, name), at) is None:
            void(state, event)
            return
        state.objects.append((name, at))
        state.capacity_epoch += may_fit

    return rule


def _name(event: Any) -> Any:
    return event.name


def _node(event: Any) -> Any:
    return event.node


def _path(event: Any) -> str:
    return f"{event.namespace}/{event.name}"


def is_pending(group: e.PodGroupObserved) -> bool:
    """Whether nobody has let it in: the action `enqueue` is to decide."""
    return group.phase in ("", "Pending")


def pod_group_observed(state: ClusterState, event: e.PodGroupObserved) -> None:
    key = (event.namespace, event.name)
    known, waited = state.pod_groups.get(key), key in state.unqueued
    if known is not None and known.uid != event.uid:
        state.drop(state.enqueued, key)
        state.drop(state.group_moves, key)
    if key not in state.enqueued and is_pending(event):
        state.put(state.unqueued, key, None)
    else:
        state.drop(state.unqueued, key)
    if known is None:
        state.clock += 1
        state.put(state.group_order, key, state.clock)
    state.put(state.pod_groups, key, event)
    if known is not None and replace(known, phase=event.phase) == event and (key in state.unqueued) == waited:
        # Most often our own writing: nothing to consider anew.
        state.touched.groups[key] = None
        return
    _regrouped(state, key)


def pod_group_gone(state: ClusterState, event: e.PodGroupGone) -> None:
    key = (event.namespace, event.name)
    if state.drop(state.pod_groups, key) is None:
        void(state, event)
        return
    state.drop(state.group_order, key)
    state.drop(state.enqueued, key)
    state.drop(state.unqueued, key)
    state.drop(state.group_moves, key)
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
    known = state.queues.get(event.name)
    state.put(state.queues, event.name, event)
    state.touched.queues[event.name] = None
    state.capacity_epoch += 1
    if known is None or (known.state, known.invalid, known.parent) != (event.state, event.invalid, event.parent):
        _other_queue(state, event.name)


_lose_queue = _gone("queues", _name)


def queue_gone(state: ClusterState, event: e.QueueGone) -> None:
    _lose_queue(state, event)
    _other_queue(state, event.name)


def _other_queue(state: ClusterState, name: str) -> None:
    """Whether it and those below it take jobs may be another answer now: whoever waits there for capacity is considered anew. (Who waits for
    something else is, whenever anything has changed.)"""
    names = {name}
    while more := {known.name for known in state.queues.values() if known.parent in names and known.name not in names}:
        names |= more
    waiting = [pod for pod, (_, under) in state.parked.items() if under[0] != "reason" and state.queue_of(state.pods[pod].fact) in names]
    for pod in waiting:
        state.unpark(pod)
        state.requeue(pod)


_keep_claim, _lose_claim = _kept("claims", _path), _gone("claims", _path)
_keep_volume, _lose_volume = _kept("volumes", _name), _gone("volumes", _name)


def claim_observed(state: ClusterState, event: e.ClaimObserved) -> None:
    path = _path(event)
    known = state.claims.get(path)
    other = known is None or known.uid != event.uid
    if other or event.volume:
        state.drop(state.unserved, path)
    if other or event.volume or event.selected_node:
        state.drop(state.unselected, path)
    elif known is not None and known.selected_node:
        state.put(state.unselected, path, known.selected_node)
        until = Millis(state.time + ELSEWHERE)
        state.put(state.unserved, path, {**state.unserved.get(path, {}), known.selected_node: until})
    _keep_claim(state, event)
    _touch_binding(state, claim=path)


def claim_gone(state: ClusterState, event: e.ClaimGone) -> None:
    state.drop(state.unselected, _path(event))
    state.drop(state.unserved, _path(event))
    _lose_claim(state, event)
    _touch_binding(state, claim=_path(event))


def volume_observed(state: ClusterState, event: e.VolumeObserved) -> None:
    _keep_volume(state, event)
    _touch_binding(state, event.claim, event.name)


def volume_gone(state: ClusterState, event: e.VolumeGone) -> None:
    _lose_volume(state, event)
    _touch_binding(state, volume=event.name)


def _touch_binding(state: ClusterState, claim: str = "", volume: str = "") -> None:
    """What is owed to the pods that wait for these may be something else now."""
    for pod in state.binding:
        if any(c.claim == claim or (volume and c.volume == volume) for c in state.placed[pod].volumes):
            state.touched.pods[pod] = None


_keep_devices, _lose_devices = _kept("device_objects", _node), _gone("device_objects", _node)


def device_observed(state: ClusterState, event: e.DeviceObserved) -> None:
    _keep_devices(state, event)
    _other_devices(state, event.node)


def device_gone(state: ClusterState, event: e.DeviceGone) -> None:
    _lose_devices(state, event)
    _other_devices(state, event.node)


def _other_devices(state: ClusterState, name: NodeName) -> None:
    """Who is promised a device that has failed waits for another one, and others may have those that are there again."""
    if name in state.nodes:
        usable_devices.set_node(state, name)
        state.squeeze(name)
        state.top_up(name)


def budget_observed(state: ClusterState, event: e.BudgetObserved) -> None:
    """Pods that wait fit no better now, but more of those who are in their way may go (RULES G-11)."""
    before = state.budgets.get(_path(event))
    state.put(state.budgets, _path(event), event)
    if before is not None and (event.allowed > before.allowed or event.unready > before.unready or event.selector != before.selector):
        more_may_go(state)


def budget_gone(state: ClusterState, event: e.BudgetGone) -> None:
    if state.drop(state.budgets, _path(event)) is None:
        void(state, event)
    else:
        more_may_go(state)


def quota_observed(state: ClusterState, event: e.QuotaObserved) -> None:
    """About pods that are not there yet: nobody who waits fits better for it."""
    state.put(state.quotas, _path(event), event)
    if event.exceeded:
        state.put(state.exceeded, _path(event), event)
    else:
        state.drop(state.exceeded, _path(event))


def quota_gone(state: ClusterState, event: e.QuotaGone) -> None:
    if state.drop(state.quotas, _path(event)) is None:
        void(state, event)
    state.drop(state.exceeded, _path(event))


def more_may_go(state: ClusterState) -> None:
    """Who waits may find victims now that it did not find before."""
    if takes_from_others(state):
        state.capacity_epoch += 1


def takes_from_others(state: ClusterState) -> bool:
    """Whether anybody is evicted for others at all."""
    return any(action.name in ("preempt", "reclaim") for action in state.session_config.actions)


RULES: Rules = {
    e.PodGroupObserved: pod_group_observed,
    e.PodGroupGone: pod_group_gone,
    e.QueueObserved: queue_observed,
    e.QueueGone: queue_gone,
    e.PriorityClassObserved: _kept("priority_classes", _name),
    e.PriorityClassGone: _gone("priority_classes", _name),
    e.NamespaceObserved: _kept("namespaces", _name),
    e.NamespaceGone: _gone("namespaces", _name),
    e.ClaimObserved: claim_observed,
    e.ClaimGone: claim_gone,
    e.VolumeObserved: volume_observed,
    e.VolumeGone: volume_gone,
    e.StorageClassObserved: _kept("storage_classes", _name),
    e.StorageClassGone: _gone("storage_classes", _name),
    e.CsiNodeObserved: _kept("csi_nodes", _node),
    e.CsiNodeGone: _gone("csi_nodes", _node),
    e.NumaObserved: _kept("numa", _node),
    e.NumaGone: _gone("numa", _node),
    e.DeviceObserved: device_observed,
    e.DeviceGone: device_gone,
    e.HyperNodeObserved: _kept("hyper_nodes", _name),
    e.HyperNodeGone: _gone("hyper_nodes", _name),
    e.ResourceSliceObserved: _kept("resource_slices", _name, NOBODY),
    e.ResourceSliceGone: _gone("resource_slices", _name, NOBODY),
    e.ResourceClaimObserved: _kept("resource_claims", _path, NOBODY),
    e.ResourceClaimGone: _gone("resource_claims", _path, NOBODY),
    e.DeviceClassObserved: _kept("device_classes", _name, NOBODY),
    e.DeviceClassGone: _gone("device_classes", _name, NOBODY),
    e.BudgetObserved: budget_observed,
    e.BudgetGone: budget_gone,
    e.QuotaObserved: quota_observed,
    e.QuotaGone: quota_gone,
}
