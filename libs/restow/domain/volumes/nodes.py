"""Which rows of the node table have which labels: terms of node affinity → rows, without looking at every node."""

from collections.abc import Iterable

import numpy as np

from restow.contracts.events import NodeObserved
from restow.contracts.values import NodeTerm
from restow.domain.predicates import term_matches
from restow.domain.state import ClusterState

Terms = tuple[NodeTerm, ...]
"""ORed, as in `required` of a node affinity; none of them matches nothing."""


class Nodes:
    """Labels by row, refreshed from `state.changed_rows`. A label is indexed when it is first asked for."""

    def __init__(self) -> None:
        self._seen = 0
        self._nodes: list[NodeObserved | None] = []
        self._having: dict[str, dict[str, set[int]]] = {}
        self._matching: dict[Terms, np.ndarray] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def refresh(self, state: ClusterState) -> list[int]:
        """The rows whose node is another one, or has other labels, since the last call."""
        size, known = len(state.table.names), len(self._nodes)
        changed = state.changed_rows.since(self._seen)
        looked_at: Iterable[int] = range(size) if changed is None else sorted({*changed, *range(known, size)})
        self._seen = state.changed_rows.position
        self._nodes.extend([None] * (size - known))
        other = []
        for row in looked_at:
            old, new = self._nodes[row], state.nodes.get(state.table.names[row])
            if not _alike(old, new):
                other.append(row)
                self._reindex(row, old, new)
                self._nodes[row] = new
        if other or size != known:
            self._matching.clear()
        return other

    def _reindex(self, row: int, old: NodeObserved | None, new: NodeObserved | None) -> None:
        for key, having in self._having.items():
            if old is not None and key in old.labels:
                having[old.labels[key]].discard(row)
            if new is not None and key in new.labels:
                having.setdefault(new.labels[key], set()).add(row)

    def having(self, key: str) -> dict[str, set[int]]:
        """Value of the label → rows. Must not be changed."""
        found = self._having.get(key)
        if found is None:
            found = self._having[key] = {}
            for row, node in enumerate(self._nodes):
                if node is not None and key in node.labels:
                    found.setdefault(node.labels[key], set()).add(row)
        return found

    def matching(self, terms: Terms) -> np.ndarray:
        """The rows that one of the terms matches, `(matching,) int64`, ascending. Must not be changed."""
        known = self._matching.get(terms)
        if known is None:
            found: set[int] = set()
            for term in terms:
                found |= self._of_term(term)
            known = self._matching[terms] = np.array(sorted(found), np.int64)
        return known

    def _of_term(self, term: NodeTerm) -> set[int]:
        candidates: Iterable[int] = range(len(self._nodes))
        for rule in term.labels:
            if rule.operator == "In":
                # The shortest way: a local volume names its one node by a label.
                having = self.having(rule.key)
                candidates = set().union(*(having.get(value, ()) for value in rule.values))
                break
        return {row for row in candidates if (node := self._nodes[row]) is not None and term_matches(term, node)}

    def mask(self, terms: Terms | None) -> np.ndarray:
        """`(nodes,) bool`; None matches every row."""
        if terms is None:
            return np.ones(len(self._nodes), bool)
        found = np.zeros(len(self._nodes), bool)
        found[self.matching(terms)] = True
        return found


def _alike(old: NodeObserved | None, new: NodeObserved | None) -> bool:
    if old is None or new is None:
        return old is new
    return old is new or (old.name == new.name and old.labels == new.labels)
