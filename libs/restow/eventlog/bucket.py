"""The segments of an archive in an S3-compatible bucket, by the library obstore (the optional package `restow[s3]`).

A bucket has no locks. But an object can be made there only where there is none of its key (`If-None-Match: *`), and a segment's key says where in the log it begins and
not where it ends. So of two processes that continue an archive at the same record one is refused, whatever it had to write, and what is there is never overwritten. A server that
does not know this condition would overwrite silently: it is tried before the first segment is written.

    <address>/chain-0001/00000000000000000001.jsonl.zst
    <address>/chain-0001/00000000000000004712.jsonl.zst
    <address>/restow-archive                               what the condition was tried with

A new archive in place of one that its log does not continue is chain-0002: nothing is ever renamed or removed, so the right to delete is not needed. What is read is
the newest chain; an older one by its own address. Where the new one begins with segments of the old one, `00000000000000004712.kept` says first which is the last of these:
until that is there, too, the chain is not whole, and the one before it counts.

Credentials are whatever the library finds: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, a web identity (IRSA), the container's or the instance's. No address has any.
"""

from __future__ import annotations

import io
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Literal, NamedTuple

from restow.eventlog.bucket_answers import means, said
from restow.eventlog.port import NotAllowed, Unavailable
from restow.eventlog.segment import (
    SUFFIX,
    ArchiveError,
    File,
    Header,
    Segment,
    open_segment,
    peek,
    seal_of,
    short_name,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore

SCHEME = "s3://"

ALLOWED = "s3://BUCKET or s3://BUCKET/PREFIX, without a user, a password or a query"

SEGMENT_BYTES = 16 * 1024 * 1024
"""The library holds all of an object in memory while it is put: with `If-None-Match` there is no upload in parts."""

BLOCK = 4 * 1024 * 1024
"""Bytes that are asked for at once, and that a reader holds."""

PROOF = "restow-archive"

KEPT = ".kept"

_PROOF = b'{"restow":"archive"}\n'
_FIRST = 64 * 1024
_MOST_CHAINS = 9_999

_ADDRESS = re.compile(r"s3://([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])((?:/[A-Za-z0-9!_.*'()=-]{1,255}){0,20})/?")
_CHAIN = re.compile(r"chain-(\d{4})")

_CLIENT: dict[str, Any] = {"connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60), "user_agent": "restow"}
_RETRY = {
    "max_retries": 3,
    "retry_timeout": timedelta(seconds=20),
    "backoff": {"init_backoff": timedelta(milliseconds=200), "max_backoff": timedelta(seconds=5), "base": 2},
}


class ArchiveAway(Unavailable):
    """The bucket does not answer, or refuses. Nothing is known of what is in it, and it can be asked again."""


def is_address(text: object) -> bool:
    return str(text).startswith(SCHEME)


def check_address(address: str) -> tuple[str, str]:
    """Bucket and prefix. Raises NotAllowed, which does not show the address: somebody may have put a secret into it."""
    match = _ADDRESS.fullmatch(address)
    if match is None or ".." in address:
        raise NotAllowed(f"not the address of a bucket; allowed: {ALLOWED}")
    return match[1], match[2].strip("/")


def connect(address: str) -> Bucket:
    """The archive in a bucket; nothing is asked of it yet. Raises NotAllowed for another address, for settings of the library (AWS_...) that it refuses, and where the
    library is missing."""
    bucket, prefix = check_address(address)
    known = _authorities()

    def renewed() -> ObjectStore | None:
        nonlocal known
        try:
            if (now := _authorities()) != known:
                store, known = _store(bucket, now), now
                return store
        except NotAllowed:
            pass  # as of half a file: it is looked at again
        return None

    return Bucket(_store(bucket, known), prefix, f"{SCHEME}{bucket}" + (f"/{prefix}" if prefix else ""), renewed)


def _authorities() -> bytes:
    """Whom to believe beside the usual ones, PEM; empty where nobody says. Raises NotAllowed."""
    try:
        return Path(named).read_bytes() if (named := os.environ.get("AWS_CA_BUNDLE")) else b""
    except OSError as error:
        raise NotAllowed(f"AWS_CA_BUNDLE cannot be read: {error.strerror}") from None


def _store(bucket: str, authorities: bytes) -> ObjectStore:
    """Raises NotAllowed."""
    try:
        from obstore.exceptions import BaseError
        from obstore.store import S3Store
    except ImportError:
        raise NotAllowed("an archive in a bucket needs the package obstore: pip install 'restow[s3]'") from None
    # The library reads its own variables, but not those of the client as soon as anything is said of that here.
    client = _CLIENT | {"allow_http": os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true")}
    if authorities:
        client["root_certificate"] = authorities
    try:
        # A bucket that locks its objects for a time takes none without a checksum.
        checksum = os.environ.get("AWS_CHECKSUM_ALGORITHM") or "SHA256"
        return S3Store(bucket, config={"checksum_algorithm": checksum}, client_options=client, retry_config=_RETRY)  # type: ignore[arg-type]
    except (BaseError, ValueError) as error:
        raise NotAllowed(f"the settings of the bucket (AWS_...) cannot be used: {said(str(error))}") from None


class _Begun(NamedTuple):
    """A chain that does not have all yet with which it is to begin: the names of the last of that (of one, unless somebody interferes), and what is there."""

    last: set[str]
    files: list[Object]


class Bucket:
    """A `segment.Place`: the newest chain under `prefix`, or the segments that lie there themselves. What was read and found whole is not read again while the
    server says, by the object's ETag, that it is the same."""

    segment_bytes = SEGMENT_BYTES

    def __init__(self, store: ObjectStore, prefix: str, name: str, renewed: Callable[[], ObjectStore | None] = lambda: None) -> None:
        """`name`: what to call it in messages. `renewed`: another store, once other authorities are to be believed than when it was made."""
        self._renewed = renewed
        self._store, self._prefix, self._name = store, f"{prefix}/" if prefix else "", name
        self._checked: dict[tuple[str, str], Segment] = {}
        self._headers: dict[tuple[str, str], Header] = {}
        self._begun: dict[int, _Begun] = {}
        """As of the last look: the chains that do not have all yet with which they are to begin."""
        self._highest = 0
        """The newest one there is anything of."""
        self._least = 0
        """The chains before this one are not continued."""
        self._chain: int | None = None
        """The one to continue, as of the last look: 0 for segments that lie in none, None where nobody has looked."""
        self._proven = False

    def __str__(self) -> str:
        return self._name

    def called(self, key: str) -> str:
        """What to call an object in messages."""
        return f"{self._name}/{key.removeprefix(self._prefix)}"

    def files(self) -> list[Object]:
        found: dict[int, list[Object]] = {}
        last_kept: dict[int, set[str]] = {}
        with self._asking():
            for batch in self._store.list(self._prefix or None):
                for meta in batch:
                    chain, name = self._chain_of(meta["path"])
                    if chain is None:
                        continue
                    if name.endswith(SUFFIX):
                        found.setdefault(chain, []).append(Object(self, meta["path"], meta["size"], meta["e_tag"] or ""))
                    elif name.endswith(KEPT) and chain:
                        last_kept.setdefault(chain, set()).add(name.removesuffix(KEPT) + SUFFIX)
        self._begun = {
            chain: _Begun(names, found.get(chain, []))
            for chain, names in last_kept.items()
            if names - {file.name for file in found.get(chain, [])}
        }  # fmt: skip
        self._highest = max([*found, *last_kept], default=0)
        self._chain = max(max(found.keys() - self._begun.keys(), default=1), self._least)
        return sorted(found.get(self._chain, ()), key=lambda file: file.name)

    def _chain_of(self, key: str) -> tuple[int | None, str]:
        """None for what lies elsewhere; and its name."""
        folder, _, name = key.removeprefix(self._prefix).rpartition("/")
        match = _CHAIN.fullmatch(folder)
        return int(match[1]) if match else None if folder else 0, name

    def check(self, file: File) -> Segment:
        assert isinstance(file, Object)
        known = self._checked.get(file.identity)
        if known is None:
            known = open_segment(file)
            self._remember(file, known)
        return known

    def _remember(self, file: Object, segment: Segment) -> None:
        if file.tag:
            self._checked[file.identity], self._headers[file.identity] = segment, segment.header

    def ranges(self) -> list[tuple[int, int]]:
        found = []
        for file in self.files():
            header = self._headers.get(file.identity)
            if header is None:
                try:
                    header = peek(file)
                except ArchiveError:
                    continue
                if file.tag:
                    self._headers[file.identity] = header
            found.append((header.first, header.last))
        return found

    def only_writer(self) -> AbstractContextManager[None]:
        """There are no locks: `keep` refuses whoever comes second."""
        return nullcontext()

    def scratch(self) -> BinaryIO:
        """It has no name: of a process that is killed nothing is left."""
        return tempfile.TemporaryFile()

    def drop(self, file: BinaryIO) -> None:
        with suppress(OSError):
            file.close()

    def keep(self, file: BinaryIO, header: Header, digest: str, offset: int) -> Segment:
        self._prove()
        if self._chain is None:
            self.files()
        folder = f"chain-{self._chain:04d}/" if self._chain else ""
        key = f"{self._prefix}{folder}{short_name(header.first)}"
        tag = self._make(key, file)
        size = file.seek(0, io.SEEK_END)
        if tag is None:
            # Somebody was faster, or the answer to our own put was lost and it was put again.
            stored = self._find(key)
            if not _is_of(stored, size, digest):
                raise ArchiveError(stored, "", "another process has written it meanwhile; nothing was overwritten, and the archive goes on behind it")
        else:
            stored = Object(self, key, size, tag)
        segment = Segment(stored, header, digest, offset)
        self._remember(stored, segment)
        return segment

    def set_aside(self, last: int, kept: Sequence[Segment] = ()) -> str:
        """Nothing is moved: the next chain begins, with copies of what is kept. Where that was interrupted, it is gone on with."""
        chain, files = self._chain or 0, {}
        names = {short_name(kept[-1].header.first)} if kept else set()
        number = next((number for number, begun in sorted(self._begun.items()) if number > chain and begun.last == names), max(self._highest, chain) + 1)
        if number > _MOST_CHAINS:
            raise ArchiveError(self, "", f"{_MOST_CHAINS} archives were set aside in it; use another prefix")
        if number in self._begun:
            files = {file.name: file for file in self._begun[number].files}
        self._chain = number
        try:
            for name in names:
                self._make(f"{self._prefix}chain-{number:04d}/{name.removesuffix(SUFFIX)}{KEPT}", io.BytesIO())
            for segment in kept:
                there = files.get(short_name(segment.header.first))
                with segment.path.open("rb") as file:
                    if there is None or not _is_of(there, file.seek(0, io.SEEK_END), segment.digest):
                        file.seek(0)
                        self.keep(io.BytesIO(file.read()), segment.header, segment.digest, segment.offset)
        except BaseException:
            self._chain = None
            raise
        self._least = number
        return self.called(f"{self._prefix}chain-{chain:04d}") if chain else str(self)

    def _prove(self) -> None:
        if self._proven:
            return
        for _ in range(2):
            if self._make(f"{self._prefix}{PROOF}", io.BytesIO(_PROOF)) is None:
                self._proven = True
                return
        raise ArchiveError(
            self, "", "its server has overwritten an object although it was told not to (If-None-Match: *), so two collectors could destroy each other's segments. "
            "Use a server that knows conditional writes"
        )  # fmt: skip

    def _make(self, key: str, file: BinaryIO) -> str | None:
        """Put an object where there is none; its ETag, empty where the server tells none, or None where there is one already."""
        from obstore.exceptions import AlreadyExistsError

        file.seek(0)
        with self._asking():
            try:
                return self._store.put(key, file, mode="create")["e_tag"] or ""
            except AlreadyExistsError:
                return None

    def _find(self, key: str) -> Object:
        with self._asking(key):
            meta = self._store.head(key)
        return Object(self, key, meta["size"], meta["e_tag"] or "")

    def read(self, file: Object, start: int, end: int) -> memoryview:
        """Bytes start..end of an object that is as it was when it was found. Raises ArchiveError where it is not, ArchiveAway."""
        options: dict[str, Any] = {"range": (start, end)}
        if file.tag:
            options["if_match"] = file.tag
        with self._asking(file.key):
            return memoryview(self._store.get(file.key, options=options).bytes())  # type: ignore[arg-type]

    @contextmanager
    def _asking(self, key: str = "") -> Iterator[None]:
        """What the library raises becomes ours. `key`: of an object that was there."""
        from obstore.exceptions import BaseError, PreconditionError

        try:
            yield
        except PreconditionError:
            raise ArchiveError(self.called(key), "", "it was replaced while it was read") from None
        except (BaseError, OSError) as error:
            text = str(error)
            if key and isinstance(error, FileNotFoundError) and "NoSuchBucket" not in text:
                raise ArchiveError(self.called(key), "", "it was removed while it was read") from None
            # By the next try.
            self._store = self._renewed() or self._store
            raise ArchiveAway(f"the archive in {self} cannot be used: {means(text)} ({said(text)})") from None


class Object:
    """One segment in a bucket. size: bytes. tag: the server's ETag, empty where it tells none."""

    def __init__(self, bucket: Bucket, key: str, size: int, tag: str) -> None:
        self.bucket, self.key, self.size, self.tag = bucket, key, size, tag

    def __str__(self) -> str:
        return self.bucket.called(self.key)

    @property
    def name(self) -> str:
        return self.key.rpartition("/")[2]

    @property
    def identity(self) -> tuple[str, str]:
        return self.key, self.tag

    def open(self, mode: Literal["rb"], /) -> BinaryIO:
        return io.BufferedReader(_Reader(self), _FIRST)


def _is_of(stored: Object, size: int, digest: str) -> bool:
    """Whether it is the segment of so many bytes with this seal."""
    if stored.size != size:
        return False
    with stored.open("rb") as file:
        return seal_of(file) == digest


class _Reader(io.RawIOBase):
    """An object's bytes, by as few requests as there is memory for; at first by small ones, since most want its header only."""

    def __init__(self, file: Object) -> None:
        self._file, self._position = file, 0
        self._block, self._from = memoryview(b""), 0
        self._ask = _FIRST

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._file.size}[whence]
        return self._position

    def readinto(self, buffer: Any) -> int:
        if self._position >= self._file.size:
            return 0
        if not self._from <= self._position < self._from + len(self._block):
            end = min(self._file.size, self._position + self._ask)
            self._block, self._from = self._file.bucket.read(self._file, self._position, end), self._position
            self._ask = min(2 * self._ask, BLOCK)
        begin = self._position - self._from
        piece = self._block[begin : begin + len(buffer)]
        buffer[: len(piece)] = piece
        self._position += len(piece)
        return len(piece)
