"""The type of a family's table of rules, and what all rules do with an event that facts have overtaken."""

from collections.abc import Callable
from typing import Any

from restow.contracts import events as e
from restow.domain.state import ClusterState

Rules = dict[type, Callable[[ClusterState, Any], None]]
"""Event type → how it changes the state."""


def void(state: ClusterState, event: e.Event) -> None:
    """It changes nothing, and is counted."""
    state.void[str(event.__struct_config__.tag)] += 1
