"""What is shown while the demo runs: one live line a phase in a terminal, a plain line now and then elsewhere."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from rich.live import Live
from rich.text import Text

from restow.cli.console import Console

PLAIN_WIDTH = 110
"""Columns where the output is not a terminal."""


def console_for(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, or PLAIN_WIDTH."""
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=PLAIN_WIDTH)


class Phases:
    """Names, results and durations of what was done."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.seconds: dict[str, float] = {}

    @asynccontextmanager
    async def phase(self, name: str, title: str, status: Callable[[], str]) -> AsyncIterator[None]:
        """Show `title` and `status()` until the body is done; then leave one line with the result and the time."""
        began = time.perf_counter()

        def line(mark: str) -> Text:
            text = Text.assemble((f"{mark} ", "cyan" if mark == "…" else "green"), (f"{title:<34}", "bold"), status())
            text.append(f"  {time.perf_counter() - began:.1f} s", "dim")
            text.truncate(max(self._console.width - 1, 40), overflow="ellipsis")
            return text

        async def show(live: Live | None) -> None:
            while True:
                await asyncio.sleep(0.2 if live is not None else 5.0)
                live.update(line("…"), refresh=True) if live is not None else self._console.print(line("…"))

        live = Live(console=self._console, auto_refresh=False, transient=True) if self._console.is_terminal else None
        if live is not None:
            live.start()
        task = asyncio.create_task(show(live), name=f"show {name}")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            if live is not None:
                live.stop()
            self.seconds[name] = time.perf_counter() - began
        self._console.print(line("✓"))
