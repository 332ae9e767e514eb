"""Table output: the columns that `kubectl get` shows (pkg/printers/internalversion)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from restow.kubesim import jsonpath, podrows, rows
from restow.kubesim.objects import Obj
from restow.kubesim.resources import Resource
from restow.kubesim.routes import RequestInfo

Row = Callable[[Obj, datetime], list[Any]]


@dataclass(frozen=True, slots=True)
class Columns:
    """`names` are `Name`, or `Name:type` and `Name+` for columns that only `-o wide` shows."""

    names: tuple[str, ...]
    row: Row


_TABLES: dict[tuple[str, str], Columns] = {
    ("", "pods"): Columns(
        ("Name", "Ready", "Status", "Restarts", "Age", "IP+", "Node+", "Nominated Node+", "Readiness Gates+"),
        podrows.pod,
    ),
    ("", "nodes"): Columns(
        ("Name", "Status", "Roles", "Age", "Version", "Internal-IP+", "External-IP+", "OS-Image+",
         "Kernel-Version+", "Container-Runtime+"),
        rows.node,
    ),
    ("", "namespaces"): Columns(("Name", "Status", "Age"), rows.namespace),
    ("", "events"): Columns(
        ("Last Seen", "Type", "Reason", "Object", "Subobject+", "Source+", "Message", "First Seen+", "Count+", "Name+"),
        rows.event,
    ),
    ("", "configmaps"): Columns(("Name", "Data", "Age"), rows.configmap),
    ("", "secrets"): Columns(("Name", "Type", "Data", "Age"), rows.secret),
    ("", "services"): Columns(
        ("Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector+"), rows.service
    ),
    ("", "serviceaccounts"): Columns(("Name", "Secrets", "Age"), rows.serviceaccount),
    ("", "endpoints"): Columns(("Name", "Endpoints", "Age"), rows.endpoints),
    ("", "persistentvolumes"): Columns(
        ("Name", "Capacity", "Access Modes", "Reclaim Policy", "Status", "Claim", "StorageClass",
         "VolumeAttributesClass", "Reason", "Age", "VolumeMode+"),
        rows.volume,
    ),
    ("", "persistentvolumeclaims"): Columns(
        ("Name", "Status", "Volume", "Capacity", "Access Modes", "StorageClass", "VolumeAttributesClass", "Age",
         "VolumeMode+"),
        rows.claim,
    ),
    ("", "replicationcontrollers"): Columns(
        ("Name", "Desired:integer", "Current:integer", "Ready:integer", "Age", "Containers+", "Images+", "Selector+"),
        rows.replicaset,
    ),
    ("", "resourcequotas"): Columns(("Name", "Request", "Limit", "Age"), rows.quota),
    ("", "limitranges"): Columns(("Name", "Created At"), rows.created_at),
    ("apps", "deployments"): Columns(
        ("Name", "Ready", "Up-to-date", "Available", "Age", "Containers+", "Images+", "Selector+"), rows.deployment
    ),
    ("apps", "replicasets"): Columns(
        ("Name", "Desired:integer", "Current:integer", "Ready:integer", "Age", "Containers+", "Images+", "Selector+"),
        rows.replicaset,
    ),
    ("apps", "statefulsets"): Columns(("Name", "Ready", "Age", "Containers+", "Images+"), rows.statefulset),
    ("apps", "daemonsets"): Columns(
        ("Name", "Desired:integer", "Current:integer", "Ready:integer", "Up-to-date:integer", "Available:integer",
         "Node Selector", "Age", "Containers+", "Images+", "Selector+"),
        rows.daemonset,
    ),
    ("apps", "controllerrevisions"): Columns(("Name", "Controller", "Revision:integer", "Age"), rows.revision),
    ("batch", "jobs"): Columns(
        ("Name", "Status", "Completions", "Duration", "Age", "Containers+", "Images+", "Selector+"), rows.job
    ),
    ("batch", "cronjobs"): Columns(
        ("Name", "Schedule", "Timezone", "Suspend:boolean", "Active:integer", "Last Schedule", "Age", "Containers+",
         "Images+", "Selector+"),
        rows.cronjob,
    ),
    ("policy", "poddisruptionbudgets"): Columns(
        ("Name", "Min Available", "Max Unavailable", "Allowed Disruptions:integer", "Age"), rows.budget
    ),
    ("coordination.k8s.io", "leases"): Columns(("Name", "Holder", "Age"), rows.lease),
    ("scheduling.k8s.io", "priorityclasses"): Columns(
        ("Name", "Value:integer", "Global-Default:boolean", "Age", "PreemptionPolicy"), rows.priorityclass
    ),
    ("storage.k8s.io", "storageclasses"): Columns(
        ("Name", "Provisioner", "ReclaimPolicy", "VolumeBindingMode", "AllowVolumeExpansion", "Age"),
        rows.storageclass,
    ),
    ("storage.k8s.io", "csinodes"): Columns(("Name", "Drivers:integer", "Age"), rows.csinode),
    ("storage.k8s.io", "csidrivers"): Columns(
        ("Name", "AttachRequired:boolean", "PodInfoOnMount:boolean", "StorageCapacity:boolean", "TokenRequests",
         "RequiresRepublish:boolean", "Modes", "Age"),
        rows.csidriver,
    ),
    ("resource.k8s.io", "resourceslices"): Columns(("Name", "Node", "Driver", "Pool", "Age"), rows.resource_slice),
    ("resource.k8s.io", "resourceclaims"): Columns(("Name", "State", "Age"), rows.resource_claim),
    ("apiextensions.k8s.io", "customresourcedefinitions"): Columns(("Name", "Created At"), rows.created_at),
    **{("rbac.authorization.k8s.io", plural): Columns(("Name", "Created At"), rows.created_at) for plural in ("roles", "clusterroles")},
    **{
        ("rbac.authorization.k8s.io", plural): Columns(("Name", "Role", "Age", "Users+", "Groups+", "ServiceAccounts+"), rows.role_binding)
        for plural in ("rolebindings", "clusterrolebindings")
    },
    ("admissionregistration.k8s.io", "mutatingadmissionpolicies"): Columns(
        ("Name", "Mutations:integer", "ParamKind", "Age"), rows.admission_policy
    ),
    ("admissionregistration.k8s.io", "validatingadmissionpolicies"): Columns(
        ("Name", "Validations:integer", "ParamKind", "Age"), rows.admission_policy
    ),
    **{
        ("admissionregistration.k8s.io", plural): Columns(("Name", "PolicyName", "ParamRef", "Age"), rows.admission_binding)
        for plural in ("mutatingadmissionpolicybindings", "validatingadmissionpolicybindings")
    },
    ("metrics.k8s.io", "nodes"): Columns(("Name", "cpu", "memory", "Window"), rows.node_metrics),
    ("metrics.k8s.io", "pods"): Columns(("Name", "cpu", "memory", "Window"), rows.pod_metrics),
}  # fmt: skip
_DEFAULT = Columns(("Name", "Age"), rows.plain)


def columns_of(resource: Resource, version: str) -> Columns:
    """The columns of a resource; those of a CRD come from its additionalPrinterColumns."""
    if resource.custom is None:
        return _TABLES.get(resource.key, _DEFAULT)
    custom = resource.custom.versions.get(version) or resource.custom.versions[resource.version]
    if not custom.columns:
        return _DEFAULT
    extra = custom.columns
    paths = [(column["jsonPath"], column.get("type", "string")) for column in extra]

    def row(obj: Obj, now: datetime) -> list[Any]:
        return [obj["metadata"]["name"], *(jsonpath.cell(obj, path, kind, now) for path, kind in paths)]

    names = [f"{c['name']}:{c.get('type', 'string')}{'+' if c.get('priority') else ''}" for c in extra]
    return Columns(("Name", *names), row)


_AGE = (
    "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed "
    "to be set in happens-before order across separate operations. Clients may not set this value. It is represented "
    "in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists."
)


def _definition(text: str) -> Obj:
    wide = text.endswith("+")
    name, _, kind = text.rstrip("+").partition(":")
    kind = kind or "string"
    what = _AGE if name == "Age" else name
    form = "name" if name == "Name" else ""
    if kind == "date":
        kind = "string"
    return {"name": name, "type": kind, "format": form, "description": what, "priority": 1 if wide else 0}


def render(info: RequestInfo, objs: Sequence[Obj], now: datetime, include: str, version: str) -> Obj:
    """The metav1.Table of some objects. `include` is None, Metadata or Object."""
    columns = columns_of(info.resource, info.version)
    table_rows = []
    for obj in objs:
        row: Obj = {"cells": _cells(columns, obj, now)}
        if include == "Object":
            row["object"] = info.show(obj)
        elif include == "Metadata":
            row["object"] = {
                "kind": "PartialObjectMetadata",
                "apiVersion": f"meta.k8s.io/{version or 'v1'}",
                "metadata": obj["metadata"],
            }
        if conditions := _conditions(info.resource, obj):
            row["conditions"] = conditions
        table_rows.append(row)
    versions = [obj["metadata"].get("resourceVersion") for obj in objs]
    # An object of a dry run has no version yet.
    meta = {"resourceVersion": versions[0]} if len(versions) == 1 and versions[0] else {}
    return {
        "kind": "Table",
        "apiVersion": f"meta.k8s.io/{version or 'v1'}",
        "metadata": meta,
        "columnDefinitions": [_definition(name) for name in columns.names],
        "rows": table_rows,
    }


def _cells(columns: Columns, obj: Obj, now: datetime) -> list[Any]:
    try:
        return columns.row(obj, now)
    except (AttributeError, KeyError, TypeError, ValueError):
        # Built-in kinds have open schemas here; an odd object must not hide the others.
        return [obj["metadata"]["name"], *("<unknown>" for _ in columns.names[1:])]


def _conditions(resource: Resource, obj: Obj) -> list[Obj]:
    if resource.plural != "pods":
        return []
    phase = (obj.get("status") or {}).get("phase")
    if phase not in ("Succeeded", "Failed"):
        return []
    text = "The pod has completed successfully." if phase == "Succeeded" else "The pod failed."
    return [{"type": "Completed", "status": "True", "reason": phase, "message": text}]
