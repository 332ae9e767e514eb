"""The log on JetStream: the port over connection, stream, appends and the ordered reader."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Sequence
from time import monotonic

from msgspec.structs import replace

from restow.contracts.envelope import Envelope
from restow.eventlog.access import NO_FILES, AccessFiles
from restow.eventlog.jetstream.append import APPEND_TIMEOUT, EXPECTATIONS, HEADER_SPACE, Appender
from restow.eventlog.jetstream.connect import Broker, NotNow
from restow.eventlog.jetstream.reader import Delivery, Feed, another_record
from restow.eventlog.jetstream.stream import State, Stored, Stream
from restow.eventlog.port import (
    BrokerRefused,
    Closed,
    Family,
    LogMismatch,
    Record,
    Truncated,
    Unavailable,
    Unknown,
    beyond_end,
    check_from,
    check_token,
    missing,
)

_log = logging.getLogger(__name__)

END_CHECKS, END_PAUSE = 3, 0.1
"""How often, and after how many seconds, a log that seems to end too early is asked again: a replica that has just
become the leader may not have applied its last commits."""

DAMAGED_FOR = 3600.0
"""Seconds for which is said that a broker lacks records, after a reader was on it: nobody tells us that its volume was emptied."""

OPEN_PAUSE = 0.2
"""Seconds between two attempts to open the stream on a broker that is not ready yet."""


class JetStreamLog:
    """An EventLog in one JetStream stream. Made by `connect`."""

    def __init__(self, broker: Broker, stream: Stream, appender: Appender) -> None:
        self.broker = broker
        self._stream, self._appender = stream, appender
        self._feeds: set[Feed] = set()
        self._damaged: dict[str, tuple[int, int, float]] = {}
        """Of a broker that lacks records which another one has: the first and the last of them, and when (steady seconds) a reader was on it last."""
        self._verified_losses = 0
        self._newest: Delivery | None = None
        """Of all records that were read, the one with the highest sequence."""
        self._there = 0
        """The highest sequence that was asked for by itself, and is there."""
        self.claimed = 0
        """See OnBrokers.claimed."""

    @property
    def cluster(self) -> str:
        """See EventLog.cluster."""
        return self._stream.cluster

    @property
    def log_id(self) -> str:
        """See EventLog.log_id."""
        return self._stream.log_id

    @property
    def replicas(self) -> int:
        """Copies of it, each on a broker of its own."""
        return self._stream.replicas

    @property
    def max_body(self) -> int:
        """See EventLog.max_body."""
        return self._appender.max_body

    @property
    def connected(self) -> bool:
        """See EventLog.connected."""
        return self.broker.connected

    def away(self) -> str:
        """That the broker is out of reach, and why, as it was seen last; empty while it is not."""
        return "" if self.connected else f"the broker is out of reach: waiting for it ({self.broker.said()})"

    async def wait_connected(self) -> None:
        """See EventLog.wait_connected."""
        await self.broker.wait_connected()

    async def append(self, family: Family, body: bytes, envelope: Envelope, *, expected_last: int) -> int:
        """See EventLog.append."""
        if self._verified_losses != self.broker.losses and self.broker.connected:
            try:
                await self._verify()
            except Unavailable as error:
                raise Unknown(family, envelope.id, str(error), answered=isinstance(error, NotNow)) from error
        return await self._appender.append(family, body, envelope, expected_last)

    def forget_read(self) -> None:
        """See RemembersRead."""
        self._newest = None

    def check_bulk(self, record: Record) -> None:
        """Whether `bulk_append` can store this record: see Appender.check."""
        self._appender.check(record)

    @property
    def import_to(self) -> int:
        """The last record that an import has said to bring; 0 where none has."""
        return self._stream.import_to

    async def begin_import(self, last: int) -> None:
        """See Stream.begin_import."""
        await self._stream.begin_import(last)

    async def end_import(self, last: int) -> None:
        """See Stream.end_import."""
        await self._stream.end_import(last)

    async def bulk_append(self, records: AsyncIterable[Record]) -> int:
        """For imports and benchmarks: see Appender.bulk."""
        return await self._appender.bulk(records)

    async def read(self, from_seq: int) -> AsyncIterator[list[Record]]:
        """See EventLog.read."""
        check_from(from_seq)
        self._check_open()
        feed = Feed(self.broker, self._stream.name, first_check=self._check_readable, on_hole=self._hole, single=self._single, copies=self._stream.replicas, on_damaged=self._note_damaged)
        self._feeds.add(feed)
        prefix = len(f"restow.{self.cluster}.")
        batches = feed.batches(from_seq)
        try:
            async for batch in batches:
                if self._newest is None or batch[-1].seq > self._newest.seq:
                    self._newest = batch[-1]
                yield [_record(delivery, prefix) for delivery in batch]
        finally:
            self._feeds.discard(feed)
            await batches.aclose()  # type: ignore[attr-defined]

    def crowded(self) -> str:
        """That the broker makes no consumer for somebody who reads here; empty while it does."""
        if any(feed.crowded for feed in self._feeds):
            return "the broker makes no more consumers, so the log is read record by record: whoever makes them has a password of the broker (docs/install.md, \"Other passwords\")"
        return ""

    def _note_damaged(self, first: int, last: int, broker: str) -> None:
        known = self._damaged.get(broker, (first, last, 0.0))
        self._damaged[broker] = min(first, known[0]), max(last, known[1]), monotonic()

    def damaged_copy(self) -> str:
        """See OnBrokers.damaged_copy."""
        there = self._stream.first
        said = [
            f"{missing(max(first, there), last)} on one broker ({broker}), and there on another: its volume is damaged (docs/failures.md)"
            for broker, (first, last, at) in sorted(self._damaged.items())
            if last >= there and monotonic() - at < DAMAGED_FOR
        ]
        return "; ".join(said)

    def too_few(self) -> str:
        """See Copies. As of the last `tail`."""
        return self._stream.copies.too_few()

    def unlike(self) -> str:
        """That somebody has given the stream settings with which records go that are to stay, such as an age; empty while it is as it was made. As of the last `tail`."""
        return self._stream.unlike

    def some_silent(self) -> str:
        """See Copies. As of the last `tail`."""
        return self._stream.copies.some_silent()

    async def tail(self) -> int:
        """See EventLog.tail. Raises Unavailable when the broker does not answer.

        Where the last records are damaged on its disk the broker goes on counting them, and whoever waited for them would wait for ever: the log ends
        with the last one that can be read. The next commit comes behind what is lost, and by that every reader finds the hole."""
        try:
            return await self._end()
        finally:
            if self.too_few():
                # A broker that is alone keeps its clients, whoever it does not reach: the log may well go on where others are.
                await self.broker.leave()

    async def _end(self) -> int:
        for check in range(END_CHECKS):
            await asyncio.sleep(END_PAUSE if check else 0)
            state = await self._stream.state()
            if await self._is_there(state):
                self.claimed = 0
                return state.last
        if self.claimed != state.last:
            _log.error("the broker says that log %s ends at record %d, which it cannot show: it has lost the last ones", self.log_id, state.last)
        self.claimed = state.last
        return await self._readable(state)

    async def _is_there(self, state: State) -> bool:
        """Whether the last record is. A log without any ends where it says."""
        known = max(self._there, self._newest.seq if self._newest is not None else 0)
        if state.first > state.last or state.last <= known:
            return True
        if await self._stream.message(state.last) is None:
            return False
        self._there = state.last
        return True

    async def _readable(self, state: State) -> int:
        """The last record that there is, before `state.last`, which cannot be read."""
        there, lost = state.first - 1, state.last
        while lost - there > 1:
            # Whether there is any from the middle on: where there is one, all before it count as there.
            found = await self._stream.message((there + 1 + lost) // 2, following=True)
            if found is None:
                lost = (there + 1 + lost) // 2
            else:
                there = found.seq
        return there

    async def shown_by(self) -> str:
        """See OnBrokers.shown_by. Raises Unavailable."""
        return await self._stream.leader()

    async def time(self) -> int:
        """See EventLog.time. Raises Unavailable when the broker does not answer."""
        return (await self._stream.state()).time

    async def first(self) -> int:
        """See EventLog.first. Raises Unavailable when the broker does not answer."""
        return (await self._stream.state()).first

    async def last_of(self, family: Family) -> int:
        """See EventLog.last_of. Raises Unavailable when the broker does not answer."""
        return await self._stream.last_of(check_token("family", family))

    async def truncate(self, upto: int) -> None:
        """See EventLog.truncate. Raises Unavailable when the broker does not answer."""
        state = await self._stream.state()
        if upto > state.last:
            raise LogMismatch(f"cannot truncate up to {upto}: the log ends at {state.last}")
        if upto >= state.first:
            await self._stream.purge(upto)

    async def close(self) -> None:
        """See EventLog.close."""
        for feed in list(self._feeds):
            await feed.close()
        await self.broker.close()

    async def _verify(self) -> None:
        """After a reconnect: still the same log on a server that can hold it, with what was read of it? What is decided on another history must not
        get into this one; the reader may hear of it later than we."""
        losses = self.broker.losses
        self.broker.check_server()
        state, newest = await self._stream.state(), self._newest
        if newest is not None and newest.seq > state.last:
            raise Unavailable(f"the log ends at {state.last}, and {newest.seq} was read of it before")
        if newest is not None and newest.seq >= state.first:
            there = await self._stream.message(newest.seq)
            if there is not None and not _same(newest, there):
                raise another_record(newest.seq, self._stream.name)
        self._verified_losses = losses

    async def _check_readable(self, from_seq: int) -> None:
        state = await self._stream.state()
        if from_seq < state.first:
            raise Truncated(from_seq, state.first)
        for _ in range(END_CHECKS):
            if from_seq <= state.last + 1:
                return
            await asyncio.sleep(END_PAUSE)
            state = await self._stream.state()
        if from_seq > state.last + 1:
            raise beyond_end(from_seq, state.last, self.log_id)

    async def _single(self, seq: int) -> Delivery | None:
        """The first record from `seq` on, asked for by itself; None where the log has none."""
        there = await self._stream.message(seq, following=True)
        if there is None:
            return None
        headers = await self.broker.client._process_headers(there.headers)
        return Delivery(there.seq, there.subject, headers or {}, there.data, there.time, 0)

    async def _hole(self, expected: int, got: int) -> Exception | None:
        """Truncated while it was read, or lost by the broker's disk: what is there is handed on, and the fold says that something is missing."""
        state = await self._stream.state()
        return Truncated(expected, state.first) if expected < state.first else None

    def _check_open(self) -> None:
        if self.broker.closed:
            raise Closed("this log was closed")


def _same(known: Delivery, there: Stored) -> bool:
    """`headers` as they were sent. How a stranger's client writes them is not for us to say; then the body has to do."""
    ours = Envelope.of(known.headers).given is None
    named = b"\r\nce-id: %s\r\n" % known.headers.get("ce-id", "").encode()
    return (known.subject, known.data) == (there.subject, there.data) and (not ours or named in there.headers)


def _record(delivery: Delivery, prefix: int) -> Record:
    """As it was sent, whoever wrote it: whether it is ours is for the fold to say (`restow.domain.record_trust`)."""
    envelope = Envelope.of(delivery.headers)
    if envelope.given is not None:
        # Else what an import has restored would say more than what it was restored from.
        envelope = replace(envelope, given={k: v for k, v in envelope.given.items() if k not in EXPECTATIONS})
    return Record(delivery.seq, delivery.subject[prefix:], envelope, delivery.data, delivery.time)


async def connect(
    servers: str | Sequence[str],
    cluster: str,
    *,
    create: bool = True,
    replicas: int | None = None,
    log_id: str = "",
    first_seq: int = 1,
    import_to: int = 0,
    before: Callable[[Callable[[Record], None]], Awaitable[None]] | None = None,
    name: str = "restow",
    user: str | None = None,
    password: str | None = None,
    inbox_prefix: str = "",
    files: AccessFiles = NO_FILES,
    wait: float = 10.0,
    append_timeout: float = APPEND_TIMEOUT,
) -> JetStreamLog:
    """Open the cluster's log, creating its stream where `create` allows.

    replicas: None adopts what is there and creates with 1; a number must match. log_id, first_seq: only for a stream
    that this call creates (an import restores both). import_to: the last sequence that an import brings; until it is there, everybody else who opens the log
    raises Unavailable. before: done while nothing is made yet; it is given what raises where this broker cannot store a record (Appender.check). files: certificates and credentials. wait: seconds for a broker that cannot be reached, or that is
    still electing. append_timeout: seconds. Raises BrokerRefused, LogMismatch, Unavailable.
    """
    check_token("cluster", cluster)
    broker = await Broker.connect(
        servers, name=name, user=user, password=password, inbox_prefix=inbox_prefix, files=files, wait=wait
    )
    try:
        if broker.max_payload < 2 * HEADER_SPACE:
            raise BrokerRefused(
                f"the broker's max_payload is {broker.max_payload} bytes; set it to 8MB (deploy/nats/nats.conf)"
            )
        stream = Stream(broker, cluster)
        appender = Appender(broker, stream, timeout=append_timeout)
        if before is not None:
            await before(appender.check)
        deadline = asyncio.get_running_loop().time() + wait
        while True:
            try:
                await stream.open(create=create, replicas=replicas, log_id=log_id, first_seq=first_seq, import_to=import_to)
                break
            except Unavailable:
                if asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(OPEN_PAUSE)
        return JetStreamLog(broker, stream, appender)
    except BaseException:
        await broker.close()
        raise
