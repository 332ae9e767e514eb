"""What must never be shown: passwords and tokens inside addresses. One home for it, asked wherever text leaves the process: settings,
errors, logs, statuses, the command line."""

import re
from collections.abc import Iterable

# Up to the last @ before a blank or a comma (which separates addresses): a password may hold any other character.
_USERINFO = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)([^\s,]*)@")
_QUERY = re.compile(r"([?&](?:access_token|api_key|apikey|auth|jwt|key|passwd|password|secret|token)=)[^&\s,'\"]+", re.IGNORECASE)
_BEARER = re.compile(r"(\bBearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)

HIDDEN = "***"


def redacted(text: str) -> str:
    """`text` without passwords: `nats://scheduler:***@nats:4222`. A user without a password is a token (NATS), and hidden, too."""
    if "://" in text:
        text = _USERINFO.sub(_without_password, text)
    if "=" in text:
        text = _QUERY.sub(rf"\1{HIDDEN}", text)
    return _BEARER.sub(rf"\1{HIDDEN}", text) if "earer" in text.lower() else text


def _without_password(match: re.Match[str]) -> str:
    user, colon, _ = match[2].partition(":")
    return f"{match[1]}{user}:{HIDDEN}@" if colon else f"{match[1]}{HIDDEN}@"


def addresses(servers: Iterable[str]) -> str:
    """Several addresses, as people may see them."""
    return ", ".join(map(redacted, servers))
