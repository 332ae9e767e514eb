"""The node table as one session works on it: charged in place, and given back at the end.

Nothing is copied at open, so that the cost of a session does not depend on the size of the cluster: a row is saved when it
is first touched. Beside the arrays each touched row is kept as plain integers, which is faster for one row at a time.
"""

from collections.abc import Iterable

from restow.contracts.values import DeviceShare
from restow.domain.node_table import NodeTable, Vector
from restow.domain.session.journal import Journal


class NodeSnapshot:
    """`changes` lists the rows that were charged, again for every charge. `contents` is for the placer: a number by row for
    what it has left, forgotten when it is charged."""

    __slots__ = ("_any", "_devices", "_journal", "_lists", "_saved", "changes", "contents", "table")

    def __init__(self, table: NodeTable, journal: Journal | None = None) -> None:
        self.table = table
        self._devices, self._any = table.device_free, bool(table.device_free.shape[1])
        self._journal = journal or Journal()
        self.changes: list[int] = []
        self.contents: dict[int, int] = {}
        self._saved: dict[int, tuple[list[int], list[int]]] = {}
        self._lists: dict[int, tuple[list[int], list[int]]] = {}

    def row(self, row: int) -> tuple[list[int], list[int]]:
        """What a row has free, by column, and of each device. Must not be changed."""
        known = self._lists.get(row)
        if known is None:
            known = self._lists[row] = self.table.free[row].tolist(), self._devices[row].tolist() if self._any else []
        return known

    def give(self, row: int, v: Vector, devices: Iterable[DeviceShare] = ()) -> None:
        """Take a charge back, of this session or (a victim's) of the state."""
        self.take(row, v, devices, -1)

    def take(self, row: int, v: Vector, devices: Iterable[DeviceShare] = (), sign: int = 1) -> None:
        """Charge a request."""
        free, shares = self._lists.get(row) or self.row(row)
        if row not in self._saved:
            self._saved[row] = free[:], shares[:]
        amounts = self.table.free
        for column, amount in v.items:
            free[column] = left = free[column] - amount * sign
            amounts[row, column] = left
        for d in devices:
            if d.index < len(shares):
                shares[d.index] -= d.milli * sign
                self.table.device_free[row, d.index] = shares[d.index]
        self.changes.append(row)
        self.contents.pop(row, None)
        if (undo := self._journal.undo) is not None:
            undo.append((self.take, row, v, devices, -sign))

    def close(self) -> None:
        """Everything as it was; who keeps something derived is told which rows to look at again."""
        if self._saved:
            rows = list(self._saved)
            self.table.free[rows] = [free for free, _ in self._saved.values()]
            if self.table.device_free.shape[1]:
                self.table.device_free[rows] = [shares for _, shares in self._saved.values()]
            self.table.dirty.extend(rows)
        self._saved.clear()
        self._lists.clear()
