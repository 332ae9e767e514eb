"""Schemas for the OpenAPI documents: those of CRDs in full, those of built-in kinds open."""

from __future__ import annotations

from typing import Any

from restow.kubesim.objects import Obj, clone
from restow.kubesim.resources import Registry, Resource, served_versions

_META = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
_OPEN: Obj = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def _meta_schema() -> Obj:
    text: Obj = {"type": "string"}
    texts: Obj = {"type": "object", "additionalProperties": text}
    return {
        "description": "ObjectMeta is metadata that all persisted resources must have.",
        "type": "object",
        "properties": {
            "name": text, "generateName": text, "namespace": text, "uid": text, "resourceVersion": text,
            "selfLink": text, "creationTimestamp": text, "deletionTimestamp": text,
            "generation": {"type": "integer", "format": "int64"},
            "deletionGracePeriodSeconds": {"type": "integer", "format": "int64"},
            "labels": texts, "annotations": texts,
            "finalizers": {"type": "array", "items": text},
            "ownerReferences": {"type": "array", "items": {"type": "object"}},
            "managedFields": {"type": "array", "items": {"type": "object"}},
        },
    }  # fmt: skip


def _definition_name(resource: Resource, version: str) -> str:
    if resource.custom is not None or "." in resource.group:
        reverse = ".".join(reversed(resource.group.split(".")))
        return f"{reverse}.{version}.{resource.kind}"
    return f"io.k8s.api.{resource.group or 'core'}.{version}.{resource.kind}"


def _schema(resource: Resource, version: str, ref: str, *, v2: bool) -> Obj:
    if resource.custom is not None:
        schema = clone(resource.custom.versions[version].schema)
        schema.setdefault("type", "object")
        properties = schema.setdefault("properties", {})
        if v2:
            _simplify(schema)
    else:
        properties = {}
        schema = {
            "description": f"{resource.kind} ({resource.api_version}).",
            "type": "object",
            "properties": properties,
            "x-kubernetes-preserve-unknown-fields": True,
        }
        if resource.has_status or resource.generation:
            properties["spec"] = dict(_OPEN)
            properties["status"] = dict(_OPEN)
    properties["apiVersion"] = {"type": "string", "description": "APIVersion defines the versioned schema of this representation of an object."}  # fmt: skip
    properties["kind"] = {"type": "string", "description": "Kind is a string value representing the REST resource this object represents."}  # fmt: skip
    properties["metadata"] = (
        {"$ref": ref + _META} if v2 else {"allOf": [{"$ref": ref + _META}], "default": {}}
    )
    schema["x-kubernetes-group-version-kind"] = [_gvk(resource, version)]
    return schema


def _gvk(resource: Resource, version: str) -> Obj:
    return {"group": resource.group, "kind": resource.kind, "version": version}


def _simplify(schema: Any) -> None:
    """OpenAPI v2 knows no nullable, oneOf and anyOf."""
    if not isinstance(schema, dict):
        return
    for key in ("nullable", "oneOf", "anyOf", "allOf", "not", "x-kubernetes-validations"):
        schema.pop(key, None)
    if schema.get("x-kubernetes-preserve-unknown-fields") and "properties" not in schema:
        schema.pop("items", None)
    for sub in (schema.get("properties") or {}).values():
        _simplify(sub)
    _simplify(schema.get("items"))
    _simplify(schema.get("additionalProperties"))


def _path(resource: Resource, version: str) -> str:
    root = f"/apis/{resource.group}/{version}" if resource.group else f"/api/{version}"
    middle = "/namespaces/{namespace}" if resource.namespaced else ""
    return f"{root}{middle}/{resource.plural}"


def _query_parameters() -> list[Obj]:
    """kubectl looks for fieldValidation and dryRun on patch before it validates on the server."""
    names = ("dryRun", "fieldManager", "fieldValidation")
    return [{"name": name, "in": "query", "schema": {"type": "string"}} for name in names]


def _operations(resource: Resource, version: str, schema_ref: str, *, v2: bool) -> Obj:
    gvk = _gvk(resource, version)
    parameters = _query_parameters()
    if v2:
        parameters = [
            {"name": p["name"], "in": "query", "type": "string", "uniqueItems": True} for p in parameters
        ]
        ok: Obj = {"200": {"description": "OK", "schema": {"$ref": schema_ref}}}
    else:
        ok = {"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": schema_ref}}}}}

    def operation(action: str) -> Obj:
        return {
            "parameters": parameters,
            "responses": ok,
            "x-kubernetes-action": action,
            "x-kubernetes-group-version-kind": gvk,
        }

    collection, one = _path(resource, version), _path(resource, version) + "/{name}"
    return {
        collection: {"get": operation("list"), "post": operation("post")},
        one: {
            "get": operation("get"),
            "put": operation("put"),
            "patch": operation("patch"),
            "delete": operation("delete"),
        },
    }


def document_v2(registry: Registry) -> Obj:
    ref = "#/definitions/"
    definitions: Obj = {_META: _meta_schema()}
    paths: Obj = {}
    for resource in registry:
        for version in served_versions(resource):
            name = _definition_name(resource, version)
            definitions[name] = _schema(resource, version, ref, v2=True)
            paths |= _operations(resource, version, ref + name, v2=True)
    info = {"title": "Kubernetes", "version": "v1.36.0"}
    return {"swagger": "2.0", "info": info, "paths": paths, "definitions": definitions}


def document_v3(registry: Registry, group: str, version: str) -> Obj:
    ref = "#/components/schemas/"
    schemas: Obj = {_META: _meta_schema()}
    paths: Obj = {}
    for resource in registry:
        if resource.group != group or version not in served_versions(resource):
            continue
        name = _definition_name(resource, version)
        schemas[name] = _schema(resource, version, ref, v2=False)
        paths |= _operations(resource, version, ref + name, v2=False)
    info = {"title": "Kubernetes", "version": "v1.36.0"}
    return {"openapi": "3.0.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
