"""Table rows and the topology domains that they are in, and counts over domains that follow every change."""

from collections.abc import Callable

import numpy as np

from restow.contracts.events import NodeObserved
from restow.contracts.ids import NodeName
from restow.contracts.values import PodShape
from restow.domain.node_labels import Chosen
from restow.domain.predicates import repels, tolerance

FEW_ROWS = 32
FEW_DOMAINS = 64
"""Up to FEW_ROWS rows over more than FEW_DOMAINS domains are added up when asked: an array for each would be mostly zeros."""


class ByRow:
    """One small integer a row, in `ids`; `stamp` grows with every change."""

    ids: list[int] | bytearray

    def __init__(self) -> None:
        self.stamp = 0

    def value(self, row: int, node: NodeObserved | None) -> int:
        """What the row's integer must be; `node` is None where it is vacant."""
        raise NotImplementedError

    def set(self, row: int, value: int) -> None:
        """Rows are added in order."""
        self.stamp += 1
        if row == len(self.ids):
            self.ids.append(value)
        else:
            self.ids[row] = value


class Domains(ByRow):
    """The domain of each row for a topology key, numbered from 1; 0 where the node lacks the key. Without a key every row is
    a domain of its own. Numbers are never used again: `size` grows. `views` is how many views were kept of it."""

    def __init__(self, key: str | None) -> None:
        super().__init__()
        self.ids = []
        self.key = key
        self.size = 1
        self.views = 0
        self._numbers: dict[str, int] = {}
        self._seen = -1
        self._array = self._absent = np.zeros(0, np.intp)

    def value(self, row: int, node: NodeObserved | None) -> int:
        if self.key is None:
            self.size = max(self.size, row + 2)
            return 0 if node is None else row + 1
        label = None if node is None else node.labels.get(self.key)
        if label is None:
            return 0
        number = self._numbers.get(label)
        if number is None:
            number = self._numbers[label] = self.size
            self.size += 1
        return number

    def _look(self) -> None:
        if self._seen != self.stamp:
            self._array = np.array(self.ids, np.intp)
            self._absent = self._array == 0
            self._seen = self.stamp

    @property
    def array(self) -> np.ndarray:
        """`ids` as `(nodes,) intp`."""
        self._look()
        return self._array

    @property
    def absent(self) -> np.ndarray:
        """`(nodes,) bool`: rows without the key."""
        self._look()
        return self._absent


class Eligible(ByRow):
    """Nodes that a spread constraint counts on, 1 or 0: those with all its pod's topology keys, and, where its policies
    say so, those that the pod's node affinity and tolerations allow."""

    def __init__(self, shape: PodShape, pinned: NodeName, keys: tuple[str, ...], chosen: Chosen | None, taints: bool) -> None:
        super().__init__()
        self.ids = bytearray()
        self._seen: dict[Domains, tuple[int, int, np.ndarray]] = {}
        self._pinned, self._keys, self._chosen = pinned, keys, chosen
        self._tolerate = tolerance(shape.tolerations) if taints else None

    @property
    def array(self) -> np.ndarray:
        """`(nodes,) bool`."""
        return np.frombuffer(bytes(self.ids), np.uint8) != 0

    def value(self, row: int, node: NodeObserved | None) -> int:
        if node is None or not all(key in node.labels for key in self._keys):
            return 0
        if self._chosen is not None and (not self._chosen(row) or (self._pinned and node.name != self._pinned)):
            return 0
        return int(self._tolerate is None or not repels(node, self._tolerate))

    def domains(self, domains: Domains) -> np.ndarray:
        """The domains that have an eligible node, sorted."""
        seen = self._seen.get(domains)
        if seen is None or seen[:2] != (self.stamp, domains.stamp):
            seen = self._seen[domains] = self.stamp, domains.stamp, np.unique(domains.array[self.array])
        return seen[2]


class View:
    """A count per domain, on eligible rows only where `among` says so: `counts` `(domains,) int64`, [0] is always 0."""

    __slots__ = ("_among", "_counts", "_domains")

    def __init__(self, domains: Domains, among: Eligible | None) -> None:
        self._domains, self._among = domains, among
        self._counts = np.zeros(domains.size, np.int64)

    def put(self, row: int, n: int) -> None:
        at = self._domains.ids[row]
        if at and (self._among is None or self._among.ids[row]):
            if at >= len(self._counts):
                self._grow()
            self._counts[at] += n

    def _grow(self) -> None:
        self._counts = np.concatenate([self._counts, np.zeros(self._domains.size - len(self._counts), np.int64)])

    @property
    def counts(self) -> np.ndarray:
        if len(self._counts) < self._domains.size:
            self._grow()
        return self._counts


class Count:
    """How many occupants of a certain sort each row has (`rows`, those with none left out). Views of it by domain are
    made when somebody asks, and then follow."""

    __slots__ = ("rows", "serial", "views")

    def __init__(self, serial: int) -> None:
        self.serial = serial
        self.rows: dict[int, int] = {}
        self.views: dict[tuple[Domains, Eligible | None], View] = {}

    def change(self, row: int, n: int) -> None:
        left = self.rows.get(row, 0) + n
        if left:
            self.rows[row] = left
        else:
            del self.rows[row]
        for view in self.views.values():
            view.put(row, n)

    def per_domain(self, domains: Domains, among: Eligible | None = None) -> np.ndarray:
        """`(domains,) int64`; [0] is 0. Must not be written to."""
        view = self.views.get((domains, among))
        if view is None:
            view = View(domains, among)
            for row, n in self.rows.items():
                view.put(row, n)
            if domains.size <= FEW_DOMAINS or len(self.rows) > FEW_ROWS:
                self.views[domains, among] = view
                domains.views += 1
        return view.counts


Counted = Callable[[Count, Domains, Eligible | None], np.ndarray]
"""How a count is read: `Count.per_domain`, or the same less some."""
