"""`restow report`."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import click

from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, emit, heading, plain, table
from restow.contracts.times import day_and_time

if TYPE_CHECKING:
    from restow.contracts.ids import Millis
    from restow.replay.period import Ends, Period
    from restow.replay.settled import Settled

Part = tuple[str, tuple[str, ...], Sequence[tuple[str, ...]], str]
"""A heading, the titles of columns, rows, and a line below them."""


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--since", metavar="POINT", help="From here on: a time, or a time ago (24h, 168h).  [default: the whole log]")
@log_options
@click.option("-o", "--output", type=click.Choice(["table", "json", "markdown", "html"]), default="table", show_default=True, help="Output format.")
def report(file: str | None, since: str | None, where: Where, output: str) -> None:
    """What happened: what is free now and was before, how long pods waited, who was moved, and what plans promised and really won and lost.

    FILE is an export, or an archive in a folder or a bucket (s3://...); without it, the running log. A plan promises by how much what is free will be worth more, and what its
    moves cost. WON is by how much it was worth more when the plan's last move had ended, by the demands that there were before: what others did
    meanwhile counts, too, and STARTED pods that waited count as if what they took were free. LOST is what the evictions cost, each at its time.

    \b
    Examples:
      restow report                          the stack running here
      restow report incident.jsonl.zst       an exported file
      restow report --since 168h -o html      for a weekly mail
    """
    import msgspec

    from restow.replay.period import period

    where.log = file or where.log
    with where.source() as source, Progress("folding the log") as progress:
        found = period(source, begin_of(since, where.now(source)) if since else 0, progress)  # type: ignore[arg-type]
    if output == "json":
        return emit(msgspec.to_builtins(found))
    _PRINTED[output](found)
    return None


def begin_of(since: str, now: Millis) -> Millis:
    """The time that it names; `24h` is a time ago. Raises PointError."""
    from restow.domain.duration import DurationError, milliseconds
    from restow.replay.times import Point, PointError, parse_point

    try:
        milliseconds(since)
        since = since if since.startswith("-") else f"-{since}"
    except (DurationError, ValueError):
        pass
    point: Point = parse_point(since, now)
    if point.time is None:
        raise PointError(f"--since {since} names no time; allowed: 2026-01-31T12:00:00Z, 24h")
    return point.time


def parts(found: Period) -> list[Part]:
    """What there is to say, part by part."""
    said = [_ends(found), _moves(found)]
    if found.waited:
        rows = [(one.namespace, str(one.pods), *map(_span, (one.p50, one.p95, one.longest))) for one in found.waited]
        said.append(("How long pods waited for a node", ("NAMESPACE", "PODS", "P50", "P95", "LONGEST"), rows, ""))
    if found.disturbed:
        disturbed = [(one.namespace, one.workload, str(one.evicted)) for one in found.disturbed]
        said.append(("Whose pods were moved most often", ("NAMESPACE", "WORKLOAD", "EVICTED"), disturbed, ""))
    if found.paused:
        paused = [(day_and_time(one.since), day_and_time(one.until) if one.until else "now", one.by or "Restow itself", one.reason) for one in found.paused]
        said.append(("Moves were paused", ("SINCE", "UNTIL", "BY", "WHY"), paused, ""))
    said.append(_plans(found.plans))
    return said


def _ends(found: Period) -> Part:
    if found.begin is None or found.end is None:
        return "The cluster", (), [], "nothing was recorded of it in this time; `restow state` shows how it is"
    begin, end = found.begin, found.end

    def row(name: str, of: Callable[[Ends], int]) -> tuple[str, ...]:
        then, now = of(begin), of(end)
        return name, f"{then:,}".replace(",", " "), f"{now:,}".replace(",", " "), f"{now - then:+,}".replace(",", " ") if now != then else "0"

    rows = [row("nodes", lambda one: one.nodes), row("nodes without pods", lambda one: one.empty_nodes)]
    if begin.devices or end.devices:
        rows += [row("devices", lambda one: one.devices), row("devices wholly free", lambda one: one.free_devices)]
    rows += [row("pods running", lambda one: one.running), row("pods without a node", lambda one: one.waiting)]
    return f"{found.cluster}: {day_and_time(begin.time)} to {day_and_time(end.time)}", ("", "THEN", "NOW", "CHANGE"), rows, ""


def _moves(found: Period) -> Part:
    failed = ", ".join(f"{count} {reason}" for reason, count in found.failed.items())
    line = f"{_pods(found.evicted)} evicted by moves; {found.landed} landed" + (f"; failed: {failed}" if failed else "; none failed")
    return "Moves", (), [], line + (f"; {_pods(found.preempted)} preempted" if found.preempted else "")


def _pods(count: int) -> str:
    return f"{count} pod{'s' * (count != 1)}"


def _plans(plans: Sequence[Settled]) -> Part:
    from restow.cli.plan_worth import amount

    title = "What plans promised, and won"
    if not plans:
        return title, (), [], "no plan in this log moved anything and said what that is worth"
    rows = []
    for one in plans:
        won = "-" if one.won is None else amount(one.won, sign=True)
        counts = map(str, (one.moves, one.landed, one.failed))
        rows.append((one.plan, day_and_time(one.at), *counts, amount(one.promised, sign=True), won, str(one.started), amount(one.cost), amount(one.lost)))
    titles = ("PLAN", "AT", "MOVES", "LANDED", "FAILED", "PROMISED", "WON", "STARTED", "COST", "LOST")
    units = [f"{plain(one.unit)} in {one.hours} h" for one in plans]
    if len(set(units)) == 1:
        return title, titles, rows, f"promised and won in {units[0]}; cost and lost in the same unit"
    return title, (*titles, "UNIT"), [(*row, unit) for row, unit in zip(rows, units, strict=True)], "amounts of different units, or for different times, do not add up"


def _span(ms: int) -> str:
    from restow.cli.amounts import span

    return f"{ms} ms" if ms < 1000 else span(ms)  # type: ignore[arg-type]


WORDS = ("", "NAMESPACE", "WORKLOAD", "PLAN", "AT", "SINCE", "UNTIL", "BY", "WHY", "UNIT")
"""Columns of text; the others are numbers."""


def _as_table(found: Period) -> None:
    for at, (title, titles, rows, line) in enumerate(parts(found)):
        click.echo(("\n" if at else "") + heading(title))
        if rows:
            flexible = [name for name in titles if name in ("PLAN", "WORKLOAD", "WHY")]
            table(titles, rows, right=[name for name in titles if name not in WORDS], flexible=flexible or None)
        if line:
            click.echo(line)


def _as_markdown(found: Period) -> None:
    for title, titles, rows, line in parts(found):
        click.echo(f"## {_escaped(title)}\n")
        if rows:
            click.echo(_line(name.lower() for name in titles))
            click.echo(_line("---" if name in WORDS else "---:" for name in titles))
            for row in rows:
                click.echo(_line(row))
            click.echo("")
        if line:
            click.echo(f"{_escaped(line)}\n")


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(_escaped(cell) for cell in cells)} |"


def _escaped(text: str) -> str:
    """Names in a log may have been written by anybody: they make no markup here, and no HTML where Markdown allows that."""
    return "".join(f"\\{char}" if char in "\\`*_[]<>|#!" else char for char in plain(text))


STYLE = (
    "body{font:14px/1.5 system-ui,sans-serif;margin:2em;max-width:70em}h2{font-size:1.1em;margin:1.6em 0 .4em}table{border-collapse:collapse}"
    "th,td{padding:.2em .9em .2em 0;text-align:left;border-bottom:1px solid #ddd}th{font-weight:600}.n{text-align:right}"
)


def _as_html(found: Period) -> None:
    """One page without anything from elsewhere, for a mail."""
    said = [f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Restow: {_quoted(found.cluster)}</title><style>{STYLE}</style></head><body>']
    for title, titles, rows, line in parts(found):
        said.append(f"<h2>{_quoted(title)}</h2>")
        if rows:
            kinds = ["" if name in WORDS else ' class="n"' for name in titles]
            said.append("<table><tr>" + "".join(f"<th{kind}>{_quoted(name.lower())}</th>" for name, kind in zip(titles, kinds, strict=True)) + "</tr>")
            said += ["<tr>" + "".join(f"<td{kind}>{_quoted(cell)}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>" for row in rows]
            said.append("</table>")
        if line:
            said.append(f"<p>{_quoted(line)}</p>")
    click.echo("\n".join((*said, "</body></html>")))


def _quoted(text: str) -> str:
    return html.escape(plain(text))


_PRINTED = {"table": _as_table, "markdown": _as_markdown, "html": _as_html}
