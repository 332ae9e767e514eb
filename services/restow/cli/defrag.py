"""`restow defrag`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from restow.cli.descheduler_client import PLANNING, DeschedulerClient, descheduler_options, query
from restow.cli.failures import UNUSABLE, Failure
from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, emit, output_option

if TYPE_CHECKING:
    from restow.cli.follow_plan import Outcome

ALL = "-all-"
END = "now"


@click.command()
@click.option("--dry-run", "mode", flag_value="dry", help="Show the plan and its gain; move nothing.")
@click.option("--now", "mode", flag_value="now", help="Make a plan and carry it out: hold first, then move. Follow it to its end.")
@click.option("--for", "demand", metavar="pod/NS/NAME|podgroup/NS/NAME", help="Free capacity for this waiting job only.")
@click.option("--group-by", metavar="LABEL", default="", help="Group nodes by this label; by default, by size.")
@click.option("--at", default=END, metavar="POINT", help="With --log: on the state there. Sequence, time, or -5m.  [default: its end]")
@click.option("--policy", type=click.Path(dir_okay=False), metavar="FILE", help="With --log: this DeschedulerPolicy instead of the one in force there.")
@click.option("--no-follow", is_flag=True, help="With --now: return once the plan is made.")
@click.option("--follow", metavar="PLAN", help="Follow a plan to its end.")
@click.option("--cancel", is_flag=False, flag_value=ALL, metavar="[PLAN]", help="Cancel this plan, or all plans: moves whose pod is not evicted yet are rolled back.")
@log_options
@descheduler_options
@output_option
def defrag(
    mode: str | None, demand: str | None, group_by: str, at: str, policy: str | None, no_follow: bool, follow: str | None, cancel: str | None, client: DeschedulerClient, where: Where, output: str
) -> None:
    """Plan a defragmentation, carry one out and follow it, or cancel it.

    Asks the descheduler. With --log FILE, a dry run needs no stack: it plans on the state at the end of that log, or at another
    POINT, with the policy that was in force there, or another. Ctrl-C stops following, not the plan.

    \b
    Examples:
      restow defrag --dry-run
      restow defrag --dry-run --group-by topology.kubernetes.io/zone
      restow defrag --dry-run --log incident.jsonl.zst
      restow defrag --dry-run --log incident.jsonl.zst --at 4711 --policy other.yaml
      restow defrag --now
      restow defrag --now --for podgroup/ml/train
      restow defrag --cancel
    """
    chosen = [mode is not None, follow is not None, cancel is not None]
    if sum(chosen) != 1:
        raise click.UsageError("choose one of --dry-run (show the plan), --now (carry it out), --follow PLAN and --cancel [PLAN]")
    if (policy or at != END) and not (mode == "dry" and where.log):
        raise click.UsageError("--at and --policy need --dry-run and --log: a running descheduler plans on the present, with its own policy (RESTOW_CONFIG)")
    if mode != "dry":
        where.not_a_file("nothing can be moved. Use --dry-run, or name a stack")
    if cancel is not None:
        _cancel(client, "" if cancel == ALL else cancel, output)
    elif follow is not None:
        _follow(client, follow, output)
    elif mode == "dry":
        _dry(_offline(where, demand, group_by, at, policy) if where.log else _ask(client, demand, group_by, dry=True), output)
    else:
        _now(client, demand, group_by, output, follows=not no_follow)


def _ask(client: DeschedulerClient, demand: str | None, group_by: str, *, dry: bool) -> dict[str, Any]:
    return client.post("/defragment" + query(dry, group_by), {"trigger": "cli"} | ({"demand": demand} if demand else {}), PLANNING)


def _dry(answer: dict[str, Any], output: str) -> None:
    from restow.cli import plan_tables as view

    if output == "json":
        return emit(answer)
    planned = view.read(answer)
    if planned is None:
        return click.echo("nothing was planned: " + (", ".join(e.get("type", "?") for e in answer.get("events") or ()) or "no answer"))
    view.show(answer, planned, True)


def _now(client: DeschedulerClient, demand: str | None, group_by: str, output: str, *, follows: bool) -> None:
    from restow.cli import plan_tables as view

    answer = _ask(client, demand, group_by, dry=False)
    planned = view.read(answer)
    moves = planned is not None and (planned.moves or planned.slots) and not planned.mode
    if output == "json" and not (follows and moves):
        return emit(answer)
    if planned is None:
        return _dry(answer, output)
    if output != "json":
        view.show(answer, planned, False)
        if planned.mode == "propose" and (planned.moves or planned.slots):
            return view.said(f"it waits for a person: restow approve {planned.plan}, or restow reject {planned.plan} --reason ...")
        if not moves:
            return None
        click.echo()
        if not follows:
            return view.said(f"follow it: restow defrag --follow {planned.plan}")
    outcome = _followed(client, planned.plan, output)
    return emit(answer | {"result": outcome.plan, "migrations": list(outcome.migrations.values())}) if output == "json" else None


def _follow(client: DeschedulerClient, plan: str, output: str) -> None:
    outcome = _followed(client, plan, output)
    if output == "json":
        emit({"result": outcome.plan, "migrations": list(outcome.migrations.values())})


def _followed(client: DeschedulerClient, plan: str, output: str) -> Outcome:
    """Raises Failure where pods were evicted that nobody made again."""
    from restow.cli.follow_plan import check_recreated, follow, summary

    outcome = follow(plan, client.follow(plan), quiet=output == "json")
    if not outcome.left and output != "json":
        click.echo(f"\n{summary(outcome)}")
    check_recreated(outcome)
    return outcome


def _cancel(client: DeschedulerClient, plan: str, output: str) -> None:
    answer = client.post(f"/plans/{quote(plan, safe='')}/cancel" if plan else "/plans/cancel", {"reason": "cancelled by restow defrag --cancel"})
    if output == "json":
        return emit(answer)
    from restow.cli.plan_tables import said

    for one in answer.get("plans", ()):
        said(f"plan {one} is cancelled: what has not been evicted stays, what has goes on; `restow defrag --follow {one}` shows it")
    return None


def _offline(where: Where, demand: str | None, group_by: str, at: str, policy: str | None) -> dict[str, Any]:
    """The plan on the state at a point of a log, with the policy of this file, or the one in force there."""
    import msgspec

    from restow.cli.whatif_changes import policy_text
    from restow.contracts.commands import Defragment
    from restow.contracts.ids import Millis, PlanId
    from restow.domain.migration.bounds import bound_of
    from restow.domain.migration.warnings import warnings
    from restow.domain.planview import node_groups
    from restow.replay.replanned import dry_run, with_policy
    from restow.replay.snapshots import state_by_snapshot
    from restow.replay.state_at import ReplayError

    other = policy_text(policy) if policy else ""
    with where.source() as source, Progress("folding the log") as progress:
        point = where.point(at, source)
        state = with_policy(state_by_snapshot(source, seq=point.seq, time=point.time, progress=progress), other)
        if state.migration_config.defragmentation is None:
            which = f"{policy} has no Defragmentation" if policy else f"{source.name}: no Defragmentation policy was in use {'there' if at != END else 'in this log'}"
            raise Failure(f"{which}; allowed: a policy that has it (--policy FILE)", UNUSABLE)
        command = Defragment(Millis(state.time), "cli", PlanId("dry-run"), _job(state, demand))
        try:
            events = list(dry_run(state, command))
        except ReplayError as error:
            raise Failure(f"{source.name}: {error}", UNUSABLE) from None
        moves = [move for event in events for move in getattr(event, "moves", ())]
        groups = node_groups(state, moves, group_by)
        told, bound = warnings(state), bound_of(state, command, events)
    return {
        "dryRun": True, "read": state.seq, "plan": command.plan, "events": msgspec.to_builtins(events),
        "groups": msgspec.to_builtins(groups), "bound": msgspec.to_builtins(bound), "warnings": told,
    }  # fmt: skip


def _job(state: Any, demand: str | None) -> str:
    """As `Defragment.demand` has it. Raises Failure."""
    if not demand:
        return ""
    kind, _, name = demand.partition("/")
    if kind == "podgroup" and tuple(name.split("/")) in state.pod_groups:
        return name
    found = [uid for uid, pod in state.pods.items() if demand == uid or (kind == "pod" and name == f"{pod.fact.namespace}/{pod.fact.name}")]
    if not found:
        raise Failure(f"--for is {demand!r}, which is not in this log; allowed: pod/NAMESPACE/NAME, podgroup/NAMESPACE/NAME", UNUSABLE)
    return str(found[-1])
