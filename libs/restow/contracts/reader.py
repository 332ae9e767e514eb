"""Which readers understand a commit. A reader passes over an event of a type that it does not know, and most new events may be passed over; where one must not
be, its commit says so, and a service that is too old for it stands by instead of guessing."""

from collections.abc import Iterable, Mapping
from typing import Any

from restow.contracts import events as e
from restow.contracts.codec import Decision

READER = 2
"""The reader that this release is. Raised by one in a release with an event, or a field of one, that no older reader may pass over."""

SINCE: Mapping[type, Mapping[str, int]] = {e.Planned: {"mode": 2}, e.PlanApproved: {"": 2}, e.ModeSet: {"": 2}, e.LogRepaired: {"repairs": 2}}
"""What must not be passed over: type of event → field → the first reader that knows it. The field counts where it is not at its default; the empty name stands
for the event itself."""


def needed(decisions: Iterable[Decision], since: Mapping[type, Mapping[str, int]] = SINCE) -> int:
    """The oldest reader that understands all of these."""
    oldest = 1
    if not since:
        return oldest
    for decision in decisions:
        for event in decision.events:
            for field, reader in since.get(type(event), {}).items():
                if reader > oldest and (not field or _said(event, field)):
                    oldest = reader
    return oldest


def _said(event: Any, field: str) -> bool:
    """Whether it is on the wire: a field at its default is not."""
    default = type(event).__struct_defaults__[type(event).__struct_fields__.index(field) - len(type(event).__struct_fields__)]
    return bool(getattr(event, field) != default)
