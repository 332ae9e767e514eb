"""Small objects that the tests create."""

from __future__ import annotations

from typing import Any

Obj = dict[str, Any]


def config_map(name: str, **data: str) -> Obj:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def pod(name: str, *, labels: Obj | None = None, **spec: Any) -> Obj:
    container = {"name": "c", "image": "registry.k8s.io/pause:3.9"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels or {}},
        # No scheduler answers to this name, so nothing but the test binds the pod.
        "spec": {
            "schedulerName": "nobody",
            "automountServiceAccountToken": False,
            "containers": [container],
            **spec,
        },
    }


def deployment(name: str, replicas: int = 1) -> Obj:
    labels = {"app": name}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def budget(name: str, labels: Obj, **spec: Any) -> Obj:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": labels}, **spec},
    }


def node(name: str) -> Obj:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}


def binding(name: str, to: str, **meta: Any) -> Obj:
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name, **meta},
        "target": {"kind": "Node", "name": to},
    }


def eviction(name: str, **options: Any) -> Obj:
    body: Obj = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
    return {**body, "deleteOptions": options} if options else body


def crd(group: str, *, schema: Obj | None = None, **version: Any) -> Obj:
    """`widgets.<group>`, namespaced, version v1."""
    spec_schema = schema or {"type": "object", "properties": {"size": {"type": "integer"}}}
    properties = {
        "spec": spec_schema,
        "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
    }
    one = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
        **version,
    }
    names = {
        "plural": "widgets",
        "singular": "widget",
        "kind": "Widget",
        "shortNames": ["wd"],
        "categories": ["all"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"widgets.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [one]},
    }


def widget(group: str, name: str, **spec: Any) -> Obj:
    return {"apiVersion": f"{group}/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec}
