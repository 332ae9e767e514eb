"""How results look: tables that fit, plain text where nobody watches, JSON with stable keys."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any

import click

WIDTH = 100
"""Columns of a terminal whose width is not known."""
_UNBOUNDED = 100_000
_NARROWEST = 6
_LEGIBLE = 12
"""Columns of a cell that is cut and still tells itself from others."""
_QUIET = 2.0
"""Seconds of work that need no progress."""

output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True, help="Output format."
)


def width() -> int:
    """Columns to use: the terminal's, or what COLUMNS says. Into a pipe or a file nothing is cut: names stay whole."""
    if sys.stdout.isatty() or os.environ.get("COLUMNS"):
        return max(60, shutil.get_terminal_size((WIDTH, 24)).columns)
    return _UNBOUNDED


def heading(text: str) -> str:
    return _styled(text, bold=True)


def faint(text: str) -> str:
    return _styled(text, dim=True)


def colored(text: str, color: str) -> str:
    """Without the colour where `NO_COLOR` says so (no-color.org)."""
    return plain(text) if os.environ.get("NO_COLOR") else _styled(text, fg=color)


def _styled(text: str, **style: Any) -> str:
    return click.style(plain(text), **style) if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else plain(text)


def plain(text: str) -> str:
    """`text` in one line and without what steers a terminal: names and messages in a log may have been written by anybody."""
    return text if text.isprintable() else "".join(char if char.isprintable() else " " if char in "\n\t\r" else "?" for char in text)


_BEYOND = "\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069"
_STEERING = f"\x00-\x08\x0b-\x1f{_BEYOND}"
_OURS = re.compile(rf"(\x1b\[(?:0|1|2|3[0-7])m|\x1b\[K|\r)|[{_STEERING}]")
"""What this program says to a terminal, or a character that nobody else may."""
_ANYBODYS = re.compile(f"[{_STEERING}]")
_IN_JSON = re.compile(f"[{_BEYOND}]")
"""What JSON leaves as it is."""


class Harmless:
    """Standard output through which nothing gets that steers a terminal, but for colours and the like of our own."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        terminal = self.stream.isatty()
        self.stream.write(_OURS.sub(lambda found: found[0] if found[1] and terminal else "?", text))
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def still(text: str) -> str:
    """`text` in its lines, without what steers a terminal."""
    return _ANYBODYS.sub("?", text)


@contextlib.contextmanager
def harmless() -> Iterator[None]:
    """Standard output as `Harmless` has it."""
    before = sys.stdout
    sys.stdout = Harmless(before)  # type: ignore[assignment]
    try:
        yield
    finally:
        sys.stdout = before


def cut(text: str, width: int) -> str:
    """`text` in one line of at most `width` columns."""
    text = plain(text)
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def table(
    columns: Sequence[str],
    rows: Iterable[Sequence[Any]],
    *,
    right: Sequence[str] = (),
    flexible: Sequence[str] | None = None,
    wrap: Sequence[str] = (),
    whole: bool = False,
) -> None:
    """Print rows under `columns`, as wide as they need and, if not `whole`, no wider than the terminal: `flexible` columns
    (unless told, the last one) give way; those of them in `wrap` go on in further lines, the others are cut."""
    cells = [[plain(str(cell)) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(columns)]
    gap = 2
    if not whole:
        widths, gap = _fitted(widths, [len(columns) - 1] if flexible is None else [columns.index(name) for name in flexible])
    click.echo(heading(_line(columns, columns, widths, right, gap)))
    for row in cells:
        for line in _lines(columns, row, widths, wrap):
            click.echo(_line(columns, line, widths, right, gap))


def filled_table(columns: Sequence[str], rows: Sequence[Sequence[str]], flexible: Sequence[str], wrap: Sequence[str] = ()) -> None:
    """The same without the columns that say nothing of anything."""
    kept = [i for i in range(len(columns)) if any(row[i] for row in rows)]
    names = [columns[i] for i in kept]
    table(names, [[row[i] for i in kept] for row in rows], flexible=[name for name in flexible if name in names], wrap=wrap)


def _lines(columns: Sequence[str], row: Sequence[str], widths: Sequence[int], wrap: Sequence[str]) -> Iterable[Sequence[str]]:
    if not wrap:
        return [row]
    parts = [
        textwrap.wrap(cell, width, subsequent_indent="  ", break_on_hyphens=False) or [""] if name in wrap else [cell]
        for name, cell, width in zip(columns, row, widths, strict=True)
    ]
    return zip_longest(*parts, fillvalue="")


def _fitted(widths: Sequence[int], flexible: Sequence[int]) -> tuple[list[int], int]:
    """The widths of the columns and of the gaps between them. Gaps of one column only where a line would break otherwise, or
    where names would be cut so short that one is like the other."""
    for gap in (2, 1):
        fitted = list(widths)
        excess = sum(fitted) + gap * (len(fitted) - 1) - width()
        if _narrow(fitted, flexible, excess) and all(fitted[i] >= min(widths[i], _LEGIBLE) for i in flexible):
            break
    return fitted, gap


def _narrow(widths: list[int], flexible: Sequence[int], excess: int) -> bool:
    """Take `excess` from the `flexible` columns. False if they cannot give that much."""
    while excess > 0:
        widest = max(flexible, key=lambda i: widths[i], default=None)
        if widest is None or widths[widest] <= _NARROWEST:
            return False
        others = [widths[i] for i in flexible if i != widest]
        step = max(1, min(excess, widths[widest] - max([_NARROWEST, *others])))
        widths[widest] -= step
        excess -= step
    return True


def _line(columns: Sequence[str], row: Sequence[str], widths: Sequence[int], right: Sequence[str], gap: int) -> str:
    cells = [
        cut(cell, width).rjust(width) if name in right else cut(cell, width).ljust(width)
        for name, cell, width in zip(columns, row, widths, strict=True)
    ]
    return (" " * gap).join(cells).rstrip()


def emit(value: Any) -> None:
    """Print as indented JSON."""
    import msgspec

    click.echo(_escaped(msgspec.json.format(msgspec.json.encode(value), indent=2).decode()))


def emit_yaml(value: Any) -> None:
    """Print as YAML."""
    import msgspec
    import yaml

    # Of everything that could steer a terminal YAML writes an escape.
    click.echo(yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=False, width=_UNBOUNDED), nl=False)


def emit_line(value: Any) -> None:
    """Print as one line of JSON."""
    import msgspec

    click.echo(_escaped(msgspec.json.encode(value).decode()))


def _escaped(text: str) -> str:
    """JSON that says the same, and steers no terminal."""
    return _IN_JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def number(value: int) -> str:
    """With thin groups: `1 234 567`."""
    return f"{value:,}".replace(",", " ")


def change(was: str, will: str) -> str:
    """`was → will`, or one of them where they are the same."""
    return was if was == will else f"{was} → {will}"


def size(value: float) -> str:
    """Bytes for people."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError


class Progress:
    """Tells stderr how far a long piece of work is, once it has taken two seconds. Use as a context manager."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what, self._clock = what, clock
        self._started = self._told = clock()
        self._shown = False

    def __call__(self, done: int, total: int) -> None:
        now = self._clock()
        terminal = sys.stderr.isatty()
        if now - self._started < _QUIET or now - self._told < (0.2 if terminal else 10.0) or not total:
            return
        self._told, self._shown = now, True
        text = f"{self._what}: {100 * done // total} %, {now - self._started:.0f} s"
        click.echo(f"\r{text}\x1b[K" if terminal else text, err=True, nl=not terminal)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown and sys.stderr.isatty():
            click.echo("\r\x1b[K", err=True, nl=False)
