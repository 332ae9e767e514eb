"""The status of a Queue: how many PodGroups are in which phase, and what its pods and holds use.

The counts are kept in `state.memo` and follow what was touched: a commit costs O(groups touched) to mark them, and a status
that is written O(pods of the groups marked since the last one). After a restart once O(all groups).
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

import msgspec

from restow.domain import resources as r
from restow.domain.accounts import DEFAULT_QUEUE, Amounts, charge
from restow.domain.groups import Group
from restow.domain.session.statuses.podgroup_status import phase_of
from restow.domain.state import ClusterState

OPEN = "Open"
PHASES = ("Pending", "Inqueue", "Running", "Unknown", "Completed")


class QueueStatus(msgspec.Struct, frozen=True):
    """`allocated`: by resource, as Kubernetes writes quantities; with what the queues below it use."""

    pending: int = 0
    inqueue: int = 0
    running: int = 0
    unknown: int = 0
    completed: int = 0
    allocated: dict[str, str] = {}


class Tally:
    """PodGroups by queue and phase."""

    def __init__(self, state: ClusterState) -> None:
        self._marked: dict[Group, None] = dict.fromkeys(state.pod_groups)
        self._known: dict[Group, tuple[str, str]] = {}
        self._counts: dict[str, Counter[str]] = {}

    def mark(self, groups: Iterable[Group]) -> None:
        """Something about these has changed."""
        self._marked.update(dict.fromkeys(groups))

    def queue_of(self, group: Group) -> str:
        """The queue that it was last counted in; empty where it was not."""
        return self._known.get(group, ("", ""))[0]

    def counts(self, state: ClusterState, queue: str) -> Counter[str]:
        """By phase."""
        marked, self._marked = self._marked, {}
        for group in marked:
            known = self._known.pop(group, None)
            if known is not None:
                self._counts[known[0]][known[1]] -= 1
            if group in state.pod_groups:
                now = self._known[group] = group_queue(state, group), phase_of(state, group)
                self._counts.setdefault(now[0], Counter())[now[1]] += 1
        return self._counts.get(queue, Counter())


def tally(state: ClusterState, anew: bool = False) -> Tally:
    """The state's own; `anew` where nobody has marked what changed since."""
    kept = state.memo.find(Tally)
    return state.memo.keep(Tally(state)) if kept is None or anew else kept


def group_queue(state: ClusterState, group: Group) -> str:
    return state.pod_groups[group].queue or DEFAULT_QUEUE


def status(state: ClusterState, queue: str, counted: Tally) -> QueueStatus:
    counts = counted.counts(state, queue)
    return QueueStatus(
        pending=counts["Pending"],
        inqueue=counts["Inqueue"],
        running=counts["Running"],
        unknown=counts["Unknown"],
        completed=counts["Completed"],
        # Volcano's dashboards and quotas ask for GPUs by this name; a queue has no name of its own for them.
        allocated=r.quantities({state.table.resources[column]: amount for column, amount in used(state, queue).items()}, r.NVIDIA_GPU),
    )


def used(state: ClusterState, queue: str) -> Amounts:
    """By column: what is accounted to the queue and to those below it. O(queues)."""
    total = dict(state.accounts.of(queue))
    for name in state.queues:
        if name != queue and queue in above(state, name):
            charge(total, state.accounts.of(name).items())
    return total


def above(state: ClusterState, queue: str) -> Iterator[str]:
    """The queues over one, by the state."""

    def parent(name: str) -> str:
        known = state.queues.get(name)
        return known.parent if known is not None else ""

    return ancestors(parent, queue)


def ancestors(parent: Callable[[str], str], queue: str) -> Iterator[str]:
    """Its parent, that one's, and so on; each once, whatever the user has tied together. `parent`: empty where there is none."""
    seen = {queue}
    while (over := parent(queue)) and over not in seen:
        seen.add(over)
        yield over
        queue = over
