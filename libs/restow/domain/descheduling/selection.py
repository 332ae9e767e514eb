"""Which nodes a policy is about, and label selectors as text."""

import re
from collections.abc import Iterator

import msgspec

from restow.contracts.ids import NodeName
from restow.contracts.values import Expression, LabelSelector
from restow.domain import policy_args as a
from restow.domain.descheduling.utilization.thresholds import METRIC
from restow.domain.resources import canonical_resource
from restow.domain.selectors import selects
from restow.domain.state import ClusterState

_KEY = r"(?:[A-Za-z0-9.-]+/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_TERM = re.compile(
    rf"\s*(?:(?P<absent>!\s*)(?P<no>{_KEY})|(?P<key>{_KEY})\s*(?:(?P<op>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|(?:\s(?P<set>in|notin)\s*\((?P<values>[^)]*)\)))?)\s*(?:,|$)"
)
_ALLOWED = "allowed: a label selector, such as pool=workers,!gpu or zone in (a, b)"


def parsed(text: str) -> LabelSelector:
    """Kubernetes' textual form. Raises ValueError, with what is allowed."""
    expressions: list[Expression] = []
    at = 0
    while at < len(text):
        term = _TERM.match(text, at)
        if term is None or (text[term.end() - 1] == "," and term.end() == len(text)):
            raise ValueError(f"{text!r}; {_ALLOWED}")
        at = term.end()
        if term["absent"]:
            expressions.append(Expression(term["no"], "DoesNotExist"))
        elif term["op"]:
            expressions.append(Expression(term["key"], "NotIn" if term["op"] == "!=" else "In", (term["value"],)))
        elif term["set"]:
            values = tuple(one.strip() for one in term["values"].split(","))
            if any(not re.fullmatch(_VALUE, one) for one in values):
                raise ValueError(f"{text!r}; {_ALLOWED}")
            expressions.append(Expression(term["key"], "In" if term["set"] == "in" else "NotIn", values))
        else:
            expressions.append(Expression(term["key"], "Exists"))
    return LabelSelector({}, tuple(expressions))


def selector_wrong(path: str, text: str) -> str:
    """Why it cannot be read; "" where it can."""
    try:
        parsed(text)
    except ValueError as error:
        return f"{path}: {error}"
    return ""


def selected_nodes(state: ClusterState, selector: LabelSelector | None) -> list[NodeName]:
    """Ready nodes, cordoned ones too, by name."""
    return sorted(
        name for name, node in state.nodes.items() if node.ready and (selector is None or selects(selector, node.labels))
    )


def selecting_nothing(state: ClusterState, args: a.Args) -> Iterator[str]:
    """Namespaces that are not there, and thresholds of resources that no node has: most likely a slip. Of `namespaces` and
    `labelSelector` plugins themselves say so, see `pods.Subjects.warn`."""
    yield from _thresholds(state, args)
    for field in msgspec.structs.fields(args):
        said = getattr(args, field.name)
        if field.name == "namespaces" or not isinstance(said, a.Namespaces):
            continue
        for name in (*said.include, *said.exclude):
            if state.namespaces and name not in state.namespaces:
                yield f"{field.encode_name}: {name} does not exist"
        if said.include:
            yield f"{field.encode_name}.include: upstream refuses it, and so does the descheduler service; here all but these namespaces are left alone"


def _thresholds(state: ClusterState, args: a.Args) -> Iterator[str]:
    thresholds = getattr(args, "thresholds", None)
    if not isinstance(thresholds, dict) or not state.nodes:
        return
    for name in thresholds:
        resource = canonical_resource(name)
        if name != METRIC and not any(resource in node.allocatable for node in state.nodes.values()):
            yield f"thresholds.{name}: no node has {name}"
