"""Old forms of events and commands lifted to the present ones, one function each, keyed by the name. Add, never change or remove.

One that has another name today is found by its old name. One that kept its name and changed its fields is found by that name, once
its bytes are not the present form; where a field got another name that need not be there, `OPTIONAL` says how its old form is known.
Each old form has a sample in `proto/golden/earlier`.
"""

import re
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


def _retagged(raw: bytes, name: str) -> bytes:
    """The same under another name."""
    return msgspec.json.encode({**msgspec.json.decode(raw), "type": name})


UPCASTERS: dict[str, Upcaster] = {
    "cluster.reservation_observed": lambda raw: _renamed(raw, door="api"),
    "migration.planned": lambda raw: _renamed(raw, rooms="slots"),
    "migration.came_back": lambda raw: _retagged(raw, "migration.bounced"),
    "session.hold_lent": lambda raw: _retagged(raw, "session.hold_borrowed"),
    "report_room": lambda raw: _retagged(raw, "report_slot"),
}

OPTIONAL = {"migration.planned": b'"rooms":'}
"""Old fields that an event need not have: by its name, their key in JSON. Bytes with such a field pass for the present form, in which
it would be lost."""
_ANY_OPTIONAL = re.compile(b"|".join(map(re.escape, OPTIONAL.values())))


def may_be_old(body: bytes) -> bool:
    """Whether a commit that passes for the present form may have one of the fields in `OPTIONAL`."""
    return _ANY_OPTIONAL.search(body) is not None


def is_old(name: str, raw: bytes) -> bool:
    """Whether an event that passes for the present form is of the old one."""
    mark = OPTIONAL.get(name)
    return mark is not None and mark in bytes(raw)


def upcast(name: str, raw: bytes) -> bytes | None:
    """The current form of an old event, or None where there is no old form of this name."""
    lift = UPCASTERS.get(name)
    return None if lift is None else lift(bytes(raw))
