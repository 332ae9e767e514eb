"""/api and /apis: plain and aggregated discovery, and the server's version."""

from __future__ import annotations

import re
from typing import Any

from restow.kubesim.errors import no_such_path
from restow.kubesim.objects import Obj
from restow.kubesim.resources import Registry, Resource, served_versions

VERSION = {
    "major": "1",
    "minor": "36",
    "gitVersion": "v1.36.0+kubesim",
    "gitCommit": "0000000000000000000000000000000000000000",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "none",
    "compiler": "none",
    "platform": "python",
}

# Kinds and verbs of subresources that differ from their resource's: (group, version, kind, verbs).
_SUB_KINDS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "scale": ("autoscaling", "v1", "Scale", ("get", "patch", "update")),
    "binding": ("", "v1", "Binding", ("create",)),
    "eviction": ("policy", "v1", "Eviction", ("create",)),
}
_SUB_VERBS = {"finalize": ("update",), "log": ("get",)}
REVIEWS = {
    "selfsubjectaccessreviews": "SelfSubjectAccessReview",
    "subjectaccessreviews": "SubjectAccessReview",
    "localsubjectaccessreviews": "LocalSubjectAccessReview",
    "selfsubjectrulesreviews": "SelfSubjectRulesReview",
}
AUTHORIZATION = "authorization.k8s.io"
_GROUP_ORDER = ("", "apiregistration.k8s.io", "apps", "events.k8s.io", AUTHORIZATION, "batch", "policy")


def _review_resources() -> list[Obj]:
    return [
        {"name": plural, "singularName": kind.lower(), "namespaced": plural.startswith("local"), "kind": kind,
         "verbs": ["create"]}
        for plural, kind in sorted(REVIEWS.items())
    ]  # fmt: skip


def groups(registry: Registry) -> dict[str, dict[str, list[Resource]]]:
    """group -> version -> resources, versions with the preferred one first."""
    found: dict[str, dict[str, list[Resource]]] = {}
    for resource in registry:
        for version in served_versions(resource):
            found.setdefault(resource.group, {}).setdefault(version, []).append(resource)
    found.setdefault(AUTHORIZATION, {"v1": []})
    order = sorted(found, key=lambda g: (_GROUP_ORDER.index(g) if g in _GROUP_ORDER else 99, g))
    return {
        group: {version: found[group][version] for version in sorted(found[group], key=version_rank)}
        for group in order
    }


def version_rank(version: str) -> tuple[int, int, int, str]:
    """v2 before v1 before v1beta2 before v1beta1 before v1alpha1."""
    matched = re.fullmatch(r"v(\d+)(?:(alpha|beta)(\d+))?", version)
    if matched is None:
        return (3, 0, 0, version)
    stage = {None: 0, "beta": 1, "alpha": 2}[matched[2]]
    return (stage, -int(matched[1]), -int(matched[3] or 0), version)


def _subresources(resource: Resource, version: str) -> list[str]:
    if resource.custom is None:
        return sorted(resource.subresources)
    custom = resource.custom.versions[version]
    return [name for name, has in (("scale", custom.scale), ("status", custom.status)) if has]


def _sub_entry(resource: Resource, name: str) -> tuple[Obj, list[str]]:
    kind: Obj = {}
    if name in _SUB_KINDS:
        group, version, kind_name, verbs = _SUB_KINDS[name]
        kind = {"group": group, "version": version, "kind": kind_name}
        return kind, list(verbs)
    return kind, list(_SUB_VERBS.get(name, ("get", "patch", "update")))


def resource_list(registry: Registry, group: str, version: str) -> Obj:
    """APIResourceList of one group version; 404 if it is not served."""
    members = groups(registry).get(group, {}).get(version)
    if members is None:
        raise no_such_path()
    entries: list[Obj] = _review_resources() if group == AUTHORIZATION else []
    for resource in sorted(members, key=lambda r: r.plural):
        entry: Obj = {
            "name": resource.plural,
            "singularName": resource.singular,
            "namespaced": resource.namespaced,
            "kind": resource.kind,
            "verbs": list(resource.verbs),
        }
        if resource.short_names:
            entry["shortNames"] = list(resource.short_names)
        if resource.categories:
            entry["categories"] = list(resource.categories)
        entries.append(entry)
        for name in _subresources(resource, version):
            kind, verbs = _sub_entry(resource, name)
            sub: Obj = {
                "name": f"{resource.plural}/{name}",
                "singularName": "",
                "namespaced": resource.namespaced,
            }
            if kind:
                sub |= {key: value for key, value in kind.items() if value}
            else:
                sub["kind"] = resource.kind
            entries.append({**sub, "verbs": verbs})
    group_version = f"{group}/{version}" if group else version
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": group_version,
        "resources": entries,
    }


def api_versions(host: str) -> Obj:
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": host}],
    }


def _group(name: str, versions: list[str]) -> Obj:
    listed = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}


def group_list(registry: Registry) -> Obj:
    found = [_group(name, list(versions)) for name, versions in groups(registry).items() if name]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": found}


def one_group(registry: Registry, name: str) -> Obj:
    versions = groups(registry).get(name)
    if not name or versions is None:
        raise no_such_path()
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, list(versions))}


def aggregated(registry: Registry, *, core: bool, version: str) -> Obj:
    """APIGroupDiscoveryList for /api (`core`) or /apis."""
    items = []
    for group, versions in groups(registry).items():
        if core != (group == ""):
            continue
        listed: list[Any] = []
        for name, members in versions.items():
            resources = [_discovered(resource, name) for resource in sorted(members, key=lambda r: r.plural)]
            if group == AUTHORIZATION:
                resources = [_discovered_review(plural, kind) for plural, kind in sorted(REVIEWS.items())]
            listed.append({"version": name, "resources": resources, "freshness": "Current"})
        meta: Obj = {"name": group, "creationTimestamp": None} if group else {"creationTimestamp": None}
        items.append({"metadata": meta, "versions": listed})
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _discovered_review(plural: str, kind: str) -> Obj:
    return {
        "resource": plural,
        "responseKind": {"group": "", "version": "", "kind": kind},
        "scope": "Namespaced" if plural.startswith("local") else "Cluster",
        "singularResource": kind.lower(),
        "verbs": ["create"],
    }


def _discovered(resource: Resource, version: str) -> Obj:
    entry: Obj = {
        "resource": resource.plural,
        "responseKind": {"group": "", "version": "", "kind": resource.kind},  # empty: those of the list around it
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": list(resource.verbs),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    subs = []
    for name in _subresources(resource, version):
        kind, verbs = _sub_entry(resource, name)
        response = kind or {"group": "", "version": "", "kind": resource.kind}
        subs.append({"subresource": name, "responseKind": response, "verbs": verbs})
    if subs:
        entry["subresources"] = subs
    return entry
