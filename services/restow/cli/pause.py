"""`restow pause` and `restow resume`."""

from __future__ import annotations

from typing import Any

import click

from restow.cli.descheduler_client import DeschedulerClient, descheduler_options
from restow.cli.log_location import Where, log_options
from restow.cli.output import emit, output_option
from restow.cli.person import person


@click.command()
@click.argument("reason", default="")
@log_options
@descheduler_options
@output_option
def pause(reason: str, client: DeschedulerClient, where: Where, output: str) -> None:
    """Stop all moves: nobody else is evicted, until `restow resume`.

    What was evicted already still lands in its slot. Moves that have not evicted their pods are rolled back, and no plan is made; a dry run still
    says what one would be. The pause is in the log, so a restart does not end it. Scheduling goes on. Exit code 1: moves are paused already.

    \b
    Examples:
      restow pause "storage upgrade until noon"
      restow resume
    """
    answer = _ask("/pause", reason, client, where)
    if output == "json":
        return emit(answer)
    plans = answer["plans"]
    stopped = f"; plan{'s' * (len(plans) != 1)} {', '.join(plans)} stopped where nobody was evicted yet" if plans else ""
    click.echo(f"moves are paused{stopped}. `restow resume` ends that")
    return None


@click.command()
@click.argument("reason", default="")
@log_options
@descheduler_options
@output_option
def resume(reason: str, client: DeschedulerClient, where: Where, output: str) -> None:
    """End a pause: plans are made again, the next timed one at its next time.

    Exit code 1: moves are not paused.

    \b
    Examples:
      restow resume
      restow resume "the upgrade is done"
    """
    answer = _ask("/resume", reason, client, where)
    if output == "json":
        return emit(answer)
    click.echo("moves are resumed")
    return None


def _ask(path: str, reason: str, client: DeschedulerClient, where: Where) -> dict[str, Any]:
    where.not_a_file("nothing moves there")
    return client.post(path, {"by": person(), "reason": reason})
