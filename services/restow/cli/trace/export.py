"""Sending spans to a collector, over OTLP/HTTP as JSON."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from importlib.metadata import version
from urllib.parse import unquote, urlsplit

from restow.cli.failures import UNREACHABLE, UNUSABLE, Failure
from restow.contracts.redact import redacted
from restow.replay import otlp
from restow.replay.traces import Span

BATCH = 512
"""Spans of one request at most."""
TIMEOUT = 10.0
AGAIN = (0.5, 1.0, 2.0, 5.0)
"""Seconds before a request is made again that nobody has answered, or that is to be made later."""
MOST_READ = 65_536
"""Bytes of an answer that are looked at."""
LATER = (429, 502, 503, 504)
"""Answers of a collector that wants it again (OTLP specification)."""


def endpoint(named: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Where traces go: `named`, or OpenTelemetry's own variables say so; None where nobody does. Raises Failure."""
    exact = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") if not named else None
    url = named or exact or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Failure(f"{redacted(url)} is no address of a collector; allowed: http://HOST:4318 or https://HOST", UNUSABLE)
    return url if exact or parts.path.rstrip("/").endswith("/v1/traces") else f"{url.rstrip('/')}/v1/traces"


def headers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`OTEL_EXPORTER_OTLP_HEADERS`: `name=value` with commas between, percent-encoded."""
    said = environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get("OTEL_EXPORTER_OTLP_HEADERS") or ""
    pairs = (pair.partition("=") for pair in said.split(",") if "=" in pair)
    return {name.strip(): unquote(value.strip()) for name, _, value in pairs}


NEVER = (400, 413, 422)
"""Answers of one that will never take it: what is in it is wrong there, or too much."""


class NotTaken(Failure):
    """A collector will never take a request, whoever sends it again."""


class Collector:
    """Takes spans, in order; `sent` counts those that it has taken, `refused` those that it has not although it took the rest of their request, and `why` is what it said."""

    def __init__(self, url: str, cluster: str, log_id: str) -> None:
        self._url, self._cluster, self._log_id = url, cluster, log_id
        self._headers = headers() | {"Content-Type": "application/json", "User-Agent": "restow"}
        self.sent, self.refused, self.why = 0, 0, ""

    def send(self, spans: list[Span]) -> None:
        """All of them, and takes out of the list what is sent. Raises Failure where the collector refuses them, or is not there after some tries."""
        while part := spans[:BATCH]:
            refused, why = _refused(self._post(otlp.request(part, self._cluster, self._log_id, version("restow"))), len(part))
            self.sent, self.refused, self.why = self.sent + len(part) - refused, self.refused + refused, why or self.why
            del spans[:BATCH]

    def _post(self, body: bytes) -> bytes:
        for wait in (*AGAIN, None):
            try:
                with urllib.request.urlopen(urllib.request.Request(self._url, body, self._headers), timeout=TIMEOUT) as answer:
                    return answer.read(MOST_READ)
            except urllib.error.HTTPError as error:
                said = error.read(500).decode(errors="replace")
                if error.code not in LATER or wait is None:
                    kind = NotTaken if error.code in NEVER else Failure
                    raise kind(f"{redacted(self._url)} answers {error.code}: {said or error.reason}", UNREACHABLE) from None
            except (OSError, ValueError, http.client.HTTPException) as error:  # The last: say the port of gRPC, which is no HTTP/1.
                if wait is None:
                    raise Failure(f"{redacted(self._url)} cannot be reached: {getattr(error, 'reason', None) or error}", UNREACHABLE) from None
            time.sleep(wait or 0)
        raise AssertionError("the last try returns or raises")


def _refused(answer: bytes, most: int) -> tuple[int, str]:
    """How many spans of a request that it took a collector has not taken, and why (`partialSuccess` of OTLP's answer); none where it says nothing."""
    try:
        said = json.loads(answer)["partialSuccess"]
        return max(0, min(int(said.get("rejectedSpans", 0)), most)), str(said.get("errorMessage", ""))
    except (ValueError, TypeError, KeyError, AttributeError):
        return 0, ""
