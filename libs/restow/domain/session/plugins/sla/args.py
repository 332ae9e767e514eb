"""The plugin's arguments."""

from collections.abc import Mapping
from typing import Any, Self

import msgspec

from restow.domain.duration import DurationError, format_milliseconds, milliseconds
from restow.domain.session import args

WAITING_TIME = "sla-waiting-time"
"""Also the annotation with which a PodGroup says its own."""


class Args(args.Args, frozen=True):
    """`sla-waiting-time`: how long a job may wait, as `1h2m3s`; empty for as long as it takes."""

    waiting_time: str = msgspec.field(name=WAITING_TIME, default="")

    @property
    def waiting(self) -> int | None:
        """Milliseconds, None without a limit."""
        return milliseconds(self.waiting_time) if self.waiting_time else None

    @classmethod
    def read(cls, said: Mapping[str, Any]) -> Self:
        own = dict(said)
        if own.get(WAITING_TIME, "") != "":
            own[WAITING_TIME] = format_milliseconds(_waiting(own[WAITING_TIME]))
        return super().read(own)


def _waiting(value: Any) -> int:
    allowed = "allowed: a duration above 0, such as 1h2m3s"
    if not isinstance(value, str):
        raise args.ArgsError(f"{WAITING_TIME}: {value!r}; {allowed}")
    try:
        waiting = milliseconds(value)
    except DurationError:
        raise args.ArgsError(f"{WAITING_TIME}: {value!r}; {allowed}") from None
    if waiting <= 0:
        raise args.ArgsError(f"{WAITING_TIME}: {value!r}; {allowed}")
    return waiting
