"""Exit codes, and what a user is told instead of a traceback."""

from __future__ import annotations

import os
import textwrap
import traceback
from pathlib import Path

import click

from restow.contracts.redact import redacted

BROKEN = 1
"""A promise is broken, or a difference was found."""
UNUSABLE = 2
"""Usage, or input that cannot be used."""
UNREACHABLE = 3
"""Cannot connect."""
INTERRUPTED = 130
"""Ctrl-C before a command had anything to end in order: as a shell tells of a program that SIGINT has ended. 1 would be a difference."""
UNREAD = 141
"""Nobody reads the output any more: as a shell tells of a program that SIGPIPE has ended."""
BUG = 70
"""An error that nobody foresaw (sysexits' EX_SOFTWARE)."""
SHOWN = 20
"""Objects that are listed where a name may be any of them."""


class Failure(click.ClickException):
    """Ends the command with a message and a code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(redacted(message))
        self.exit_code = code  # type: ignore[misc]

    def show(self, file=None) -> None:
        from restow.cli.output import plain, width

        for line in map(plain, f"restow: {self.message}".splitlines()):
            for row in textwrap.wrap(line, min(100, width()), break_long_words=False, break_on_hyphens=False, drop_whitespace=True) or [""]:
                click.echo(row, err=True)


def cannot_be_used(folder: Path, error: OSError) -> str:
    """What is said where a stack's folder cannot be made or written."""
    return f"{folder} cannot be used: {error.strerror}; allowed: --data with a folder that can be written"


def failure_of(error: Exception) -> Failure:
    """What to say about an exception of the libraries. `RESTOW_DEBUG=1` prints where it came from as well."""
    if os.environ.get("RESTOW_DEBUG"):
        traceback.print_exception(error)
    from restow.eventlog.port import BrokerRefused, LogError, Truncated, Unavailable
    from restow.replay.find import Ambiguous, NotFound
    from restow.replay.state_at import ReplayError
    from restow.replay.times import PointError

    if isinstance(error, BrokerRefused | Unavailable | TimeoutError | ConnectionError):
        text = str(error) or "the broker did not answer in time"
        return Failure(text, UNREACHABLE)
    if isinstance(error, Ambiguous):
        rows = [f"  {s.path}   {s.id}{'   gone' * bool(s.gone)}" for s in error.candidates]
        more = [f"  ... and {len(rows) - SHOWN} more"] if len(rows) > SHOWN else []
        # Who names a plan means one of its moves, or the plan.
        plans = {s.id.rpartition("-")[0] if s.path.startswith("migration/") else "" for s in error.candidates}
        plan = next(iter(plans)) if len(plans) == 1 else ""
        if plan:
            return Failure(f"the plan itself, with its moves: restow describe plan/{plan}\n{error}; or choose one:\n" + "\n".join([*rows[:SHOWN], *more]), UNUSABLE)
        return Failure(f"{error}; choose one:\n" + "\n".join([*rows[:SHOWN], *more]), UNUSABLE)
    if isinstance(error, Truncated):
        return Failure(
            f"the log was truncated while it was read: sequence {error.seq} is gone, it begins at {error.first_seq} now. Run the command again; --archive names the archive of what was before", UNUSABLE
        )
    if isinstance(error, LogError | ReplayError | NotFound | PointError):
        return Failure(str(error), UNUSABLE)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return Failure(f"{where}{error.strerror or error}", UNUSABLE)
    if isinstance(error, UnicodeEncodeError):
        return Failure(f"what was given is not UTF-8: {error.object[max(error.start - 20, 0) : error.end]!r}; allowed: text in UTF-8", UNUSABLE)
    return Failure(
        f"{type(error).__name__}: {error}\nThis is a bug in Restow. RESTOW_DEBUG=1 shows where; please report it", BUG
    )
