"""The registry: which resources exist, in which versions, with which subresources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True, eq=False, slots=True)
class Resource:
    """One kind of object. Two Resources are equal if group and plural are: versions share storage."""

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = True
    singular: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: frozenset[str] = frozenset()
    generation: bool = False
    """Whether metadata.generation counts changes of the spec."""
    returns_deleted: bool = False
    """DELETE answers with the object rather than with a Status."""
    verbs: tuple[str, ...] = VERBS
    custom: CustomResource | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.group, self.plural)

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def has_status(self) -> bool:
        return "status" in self.subresources

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Resource) and self.group == other.group and self.plural == other.plural)

    def __hash__(self) -> int:
        return hash((self.group, self.plural))

    def __repr__(self) -> str:
        return f"<{self.plural}.{self.group or 'core'}/{self.version}>"


@dataclass(frozen=True, eq=False, slots=True)
class CustomVersion:
    """One version of a CustomResourceDefinition, ready for use."""

    name: str
    served: bool
    storage: bool
    schema: dict[str, Any]
    columns: tuple[dict[str, Any], ...] = ()
    scale: dict[str, str] | None = None
    status: bool = False
    selectable: tuple[str, ...] = ()
    validator: Any = None


@dataclass(frozen=True, eq=False, slots=True)
class CustomResource:
    """What a Resource knows because a CustomResourceDefinition defines it."""

    definition: str
    versions: dict[str, CustomVersion] = field(default_factory=dict)


_STATUS = frozenset({"status"})
_SCALED = frozenset({"status", "scale"})


def _core(plural: str, kind: str, short: str = "", **more: Any) -> Resource:
    return Resource("", "v1", plural, kind, singular=kind.lower(), short_names=tuple(short.split()), **more)


def _of(group: str, plural: str, kind: str, short: str = "", **more: Any) -> Resource:
    return Resource(
        group, "v1", plural, kind, singular=kind.lower(), short_names=tuple(short.split()), **more
    )


_ALL: dict[str, Any] = {"categories": ("all",)}

PODS = _core(
    "pods", "Pod", "po", **_ALL, generation=True, returns_deleted=True,
    subresources=frozenset({"status", "binding", "eviction", "ephemeralcontainers", "log", "resize"}),
)  # fmt: skip
NODES = _core("nodes", "Node", "no", namespaced=False, subresources=_STATUS)
NAMESPACES = _core(
    "namespaces", "Namespace", "ns", namespaced=False, subresources=frozenset({"status", "finalize"}),
    returns_deleted=True, verbs=tuple(v for v in VERBS if v != "deletecollection"),
)  # fmt: skip
EVENTS = _core("events", "Event", "ev")
CONFIGMAPS = _core("configmaps", "ConfigMap", "cm")
SECRETS = _core("secrets", "Secret")
SERVICES = _core("services", "Service", "svc", **_ALL, subresources=_STATUS, returns_deleted=True)
SERVICEACCOUNTS = _core("serviceaccounts", "ServiceAccount", "sa", returns_deleted=True)
ENDPOINTS = _core("endpoints", "Endpoints", "ep")
PERSISTENTVOLUMES = _core(
    "persistentvolumes",
    "PersistentVolume",
    "pv",
    namespaced=False,
    subresources=_STATUS,
    returns_deleted=True,
)
PERSISTENTVOLUMECLAIMS = _core(
    "persistentvolumeclaims", "PersistentVolumeClaim", "pvc", subresources=_STATUS, returns_deleted=True
)
REPLICATIONCONTROLLERS = _core(
    "replicationcontrollers", "ReplicationController", "rc", **_ALL, generation=True, subresources=_SCALED
)
RESOURCEQUOTAS = _core("resourcequotas", "ResourceQuota", "quota", subresources=_STATUS, returns_deleted=True)
LIMITRANGES = _core("limitranges", "LimitRange", "limits")
DEPLOYMENTS = _of(
    "apps", "deployments", "Deployment", "deploy", **_ALL, generation=True, subresources=_SCALED
)
REPLICASETS = _of("apps", "replicasets", "ReplicaSet", "rs", **_ALL, generation=True, subresources=_SCALED)
STATEFULSETS = _of(
    "apps", "statefulsets", "StatefulSet", "sts", **_ALL, generation=True, subresources=_SCALED
)
DAEMONSETS = _of("apps", "daemonsets", "DaemonSet", "ds", **_ALL, generation=True, subresources=_STATUS)
CONTROLLERREVISIONS = _of("apps", "controllerrevisions", "ControllerRevision")
JOBS = _of("batch", "jobs", "Job", **_ALL, generation=True, subresources=_STATUS)
CRONJOBS = _of("batch", "cronjobs", "CronJob", "cj", **_ALL, generation=True, subresources=_STATUS)
PODDISRUPTIONBUDGETS = _of(
    "policy", "poddisruptionbudgets", "PodDisruptionBudget", "pdb", generation=True, subresources=_STATUS
)
LEASES = _of("coordination.k8s.io", "leases", "Lease")
PRIORITYCLASSES = _of(
    "scheduling.k8s.io", "priorityclasses", "PriorityClass", "pc", namespaced=False, generation=True
)
STORAGECLASSES = _of("storage.k8s.io", "storageclasses", "StorageClass", "sc", namespaced=False)
CSINODES = _of("storage.k8s.io", "csinodes", "CSINode", namespaced=False)
CSIDRIVERS = _of("storage.k8s.io", "csidrivers", "CSIDriver", namespaced=False)
_DRA = "resource.k8s.io"
RESOURCESLICES = _of(_DRA, "resourceslices", "ResourceSlice", namespaced=False, generation=True)
RESOURCECLAIMS = _of(_DRA, "resourceclaims", "ResourceClaim", subresources=_STATUS, returns_deleted=True)
RESOURCECLAIMTEMPLATES = _of(_DRA, "resourceclaimtemplates", "ResourceClaimTemplate", returns_deleted=True)
DEVICECLASSES = _of(_DRA, "deviceclasses", "DeviceClass", namespaced=False, generation=True, returns_deleted=True)
_ADMISSION = "admissionregistration.k8s.io"
MUTATINGPOLICIES = _of(
    _ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", namespaced=False, categories=("api-extensions",), generation=True
)
MUTATINGBINDINGS = _of(
    _ADMISSION, "mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding",
    namespaced=False, categories=("api-extensions",), generation=True,
)  # fmt: skip
VALIDATINGPOLICIES = _of(
    _ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy",
    namespaced=False, categories=("api-extensions",), generation=True, subresources=_STATUS,
)  # fmt: skip
VALIDATINGBINDINGS = _of(
    _ADMISSION, "validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding",
    namespaced=False, categories=("api-extensions",), generation=True,
)  # fmt: skip
_RBAC = "rbac.authorization.k8s.io"
ROLES = _of(_RBAC, "roles", "Role")
ROLEBINDINGS = _of(_RBAC, "rolebindings", "RoleBinding")
CLUSTERROLES = _of(_RBAC, "clusterroles", "ClusterRole", namespaced=False)
CLUSTERROLEBINDINGS = _of(_RBAC, "clusterrolebindings", "ClusterRoleBinding", namespaced=False)
EVENTS_V1 = _of("events.k8s.io", "events", "Event", "ev")
CUSTOMRESOURCEDEFINITIONS = _of(
    "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition", "crd crds",
    namespaced=False, categories=("api-extensions",), generation=True, subresources=_STATUS,
)  # fmt: skip

BUILTIN = (
    PODS, NODES, NAMESPACES, EVENTS, CONFIGMAPS, SECRETS, SERVICES, SERVICEACCOUNTS, ENDPOINTS,
    PERSISTENTVOLUMES, PERSISTENTVOLUMECLAIMS, REPLICATIONCONTROLLERS, RESOURCEQUOTAS, LIMITRANGES,
    DEPLOYMENTS, REPLICASETS, STATEFULSETS, DAEMONSETS, CONTROLLERREVISIONS, JOBS, CRONJOBS,
    PODDISRUPTIONBUDGETS, LEASES, PRIORITYCLASSES, STORAGECLASSES, CSINODES, CSIDRIVERS, EVENTS_V1,
    RESOURCESLICES, RESOURCECLAIMS, RESOURCECLAIMTEMPLATES, DEVICECLASSES,
    CUSTOMRESOURCEDEFINITIONS, MUTATINGPOLICIES, MUTATINGBINDINGS, VALIDATINGPOLICIES, VALIDATINGBINDINGS,
    ROLES, ROLEBINDINGS, CLUSTERROLES, CLUSTERROLEBINDINGS,
)  # fmt: skip


class Registry:
    """The resources that are served now: the built-in ones and those that CRDs define."""

    def __init__(self, resources: Iterable[Resource] = BUILTIN):
        self._by_key: dict[tuple[str, str], Resource] = {}
        self._by_kind: dict[tuple[str, str], Resource] = {}
        self.generation = 0
        """Changes whenever discovery and OpenAPI documents must be built again."""
        for resource in resources:
            self.add(resource)

    def __iter__(self) -> Iterator[Resource]:
        return iter(list(self._by_key.values()))

    def add(self, resource: Resource) -> None:
        self._by_key[resource.key] = resource
        self._by_kind[(resource.group, resource.kind)] = resource
        self.generation += 1

    def remove(self, resource: Resource) -> None:
        self._by_key.pop(resource.key, None)
        self._by_kind.pop((resource.group, resource.kind), None)
        self.generation += 1

    def find(self, group: str, plural: str) -> Resource | None:
        return self._by_key.get((group, plural))

    def served(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource behind a path, or None if this version of it is not served."""
        resource = self._by_key.get((group, plural))
        if resource is None or version not in served_versions(resource):
            return None
        return resource

    def by_kind(self, group: str, kind: str) -> Resource | None:
        return self._by_kind.get((group, kind))


def served_versions(resource: Resource) -> list[str]:
    """The versions under which the resource is reachable."""
    if resource.custom is None:
        return [resource.version]
    return [version.name for version in resource.custom.versions.values() if version.served]
