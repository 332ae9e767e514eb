"""Old forms of events and commands lifted to the present ones, one function each, keyed by the name. Add, never change or remove.

One that has another name today is found by its old name. One that kept its name and changed its fields is found by that name, once
its bytes are not the present form; where they pass for it, because a field need not be there or only its value is old, `SAME_FORM` says
how the old form is known.
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


REASONS = {
    "NoRoom": "NoCapacity",
    "RoomFailed": "SlotFailed",
    "RoomTimeout": "SlotTimeout",
    "NodeOwesRoom": "NodeOwesCapacity",
    "CameBack": "Bounced",
    "Draws": "UsesReservation",
    "Room": "Capacity",
}
"""Ids of verdicts that had other names, old → new. Some are followed by `: ` and a sentence."""


def _reason(said: str) -> str:
    id, separator, sentence = said.partition(": ")
    return REASONS.get(id, id) + separator + sentence


def _given_reason(raw: bytes) -> bytes:
    """The same with the present id in its `reason`."""
    event = msgspec.json.decode(raw)
    return msgspec.json.encode({**event, "reason": _reason(event["reason"])})


def _planned(raw: bytes) -> bytes:
    """The same with `rooms` called `slots`, and present ids in `kept`. What the slots' Reservations are called stays: they exist."""
    event = msgspec.json.decode(raw)
    if "rooms" in event:
        event["slots"] = event.pop("rooms")
    if "kept" in event:
        event["kept"] = dict(sorted((_reason(said), count) for said, count in event["kept"].items()))
    return msgspec.json.encode(event)


UPCASTERS: dict[str, Upcaster] = {
    "cluster.reservation_observed": lambda raw: _renamed(raw, door="api"),
    "migration.planned": _planned,
    "migration.failed": _given_reason,
    "migration.plan_cancelled": _given_reason,
    "migration.came_back": lambda raw: _retagged(raw, "migration.bounced"),
    "session.hold_lent": lambda raw: _retagged(raw, "session.hold_borrowed"),
    "report_room": lambda raw: _retagged(raw, "report_slot"),
}

_REASON = re.compile(rb'"reason": ?"(?:NoRoom|RoomFailed|RoomTimeout)[":]')
SAME_FORM = {
    "migration.planned": re.compile(rb'"(?:rooms|(?:CameBack|Draws|NodeOwesRoom|Room)(?:: [^"]*)?)":'),
    "migration.failed": _REASON,
    "migration.plan_cancelled": _REASON,
}
"""Events whose old form passes for the present one: by their name, what only the old one's JSON has. (No text of a user's can be
mistaken for it, for quotes inside of strings are escaped. An upcaster that finds nothing of the kind changes nothing.)"""
_FAMILY = b'"migration.'
_ANY = re.compile(b"|".join(sorted({form.pattern for form in SAME_FORM.values()})))


def may_be_old(body: bytes) -> bool:
    """Whether a commit that passes for the present form may have an event of `SAME_FORM`. Commits of other families cost one search."""
    return _FAMILY in body and _ANY.search(body) is not None


def is_old(name: str, raw: bytes) -> bool:
    """Whether an event that passes for the present form is of the old one."""
    form = SAME_FORM.get(name)
    return form is not None and form.search(bytes(raw)) is not None


def upcast(name: str, raw: bytes) -> bytes | None:
    """The current form of an old event, or None where there is no old form of this name."""
    lift = UPCASTERS.get(name)
    return None if lift is None else lift(bytes(raw))
