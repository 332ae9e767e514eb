"""DefaultEvictor, which is always on: upstream's names, defaults and validation, and which pods may be evicted at all, one rule a function.

The first word of a refusal is the rule's name; a verdict keeps the first rule that refuses. What a pod's own annotations say is
asked first: `evict` lets it go whatever else is said, `prefer-no-eviction` keeps it where the policy is Mandatory.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self

from msgspec import field
from msgspec.structs import fields, replace

from restow.contracts.events import BudgetObserved, PodObserved
from restow.contracts.ids import Millis, NodeName, PodUid
from restow.domain.descheduling.node_fit import NodeFit
from restow.domain.descheduling.pods import EVICT, IN_PROGRESS, owners_of
from restow.domain.descheduling.selection import parsed, selected_nodes, selector_wrong
from restow.domain.duration import format_milliseconds
from restow.domain.policy_args import Args as Base
from restow.domain.policy_args import (
    Duration,
    LabelSelector,
    PriorityThreshold,
    Uint,
    first_refusal,
)
from restow.domain.protection import PREFER_NO_EVICTION, SYSTEM_CRITICAL
from restow.domain.selectors import covers, selects
from restow.domain.state import ClusterState

NAME = "DefaultEvictor"
POINTS = ("filter", "preEvictionFilter")

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


class StorageClassName(Base, frozen=True):
    name: str = ""


class PodsWithPvc(Base, frozen=True):
    """Empty protects every claim's pods."""

    protected_storage_classes: tuple[StorageClassName, ...] = ()


class ProtectionsConfig(Base, frozen=True):
    pods_with_pvc: PodsWithPvc | None = field(default=None, name="PodsWithPVC")


class PodProtections(Base, frozen=True):
    extra_enabled: tuple[str, ...] = ()
    default_disabled: tuple[str, ...] = ()
    config: ProtectionsConfig | None = None

    def check(self) -> str:
        return first_refusal(
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


class Args(Base, frozen=True):
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
        deprecated = [f.encode_name for f in fields(self) if f.name in DEPRECATED and getattr(self, f.name)]
        new = self.pod_protections.extra_enabled or self.pod_protections.default_disabled
        return first_refusal(
            (
                _one_of("noEvictionPolicy", self.no_eviction_policy, (PREFERRED, MANDATORY)),
                selector_wrong("nodeSelector", self.node_selector),
                f"podProtections: is given beside the deprecated {', '.join(deprecated)}; allowed: one of the two"
                if new and deprecated
                else "",
                super().check(),
                f"minPodAge: {self.min_pod_age}; allowed: 0s or more" if self.min_pod_age and self.min_pod_age < 0 else "",
            )
        )

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


Rule = Callable[[PodObserved], str]


class Evictor:
    """One profile's. Answers are kept: the state does not change in a run."""

    def __init__(self, state: ClusterState, args: Args, now: Millis, fit: NodeFit):
        self._state, self._args, self._now, self._fit = state, args, now, fit
        self._on = args.protections
        self._owned: Counter[str] | None = None
        self._budgets: dict[str, list[BudgetObserved]] | None = None
        self._filtered: dict[PodUid, str] = {}
        self._fitted: dict[tuple[PodUid, bool], str] = {}
        self._rules = tuple(self._all_rules())
        selector = parsed(args.node_selector) if args.node_selector else None
        self.nodes: list[NodeName] = selected_nodes(state, selector)
        self._among = fit.rows(self.nodes)

    def evictable(self, uid: PodUid) -> str:
        """The filter: "" or the first rule that keeps it."""
        known = self._filtered.get(uid)
        if known is None:
            known = self._filtered[uid] = self._filter(self._state.pods[uid].fact)
        return known

    def fits(self, uid: PodUid, skewed: bool = False, elsewhere: bool = True) -> str:
        """The preEvictionFilter: "" or why not. `skewed`: topology spread does not count. Not `elsewhere`: whoever asks has a place for
        it, so nodeFit does not count."""
        if not elsewhere:
            return self._namespace(self._state.pods[uid].fact)
        known = self._fitted.get((uid, skewed))
        if known is None:
            known = self._fitted[uid, skewed] = self._namespace(self._state.pods[uid].fact) or (
                self._fit.why_none_elsewhere(uid, self._among, spread=not skewed) if self._args.node_fit else ""
            )
        return known

    @property
    def threshold(self) -> int | str:
        """The priority from which on pods stay, or why it is not known: then nothing may be evicted."""
        said = self._args.priority_threshold
        if said is None or (said.value is None and not said.name):
            return SYSTEM_CRITICAL
        if said.value is not None:
            return said.value
        known = self._state.priority_classes.get(said.name)
        if known is None:
            return f"priorityThreshold.name: there is no PriorityClass {said.name!r}; allowed: one of the cluster's"
        if known.value > SYSTEM_CRITICAL:
            return f"priorityThreshold.name: {said.name!r} stands for {known.value}; allowed: up to {SYSTEM_CRITICAL}"
        return known.value

    def warnings(self) -> Iterator[str]:
        """Arguments that select nothing."""
        args, state = self._args, self._state
        if isinstance(threshold := self.threshold, str) and "SystemCriticalPods" in self._on:
            yield f"{threshold}. Nothing is evicted by this profile"
        if args.node_selector and not args.node_fit:
            yield f"nodeSelector: {args.node_selector!r} says nothing without nodeFit"
        if args.min_replicas == 1:
            yield "minReplicas: 1 protects nobody: every owner that has a pod has one"
        if args.protected_classes and "PodsWithPVC" not in self._on:
            yield "podProtections.config.PodsWithPVC: says nothing without PodsWithPVC in extraEnabled"
        if args.node_selector and args.node_fit and not self.nodes:
            yield f"nodeSelector: {args.node_selector!r} selects no ready node, so nothing fits anywhere"
        if (asked := args.label_selector) is not None and not any(selects(asked.selects, p.fact.labels) for p in state.pods.values()):
            yield "labelSelector: selects no pod"
        asked = args.namespace_label_selector
        if asked is not None and not any(selects(asked.selects, n.labels) for n in state.namespaces.values()):
            yield "namespaceLabelSelector: selects no namespace"

    # -- rules -------------------------------------------------------------------------------------------------------

    def _filter(self, pod: PodObserved) -> str:
        if IN_PROGRESS in pod.annotations:
            return "InBackground: its owner moves it by itself already"
        if EVICT in pod.annotations:
            return ""
        if self._args.no_eviction_policy == MANDATORY and PREFER_NO_EVICTION in pod.annotations:
            return f"NoEviction: its annotation {PREFER_NO_EVICTION} asks for it"
        return next((why for rule in self._rules if (why := rule(pod))), "")

    def _all_rules(self) -> Iterator[Rule]:
        """In upstream's order."""
        yield self._static
        yield self._terminating
        protections: tuple[tuple[str, Rule], ...] = (
            ("SystemCriticalPods", self._critical),
            ("SystemCriticalPods", self._priority),
            ("FailedBarePods", self._bare),
            ("PodsWithLocalStorage", self._local_storage),
            ("DaemonSetPods", self._daemon_set),
            ("PodsWithPVC", self._claims),
            ("PodsWithoutPDB", self._without_budget),
            ("PodsWithPDBBlockingSingleReplicaOwner", self._budget_of_many),
            ("PodsWithResourceClaims", self._resource_claims),
        )
        if "FailedBarePods" not in self._on:
            yield self._bare_unless_failed
        for name, rule in protections:
            if name in self._on:
                yield rule
        if self._args.label_selector is not None:
            yield self._labels
        if self._args.min_replicas > 1:
            yield self._replicas
        if self._args.min_pod_age is not None:
            yield self._age

    def _static(self, pod: PodObserved) -> str:
        return "Static: only its kubelet can end it" if pod.static else ""

    def _terminating(self, pod: PodObserved) -> str:
        return "Terminating: it is going away already" if self._state.pods[pod.pod].live.deleting else ""

    def _critical(self, pod: PodObserved) -> str:
        priority = self._state.shapes[pod.shape].priority
        return f"SystemCritical: its priority is {priority}" if priority >= SYSTEM_CRITICAL else ""

    def _priority(self, pod: PodObserved) -> str:
        threshold, priority = self.threshold, self._state.shapes[pod.shape].priority
        if isinstance(threshold, str):
            return f"Priority: {threshold}"
        return f"Priority: {priority} is not below the threshold, {threshold}" if priority >= threshold else ""

    def _bare(self, pod: PodObserved) -> str:
        return "" if owners_of(pod) else "Bare: nobody owns it, so nobody would create it again"

    def _bare_unless_failed(self, pod: PodObserved) -> str:
        if owners_of(pod) or self._state.pods[pod.pod].live.phase == "Failed":
            return ""
        return "Bare: nobody owns it, and it has not failed"

    def _local_storage(self, pod: PodObserved) -> str:
        return "LocalStorage: it would lose its emptyDir or hostPath" if self._state.shapes[pod.shape].local_storage else ""

    def _daemon_set(self, pod: PodObserved) -> str:
        return "DaemonSet: its pods belong to their nodes" if any(o.kind == "DaemonSet" for o in owners_of(pod)) else ""

    def _claims(self, pod: PodObserved) -> str:
        if "persistentVolumeClaim" not in self._state.shapes[pod.shape].volumes:
            return ""
        classes = self._args.protected_classes
        if not classes:
            return "PVC: it has a PersistentVolumeClaim"
        for name in pod.claims:
            claim = self._state.claims.get(f"{pod.namespace}/{name}")
            if claim is None or not claim.storage_class:
                return f"PVC: the storage class of its claim {name} is not known"
            if claim.storage_class in classes:
                return f"PVC: its claim {name} is of the protected class {claim.storage_class}"
        return ""

    def _without_budget(self, pod: PodObserved) -> str:
        return "" if self._has_budget(pod) else "WithoutPDB: no PodDisruptionBudget is about it"

    def _budget_of_many(self, pod: PodObserved) -> str:
        """With a budget only the pod of an owner that has no other may go."""
        if not self._has_budget(pod) or any(self._count(o.uid) == 1 for o in owners_of(pod)):
            return ""
        return "PDB: a PodDisruptionBudget is about it, and it is not its owner's only pod"

    def _resource_claims(self, pod: PodObserved) -> str:
        return "ResourceClaims: it has claimed devices" if self._state.shapes[pod.shape].resource_claims else ""

    def _labels(self, pod: PodObserved) -> str:
        asked = self._args.label_selector
        return "" if asked is None or selects(asked.selects, pod.labels) else "Labels: labelSelector does not select it"

    def _replicas(self, pod: PodObserved) -> str:
        owners = owners_of(pod)
        if len(owners) != 1:
            return ""
        count, least = self._count(owners[0].uid), self._args.min_replicas
        return f"MinReplicas: its owner has {count} pods, fewer than {least}" if count < least else ""

    def _age(self, pod: PodObserved) -> str:
        started, least = self._state.pods[pod.pod].live.started, self._args.min_pod_age or 0
        if not started:
            return "MinPodAge: it has not started"
        if self._now - started < least:
            return f"MinPodAge: it has run for less than {format_milliseconds(least)}"
        return ""

    def _namespace(self, pod: PodObserved) -> str:
        asked = self._args.namespace_label_selector
        if asked is None or not (asked.match_labels or asked.match_expressions):
            return ""
        known = self._state.namespaces.get(pod.namespace)
        if known is not None and selects(asked.selects, known.labels):
            return ""
        return "Namespace: namespaceLabelSelector does not select its namespace"

    # -- counted once ------------------------------------------------------------------------------------------------

    def _count(self, owner: str) -> int:
        """Pods of this owner, finished ones too."""
        if self._owned is None:
            self._owned = Counter(o.uid for pod in self._state.pods.values() for o in owners_of(pod.fact))
        return self._owned[owner]

    def _has_budget(self, pod: PodObserved) -> bool:
        if self._budgets is None:
            self._budgets = {}
            for budget in self._state.budgets.values():
                self._budgets.setdefault(budget.namespace, []).append(budget)
        return any(covers(budget, pod) for budget in self._budgets.get(pod.namespace, ()))
