"""The envelope of a commit: CloudEvents 1.0 in binary mode, in the headers of one message (DESIGN 2)."""

from collections.abc import Mapping

import msgspec

COMMIT_TYPE = "dev.restow.commit.v1"
CONTENT_TYPE = "application/json"


class EnvelopeError(ValueError):
    """A message in the log whose headers are not an envelope of ours. Says which header."""


class Envelope(msgspec.Struct, frozen=True, gc=False):
    """Who decided, on what, when. `read` is the sequence that had been folded when deciding; `logic` names the decider
    and its version (`session@1`); `time` is RFC 3339 in UTC with milliseconds and is part of what is folded."""

    id: str
    source: str
    time: str
    read: int
    logic: str
    type: str = COMMIT_TYPE
    traceparent: str = ""

    def headers(self) -> dict[str, str]:
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
        if self.traceparent:
            headers["traceparent"] = self.traceparent
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
                read=int(got["restow-read"]),
                logic=got["restow-logic"],
                type=got["ce-type"],
                traceparent=got.get("traceparent", ""),
            )
        except KeyError as missing:
            raise EnvelopeError(f"header {missing.args[0]!r} is missing; this message was not written by Restow") from None
        except ValueError:
            raise EnvelopeError(f"header 'restow-read' is {got['restow-read']!r}; allowed: a sequence number") from None
