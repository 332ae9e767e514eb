"""Which pods have waited for a decision, and since when.

A pod that the session cannot place is told why and parked until something changes that may let it run. One that is in the queue is kept by nothing that is known:
it would be placed, or told why not, if somebody decided. So in a cluster that is well the queue is empty but for moments, whatever waits for capacity. (For whom there is
capacity by now stays parked until the session has looked: that a session which decides anything does not take long for it is what `restow_reaction_seconds` says.)

Nothing of this is in the log: whoever asks looks now and then, and notes when it saw a pod first. What it says is too young by the time between two looks at most.
"""

from restow.contracts.ids import Millis, PodUid
from restow.domain.changes import Seen
from restow.domain.state import ClusterState


class Undecided:
    """What one observer has seen of one state. A look costs O(queue), and what was parked since the last one."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._parkings = Seen(state.parkings)
        self._since: dict[PodUid, Millis] = {}

    def look(self, now: Millis) -> tuple[PodUid, Millis] | None:
        """The pod that waits for the longest time, and since when (as far as looks can tell); None where none does. Who was parked meanwhile, was told why it waits."""
        (parked,) = self._parkings.news()
        before = {} if parked is None else self._since
        for pod in parked or ():
            before.pop(pod, None)
        self._since = {pod: before.get(pod, now) for pod in self._state.queue}
        return min(self._since.items(), key=lambda one: one[1], default=None)

    def __len__(self) -> int:
        """How many there were at the last look."""
        return len(self._since)
