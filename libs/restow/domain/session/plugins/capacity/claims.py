"""What is used in each part of the tree or kept for somebody there. Pure arithmetic, by column.

The claim of a queue is what it is guaranteed, or what it and the claims of those below it use, whichever is more; no claim may
grow above its queue's capability, nor that of the root above what the cluster has. So what is guaranteed to one is kept from
all others together. (Volcano limits each of them to what is not guaranteed, and three of them take it all the same.) Where others used it
before it was guaranteed, their parent's capability counts: what is used there grows no further.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from restow.domain.accounts import Amounts, by_column
from restow.domain.session.plugins.capacity.hierarchy import ROOT, TreeQueue

Items = Sequence[tuple[int, int]]


class Claims:
    """`usage(queue)` is what a queue itself uses; `others` are queues that still use something and are not in the tree: their
    pods count for the root. Only columns in which anything is limited are kept. O(queues · resources) to make."""

    def __init__(
        self,
        tree_queues: Mapping[str, TreeQueue],
        columns: Mapping[str, int],
        total: Sequence[int],
        usage: Callable[[str], Mapping[int, int]],
        others: Iterable[str],
    ) -> None:
        self._tree_queues = tree_queues
        self._least = {n: by_column({} if p.wrong else p.guarantee, columns) for n, p in tree_queues.items() if n != ROOT}
        self._most = {name: by_column(tree_queue.capability, columns) for name, tree_queue in tree_queues.items()}
        self._capability = {**self._most, ROOT: dict(self._most[ROOT])}
        """Without what the cluster has: nodes say that."""
        for least in self._least.values():
            for column, amount in least.items():
                if amount:
                    top = self._most[ROOT]
                    top[column] = min(top.get(column, total[column]), total[column])
        limited = {column for most in self._most.values() for column in most}
        self._inner: dict[str, Amounts] = {}
        self._used: dict[str, Amounts] = {}
        """By queue, what it and those below it use."""
        self._make(ROOT, sorted(limited), usage)
        for name in others:
            self.charge(name, tuple(usage(name).items()), 1)

    def _make(self, root: str, limited: Sequence[int], usage: Callable[[str], Mapping[int, int]]) -> None:
        order = [root]
        for name in order:
            order += self._tree_queues[name].below
        # What is in no tree of the root (circles) counts for the root itself, as it has no parent to count for.
        lost = [name for name in self._tree_queues if name not in set(order)]
        for name in reversed(order):
            used = usage(name)
            inner = {column: used.get(column, 0) for column in limited}
            uses = dict(inner)
            for child in self._tree_queues[name].below:
                for column in limited:
                    inner[column] += self._claim(child, column)
                    uses[column] += self._used[child][column]
            self._inner[name], self._used[name] = inner, uses
        for name in lost:
            for column in limited:
                self._inner[root][column] += usage(name).get(column, 0)
                self._used[root][column] += usage(name).get(column, 0)

    def _claim(self, name: str, column: int, more: int = 0) -> int:
        return max(self._inner[name][column] + more, self._least[name].get(column, 0))

    def _chain(self, queue: str) -> tuple[str, ...]:
        tree_queue = self._tree_queues.get(queue)
        return (queue, *tree_queue.above) if tree_queue is not None and queue in self._inner else (ROOT,)

    def refuses(self, queue: str, items: Items) -> tuple[str, int] | None:
        """The queue, itself or one above, and the column in which it has no capacity for this; None where there is capacity."""
        chain = self._chain(queue)
        for column, amount in items:
            if column not in self._inner[ROOT]:
                continue
            growth = amount
            for name in chain:
                most, said = self._most[name].get(column), self._capability[name].get(column)
                if most is not None and growth and self._inner[name][column] + growth > most:
                    return name, column
                if said is not None and self._used[name][column] + amount > said:
                    return name, column
                if name != ROOT:
                    growth = self._claim(name, column, growth) - self._claim(name, column)
        return None

    def is_the_clusters(self, queue: str, column: int) -> bool:
        """Whether what it may have at most is what the cluster has, and no capability."""
        return queue == ROOT and self._most[ROOT].get(column) != self._capability[ROOT].get(column)

    def charge(self, queue: str, items: Items, sign: int) -> None:
        chain = self._chain(queue)
        for column, amount in items:
            if column not in self._inner[ROOT]:
                continue
            growth = amount * sign
            for name in chain:
                before = self._claim(name, column) if name != ROOT else 0
                self._used[name][column] += amount * sign
                self._inner[name][column] += growth
                if name != ROOT:
                    growth = self._claim(name, column) - before
