"""What Restow puts into a cluster, and in which order it goes: values, and what of a listed object is ours.

Order: first what makes gates, then who makes everything else, so that nothing comes back behind us; then what holds back or holds
capacity; at last definitions, namespaces and rights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from restow.contracts.ids import Millis
from restow.domain.autoscalers import ENDS
from restow.domain.beside import GATE, HOLD_CLASS, NAMESPACES
from restow.domain.hooks import MOVED_BY, MOVED_FROM, REQUESTED, UNTIL
from restow.domain.other_schedulers import LOG
from restow.kube.annotations import ABORTED, ABORTED_UNTIL, MIGRATION
from restow.kube.beside import TOUCHED
from restow.kube.node_marks import Node, change

Object = Mapping[str, Any]

PART_OF, MANAGED_BY, RESTOW = "app.kubernetes.io/part-of", "app.kubernetes.io/managed-by", "restow"
"""Labels: the first of what `kubectl apply -k deploy/...` has made, the second of what the services make."""
GROUP = "restow.dev"


class Kind(NamedTuple):
    """A collection of the whole cluster, and what in it is ours."""

    name: str
    path: str
    ours: Callable[[Object], bool]


class Stage(NamedTuple):
    """What goes together. The next stage waits until it is gone."""

    title: str
    kinds: tuple[Kind, ...]


def applied(item: Object) -> bool:
    return labels(item).get(PART_OF) == RESTOW


def made(item: Object) -> bool:
    return labels(item).get(MANAGED_BY) == RESTOW


def labels(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("labels") or {}


def _notes(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}


def _named(*names: str) -> Callable[[Object], bool]:
    """Also where it was applied without kustomize, which sets the label."""
    return lambda item: applied(item) or item["metadata"]["name"] in names


def _admission(kind: str, *names: str, version: str = "v1") -> Kind:
    return Kind(kind, f"/apis/admissionregistration.k8s.io/{version}/{plural(kind)}", _named(*names))


def plural(kind: str) -> str:
    lower = kind.lower()
    return f"{lower[:-1]}ies" if lower.endswith("y") else f"{lower}es" if lower.endswith("s") else f"{lower}s"


def _core(kind: str, ours: Callable[[Object], bool] = applied) -> Kind:
    return Kind(kind, f"/api/v1/{plural(kind)}", ours)


def _of(group: str, kind: str, ours: Callable[[Object], bool] = applied) -> Kind:
    return Kind(kind, f"/apis/{group}/v1/{plural(kind)}", ours)


def _is_placeholder(pod: Object) -> bool:
    """Or a canary."""
    return made(pod) and (pod["metadata"]["namespace"] in NAMESPACES or (pod["spec"].get("priorityClassName") or "").startswith(HOLD_CLASS))


def _is_test(pod: Object) -> bool:
    """That of `helm test`, which stays where it has failed."""
    return "helm.sh/hook" in (pod["metadata"].get("annotations") or {})


def _is_class(item: Object) -> bool:
    return made(item) and item["metadata"]["name"].startswith(HOLD_CLASS)


def _names_log(item: Object) -> bool:
    """The hold of a migration: whoever makes a Reservation by hand does not name a log."""
    return LOG in labels(item)


_GUARDS = ("restow-guard", "restow-guard-bindings", "restow-guard-volumes", "restow-guard-groups", "restow-guard-brokers", "restow-guard-claims", "restow-guard-placeholders", "restow-guard-holds", "restow-guard-classes", "restow-guard-priorities", "restow-guard-nodes", "restow-holds-ports")
PODS = _core("Pod")
NODES = _core("Node")
DEFINITIONS = _of("apiextensions.k8s.io", "CustomResourceDefinition", lambda item: applied(item) or item["spec"]["group"] == GROUP)

BEFORE: tuple[Stage, ...] = (
    Stage(
        "no new pod is gated",
        (
            _admission("MutatingAdmissionPolicyBinding", "restow-landing"),
            _admission("MutatingAdmissionPolicy", "restow-landing"),
            # All that Kubernetes 1.34 and 1.35 serve of them. Later ones may serve the same objects twice.
            _admission("MutatingAdmissionPolicyBinding", "restow-landing", version="v1beta1"),
            _admission("MutatingAdmissionPolicy", "restow-landing", version="v1beta1"),
            _admission("MutatingWebhookConfiguration", "restow-landing"),
            Kind("Landing", "/apis/restow.dev/v1/landings", lambda item: True),
        ),
    ),
    Stage("the services end", (_of("apps", "Deployment"), Kind("Pod", PODS.path, lambda pod: applied(pod) and ("pod-template-hash" in labels(pod) or _is_test(pod))))),
)
"""Before the gates are taken away."""
AFTER: tuple[Stage, ...] = (
    Stage(
        "no capacity is held",
        (
            Kind("Pod", PODS.path, _is_placeholder),
            Kind("Reservation", "/apis/batch.volcano.sh/v1alpha1/reservations", _names_log),
            Kind("Reservation", "/apis/scheduling.koordinator.sh/v1alpha1/reservations", _names_log),
        ),
    ),
    Stage("no class is left", (_of("scheduling.k8s.io", "PriorityClass", _is_class),)),
    Stage(
        "nothing is guarded",
        (
            _admission("ValidatingAdmissionPolicyBinding", *_GUARDS),
            _admission("ValidatingAdmissionPolicy", *_GUARDS),
        ),
    ),
    Stage(
        "the broker and its log end",
        (
            _of("apps", "StatefulSet"), _of("policy", "PodDisruptionBudget"), _core("Service"), _core("ConfigMap"),
            _core("PersistentVolumeClaim"), _of("networking.k8s.io", "NetworkPolicy"),
        ),
    ),
    Stage(
        "nobody has rights",
        (
            _of("rbac.authorization.k8s.io", "RoleBinding"), _of("rbac.authorization.k8s.io", "Role"),
            _of("rbac.authorization.k8s.io", "ClusterRoleBinding"), _of("rbac.authorization.k8s.io", "ClusterRole"), _core("ServiceAccount"),
        ),
    ),
    Stage("the namespaces are gone", (_core("Namespace", _named(*NAMESPACES)),)),
)  # fmt: skip


def gated(pod: Object) -> bool:
    return any(gate.get("name") == GATE for gate in pod["spec"].get("schedulingGates") or ())


def marks(pod: Object) -> list[str]:
    """Annotations that Restow has left on somebody's pod. What its user has written stays."""
    known = _notes(pod)
    return [name for name in (MIGRATION, ABORTED_UNTIL, TOUCHED, GATE, REQUESTED, UNTIL, MOVED_FROM, MOVED_BY) if name in known and (name != MIGRATION or known[name] == ABORTED)]


def unmarked(node: Object) -> dict[str, Any]:
    """The patch that takes away what Restow, of whatever log, has set on a node; empty where there is nothing."""
    meta, notes = node["metadata"], dict(_notes(node))
    there = msgspec.convert(
        {"metadata": {"annotations": notes, "managedFields": meta.get("managedFields")}, "spec": {"unschedulable": node["spec"].get("unschedulable")}}, Node
    )
    # An end without its mark: somebody has taken the mark away by hand.
    annotations: dict[str, Any] = {end: None for end in ENDS.values() if end in notes}
    spec: dict[str, Any] = {}
    words = [notes.get(mark, "").split() for mark in ENDS]
    for log in {said[0] for said in words if said}:
        said = change(there, log, protect=False, plan="", until=Millis(0))
        annotations |= said.get("metadata", {}).get("annotations", {})
        spec |= said.get("spec", {})
    if not annotations:
        return {}
    return {"metadata": {"annotations": annotations, "resourceVersion": meta["resourceVersion"]}} | ({"spec": spec} if spec else {})
