"""What errors of the library of buckets mean: its words are for developers, and a server's are in the midst of them."""

from __future__ import annotations

import re

from restow.contracts.redact import redacted

_LONGEST = 400
"""Characters of what the library says."""
_QUERY = re.compile(r"\?[^\s)]+")
_STATUS = re.compile(r"status code: (\d{3})")
_CODE, _MESSAGE = re.compile(r"<Code>([^<]{1,200})</Code>"), re.compile(r"<Message>([^<]{1,400})</Message>")
_CAUSE = re.compile(r'(?:message|error): "([^"]{1,200})"|InvalidCertificate\(\s*(\w+)')
"""Of an error without an answer, the system's or the certificate's: in what the library says for developers."""
_WHAT = {
    "401": "the server refuses these credentials", "403": "the server refuses these credentials, or they lack a right", "404": "there is no such bucket",
    "507": "the server has no space left for it",
}  # fmt: skip
"""What a server's status means, and its code, which says more."""
_REGION = "the bucket is in another region: set AWS_REGION"
_MEANS = {
    "RequestTimeTooSkewed": "the clocks of this machine and of the server differ too much",
    "ExpiredToken": "the credentials have expired",
    "QuotaExceeded": _WHAT["507"],
    "InvalidObjectState": "a segment is in a storage class from which it must be restored first",
    "PermanentRedirect": _REGION,
    "AuthorizationHeaderMalformed": _REGION,
}
_ELSEWHERE = "redirect without LOCATION"
"""The library's words for a redirect of S3, of whose answer it does not tell the code."""


def means(text: str) -> str:
    """In our words."""
    status = match[1] if (match := _STATUS.search(text)) else ""
    if (code := _CODE.search(text)) and code[1] in _MEANS:
        return _MEANS[code[1]]
    if _ELSEWHERE in text:
        return _REGION
    return _WHAT.get(status, "the server does not do what it is asked" if status else "no answer")


def said(text: str) -> str:
    """What the server has said, else the first line of what the library says: behind it is where in its code that was. Without queries, for a web identity is in
    one."""
    code, message, cause = _CODE.search(text), _MESSAGE.search(text), _CAUSE.search(text)
    first = text.partition("\n")[0]
    if code and message:
        first = f"{code[1]}: {message[1]}"
    elif cause:
        first = f"{cause[1] or f'its certificate: {cause[2]}'}: {first}"
    return redacted(_QUERY.sub("", first))[:_LONGEST]
