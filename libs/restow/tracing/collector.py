"""A collector of OpenTelemetry, over OTLP/HTTP; where it is, by OpenTelemetry's own variables."""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import unquote, urlsplit

from restow.contracts.redact import redacted
from restow.machine.files import Stamp, stamp

BATCH = 512
"""Spans of one request at most. Where that is too large for a collector, half as many, and so on."""
TIMEOUT = 10.0
"""Seconds for each step of a request, and for all of its answer's body."""
AGAIN = (0.5, 1.0, 2.0, 5.0)
"""Seconds before a request is made again that nobody has answered, or that is to be made later."""
MOST_READ = 65_536
"""Bytes of an answer that are looked at."""
LATER = (429, 502, 503, 504)
"""Answers of a collector that wants it again (OTLP specification)."""
NEVER = (400, 413, 422)
"""Answers of one that will never take it: what is in it is wrong there, or too much."""


_GRPC = 4317
_FILES = ("CERTIFICATE", "CLIENT_CERTIFICATE", "CLIENT_KEY")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\xa0-\xff]*")
"""What HTTP takes of a header."""


class NoCollector(ValueError):
    """What is named is no address of a collector. Says what is allowed."""


class Away(Exception):
    """The collector takes nothing now, or is not there."""


class NotTaken(Away):
    """A collector will never take this request, whoever sends it again."""


class TooLarge(NotTaken):
    """It, or a gateway before it, may take a smaller one."""


def endpoint(named: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Where traces go: `named`, or OpenTelemetry's own variables say so; None where nobody does. Raises NoCollector."""
    exact = environment.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") if not named else None
    url = named or exact or environment.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    if not url:
        return None
    try:
        parts = urlsplit(url)
        known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise NoCollector(f"{redacted(url)} is no address of a collector; allowed: http://HOST:4318 or https://HOST")
    if "@" in parts.netloc:
        raise NoCollector(f"{redacted(url)} has a user; allowed: an address without one. What a collector wants to know of you is in OTEL_EXPORTER_OTLP_HEADERS")
    path = parts.path.rstrip("/")
    return url if exact or path.endswith("/v1/traces") else parts._replace(path=f"{path}/v1/traces").geturl()


def headers(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`OTEL_EXPORTER_OTLP_HEADERS`."""
    return pairs(environment.get("OTEL_EXPORTER_OTLP_TRACES_HEADERS") or environment.get("OTEL_EXPORTER_OTLP_HEADERS") or "")


def pairs(said: str) -> dict[str, str]:
    """`name=value` with commas between, percent-encoded."""
    split = (pair.partition("=") for pair in said.split(",") if "=" in pair)
    # What surrounds a value means nothing, and a file that was encoded whole ends with a line's end.
    return {name.strip(): unquote(value).strip() for name, _, value in split}


class _StaysHere(urllib.request.HTTPRedirectHandler):
    """What a collector is told, and by which headers, is for nobody else: where an answer leads elsewhere, it is no answer of a collector."""

    def redirect_request(self, *_: object) -> None:
        return None


class Collector:
    """Takes requests, one at a time; waits, so it is for a thread of its own, or for a command. Raises NoCollector where the certificates that the environment
    names cannot be read."""

    def __init__(self, url: str, environment: Mapping[str, str] = os.environ) -> None:
        self.url = url
        self._headers = headers(environment) | {"Content-Type": "application/json", "User-Agent": "restow"}
        if not all(_NAME.fullmatch(name) and _VALUE.fullmatch(value) for name, value in self._headers.items()):
            # Not which: of `x-api-key: geheim=` the name is all of it.
            raise NoCollector("OTEL_EXPORTER_OTLP_HEADERS: a name or a value has a character that no header has; allowed: name=value, several with commas between, percent-encoded, without ends of lines")
        self._environment = environment
        self._files = _stamps(environment)
        self._opener = self._made()

    def take(self, body: bytes, spans: int, again: Sequence[float] = AGAIN) -> tuple[int, str]:
        """How many of its spans the collector has not taken although it took the rest, and why. `again`: pauses before further tries, in seconds. Raises
        NotTaken (TooLarge where a smaller request may be taken), and Away after the last try."""
        self._renew()
        for wait in (*again, None):
            try:
                asked = urllib.request.Request(self.url, body, self._headers)
                with self._opener.open(asked, timeout=TIMEOUT) as answer:
                    return _refused(_body(answer, MOST_READ), spans)
            except urllib.error.HTTPError as error:
                if error.code not in LATER or wait is None:
                    kind = TooLarge if error.code == 413 else NotTaken if error.code in NEVER else Away
                    raise kind(f"{redacted(self.url)} answers {error.code}: {_told(error) or error.reason}") from None
            except OSError as error:
                if wait is None:
                    raise Away(f"{redacted(self.url)} cannot be reached: {getattr(error, 'reason', None) or error}{self._hint()}") from None
            except (ValueError, http.client.HTTPException) as error:  # Say the port of gRPC, which is no HTTP/1. Its words may quote headers.
                if wait is None:
                    raise Away(f"{redacted(self.url)} is no server of HTTP ({type(error).__name__}){self._hint()}") from None
            time.sleep(wait or 0)
        raise AssertionError("the last try returns or raises")

    def _hint(self) -> str:
        """Most often both ports are there, and the other one is named."""
        return f"; port {_GRPC} is most often gRPC's, and {_GRPC + 1} that of HTTP" if urlsplit(self.url).port == _GRPC else ""

    def _made(self) -> urllib.request.OpenerDirector:
        """Raises NoCollector."""
        tls = [urllib.request.HTTPSHandler(context=_tls(self._environment))] if self.url.lower().startswith("https:") else []
        return urllib.request.build_opener(_StaysHere, *tls)

    def _renew(self) -> None:
        """Certificates are renewed while a service runs. What cannot be read, say as it is half written, is read again once it has changed."""
        if (now := _stamps(self._environment)) != self._files:
            self._files = now
            with suppress(NoCollector):
                self._opener = self._made()


def _body(answer: Any, most: int) -> bytes:
    """The limit of a connection is one of each read: who sends a byte now and then would never come to it. Raises TimeoutError, and what reading raises."""
    end, body = time.monotonic() + TIMEOUT, b""
    while len(body) < most and (piece := answer.read1(most - len(body))):
        body += piece
        if time.monotonic() > end:
            raise TimeoutError("its answer has no end")
    return body


def _told(error: urllib.error.HTTPError) -> str:
    """What a server says beside its code, as far as it comes."""
    try:
        return _body(error, 500).decode(errors="replace")
    except (OSError, ValueError, http.client.HTTPException):
        return ""


def _tls(environment: Mapping[str, str]) -> ssl.SSLContext:
    """`OTEL_EXPORTER_OTLP_CERTIFICATE`, `_CLIENT_CERTIFICATE` and `_CLIENT_KEY`: files, in PEM."""
    authority, own, key = (_named(what, environment) for what in _FILES)
    try:
        context = ssl.create_default_context(cafile=authority)
        # From 3.13 on, Python refuses authorities without the newer extensions, and those of many clusters are such: verified as in `kube.client`.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if own:
            context.load_cert_chain(own, key)
    except (OSError, ValueError) as error:
        raise NoCollector(f"a certificate that OTEL_EXPORTER_OTLP_... names cannot be read: {error}; allowed: a file in PEM") from error
    return context


def _named(what: str, environment: Mapping[str, str]) -> str | None:
    return environment.get(f"OTEL_EXPORTER_OTLP_TRACES_{what}") or environment.get(f"OTEL_EXPORTER_OTLP_{what}") or None


def _stamps(environment: Mapping[str, str]) -> list[Stamp | None]:
    return [stamp(_named(what, environment) or "") for what in _FILES]


def _refused(answer: bytes, most: int) -> tuple[int, str]:
    """How many spans of a request that it took a collector has not taken, and why (`partialSuccess` of OTLP's answer); none where it says nothing."""
    try:
        said = json.loads(answer)["partialSuccess"]
        return max(0, min(int(said.get("rejectedSpans", 0)), most)), str(said.get("errorMessage", ""))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return 0, ""
