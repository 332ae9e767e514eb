"""Who may use a service's API: whoever sends its bearer token. The token is nobody's to see: not in logs, not in errors.

Without a token nothing can be changed over HTTP, and only this machine may ask (in a pod: whoever may exec or port-forward into it); with one, every
route of the API asks for it, wherever the request comes from. Health, metrics and the description of the API never do.
"""

import hmac
import re
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Literal

import msgspec

Guard = Literal["", "reads", "changes", "answers"]
"""A route that is open to all, that shows something of the API, that changes something, or that says what a person has decided (of a plan, the mode, a pause), for which a
token of its own may be given: who has only that one (the console) can ask for no plan and no move."""

SHORTEST, LONGEST = 16, 512
ALLOWED = f"{SHORTEST} to {LONGEST} of A-Z a-z 0-9 - . _ ~ + / ="
_TOKEN = re.compile(rf"[A-Za-z0-9\-._~+/=]{{{SHORTEST},{LONGEST}}}")
_LARGEST = 64 * 1024
"""Bytes of a file with tokens."""

NO_TOKEN = (
    "this service has no API token, so nothing can be changed over HTTP; set RESTOW_API_TOKEN_FILE (or RESTOW_API_TOKEN) where "
    "it runs, and send it as `Authorization: Bearer TOKEN`"
)
READS_ONLY = (
    "this service only reads the cluster (RESTOW_READ_ONLY, as in `restow watch`): nothing is moved, and neither the mode nor a pause can be set; "
    "`restow defrag --dry-run` shows what a plan would move"
)
ONLY_HERE = (
    "this service has no API token, so it answers this only to its own machine (kubectl port-forward counts as that); set RESTOW_API_TOKEN_FILE "
    "(or RESTOW_API_TOKEN) where it runs, and send it as `Authorization: Bearer TOKEN`"
)
WANTED = "a bearer token is needed; send the service's own (RESTOW_API_TOKEN or RESTOW_API_TOKEN_FILE) as `Authorization: Bearer TOKEN`"
WRONG = "this is not the service's token; allowed: the one of its RESTOW_API_TOKEN or RESTOW_API_TOKEN_FILE"


def is_token(text: str) -> bool:
    return _TOKEN.fullmatch(text) is not None


def is_local(peer: str | None) -> bool:
    """Whether an address is this machine's loopback. What is no address is nobody's."""
    try:
        address = ip_address(peer or "")
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


class Refusal(msgspec.Struct, frozen=True):
    status: int
    reason: str


class Gate:
    """`token` is given, or `file` has one a line (so that a new one can be introduced before an old one goes). The file is read
    at every request: it may come later than the service, and change. `answers`: another such file, for the routes with that guard alone. `reads_only`:
    nothing can be changed, whoever asks."""

    def __init__(self, token: str = "", file: str = "", answers: str = "", *, reads_only: bool = False) -> None:
        self._token, self._file, self._answers, self._reads_only = token, file, answers, reads_only

    def __repr__(self) -> str:
        return f"Gate({'token' if self._token else self._file!r})"

    def configured(self) -> bool:
        return bool(self._tokens())

    def refusal(self, headers: Sequence[str], guard: Guard, *, local: bool = False) -> Refusal | None:
        """`headers` are the values of Authorization; `local`: it comes from this machine (`is_local`). None lets the request in."""
        if not guard:
            return None
        if self._reads_only and guard != "reads":
            return Refusal(403, READS_ONLY)
        tokens = self._tokens() + (self._of(self._answers) if guard == "answers" else [])
        if not tokens:
            # A file that is there was meant to close the API, whatever is in it.
            if guard == "reads" and not (self._file and Path(self._file).exists()):
                return None if local else Refusal(403, ONLY_HERE)
            return Refusal(403, self._why_none())
        if len(headers) != 1:
            return Refusal(401, WANTED)
        scheme, _, said = headers[0].strip().partition(" ")
        if scheme.lower() != "bearer" or not said.strip():
            return Refusal(401, WANTED)
        given = said.strip().encode("utf-8", "surrogateescape")
        # All of them, whichever fits: how long it takes says nothing.
        right = [hmac.compare_digest(given, token.encode()) for token in tokens]
        return None if any(right) else Refusal(401, WRONG)

    def _tokens(self) -> list[str]:
        if self._token:
            return [self._token]
        return self._of(self._file)

    @staticmethod
    def _of(path: str) -> list[str]:
        return [line for line in Gate._lines(path) if is_token(line)]

    @staticmethod
    def _lines(path: str) -> list[str]:
        if not path:
            return []
        try:
            with Path(path).open("rb") as file:
                text = file.read(_LARGEST)
        except OSError:
            return []
        return [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]

    def _why_none(self) -> str:
        if not self._file:
            return NO_TOKEN
        what = f"has no token in it; allowed: one a line, {ALLOWED}" if Path(self._file).is_file() else "cannot be read"
        return f"nothing can be changed over HTTP: RESTOW_API_TOKEN_FILE {self._file} {what}"
