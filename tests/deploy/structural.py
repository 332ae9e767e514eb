"""The rules of structural schemas (apiextensions.k8s.io/v1), and validation of objects by one, without an API server."""

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft7Validator

Schema = dict[str, Any]

FORBIDDEN = {
    "$ref", "$schema", "id", "definitions", "dependencies", "deprecated", "discriminator", "patternProperties",
    "readOnly", "writeOnly", "xml", "const", "if", "then", "else", "contains", "propertyNames",
}  # fmt: skip
KNOWN = {
    "description", "title", "type", "format", "default", "enum", "nullable", "example", "externalDocs",
    "properties", "required", "additionalProperties", "minProperties", "maxProperties",
    "items", "minItems", "maxItems", "uniqueItems",
    "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength", "pattern",
    "allOf", "anyOf", "oneOf", "not",
    "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string", "x-kubernetes-embedded-resource",
    "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations",
}  # fmt: skip
TYPES = {"object", "array", "string", "integer", "number", "boolean"}
PRESERVE, INT_OR_STRING = "x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"
_INT_OR_STRING_FORM = [{"type": "integer"}, {"type": "string"}]
_NOT_IN_LOGIC = {"description", "type", "default", "additionalProperties", "nullable", PRESERVE, INT_OR_STRING}


def problems(root: Schema) -> list[str]:
    """One line a violation of the rules; empty for a structural schema."""
    found = [] if root.get("type") == "object" else ["the root must be of type object"]
    metadata = root.get("properties", {}).get("metadata", {"type": "object"})
    if set(metadata) - {"type", "description"} or metadata.get("type") != "object":
        found.append("metadata: only `type: object` is allowed here")
    return found + [line for path, part in walk(root) for line in _one(path, part)]


def walk(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Every schema inside this one, with its path, logic (anyOf and the like) left out."""
    yield path or ".", schema
    for name, part in schema.get("properties", {}).items():
        yield from walk(part, f"{path}.{name}")
    if isinstance(schema.get("items"), dict):
        yield from walk(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from walk(schema["additionalProperties"], f"{path}.*")


def _one(path: str, part: Schema) -> list[str]:
    found = [f"{path}: {k} is forbidden" for k in sorted(FORBIDDEN & set(part))]
    found += [f"{path}: {k} is unknown" for k in sorted(set(part) - KNOWN - FORBIDDEN)]
    free = part.get(INT_OR_STRING) or part.get(PRESERVE)
    if part.get("type") not in TYPES and not (free and "type" not in part):
        found.append(f"{path}: type {part.get('type')!r}; allowed: {', '.join(sorted(TYPES))}")
    if part.get(INT_OR_STRING) and "type" in part:
        found.append(f"{path}: no type beside {INT_OR_STRING}")
    if PRESERVE in part and part[PRESERVE] is not True:
        found.append(f"{path}: {PRESERVE} can only be true")
    if part.get("type") == "array" and not isinstance(part.get("items"), dict):
        found.append(f"{path}: an array needs items")
    if part.get("uniqueItems") or part.get("additionalProperties") in (True, False):
        found.append(f"{path}: uniqueItems and boolean additionalProperties are forbidden")
    if "properties" in part and "additionalProperties" in part:
        found.append(f"{path}: properties and additionalProperties exclude each other")
    found += [f"{path}: required {r} is no property" for r in part.get("required", []) if r not in part["properties"]]
    return found + _lists(path, part) + _logic(path, part) + _default(path, part)


def _lists(path: str, part: Schema) -> list[str]:
    if part.get("x-kubernetes-list-type") != "map":
        return [f"{path}: keys without list type map"] if "x-kubernetes-list-map-keys" in part else []
    found = []
    for key in part.get("x-kubernetes-list-map-keys", []):
        field = part["items"].get("properties", {}).get(key, {})
        if field.get("type") not in {"string", "integer", "boolean"}:
            found.append(f"{path}: key {key} must be a scalar property")
        if key not in part["items"].get("required", []) and "default" not in field:
            found.append(f"{path}: key {key} must be required or have a default")
    return found if part.get("x-kubernetes-list-map-keys") else [*found, f"{path}: a list map needs keys"]


def _logic(path: str, part: Schema) -> list[str]:
    if part.get(INT_OR_STRING) and part.get("anyOf") == _INT_OR_STRING_FORM:
        part = {k: v for k, v in part.items() if k != "anyOf"}
    branches = [b for key in ("allOf", "anyOf", "oneOf") for b in part.get(key, [])]
    branches += [part["not"]] if "not" in part else []
    return [f"{path}: {k} is not allowed in logic" for b in branches for k in sorted(_NOT_IN_LOGIC & set(b))]


def _default(path: str, part: Schema) -> list[str]:
    if "default" not in part:
        return []
    return [f"{path}: default: {e.message}" for e in Draft7Validator(strict(part)).iter_errors(part["default"])]


def strict(schema: Schema) -> Schema:
    """A JSON Schema that also refuses what an API server would prune."""
    made = {k: v for k, v in schema.items() if not k.startswith("x-kubernetes-")}
    if "properties" in schema:
        made["properties"] = {k: strict(v) for k, v in schema["properties"].items()}
        if not schema.get(PRESERVE):
            made["additionalProperties"] = False
    if isinstance(schema.get("additionalProperties"), dict):
        made["additionalProperties"] = strict(schema["additionalProperties"])
    if isinstance(schema.get("items"), dict):
        made["items"] = strict(schema["items"])
    return made


def errors(schema: Schema, obj: dict[str, Any]) -> list[str]:
    """What an API server would refuse or prune of this object, as `path: message`. CEL rules are not evaluated."""
    body = strict(schema)
    body["properties"]["metadata"] = {"type": "object"}
    return [f"{e.json_path}: {e.message}" for e in Draft7Validator(body).iter_errors(obj)]


def at(schema: Schema, json_path: str) -> Schema | None:
    """The schema at a simple path such as `.status.phase`; None where it leads nowhere."""
    here: Schema | None = schema
    for step in json_path.strip(".").split("."):
        here = (here or {}).get("properties", {}).get(step)
    return here
