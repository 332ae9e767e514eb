"""Collections whose objects are each one fact, known by name: what pods refer to. One line a collection."""

from collections.abc import Callable
from typing import Any

import msgspec

from restow.contracts import events as e
from restow.contracts.ids import NodeName
from restow.domain.groups import UPSTREAM, Group
from restow.kube import (
    budgets,
    devices,
    dynamic_resources,
    groups,
    hyper_nodes,
    numa,
    resource_quotas,
    volumes,
)
from restow.kube import decode as d


class Form(msgspec.Struct, frozen=True):
    """How an object becomes a fact (raises FactError), how its end does (by its key), and the map of the fold it is in."""

    describe: Callable[[Any], e.Event]
    gone: Callable[[str], e.Event]
    held_in: str


def place(key: str) -> tuple[str, str]:
    """Namespace and name of a key."""
    namespace, _, name = key.partition("/")
    return namespace, name


def logged(key: str) -> Group:
    """What a PodGroup of `scheduling.k8s.io` is called in the log."""
    namespace, name = place(key)
    return namespace, UPSTREAM + name


OBJECTS: dict[str, Form] = {
    d.NAMESPACES.name: Form(groups.namespace_fact, e.NamespaceGone, "namespaces"),
    d.PRIORITY_CLASSES.name: Form(groups.priority_class_fact, e.PriorityClassGone, "priority_classes"),
    d.QUEUES.name: Form(groups.queue_fact, e.QueueGone, "queues"),
    d.POD_GROUPS.name: Form(groups.pod_group_fact, lambda key: e.PodGroupGone(*place(key)), "pod_groups"),
    d.UPSTREAM_GROUPS.name: Form(groups.upstream_group_fact, lambda key: e.PodGroupGone(*logged(key)), "pod_groups"),
    d.STORAGE_CLASSES.name: Form(volumes.storage_class_fact, e.StorageClassGone, "storage_classes"),
    d.CLAIMS.name: Form(volumes.claim_fact, lambda key: e.ClaimGone(*place(key)), "claims"),
    d.VOLUMES.name: Form(volumes.volume_fact, e.VolumeGone, "volumes"),
    d.CSI_NODES.name: Form(volumes.csi_node_fact, lambda key: e.CsiNodeGone(NodeName(key)), "csi_nodes"),
    d.NUMA.name: Form(numa.numa_fact, lambda key: e.NumaGone(NodeName(key)), "numa"),
    d.DEVICES.name: Form(devices.device_fact, lambda key: e.DeviceGone(NodeName(key)), "device_objects"),
    d.HYPER_NODES.name: Form(hyper_nodes.hyper_node_fact, e.HyperNodeGone, "hyper_nodes"),
    d.RESOURCE_SLICES.name: Form(dynamic_resources.slice_fact, e.ResourceSliceGone, "resource_slices"),
    d.RESOURCE_CLAIMS.name: Form(dynamic_resources.claim_fact, lambda key: e.ResourceClaimGone(*place(key)), "resource_claims"),
    d.DEVICE_CLASSES.name: Form(dynamic_resources.class_fact, e.DeviceClassGone, "device_classes"),
    d.BUDGETS.name: Form(budgets.budget_fact, lambda key: e.BudgetGone(*place(key)), "budgets"),
    d.QUOTAS.name: Form(resource_quotas.quota_fact, lambda key: e.QuotaGone(*place(key)), "quotas"),
}
