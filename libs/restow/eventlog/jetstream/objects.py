"""Snapshots in a JetStream object store, in the layout that `nats object ls|get restow-<cluster>` knows.

The chunks are published first and the object's description last, so a snapshot is there as a whole or not at all.
nats-py's own object store is not used: it sends one chunk at a time, and reading joins them in quadratic time.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import logging
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any

import msgspec

from restow.contracts import times
from restow.contracts.ids import Millis
from restow.eventlog.jetstream.append import FULL, Ack
from restow.eventlog.jetstream.connect import CREATE_TIMEOUT, ApiError, Broker, Denied, NoAnswer
from restow.eventlog.jetstream.log import JetStreamLog
from restow.eventlog.jetstream.reader import Delivery, Feed
from restow.eventlog.jetstream.stream import (
    NAME_IN_USE,
    NO_MESSAGE,
    NOT_FOUND,
    check_replicas,
    consumer_limits,
)
from restow.eventlog.port import BrokerRefused, Forbidden, Full, Unavailable
from restow.eventlog.snapshots import (
    PROBE,
    Snapshot,
    SnapshotError,
    check_log,
    newest_readable,
    pack,
    too_old,
    unpack,
)

CHUNK = 512 * 1024
"""Bytes of one chunk."""

WINDOW = 16
"""Chunks under way at once."""

IDLE = 1.0
"""Seconds without a chunk after which it is asked whether there is any more."""

ORPHANED = 600_000
"""Milliseconds, by the broker's clock, after which chunks that no description names are nobody's: their writer was killed."""

RESERVE = "reserve"
"""The object that is there for its size only."""


_NAME = re.compile("[0-9]{20}")
_log = logging.getLogger(__name__)


class _Meta(msgspec.Struct, omit_defaults=True):
    """An object's description, in the object store's own words. Ours are under `headers`."""

    name: str
    bucket: str
    nuid: str
    size: int = 0
    chunks: int = 0
    digest: str = ""
    mtime: str = ""
    deleted: bool = False
    headers: dict[str, list[str]] | None = None
    options: dict[str, Any] | None = None


class JetStreamSnapshots:
    """Snapshots of one JetStreamLog beside it on the same broker. Made by `open_snapshots`."""

    def __init__(self, log: JetStreamLog) -> None:
        self._broker: Broker = log.broker
        self._log_id, self._replicas = log.log_id, log.replicas
        self.bucket = f"restow-{log.cluster}"
        self._stream = f"OBJ_{self.bucket}"

    async def put(self, snapshot: Snapshot) -> int:
        """See Snapshots.put. Raises Full, Unavailable, BrokerRefused."""
        check_log(snapshot.log_id, self._log_id, f"snapshot {snapshot.seq}")
        await self.sequences()  # refuses a bucket of another log's, before anything is written
        await self._drop_orphans()
        blob = await asyncio.to_thread(pack, snapshot)
        await self._put_object(_name(snapshot.seq), blob, snapshot.fold_version)
        for seq in too_old(await self.sequences(), snapshot.seq):
            await self._delete(_name(seq))
        return len(blob)

    async def hold_back(self, size: int) -> None:
        """See Snapshots.hold_back. Bytes of chance: some file systems keep zeros in no capacity at all."""
        held = await self._meta(RESERVE)
        if held is None or held.deleted or held.size < size:
            await self._put_object(RESERVE, secrets.token_bytes(size), 0)

    async def let_go(self) -> bool:
        """See Snapshots.let_go."""
        return await self._delete(RESERVE)

    async def probe(self) -> None:
        """See Snapshots.probe."""
        subject = self._chunks_subject(secrets.token_hex(11))
        try:
            await self._publish(subject, secrets.token_bytes(PROBE))
        finally:
            await asyncio.shield(self._purge(subject))

    async def latest(self, *, at_most: int | None = None) -> Snapshot | None:
        """See Snapshots.latest. Raises Unavailable, BrokerRefused."""
        return await newest_readable(await self.sequences(), at_most, self._load)

    async def sequences(self) -> list[int]:
        """See Snapshots.sequences. Raises Unavailable, BrokerRefused."""
        found = []
        for meta in await self._described():
            if not meta.deleted and _NAME.fullmatch(meta.name):
                self._check_owner(meta)
                found.append(int(meta.name))
        return sorted(found)

    async def _described(self) -> list[_Meta]:
        """All objects that are there."""
        subjects, _ = await self._subjects(f"$O.{self.bucket}.M.>")
        return [meta for subject in subjects if (meta := await self._described_at(subject))]

    async def _subjects(self, pattern: str) -> tuple[dict[str, int], Millis]:
        """How many messages there are by subject, and what the time is at the broker."""
        try:
            info = await self._broker.api(f"STREAM.INFO.{self._stream}", {"subjects_filter": pattern})
        except ApiError as error:
            if error.err_code == NOT_FOUND:
                return {}, Millis(0)
            raise BrokerRefused(f"the broker refused to show the snapshots: {error}") from error
        return info["state"].get("subjects") or {}, times.millis(info["ts"])

    async def _drop_orphans(self) -> None:
        """Chunks without a description are of a writer that was killed, or are being written by another collector that still believes
        that it leads: which of both, their age says. Who slept for longer finds out before it describes them (`_check_chunks`)."""
        chunks, now = await self._subjects(f"$O.{self.bucket}.C.*")
        named = {self._chunks_subject(meta.nuid) for meta in await self._described()}
        for subject in chunks:
            if subject not in named and now - await self._stored(subject, now) >= ORPHANED:
                await self._purge(subject)

    async def _stored(self, subject: str, now: Millis) -> Millis:
        """When the newest chunk came; `now` where there is none any more."""
        try:
            answer = await self._broker.api(f"STREAM.MSG.GET.{self._stream}", {"last_by_subj": subject})
        except ApiError as error:
            if error.err_code in (NO_MESSAGE, NOT_FOUND):
                return now
            raise BrokerRefused(f"the broker refused to show a snapshot's chunk: {error}") from error
        return times.millis(answer["message"]["time"])

    async def _check_chunks(self, nuid: str, count: int) -> None:
        subject = self._chunks_subject(nuid)
        there = (await self._subjects(subject))[0].get(subject, 0)
        if there != count:
            raise Unavailable(f"only {there} of a snapshot's {count} chunks are there any more; put it again")

    async def open(self) -> None:
        """Create the bucket unless it is there, in as many copies as the log has. Raises LogMismatch where it has another number."""
        config = {
            "name": self._stream,
            "description": "Restow's snapshots",
            "subjects": [f"$O.{self.bucket}.C.>", f"$O.{self.bucket}.M.>"],
            "retention": "limits",
            "storage": "file",
            "discard": "new",
            "max_age": 0,
            "max_msgs": -1,
            "max_bytes": -1,
            "max_consumers": -1,
            "max_msg_size": -1,
            "num_replicas": self._replicas,
            "allow_rollup_hdrs": True,
            "allow_direct": True,
        } | consumer_limits()
        try:
            await self._broker.api(f"STREAM.CREATE.{self._stream}", config, timeout=CREATE_TIMEOUT)
        except ApiError as error:
            if error.err_code != NAME_IN_USE:
                raise BrokerRefused(f"the broker refused to create the snapshots' bucket: {error}") from error
            there = (await self._broker.api(f"STREAM.INFO.{self._stream}"))["config"]
            check_replicas(self._stream, there, self._replicas)

    async def _put_object(self, name: str, blob: bytes, fold_version: int) -> None:
        before = await self._meta(name)
        nuid = secrets.token_hex(11)
        digest = base64.urlsafe_b64encode(hashlib.sha256(blob).digest()).decode()
        described = False
        try:
            await self._put_chunks(nuid, blob)
            await self._check_chunks(nuid, -(-len(blob) // CHUNK))
            described = True
            await self._describe(
                _Meta(
                    name=name,
                    bucket=self.bucket,
                    nuid=nuid,
                    size=len(blob),
                    chunks=-(-len(blob) // CHUNK),
                    digest=f"SHA-256={digest}",
                    mtime=datetime.now(UTC).isoformat(),
                    headers={"restow-log-id": [self._log_id], "restow-fold-version": [str(fold_version)]},
                    options={"max_chunk_size": CHUNK},
                )
            )
        except BaseException as error:
            # Without a description they are nobody's. One that got no answer may be there.
            if not described or isinstance(error, Full | BrokerRefused):
                await asyncio.shield(self._purge(self._chunks_subject(nuid)))
            raise
        if before and not before.deleted:
            await self._purge(self._chunks_subject(before.nuid))

    async def _put_chunks(self, nuid: str, blob: bytes) -> None:
        """Publish the chunks in order with several under way; each must get the place behind the one before."""
        subject = self._chunks_subject(nuid)
        places: list[int] = []
        starts = range(0, len(blob), CHUNK)
        for window in (starts[i : i + WINDOW] for i in range(0, len(starts), WINDOW)):
            under_way = (self._publish(subject, blob[at : at + CHUNK]) for at in window)
            # All of them are waited for: what would arrive after the first refusal would arrive after the purge, too.
            answers = await asyncio.gather(*under_way, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
                places.append(answer)
        if places != sorted(places):
            raise Unavailable("the broker stored a snapshot's chunks out of order; put it again")

    async def _load(self, seq: int) -> Snapshot:
        meta = await self._meta(_name(seq))
        what = f"snapshot {seq} in bucket {self.bucket}"
        if meta is None or meta.deleted:
            raise SnapshotError(f"{what}: it vanished")
        blob = await self._get_chunks(meta, what)
        snapshot = await asyncio.to_thread(unpack, blob, what)
        check_log(snapshot.log_id, self._log_id, what)
        return snapshot

    def _check_owner(self, meta: _Meta) -> None:
        log_id = ((meta.headers or {}).get("restow-log-id") or ["unknown"])[0]
        check_log(log_id, self._log_id, f"snapshot {meta.name} in bucket {self.bucket}")

    async def _get_chunks(self, meta: _Meta, what: str) -> bytes:
        subject = self._chunks_subject(meta.nuid)
        single = functools.partial(self._chunk, subject)
        chunks: list[bytes] = []
        feed = Feed(
            self._broker,
            self._stream,
            first_check=_nothing_to_check,
            on_hole=_no_hole,
            single=single,
            filter_subject=subject,
        )
        last = 0
        try:
            async with asyncio.timeout(60.0), aclosing(feed.batches(1)) as batches:  # type: ignore[type-var]
                while len(chunks) < meta.chunks:
                    batch = await _batch(batches, functools.partial(single, last + 1))
                    if batch is None:
                        # One that is damaged on the broker's disk is counted, and comes never.
                        raise SnapshotError(f"{what}: only {len(chunks)} of {meta.chunks} chunks are there")
                    chunks += [delivery.data for delivery in batch]
                    last = batch[-1].seq
        except TimeoutError:
            raise SnapshotError(f"{what}: {len(chunks)} of {meta.chunks} chunks came within 60 s") from None
        blob = b"".join(chunks)
        if len(blob) != meta.size:
            raise SnapshotError(f"{what}: {len(blob)} bytes, its description says {meta.size}")
        return blob

    async def _chunk(self, subject: str, seq: int) -> Delivery | None:
        """The next one from `seq` on, asked for by itself; None where there is none."""
        try:
            answer = await self._broker.api(f"STREAM.MSG.GET.{self._stream}", {"seq": seq, "next_by_subj": subject})
        except ApiError as error:
            if error.err_code == NO_MESSAGE:
                return None
            raise BrokerRefused(f"the broker refused to show a snapshot's chunk: {error}") from error
        message = answer["message"]
        return Delivery(message["seq"], subject, {}, base64.b64decode(message.get("data", "")), 0, 0)

    async def _meta(self, name: str) -> _Meta | None:
        return await self._described_at(self._meta_subject(name))

    async def _described_at(self, subject: str) -> _Meta | None:
        try:
            answer = await self._broker.api(f"STREAM.MSG.GET.{self._stream}", {"last_by_subj": subject})
        except ApiError as error:
            if error.err_code in (NO_MESSAGE, NOT_FOUND):
                return None
            raise BrokerRefused(f"the broker refused to show a snapshot's description: {error}") from error
        try:
            return msgspec.json.decode(base64.b64decode(answer["message"].get("data", "")), type=_Meta)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            # Whoever put it there: a snapshot that nobody can find is one that is damaged, and no reason not to start.
            _log.warning("passed over in bucket %s: %s describes no object: %s", self.bucket, subject, error)
            return None

    async def _describe(self, meta: _Meta) -> None:
        await self._publish(self._meta_subject(meta.name), msgspec.json.encode(meta), {"Nats-Rollup": "sub"})

    async def _delete(self, name: str) -> bool:
        """Whether it was there."""
        meta = await self._meta(name)
        if meta:
            # No tombstone, unlike `nats object rm`: they would grow by one a snapshot, for ever.
            await self._purge(self._meta_subject(meta.name))
            await self._purge(self._chunks_subject(meta.nuid))
        return meta is not None

    async def _purge(self, subject: str) -> None:
        try:
            await self._broker.api(f"STREAM.PURGE.{self._stream}", {"filter": subject})
        except ApiError as error:
            raise BrokerRefused(f"the broker refused to drop an old snapshot: {error}") from error

    async def _publish(self, subject: str, data: bytes, headers: dict[str, str] | None = None) -> int:
        try:
            answer = await self._broker.request(subject, data, headers)
        except NoAnswer as error:
            raise Unavailable(f"the broker did not store the snapshot: {error}") from error
        except Denied as error:
            raise Forbidden(str(error)) from error
        ack = msgspec.json.decode(answer.data, type=Ack)
        if ack.error and ack.error.err_code in FULL:
            raise Full(f"the broker's store is full: {ack.error.description} (error {ack.error.err_code})")
        if ack.error and ack.error.code >= 500:
            raise Unavailable(f"the broker cannot store the snapshot now: {ack.error.description} (error {ack.error.err_code})")
        if ack.error:
            raise BrokerRefused(f"the broker refused the snapshot: {ack.error.description} (error {ack.error.err_code})")
        return ack.seq

    def _chunks_subject(self, nuid: str) -> str:
        return f"$O.{self.bucket}.C.{nuid}"

    def _meta_subject(self, name: str) -> str:
        return f"$O.{self.bucket}.M.{base64.urlsafe_b64encode(name.encode()).decode()}"


def _name(seq: int) -> str:
    return f"{seq:020d}"


async def _batch(batches: AsyncIterator[list[Delivery]], more: Callable[[], Awaitable[Delivery | None]]) -> list[Delivery] | None:
    """The next one; None where none comes, and by themselves there are no `more`."""
    coming = asyncio.ensure_future(anext(batches))
    try:
        while not (await asyncio.wait({coming}, timeout=IDLE))[0]:
            with contextlib.suppress(Unavailable):
                if await more() is None and not coming.done():
                    return None
        return coming.result()
    finally:
        coming.cancel()
        await asyncio.gather(coming, return_exceptions=True)


async def _nothing_to_check(_: int) -> None:
    """A filtered feed reads one object's chunks; holes between them are normal."""


async def _no_hole(expected: int, got: int) -> Exception:
    return SnapshotError(f"chunk at {expected} is missing, got {got}")


async def open_snapshots(log: JetStreamLog, *, create: bool = True) -> JetStreamSnapshots:
    """The log's snapshots; `create` makes the bucket (garbage_collector does, readers need not).

    Raises Unavailable, BrokerRefused.
    """
    snapshots = JetStreamSnapshots(log)
    if create:
        await snapshots.open()
    return snapshots
