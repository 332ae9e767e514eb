"""Whether a queue takes jobs at all. One home, whichever plugins are active: a missing queue is an error of the user's that
must be said (RULES G-6), and a closed one takes no jobs under any policy."""

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
