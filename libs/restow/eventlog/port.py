"""The event log's port: what every adapter promises, and the ways in which it can refuse.

The log is one total order of commits for one cluster. A commit belongs to one family (one service) and is
appended only if the writer names that family's last sequence correctly, so two writers of one family can never
both succeed at the same place (DESIGN 2). The log moves bytes and envelopes; it knows no domain type.

Sequences count from 1. A truncated log has lost its whole prefix. Only a broker whose disk has lost records leaves holes; a reader hands on what
follows them.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterable
from typing import Protocol, runtime_checkable
from urllib.parse import unquote, urlsplit

import msgspec

from restow.contracts.envelope import Envelope
from restow.contracts.redact import redacted

Family = str
"""One of the services' families, one token: "cluster", "session", "reservation", "migration", "gc"."""

SILENT_BROKER = "a broker that keeps a copy of the log is silent"
"""Each service says so with the same words, and who lists them all says it once."""

MAX_BODY = 4 * 1024 * 1024
"""Largest commit body in bytes, whatever the broker would take (DESIGN 2, Limits)."""

READ_BATCH = 1000
"""Most records that one batch of `EventLog.read` holds."""

FORMAT = 1
"""Version of the log's storage format, kept in the stream's metadata, journal and archive headers."""

SCHEMES = ("nats", "tls", "ws", "wss")
"""Of a broker's address."""

_TOKEN = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")


class Record(msgspec.Struct, frozen=True, gc=False):
    """One commit as stored.

    seq: position in the log, from 1. time: when the log stored it, nanoseconds since the Unix epoch (the broker's
    clock; memory and file logs take a clock). body: exactly the bytes that were appended.
    """

    seq: int
    family: Family
    envelope: Envelope
    body: bytes
    time: int


class LogError(Exception):
    """Base of everything that a log refuses or reports."""


class Conflict(LogError):
    """The expectation failed: somebody else appended to this family. Nothing was stored.

    Fold to the tail and decide again. `actual` is the family's last sequence where the log said so, else None.
    """

    def __init__(self, family: Family, expected: int, actual: int | None = None) -> None:
        self.family, self.expected, self.actual = family, expected, actual
        found = "it is another one" if actual is None else f"it is {actual}"
        super().__init__(f"expected {expected} as the last sequence of family {family!r}, but {found}")


class Unknown(LogError):
    """The append may or may not have been stored (timeout, lost connection, broker in trouble).

    Never repeat it blindly: fold to the tail and look for `ce_id`. There means success; absent means decide again
    under a new id. The expectation makes a late arrival of the lost one harmless.
    """

    def __init__(self, family: Family, ce_id: str, why: str, *, full: bool = False, answered: bool = False) -> None:
        self.family, self.ce_id, self.why = family, ce_id, why
        self.answered = answered
        """The broker itself has said why it cannot."""
        self.full = full
        """The store has no capacity: nothing more is taken until something goes."""
        super().__init__(f"no answer to commit {ce_id} of family {family!r}: {why}; it may or may not be stored")


class Unavailable(LogError):
    """A question (tail, first, truncate, a snapshot ...) got no answer in time. Safe to ask again."""


class Full(Unavailable):
    """The store has no capacity for what is not a commit (a snapshot): it is to be asked again when something has gone."""


class TooLarge(LogError):
    """The commit's body exceeds `limit` bytes. Nothing was sent."""

    def __init__(self, family: Family, size: int, limit: int) -> None:
        self.family, self.size, self.limit = family, size, limit
        super().__init__(f"a commit of {size} bytes in family {family!r} exceeds the limit of {limit} bytes")


class BrokerRefused(LogError):
    """The broker lacks what the log needs, or definitely refused. Says what, where, and what to do."""


class NoBroker(BrokerRefused):
    """Nobody answers there, or not yet."""


class NotLetIn(BrokerRefused):
    """A broker answers there, and one of both has another password, certificate or no TLS: for good, or until what is being rolled out has reached both."""


class Forbidden(BrokerRefused):
    """The broker's permissions do not let this user do it."""


class NoLog(BrokerRefused):
    """The broker has no log of that name, and this call was not to make one."""


class LogMismatch(LogError):
    """This is not the log that was expected: its configuration, id, format or content differs."""


class OtherHistory(LogMismatch):
    """The log is not the one that was read before: it ends earlier, or holds other records. It has lost commits."""


class Truncated(LogError):
    """Asked for `seq`, but the log now begins at `first_seq`: load a snapshot at or after `first_seq - 1`."""

    def __init__(self, seq: int, first_seq: int) -> None:
        self.seq, self.first_seq = seq, first_seq
        super().__init__(f"sequence {seq} was truncated away; the log begins at {first_seq}: load a snapshot")


class NotAllowed(LogError, ValueError):
    """A name or an address that no log can have. Says it, and what is allowed."""


class Closed(LogError):
    """The log was closed by this process; every waiting call ends with this."""


@runtime_checkable
class EventLog(Protocol):
    """One cluster's log. Safe for many readers and many appends at once on one event loop."""

    @property
    def cluster(self) -> str:
        """Name of the cluster whose log this is."""
        ...

    @property
    def log_id(self) -> str:
        """Random id made when the log was created: equal ids mean the same history."""
        ...

    @property
    def max_body(self) -> int:
        """Largest body in bytes that `append` takes."""
        ...

    @property
    def connected(self) -> bool:
        """False while the broker is out of reach: readers wait and resume by themselves; be unready meanwhile."""
        ...

    async def wait_connected(self) -> None:
        """Until `connected` holds. Raises Closed."""
        ...

    async def append(self, family: Family, body: bytes, envelope: Envelope, *, expected_last: int) -> int:
        """Store one commit durably and return its sequence.

        expected_last: last sequence of this family in the log, 0 when it has none (or all was truncated away).
        A caller that is cancelled knows as little as after Unknown.
        Raises Conflict, Unknown, TooLarge, BrokerRefused, LogMismatch, Closed.
        """
        ...

    def read(self, from_seq: int) -> AsyncIterator[list[Record]]:
        """Every record from `from_seq` (at least 1) in order, then whatever follows, for ever.

        Yields non-empty batches as they come and never waits to fill one. A reader is caught up when it has seen the
        sequence that `tail` named. Raises Truncated, OtherHistory (asked beyond the end, or what was handed on last is another record now), LogMismatch, Closed.
        """
        ...

    async def tail(self) -> int:
        """Last sequence in the log now, 0 if nothing was ever appended."""
        ...

    async def time(self) -> int:
        """What the log's clock says, nanoseconds since the epoch: the one that `Record.time` is taken from."""
        ...

    async def first(self) -> int:
        """First sequence still in the log; `tail() + 1` when it is empty."""
        ...

    async def last_of(self, family: Family) -> int:
        """Last sequence of this family still in the log, else 0: what `append` expects."""
        ...

    async def truncate(self, upto: int) -> None:
        """Drop the whole prefix with sequence <= `upto`; nothing to drop is no error.

        Raises LogMismatch when `upto` is beyond the tail.
        """
        ...

    async def close(self) -> None:
        """Release everything and wake every waiter with Closed. May be called again."""
        ...


@runtime_checkable
class RemembersRead(Protocol):
    """A log that takes no commit of who has read what it does not hold any more (JetStream)."""

    def forget_read(self) -> None:
        """Take one all the same: it says what was read, so that every reader finds out."""
        ...


@runtime_checkable
class OnBrokers(Protocol):
    """A log that brokers keep (JetStream): one of several leads, and it may count records that it has lost."""

    @property
    def claimed(self) -> int:
        """Where the broker says that the log ends, if it cannot show that record; else 0. As of the last call of `tail`."""
        ...

    def too_few(self) -> str:
        """Why no commit is taken, where fewer brokers are there than must be, or the one that is asked has lost the others; else empty. As of the last call of `tail`."""
        ...

    def damaged_copy(self) -> str:
        """What one of several brokers lacks and another one has, where a reader was on such a one within the last hour; else empty, also once that is truncated (as of the last call of `tail`)."""
        ...

    async def shown_by(self) -> str:
        """Which of several brokers leads the log now; empty for one that is alone. Raises Unavailable."""
        ...


def reached(log: EventLog) -> bool:
    """Whether it takes commits from here, as far as is known."""
    return log.connected and not (isinstance(log, OnBrokers) and log.too_few())


def check_token(kind: str, value: str) -> str:
    """`value` as one subject token: lower-case letters, digits, `-` and `_`, at most 63. Raises NotAllowed."""
    if not _TOKEN.fullmatch(value):
        raise NotAllowed(
            f"{kind} {value!r} is not allowed: 1 to 63 lower-case letters, digits, '-' and '_', "
            "beginning with a letter or digit"
        )
    return value


def check_address(value: str) -> str:
    """`value` as the address of one broker. Raises NotAllowed, without a password that is in it."""
    try:
        address = urlsplit(value)
        good = address.scheme in SCHEMES and bool(address.hostname) and address.port != 0 and not re.search(r"[\s,]", value)
    except ValueError:
        good = False
    if not good:
        raise NotAllowed(f"broker address {redacted(value)!r} is not allowed: nats://HOST:PORT with a port of 1 to 65535, several separated by commas")
    return value


def check_login(addresses: Iterable[str], user: str | None, password: str | None = None) -> None:
    """Raises NotAllowed where a user or password beside the addresses is another one than an address names: whichever of them won, somebody would have meant
    the other."""
    for value in addresses:
        address = urlsplit(value)
        if address.username is None or not user:
            continue
        if unquote(address.username) != user or (password and address.password is not None and unquote(address.password) != password):
            raise NotAllowed(f"broker address {redacted(value)} names a user or password, and RESTOW_NATS_USER={user} another one; allowed: one of them, or the same")


def check_append(family: Family, body: bytes, expected_last: int, limit: int) -> None:
    """Refuse what no log would take. Raises ValueError (a programming error) or TooLarge."""
    check_token("family", family)
    if expected_last < 0:
        raise ValueError(f"expected_last must be at least 0, not {expected_last}")
    if len(body) > limit:
        raise TooLarge(family, len(body), limit)


def check_from(from_seq: int) -> int:
    """`from_seq` if it can be a sequence, else ValueError."""
    if from_seq < 1:
        raise ValueError(f"sequences count from 1; cannot read from {from_seq}")
    return from_seq


def missing(first: int, last: int, where: str = "") -> str:
    """`where`: of which log."""
    return f"record {first}{where} is missing" if first == last else f"records {first} to {last}{where} are missing"


def beyond_end(from_seq: int, tail: int, log_id: str) -> OtherHistory:
    """The refusal to read past the end: whoever asks has folded records that this log does not hold."""
    return OtherHistory(
        f"asked to read from sequence {from_seq}, but log {log_id} ends at {tail}: it has lost commits. "
        "`restow log verify` says more, `restow log repair` goes on without them (docs/failures.md)"
    )
