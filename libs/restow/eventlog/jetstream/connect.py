"""One connection to the broker: requests that always end, and a refusal of brokers that cannot keep the log.

Every request has a deadline and ends at once when the connection is lost or the broker denies the subject. nats-py's
own request knows only the deadline, and would leave an append of a killed broker waiting for all of it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import ssl
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec
import nats.errors
from nats.aio.msg import Msg

from restow.contracts.redact import addresses, redacted
from restow.eventlog.access import NO_FILES, AccessFiles, Certificates, encrypted
from restow.eventlog.jetstream.client import BrokerClient, NotEncrypted
from restow.eventlog.memory import Wakeup
from restow.eventlog.port import (
    BrokerRefused,
    Closed,
    Forbidden,
    NoBroker,
    NotLetIn,
    Unavailable,
    check_address,
    check_login,
)

MIN_SERVER = (2, 12, 0)
"""Oldest nats-server taken: older ones silently ignore options that the log relies on (DESIGN 2)."""

API = "$JS.API"
IMPORTED_API = "JS.LOG.API"
"""Where the broker's API is: in an account of its own without users there is nothing else, in an account that only imports the
log's (deploy/nats/permissions.conf) it is under this prefix, for the server answers `$JS.API` of every account itself."""

REQUEST_TIMEOUT, CREATE_TIMEOUT = 3.0, 10.0
"""Seconds until a request without an answer fails; and one for a stream, on which all brokers agree, and which they sync, first."""

ASK_AGAIN = 0.3
"""Seconds after which a question without an answer is asked once more. Brokers that elect a leader drop what is asked of it, and have one long before the timeout."""

REPEATED = ("STREAM.INFO.", "STREAM.MSG.GET.", "CONSUMER.CREATE.")
"""Calls of the API that may be made twice: they change nothing, or make what is there already, under the same name and with the same settings."""

LEAVE_AGAIN = 10.0
"""Seconds between two attempts to find a broker that has not lost the others."""

RECONNECT_WAIT = 0.1
"""Seconds between two attempts to reach a lost broker."""

PING = 1
"""Seconds between two questions whether the broker is there; after two without an answer the connection is given up. One that has stopped, or whose machine is gone,
does not say so."""

_log = logging.getLogger(__name__)
_WRONG_TIME = (9, 10)
"""OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and _CERT_HAS_EXPIRED."""
_DENIED = re.compile(r'permissions violation for (publish|subscription) to "([^"]+)"')


class NoAnswer(Exception):
    """The request was not answered: timeout, lost connection, or nobody listens (`503`). Says which."""


class Nobody(NoAnswer):
    """Nobody listens on the subject: the broker says so at once."""


class Denied(Exception):
    """The broker's permissions forbid the subject; nothing was delivered."""


class ApiError(Exception):
    """A JetStream error response: HTTP-like `code`, JetStream's `err_code`, and its text."""

    def __init__(self, code: int, err_code: int, description: str) -> None:
        self.code, self.err_code, self.description = code, err_code, description
        super().__init__(f"{description} (code {code}, error {err_code})")


NO_MAJORITY = 10008
"""JSClusterNotAvailErr: of a cluster without a leader, so for good only where too few of its brokers are there."""


class NotNow(Unavailable):
    """The broker answered that it cannot do this now (5xx); `err_code` is JetStream's."""

    def __init__(self, verb: str, failure: Failure) -> None:
        self.err_code = failure.err_code
        todo = ": more than half of its brokers must be there" if failure.err_code == NO_MAJORITY else ""
        super().__init__(f"the broker cannot do {verb} now: {failure.description} (error {failure.err_code}){todo}")


class Failure(msgspec.Struct):
    """The error part of a JetStream answer."""

    code: int = 0
    err_code: int = 0
    description: str = ""


class Broker:
    """A connected client. Made by `Broker.connect`; used by the log, the reader and the object store."""

    def __init__(self, servers: Sequence[str]) -> None:
        self.servers = list(servers)
        self.client = BrokerClient()
        self.closed = False
        self.api_prefix = API
        self.losses = 0
        """Number of times that the connection was lost."""
        self.changed = Wakeup()
        """Notified when the connection is lost, is back, or is closed."""
        self.on_lost: set[Callable[[], None]] = set()
        self.on_denied: set[Callable[[str, str], None]] = set()
        self._pending: dict[str, tuple[str, asyncio.Future[Msg]]] = {}
        self._tokens = itertools.count()
        self._inbox = self._unheard = ""
        self._end_reason = "this log was closed"
        self._last_error: Exception | None = None
        self._refused: asyncio.Future[NotLetIn] | None = None
        self._violations = 0
        self._left = float("-inf")

    @classmethod
    async def connect(
        cls,
        servers: str | Sequence[str],
        *,
        name: str = "restow",
        user: str | None = None,
        password: str | None = None,
        inbox_prefix: str = "",
        files: AccessFiles = NO_FILES,
        wait: float = 10.0,
    ) -> Broker:
        """Connect, or raise NoBroker after `wait` seconds, NotLetIn at once, with what was wrong last. Raises NotAllowed where a server is no address, or names
        another user, or where one of the `files` cannot be taken.

        user, password: None where the broker knows no users, or where the address names them. With credentials the user only names the inbox.
        inbox_prefix: the only subjects that this user may subscribe to (deploy/nats/permissions.conf): by default `_INBOX_<user>`.
        """
        broker = cls([check_address(_with_scheme(server)) for server in ([servers] if isinstance(servers, str) else servers)])
        check_login(broker.servers, user, password)
        files.check()
        broker._refused = asyncio.get_running_loop().create_future()
        options: dict[str, Any] = {}
        if encrypted(broker.servers, files):
            broker.client.certificates = Certificates(files)
        if files.credentials:
            options["nkeys_seed" if files.is_seed() else "user_credentials"] = files.credentials
        elif user is not None and (password or not any(urlsplit(server).password for server in broker.servers)):
            # Else the address names the same user, and the password.
            options |= {"user": user, "password": password or ""}
        opening = asyncio.ensure_future(
            broker.client.connect(
                broker.servers,
                name=name,
                inbox_prefix=inbox_prefix or _inbox_of(user, servers),
                error_cb=broker._on_error,
                disconnected_cb=broker._on_lost,
                reconnected_cb=broker._on_back,
                closed_cb=broker._on_closed,
                max_reconnect_attempts=-1,
                reconnect_time_wait=RECONNECT_WAIT,  # type: ignore[arg-type]  # nats-py only sleeps so long
                ping_interval=PING,
                max_outstanding_pings=2,
                **options,
            )
        )
        try:
            await broker._opened(opening, wait)
            broker.check_server()
            broker._inbox = broker.client.new_inbox()
            await broker.client.hear(f"{broker._inbox}.*", broker._on_answer)
        except BaseException:
            await _end(opening)
            # A client that has not got as far as connecting cannot be closed; what it said first is what is wrong.
            with contextlib.suppress(Exception):
                await broker.close()
            raise
        return broker

    async def _opened(self, opening: asyncio.Future[None], wait: float) -> None:
        assert self._refused is not None
        either: set[asyncio.Future[Any]] = {opening, self._refused}
        done, _ = await asyncio.wait(either, timeout=wait, return_when=asyncio.FIRST_COMPLETED)
        if opening in done:
            opening.result()
            return
        await _end(opening)
        if self._refused in done:
            raise self._refused.result()
        raise NoBroker(
            f"no broker answers at {addresses(self.servers)} within {wait:g} s ({self.said()}). "
            "Start nats-server 2.12 or newer with JetStream, or correct the address"
        )

    def said(self) -> str:
        """What was wrong last."""
        if isinstance(self._last_error, TimeoutError) and not str(self._last_error):
            return "nothing comes back from there: it hangs, or a firewall or NetworkPolicy drops what is sent"
        return redacted(str(self._last_error) or type(self._last_error).__name__) if self._last_error else "no error given"

    def check_server(self) -> None:
        """Raise BrokerRefused unless the connected server is new enough and runs JetStream."""
        version = self.version
        where = redacted(self.client.connected_url.geturl()) if self.client.connected_url else addresses(self.servers)
        match = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
        if not match or tuple(int(part) for part in match.groups()) < MIN_SERVER:
            raise BrokerRefused(
                f"the broker at {where} is nats-server {version or 'of unknown version'}; "
                "Restow needs 2.12.0 or newer. Upgrade it (https://nats.io/download)"
            )
        if not self.client._server_info.get("jetstream"):
            raise BrokerRefused(
                f"the broker at {where} runs without JetStream. Start it with deploy/nats/nats.conf, or with "
                "`jetstream { store_dir: ... }` in its configuration"
            )

    @property
    def version(self) -> str:
        """The connected server's version, as it names itself."""
        return str(self.client._server_info.get("version", ""))

    @property
    def max_payload(self) -> int:
        """Bytes of headers and body that the server takes in one message."""
        return int(self.client._server_info.get("max_payload", 1024 * 1024))

    @property
    def connected(self) -> bool:
        """Whether requests can be sent now."""
        return self.client.is_connected and not self.closed

    async def wait_connected(self) -> None:
        """Until requests can be sent. Raises Closed."""
        while not self.connected:
            if self.closed:
                raise self.ended()
            await self.changed.wait()

    async def leave(self) -> None:
        """To another broker, where this one has lost the others; not again before a while. Behind a single address there may be several, too."""
        now = monotonic()
        if now - self._left >= LEAVE_AGAIN and self.connected:
            self._left = now
            _log.warning("leaves the broker at %s: it has lost the others", redacted(self.client.connected_url.geturl()) if self.client.connected_url else "")
            await self.client.leave()

    def inbox(self) -> str:
        """A new subject under this user's inbox prefix."""
        return self.client.new_inbox()

    async def request(
        self, subject: str, payload: bytes, headers: dict[str, str] | None = None, *, timeout: float = REQUEST_TIMEOUT, repeat: bool = False
    ) -> Msg:
        """Send and wait at most `timeout` seconds. `repeat`: it changes nothing, and may be asked again until then. Raises NoAnswer, Denied, Closed."""
        if self.closed:
            raise self.ended()
        if not self.client.is_connected:
            raise NoAnswer("not connected to the broker")
        if self._unheard:
            raise Denied(self._unheard)
        token = str(next(self._tokens))
        answer: asyncio.Future[Msg] = asyncio.get_running_loop().create_future()
        self._pending[token] = (subject, answer)
        try:
            async with asyncio.timeout(timeout):
                while True:
                    await self.client.publish(subject, payload, f"{self._inbox}.{token}", headers)
                    if not repeat or (await asyncio.wait({answer}, timeout=ASK_AGAIN))[0]:
                        break
                message = await answer
        except TimeoutError:
            raise NoAnswer(f"no answer within {timeout:g} s") from None
        except (nats.errors.Error, OSError) as error:
            raise NoAnswer(f"could not be sent: {error}") from error
        finally:
            self._pending.pop(token, None)
            if not answer.cancel() and not answer.cancelled():
                # Who was told to stop in the same moment does not hear of it, and nobody else is to.
                answer.exception()
        if not message.data and message.headers and message.headers.get("Status") == "503":
            raise Nobody(f"nobody listens on {subject} (503)")
        return message

    async def find_api(self, stream: str) -> None:
        """Find out under which prefix `stream` is to be asked for. Raises Unavailable, Closed."""
        nobody = False
        for prefix in (IMPORTED_API, API):
            try:
                await self.request(f"{prefix}.STREAM.INFO.{stream}", b"")
            except Nobody:
                nobody = True
            except Denied as error:
                if prefix == API and nobody:
                    raise Unavailable(f"nobody answers {IMPORTED_API}.STREAM.INFO.{stream} yet, and {error}") from error
            except NoAnswer as error:
                raise Unavailable(f"the broker did not answer STREAM.INFO.{stream}: {error}") from error
            else:
                self.api_prefix = prefix
                return
        self.api_prefix = API

    async def api(self, verb: str, body: object = None, *, timeout: float = REQUEST_TIMEOUT) -> dict[str, Any]:
        """Call `<prefix>.<verb>`. Raises ApiError, Unavailable, BrokerRefused (permissions), Closed."""
        payload = b"" if body is None else msgspec.json.encode(body)
        try:
            message = await self.request(f"{self.api_prefix}.{verb}", payload, timeout=timeout, repeat=verb.startswith(REPEATED))
        except NoAnswer as error:
            if self.closed:
                raise self.ended() from error
            raise Unavailable(f"the broker did not answer {verb}: {error}") from error
        except Denied as error:
            raise Forbidden(str(error)) from error
        answer: dict[str, Any] = msgspec.json.decode(message.data)
        if "error" in answer:
            failure = msgspec.convert(answer["error"], Failure)
            if failure.code >= 500:
                raise NotNow(verb, failure)
            raise ApiError(failure.code, failure.err_code, failure.description)
        return answer

    def ended(self) -> Closed:
        """Why nothing more can be asked of a closed connection."""
        return Closed(self._end_reason)

    async def close(self) -> None:
        """Close the connection and wake every waiter with Closed."""
        if self.closed:
            return
        self.closed = True
        self._fail_all(NoAnswer("this process closed the connection"))
        self.changed.notify()
        await self.client.close()
        if self.client._reconnection_task is not None:
            await _end(self.client._reconnection_task)

    def _on_answer(self, message: Msg) -> None:
        waiting = self._pending.pop(message.subject.rpartition(".")[2], None)
        if waiting and not waiting[1].done():
            waiting[1].set_result(message)

    def _fail_all(self, error: Exception) -> None:
        pending, self._pending = self._pending, {}
        for _, answer in pending.values():
            if not answer.done():
                answer.set_exception(error)

    async def _on_lost(self) -> None:
        self.losses += 1
        self.client.forget_unsent()
        if not self.closed:
            _log.warning("lost the connection to the broker at %s", addresses(self.servers))
        self._fail_all(NoAnswer("the connection to the broker was lost"))
        for lost in list(self.on_lost):
            lost()
        self.changed.notify()

    async def _on_back(self) -> None:
        _log.info("connected to the broker again")
        self.changed.notify()

    async def _on_closed(self) -> None:
        """nats-py gave up by itself (for instance credentials that became invalid): everything must end loudly."""
        if not self.closed:
            self._end_reason = f"the broker ended the connection for good: {redacted(str(self.client.last_error))}"
            _log.error(self._end_reason)
            self.closed = True
            self._fail_all(NoAnswer(self._end_reason))
        self.changed.notify()

    async def _on_error(self, error: Exception) -> None:
        before, self._last_error = self._last_error, error
        text = str(error).lower()
        if self._refused and not self._refused.done() and (why := self._refusal(error, text)):
            self._refused.set_result(NotLetIn(f"the broker at {addresses(self.servers)} {why}"))
        if denied := _DENIED.search(text):
            self._on_permission(*denied.groups())
        elif isinstance(error, ssl.SSLError) and str(before) == str(error):
            pass  # said already: it is asked ten times a second
        elif isinstance(error, ssl.SSLError) or not isinstance(error, OSError | nats.errors.UnexpectedEOF):
            _log.warning("broker: %s", redacted(str(error) or repr(error)))

    def _refusal(self, error: Exception, text: str) -> str:
        """What is wrong, where trying again cannot help; else empty."""
        if "authorization violation" in text:
            # A broker that reads its configuration anew says so to everybody who has not told his name yet: only the second time it is meant.
            self._violations += 1
            if self._violations < 2:
                return ""
            return (
                "does not accept this user or password, or key: check the user's entry in its permissions.conf and the password's environment "
                "variable, or the file of the credentials, on both sides"
            )
        if isinstance(error, NotEncrypted):
            return (
                "does not offer TLS there, and the settings want it: turn it on (deploy/nats/nats-tls.conf), or take away RESTOW_NATS_CA, "
                "RESTOW_NATS_CERTIFICATE and tls:// in the address"
            )
        if isinstance(error, ssl.SSLCertVerificationError):
            if error.verify_code in _WRONG_TIME:
                return f"shows a certificate that is not to be trusted ({error.verify_message}): renew it and tell the broker (nats-server --signal reload), or set this machine's clock"
            return (
                f"shows a certificate that is not to be trusted ({error.verify_message}): name its CA in RESTOW_NATS_CA, or correct the host's name in the "
                "address or in the certificate"
            )
        if "certificate expired" in text:
            return "does not take our certificate, which has ended or has not begun: renew the one in RESTOW_NATS_CERTIFICATE and RESTOW_NATS_KEY, or set the broker's clock"
        if "certificate required" in text or "bad certificate" in text or "unknown ca" in text:
            return "does not take our certificate: name one of the CA that it verifies clients by in RESTOW_NATS_CERTIFICATE and RESTOW_NATS_KEY"
        return ""

    def _on_permission(self, what: str, subject: str) -> None:
        """The server tells a denied subject on the connection, in nats-py's lower case, never on the request."""
        verb = "subscribe to" if what == "subscription" else "publish to"
        _log.error("the broker's permissions forbid this user to %s %s", verb, subject)
        if what == "subscription" and self._inbox and subject.startswith(self._inbox.lower()):
            self._unheard = (
                f"the broker's permissions forbid this user to listen on {self._inbox}, so it can hear no answer: "
                "set the inbox prefix to the one of its entry in permissions.conf (_INBOX_<user>)"
            )
            self._fail_all(Denied(self._unheard))
        for waited, answer in self._pending.values():
            if what == "publish" and waited.lower() == subject and not answer.done():
                answer.set_exception(
                    Denied(
                        f"the broker's permissions forbid this user to publish to {waited}: it is another service's, "
                        "or deploy/nats/permissions.conf lacks it"
                    )
                )
        for denied in list(self.on_denied):
            denied(what, subject)


async def _end(task: asyncio.Future[Any]) -> None:
    """Cancel it until it has ended. Once is not enough: where an attempt to connect fails just when it is cancelled, `asyncio.wait_for` of Python 3.11 forgets that,
    and nats-py would try again for ever, which keeps a process from its end."""
    while not task.done() and task is not asyncio.current_task():
        task.cancel()
        await asyncio.wait([task], timeout=RECONNECT_WAIT)


def _with_scheme(server: str) -> str:
    return server if "://" in server or not server else f"nats://{server}"


def _inbox_of(user: str | None, servers: str | Sequence[str]) -> str:
    """The inbox prefix of this user, or of the one in the address."""
    first = servers if isinstance(servers, str) else servers[0]
    named = urlsplit(first)
    name = user if user is not None else (unquote(named.username or "") if named.password else "")
    return f"_INBOX_{name}" if name else "_INBOX"
