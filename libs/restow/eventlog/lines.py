"""One record as one line of JSON: the form of journals and archives, readable with `jq`.

`{"seq":1,"family":"session","time":0,"headers":{...},"body":{...}}`. The body is the stored bytes, embedded as they are
when they are one line of JSON without blanks around it (ours always are), else as base64 under `body64`: either way
the same bytes come out. `body` is last, so that reading need not parse it twice.
"""

from __future__ import annotations

import base64

import msgspec

from restow.contracts.envelope import Envelope
from restow.eventlog.port import Record

_BODY = b'},"body":'
"""With the end of the headers: a stranger's header may be called `body`, too. Within a string every quote is escaped."""
_BLANKS = b" \t\r\n"


class LineError(ValueError):
    """A line that is not a record. Says why."""


class _Head(msgspec.Struct, gc=False):
    seq: int
    family: str
    time: int
    headers: dict[str, str]
    body64: str | None = None


_encode = msgspec.json.Encoder().encode
_decode_head = msgspec.json.Decoder(_Head).decode
_check_json = msgspec.json.Decoder(msgspec.Raw).decode


def encode_line(record: Record) -> bytes:
    """The record's line with its newline."""
    head = _encode(
        {
            "seq": record.seq,
            "family": record.family,
            "time": record.time,
            "headers": record.envelope.headers(),
        }
    )
    if _embeddable(record.body):
        return b"".join((head[:-2], _BODY, record.body, b"}\n"))
    return b"".join((head[:-1], b',"body64":"', base64.b64encode(record.body), b'"}\n'))


def decode_line(line: bytes) -> Record:
    """The record of a line, with or without its newline. Raises LineError.

    An embedded body is not looked into: whoever guards the line by a digest need not parse it, and who decodes the
    body will.
    """
    line = line.removesuffix(b"\n")
    at = line.find(_BODY)
    embedded = at >= 0
    if embedded and line[-1:] != b"}":
        raise LineError("the line is cut")
    try:
        head = _decode_head(line[: at + 1] + b"}" if embedded else line)
        envelope = Envelope.of(head.headers)
        if embedded:
            body = line[at + len(_BODY) : -1]
        elif head.body64 is not None:
            body = base64.b64decode(head.body64, validate=True)
        else:
            raise LineError("it has neither body nor body64")
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LineError(f"it is not a record: {error}") from error
    return Record(head.seq, head.family, envelope, body, head.time)


def _embeddable(body: bytes) -> bool:
    if not body or b"\n" in body or body[:1] in _BLANKS or body[-1:] in _BLANKS:
        return False
    try:
        _check_json(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
