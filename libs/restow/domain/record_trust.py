"""Which records of the log are ours: the one place that says so (RULES G-16).

A broker stores whatever somebody could send to the log's subjects: an answer of its own under a chosen reply subject, a commit of
another log, events of a family by the password of another; and one that has lost records holds commits that follow from them. Such a record is void: it changes nothing but its family's last sequence,
it is counted under `record.…`, and no reader stops at it. It is one decision for the whole record, for a commit is atomic.
"""

from collections.abc import Iterable

import msgspec

from restow.contracts import events as e
from restow.contracts import times
from restow.contracts.codec import CodecError, Decision, decode, name_of
from restow.contracts.envelope import COMMIT_TYPE, Envelope, EnvelopeError
from restow.contracts.ids import FAMILIES, Millis
from restow.domain.history import History

NO_FAMILY = "record.no_family"
NO_ENVELOPE = "record.no_envelope"
OTHER_LOG = "record.other_log"
OTHER_FAMILY = "record.other_family"
UNREADABLE = "record.unreadable"
OTHER_HISTORY = "record.other_history"
KINDS = (NO_FAMILY, NO_ENVELOPE, OTHER_LOG, OTHER_FAMILY, UNREADABLE, OTHER_HISTORY)
"""What a void record is counted as, beside the events that are."""

_LATER = (NO_FAMILY, OTHER_FAMILY, UNREADABLE)
"""What a record of a later release may be to an older one."""

LONGEST = 300
"""Characters of a reason."""

_FAMILY_OF: dict[type, str] = {cls: str(cls.__struct_config__.tag).partition(".")[0] for cls in e.EVENTS}
_TYPES: dict[str, frozenset[type]] = {family: frozenset((*(cls for cls, of in _FAMILY_OF.items() if of == family), e.Unknown)) for family in FAMILIES}


class Examined(msgspec.Struct, frozen=True, gc=False):
    """A record that was looked at. `kind` and `why` are empty where it is ours; else it has neither time nor decisions."""

    time: Millis = Millis(0)
    decisions: tuple[Decision, ...] = ()
    kind: str = ""
    why: str = ""


def examine(family: str, envelope: Envelope, body: bytes, log_id: str = "") -> Examined:
    """Whether it is ours, and what it says. `log_id`: of the log that it is in; empty where that is not known."""
    if family not in _TYPES:
        return _stranger(NO_FAMILY, f"{family!r} is no family; allowed: {', '.join(FAMILIES)}")
    if kind_and_why := _envelope(family, envelope, log_id):
        return _stranger(*kind_and_why)
    try:
        time = times.stamped(envelope.time)
    except (ValueError, OverflowError) as error:
        return _stranger(NO_ENVELOPE, f"header 'ce-time' is {envelope.time!r}; allowed: RFC 3339 ({error})")
    try:
        decisions = decode(body)
    except CodecError as error:
        return _stranger(UNREADABLE, f"it cannot be read: {error}")
    if name := foreign_event(family, decisions):
        return _stranger(OTHER_FAMILY, f"{name} in a commit of family {family}")
    return Examined(time, decisions)


def in_history(history: History, seq: int, envelope: Envelope, found: Examined) -> Examined:
    """The same, unless it follows from another history than the one that ends before it."""
    why = "" if found.kind else history.differs(seq, envelope)
    return _stranger(OTHER_HISTORY, f"it follows from another history: {why}") if why else found


def may_be_later(found: Examined, envelope: Envelope, log_id: str) -> bool:
    """Whether what it says of its readers counts: it is ours, or is void only by what a later release may have changed."""
    return not found.kind or (found.kind in _LATER and envelope.log in ("", log_id))


def repairs(family: str, body: bytes) -> bool:
    """Whether a record of this family says that the log goes on as it is."""
    try:
        return family == "gc" and any(isinstance(event, e.LogRepaired) for decision in decode(body) for event in decision.events)
    except CodecError:
        return False


def _stranger(kind: str, why: str) -> Examined:
    """`why` may quote what a stranger wrote: it is shown on terminals and in logs, so it is short and printable."""
    plain = "".join(char if char.isprintable() else "?" for char in why[:LONGEST])
    return Examined(kind=kind, why=plain + ("…" if len(why) > LONGEST else ""))


def _envelope(family: str, envelope: Envelope, log_id: str) -> tuple[str, str] | None:
    if envelope.given is not None:
        try:
            Envelope.from_headers(envelope.given)
        except EnvelopeError as error:
            return NO_ENVELOPE, str(error)
    if envelope.type != COMMIT_TYPE:
        return NO_ENVELOPE, f"ce-type is {envelope.type!r}, must be {COMMIT_TYPE!r}"
    if log_id and envelope.log and envelope.log != log_id:
        return OTHER_LOG, f"restow-log is {envelope.log!r}: it was written for that log; this is {log_id!r}"
    if envelope.logic.partition("@")[0] != family:
        return OTHER_FAMILY, f"restow-logic is {envelope.logic!r} in a commit of family {family}"
    return None


def foreign_event(family: str, decisions: Iterable[Decision]) -> str:
    """The name of an event that is not this family's to say, or empty. One family is one subject and one permission (DESIGN 1):
    whoever may write `reservation` does not thereby remove nodes or lead the session."""
    own = _TYPES[family]
    for decision in decisions:
        kinds = set(map(type, decision.events))
        if kinds <= own and e.Unknown not in kinds:
            continue
        for event in decision.events:
            name = name_of(event)
            if name.partition(".")[0] != family:
                return name
    return ""
