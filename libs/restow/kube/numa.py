"""NodeResourceTopology → facts: the NUMA zones and CPUs of a node, and how its kubelet aligns pods to them."""

import re

from restow.contracts import events as e
from restow.contracts import values as v
from restow.contracts.ids import NodeName
from restow.kube import cpus
from restow.kube import wire_objects as w
from restow.kube.quotas import quota
from restow.kube.requests import FactError

_NUMA = "Node"
"""The type of zones that are NUMA nodes; sockets, caches and devices have others."""
_POLICY, _SCOPE = "topologyManagerPolicy", "topologyManagerScope"
_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")
_SCOPES = ("container", "pod")
_OLD = {
    "None": ("none", "container"),
    "BestEffort": ("best-effort", "container"),
    "BestEffortContainerLevel": ("best-effort", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
    "Restricted": ("restricted", "container"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
}
"""The deprecated `topologyPolicies`, of which the first counts → the kubelet's names of policy and scope."""
_DIGITS = re.compile(r"([0-9]+)")


def numa_fact(topology: w.Topology) -> e.NumaObserved:
    """Attributes win over `topologyPolicies`; values that the kubelet does not have are passed over (as
    scheduler-plugins' noderesourcetopology does). Zones are in the order of their numbers: node-2 before node-10. Raises
    FactError where a quantity cannot be read."""
    policy, scope = _OLD.get(next(iter(topology.topology_policies or ()), ""), ("", "container"))
    for attribute in topology.attributes or ():
        if attribute.name == _POLICY and attribute.value in _POLICIES:
            policy = attribute.value
        elif attribute.name == _SCOPE and attribute.value in _SCOPES:
            scope = attribute.value
    zones = [_zone(zone, f"zones[{i}]") for i, zone in enumerate(topology.zones or ()) if zone.type == _NUMA]
    return e.NumaObserved(
        node=NodeName(topology.metadata.name),
        policy=policy,
        scope=scope,
        zones=tuple(sorted(zones, key=lambda zone: _by_number(zone.name))),
        cpus=cpus.read_topology(topology.metadata.annotations),
    )


def _zone(zone: w.Zone, path: str) -> v.NumaZone:
    amounts = {}
    for i, resource in enumerate(zone.resources or ()):
        if resource.name in amounts:
            raise FactError(f"{path}.resources[{i}].name: {resource.name!r} a second time; allowed: each resource once")
        if resource.allocatable is not None:
            amounts[resource.name] = resource.allocatable
    return v.NumaZone(zone.name, quota(amounts, f"{path}.resources"))


def _by_number(name: str) -> list[str | tuple[int, str]]:
    """Of any length: Python reads no number of thousands of digits."""
    return [(len(part.lstrip("0")), part.lstrip("0")) if i % 2 else part for i, part in enumerate(_DIGITS.split(name))]
