"""The descheduler's HTTP API, for commands: where it is, its token, and what it says."""

from __future__ import annotations

import functools
import json
import os
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from http.client import HTTPException
from pathlib import Path
from typing import Any

import click

from restow.cli.failures import BROKEN, UNREACHABLE, UNUSABLE, Failure
from restow.cli.log_location import Where, service_of

OVER_PHASES = ("done", "cancelled", "empty", "rejected", "observed")
"""Phases of a plan of which nothing more comes (`planview.OVER_PHASES`, whose import would take long here)."""
_TIMEOUT = 60.0
"""Seconds for one answer."""
PLANNING = 900.0
"""Seconds for one with a plan: the largest clusters take half a minute of a core that is free, and a core that others use as well takes a multiple of that."""
_SILENCE = 60.0
"""Seconds in which a stream says something: it does so every fifteen."""
_AWAY = 60.0
"""Seconds in which a descheduler that went away while a plan was followed is waited for."""
_HINT = "say its token with --token-file FILE or RESTOW_API_TOKEN"


class DeschedulerClient:
    """What the options say. The stack's token goes to the stack's descheduler and to nobody else."""

    def __init__(self, where: Where, address: str | None, token_file: str | None) -> None:
        self._where, self._given, self._token_file = where, address or os.environ.get("RESTOW_DESCHEDULER"), token_file

    @property
    def address(self) -> str:
        """Raises Failure."""
        address = self._given or self._stacks()
        if not address:
            raise Failure(
                "no descheduler: no stack is running in this folder or one above. Start one with `restow up`, name one with "
                "--descheduler http://HOST:8080, or plan offline with `restow defrag --dry-run --log FILE`",
                UNREACHABLE,
            )
        if not address.startswith(("http://", "https://")):
            raise Failure(f"--descheduler is {address!r}; allowed: http://HOST:PORT", UNUSABLE)
        return address.rstrip("/")

    def _stacks(self) -> str:
        stack = self._where.stack
        return "" if stack is None else service_of(stack, "descheduler") or stack.get("descheduler", "")

    @property
    def token(self) -> str:
        """Empty where there is none. Raises Failure."""
        if self._token_file:
            return _read(self._token_file)
        if token := os.environ.get("RESTOW_API_TOKEN", "").strip():
            return token
        if file := os.environ.get("RESTOW_API_TOKEN_FILE"):
            return _read(file)
        stack = self._where.stack
        if stack is None or self._given or not stack.get("token_file"):
            return ""
        return _read(stack["token_file"])

    def post(self, path: str, body: dict[str, Any], patience: float | None = None) -> dict[str, Any]:
        return self._answer("POST", path, body, patience or _TIMEOUT)

    def get(self, path: str) -> dict[str, Any]:
        return self._answer("GET", path, None, _TIMEOUT)

    def _answer(self, method: str, path: str, body: dict[str, Any] | None, patience: float) -> dict[str, Any]:
        """Raises Failure."""
        address = self.address
        try:
            with self._open(address, method, path, body, patience) as response:
                found = json.load(response)
        except urllib.error.HTTPError as error:
            raise self._refused(address, error) from None
        except TimeoutError:
            # It was reached, and has the request.
            unsure = ". What was asked for may be done all the same: `restow get plans` shows it" if method == "POST" and "dryRun=true" not in path else ""
            raise Failure(f"the descheduler at {address} has not answered for {patience:.0f} s{unsure}", UNREACHABLE) from None
        except (urllib.error.URLError, HTTPException, OSError) as error:
            reason = getattr(error, "reason", error)
            raise Failure(f"the descheduler at {address} does not answer: {reason}. Is the stack running?", UNREACHABLE) from None
        except ValueError:
            raise Failure(f"{address} is not a Restow descheduler", UNUSABLE) from None
        if not isinstance(found, dict):
            raise Failure(f"{address} is not a Restow descheduler", UNUSABLE)
        return found

    def _open(self, address: str, method: str, path: str, body: dict[str, Any] | None, timeout: float) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        if token := self.token:
            headers["Authorization"] = f"Bearer {token}"
        return urllib.request.urlopen(urllib.request.Request(address + path, data=data, method=method, headers=headers), timeout=timeout)

    def _refused(self, address: str, error: urllib.error.HTTPError) -> Failure:
        # 409: what is asked for is understood, and the state of things is against it.
        code = {503: UNREACHABLE, 504: UNREACHABLE, 409: BROKEN}.get(error.code, UNUSABLE)
        more = f". Here: {_HINT}" if error.code == 401 else ""
        return Failure(f"the descheduler at {address} refuses ({error.code}): {_reason(error)}{more}", code)

    def follow(self, plan: str) -> Iterator[dict[str, Any]]:
        """What changes of a plan, until it is over; each line has `plan` and the `migrations` that changed. A descheduler that
        restarts meanwhile is found again."""
        gone_since = 0.0
        while True:
            address = self.address
            try:
                with self._open(address, "GET", f"/plans/{urllib.parse.quote(plan, safe='')}?follow=true", None, _SILENCE) as response:
                    for line in response:
                        gone_since = 0.0
                        if line.strip():
                            found = json.loads(line)
                            yield found
                            if found["plan"]["phase"] in OVER_PHASES:
                                return
            except urllib.error.HTTPError as error:
                if error.code != 503:
                    raise self._refused(address, error) from None
            except (urllib.error.URLError, HTTPException, TimeoutError, OSError, ValueError):
                pass
            gone_since = gone_since or time.monotonic()
            if time.monotonic() - gone_since > _AWAY:
                raise Failure(f"the descheduler at {address} has stopped answering; the plan continues when a descheduler leads again", UNREACHABLE)
            time.sleep(0.2)


def query(dry: bool, group_by: str = "") -> str:
    """What a request for a plan says behind its path."""
    parts = ["dryRun=true"] * dry + [f"groupBy={urllib.parse.quote(group_by, safe='')}"] * bool(group_by)
    return "?" + "&".join(parts) if parts else ""


def _read(file: str) -> str:
    """The first token of a file. Raises Failure."""
    try:
        lines = [line.strip() for line in Path(file).read_text(errors="replace").splitlines() if line.strip()]
    except OSError as error:
        raise Failure(f"the token file {file} cannot be read: {error.strerror or error}", UNUSABLE) from None
    if not lines or not lines[0].isascii() or not lines[0].isprintable():
        raise Failure(f"the token file {file} has no token in its first line", UNUSABLE)
    return lines[0]


def _reason(error: urllib.error.HTTPError) -> str:
    text = error.read(4096).decode(errors="replace").strip()
    try:
        body = json.loads(text)
        return str(body.get("error") or body.get("message") or text)
    except (ValueError, AttributeError):
        return text or str(error.reason)


def descheduler_options(command: Callable) -> Callable:
    """The options that say where the descheduler is; below `log_options`, of which it takes `where`; the command gets `client`."""

    @functools.wraps(command)
    def wrapped(descheduler: str | None, token_file: str | None, where: Where, **rest: Any) -> Any:
        return command(client=DeschedulerClient(where, descheduler, token_file), where=where, **rest)

    for option in (
        click.option("--token-file", metavar="FILE", help="File with the API's token; also RESTOW_API_TOKEN or RESTOW_API_TOKEN_FILE."),
        click.option("--descheduler", metavar="URL", help="HTTP address of the descheduler; default: RESTOW_DESCHEDULER, else the stack's."),
    ):
        wrapped = option(wrapped)
    return wrapped
