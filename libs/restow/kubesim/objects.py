"""Small helpers on plain JSON objects."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

Obj = dict[str, Any]


class MalformedError(ValueError):
    """A body whose field has the wrong type."""


def clone(value: Any) -> Any:
    """A deep copy of a JSON value; several times faster than copy.deepcopy."""
    kind = type(value)
    if kind is dict:
        return {key: clone(item) if type(item) in _NESTED else item for key, item in value.items()}
    if kind is list:
        return [clone(item) if type(item) in _NESTED else item for item in value]
    return value


_NESTED = frozenset({dict, list})


def drop_nulls(value: Any) -> None:
    """Remove fields that are null, in place: to a typed API they are absent."""
    if isinstance(value, dict):
        for key in [key for key, item in value.items() if item is None]:
            del value[key]
        for item in value.values():
            drop_nulls(item)
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item)


def dig(value: Any, *path: str | int, default: Any = None) -> Any:
    """The value at a path, or `default` where any step is missing or not a container."""
    for step in path:
        if isinstance(step, str):
            if not isinstance(value, dict):
                return default
            value = value.get(step)
        else:
            if not isinstance(value, list) or step >= len(value):
                return default
            value = value[step]
        if value is None:
            return default
    return value


def member(obj: Obj, key: str) -> Obj:
    """The object under a key, {} where there is none. MalformedError where it is something else."""
    value = obj.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise MalformedError(f"{key} must be an object")
    return value


def rfc3339(moment: datetime) -> str:
    """metav1.Time: seconds, UTC, `Z`."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def rfc3339_micro(moment: datetime) -> str:
    """metav1.MicroTime."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parse_time(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


def later(moment: datetime, seconds: float) -> str:
    return rfc3339(moment + timedelta(seconds=seconds))


def controller_of(obj: Obj) -> Obj | None:
    """The ownerReference with `controller: true`."""
    for ref in dig(obj, "metadata", "ownerReferences", default=()):
        if ref.get("controller"):
            return ref
    return None
