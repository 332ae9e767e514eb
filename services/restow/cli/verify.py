"""`restow verify`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from restow.cli.failures import BROKEN
from restow.cli.log_location import Where, log_options
from restow.cli.output import (
    Progress,
    colored,
    cut,
    emit,
    heading,
    number,
    output_option,
    plain,
    table,
    width,
)

if TYPE_CHECKING:
    from restow.replay.report import Report


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--show", default=5, show_default=True, type=click.IntRange(0, 20), help="Differences to show in full.")
@log_options
@output_option
def verify(file: str | None, show: int, where: Where, output: str) -> None:
    """Make every decision in a log again and compare, byte for byte.

    FILE is an export, or an archive in a folder or a bucket (s3://...). Without it, the running log is checked up to its present end. Each command is
    decided again on the state at the sequence that its commit names. Commits by another version of a decider cannot be compared:
    they are skipped and reported, never called identical, and the report names the release (wheel or image) that decided them. The
    rules of the log are checked, too: what each commit had read, epochs, and that no commit claims a time more than an hour after
    it was stored.

    \b
    Exit codes: 0 nothing differs, 1 something differs, 2 the input cannot be used, 3 cannot connect.

    \b
    Examples:
      restow verify                          the stack running here
      restow verify incident.jsonl.zst       an exported file
      restow verify ./archive -o json        an archive folder, for scripts
    """
    import msgspec

    from restow.domain.deciders import DECIDERS
    from restow.replay.verify import verify as check

    where.log = file or where.log
    with where.source() as source, Progress("re-deciding") as progress:
        report = check(source, DECIDERS, progress=progress)
    try:
        if output == "json":
            emit({"ok": report.ok, "sentence": report.sentence, "advice": report.advice, **msgspec.to_builtins(report)})
        else:
            _show(report, show)
    finally:
        # Also where nobody reads on.
        if not report.ok:
            raise click.exceptions.Exit(BROKEN)


def _show(report: Report, show: int) -> None:
    click.echo(f"log {report.log_id} of cluster {report.cluster}, sequences {report.first} to {report.last}")
    click.echo(f"{report.source}, {report.seconds:.1f} s\n")
    rows = []
    for family in sorted(report.families.values(), key=lambda f: (f.decisions == 0, f.family)):
        facts = not (family.identical or family.different or family.skipped)
        decided = ("facts", "", "", "") if facts else (family.decisions, family.identical, family.different, family.skipped)
        rows.append((family.family, family.logic, number(family.commits), number(family.events), *map(str, decided)))
    columns = ("FAMILY", "LOGIC", "COMMITS", "EVENTS", "DECISIONS", "IDENTICAL", "DIFFERENT", "SKIPPED")
    table(columns, rows, right=columns[2:])
    for title, counts in (("skipped", report.skipped), ("unknown events", report.unknown), ("void events", report.void)):
        if counts:
            click.echo(f"\n{title}: " + plain(", ".join(f"{count} {name}" for name, count in sorted(counts.items()))))
    if report.elsewhere:
        click.echo("\nto decide the skipped again, run the release that decided them:")
        for line in report.advice:
            click.echo(f"  {plain(line)}")
    for problem in report.found[:show]:
        click.echo(f"\n{heading(f'sequence {problem.seq}')} ({problem.family}): {plain(problem.what)}")
    for stranger in report.strangers[:show]:
        click.echo(f"\n{heading(f'sequence {stranger.seq}')} ({stranger.family}) is not ours, and void: {stranger.what}")
    for difference in report.differences[:show]:
        _show_difference(difference)
    hidden = report.different - len(report.differences[:show])
    if hidden:
        click.echo(f"\n… and {hidden} more that differ")
    click.echo()
    click.echo(colored(report.sentence, "green" if report.ok else "red"))


def _show_difference(difference) -> None:
    from restow.replay.report import lines_of

    click.echo(f"\n{heading(f'sequence {difference.seq}, decision {difference.decision}')} ({difference.family})")
    click.echo(cut(f"  command {difference.command}", width()))
    if difference.note:
        click.echo(f"  {plain(difference.note)}")
    click.echo("  - as logged   + as decided again")
    for line in lines_of(difference):
        click.echo(colored(cut(f"  {line}", width()), {"-": "red", "+": "green"}.get(line[0], "white")))
