"""Decisions that may take longer than the loop may stall: which they are, and how the log knows of them before they are made."""

from collections.abc import Callable
from typing import Any

import msgspec

from restow.contracts import commands as c
from restow.contracts.ids import Millis
from restow.domain.state import ClusterState

MANY = 5_000
"""Pods from which on such a command is decided on a copy of the process."""


class Heavy(msgspec.Struct, frozen=True, kw_only=True):
    """One family's. `bounded` is the command as it is made after others have failed; `begin` and `end` are the commands that put on record that it begins,
    and that it came to nothing; `under_way` says of which command the state knows that it has begun and not ended, empty for none."""

    types: tuple[type[c.Command], ...]
    bounded: Callable[[ClusterState, Any], Any]
    begin: Callable[[ClusterState, Any], c.Command]
    end: Callable[[ClusterState, Millis, str, str, bool], c.Command]
    under_way: Callable[[ClusterState], str]
    note: Callable[[ClusterState, Millis], str]
    """Why such decisions are put off, or made in a smaller way; empty while they are not."""

    def is_large(self, state: ClusterState, command: c.Command) -> bool:
        return isinstance(command, self.types) and len(state.pods) >= MANY
