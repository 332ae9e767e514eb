"""Certificates, read from PEM: until when they are valid, and whether an API server that believes a caBundle would trust what a webhook shows. The standard library
reads these of authorities alone, and a webhook's own certificate is none."""

import re
import ssl
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME, _EXTENSIONS = 0xA0, 0x17, 0xA3
_DNS_NAME, _KEY_OF_AUTHORITY = 0x82, 0x80
_KEY, _NAMES, _AUTHORITY = bytes.fromhex("551d0e"), bytes.fromhex("551d11"), bytes.fromhex("551d23")
"""Of extensions (RFC 5280, 4.2.1): the subject's key, its other names, and the key of who has signed."""
LONGEST = 8
"""Certificates of a chain that are looked at."""


class Certificate(NamedTuple):
    """`issuer` and `subject` as they are encoded; `key` and `authority` are the marks of its key and of its issuer's, empty where it does not say."""

    der: bytes
    issuer: bytes
    subject: bytes
    begin: datetime
    end: datetime
    names: Sequence[str] = ()
    key: bytes = b""
    authority: bytes = b""

    def may_have_signed(self, other: "Certificate") -> bool:
        """By what both say; the signature itself is not looked at."""
        return self.subject == other.issuer and (not self.key or not other.authority or self.key == other.authority)


def certificates(pem: str) -> list[Certificate]:
    """Each certificate in it. Raises ValueError where one cannot be read."""
    return [_read(ssl.PEM_cert_to_DER_cert(one)) for one in _PEM.findall(pem)]


def valid_times(pem: str) -> list[tuple[datetime, datetime]]:
    """From when until when each certificate in it is valid (RFC 5280, 4.1.2.5). Raises ValueError where one cannot be read."""
    return [(one.begin, one.end) for one in certificates(pem)]


def mistrusted(shown: str, believed: str, host: str, clock: datetime) -> str:
    """Why who believes `believed` (PEM) would not trust a server `host` that shows `shown` (its certificate first, then what else is of its chain), as the end of "a
    certificate that ..."; empty where it would, or where they cannot be read."""
    try:
        own, *between = certificates(shown)
        roots = [one for one in certificates(believed) if one.begin <= clock <= one.end]
    except ValueError:
        return ""
    if own.end < clock:
        return f"has ended at {own.end:%Y-%m-%d %H:%M} UTC"
    if clock < own.begin:
        return f"is valid from {own.begin:%Y-%m-%d %H:%M} UTC on"
    if not any(_is(host, name) for name in own.names):
        return f"is for {', '.join(own.names) or 'no host'}, not for {host}"
    at = own
    for _ in range(LONGEST):
        if any(at.der == root.der or (root.may_have_signed(at) and at.issuer != at.subject) for root in roots):
            return ""
        above = next((one for one in between if one.may_have_signed(at) and one.der != at.der), None)
        if above is None:
            break
        at = above
    return "the caBundle is not for: it is neither in it nor signed by one that is"


def _is(host: str, name: str) -> bool:
    star, _, rest = name.partition(".")
    return name.lower() == host.lower() or (star == "*" and host.lower().partition(".")[2] == rest.lower())


def _read(der: bytes) -> Certificate:
    body = _parts(_parts(_parts(der)[0][1])[0][1])
    fields = [(tag, value) for tag, value in body if tag != _VERSION]
    # The serial number, the algorithm, the issuer, the times, the subject, its key; then what is optional.
    times = _parts(fields[3][1]) if len(fields) > 4 else []
    if len(times) != 2:
        raise ValueError("no certificate: it does not say when it is valid")
    more = {key: value for tag, value in fields[6:] if tag == _EXTENSIONS for key, value in _extensions(value)}
    names = [value.decode("ascii", "replace") for tag, value in _inner(more.get(_NAMES)) if tag == _DNS_NAME]
    authority = next((value for tag, value in _inner(more.get(_AUTHORITY)) if tag == _KEY_OF_AUTHORITY), b"")
    key = _parts(more[_KEY])[0][1] if _KEY in more else b""
    return Certificate(der, fields[2][1], fields[4][1], _moment(*times[0]), _moment(*times[1]), names, key, authority)


def _extensions(wrapped: bytes) -> list[tuple[bytes, bytes]]:
    """Which it is, and what it says, without whether it is critical."""
    return [(parts[0][1], parts[-1][1]) for _, one in _parts(_parts(wrapped)[0][1]) for parts in [_parts(one)]]


def _inner(value: bytes | None) -> list[tuple[int, bytes]]:
    return _parts(content) if value and (content := _parts(value)[0][1]) else []


def _moment(tag: int, value: bytes) -> datetime:
    said = value.decode("ascii")
    if tag == _UTC_TIME:
        # Of two digits, the years from 1950 to 2049.
        said = ("19" if said[:2] >= "50" else "20") + said
    return datetime.strptime(said, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _parts(der: bytes) -> list[tuple[int, bytes]]:
    """Tag and content of each element. Raises ValueError where it ends too early."""
    parts, at = [], 0
    while at < len(der):
        tag, length, at = der[at], int.from_bytes(der[at + 1 : at + 2], "big"), at + 2
        if length & 0x80:
            length, at = int.from_bytes(der[at : at + (length & 0x7F)], "big"), at + (length & 0x7F)
        if at + length > len(der):
            raise ValueError("no certificate: it ends too early")
        parts.append((tag, der[at : at + length]))
        at += length
    if not parts:
        raise ValueError("no certificate: it is empty")
    return parts
