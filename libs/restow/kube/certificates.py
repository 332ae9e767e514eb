"""Until when certificates are valid, read from PEM: the standard library reads that of authorities alone, and a webhook's own certificate is none."""

import re
import ssl
from datetime import UTC, datetime

_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_VERSION, _UTC_TIME = 0xA0, 0x17


def valid_times(pem: str) -> list[tuple[datetime, datetime]]:
    """From when until when each certificate in it is valid (RFC 5280, 4.1.2.5). Raises ValueError where one cannot be read."""
    return [_valid(ssl.PEM_cert_to_DER_cert(one)) for one in _PEM.findall(pem)]


def _valid(der: bytes) -> tuple[datetime, datetime]:
    body = _parts(_parts(_parts(der)[0][1])[0][1])
    fields = [value for tag, value in body if tag != _VERSION]
    # The serial number, the algorithm and the issuer come first.
    times = _parts(fields[3]) if len(fields) > 3 else []
    if len(times) != 2:
        raise ValueError("no certificate: it does not say when it is valid")
    return _moment(*times[0]), _moment(*times[1])


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
