"""Label and field selectors: parsed once into predicates."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from restow.kubesim.errors import ApiError, bad_request
from restow.kubesim.objects import Obj, dig
from restow.kubesim.resources import Resource

Predicate = Callable[[Obj], bool]
_LabelTest = Callable[[Mapping[str, str]], bool]

_NAME = (
    r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,251}[A-Za-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_SET = re.compile(rf"^({_NAME})\s+(in|notin)\s*\(([^()]*)\)$")
_EQUAL = re.compile(rf"^({_NAME})\s*(==|=|!=)\s*({_VALUE})$")
_ORDER = re.compile(rf"^({_NAME})\s*([<>])\s*(-?\d+)$")
_EXISTS = re.compile(rf"^(!?)\s*({_NAME})$")
_VALUE_ONLY = re.compile(rf"^{_VALUE}$")


def _split(text: str) -> list[str]:
    """Split at commas outside parentheses."""
    parts, depth, start = [], 0, 0
    for position, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return [part.strip() for part in parts]


def _is_in(key: str, values: frozenset[str]) -> _LabelTest:
    return lambda labels: labels.get(key) in values


def _is_not_in(key: str, values: frozenset[str]) -> _LabelTest:
    return lambda labels: labels.get(key) not in values


def _exists(key: str) -> _LabelTest:
    return lambda labels: key in labels


def _absent(key: str) -> _LabelTest:
    return lambda labels: key not in labels


def _compares(key: str, sign: str, bound: int) -> _LabelTest:
    def test(labels: Mapping[str, str]) -> bool:
        try:
            value = int(labels[key])
        except (KeyError, ValueError):
            return False
        return value > bound if sign == ">" else value < bound

    return test


def _requirement(text: str) -> _LabelTest:
    if found := _SET.match(text):
        values = [value.strip() for value in found[3].split(",")]
        if all(_VALUE_ONLY.match(value) for value in values):
            make = _is_in if found[2] == "in" else _is_not_in
            return make(found[1], frozenset(values))
    elif found := _EQUAL.match(text):
        make = _is_not_in if found[2] == "!=" else _is_in
        return make(found[1], frozenset({found[3]}))
    elif found := _ORDER.match(text):
        return _compares(found[1], found[2], int(found[3]))
    elif found := _EXISTS.match(text):
        return _absent(found[2]) if found[1] else _exists(found[2])
    raise bad_request(f'unable to parse requirement: found invalid label selector requirement "{text}"')


def label_test(text: str) -> _LabelTest | None:
    """The test on a labels dict for `a=b,c in (d,e),!f`; None selects everything. 400 if malformed."""
    if not text.strip():
        return None
    tests = [_requirement(part) for part in _split(text)]
    return tests[0] if len(tests) == 1 else lambda labels: all(test(labels) for test in tests)


def label_selector_test(selector: Mapping[str, Any] | None) -> _LabelTest:
    """The test for a metav1.LabelSelector; None selects nothing, an empty one everything."""
    if selector is None:
        return lambda labels: False
    tests: list[_LabelTest] = [
        _is_in(key, frozenset({value})) for key, value in (selector.get("matchLabels") or {}).items()
    ]
    for expression in selector.get("matchExpressions") or ():
        key, values = expression["key"], frozenset(expression.get("values") or ())
        match expression["operator"]:
            case "In":
                tests.append(_is_in(key, values))
            case "NotIn":
                tests.append(_is_not_in(key, values))
            case "Exists":
                tests.append(_exists(key))
            case "DoesNotExist":
                tests.append(_absent(key))
            case other:
                raise bad_request(f'"{other}" is not a valid label selector operator')
    if len(tests) == 1:
        # Budgets and controllers look at all pods of a namespace again and again, mostly by one label.
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def selects(selector: Mapping[str, Any] | None) -> Predicate:
    """The predicate on objects for a metav1.LabelSelector."""
    test = label_selector_test(selector)
    return lambda obj: test(obj["metadata"].get("labels") or {})


# Fields that the real server knows for each resource, beside metadata.name and metadata.namespace.
_INVOLVED = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")
FIELDS: dict[tuple[str, str], tuple[str, ...]] = {
    ("", "pods"): (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName",
        "spec.hostNetwork", "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "namespaces"): ("status.phase",),
    ("", "secrets"): ("type",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("", "events"): (
        *(f"involvedObject.{name}" for name in _INVOLVED), "reason", "reportingComponent", "source", "type",
    ),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("apps", "replicasets"): ("status.replicas",),
    ("batch", "jobs"): ("status.successful",),
}  # fmt: skip
FIELDS[("events.k8s.io", "events")] = (
    *(f"regarding.{name}" for name in _INVOLVED), "reason", "reportingController", "type",
)  # fmt: skip
_PLACES = {
    "reportingController": ("reportingComponent",),
    "source": ("source", "component"),
    "status.successful": ("status", "succeeded"),
}
_BOOLEANS = frozenset({"spec.unschedulable", "spec.hostNetwork"})
_NUMBERS = frozenset({"status.replicas", "status.successful"})


def _value(obj: Obj, field: str) -> str:
    path = _PLACES.get(field) or tuple(field.replace("regarding.", "involvedObject.").split("."))
    value = dig(obj, *path)
    if field in _BOOLEANS:
        return "true" if value else "false"
    if field in _NUMBERS:
        return str(value or 0)
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unsupported(resource: Resource, field: str) -> ApiError:
    if resource.key in (("", "pods"), ("", "nodes"), ("", "events"), ("", "namespaces"), ("", "secrets")):
        return bad_request(f"field label not supported: {field}")
    if resource.custom is not None:
        return bad_request(f"field label not supported: {field}")
    known = '"metadata.name", "metadata.namespace"'
    return bad_request(f'"{field}" is not a known field selector: only {known}')


def _split_fields(text: str) -> list[tuple[str, bool, str]]:
    terms = []
    for term in re.split(r"(?<!\\),", text):
        found = re.match(r"^([^=!]+?)(!=|==|=)(.*)$", term)
        if found is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        value = re.sub(r"\\([\\,=])", r"\1", found[3])
        terms.append((found[1], found[2] != "!=", value))
    return terms


def field_test(resource: Resource, text: str, *, view: str = "") -> Predicate | None:
    """The predicate on objects for `spec.nodeName=n1,status.phase!=Failed`; 400 for unknown fields."""
    if not text.strip():
        return None
    known: Iterable[str] = FIELDS.get((view or resource.group, resource.plural), ())
    if resource.custom is not None:
        selectable = [version.selectable for version in resource.custom.versions.values()]
        known = {path.lstrip(".") for paths in selectable for path in paths}
    tests = []
    for field, positive, wanted in _split_fields(text):
        if field not in ("metadata.name", "metadata.namespace") and field not in known:
            raise _unsupported(resource, field)
        tests.append((field, positive, wanted))
    if len(tests) == 1:
        field, positive, wanted = tests[0]
        return lambda obj: (_value(obj, field) == wanted) is positive
    return lambda obj: all((_value(obj, field) == wanted) is positive for field, positive, wanted in tests)


def predicate(resource: Resource, labels: str, fields: str, *, view: str = "") -> Predicate | None:
    """Both selectors of a request as one predicate; None selects everything."""
    by_label, by_field = label_test(labels), field_test(resource, fields, view=view)
    if by_label is None:
        return by_field
    if by_field is None:
        return lambda obj: by_label(obj["metadata"].get("labels") or {})
    return lambda obj: by_label(obj["metadata"].get("labels") or {}) and by_field(obj)
