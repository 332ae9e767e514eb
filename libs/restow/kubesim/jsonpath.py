"""The part of JSONPath that printer columns use: `.a.b[0].c`, `.a["b"]`, `.items[?(@.type=="x")].status`, `[*]`."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Any

from restow.kubesim.ages import since
from restow.kubesim.negotiate import encode
from restow.kubesim.objects import Obj

_STEP = re.compile(
    r"""\.(?P<name>(?:[^.\[\]\\]|\\.)+)
      | \[(?P<index>-?\d+)\]
      | \[(?P<star>\*)\]
      | \[['"](?P<quoted>[^'"]+)['"]\]
      | \[\?\(\s*@\.(?P<field>[^=!<>\s]+)\s*(?P<op>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)\s]+)\s*\)\]""",
    re.VERBOSE,
)


@lru_cache(maxsize=512)
def parse(path: str) -> tuple[tuple[str, Any], ...]:
    """The steps of a path. Raises ValueError where it is not understood."""
    text = path.strip()
    if text.startswith("{"):
        text = text.strip("{}")
    text = text.removeprefix("$")
    if text and text[0] not in ".[":
        text = "." + text
    steps: list[tuple[str, Any]] = []
    position = 0
    while position < len(text):
        found = _STEP.match(text, position)
        if found is None:
            raise ValueError(f"unsupported JSONPath {path!r} at {text[position:]!r}")
        if found["name"] is not None:
            name = found["name"].replace("\\", "")
            steps.append(("star", None) if name == "*" else ("name", name))
        elif found["index"] is not None:
            steps.append(("index", int(found["index"])))
        elif found["star"]:
            steps.append(("star", None))
        elif found["quoted"] is not None:
            steps.append(("name", found["quoted"]))
        else:
            steps.append(("filter", (found["field"], found["op"], found["value"].strip("\"'"))))
        position = found.end()
    return tuple(steps)


def find(obj: Any, path: str) -> list[Any]:
    """The values at a path, in order."""
    values = [obj]
    for kind, arg in parse(path):
        values = [found for value in values for found in _advance(value, kind, arg)]
    return values


def _advance(value: Any, kind: str, arg: Any) -> list[Any]:
    if kind == "name":
        return [value[arg]] if isinstance(value, dict) and arg in value else []
    if kind == "star":
        if isinstance(value, dict):
            return list(value.values())
        return list(value) if isinstance(value, list) else []
    if not isinstance(value, list):
        return []
    if kind == "index":
        return [value[arg]] if -len(value) <= arg < len(value) else []
    field, operator, wanted = arg
    return [item for item in value if (_text(item, field) == wanted) is (operator == "==")]


def _text(item: Any, field: str) -> str | None:
    for part in field.split("."):
        item = item.get(part) if isinstance(item, dict) else None
    if isinstance(item, bool):
        return "true" if item else "false"
    return None if item is None else str(item)


def cell(obj: Obj, path: str, kind: str, now: datetime) -> Any:
    """A printer column's value; None where there is none or it has the wrong type."""
    try:
        values = [value for value in find(obj, path) if value is not None]
    except ValueError:
        return None
    if not values:
        return None
    value = values[0]
    match kind:
        case "integer":
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            return int(value)
        case "number":
            return value if isinstance(value, int | float) and not isinstance(value, bool) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return since(value, now) if isinstance(value, str) else "<unknown>"
    if isinstance(value, str):
        return value
    return _printed(value)


def _printed(value: Any) -> str:
    return encode(value).decode()
