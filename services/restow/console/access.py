"""Who may do what in the console: tokens of people and machines, and what a reverse proxy says of who asks.

Without an access file there is no login, and nothing can be changed. The file is read anew when it has changed: a token that is taken out ends the
sessions that it has begun. One that cannot be read lets nobody in. Kept of a token is its SHA-256: it is to be drawn at random, so nobody can guess it from that.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Mapping, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Any, Literal

import msgspec
import structlog
from aiohttp import web
from multidict import CIMultiDictProxy

from restow.runtime.bearer import is_token
from restow.runtime.config_source import parse

log = structlog.get_logger(__name__)

Role = Literal["viewer", "approver", "operator"]
ROLES: tuple[Role, ...] = ("viewer", "approver", "operator")
"""Each may what those before it may: look; answer plans that wait; set the mode, pause and resume."""
COOKIE = "restow_console"
LASTS = 12 * 3600
"""Seconds that a login lasts."""
MOST_SESSIONS = 1_000
_LONGEST_NAME = 100
_DIGEST = re.compile(r"[0-9a-f]{64}")
_HEADER = re.compile(r"[A-Za-z0-9-]{1,60}")
_HOST = re.compile(r"[a-z0-9.-]{1,253}(:\d{1,5})?")
_LARGEST = 1 << 20


class BadAccess(ValueError):
    """An access file that is not allowed. Says where, and what is allowed."""


class Token(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    role: Role
    sha256: str


class Proxy(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A reverse proxy that has made sure who asks. It is believed where it comes from one of `addresses` and sends the secret, whichever of both are given."""

    hosts: tuple[str, ...]
    addresses: tuple[str, ...] = ()
    secret_sha256: str = ""
    secret_header: str = "X-Restow-Proxy-Secret"
    user_header: str = "X-Forwarded-User"
    groups_header: str = "X-Forwarded-Groups"
    groups: dict[str, Role] = {}

    @property
    def networks(self) -> list[IPv4Network | IPv6Network]:
        """Raises ValueError."""
        return [ip_network(one) for one in self.addresses]


class Rules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`anonymous`: what may be done without a login: nothing, or look."""

    tokens: tuple[Token, ...] = ()
    proxy: Proxy | None = None
    anonymous: Literal["", "viewer"] = ""


class Person(msgspec.Struct, frozen=True):
    """`how`: token, session, proxy or anonymous."""

    name: str
    role: Role
    how: str

    def may(self, role: Role) -> bool:
        return ROLES.index(self.role) >= ROLES.index(role)


def rules(text: str) -> Rules:
    """Raises BadAccess."""
    try:
        loaded = parse(text)
    except ValueError:
        # Its message quotes the file.
        raise BadAccess("it is no YAML, has a key twice, or a value that cannot be read; allowed: a mapping with tokens, proxy, anonymous") from None
    try:
        said = msgspec.convert({} if loaded is None else loaded, Rules)
    except msgspec.ValidationError as error:
        raise BadAccess(f"{error}; allowed: a mapping with tokens (name, role, sha256), proxy, anonymous; roles are {', '.join(ROLES)}") from None
    for i, token in enumerate(said.tokens):
        if not is_name(token.name):
            raise BadAccess(f"tokens[{i}].name: allowed: 1 to {_LONGEST_NAME} printable characters")
        if not _DIGEST.fullmatch(token.sha256):
            raise BadAccess(f"tokens[{i}].sha256: allowed: the token's SHA-256 as 64 characters of 0-9 a-f")
    if len({token.sha256 for token in said.tokens}) < len(said.tokens):
        raise BadAccess("tokens: two have the same sha256; allowed: one token for each")
    if said.proxy is not None:
        _check(said.proxy)
    if not said.tokens and said.proxy is None and not said.anonymous:
        raise BadAccess("it lets nobody in; allowed: tokens, proxy, or anonymous: viewer")
    return said


def _check(proxy: Proxy) -> None:
    """Raises BadAccess."""
    if not proxy.hosts or not all(_HOST.fullmatch(host) for host in proxy.hosts):
        raise BadAccess("proxy.hosts: allowed: the names that people reach the console by, in lower case, such as console.example.com")
    for name in ("secret_header", "user_header", "groups_header"):
        if not _HEADER.fullmatch(getattr(proxy, name)):
            raise BadAccess(f"proxy.{name}: allowed: the name of a header")
    if len({name.lower() for name in (proxy.secret_header, proxy.user_header, proxy.groups_header)}) < 3:
        raise BadAccess("proxy: secretHeader, userHeader and groupsHeader are three; allowed: a header of its own for each")
    if proxy.secret_sha256 and not _DIGEST.fullmatch(proxy.secret_sha256):
        raise BadAccess("proxy.secretSha256: allowed: the secret's SHA-256 as 64 characters of 0-9 a-f")
    try:
        networks = proxy.networks
    except ValueError as error:
        raise BadAccess(f"proxy.addresses: {error}; allowed: addresses and networks, such as 10.1.2.3 or 10.1.0.0/16") from None
    if not proxy.secret_sha256:
        if not networks:
            raise BadAccess("proxy: anybody could send its headers; allowed: with addresses, secretSha256, or both")
        if any(network.overlaps(ip_network(own)) for network in networks for own in ("127.0.0.0/8", "::1/128") if network.version == ip_network(own).version):
            raise BadAccess("proxy.addresses: whoever is on this machine could send its headers; allowed: with secretSha256")


def is_name(text: str) -> bool:
    """What the log takes as the name of who asks."""
    return bool(text.strip()) and len(text) <= _LONGEST_NAME and text.isprintable()


class Access:
    """The file, and who has logged in. In memory: after a restart people log in again."""

    def __init__(self, path: Path) -> None:
        """Raises BadAccess, OSError."""
        self.path, self.fault = path, ""
        self._seen: tuple[int, int, int] | None = _stamp(path)  # First: what is written while it is read is read again.
        self._rules = rules(_text(path))
        self._sessions: dict[str, tuple[str, float]] = {}

    @property
    def rules(self) -> Rules:
        """As the file has them now; none where it cannot be read, and `fault` says why."""
        try:
            stamp = _stamp(self.path)
            if stamp != self._seen:
                self._rules, self.fault, self._seen = rules(_text(self.path)), "", stamp
                log.info("access file read", path=str(self.path), tokens=len(self._rules.tokens))
        except (BadAccess, OSError) as error:
            fault = str(error)
            if fault != self.fault:
                log.error("the access file cannot be used; nobody is let in", path=str(self.path), reason=fault)
            self._rules, self.fault, self._seen = Rules(), fault, None
        return self._rules

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names by which a proxy leads here."""
        proxy = self.rules.proxy
        return proxy.hosts if proxy is not None else ()

    def who(self, headers: CIMultiDictProxy[str], cookies: Mapping[str, str], remote: str | None) -> Person | None:
        """A token that is sent counts before a login, and that before what a proxy says. With a wrong one only the proxy can say who it is (some hand
        on what people have shown to them)."""
        said = self.rules
        if sent := headers.getall("Authorization", []):
            token = self._token(said, sent)
            if token is not None:
                return Person(token.name, token.role, "token")
            return _through(said.proxy, headers, remote) if said.proxy is not None else None
        if (key := cookies.get(COOKIE)) and (token := self._session(said, key)) is not None:
            return Person(token.name, token.role, "session")
        if said.proxy is not None and (person := _through(said.proxy, headers, remote)) is not None:
            return person
        return Person("", "viewer", "anonymous") if said.anonymous else None

    def login(self, token: str) -> tuple[str, Person] | None:
        """The key of a new session and whose it is; None where nobody has that token."""
        found = _of(self.rules, token)
        if found is None:
            log.warning("a login with a token that nobody has")
            return None
        log.info("a person has logged in", name=found.name, role=found.role)
        now, key = time.monotonic(), secrets.token_urlsafe(32)
        self._sessions = {one: kept for one, kept in self._sessions.items() if kept[1] > now}
        while len(self._sessions) >= MOST_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        self._sessions[_digest(key)] = (found.sha256, now + LASTS)
        return key, Person(found.name, found.role, "session")

    def logout(self, key: str) -> None:
        self._sessions.pop(_digest(key), None)

    def _session(self, said: Rules, key: str) -> Token | None:
        sha256, until = self._sessions.get(_digest(key), ("", 0.0))
        return next((token for token in said.tokens if token.sha256 == sha256), None) if until > time.monotonic() else None

    def _token(self, said: Rules, sent: Sequence[str]) -> Token | None:
        scheme, _, token = sent[0].strip().partition(" ")
        return _of(said, token.strip()) if len(sent) == 1 and scheme.lower() == "bearer" else None


def _of(said: Rules, token: str) -> Token | None:
    """All of them are compared, whichever fits: how long it takes says nothing. What is too short to be drawn at random is no token, whoever has its hash."""
    digest = _digest(token)
    found = [one for one in said.tokens if hmac.compare_digest(one.sha256, digest)]
    return found[0] if found and is_token(token) else None


def _through(proxy: Proxy, headers: CIMultiDictProxy[str], remote: str | None) -> Person | None:
    """Who asks, as the proxy says; None where it does not, or is not it. A header that is there twice is not the proxy's alone."""
    if proxy.addresses and not _within(proxy, remote):
        return None
    if proxy.secret_sha256:
        secret = headers.getall(proxy.secret_header, [])
        if len(secret) != 1 or not hmac.compare_digest(_digest(secret[0]), proxy.secret_sha256) or not is_token(secret[0]):
            return None
    users, groups = headers.getall(proxy.user_header, []), headers.getall(proxy.groups_header, [])
    if len(users) != 1 or len(groups) > 1 or not is_name(users[0]):
        return None
    named = [one.strip() for one in ",".join(groups).split(",")]
    roles = [proxy.groups[group] for group in named if group in proxy.groups]
    return Person(users[0].strip(), max(roles, key=ROLES.index, default="viewer"), "proxy")


def _within(proxy: Proxy, remote: str | None) -> bool:
    try:
        address: Any = ip_address(remote or "")
    except ValueError:
        return False
    address = getattr(address, "ipv4_mapped", None) or address
    return any(address in network for network in proxy.networks if network.version == address.version)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _stamp(path: Path) -> tuple[int, int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size, found.st_ino


def _text(path: Path) -> str:
    """Raises BadAccess, OSError."""
    with path.open("rb") as file:
        text = file.read(_LARGEST + 1)
    if len(text) > _LARGEST:
        raise BadAccess(f"it is larger than {_LARGEST} bytes")
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise BadAccess("it is no text; allowed: YAML in UTF-8") from None


def set_cookie(response: web.Response, key: str, *, secure: bool) -> None:
    """No script reads it, and no page of another site makes a browser send it. `secure`: over HTTPS only."""
    response.set_cookie(COOKIE, key, max_age=LASTS if key else 0, path="/", httponly=True, samesite="Strict", secure=secure)
