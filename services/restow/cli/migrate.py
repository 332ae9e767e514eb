"""`restow migrate`: one pod, or a gang as one, now."""

from __future__ import annotations

import click

from restow.cli.descheduler_client import DeschedulerClient, descheduler_options, query
from restow.cli.failures import BROKEN, Failure
from restow.cli.log_location import Where, log_options
from restow.cli.output import emit, output_option


@click.command()
@click.argument("what", metavar="[pod/|podgroup/][NAMESPACE/]NAME")
@click.option("--to", "target", metavar="NODE", default="", help="Target node; by default the best one.")
@click.option("-n", "--namespace", metavar="NS", help="Namespace of the pod or PodGroup; by default `default`.")
@click.option("--dry-run", is_flag=True, help="Say where it would go; move nothing.")
@click.option("--no-follow", is_flag=True, help="Return once the move is planned.")
@log_options
@descheduler_options
@output_option
def migrate(what: str, target: str, namespace: str | None, dry_run: bool, no_follow: bool, client: DeschedulerClient, where: Where, output: str) -> None:
    """Move one pod: hold a slot, evict the pod, and see its successor land there. Or move a gang as one.

    Its controller creates the successor. If no slot can be held, or the eviction is refused, the pod stays. Of a PodGroup all pods
    are moved, or none: no pod is evicted before all have their slots. Whoever owns it must start it again, which restow.dev/movable: "gang"
    on it says. Exit code 1: something stayed, and the reason is printed. Ctrl-C stops following, not the move.

    \b
    Examples:
      restow migrate pod/shop/web-1
      restow migrate web-1 -n shop --to node-7
      restow migrate pod/shop/web-1 --dry-run
      restow migrate podgroup/ml/train
    """
    from restow.cli import plan_tables as view
    from restow.cli.follow_plan import follow, reason, summary

    where.not_a_file("nothing can be moved")
    kind, name = _name(what, namespace)
    if kind == "podGroup" and target:
        raise click.UsageError("--to names the node of one pod; of a PodGroup each pod goes to the best one")
    answer = client.post("/migrations" + query(dry_run), {kind: name} | ({"target": target} if target else {}))
    planned = view.read(answer)
    if planned is None or not planned.moves:
        raise Failure("the descheduler planned nothing; `restow log tail --family migration` shows what it did", BROKEN)
    for move in planned.moves if output != "json" else ():
        pod = f"{move.namespace}/{move.name}"
        view.said(f"{'would move' if dry_run else 'moves'} {pod} from {move.source} to {move.target}" + ("" if dry_run else f" (plan {planned.plan})"))
    if dry_run or no_follow:
        return emit(answer) if output == "json" else None
    outcome = follow(planned.plan, client.follow(planned.plan), quiet=output == "json")
    if output == "json":
        emit(answer | {"result": outcome.plan, "migrations": list(outcome.migrations.values())})
    elif not outcome.left:
        click.echo(f"\n{summary(outcome)}")
    for move in planned.moves if not outcome.left else ():
        one = outcome.migrations.get(move.migration, {"step": "unknown", "reason": "", "message": ""})
        if one["step"] != "landed":
            why = reason(one).rstrip(".") or one["step"]
            raise Failure(f"{move.namespace}/{move.name} did not land on {move.target}: {why}; `restow why migration/{move.migration}` tells the story", BROKEN)
    return None


def _name(what: str, namespace: str | None) -> tuple[str, str]:
    """What it is (`pod`, `podGroup`), and `NAMESPACE/NAME`, or a pod's uid."""
    parts, kind = what.split("/"), "pod"
    if parts[0] in ("pod", "pods", "po", *GROUPS) and len(parts) > 1:
        kind = "podGroup" if parts[0] in GROUPS else "pod"
        parts = parts[1:]
    if len(parts) > 2 or not all(parts):
        raise click.BadParameter(f"{what!r}; allowed: pod/NAMESPACE/NAME, podgroup/NAMESPACE/NAME, NAMESPACE/NAME or NAME", param_hint="what")
    if len(parts) == 2:
        if namespace is not None and namespace != parts[0]:
            raise click.UsageError(f"{what} names namespace {parts[0]}, -n {namespace}; use one of them")
        return kind, "/".join(parts)
    is_uid = kind == "pod" and len(parts[0]) == 36 and parts[0].count("-") == 4
    return kind, parts[0] if is_uid and namespace is None else f"{namespace or 'default'}/{parts[0]}"


GROUPS = ("podgroup", "podgroups", "pg")
