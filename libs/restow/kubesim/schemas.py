"""Structural schemas of custom resources: pruning, defaults, validation, with a real server's wording."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Any

from restow.kubesim.errors import Cause
from restow.kubesim.negotiate import encode
from restow.kubesim.objects import Obj, clone
from restow.kubesim.resources import Resource

Schema = dict[str, Any]
_ROOT_FIELDS = frozenset({"apiVersion", "kind", "metadata"})
_MAX_CAUSES = 50


def admit(resource: Resource, obj: Obj) -> list[Cause]:
    """Prune, default and validate a custom object in place; returns what is wrong with it."""
    assert resource.custom is not None
    schema = resource.custom.versions[resource.version].schema
    prune(schema, obj, root=True)
    apply_defaults(schema, obj)
    return check(schema, obj)


# -- pruning and defaults -----------------------------------------------------------------------------


def prune(schema: Schema, value: Any, *, root: bool = False) -> None:
    """Drop fields that the schema does not know."""
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        more = schema.get("additionalProperties")
        keep_unknown = schema.get("x-kubernetes-preserve-unknown-fields", False)
        whole = root or schema.get("x-kubernetes-embedded-resource", False)
        for key in list(value):
            if whole and key in _ROOT_FIELDS:
                continue
            if key in properties:
                prune(properties[key], value[key])
            elif isinstance(more, dict):
                prune(more, value[key])
            elif not keep_unknown and more is not True:
                del value[key]
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            prune(schema["items"], item)


def unknown_fields(schema: Schema, value: Any, path: str = "", *, root: bool = True) -> list[str]:
    """The paths that pruning would drop."""
    found: list[str] = []
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        more = schema.get("additionalProperties")
        whole = root or schema.get("x-kubernetes-embedded-resource", False)
        for key, item in value.items():
            if whole and key in _ROOT_FIELDS:
                continue
            below = f"{path}.{key}" if path else key
            if key in properties:
                found += unknown_fields(properties[key], item, below, root=False)
            elif isinstance(more, dict):
                found += unknown_fields(more, item, below, root=False)
            elif more is not True and not schema.get("x-kubernetes-preserve-unknown-fields"):
                found.append(below)
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            found += unknown_fields(schema["items"], item, f"{path}[{index}]", root=False)
    return found


def apply_defaults(schema: Schema, value: Any) -> None:
    """Fill missing fields; nulls of fields that are not nullable but have a default count as missing."""
    if isinstance(value, dict):
        for key, sub in (schema.get("properties") or {}).items():
            if "default" in sub and (key not in value or (value[key] is None and not sub.get("nullable"))):
                value[key] = clone(sub["default"])
            if key in value:
                apply_defaults(sub, value[key])
        more = schema.get("additionalProperties")
        if isinstance(more, dict):
            known = schema.get("properties") or {}
            for key in value:
                if key not in known:
                    apply_defaults(more, value[key])
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for item in value:
            apply_defaults(schema["items"], item)


# -- validation -----------------------------------------------------------------------------------------


def check(schema: Schema, obj: Obj) -> list[Cause]:
    """What is wrong with the object, as causes of a 422."""
    causes: list[Cause] = []
    _check(schema, obj, "", causes, root=True)
    return causes[:_MAX_CAUSES]


def _add(causes: list[Cause], reason: str, field: str, message: str) -> None:
    causes.append({"reason": reason, "message": message, "field": field})


def shown(value: Any) -> str:
    """A value as field.Error prints it."""
    if isinstance(value, str):
        return encode(value).decode()
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    return encode(value).decode()


def _invalid(causes: list[Cause], path: str, value: Any, why: str) -> None:
    _add(causes, "FieldValueInvalid", path, f"Invalid value: {shown(value)}: {_body(path)} {why}")


def _body(path: str) -> str:
    return f"{path} in body"


_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def _type_name(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    for name, types in _TYPES.items():
        if isinstance(value, types):
            return name
    return "unknown"


def _has_type(value: Any, wanted: str) -> bool:
    if isinstance(value, bool):
        return wanted == "boolean"
    if wanted == "integer" and isinstance(value, float):
        return value.is_integer()
    return isinstance(value, _TYPES.get(wanted, (object,)))


def _check(schema: Schema, value: Any, path: str, causes: list[Cause], *, root: bool = False) -> None:
    if value is None:
        if schema.get("nullable"):
            return
        if not schema.get("type") and not schema.get("x-kubernetes-int-or-string"):
            return
    wanted = schema.get("type")
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, int | str) or isinstance(value, bool):
            name = _type_name(value)
            text = f'Invalid value: "{name}": {_body(path)} must be of type integer,string: "{name}"'
            _add(causes, "FieldValueTypeInvalid", path, text)
            return
    elif wanted and not _has_type(value, wanted):
        name = _type_name(value)
        text = f'Invalid value: "{name}": {_body(path)} must be of type {wanted}: "{name}"'
        _add(causes, "FieldValueTypeInvalid", path, text)
        return
    if isinstance(value, dict):
        _check_object(schema, value, path, causes, root=root)
    elif isinstance(value, list):
        _check_array(schema, value, path, causes)
    elif isinstance(value, str):
        _check_string(schema, value, path, causes)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        _check_number(schema, value, path, causes)
    if "enum" in schema and value not in schema["enum"]:
        allowed = ", ".join(shown(item) for item in schema["enum"])
        text = f"Unsupported value: {shown(value)}: supported values: {allowed}"
        _add(causes, "FieldValueNotSupported", path, text)
    _check_logic(schema, value, path, causes)


def _check_object(schema: Schema, value: Obj, path: str, causes: list[Cause], *, root: bool) -> None:
    prefix = f"{path}." if path else ""
    for key in schema.get("required") or ():
        if key not in value:
            _add(causes, "FieldValueRequired", prefix + key, "Required value")
    if (least := schema.get("minProperties")) is not None and len(value) < least:
        _invalid(causes, path, value, f"should have at least {least} properties")
    if (most := schema.get("maxProperties")) is not None and len(value) > most:
        _add(causes, "FieldValueTooMany", path, f"Too many: {len(value)}: must have at most {most} items")
    properties = schema.get("properties") or {}
    more = schema.get("additionalProperties")
    for key, item in value.items():
        if root and key in _ROOT_FIELDS:
            continue
        if key in properties:
            _check(properties[key], item, prefix + key, causes)
        elif isinstance(more, dict):
            _check(more, item, prefix + key, causes)


def _check_array(schema: Schema, value: list[Any], path: str, causes: list[Cause]) -> None:
    if (least := schema.get("minItems")) is not None and len(value) < least:
        _invalid(causes, path, len(value), f"should have at least {least} items")
    if (most := schema.get("maxItems")) is not None and len(value) > most:
        _add(causes, "FieldValueTooMany", path, f"Too many: {len(value)}: must have at most {most} items")
    items = schema.get("items")
    if isinstance(items, dict):
        for index, item in enumerate(value):
            _check(items, item, f"{path}[{index}]", causes)
    keys = schema.get("x-kubernetes-list-map-keys")
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("map", "set"):
        return
    seen: list[Any] = []
    for index, item in enumerate(value):
        identity = (
            {key: item.get(key) for key in keys}
            if kind == "map" and keys and isinstance(item, dict)
            else item
        )
        if identity in seen:
            _add(causes, "FieldValueDuplicate", f"{path}[{index}]", f"Duplicate value: {shown(identity)}")
        seen.append(identity)


def _check_string(schema: Schema, value: str, path: str, causes: list[Cause]) -> None:
    if (most := schema.get("maxLength")) is not None and len(value) > most:
        _add(causes, "FieldValueTooLong", path, f"Too long: may not be more than {most} bytes")
    if (least := schema.get("minLength")) is not None and len(value) < least:
        _invalid(causes, path, value, f"should be at least {least} chars long")
    if (pattern := schema.get("pattern")) and not re.search(pattern, value):
        _invalid(causes, path, value, f"should match '{pattern}'")
    if (form := schema.get("format")) and form in _FORMATS and not _FORMATS[form](value):
        text = f"Invalid value: {shown(value)}: {_body(path)} must be of type {form}: {shown(value)}"
        _add(causes, "FieldValueTypeInvalid", path, text)


def _check_number(schema: Schema, value: float, path: str, causes: list[Cause]) -> None:
    if (least := schema.get("minimum")) is not None:
        if schema.get("exclusiveMinimum"):
            if value <= least:
                _invalid(causes, path, value, f"should be greater than {least}")
        elif value < least:
            _invalid(causes, path, value, f"should be greater than or equal to {least}")
    if (most := schema.get("maximum")) is not None:
        if schema.get("exclusiveMaximum"):
            if value >= most:
                _invalid(causes, path, value, f"should be less than {most}")
        elif value > most:
            _invalid(causes, path, value, f"should be less than or equal to {most}")
    if (step := schema.get("multipleOf")) and value % step:
        _invalid(causes, path, value, f"should be a multiple of {step}")
    limits = _INTEGERS.get(schema.get("format", ""))
    if limits and not limits[0] <= value <= limits[1]:
        _invalid(causes, path, value, f"must be of type {schema['format']}: {shown(value)}")


def _check_logic(schema: Schema, value: Any, path: str, causes: list[Cause]) -> None:
    def holds(sub: Schema) -> bool:
        found: list[Cause] = []
        _check(sub, value, path, found)
        return not found

    for sub in schema.get("allOf") or ():
        _check(sub, value, path, causes)
    if (any_of := schema.get("anyOf")) and not any(holds(sub) for sub in any_of):
        text = f'Invalid value: {shown(value)}: "{path}" must validate at least one schema (anyOf)'
        _add(causes, "FieldValueInvalid", path, text)
    if one_of := schema.get("oneOf"):
        count = sum(holds(sub) for sub in one_of)
        if count != 1:
            found = "none valid" if count == 0 else f"{count} valid alternatives"
            text = f'Invalid value: {shown(value)}: "{path}" must validate one and only one schema (oneOf). Found {found}'
            _add(causes, "FieldValueInvalid", path, text)
    if (no := schema.get("not")) and holds(no):
        text = f'Invalid value: {shown(value)}: "{path}" must not validate the schema (not)'
        _add(causes, "FieldValueInvalid", path, text)


_INTEGERS = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}
_UUID = re.compile(r"(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$")
_DURATION = re.compile(
    r"^[-+]?(\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h|d|w)((\d+(\.\d*)?|\.\d+)(ns|us|µs|ms|s|m|h))*$|^0$"
)
_DATE_TIME = re.compile(r"^\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)$")


def _is_date_time(text: str) -> bool:
    if not _DATE_TIME.match(text):
        return False
    try:
        datetime.fromisoformat(text.upper().replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return len(text) == 10


_FORMATS = {
    "date-time": _is_date_time,
    "date": _is_date,
    "uuid": lambda text: bool(_UUID.match(text)),
    "duration": lambda text: bool(_DURATION.match(text.replace(" ", ""))),
}
