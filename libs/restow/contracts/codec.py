"""Bytes of a commit ⇄ decisions. JSON by msgspec: readable with `nats` and `jq`, and fast.

The usual case is decoded in one pass. When a commit holds a type that this version does not know, or an old one, it is
decoded again event by event: old forms go through their upcaster, unknown types become `Unknown`.
"""

from collections.abc import Sequence
from typing import Union

import msgspec

from restow.contracts import commands as c
from restow.contracts import events as e
from restow.contracts.upcasters import UPCASTERS, is_old, may_be_old, upcast

AnyEvent = Union[e.EVENTS]  # type: ignore[valid-type]  # noqa: UP007
AnyCommand = Union[c.COMMANDS]  # type: ignore[valid-type]  # noqa: UP007


class CodecError(ValueError):
    """A body that is not a commit. Says where and what."""


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One command and the events that it led to. `cause` is the command or event that made it necessary
    (`<sequence>/<decision>`, or a trigger's name); `correlation` the plan, migration or reservation it belongs to."""

    command: AnyCommand
    events: tuple[AnyEvent, ...]
    cause: str = ""
    correlation: str = ""


class Commit(msgspec.Struct, frozen=True):
    """An ordered list of decisions, atomic because a message is."""

    decisions: tuple[Decision, ...]


BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises on bytes that are not what was asked for; strings are decoded late, hence the second."""


class _RawDecision(msgspec.Struct):
    command: msgspec.Raw
    events: list[msgspec.Raw]
    cause: str = ""
    correlation: str = ""


class _RawCommit(msgspec.Struct):
    decisions: list[_RawDecision]


class _Tagged(msgspec.Struct):
    type: str


_encoder = msgspec.json.Encoder()
_commit = msgspec.json.Decoder(Commit)
_raw_commit = msgspec.json.Decoder(_RawCommit)
_tagged = msgspec.json.Decoder(_Tagged)
_event = msgspec.json.Decoder(AnyEvent)
_command = msgspec.json.Decoder(AnyCommand)
_known = {str(cls.__struct_config__.tag) for cls in e.EVENTS}
_known_commands = {str(cls.__struct_config__.tag) for cls in c.COMMANDS}


def knows_event(name: str) -> bool:
    """Whether an event of this name becomes anything else than `Unknown` here."""
    return name in _known or name in UPCASTERS


def encode(decisions: Sequence[Decision]) -> bytes:
    return _encoder.encode(Commit(tuple(decisions)))


def decode(body: bytes) -> tuple[Decision, ...]:
    """Raises CodecError where the body is not a commit; unknown types are not an error (they become `Unknown`)."""
    if may_be_old(body):
        return _decode_slowly(body)
    try:
        return _commit.decode(body).decisions
    except BAD:
        return _decode_slowly(body)


def _decode_slowly(body: bytes) -> tuple[Decision, ...]:
    try:
        raw = _raw_commit.decode(body)
    except BAD as error:
        raise CodecError(f"not a commit: {error}") from error
    return tuple(
        Decision(
            command=_one(d.command, _command, _known_commands, f"decisions[{i}].command"),
            events=tuple(_one(x, _event, _known, f"decisions[{i}].events[{j}]") for j, x in enumerate(d.events)),
            cause=d.cause,
            correlation=d.correlation,
        )
        for i, d in enumerate(raw.decisions)
    )


def _one(raw: msgspec.Raw, decoder: msgspec.json.Decoder, known: set[str], path: str):
    try:
        name = _tagged.decode(raw).type
    except BAD as error:
        raise CodecError(f"{path}: {error}") from error
    if name in known and not is_old(name, raw):
        try:
            return decoder.decode(raw)
        except BAD as error:
            if name not in UPCASTERS:
                raise CodecError(f"{path}: {error}") from error
    try:
        newer = upcast(name, raw)
        return e.Unknown(name, bytes(raw)) if newer is None else decoder.decode(newer)
    except (*BAD, ValueError, LookupError, TypeError) as error:
        # An upcaster takes for granted what its version promised; these bytes did not keep it.
        raise CodecError(f"{path}: {name} cannot be lifted to its present form: {error}") from error


def encode_event(event: e.Event) -> bytes:
    return _encoder.encode(event)


def decode_event(raw: bytes) -> AnyEvent:
    """One event on its own, as golden samples and exports have them. Raises CodecError."""
    return _one(msgspec.Raw(raw), _event, _known, "event")


def decode_command(raw: bytes) -> AnyCommand:
    """One command on its own. Raises CodecError."""
    return _one(msgspec.Raw(raw), _command, _known_commands, "command")


def name_of(value: e.Event | c.Command | e.Unknown) -> str:
    """The name on the wire: `session.pod_placed`, `schedule`."""
    return value.name if isinstance(value, e.Unknown) else str(type(value).__struct_config__.tag)
