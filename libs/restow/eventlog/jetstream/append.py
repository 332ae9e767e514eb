"""Appends: one commit with an expectation, and a windowed bulk form for imports and benchmarks."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterable, Mapping

import msgspec
from msgspec.structs import replace

from restow.contracts.envelope import Envelope
from restow.eventlog.jetstream.connect import Broker, Denied, Failure, NoAnswer
from restow.eventlog.jetstream.stream import Stream, subject
from restow.eventlog.port import (
    MAX_BODY,
    BrokerRefused,
    Conflict,
    Family,
    Forbidden,
    LogMismatch,
    Record,
    TooLarge,
    Unknown,
    check_append,
)

EXPECTED = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_LAST = "Nats-Expected-Last-Sequence"
EXPECTED_STREAM = "Nats-Expected-Stream"
EXPECTATIONS = (EXPECTED, EXPECTED_LAST, EXPECTED_STREAM)
"""Headers that the broker keeps with a record and that say nothing but where it was to stand."""

_HEADER = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""Names that a header may have (a token of RFC 9110); the client sends no other, the broker keeps any."""
MOST_HEADERS = 60_000
"""Bytes of a stranger's headers that are sent again; the broker's own limit, with what is expected of it, is 64 KiB."""
_TOKEN = re.compile(r"[^\s.*>]+")
"""A family that a record of a stranger may have: what stood in the place of one in a subject."""

WRONG_LAST = (10071, 10164)
WRONG_STREAM = 10060
FULL = (10023, 10028, 10047, 10077)
"""Insufficient resources, memory or storage exceeded, the stream could not store it."""

NOT_WRITTEN = 10077
"""Of those, the one that does not end by itself: its disk took no more, and nats-server (2.12) stores nothing in this stream until it is started
again, whatever is free by then. 2.15 gives no answer at all."""

APPEND_TIMEOUT = 5.0
"""Seconds until an append without an answer becomes Unknown."""

HEADER_SPACE = 16 * 1024
"""Bytes of the server's max_payload that are left to headers."""

BACKOFF = (0.01, 0.03, 0.1, 0.3, 1.0)
"""Seconds before each repetition of an append that the broker refused as too many requests (429)."""

BULK_WINDOW = 2_000
"""Most appends under way in `bulk`, well below the 10 000 that the broker buffers before it answers 429."""

BULK_TIMEOUT = 60.0
"""Seconds for one append of `bulk`. The broker acknowledges a run of appends when all of it is on disk: behind a busy
disk the first answer of 5 000 took 3 s."""

BULK_BYTES = 64 * 1024 * 1024
"""Most bytes under way in `bulk`; the broker's own limit is 128 MB."""


class Ack(msgspec.Struct):
    """The answer to a publish into a stream."""

    seq: int = 0
    duplicate: bool = False
    error: Failure | None = None


class _Overloaded(Exception):
    """The broker refused the commit because it is busy (429): nothing was stored."""


_decode_ack = msgspec.json.Decoder(Ack).decode


class Appender:
    """Appends to one stream."""

    def __init__(self, broker: Broker, stream: Stream, *, timeout: float = APPEND_TIMEOUT) -> None:
        self._broker, self._stream, self._timeout = broker, stream, timeout

    @property
    def max_body(self) -> int:
        """min(4 MiB, what the server takes less capacity for headers), bytes."""
        return min(MAX_BODY, self._broker.max_payload - HEADER_SPACE)

    async def append(self, family: Family, body: bytes, envelope: Envelope, expected_last: int) -> int:
        """See EventLog.append. A refusal for overload is repeated with a bounded backoff: nothing was stored. Not on another connection: whether
        that leads to the same history is to be asked first."""
        check_append(family, body, expected_last, self.max_body)
        losses = self._broker.losses
        for pause in BACKOFF:
            try:
                return await self._once(family, body, envelope, self._expectations(expected_last), self._timeout)
            except _Overloaded:
                await asyncio.sleep(pause)
            if self._broker.losses != losses:
                raise Unknown(family, envelope.id, "the broker was overloaded, and the connection was lost meanwhile")
        try:
            return await self._once(family, body, envelope, self._expectations(expected_last), self._timeout)
        except _Overloaded as error:
            raise BrokerRefused(f"the broker is overloaded and refused {len(BACKOFF) + 1} times: {error}") from error

    async def _once(
        self, family: Family, body: bytes, envelope: Envelope, expected: Mapping[str, str], timeout: float
    ) -> int:
        headers = {**envelope.headers(), **expected}
        try:
            message = await self._broker.request(
                subject(self._stream.cluster, family), body, headers, timeout=timeout
            )
        except NoAnswer as error:
            raise Unknown(family, envelope.id, str(error)) from error
        except Denied as error:
            raise Forbidden(str(error)) from error
        return _sequence(message.data, family, envelope, int(expected.get(EXPECTED, 0)))

    def _expectations(self, last_of_family: int) -> dict[str, str]:
        return {EXPECTED: str(last_of_family), EXPECTED_STREAM: self._stream.name}

    def _place(self, seq: int) -> dict[str, str]:
        """Of its family's last nothing is said: brokers that keep copies refuse a second commit of a family while the first is under way (error 10164)."""
        return {EXPECTED_LAST: str(seq - 1), EXPECTED_STREAM: self._stream.name}

    def check(self, record: Record) -> None:
        """Whether `bulk` can store this record. Raises TooLarge, and LogMismatch where it cannot have been in a log."""
        if not _TOKEN.fullmatch(record.family):
            raise LogMismatch(f"record {record.seq} has the family {record.family!r}, which no subject of a log ends with")
        headers = _restored(record.envelope).headers() | self._place(record.seq)
        space = self._broker.max_payload - _header_bytes(headers) - len(b"NATS/1.0\r\n\r\n")
        limit = space if record.envelope.given is not None else min(space, self.max_body)
        if len(record.body) > limit:
            raise TooLarge(record.family, len(record.body), max(limit, 0))

    async def bulk(self, records: AsyncIterable[Record], *, window: int = BULK_WINDOW) -> int:
        """Append records in order with up to `window` under way; returns how many. For imports into an empty log, or into one that an
        interrupted import has left.

        Each names the place where it is to stand, which is its own sequence: what another one should have taken, it never takes, whether that
        was refused or somebody else has appended. So what is stored is always what the records begin with. Raises
        Conflict, Unknown, TooLarge, BrokerRefused, LogMismatch; what was stored before that stays.
        """
        under_way: deque[tuple[int, asyncio.Task[None]]] = deque()
        size = count = 0
        try:
            async for record in records:
                under_way.append((len(record.body), asyncio.create_task(self._store(record))))
                size, count = size + len(record.body), count + 1
                while len(under_way) >= min(window, BULK_WINDOW) or size >= BULK_BYTES:
                    size -= await _oldest(under_way)
            while under_way:
                await _oldest(under_way)
        finally:
            for _, task in under_way:
                task.cancel()
            await asyncio.gather(*(task for _, task in under_way), return_exceptions=True)
        return count

    async def _store(self, record: Record) -> None:
        self.check(record)
        try:
            seq = await self._once(record.family, record.body, _restored(record.envelope), self._place(record.seq), BULK_TIMEOUT)
        except Conflict as error:
            raise LogMismatch(f"record {record.seq} cannot stand in its place: somebody else appends to this log") from error
        except _Overloaded as error:
            raise BrokerRefused(f"the broker is overloaded and refused record {record.seq}: {error}") from error
        if seq != record.seq:
            raise LogMismatch(f"record {record.seq} was stored as {seq}: somebody else appends to this log")


def _restored(envelope: Envelope) -> Envelope:
    """As it can be sent again. A stranger's headers are kept for the record, but tell the broker nothing now (a message id, a rollup, a time to
    live), and what no client can send, or is too long, is left out: the record is as void as it was."""
    if envelope.given is None:
        return envelope
    given: dict[str, str] = {}
    left = MOST_HEADERS
    for name, value in envelope.given.items():
        if _HEADER.fullmatch(name) and not name.lower().startswith("nats-") and (size := _header_bytes({name: value})) <= left:
            given[name] = value
            left -= size
    return replace(envelope, given=given)


def _header_bytes(headers: Mapping[str, str]) -> int:
    return sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())


async def _oldest(under_way: deque[tuple[int, asyncio.Task[None]]]) -> int:
    """Wait for the first under way, so that the first failure is the one that is told; returns its bytes."""
    size, task = under_way.popleft()
    await task
    return size


def _sequence(data: bytes, family: Family, envelope: Envelope, expected: int) -> int:
    """The stored sequence, or the exception that the broker's answer means."""
    try:
        ack = _decode_ack(data)
    except msgspec.DecodeError as error:
        raise Unknown(family, envelope.id, f"the broker's answer is not readable: {data[:80]!r}") from error
    failure = ack.error
    if failure is None:
        if ack.duplicate or not ack.seq:
            raise BrokerRefused(f"the broker took commit {envelope.id} for a duplicate, although it carries no message id")
        return ack.seq
    if failure.err_code in WRONG_LAST:
        raise Conflict(family, expected, _named_sequence(failure.description))
    if failure.code == 429:
        raise _Overloaded(failure.description)
    if failure.err_code == WRONG_STREAM:
        raise LogMismatch(f"another stream than {envelope.source!r}'s took the subject: {failure.description}")
    if failure.code >= 500:
        full = failure.err_code in FULL
        said = f"the broker's store is full: {failure.description}" if full else failure.description
        todo = ": once its disk has space, start the broker again" if failure.err_code == NOT_WRITTEN else ""
        raise Unknown(family, envelope.id, f"{said} ({failure.code}, error {failure.err_code}){todo}", full=full)
    raise BrokerRefused(f"the broker refused commit {envelope.id}: {failure.description} (error {failure.err_code})")


def _named_sequence(description: str) -> int | None:
    """The last sequence in "wrong last sequence: 12", where the server names it."""
    tail = description.rpartition(":")[2].strip()
    return int(tail) if tail.isdigit() else None
