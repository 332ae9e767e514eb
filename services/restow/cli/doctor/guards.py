"""The ValidatingAdmissionPolicies that keep a stolen account from what RBAC cannot say, and what it means where one is missing."""

from __future__ import annotations

from typing import Literal

About = Literal["rights", "beside"]
BESIDE_AGAIN = "kubectl apply -k deploy/beside"
GUARDED = {
    "restow-guard": "which keeps a stolen account from other people's pods",
    "restow-guard-bindings": "which keeps a stolen account from writing annotations and labels into pods that it binds",
    "restow-guard-volumes": "which keeps a stolen account from giving away or deleting other people's volumes",
    "restow-guard-groups": "which keeps a stolen account from changing what other people's PodGroups and Queues are",
    "restow-guard-brokers": "which keeps `helm rollback` from another number of brokers, with which the log would be lost",
}
"""What each of the ValidatingAdmissionPolicies is for."""
GUARDED_BESIDE = {
    "restow-guard-holds": "which keeps a stolen account from making pods that preempt others, or go past the scheduler",
    "restow-guard-classes": "which keeps a stolen account from making priority classes for anybody",
    "restow-guard-priorities": "which keeps everybody's other pods from the priority classes of placeholders, a way around quotas",
}
"""The same of those that are there beside another scheduler only."""
GUARDED_CLAIMS = {
    "restow-guard-claims": "which keeps a stolen account from taking other people's devices",
    "restow-guard-placeholders": "which keeps a stolen account from reading Secrets by a pod, and from ending pods past their budgets, in namespaces whose pods may move with claims",
}
"""The same of those that are there where pods may move with ResourceClaims."""
GUARDED_NODES = {"restow-guard-nodes": "which keeps a stolen account from labels and taints of nodes"}
"""The same of the one that is there where services may mark nodes for autoscalers."""
UNGUARDED: dict[str, tuple[str, About, str]] = {
    **{name: (why, "rights", "helm upgrade with guard=true, or kubectl apply -f deploy/restow.yaml") for name, why in GUARDED.items()},
    **{name: (why, "beside", BESIDE_AGAIN) for name, why in GUARDED_BESIDE.items()},
    **{name: (why, "beside", "kubectl apply -k deploy/beside/claims") for name, why in GUARDED_CLAIMS.items()},
    **{name: (why, "rights", "helm upgrade with autoscalers.enabled=true, or kubectl apply -k deploy/autoscalers") for name, why in GUARDED_NODES.items()},
}
"""Policy → what it is for, what a finding about it is about, and how it is had again."""
