"""What must never be shown: passwords and tokens inside addresses. One home for it, asked wherever text leaves the process: settings,
errors, logs, statuses, the command line."""

import re
from collections.abc import Iterable

_BLANKS = re.compile(r"(\s+)")
_NEXT = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]{0,20}://)")
"""Between two addresses."""
_QUERY = re.compile(r"([?&](?:access_token|api_key|apikey|auth|jwt|key|passwd|password|secret|token)=)[^&\s,'\"]+", re.IGNORECASE)
_BEARER = re.compile(r"(\bBearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)

HIDDEN = "***"


def redacted(text: str) -> str:
    """`text` without passwords: `nats://scheduler:***@nats:4222`. A user without a password is a token (NATS), and hidden, too."""
    if "://" in text and "@" in text:
        text = "".join(",".join(map(_without_password, _NEXT.split(word))) if "@" in word else word for word in _BLANKS.split(text))
    if "=" in text:
        text = _QUERY.sub(rf"\1{HIDDEN}", text)
    return _BEARER.sub(rf"\1{HIDDEN}", text) if "earer" in text.lower() else text


def _without_password(address: str) -> str:
    """Up to its last @: a password may hold any character but a blank. Takes time that grows with the length and no faster: strangers' texts come here."""
    before, slashes, rest = address.partition("://")
    userinfo, at, after = rest.rpartition("@")
    if not at:
        return address
    user, colon, _ = userinfo.partition(":")
    return f"{before}{slashes}{user}:{HIDDEN}@{after}" if colon else f"{before}{slashes}{HIDDEN}@{after}"


def addresses(servers: Iterable[str]) -> str:
    """Several addresses, as people may see them."""
    return ", ".join(map(redacted, servers))
