"""Old event versions lifted to the current ones, one function each, keyed by the old name. Add, never change or remove.

There is no old version yet: the table starts empty, and the codec calls it for every name that it does not know.
"""

from collections.abc import Callable

Upcaster = Callable[[bytes], bytes]
"""The old event's JSON in, the current event's JSON out (with the current `type`)."""

UPCASTERS: dict[str, Upcaster] = {}


def upcast(name: str, raw: bytes) -> bytes | None:
    """The current form of an old event, or None where the name is not an old one of ours."""
    lift = UPCASTERS.get(name)
    return None if lift is None else lift(bytes(raw))
