"""Which rows of the node table a node selector or node affinity is about, for all rows at once.

Anybody may create a pod with ten thousands of terms (an object of 1.5 MB): asked of every node one by one they take minutes, in which nobody is
placed. Here a requirement costs as many steps as it has values, whatever the number of nodes; rows are the bits of an integer.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping

import numpy as np

from restow.contracts.values import Expression, NodeTerm, PodShape
from restow.domain.state import ClusterState

_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
"""Go's ParseInt, unlike Python's int, takes no underscores."""
NAME_FIELD = "metadata.name"

Rows = int
"""Row r is in it where bit r is 1."""


def integer(text: str) -> int | None:
    """As Gt and Lt read a value; None for what is no integer."""
    return int(text) if _INTEGER.fullmatch(text) else None


class _Ordered:
    """The rows by a label's values that are integers: those with less than each, and those with more."""

    def __init__(self, having: Mapping[str, Rows]) -> None:
        by_number: dict[int, Rows] = {}
        for value, rows in having.items():
            if (number := integer(value)) is not None:
                by_number[number] = by_number.get(number, 0) | rows
        self._numbers = sorted(by_number)
        self._below = [0]
        for number in self._numbers:
            self._below.append(self._below[-1] | by_number[number])

    def less(self, number: int) -> Rows:
        return self._below[bisect_left(self._numbers, number)]

    def greater(self, number: int) -> Rows:
        # A row has one value of a label.
        return self._below[-1] & ~self._below[bisect_right(self._numbers, number)]


class _Index:
    """Key → value → rows."""

    def __init__(self) -> None:
        self._having: dict[str, dict[str, Rows]] = {}
        self._ordered: dict[str, _Ordered] = {}

    def add(self, row: int, labels: Mapping[str, str]) -> None:
        bit = 1 << row
        for key, value in labels.items():
            having = self._having.setdefault(key, {})
            having[value] = having.get(value, 0) | bit
        self._ordered.clear()

    def remove(self, row: int, labels: Mapping[str, str]) -> None:
        bit = 1 << row
        for key, value in labels.items():
            having = self._having[key]
            having[value] &= ~bit
            if not having[value]:
                del having[value]
                if not having:
                    del self._having[key]
        self._ordered.clear()

    def matching(self, expression: Expression, there: Rows) -> Rows:
        """One requirement, as `predicates.matches` has it; `there` are all rows with a node."""
        having = self._having.get(expression.key, {})
        match expression.operator:
            case "In":
                return _any(having.get(value, 0) for value in expression.values)
            case "NotIn":
                return there & ~_any(having.get(value, 0) for value in expression.values)
            case "Exists":
                return _any(having.values())
            case "DoesNotExist":
                return there & ~_any(having.values())
            case "Gt" | "Lt":
                number = integer(expression.values[0]) if len(expression.values) == 1 else None
                if number is None or not having:
                    return 0
                ordered = self._ordered.get(expression.key)
                if ordered is None:
                    ordered = self._ordered[expression.key] = _Ordered(having)
                return ordered.greater(number) if expression.operator == "Gt" else ordered.less(number)
        return 0


def _any(parts: Iterable[Rows]) -> Rows:
    found = 0
    for rows in parts:
        found |= rows
    return found


class NodeLabels:
    """Labels and names of the nodes that there are. Follows `state.changed_rows`; `stamp` grows with every change."""

    def __init__(self) -> None:
        self.stamp = 0
        self._seen = -1
        self._known: list[tuple[str, Mapping[str, str]] | None] = []
        self._forget()

    def _forget(self) -> None:
        self._there: Rows = 0
        self._labels, self._names = _Index(), _Index()
        self._known.clear()
        self._of_expression: dict[tuple[bool, Expression], Rows] = {}

    def refresh(self, state: ClusterState) -> None:
        position = state.changed_rows.position
        size, known = len(state.table.names), len(self._known)
        if self._seen == position and size == known:
            return
        changed = state.changed_rows.since(self._seen) if known else None
        self._seen = position
        if changed is None or size < known:
            self._forget()
            changed, known = (), 0
        self._known.extend([None] * (size - known))
        for row in sorted({*changed, *range(known, size)}):
            self._set(state, row)

    def _set(self, state: ClusterState, row: int) -> None:
        node = state.nodes.get(state.table.names[row])  # type: ignore[call-overload]
        new, old = None if node is None else (node.name, node.labels), self._known[row]
        if new == old:
            return
        if old is not None:
            self._names.remove(row, {NAME_FIELD: old[0]})
            self._labels.remove(row, old[1])
            self._there &= ~(1 << row)
        if new is not None:
            self._names.add(row, {NAME_FIELD: new[0]})
            self._labels.add(row, new[1])
            self._there |= 1 << row
        self._known[row] = new
        self._of_expression.clear()
        self.stamp += 1

    def selected(self, shape: PodShape) -> Rows:
        """The rows that the shape's node selector and required node affinity are about (`predicates.selected`)."""
        found = self._there
        for key, value in shape.node_selector.items():
            found &= self._matching(Expression(key, "In", (value,)), False)
        if shape.node_affinity is not None:
            found &= _any(map(self.of_term, shape.node_affinity))
        return found

    def of_term(self, term: NodeTerm) -> Rows:
        """The rows whose node the term matches (`predicates.term_matches`)."""
        if not term.labels and not term.fields:
            return 0
        found = self._there
        for expression in term.labels:
            found &= self._matching(expression, False)
        for expression in term.fields:
            found &= self._matching(expression, True)
        return found

    def _matching(self, expression: Expression, of_fields: bool) -> Rows:
        key = of_fields, expression
        known = self._of_expression.get(key)
        if known is None:
            if len(self._of_expression) >= MOST_KEPT:
                self._of_expression.clear()
            index = self._names if of_fields else self._labels
            known = self._of_expression[key] = index.matching(expression, self._there)
        return known


MOST_KEPT = 4_096
"""Requirements whose rows are remembered."""


def node_labels(state: ClusterState) -> NodeLabels:
    """Up to date."""
    found = state.memo.make(NodeLabels)
    found.refresh(state)
    return found


def as_mask(rows: Rows, size: int) -> np.ndarray:
    """`(size,) bool`."""
    return np.unpackbits(np.frombuffer(rows.to_bytes((size + 7) // 8, "little"), np.uint8), count=size, bitorder="little").astype(bool)


class Chosen:
    """Whether a shape's node selector and required node affinity are about a row's node, as the state is now."""

    __slots__ = ("_at", "_rows", "_shape", "_state")

    def __init__(self, state: ClusterState, shape: PodShape) -> None:
        self._state, self._shape = state, shape
        self._at, self._rows = -1, 0

    def __call__(self, row: int) -> bool:
        if not self._shape.node_selector and self._shape.node_affinity is None:
            return True
        labels = node_labels(self._state)
        if self._at != labels.stamp:
            self._at, self._rows = labels.stamp, labels.selected(self._shape)
        return bool(self._rows >> row & 1)
