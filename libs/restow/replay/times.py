"""Points in a log as people name them: a sequence, a time, `now`, `-5m`."""

import msgspec

from restow.contracts.ids import Millis
from restow.contracts.times import millis
from restow.domain.duration import DurationError, milliseconds

LONGEST = 80
"""Characters of a text that are said back."""
_ALLOWED = "allowed: a sequence (4711), a time (2026-01-31T12:00:00Z), `now`, or a time ago (-5m)"


class PointError(ValueError):
    """Text that names no point in a log. Says the text and what is allowed."""


class Point(msgspec.Struct, frozen=True):
    """A sequence, or a time in milliseconds since the epoch; neither means the end of the log."""

    seq: int | None = None
    time: Millis | None = None


def parse_point(text: str, now: Millis) -> Point:
    """`now` is what a time ago counts from. Raises PointError."""
    text = text.strip()
    if text == "now":
        return Point()
    try:
        if text.isascii() and text.isdigit():
            return Point(seq=int(text))
        if text.startswith("-"):
            return Point(time=Millis(now + milliseconds(text)))
        return Point(time=millis(text))
    except (DurationError, ValueError, OverflowError):
        raise PointError(f"{text if len(text) <= LONGEST else text[:LONGEST] + '…'!r} is no point in a log; {_ALLOWED}") from None
