"""Decisions that may take longer than the loop may stall: which they are, and how the log knows of them before they are made."""

from collections.abc import Callable
from typing import Any

import msgspec

from restow.contracts import commands as c
from restow.contracts.ids import Millis
from restow.domain.state import ClusterState


class Heavy(msgspec.Struct, frozen=True, kw_only=True):
    """One family's. `takes_long` says whether a command is to be decided on a copy of the process; `bounded` is the command as it is made after others have failed; `begin` and `end` are the commands that put on record that it begins,
    and that it came to nothing; `under_way` says of which command the state knows that it has begun and not ended, empty for none."""

    takes_long: Callable[[ClusterState, c.Command], bool]
    bounded: Callable[[ClusterState, Any], Any]
    begin: Callable[[ClusterState, Any], c.Command]
    end: Callable[[ClusterState, Millis, str, str, bool], c.Command]
    under_way: Callable[[ClusterState], str]
    note: Callable[[ClusterState, Millis], str]
    """Why such decisions are put off, or made in a smaller way; empty while they are not."""
