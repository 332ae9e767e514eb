"""`restow describe plan/ID`: what it was for, what it wins and costs, what has become of each move, and who stays and why."""

from __future__ import annotations

from typing import Any

import click

from restow.cli.log_location import Where
from restow.cli.output import Progress, emit, table
from restow.cli.plan_tables import counted, effect, said


def show(plan: str, where: Where, output: str) -> None:
    """Raises NotFound, ReplayError."""
    import msgspec

    from restow.contracts.ids import PlanId
    from restow.domain.planview import migrations_of, plan_view
    from restow.replay.find import NotFound
    from restow.replay.state_at import check_whole, state_at

    with where.source() as source, Progress("folding the log") as progress:
        check_whole(source)
        state = state_at(source, progress=progress)
    view = plan_view(state, PlanId(plan))
    if view is None:
        raise NotFound(f"no plan {plan!r} is known at sequence {state.seq}. `restow get plans` lists what there is")
    planned = state.plans[PlanId(plan)].planned
    answer = {"plan": msgspec.to_builtins(view), "migrations": msgspec.to_builtins(migrations_of(state, PlanId(plan)))}
    if output == "json":
        return emit(answer | {"seq": state.seq, "planned": planned})
    show_moves(answer)
    effect({}, planned, True)
    return click.echo(f"\nas of sequence {state.seq}; how a move came about: restow why migration/ID")


def show_moves(answer: dict[str, Any]) -> None:
    """A plan and its moves as they are now, as the descheduler's API tells them."""
    plan = answer["plan"]
    state = f"waits for a person until {plan['waitsUntil'][:19]}Z" if plan["waitsUntil"] else f"{plan['answer']} by {plan['by']}" if plan["answer"] else plan["phase"]
    said(f"plan {plan['plan']} ({plan['trigger']}, {plan['planner']}): {counted(plan['moves'], 'move')}, {state}")
    for text in (plan["cancelled"], plan["why"], plan["reason"]):
        if text:
            said(f"  {text}")
    if answer["migrations"]:
        rows = [(one["id"], one["wave"], one["step"], f"{one['namespace']}/{one['name']}", one["source"], one["target"] or "(evicted)", ", ".join(one["after"]), one.get("reason", "")) for one in answer["migrations"]]
        titles = ("MOVE", "WAVE", "STEP", "POD", "FROM", "TO", "AFTER", "REASON")
        kept = [i for i in range(len(titles)) if i < 6 or any(row[i] for row in rows)]
        table([titles[i] for i in kept], [[row[i] for i in kept] for row in rows], right=("WAVE",), flexible=[name for name in ("POD", "FROM", "TO", "AFTER") if titles.index(name) in kept])

