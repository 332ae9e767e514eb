"""Why pods wait, as one sentence: what their condition, their PodGroup and Events say."""

from restow.domain.evolve.reservations import fit_message
from restow.domain.records import Waiting
from restow.domain.session.jobs import UNSCHEDULABLE


def why(waiting: Waiting) -> str:
    """The sentence alone: for a gang that does not fit, what its first pod lacks beside the others."""
    if waiting.reasons or not waiting.message:
        return fit_message(waiting.nodes, waiting.reasons)
    return waiting.message


def told(waiting: Waiting) -> str:
    """For one pod: with what it waits for together with others."""
    if waiting.reasons and waiting.message and waiting.reason == UNSCHEDULABLE:
        return f"{waiting.message}; {fit_message(waiting.nodes, waiting.reasons)}"
    return waiting.message or fit_message(waiting.nodes, waiting.reasons)
