"""Old forms of events lifted to the present ones, one function each, keyed by the event's name. Add, never change or remove.

An event that has another name today is found by its old name. One that kept its name and changed its fields is found by that name,
once its bytes are not the present form: so a field may get another name only where it is required. Each old form has a sample
in `proto/golden/earlier`.
"""

from collections.abc import Callable

import msgspec

Upcaster = Callable[[bytes], bytes]
"""The old event's JSON in, the current event's JSON out (with the current `type`)."""


def _renamed(raw: bytes, **names: str) -> bytes:
    """The same with other names of fields, old → new. Raises KeyError where an old one is missing."""
    event = msgspec.json.decode(raw)
    for old, new in names.items():
        event[new] = event.pop(old)
    return msgspec.json.encode(event)


UPCASTERS: dict[str, Upcaster] = {
    "cluster.reservation_observed": lambda raw: _renamed(raw, door="api"),
}


def upcast(name: str, raw: bytes) -> bytes | None:
    """The current form of an old event, or None where there is no old form of this name."""
    lift = UPCASTERS.get(name)
    return None if lift is None else lift(bytes(raw))
