"""The log as a chain: the digest of everything up to a record, and which records know another history than the one that is read here.

Every commit says up to which sequence its writer had folded the log, and the digest of all that (`restow-digest`). A reader works the same
digests out from the bytes that it reads. Where a record says another one, the writer has read a log that is not this one: the broker has lost
records that it had acknowledged, or one was changed on its disk.

The digest of record n is the first 16 bytes of SHA-256 over: the digest of record n-1 (16 bytes of zeros before the first); a JSON array, in
UTF-8 without blanks, of the sequence, the family and the headers ce-id, ce-source, ce-time, ce-type, restow-read, restow-logic, traceparent,
restow-log, restow-release and restow-digest (empty where it has none; all of them, and 0 for restow-read, where they are no envelope of ours),
and restow-reader if it has one; the body.
"""

from collections import deque
from hashlib import sha256

import msgspec

from restow.contracts.envelope import Envelope

SIZE = 16
"""Bytes of a digest."""

KEPT = 1024
"""Records whose digests are remembered. A commit names what its writer had folded when it was appended, and that lags by the few commits that others
append meanwhile; one that names something older is not judged."""

BROKEN = "the log is broken"
"""With this begins every sentence that says so: `restow doctor` goes by it."""

_UNKNOWN = b""
"""In the place of the digest of a record that is missing: nobody who has read it agrees with us."""

_encode = msgspec.json.Encoder().encode


def digest_of(before: bytes, seq: int, family: str, envelope: Envelope, body: bytes) -> bytes:
    """The digest of the history that ends with this record, by that of the history before it."""
    e = envelope
    head = (seq, family, e.id, e.source, e.time, e.type, e.read, e.logic, e.traceparent, e.log, e.release, e.digest)
    said = sha256(before + _encode((*head, e.reader) if e.reader else head))
    said.update(body)
    return said.digest()[:SIZE]


class Mark(msgspec.Struct, frozen=True):
    """How far somebody has folded a log, and what it held: the sequence, its digest, and how often the log had been repaired by then."""

    repairs: int
    seq: int
    digest: bytes

    def __str__(self) -> str:
        return f"{self.repairs}:{self.seq}:{self.digest.hex()}"

    @classmethod
    def read(cls, text: str) -> "Mark":
        """Raises ValueError."""
        repairs, seq, digest = text.split(":")
        if len(digest) != 2 * SIZE:
            raise ValueError(f"{digest!r} is no digest")
        return cls(int(repairs), int(seq), bytes.fromhex(digest))


class History:
    """The digests of the last records up to `seq`."""

    __slots__ = ("_recent", "seq")

    def __init__(self, seq: int = 0, recent: bytes = bytes(SIZE)) -> None:
        """`recent`: the digests of the records up to `seq`, one after the other. Raises ValueError where there is none."""
        if not recent or len(recent) % SIZE:
            raise ValueError(f"{len(recent)} bytes are no digests")
        self.seq = seq
        self._recent = deque((recent[i : i + SIZE] for i in range(0, len(recent), SIZE)), KEPT)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, History) and self.dumped() == other.dumped()

    __hash__ = None  # type: ignore[assignment]

    @property
    def digest(self) -> bytes:
        """Of the whole history, up to `seq`."""
        return self._recent[-1]

    def at(self, seq: int) -> bytes | None:
        """The digest of the history up to there; empty where that record is missing, None where that is not remembered."""
        back = self.seq - seq
        return self._recent[-1 - back] if 0 <= back < len(self._recent) else None

    def said(self) -> str:
        """What a commit that is appended now says of what its writer has read."""
        return f"{self.seq}:{self.digest.hex()}"

    def add(self, seq: int, family: str, envelope: Envelope, body: bytes) -> None:
        """The next record. Those that are missing before it were never read here, and the digest does not cover them."""
        before = self.digest
        if seq != self.seq + 1:
            self._recent.extend([_UNKNOWN] * min(seq - self.seq - 1, KEPT))
        self._recent.append(digest_of(before, seq, family, envelope, body))
        self.seq = seq

    def ends_with(self, seq: int, family: str, envelope: Envelope, body: bytes) -> bool:
        """Whether this record is the last one of this history. True where that cannot be told: the record before it is missing, or no more remembered."""
        before = self.at(seq - 1)
        return before is None or (seq > 1 and before in (_UNKNOWN, bytes(SIZE))) or digest_of(before, seq, family, envelope, body) == self.at(seq)

    def differs(self, seq: int, envelope: Envelope) -> str:
        """Why record `seq`, which is not added yet, follows from another history than this; empty where it does not, or does not say."""
        if not envelope.digest:
            return ""
        known_to, _, digest = envelope.digest.partition(":")
        read = int(known_to)
        if read >= seq:
            return f"its writer had read up to {read}, which in this log comes later"
        if read > self.seq:
            return f"its writer had read record {read}, which is missing in this log"
        mine = self.at(read)
        if mine is None or mine.hex() == digest:
            return ""
        return f"its writer had read another record {read}, or another one before it"

    def dumped(self) -> tuple[int, bytes]:
        """As a snapshot has it: what the constructor takes. A missing record's is as good as any other that nobody agrees with."""
        return self.seq, b"".join(digest or bytes(SIZE) for digest in self._recent)
