"""The type of a family's table of rules."""

from collections.abc import Callable
from typing import Any

from restow.domain.state import ClusterState

Rules = dict[type, Callable[[ClusterState, Any], None]]
"""Event type → how it changes the state."""
