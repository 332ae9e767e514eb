"""`restow report`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, emit, output_option, plain, table

if TYPE_CHECKING:
    from restow.replay.settled import Settled


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@log_options
@output_option
def report(file: str | None, where: Where, output: str) -> None:
    """What plans promised, and what was really won and lost, from the log.

    FILE is an export, or an archive in a folder or a bucket (s3://...); without it, the running log. A plan promises by how much what is free will be worth more, and what its
    moves cost. WON is by how much it was worth more when the plan's last move had ended, by the demands that there were before: what others did
    meanwhile counts, too, and STARTED pods that waited count as if what they took were free. LOST is what the evictions cost, each at its time.

    \b
    Examples:
      restow report                          the stack running here
      restow report incident.jsonl.zst       an exported file
    """
    import msgspec

    from restow.replay.settled import settle

    where.log = file or where.log
    with where.source() as source, Progress("folding the log") as progress:
        found = settle(source, progress=progress)
    if output == "json":
        return emit({"plans": msgspec.to_builtins(found)})
    if not found:
        return click.echo("no plan in this log moved anything and said what that is worth")
    _show(found)
    return None


def _show(found: list[Settled]) -> None:
    from restow.cli.plan_worth import amount
    from restow.contracts.times import rfc3339

    rows = []
    for one in found:
        won = "-" if one.won is None else amount(one.won, sign=True)
        rows.append((one.plan, rfc3339(one.at)[:19], one.moves, one.landed, one.failed, amount(one.promised, sign=True), won, one.started, amount(one.cost), amount(one.lost)))
    titles = ("PLAN", "AT", "MOVES", "LANDED", "FAILED", "PROMISED", "WON", "STARTED", "COST", "LOST")
    table(titles, rows, right=titles[2:], flexible=("PLAN",))
    units = ", ".join(dict.fromkeys(f"{plain(one.unit)} in {one.hours} h" for one in found))
    click.echo(f"\npromised and won in {units}; cost and lost in the same unit")
