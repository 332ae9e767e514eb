"""CustomResourceDefinitions and their objects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from kubesim.conformance.harness import MERGE, STRATEGIC, TABLE, Api, unique
from kubesim.conformance.objects import crd, widget

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
Define = Callable[..., Awaitable[str]]

SCHEMA = {
    "type": "object",
    "required": ["size"],
    "properties": {
        "size": {"type": "integer", "minimum": 1, "maximum": 9},
        "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
        "code": {"type": "string", "pattern": "^[a-z]+$", "minLength": 2, "maxLength": 4},
        "tags": {"type": "array", "maxItems": 2, "items": {"type": "string"}},
        "when": {"type": "string", "format": "date-time"},
        "limit": {"x-kubernetes-int-or-string": True},
        "maybe": {"type": "string", "nullable": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "replicas": {"type": "integer"},
    },
}


@pytest.fixture
async def define(api: Api) -> AsyncIterator[Define]:
    """Creates a definition in a group of its own, waits until it is served, removes it afterwards."""
    made: list[str] = []

    async def create(**version: Any) -> str:
        group = f"{unique('g')}.example.com"
        await api.ok("POST", DEFINITIONS, crd(group, **version))
        made.append(group)
        async with asyncio.timeout(20):
            while True:
                found = await api.ok("GET", f"{DEFINITIONS}/widgets.{group}")
                state = {c["type"]: c["status"] for c in (found.get("status") or {}).get("conditions") or ()}
                ready = (await api.call("GET", f"/apis/{group}/v1/widgets")).status == 200
                if state.get("Established") == "True" and ready:
                    return group
                await asyncio.sleep(0.02)

    yield create
    for group in made:
        await api.call("DELETE", f"{DEFINITIONS}/widgets.{group}")


async def test_established(api: Api, define: Define) -> None:
    """KS-180"""
    group = await define()
    found = await api.ok("GET", f"{DEFINITIONS}/widgets.{group}")
    conditions = {item["type"]: item["status"] for item in found["status"]["conditions"]}
    assert (conditions["Established"], conditions["NamesAccepted"]) == ("True", "True")
    assert found["status"]["storedVersions"] == ["v1"]
    assert found["status"]["acceptedNames"]["listKind"] == "WidgetList"
    listed = (await api.ok("GET", f"/apis/{group}/v1"))["resources"]
    assert listed[0]["name"] == "widgets"
    assert listed[0]["shortNames"] == ["wd"]


async def test_defaults_and_pruning(api: Api, ns: str, define: Define) -> None:
    """KS-181"""
    group = await define(schema=SCHEMA)
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    made = await api.ok("POST", path, widget(group, "w", size=1, unknown=True, free={"any": ["thing"]}))
    assert made["spec"] == {"size": 1, "color": "red", "free": {"any": ["thing"]}}


@pytest.mark.parametrize(
    ("spec", "field", "reason", "message"),
    [
        ({}, "spec.size", "FieldValueRequired", "Required value"),
        ({"size": 0}, "spec.size", "FieldValueInvalid",
         "Invalid value: 0: spec.size in body should be greater than or equal to 1"),
        ({"size": 10}, "spec.size", "FieldValueInvalid",
         "Invalid value: 10: spec.size in body should be less than or equal to 9"),
        ({"size": "x"}, "spec.size", "FieldValueTypeInvalid",
         'Invalid value: "string": spec.size in body must be of type integer: "string"'),
        ({"size": 1, "color": "green"}, "spec.color", "FieldValueNotSupported",
         'Unsupported value: "green": supported values: "red", "blue"'),
        ({"size": 1, "code": "AB"}, "spec.code", "FieldValueInvalid",
         "Invalid value: \"AB\": spec.code in body should match '^[a-z]+$'"),
        ({"size": 1, "code": "a"}, "spec.code", "FieldValueInvalid",
         'Invalid value: "a": spec.code in body should be at least 2 chars long'),
        ({"size": 1, "tags": ["a", "b", "c"]}, "spec.tags", "FieldValueTooMany", "Too many: 3: must have at most 2 items"),
        ({"size": 1, "when": "soon"}, "spec.when", "FieldValueTypeInvalid",
         'Invalid value: "soon": spec.when in body must be of type date-time: "soon"'),
        ({"size": 1, "limit": True}, "spec.limit", "FieldValueTypeInvalid",
         'Invalid value: "boolean": spec.limit in body must be of type integer,string: "boolean"'),
    ],
)  # fmt: skip
async def test_validation(
    api: Api, ns: str, define: Define, spec: Any, field: str, reason: str, message: str
) -> None:
    """KS-182"""
    group = await define(schema=SCHEMA)
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    body = await api.fails(422, "Invalid", "POST", path, widget(group, "w", **spec))
    assert {"field": field, "reason": reason, "message": message} in body["details"]["causes"]
    assert body["message"].startswith(f'Widget.{group} "w" is invalid: ')
    assert body["details"] | {"causes": 0} == {"name": "w", "group": group, "kind": "Widget", "causes": 0}


async def test_what_validation_lets_through(api: Api, ns: str, define: Define) -> None:
    """KS-183"""
    group = await define(schema=SCHEMA)
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    spec = {"size": 1, "limit": "5%", "maybe": None, "when": "2026-01-01T00:00:00Z"}
    made = await api.ok("POST", path, widget(group, "w", **spec))
    assert made["spec"] == {**spec, "color": "red"}


async def test_status(api: Api, ns: str, define: Define) -> None:
    """KS-184"""
    group = await define(subresources={"status": {}})
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    made = await api.ok("POST", path, {**widget(group, "w", size=1), "status": {"replicas": 1}})
    assert "status" not in made
    change = {"status": {"replicas": 2}, "spec": {"size": 5}}
    changed = await api.ok("PATCH", f"{path}/w/status", change, media=MERGE)
    assert (changed["status"], changed["spec"]) == ({"replicas": 2}, {"size": 1})
    assert changed["metadata"]["generation"] == 1
    changed = await api.ok("PATCH", f"{path}/w", change, media=MERGE)
    assert (changed["status"], changed["spec"]) == ({"replicas": 2}, {"size": 5})
    assert changed["metadata"]["generation"] == 2


async def test_without_status_subresource(api: Api, ns: str, define: Define) -> None:
    """KS-185"""
    group = await define()
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    made = await api.ok("POST", path, {**widget(group, "w", size=1), "status": {"replicas": 1}})
    assert made["status"] == {"replicas": 1}
    assert (await api.call("GET", f"{path}/w/status")).status == 404


async def test_scale(api: Api, ns: str, define: Define) -> None:
    """KS-186"""
    scale = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
    group = await define(schema=SCHEMA, subresources={"status": {}, "scale": scale})
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    await api.ok("POST", path, widget(group, "w", size=1, replicas=2))
    assert (await api.ok("GET", f"{path}/w/scale"))["spec"]["replicas"] == 2
    await api.ok("PATCH", f"{path}/w/scale", {"spec": {"replicas": 4}}, media=MERGE)
    assert (await api.ok("GET", f"{path}/w"))["spec"]["replicas"] == 4


async def test_printer_columns(api: Api, ns: str, define: Define) -> None:
    """KS-187"""
    columns = [
        {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
        {"name": "Wide", "type": "string", "jsonPath": ".spec.color", "priority": 1},
    ]
    group = await define(schema=SCHEMA, additionalPrinterColumns=columns)
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    await api.ok("POST", path, widget(group, "w", size=3))
    table = await api.ok("GET", path, accept=TABLE)
    assert [item["name"] for item in table["columnDefinitions"]] == ["Name", "Size", "Age", "Wide"]
    assert [item["priority"] for item in table["columnDefinitions"]] == [0, 0, 0, 1]
    cells = table["rows"][0]["cells"]
    assert (cells[0], cells[1], cells[3]) == ("w", 3, "red")


async def test_no_strategic_patch(api: Api, ns: str, define: Define) -> None:
    """KS-188"""
    group = await define()
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    await api.ok("POST", path, widget(group, "w", size=1))
    await api.fails(415, "UnsupportedMediaType", "PATCH", f"{path}/w", {"spec": {}}, media=STRATEGIC)


async def test_updates_need_a_version(api: Api, ns: str, define: Define) -> None:
    """KS-189"""
    group = await define()
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    await api.ok("POST", path, widget(group, "w", size=1))
    body = await api.fails(422, "Invalid", "PUT", f"{path}/w", widget(group, "w", size=2))
    assert "metadata.resourceVersion: Invalid value: " in body["message"]
    assert body["message"].endswith("must be specified for an update")


async def test_strict_fields(api: Api, ns: str, define: Define) -> None:
    """KS-190"""
    group = await define(schema=SCHEMA)
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets?fieldValidation=Strict"
    body = await api.fails(400, "BadRequest", "POST", path, widget(group, "w", size=1, nope=1))
    assert 'strict decoding error: unknown field "spec.nope"' in body["message"]


async def test_versions(api: Api, ns: str, define: Define) -> None:
    """KS-191"""
    group = f"{unique('g')}.example.com"
    made = crd(group)
    second = {**made["spec"]["versions"][0], "name": "v1beta1", "storage": False}
    made["spec"]["versions"].append(second)
    await api.ok("POST", DEFINITIONS, made)
    try:
        async with asyncio.timeout(20):
            while (await api.call("GET", f"/apis/{group}/v1beta1/widgets")).status != 200:
                await asyncio.sleep(0.02)
        await api.ok("POST", f"/apis/{group}/v1/namespaces/{ns}/widgets", widget(group, "w", size=1))
        shown = await api.ok("GET", f"/apis/{group}/v1beta1/namespaces/{ns}/widgets/w")
        assert shown["apiVersion"] == f"{group}/v1beta1"
        versions = (await api.ok("GET", f"/apis/{group}"))["versions"]
        assert [item["version"] for item in versions] == ["v1", "v1beta1"]
    finally:
        await api.ok("DELETE", f"{DEFINITIONS}/widgets.{group}")


async def test_bad_definitions(api: Api) -> None:
    """KS-192"""
    bad = crd("bad.example.com")
    bad["metadata"]["name"] = "other.bad.example.com"
    body = await api.fails(422, "Invalid", "POST", DEFINITIONS, bad)
    assert 'must be spec.names.plural+"."+spec.group' in body["message"]
    bad = crd("bad.example.com")
    del bad["spec"]["versions"][0]["schema"]
    body = await api.fails(422, "Invalid", "POST", DEFINITIONS, bad)
    assert "spec.versions[0].schema.openAPIV3Schema: Required value" in body["message"]
    bad = crd("bad.example.com")
    bad["spec"]["versions"][0]["storage"] = False
    body = await api.fails(422, "Invalid", "POST", DEFINITIONS, bad)
    assert "must have exactly one version marked as storage version" in body["message"]


async def test_deletion_takes_the_objects(api: Api, ns: str, define: Define) -> None:
    """KS-193"""
    group = await define()
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    await api.ok("POST", path, widget(group, "w", size=1))
    await api.ok("DELETE", f"{DEFINITIONS}/widgets.{group}")
    async with asyncio.timeout(20):
        while (await api.call("GET", path)).status != 404:
            await asyncio.sleep(0.02)
        while (await api.call("GET", f"{DEFINITIONS}/widgets.{group}")).status != 404:
            await asyncio.sleep(0.02)


async def test_watch(api: Api, ns: str, define: Define) -> None:
    """KS-194"""
    group = await define()
    path = f"/apis/{group}/v1/namespaces/{ns}/widgets"
    rv = (await api.ok("GET", path))["metadata"]["resourceVersion"]
    async with api.watch(path, resourceVersion=rv) as watch:
        await api.ok("POST", path, widget(group, "w", size=1))
        event = await watch.next()
    assert (event["type"], event["object"]["kind"]) == ("ADDED", "Widget")
