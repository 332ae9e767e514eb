"""`restow plans`, `approve`, `reject` and `mode`: plans that wait for a person."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import click

from restow.cli.descheduler_client import DeschedulerClient, descheduler_options
from restow.cli.describe_plan import show_moves
from restow.cli.log_location import Where, log_options
from restow.cli.output import emit, output_option, table
from restow.cli.person import person
from restow.cli.plan_tables import counted, said

FILE = "nothing is decided there"


@click.command()
@click.argument("plan", default="")
@log_options
@descheduler_options
@output_option
def plans(plan: str, client: DeschedulerClient, where: Where, output: str) -> None:
    """Plans that wait for a person; or one plan with its moves.

    With the policy's `mode: propose`, or after `restow mode propose`, plans are carried out once somebody has approved them. `restow get plans`
    lists all plans that there were.

    \b
    Examples:
      restow plans
      restow plans pk3x9m2        its moves, with the names that approve --moves takes
    """
    where.not_a_file(FILE)
    if plan:
        answer = client.get(f"/plans/{quote(plan, safe='')}")
        return emit(answer) if output == "json" else show_moves(answer)
    status = client.get("/status")
    if output == "json":
        return emit({"mode": status["mode"], "items": status["proposed"]})
    if not status["proposed"]:
        return click.echo(f"no plan waits for a person; the mode is {status['mode']['name']}")
    rows = [(one["plan"], one["at"][:19], one["waitsUntil"][:19], one["trigger"], one["moves"], _gain(one)) for one in status["proposed"]]
    table(("PLAN", "MADE", "WAITS UNTIL", "TRIGGER", "MOVES", "FREE NODES, DEVICES"), rows, right=("MOVES",), flexible=("FREE NODES, DEVICES",))
    click.echo("\n`restow plans PLAN` shows its moves; `restow approve PLAN` or `restow reject PLAN --reason ...` answers")
    return None


def _gain(one: dict[str, Any]) -> str:
    before, after = one["before"], one["after"]
    return f"{before['free_nodes']} → {after['free_nodes']}, {before['free_devices']} → {after['free_devices']}"


@click.command()
@click.argument("plan")
@click.argument("reason", default="")
@click.option("--moves", default="", metavar="MOVE,...", help="Only these moves of the plan; the others are declined.")
@log_options
@descheduler_options
@output_option
def approve(plan: str, reason: str, moves: str, client: DeschedulerClient, where: Where, output: str) -> None:
    """Let a proposed plan be carried out, or some of its moves.

    Each move is checked again before it begins, and a slot is held before its pod is evicted. Moves that need each other are approved together. Pods
    whose moves are declined are left alone for a while. Exit code 1: the plan does not wait any more, or the moves do not stand alone.

    \b
    Examples:
      restow approve pk3x9m2
      restow approve pk3x9m2 --moves pk3x9m2-1,pk3x9m2-2 "the rest after the release"
    """
    # Each once: so many are said to be approved.
    chosen = list(dict.fromkeys(one.strip() for one in moves.split(",") if one.strip()))
    if moves and not chosen:
        raise click.UsageError("--moves names none; allowed: names of moves (`restow plans PLAN`), separated by commas; without it all of them")
    answer = _ask(client, where, f"/plans/{quote(plan, safe='')}/approve", {"reason": reason, "moves": chosen})
    if output == "json":
        return emit(answer)
    what = f"{counted(len(chosen), 'move')} of plan {plan}" if chosen else f"plan {plan}"
    return said(f"{what} approved; follow it: restow defrag --follow {plan}")


@click.command()
@click.argument("plan")
@click.option("--reason", required=True, help="Why; the log keeps it.")
@log_options
@descheduler_options
@output_option
def reject(plan: str, reason: str, client: DeschedulerClient, where: Where, output: str) -> None:
    """Do not let a proposed plan be carried out. Its pods are left alone for ten minutes, longer each time, up to a day.

    \b
    Example:
      restow reject pk3x9m2 --reason "not during the release"
    """
    answer = _ask(client, where, f"/plans/{quote(plan, safe='')}/reject", {"reason": reason})
    return emit(answer) if output == "json" else click.echo(f"plan {plan} rejected")


@click.command()
@click.argument("mode", required=False, type=click.Choice(["observe", "propose", "automatic"]))
@click.argument("reason", default="")
@log_options
@descheduler_options
@output_option
def mode(mode: str | None, reason: str, client: DeschedulerClient, where: Where, output: str) -> None:
    """Say what becomes of plans, or set it: observe, propose or automatic.

    What is set holds until somebody sets another one, or the mode in the policy changes; a restart does not end it. What is under way and is
    not allowed any more is rolled back where nobody was evicted yet. Exit code 1: it is set already.

    \b
    Examples:
      restow mode
      restow mode propose "we want to look first"
    """
    if mode is None:
        where.not_a_file(FILE)
        now = client.get("/status")["mode"]
        if output == "json":
            return emit(now)
        since = f" since {now['since'][:19]}Z" if now["since"] else ""
        return said(f"{now['name']}{since}, by {now['by'] or 'the policy'}{': ' * bool(now['reason'])}{now['reason']}")
    answer = _ask(client, where, "/mode", {"mode": mode, "reason": reason})
    return emit(answer) if output == "json" else click.echo(f"the mode is {mode}")


def _ask(client: DeschedulerClient, where: Where, path: str, body: dict[str, Any]) -> dict[str, Any]:
    where.not_a_file(FILE)
    return client.post(path, {"by": person()} | body)
