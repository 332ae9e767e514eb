"""Queues: whether one takes jobs at all, and the arithmetic of shares and quotas, in integers, that plugins have in common."""

from collections.abc import Hashable, Iterable, Mapping

from restow.domain import resources as r
from restow.domain.accounts import DEFAULT_QUEUE
from restow.domain.session.framework import Refusal
from restow.domain.state import ClusterState

NOT_FOUND = "QueueNotFound"
CLOSED = "QueueClosed"
INVALID = "InvalidQueue"
SHUT = ("Closed", "Closing")
"""States of a queue in which it takes no jobs."""


def refused(state: ClusterState, name: str) -> Refusal | None:
    """Why the queue takes no jobs, whatever it has left. The empty name is a migration's hold, which is in no queue; `default` is there
    without an object, with weight 1 and no limits."""
    queue = state.queues.get(name)
    if queue is None:
        return Refusal(NOT_FOUND, f"queue {name} does not exist") if name and name != DEFAULT_QUEUE else None
    if queue.state in SHUT:
        return Refusal(CLOSED, f"queue {name} is {queue.state}")
    if queue.invalid:
        return Refusal(INVALID, f"queue {name}: {queue.invalid}")
    for what, amounts in (("guarantee", queue.guarantee), ("deserved", queue.deserved)):
        for resource, amount in amounts.items():
            most = queue.capability.get(resource)
            if most is not None and amount > most:
                return Refusal(INVALID, f"queue {name}: {what} of {r.shown(resource, amount)} is above its capability {r.amount(resource, most)}")
    return None


SCALE = 10**9
"""One whole in shares."""

Items = Iterable[tuple[int, int]]
"""(column, amount) pairs."""


def share(used: Mapping[int, int], whole: Mapping[int, int]) -> int:
    """The dominant share of `whole` that is used, in billionths; of nothing, one whole where anything is used."""
    most = 0
    for column, have in used.items():
        if have > 0 and (amount := whole.get(column)) is not None:
            part = have * SCALE // amount if amount > 0 else SCALE
            if part > most:
                most = part
    return most


def beyond(used: Mapping[int, int], items: Items, limit: Mapping[int, int]) -> int | None:
    """The first column in which the limit does not admit these amounts beside what is used; None where it admits them. What
    has no limit is not limited."""
    for column, amount in items:
        most = limit.get(column)
        if most is not None and used.get(column, 0) + amount > most:
            return column
    return None


def may_lose(
    used: Mapping[int, int], items: Items, deserved: Mapping[int, int], asked: Iterable[int], guarantee: Mapping[int, int]
) -> bool:
    """Whether a queue that uses this may lose these amounts to a claimer of the columns `asked`: of something that the claimer
    asks for it has what it deserves after the loss, too, and of everything what it is guaranteed. Where `deserved` names nothing
    of what is asked for, all of it is borrowed.

    Resource by resource, as in Volcano: a queue that is above what it deserves of one thing by less than a pod cannot keep what
    it has borrowed of another. Volcano looks before the loss and lets a queue fall below what it deserves of all that is asked
    for; then that queue claims it back, and so on. A queue that has taken is within what it deserves of everything that it has
    asked for, and who has lost is not below in that for which it was a victim: so it comes to rest."""
    lost = dict(items)
    if any(column in guarantee and used.get(column, 0) - amount < guarantee[column] for column, amount in lost.items()):
        return False
    useful = [column for column in asked if lost.get(column)]
    named = [column for column in useful if column in deserved]
    if not named:
        return bool(useful)
    return any(used.get(column, 0) - lost[column] >= deserved[column] for column in named)


class Refused:
    """What a queue has no capacity for in this session: whoever asks for as much of everything has none either, as long as nothing is taken
    back from what queues use (`lowered`). Kept for a few, those that ask for least."""

    MOST = 8

    def __init__(self) -> None:
        self._lowered = 0
        self._found: list[tuple[Hashable, dict[int, int]]] = []

    def add(self, why: Hashable, items: Items, lowered: int) -> None:
        """`why`: what was said."""
        asked = dict(items)
        left = self._found if lowered == self._lowered else []
        left = [known for known in left if known[0] != why or not _covers(known[1], asked)]
        self._found, self._lowered = [*left, (why, asked)][-self.MOST :], lowered

    def covers(self, why: Hashable, items: Items, lowered: int) -> bool:
        """Whether the same would be said of who asks for this."""
        if lowered != self._lowered or not self._found:
            return False
        asks = dict(items)
        return any(why == said and _covers(asks, asked) for said, asked in self._found)


def _covers(asks: Mapping[int, int], asked: Mapping[int, int]) -> bool:
    return asks.keys() == asked.keys() and all(asks[column] >= amount for column, amount in asked.items())
