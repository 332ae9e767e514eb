"""What the demo paints while it runs."""

import asyncio
import contextlib
import io
import sys

import pytest

from restow.cli.console import Console
from restow.cli.demo.progress import Phases
from restow.cli.output import harmless


class Terminal(io.StringIO):
    def isatty(self):
        return True


@contextlib.contextmanager
def terminal():
    """Where a command prints; pytest captures only what comes between its own phases."""
    before, sys.stdout = sys.stdout, Terminal()
    try:
        with pytest.MonkeyPatch.context() as patch, harmless():
            patch.setenv("TERM", "xterm")
            yield sys.stdout.stream
    finally:
        sys.stdout = before


async def test_a_phase_is_one_line_that_is_painted_again():
    with terminal() as screen:
        async with Phases(Console(highlight=False, width=80)).phase("p", "a phase", lambda: "1 of 2"):
            await asyncio.sleep(0.5)
    painted = screen.getvalue()
    assert "\x1b[2K" in painted
    assert "?[" not in painted
    assert "✓ " in painted


def test_what_others_wrote_steers_no_terminal_when_it_is_printed():
    with terminal() as screen:
        Console(highlight=False, width=80).print("refused:\x1b[2J\x07 really\nsecond line", style="bold")
    painted = screen.getvalue()
    assert "refused:?[2J? really" in painted
    assert "second line" in painted
