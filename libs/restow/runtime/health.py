"""Alive: the loop turns. Ready: this process can do its work, or could at once if the leader ended."""

from collections.abc import Callable

import msgspec

Check = Callable[[], str]
"""Empty when all is well, else the reason, with what to do where that is known."""


class Report(msgspec.Struct, frozen=True):
    ready: bool
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    """What is worth knowing although the service is ready, such as a refused configuration."""


class Health:
    """Reasons against readiness, asked when somebody asks."""

    def __init__(self) -> None:
        self.checks: list[Check] = []
        self.notes: list[Check] = []

    def report(self) -> Report:
        reasons = tuple(reason for check in self.checks if (reason := check()))
        return Report(not reasons, reasons, tuple(note for check in self.notes if (note := check())))
