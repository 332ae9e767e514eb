"""`restow top`."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import click

from restow.cli.log_location import Where, log_options

if TYPE_CHECKING:
    from restow.domain.state import ClusterState


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--every", default=1.0, show_default=True, type=click.FloatRange(0.1, 3600), metavar="SECONDS", help="How often it is painted.")
@click.option("--once", is_flag=True, help="Print one picture and end; also where the output is no terminal.")
@log_options
def top(file: str | None, every: float, once: bool, where: Where) -> None:
    """The cluster in this terminal, live: its nodes as a map, who waits and why, what moves.

    On the map each sign is a device, or a node where there are too many for that: · is wholly free, █ wholly used. A node with a hold is cyan, a cordoned one
    yellow, one that is not ready red. `q` or Ctrl-C ends it. With FILE, an export or an archive, one picture of its end is printed.

    \b
    Examples:
      restow top
      restow top --once | head -20
      restow top incident.jsonl.zst
    """
    from rich.live import Live
    from rich.text import Text

    from restow.cli.console import Console
    from restow.cli.folding import Folding
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
        folding = Folding(source)
        with Live(console=console, screen=True, auto_refresh=False) as live, _keys_at_once(), suppress(KeyboardInterrupt):
            ended = False
            while not ended:
                with folding.lock:
                    lines = picture(folding.state, source.cluster, console.width, console.height, where.present(folding.state.time), folding.error)
                live.update(Text("\n").join(lines), refresh=True)
                ended = _q_within(every)


@contextmanager
def _keys_at_once() -> Iterator[None]:
    """Where somebody can press keys here: each is there without Enter, and does not appear on the screen."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _q_within(seconds: float) -> bool:
    """Whether `q` is pressed, or the terminal is gone, within that time."""
    if sys.stdin is None or not sys.stdin.isatty():
        time.sleep(seconds)
        return False
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and os.read(sys.stdin.fileno(), 1) in (b"q", b"Q", b"")


def _at_its_end(where: Where) -> tuple[ClusterState, str]:
    from restow.cli.output import Progress
    from restow.replay.snapshots import state_by_snapshot

    with where.source() as source, Progress("folding the log") as progress:
        return state_by_snapshot(source, progress=progress), source.cluster
