"""What each queue uses: the sum of what its pods and holds are charged, kept by the fold.

Terminating pods do not count (their queue has given them up), nor do holds of migrations (DESIGN 5) and pods of other
schedulers.
"""

from collections.abc import Iterable, Mapping

from restow.domain.node_table import Vector

Amounts = dict[int, int]
"""Amount by column of the node table."""

DEFAULT_QUEUE = "default"


def by_column(amounts: Mapping[str, int], columns: Mapping[str, int]) -> Amounts:
    """Amounts by resource, by column; those of resources that the node table does not know are left out."""
    return {columns[resource]: amount for resource, amount in amounts.items() if resource in columns}


def charge(amounts: Amounts, items: Iterable[tuple[int, int]], times: int = 1) -> None:
    """So many times these (column, amount) pairs more (or, below zero, fewer). What becomes zero stays."""
    for column, amount in items:
        amounts[column] = amounts.get(column, 0) + amount * times


class Accounts:
    """`of(queue)` is what it uses; a queue that uses nothing is not kept."""

    __slots__ = ("_used",)

    def __init__(self) -> None:
        self._used: dict[str, Amounts] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Accounts) and self._used == other._used

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Accounts({self._used})"

    def of(self, queue: str) -> Amounts:
        """Must not be changed."""
        return self._used.get(queue, {})

    def queues(self) -> Iterable[str]:
        """By name: which of them was charged first depends on what is charged at once."""
        return sorted(self._used)

    def add(self, queue: str, v: Vector, times: int) -> None:
        """`times` requests more (or, below zero, fewer)."""
        used = self._used.setdefault(queue, {})
        for column, amount in v.items:
            total = used.get(column, 0) + amount * times
            if total:
                used[column] = total
            else:
                used.pop(column, None)
        if not used:
            del self._used[queue]
