"""NUMA alignment as kube-scheduler's NodeResourceTopologyMatch plugin (scheduler-plugins) decides it for Guaranteed pods on
nodes with the policy single-numa-node.

Facts say what a zone has, not what it has left: every Guaranteed pod of the node is taken to have got the lowest zone that
held it, in order of arrival, as the kubelet does.
"""

from oracle.world import World
from restow.contracts import events as e
from restow.contracts.values import PodShape

Zones = list[dict[str, int]]

POLICY = "single-numa-node"


def numa(world: World, pod: e.PodObserved, node: e.NodeObserved) -> list[str]:
    topology = world.numa.get(node.name)
    if topology is None or topology.policy != POLICY or world.shape(pod).qos != "Guaranteed":
        return []
    reason = align(world.shape(pod), topology.scope, zones_left(world, topology))
    return [reason] if reason else []


def zones_left(world: World, topology: e.NumaObserved) -> Zones:
    zones = [dict(zone.allocatable) for zone in topology.zones]
    for other in sorted(world.on(topology.node), key=lambda p: world.arrival[p.pod]):
        if world.shape(other).qos == "Guaranteed":
            align(world.shape(other), topology.scope, zones)
    return zones


def align(shape: PodShape, scope: str, zones: Zones) -> str:
    """Take from the zones what the pod gets, or take nothing and say why it gets none. In scope `pod` all is from one zone;
    otherwise each container is aligned for itself, one that ends before the others start uses nothing up."""
    if scope == "pod" or not any(container.requests for container in shape.containers):
        index = lowest_zone(shape.requests, zones)
        if index is None:
            return "cannot align pod" if scope == "pod" else "cannot align container"
        take(shape.requests, zones[index])
        return ""
    trial = [dict(zone) for zone in zones]
    for container in shape.containers:
        index = lowest_zone(container.requests, trial)
        if index is None:
            return "cannot align init container" if container.init else "cannot align container"
        if not container.init:
            take(container.requests, trial[index])
    zones[:] = trial
    return ""


def lowest_zone(requests: dict[str, int], zones: Zones) -> int | None:
    """The first zone that has enough of everything. What no zone has need not be aligned, but cores and memory must."""
    possible = set(range(len(zones)))
    for resource, amount in requests.items():
        native = resource in ("cpu", "memory") or resource.startswith("hugepages-")
        having = {i for i, zone in enumerate(zones) if resource in zone}
        if amount > 0 and resource != "pods" and (having or native):
            possible &= {i for i in having if zones[i][resource] >= amount}
    return min(possible, default=None)


def take(requests: dict[str, int], zone: dict[str, int]) -> None:
    for resource, amount in requests.items():
        if resource in zone:
            zone[resource] -= amount
