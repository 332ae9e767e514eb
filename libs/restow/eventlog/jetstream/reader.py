"""The ordered reader: every message from a sequence on, exactly once and in order, following the tail for ever.

An ephemeral consumer without acks lives in the broker's memory. Pull requests are always outstanding, so a new
message is sent at once and nothing polls; a request is only made while the buffer has capacity, which bounds memory. Every
delivery carries the consumer's own sequence: a hole there is a lost delivery. A hole in the stream's sequences is a
truncated prefix or damage. Whatever goes wrong (lost delivery, missing heartbeat, consumer gone, broker restarted), the
consumer is made again from the last delivered sequence + 1, so nothing is lost or repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import secrets
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping

import msgspec
import nats.errors
from nats.aio.msg import Msg

from restow.eventlog.jetstream.client import Hearing
from restow.eventlog.jetstream.connect import ApiError, Broker
from restow.eventlog.jetstream.stream import NOT_FOUND, TOO_MANY
from restow.eventlog.port import BrokerRefused, Closed, LogMismatch, OtherHistory, Unavailable, missing

PULL_BATCH = 500
"""Messages in one pull request."""

PULL_BYTES = 9 * 1024 * 1024
"""Bytes in one pull request: above the largest message that a broker of ours takes (`max_payload: 8MB`), subject and reply
included, for what exceeds a request could never be delivered; and others may have written it (RULES G-16)."""

RENEW = 2_000
"""Pull requests of one consumer. A broker whose log is in another account than its reader remembers each for as long as its inbox is
subscribed to (0.6 KiB, measured): an idle reader has a new one every eight hours, a busy one every million messages."""

BUFFER_MESSAGES = 1000
BUFFER_BYTES = 16 * 1024 * 1024
"""No pull request is made while more than this waits for the caller; at most what is asked for comes on top."""

EXPIRES = 30.0
HEARTBEAT = 1.0
SILENCE = 3.5
"""Seconds: life of a pull request, the broker's idle heartbeat, and the silence after which the consumer is remade."""

INACTIVE = 30.0
"""Seconds after which the broker drops the consumer of a vanished reader."""

BACKOFF = (0.0, 0.02, 0.1, 0.3, 1.0, 2.0)
"""Seconds before each attempt in a row to make the consumer again; the last one repeats."""

SLOW, ONE_BY_ONE = 0.2, 0.1
"""Seconds after which a consumer that is not made yet is read without, and from then on between two questions whether there is more."""

TRIED = 6
"""Consumers that are made anew for what is missing, where there are several brokers: each is on one of them by chance. That all were on the damaged one of three has a chance of 1 in 2,000. Where nobody had it, nobody is asked for the next one."""

CROWDED = 2.0
"""Seconds for which is read one by one before a consumer is asked for again, where the broker makes none because there are too many."""

_NS = 1_000_000_000
_log = logging.getLogger(__name__)


class Delivery(msgspec.Struct, gc=False):
    """One message as delivered. time: the broker's, nanoseconds since the epoch. pending: how many follow it now."""

    seq: int
    subject: str
    headers: dict[str, str]
    data: bytes
    time: int
    pending: int


class _Broken(Exception):
    """The present consumer cannot go on; make it again. Says why."""


class _Crowded(_Broken):
    """There are as many consumers as there may be."""


class Feed:
    """One reader of one stream. `batches` is the whole use; `close` ends it from outside with Closed.

    first_check: raises (Truncated, LogMismatch) unless the stream can still be read from a sequence; awaited whenever
    a consumer is made. on_hole: the exception for a stream sequence `got` where `expected` should be, None where they are just missing. single: the first
    record from a sequence on, by itself, None where there is none. filter_subject: only these, then holes are normal and not checked.
    copies: of the stream, each on a broker of its own. on_damaged: told which records one of these lacks that another one has.
    """

    def __init__(
        self,
        broker: Broker,
        stream: str,
        *,
        first_check: Callable[[int], Awaitable[None]],
        on_hole: Callable[[int, int], Awaitable[Exception | None]],
        single: Callable[[int], Awaitable[Delivery | None]] | None = None,
        filter_subject: str = "",
        copies: int = 1,
        on_damaged: Callable[[int, int, str], None] = lambda first, last, broker: None,
    ) -> None:
        self._broker, self._stream, self._filter, self._copies = broker, stream, filter_subject, copies
        self._tried, self._placed = 0, ""
        """How often another consumer was asked for what is missing; and on which broker the present one is."""
        self._missed: tuple[int, int, str] | None = None
        """For which records, and which broker has neither them nor a leader that has."""
        self._single = single
        self._making = False
        """Whether the broker was asked for a consumer and has not said yet that there is one."""
        self.crowded = False
        """Whether it made none the last time, for there are too many."""
        self._first_check, self._on_hole, self._on_damaged = first_check, on_hole, on_damaged
        self._buffer: list[Msg] = []
        self._buffered = 0
        self._credit = self._pulls = 0
        self._pulling: asyncio.Task[None] | None = None
        """Requests that a delivery has led to."""
        self._last: Delivery | None = None
        """What was handed on last, if the reader is of all subjects."""
        self._compare = False
        """Whether the consumer begins with that again."""
        self._consumer = self._inbox = self._problem = ""
        self._subscription: Hearing | None = None
        self._wake = asyncio.Event()
        self._heard = 0.0
        self._guard: asyncio.TimerHandle | None = None
        """Wakes the reader that has heard nothing."""
        self._delivered = 0
        self._fatal: Exception | None = None
        self._closed = False
        self.remade = 0
        """How often the consumer had to be made again."""

    async def close(self) -> None:
        """End the feed: `batches` raises Closed, and the broker drops the consumer."""
        self._closed = True
        self._wake.set()
        await self._stop()

    async def batches(self, from_seq: int) -> AsyncIterator[list[Delivery]]:
        """Batches from `from_seq` on, for ever. Raises what `first_check` and `on_hole` raise, BrokerRefused, Closed."""
        expected, failures = from_seq, 0
        self._broker.on_lost.add(self._on_lost)
        self._broker.on_denied.add(self._on_denied)
        try:
            while True:
                try:
                    async with contextlib.aclosing(self._meanwhile(expected)) as ones:
                        async for one in ones:
                            failures, expected, self._last = 0, one.seq + 1, one
                            yield [one]
                    self.crowded = False
                    while True:
                        batch = await self._next(expected)
                        if not batch:
                            continue
                        failures, expected = 0, batch[-1].seq + 1
                        if not self._filter:
                            self._last = batch[-1]
                        yield batch
                except _Crowded:
                    failures = 0  # it was read until just now
                except (_Broken, Unavailable) as error:
                    _log.info("reader of %s at %d starts again: %s", self._stream, expected, error)
                await self._stop()
                self.remade += 1
                await self._pause(BACKOFF[min(failures, len(BACKOFF) - 1)])
                failures += 1
        finally:
            self._broker.on_lost.discard(self._on_lost)
            self._broker.on_denied.discard(self._on_denied)
            await self._stop()

    async def _meanwhile(self, expected: int) -> AsyncGenerator[Delivery]:
        """Makes the consumer. Brokers that elect whoever makes consumers make none for up to nine seconds, while the log may have its own leader, and take
        commits: what there is then is asked for one by one."""
        making = asyncio.create_task(self._start(expected))
        try:
            known = self._last if self._last is not None and self._last.seq == expected - 1 else None
            pause = SLOW
            while not (await asyncio.wait({making}, timeout=pause))[0]:
                self._check_open()
                if not self._making or self._single is None:
                    continue
                pause = ONE_BY_ONE
                try:
                    if known is not None:
                        if (there := await self._single(known.seq)) is not None and there.seq == known.seq:
                            self._same(known, there.subject, there.headers, there.data)
                        known = None
                    while not making.done() and (one := await self._single(expected)) is not None:
                        if one.seq != expected and not self._filter:
                            if self._copies > 1 and not self.crowded:
                                break  # Other brokers may have it, on which only a consumer can be.
                            await self._pass_hole(expected, one.seq)
                        expected = one.seq + 1
                        yield one
                except (Unavailable, BrokerRefused) as error:
                    _log.debug("reader of %s cannot read one by one: %s", self._stream, error)
            making.result()
        finally:
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)
            self._making = False

    async def _start(self, from_seq: int) -> None:
        """Subscribe, make the consumer, send the first pulls."""
        self._problem, self._delivered = "", 0
        # With the last record once more: a broker of which an old copy was restored, and has gone on, holds another one there.
        self._compare = self._last is not None and self._last.seq == from_seq - 1
        self._check_open()
        if not self._broker.connected:
            raise _Broken("not connected to the broker")
        await self._first_check(from_seq)
        self._consumer = "restow-" + secrets.token_hex(8)
        self._inbox = self._broker.inbox()
        config = {
            "name": self._consumer,
            "deliver_policy": "by_start_sequence",
            "opt_start_seq": from_seq - self._compare,
            "ack_policy": "none",
            "replay_policy": "instant",
            "max_deliver": -1,
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": int(INACTIVE * _NS),
        }
        subject = f"CONSUMER.CREATE.{self._stream}.{self._consumer}"
        if self._filter:
            config["filter_subject"] = self._filter
            subject += f".{self._filter}"
        try:
            # What is told and not taken yet is bounded by what we request.
            self._subscription = await self._broker.client.hear(self._inbox, functools.partial(self._on_message, self._inbox))
            self._making = True
            made = await self._broker.api(subject, {"stream_name": self._stream, "config": config, "action": "create"})
            self._placed = str((made.get("cluster") or {}).get("leader") or "")
        except ApiError as error:
            if error.err_code == TOO_MANY:
                if not self.crowded:
                    _log.warning("reader of %s goes on one by one: it has as many consumers as it may have; whoever makes them has a password of the broker", self._stream)
                self.crowded = True
                await asyncio.sleep(CROWDED)
                raise _Crowded from error
            if error.err_code == NOT_FOUND:
                raise LogMismatch(f"stream {self._stream!r} is gone: somebody deleted it, or its data is lost") from error
            raise BrokerRefused(f"the broker refused a reader of stream {self._stream!r}: {error}") from error
        except (nats.errors.Error, OSError) as error:
            raise _Broken(f"cannot subscribe: {error}") from error
        self._heard = asyncio.get_running_loop().time()
        await self._pull()

    async def _stop(self) -> None:
        """Forget the present consumer and everything that it delivered but nobody took."""
        subscription, self._subscription = self._subscription, None
        consumer, self._consumer = self._consumer, ""
        self._inbox = ""
        self._buffer, self._buffered = [], 0
        self._credit = self._pulls = 0
        if self._pulling is not None:
            self._pulling.cancel()
        if self._guard is not None:
            self._guard.cancel()
            self._guard = None
        try:
            if subscription is not None:
                await subscription.unsubscribe()
            if consumer and self._broker.connected:
                await self._broker.client.publish(f"{self._broker.api_prefix}.CONSUMER.DELETE.{self._stream}.{consumer}")
        except (nats.errors.Error, OSError) as error:
            _log.debug("could not delete consumer %s (the broker will, by itself): %s", consumer, error)

    async def _next(self, expected: int) -> list[Delivery]:
        """What has arrived, as soon as there is anything; checked to continue at `expected`. Empty where that was only the last record once more."""
        loop = asyncio.get_running_loop()
        # Silence counts while we listen: a caller that folded for long has not heard what lies in the socket.
        self._heard = max(self._heard, loop.time())
        while not self._buffer:
            self._check_open()
            if self._pulls >= RENEW:
                raise _Broken(f"its inbox is renewed after {RENEW} requests")
            if self._problem:
                raise _Broken(self._problem)
            self._wake.clear()
            if loop.time() >= self._heard + SILENCE:
                raise _Broken(f"not even a heartbeat for {SILENCE:g} s")
            if self._guard is None:
                self._guard = loop.call_at(self._heard + SILENCE, self._look_again)
            await self._wake.wait()
        self._check_open()
        messages, self._buffer, self._buffered = self._buffer, [], 0
        await self._pull()
        return await self._checked(messages, expected)

    def _look_again(self) -> None:
        """Whether anything was heard meanwhile. One timer for many records: each may be the only one for long, and all wait at once."""
        self._guard = None
        self._wake.set()

    async def _checked(self, messages: list[Msg], expected: int) -> list[Delivery]:
        batch: list[Delivery] = []
        for message in messages:
            seq, consumer_seq, time, pending = _position(message.reply)
            if consumer_seq != self._delivered + 1:
                self._problem = f"delivery {self._delivered + 1} is missing, got {consumer_seq}"
                break
            self._delivered = consumer_seq
            again, self._compare = self._compare and seq == expected - 1, False
            if again:
                assert self._last is not None
                self._same(self._last, message.subject, message.headers or {}, message.data)
                continue
            if seq < expected:
                continue  # read one by one while the consumer was made
            if seq != expected and not self._filter:
                if batch:
                    self._problem = f"sequence {expected} is missing, got {seq}"
                    break
                batch += await self._filled(expected, seq)
                if batch and batch[-1].seq != seq - 1:
                    self._problem = f"more is missing before {seq}"
                    break
            expected = seq + 1
            batch.append(Delivery(seq, message.subject, message.headers or {}, message.data, time, pending))
        if not batch and self._problem:
            raise _Broken(self._problem)
        if self._missed is not None and batch:
            (first, got, broker), self._missed = self._missed, None
            if found := [one for one in batch if first <= one.seq < got]:
                await self._is_damaged(found, got, broker)
        return batch

    async def _filled(self, expected: int, got: int) -> list[Delivery]:
        """What whoever leads the stream has where this consumer's broker lacks something, up to the next hole; empty where nobody has that. A consumer is on any
        of the brokers, and the file of one alone may be damaged."""
        found: list[Delivery] = []
        while expected < got:
            try:
                one = None if self._single is None else await self._single(expected)
            except Unavailable as error:
                raise _Broken(f"what is missing at {expected} cannot be asked for: {error}") from error
            there = got if one is None else min(one.seq, got)
            if there != expected and found:
                break
            if there != expected:
                if self._copies > 1 and self._tried < TRIED:
                    if truncated := await self._on_hole(expected, got):
                        raise truncated
                    self._tried += 1
                    self._missed = (expected, got, self._placed)
                    raise _Broken(f"sequence {expected} is missing, got {got}: another broker may have it")
                await self._pass_hole(expected, there)
            if one is None or there == got:
                break
            found.append(one)
            expected = there + 1
        if found:
            await self._is_damaged(found, got, self._placed)
        return found

    async def _is_damaged(self, found: list[Delivery], got: int, broker: str) -> None:
        """These are not there on this broker, where `got` was next, and are on another one."""
        self._tried, first, last = 0, found[0].seq, found[-1].seq
        # What is truncated is gone from this broker as it should be, and the other one may have shown it before it had heard of that.
        if await self._on_hole(last, got) is None:
            self._on_damaged(first, last, broker)
            _log.warning("%s on one broker (%s), and there on another: its volume is damaged", missing(first, last, f" of {self._stream}"), broker)

    async def _pass_hole(self, expected: int, got: int) -> None:
        """Raises what `on_hole` says of it, else says it."""
        if error := await self._on_hole(expected, got):
            raise error
        _log.error("%s: lost by the broker", missing(expected, got - 1, f" of {self._stream}"))

    def _same(self, known: Delivery, subject: str, headers: Mapping[str, str], data: bytes) -> None:
        """Raises LogMismatch where another record is there now than was handed on. The broker's time does not count: an import stamps its own."""
        if (known.subject, known.headers.get("ce-id"), known.data) != (subject, headers.get("ce-id"), data):
            raise another_record(known.seq, self._stream)

    def _pull_soon(self) -> None:
        """Also while the caller takes its time."""
        if self._pulling is None or self._pulling.done():
            self._pulling = asyncio.get_running_loop().create_task(self._pull())

    async def _pull(self) -> None:
        """Keep one to two requests' worth of messages asked for while the buffer has capacity.

        The broker serves its waiting requests in turn, so a message cannot be told to be of this or that request; but
        the sum of what they may still send is known: asked, less delivered, less what the broker says is left of a
        request when it ends early.
        """
        while (
            self._credit <= PULL_BATCH
            and len(self._buffer) < BUFFER_MESSAGES
            and self._buffered < BUFFER_BYTES
            and self._consumer
        ):
            self._credit += PULL_BATCH
            self._pulls += 1
            body = {
                "batch": PULL_BATCH,
                "max_bytes": PULL_BYTES,
                "expires": int(EXPIRES * _NS),
                "idle_heartbeat": int(HEARTBEAT * _NS),
            }
            try:
                await self._broker.client.publish(
                    f"{self._broker.api_prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}", msgspec.json.encode(body), self._inbox
                )
            except (nats.errors.Error, OSError) as error:
                self._break(f"cannot ask for messages: {error}")
                return

    def _on_message(self, inbox: str, message: Msg) -> None:
        if inbox != self._inbox:
            return  # a former consumer's
        self._heard = asyncio.get_running_loop().time()
        if message.reply.startswith("$JS.ACK."):
            self._buffer.append(message)
            self._buffered += len(message.data)
            self._wake.set()
            self._credit -= 1
            if self._credit <= PULL_BATCH:
                self._pull_soon()
        elif message.headers and "Status" in message.headers:
            self._on_status(message.headers)

    def _on_status(self, headers: dict[str, str]) -> None:
        status, text = headers["Status"], headers.get("Description", "")
        left, space = headers.get("Nats-Pending-Messages", ""), headers.get("Nats-Pending-Bytes", "")
        full = status == "409" and "MaxBytes" in text
        if status == "100":
            return
        if full and (left, space) == (str(PULL_BATCH), str(PULL_BYTES)):
            self._fatal = LogMismatch(
                f"stream {self._stream!r} holds a message of over {PULL_BYTES} bytes: Restow did not write it"
            )
            self._wake.set()
        elif left.isdigit() and (full or status == "408" or (status == "409" and "Batch Completed" in text)):
            self._credit -= int(left)
            self._pull_soon()
        else:
            self._break(f"the broker says {status} {text}")

    def _break(self, problem: str) -> None:
        self._problem = self._problem or problem
        self._wake.set()

    def _on_lost(self) -> None:
        self._break("the connection to the broker was lost")

    def _on_denied(self, what: str, subject: str) -> None:
        if (self._inbox and subject.startswith(self._inbox.lower())) or (
            self._consumer and self._consumer in subject
        ):
            self._fatal = BrokerRefused(
                f"the broker's permissions forbid this user to read stream {self._stream!r} ({what} {subject}): "
                "see deploy/nats/permissions.conf"
            )
            self._wake.set()

    def _check_open(self) -> None:
        if self._broker.closed:
            raise self._broker.ended()
        if self._closed:
            raise Closed("this log was closed")
        if self._fatal:
            raise self._fatal

    async def _pause(self, seconds: float) -> None:
        """Wait `seconds`, and on while the broker is away."""
        self._check_open()
        if seconds:
            self._wake.clear()
            try:
                async with asyncio.timeout(seconds):
                    await self._wake.wait()
            except TimeoutError:
                pass
        if not self._broker.connected:
            await self._broker.wait_connected()


def another_record(seq: int, stream: str) -> OtherHistory:
    return OtherHistory(
        f"record {seq} is another one than was read before: an old copy of stream {stream!r} was restored, or it has lost commits, "
        "and it has gone on differently since"
    )


def _position(reply: str) -> tuple[int, int, int, int]:
    """(stream sequence, consumer sequence, time in ns, pending) of `$JS.ACK...`; newer servers add domain and account."""
    parts = reply.split(".")
    at = 5 if len(parts) == 9 else 7
    return int(parts[at]), int(parts[at + 1]), int(parts[at + 2]), int(parts[at + 3])
