"""DefaultEvictor's arguments: upstream's names, defaults and validation, the deprecated ones too."""

from typing import Self

from msgspec import field
from msgspec.structs import replace

from restow.domain.descheduling.args import (
    Args,
    Duration,
    LabelSelector,
    PriorityThreshold,
    Uint,
    below,
    first,
)
from restow.domain.descheduling.selection import selector_wrong

SYSTEM_CRITICAL = 2_000_000_000
"""From here on priorities are the system's own."""
PREFERRED, MANDATORY = "Preferred", "Mandatory"

DEFAULT_PROTECTIONS = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
EXTRA_PROTECTIONS = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims", "PodsWithPDBBlockingSingleReplicaOwner")

DEPRECATED = {
    "evict_local_storage_pods": "PodsWithLocalStorage",
    "evict_daemon_set_pods": "DaemonSetPods",
    "evict_system_critical_pods": "SystemCriticalPods",
    "evict_failed_bare_pods": "FailedBarePods",
    "ignore_pvc_pods": "PodsWithPVC",
    "ignore_pods_without_pdb": "PodsWithoutPDB",
}
"""Each stands for one protection: `evict…` takes it away, `ignore…` adds it."""


class StorageClassName(Args, frozen=True):
    name: str = ""


class PodsWithPvc(Args, frozen=True):
    """Empty protects every claim's pods."""

    protected_storage_classes: tuple[StorageClassName, ...] = ()


class ProtectionsConfig(Args, frozen=True):
    pods_with_pvc: PodsWithPvc | None = field(default=None, name="PodsWithPVC")


class PodProtections(Args, frozen=True):
    extra_enabled: tuple[str, ...] = ()
    default_disabled: tuple[str, ...] = ()
    config: ProtectionsConfig | None = None

    def check(self) -> str:
        return first(
            (
                _names("defaultDisabled", self.default_disabled, DEFAULT_PROTECTIONS),
                _names("extraEnabled", self.extra_enabled, EXTRA_PROTECTIONS),
                self._classes(),
            )
        )

    def _classes(self) -> str:
        said = self.config.pods_with_pvc if self.config is not None else None
        for i, one in enumerate(said.protected_storage_classes if said is not None else ()):
            if not one.name:
                return f"config.PodsWithPVC.protectedStorageClasses[{i}].name: nothing; allowed: a storage class's name"
        return ""


class DefaultEvictorArgs(Args, frozen=True):
    """`minPodAge` counts from the pod's start. With `nodeFit`, `nodeSelector` says which nodes a pod may go to."""

    node_selector: str = ""
    label_selector: LabelSelector | None = None
    namespace_label_selector: LabelSelector | None = None
    priority_threshold: PriorityThreshold | None = None
    node_fit: bool = False
    min_replicas: Uint = 0
    min_pod_age: Duration | None = None
    no_eviction_policy: str = ""
    pod_protections: PodProtections = PodProtections()
    evict_local_storage_pods: bool = False
    evict_daemon_set_pods: bool = False
    evict_system_critical_pods: bool = False
    ignore_pvc_pods: bool = False
    ignore_pods_without_pdb: bool = field(default=False, name="ignorePodsWithoutPDB")
    evict_failed_bare_pods: bool = False

    def defaulted(self) -> Self:
        threshold = self.priority_threshold
        if threshold is not None and (threshold.value is not None or threshold.name):
            return self
        return replace(self, priority_threshold=PriorityThreshold(value=SYSTEM_CRITICAL))

    def check(self) -> str:
        deprecated = [name for name in DEPRECATED if getattr(self, name)]
        new = self.pod_protections.extra_enabled or self.pod_protections.default_disabled
        return first(
            (
                self._priority(),
                _one_of("noEvictionPolicy", self.no_eviction_policy, (PREFERRED, MANDATORY)),
                selector_wrong("nodeSelector", self.node_selector),
                below("labelSelector", self.label_selector.check()) if self.label_selector else "",
                below("namespaceLabelSelector", self.namespace_label_selector.check()) if self.namespace_label_selector else "",
                f"podProtections: is given beside the deprecated {', '.join(map(_camel, deprecated))}; allowed: one of the two"
                if new and deprecated
                else "",
                below("podProtections", self.pod_protections.check()),
                f"minPodAge: {self.min_pod_age}; allowed: 0s or more" if self.min_pod_age and self.min_pod_age < 0 else "",
            )
        )

    def _priority(self) -> str:
        threshold = self.priority_threshold
        if threshold is None or threshold.value is None:
            return ""
        if threshold.name:
            return "priorityThreshold: has value and name; allowed: one of them"
        if threshold.value > SYSTEM_CRITICAL:
            return f"priorityThreshold.value: {threshold.value}; allowed: up to {SYSTEM_CRITICAL}"
        return ""

    @property
    def protections(self) -> frozenset[str]:
        """Those in force, by either way of saying it."""
        new = self.pod_protections
        on = set(DEFAULT_PROTECTIONS)
        if new.extra_enabled or new.default_disabled:
            return frozenset(on.difference(new.default_disabled).union(new.extra_enabled))
        for name, protection in DEPRECATED.items():
            if getattr(self, name):
                on.discard(protection) if name.startswith("evict") else on.add(protection)
        return frozenset(on)

    @property
    def protected_classes(self) -> frozenset[str]:
        """Storage classes that PodsWithPVC is limited to; empty where it is not."""
        config = self.pod_protections.config
        if config is None or config.pods_with_pvc is None:
            return frozenset()
        return frozenset(one.name for one in config.pods_with_pvc.protected_storage_classes)


def _names(path: str, names: tuple[str, ...], allowed: tuple[str, ...]) -> str:
    for i, name in enumerate(names):
        if name not in allowed:
            return f"{path}[{i}]: {name!r}; allowed: {', '.join(allowed)}"
        if name in names[:i]:
            return f"{path}[{i}]: {name!r} is there twice; allowed: once"
    return ""


def _one_of(path: str, value: str, allowed: tuple[str, ...]) -> str:
    return f"{path}: {value!r}; allowed: {', '.join(allowed)}" if value and value not in allowed else ""


def _camel(name: str) -> str:
    if name == "ignore_pods_without_pdb":
        return "ignorePodsWithoutPDB"
    head, *rest = name.split("_")
    return head + "".join(part.capitalize() for part in rest)
