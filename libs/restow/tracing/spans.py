"""What a trace is made of, and the ids of those that follow from a log."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import msgspec

from restow.contracts.ids import Millis

Values = dict[str, str | int | bool]


class Link(msgspec.Struct, frozen=True):
    """To a span of another trace; `what` it is to this one."""

    trace: str
    span: str
    what: str


class Happened(msgspec.Struct, frozen=True):
    """Something at one moment of a span, in ms."""

    time: Millis
    name: str
    values: Values = {}


class Span(msgspec.Struct):
    """From the log. `trace` and `id` in hexadecimal, `parent` empty of a trace's root; times in ms. `error` says what went wrong, empty where nothing did.
    `open`: it has not ended, and `end` is where the log does."""

    trace: str
    id: str
    parent: str
    service: str
    name: str
    begin: Millis
    end: Millis = Millis(0)
    values: Values = {}
    events: list[Happened] = []
    links: list[Link] = []
    error: str = ""
    open: bool = False


class Measured(msgspec.Struct):
    """What a service has measured of itself; as a `Span`, but times in ns. `links`: traceparents of spans that this one follows from, too. `call`: of another server."""

    trace: str
    id: str
    parent: str
    name: str
    begin: int
    end: int
    values: Values
    links: Sequence[str] = ()
    error: str = ""
    call: bool = False


def trace_id(log_id: str, kind: str, id: str) -> str:
    """32 hexadecimal digits that follow from what the trace is about: everybody who knows that, knows them."""
    return hashlib.sha256(f"{log_id}/{kind}/{id}".encode()).hexdigest()[:32]


def span_id(trace: str, key: str) -> str:
    """16 hexadecimal digits."""
    return hashlib.sha256(f"{trace}/{key}".encode()).hexdigest()[:16]
