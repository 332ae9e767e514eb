"""`restow top`."""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import click

from restow.cli.log_location import Where, log_options

if TYPE_CHECKING:
    from restow.domain.state import ClusterState
    from restow.replay.source import LiveSource

AGAIN = 1.0
"""Seconds until a broker that is away is asked again."""


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--every", default=1.0, show_default=True, type=click.FloatRange(0.1, 3600), metavar="SECONDS", help="How often it is painted.")
@click.option("--once", is_flag=True, help="Print one picture and end; also where the output is no terminal.")
@log_options
def top(file: str | None, every: float, once: bool, where: Where) -> None:
    """The cluster in this terminal, live: its nodes as a map, who waits and why, what moves.

    On the map each sign is a device, or a node where there are too many for that: · is wholly free, █ wholly used. A node with a hold is cyan, a cordoned one
    yellow, one that is not ready red. Ctrl-C ends it. With FILE, an export or an archive, one picture of its end is printed.

    \b
    Examples:
      restow top
      restow top --once | head -20
      restow top incident.jsonl.zst
    """
    from rich.live import Live
    from rich.text import Text

    from restow.cli.console import Console
    from restow.cli.output import width
    from restow.cli.top_screen import picture

    where.log = file or where.log
    console = Console(highlight=False)
    if where.log or once or not console.is_terminal:
        state, cluster = _at_its_end(where)
        size = min(width(), 200)
        for line in picture(state, cluster, size, 1_000 if not console.is_terminal else max(24, console.height - 1), where.present(state.time)):
            console.print(line, width=size, soft_wrap=True)
        return
    with closing(where.live()) as source:
        folding = _Folding(source)
        with Live(console=console, screen=True, auto_refresh=False) as live, suppress(KeyboardInterrupt):
            while True:
                with folding.lock:
                    lines = picture(folding.state, source.cluster, console.width, console.height, where.present(folding.state.time), folding.error)
                live.update(Text("\n").join(lines), refresh=True)
                time.sleep(every)


def _at_its_end(where: Where) -> tuple[ClusterState, str]:
    from restow.cli.output import Progress
    from restow.replay.state_at import state_at

    with where.source() as source, Progress("folding the log") as progress:
        return state_at(source, progress=progress), source.cluster


class _Folding:
    """A running log folded in a thread. Hold `lock` to read `state`. `error`: why it is not read on."""

    def __init__(self, source: LiveSource) -> None:
        from restow.domain.state import ClusterState
        from restow.replay.snapshots import newest

        self._source, self.lock, self.error = source, threading.Lock(), ""
        self.state: ClusterState = newest(source) or ClusterState()
        threading.Thread(target=self._run, name="restow-top-fold", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                self._read()
            except Exception as error:
                self.error = f"{error or type(error).__name__}; it is read on as soon as it can be"
            time.sleep(AGAIN)

    def _read(self) -> Any:
        from restow.domain.state import Touched
        from restow.replay.state_at import ReplayError, examine_next, fold_examined

        if self.state.seq + 1 < self._source.first:
            raise ReplayError(f"the log begins at sequence {self._source.first}, and no snapshot continues it")
        for batch in self._source.follow(self.state.seq + 1):
            with self.lock:
                for record in batch:
                    fold_examined(self.state, record, examine_next(self.state, record, self._source.log_id), self._source.log_id)
                self.state.touched = Touched()
            self.error = ""
