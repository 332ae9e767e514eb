"""What must never be shown: passwords, tokens and private keys, in addresses, headers, settings, flags, JSON and YAML. One home for it, asked
wherever text leaves the process: settings, errors, logs, statuses, the command line. A secret is known by the name before it or by its form; a bare one is not.

Every pattern takes time that grows with the length and no faster: strangers' texts come here."""

import re
from collections.abc import Iterable

_BLANKS = re.compile(r"(\s+)")
_NEXT = re.compile(r",(?=[A-Za-z][A-Za-z0-9+.-]{0,20}://)")
"""Between two addresses."""
_NAMES = r"passw(?:or)?d|passphrase|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|client[_-]?key[_-]?data|credentials?"
_NAME = re.compile(rf"(?:{_NAMES}|authorization)$", re.IGNORECASE)
_QUERY = re.compile(rf"([?&](?:[a-z0-9._-]{{0,32}}(?:{_NAMES})|auth|jwt|key|sig|signature)=)(?!\*\*\*)[^&\s,'\"]+", re.IGNORECASE)
"""In an address some names mean a secret that mean nothing elsewhere, and it has an end."""
_BEARER = re.compile(r"(\bBearer\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)
_HEADER = re.compile(
    r"((?:authorization|cookie)(?:\\?[\"'])?\s{0,8}[:=]\s{0,8}(?:b?\\?[\"'])?(?:(?:basic|bearer|digest|negotiate|token)\s{1,8})?+)"
    r"(?!\*\*\*)[^\s\"',\\][^\"'\r\n\\]*",
    re.IGNORECASE,
)
"""The whole value; its scheme says what it is, and stays."""
_NAMED = re.compile(
    rf"((?:{_NAMES})(?:\\?[\"'])?\s{{0,8}}[:=]\s{{0,8}}b?)"
    r"(?:(\\\")(?!\*\*\*\\)(?:[^\"\\]|\\\\\\\"|\\(?!\").)+|(\")(?!\*\*\*\")(?:[^\"\\]|\\.)+|(')(?!\*\*\*')[^']+)",
    re.IGNORECASE | re.DOTALL,
)
"""In quotes: NAME="x y", --name='x', {"name": "x"}, also where that JSON is itself quoted in another text."""
_PLAIN = re.compile(rf"((?:{_NAMES})=)(?!\*\*\*(?:[\s&,;'\"]|$))[^\s'\"]+", re.IGNORECASE)
"""NAME=x, --name=x."""
_FLAG = re.compile(rf"((?<![^\s'\"])--?(?:[a-z0-9]{{1,16}}-){{0,3}}(?:{_NAMES})\s{{1,8}})(?!\*\*\*(?:\s|$))(?:'[^']*'|\"[^\"]*\"|[^\s'\"-][^\s'\"]*)", re.IGNORECASE)
_LINE = re.compile(
    rf"(?m)(^[ \t]{{0,64}}(?:-[ \t]{{1,8}})?[\w.-]{{0,64}}(?:{_NAMES}):[ \t]{{1,8}})(?!(?:\*\*\*|true|false|null|~)[ \t]*$)[^\s'\"&|>{{\[]\S*(?=[ \t]*$)",
    re.IGNORECASE,
)
"""A line of YAML. A sentence has more than one word behind its colon."""
_PEM = re.compile(r"(-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----)(?!\*\*\*).*?(?:(?=-----END )|\Z)", re.DOTALL)
_FORMS = re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*|\bS[ACNOUX][A-Z2-7]{56}\b")
"""A JWT, a seed of NATS: known without a name."""
_HINTS = ("pass", "pwd", "secret", "token", "key", "credential", "authorization", "cookie", "?auth", "&auth", "jwt=", "sig=", "signature=")
"""Without one of these no pattern that goes by names finds anything."""

HIDDEN = "***"
_SHORTEST = 22
"""Characters of the shortest JWT."""


def redacted(text: str) -> str:
    """`text` without secrets: `nats://scheduler:***@nats:4222`. A user without a password is a token (NATS), and hidden, too."""
    if "://" in text and "@" in text:
        text = "".join(",".join(map(_without_password, _NEXT.split(word))) if "@" in word else word for word in _BLANKS.split(text))
    small = text.lower()
    if "bearer" in small:
        text = _BEARER.sub(rf"\1{HIDDEN}", text)
    if any(hint in small for hint in _HINTS):
        for pattern in (_PEM, _HEADER, _QUERY):
            text = pattern.sub(rf"\1{HIDDEN}", text)
        text = _NAMED.sub(lambda found: f"{found[1]}{found[2] or found[3] or found[4]}{HIDDEN}", text)
        for pattern in (_PLAIN, _FLAG, _LINE):
            text = pattern.sub(rf"\1{HIDDEN}", text)
    return _FORMS.sub(HIDDEN, text) if len(text) >= _SHORTEST else text


def names_a_secret(name: str) -> bool:
    """Whether what stands under this name is one: `nats_password`, `apiToken`."""
    return _NAME.search(name) is not None


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
