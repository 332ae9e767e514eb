"""The envelope of a commit: CloudEvents 1.0 in binary mode, in the headers of one message."""

import re
from collections.abc import Mapping

import msgspec

from restow.contracts.ids import MOST

COMMIT_TYPE = "dev.restow.commit.v1"
CONTENT_TYPE = "application/json"
_DIGEST = re.compile(r"\d{1,18}:[0-9a-f]{32}", re.ASCII)


class EnvelopeError(ValueError):
    """A message in the log whose headers are not an envelope of ours. Says which header."""


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """Who decided, on what, when. `read` is the sequence that had been folded when deciding; `logic` names the decider
    and its version (`session@1`); `time` is RFC 3339 in UTC with milliseconds and is part of what is folded. `log` is the
    id of the log that it was written for, `release` what decided: a version of Restow, and the image it ran from where
    that is known (`0.9.1 registry/restow@sha256:…`). `digest` says up to where its writer had read the log when it was
    appended, and the digest of all that (`4711:` and 32 hexadecimal digits; `restow.domain.history`). These three are empty in
    older logs. `reader` is the oldest reader that understands it (`restow.contracts.reader`), 0 where it does not say."""

    id: str
    source: str
    time: str
    read: int
    logic: str
    type: str = COMMIT_TYPE
    traceparent: str = ""
    log: str = ""
    release: str = ""
    digest: str = ""
    reader: int = 0
    given: dict[str, str] | None = None
    """The headers as they came, where they are no envelope of ours: then everything else here is empty."""

    def headers(self) -> dict[str, str]:
        if self.given is not None:
            return dict(self.given)
        headers = {
            "ce-specversion": "1.0",
            "ce-id": self.id,
            "ce-type": self.type,
            "ce-source": self.source,
            "ce-time": self.time,
            "content-type": CONTENT_TYPE,
            "restow-read": str(self.read),
            "restow-logic": self.logic,
        }
        for name, value in (("traceparent", self.traceparent), ("restow-log", self.log), ("restow-release", self.release), ("restow-digest", self.digest)):
            if value:
                headers[name] = value
        if self.reader:
            headers["restow-reader"] = str(self.reader)
        return headers

    @classmethod
    def from_headers(cls, headers: Mapping[str, str] | None) -> "Envelope":
        """Raises EnvelopeError, naming the header, where one is missing or not readable."""
        got = headers or {}
        try:
            return cls(
                id=got["ce-id"],
                source=got["ce-source"],
                time=got["ce-time"],
                read=_number(got["restow-read"], "restow-read", "a sequence number"),
                logic=got["restow-logic"],
                type=got["ce-type"],
                traceparent=got.get("traceparent", ""),
                log=got.get("restow-log", ""),
                release=got.get("restow-release", ""),
                digest=_digest(got.get("restow-digest", "")),
                reader=_number(got.get("restow-reader", "0"), "restow-reader", "the number of a reader"),
            )
        except KeyError as missing:
            raise EnvelopeError(f"header {missing.args[0]!r} is missing; this message was not written by Restow") from None
        except ValueError as error:
            raise EnvelopeError(str(error)) from None

    @classmethod
    def of(cls, headers: Mapping[str, str] | None) -> "Envelope":
        """The envelope in these headers, or one that only keeps them: a log hands on what others wrote into it, and the
        fold passes over it."""
        try:
            return cls.from_headers(headers)
        except EnvelopeError:
            return cls(id="", source="", time="", read=0, logic="", type="", given=dict(headers or {}))


def _number(text: str, header: str, allowed: str) -> int:
    """Raises ValueError."""
    try:
        if 0 <= (number := int(text)) <= MOST:
            return number
    except ValueError:
        pass
    raise ValueError(f"header {header!r} is {text[:40]!r}; allowed: {allowed}")


def _digest(text: str) -> str:
    """Raises ValueError."""
    if text and not _DIGEST.fullmatch(text):
        raise ValueError(f"header 'restow-digest' is {text[:60]!r}; allowed: a sequence number, a colon and 32 hexadecimal digits")
    return text
