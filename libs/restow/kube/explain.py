"""What msgspec says about a spec that it cannot read → path, value and what is allowed, as a user can use it."""

import copy
import re
from typing import Any

import msgspec

from restow.kube.decode import BAD_JSON

_WHERE = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>[^`]*)`)?$", re.DOTALL)
_EXPECTED = re.compile(r"^Expected `([^`]+)`")
_STEP = re.compile(r'\.([^.\[\]]+)|\["([^"]+)"\]|\[(\d+)\]')


def explained(decoder: msgspec.json.Decoder[Any], message: str, raw: msgspec.Raw) -> str:
    """The decoder's message about this `spec`. Objects and lists are named, never printed: they may hold
    what must not be in the log."""
    match = _WHERE.match(message)
    path, what = (match["path"] or "", match["what"]) if match else ("", message)
    expected = _EXPECTED.match(what)
    allowed = expected[1].replace(" | null", "") if expected else what
    try:
        document = msgspec.json.decode(raw)
    except BAD_JSON as error:
        return f"spec: not JSON ({error}); allowed: an object"
    path = _indexed(decoder, document, path, message)
    return f"spec{path}: {_shown(_at(document, path))}; allowed: {allowed}"


def _indexed(decoder: msgspec.json.Decoder[Any], document: Any, path: str, message: str) -> str:
    """msgspec writes `[...]` for an index or a key. The element is the first that, alone in its place, is refused alike."""
    while (found := path.find("[...]")) >= 0:
        before, after = path[:found], path[found + 5 :]
        step = ""
        for step, alone in _alone(_at(document, before)):  # noqa: B007
            try:
                decoder.decode(msgspec.json.encode(_with(document, before, alone)))
            except BAD_JSON as error:
                if str(error) == message:
                    break
        path = f"{before}{step}{after}"
    return path


def _alone(elements: Any) -> list[tuple[str, Any]]:
    if isinstance(elements, dict):
        return [(f'["{key}"]', {key: value}) for key, value in elements.items()]
    return [(f"[{i}]", [value]) for i, value in enumerate(elements or ())]


def _steps(path: str) -> list[str | int]:
    return [name or key or int(index) for name, key, index in _STEP.findall(path)]


def _at(document: Any, path: str) -> Any:
    """The value at `.a.b[0]["c"]`, None where there is none."""
    for step in _steps(path):
        try:
            document = document[step]
        except (IndexError, KeyError, TypeError):
            return None
    return document


def _with(document: Any, path: str, value: Any) -> Any:
    """A copy with this value at the path."""
    document = copy.deepcopy(document)
    *parents, last = _steps(path)
    place = document
    for step in parents:
        place = place[step]
    place[last] = value
    return document


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "a list"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
