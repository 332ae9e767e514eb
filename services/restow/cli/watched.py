"""`restow get -w`: what there is, and every change of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import click

from restow.cli.chosen import Chosen
from restow.cli.failures import UNUSABLE, Failure
from restow.cli.log_location import Where
from restow.cli.output import emit_line, heading, plain

if TYPE_CHECKING:
    from restow.domain.state import ClusterState

BEAT = 0.5
"""Seconds between two looks: what comes and goes in between is not told."""
ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


def watched(where: Where, chosen: Chosen, output: str) -> None:
    """Until Ctrl-C. Raises Failure."""
    from restow.cli.folding import Folding

    if where.log:
        raise Failure(f"{where.log} is a file and will not change; -w needs a running log", UNUSABLE)
    if output not in ("table", "wide", "json", "name"):
        raise Failure("-w writes a line for each change; allowed: -o table, wide, name, or json (one object a line)", UNUSABLE)
    with closing(where.live()) as source, suppress(KeyboardInterrupt):
        folding, known, lines = Folding(source), dict[str, Any](), _Lines(chosen, output)
        seen, told = -1, ""
        while True:
            began = time.monotonic()
            with folding.lock:
                state = folding.state
                if state.seq >= source.last and state.seq != seen:
                    seen, now = state.seq, where.present(state.time)
                    for what, value in changes(known, chosen, state):
                        lines.write(what, value, now)
            if folding.error != told:
                told = folding.error
                click.echo(f"restow: {plain(told)}" if told else "restow: the log is read on", err=True)
            # Of a large cluster a look takes its time, and who folds wants some, too.
            time.sleep(max(BEAT, 3 * (time.monotonic() - began)))


def changes(known: dict[str, Any], chosen: Chosen, state: ClusterState) -> Iterator[tuple[str, Any]]:
    """What has come, is otherwise, or has gone since `known`, which is what there is now afterwards."""
    now = {chosen.key(value): value for value in chosen.now(state)}
    for key, value in now.items():
        if key not in known:
            yield ADDED, value
        elif known[key] != value:
            yield MODIFIED, value
    for key in [key for key in known if key not in now]:
        yield DELETED, known[key]
    known.clear()
    known.update(now)


class _Lines:
    """Written as they come, so columns cannot wait for the widest."""

    def __init__(self, chosen: Chosen, output: str) -> None:
        from restow.cli.views import COLUMNS, WIDE

        self._chosen, self._output, self._titled = chosen, output, False
        self._titles, self._row, _, _ = (WIDE if output == "wide" and chosen.what in WIDE else COLUMNS)[chosen.what]
        self._widths = [len(title) for title in self._titles]

    def write(self, what: str, value: Any, now: Any) -> None:
        if self._output == "json":
            return emit_line({"type": what, "object": value})
        if self._output == "name":
            return click.echo(f"{what:<8}  {plain(self._chosen.path(value))}")
        cells = [plain(str(cell)) for cell in self._row(value, now)]
        self._widths = [max(width, len(cell)) for width, cell in zip(self._widths, cells, strict=True)]
        if not self._titled:
            self._titled = True
            click.echo(heading(self._line("EVENT", self._titles)))
        click.echo(self._line(what, cells))
        return None

    def _line(self, what: str, cells: Any) -> str:
        return f"{what:<8}  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, self._widths, strict=True)).rstrip()
