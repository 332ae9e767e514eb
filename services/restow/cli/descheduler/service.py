"""`restow descheduler run --now`: the whole policy of the descheduler that runs, plugin by plugin, and what became of it."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from restow.cli import plan_tables as view
from restow.cli.descheduler_client import PLANNING, DeschedulerClient, query
from restow.cli.failures import UNREACHABLE, Failure
from restow.cli.log_location import Where
from restow.cli.output import colored, emit, faint, heading, table
from restow.cli.plan_tables import counted, said, staying, wrapped

if TYPE_CHECKING:
    from restow.contracts.events import Planned
    from restow.contracts.values import Move

MOST = 60
"""Moves of one plugin that are shown on a terminal."""


def run(address: str | None, token_file: str | None, group_by: str, dry: bool, output: str, *, follows: bool) -> None:
    """Raises Failure."""
    client = DeschedulerClient(Where(None, None, None, None), address, token_file)
    try:
        answer = client.post("/deschedule" + query(dry, group_by), {"trigger": "cli"}, PLANNING)
    except Failure as error:
        if error.exit_code == UNREACHABLE and not address:
            raise Failure(f"{error}. `restow descheduler run --once --policy FILE` needs none", UNREACHABLE) from None
        raise
    plans = view.read_all(answer)
    if output != "json":
        _show(answer, plans, dry)
    moving = {str(plan.plan): _name(plan) for plan in plans if (plan.moves or plan.slots) and not plan.mode}
    waiting = [str(plan.plan) for plan in plans if plan.mode == "propose" and (plan.moves or plan.slots)]
    if waiting and not dry and output != "json":
        click.echo()
        said(f"{', '.join(waiting)}: `restow approve` or `restow reject` is waited for")
    if dry or not follows or not moving:
        if output == "json":
            emit(answer)
        elif moving and not dry:
            click.echo()
            said(f"follow them: {', '.join(f'restow defrag --follow {plan}' for plan in moving)}")
        return
    _follow(client, answer, moving, output)


def _follow(client: DeschedulerClient, answer: dict[str, Any], moving: Mapping[str, str], output: str) -> None:
    from restow.cli.follow_plan import check_recreated, follow_all, merged, summary

    if output != "json":
        click.echo()
    outcome = follow_all(moving, merged(list(moving), client.follow), quiet=output == "json")
    if output == "json":
        emit(answer | {"results": list(outcome.plans.values()), "migrations": list(outcome.migrations.values())})
    elif not outcome.left:
        click.echo(f"\n{summary(outcome)}")
    check_recreated(outcome)


# -- what was planned --------------------------------------------------------------------------------------------------


def _show(answer: Mapping[str, Any], plans: Sequence[Planned], dry: bool) -> None:
    moves = [move for plan in plans for move in plan.moves]
    at = answer.get("read") or answer.get("seq")
    said(f"{'would ' if dry else ''}{_does(moves, dry)}, by {counted(len(plans), 'plugin')} of the policy; decided at sequence {at}")
    for warning in answer.get("warnings") or ():
        said(f"{colored('warning', 'yellow')}  {warning}")
    for plan in plans:
        _plugin(plan, dry)
    if not plans:
        return
    from msgspec.structs import replace

    whole = replace(plans[-1], before=plans[0].before)
    if moves and (whole.before.nodes or whole.before != whole.after):
        click.echo()
        view.groups(answer.get("groups") or (), whole)


def _name(plan: Planned) -> str:
    return f"{plan.plugin} (profile {plan.profile})" if plan.profile else plan.plugin


def _plugin(plan: Planned, dry: bool) -> None:
    """What one plugin does, and why others stay."""
    click.echo()
    stay = sum(plan.kept.values())
    does = ("would " if dry else "") + _does(plan.moves, dry) if plan.moves else "looks at no pod" if not stay else "leaves all where they are"
    name, *rest = wrapped(f"{_name(plan)}: {does}" + ("" if dry or not plan.moves else f"  ({plan.plan})"))
    click.echo("\n".join((heading(name), *rest)))
    if plan.reason:
        said(f"  {plan.reason}")
    if plan.moves:
        _moves(plan.moves)
    if plan.kept:
        rows = [(f"{count:>6}", verdict, why) for count, verdict, why in staying(plan.kept)]
        titles = ("  LEFT", "VERDICT", "WHY") if any(row[2] for row in rows) else ("  LEFT", "VERDICT")
        table(titles, [row[: len(titles)] for row in rows], flexible=titles[1:], wrap=titles[2:])


def _does(moves: Sequence[Move], dry: bool) -> str:
    """`moves 5 pods and evicts 2`."""
    away = sum(not move.target for move in moves)
    s = "" if dry else "s"
    if not away:
        return f"move{s} {counted(len(moves), 'pod')}"
    return f"evict{s} {counted(away, 'pod')}" if away == len(moves) else f"move{s} {counted(len(moves) - away, 'pod')} and evict{s} {away}"


def _moves(moves: Sequence[Move]) -> None:
    """A reason that all have in common is told once."""
    whys = dict.fromkeys(move.reason for move in moves)
    if len(whys) == 1 and moves[0].reason:
        said(f"  why: {moves[0].reason}")
    shown = moves[:MOST] if sys.stdout.isatty() else moves
    rows = [(f"  {move.namespace}/{move.name}", move.source, move.target or "(evicted)", move.reason) for move in shown]
    titles = ("  POD", "FROM", "TO", "WHY") if len(whys) > 1 else ("  POD", "FROM", "TO")
    table(titles, [row[: len(titles)] for row in rows], flexible=titles, wrap=titles[3:])
    if len(shown) < len(moves):
        click.echo(faint(f"  and {len(moves) - len(shown)} more; -o json has all of them"))
