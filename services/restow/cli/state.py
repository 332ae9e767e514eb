"""`restow state` and `restow get`: what is, and what was."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, colored, emit, emit_yaml, number, plain, table

if TYPE_CHECKING:
    from restow.cli.chosen import Chosen
    from restow.domain.state import ClusterState

KINDS = ("nodes", "pods", "podgroups", "queues", "reservations", "plans", "migrations")
BUDGETS = 10
"""Eviction budgets in the summary, those with the least left."""
_ALIASES = {"no": "nodes", "po": "pods", "pg": "podgroups", "q": "queues", "rsv": "reservations", "resv": "reservations", "mig": "migrations"}


def view_options(command: Callable) -> Callable:
    """The options that say what of a kind is shown, and how."""

    @functools.wraps(command)
    def wrapped(namespace: str | None, everywhere: bool, **rest: Any) -> Any:
        if namespace is not None and everywhere:
            raise click.UsageError("-n names one namespace and -A means all; use one of them")
        return command(namespace=namespace, **rest)

    for option in (
        click.option("-A", "--all-namespaces", "everywhere", is_flag=True, help="All namespaces; the default."),
        click.option("-n", "--namespace", metavar="NS", help="Only this namespace."),
    ):
        wrapped = option(wrapped)
    return wrapped


view_output_option = click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json"]), default="table", show_default=True, help="Output format."
)


class Kind(click.Choice):
    """A kind, in the singular too, or as kubectl would shorten it."""

    name = "kind"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        value = str(value).lower()
        plural = _ALIASES.get(value) or (f"{value}s" if f"{value}s" in self.choices else value)
        return super().convert(plural, param, ctx)


class KindAndName(Kind):
    """A kind, and the name behind its `/`, as kubectl takes it and `get -o name` prints it."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        kind, _, name = str(value).partition("/")
        return super().convert(kind, param, ctx), name


@click.command()
@click.argument("what", type=KindAndName(KINDS), metavar="|".join(KINDS))
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("-l", "--selector", metavar="LABELS", help="Only nodes or pods with these labels (app=web,tier!=db,zone in (a,b)).")
@click.option("--at", hidden=True)
@click.option("-w", "--watch", is_flag=True, help="Go on, with a line for each change, until Ctrl-C.")
@view_options
@log_options
@click.option(
    "-o", "--output", type=click.Choice(["table", "wide", "json", "yaml", "name"]), default="table", show_default=True, help="Output format."
)
def get(what: tuple[str, str], names: tuple[str, ...], selector: str | None, at: str | None, watch: bool, namespace: str | None, where: Where, output: str) -> None:
    """List what exists now, according to the log.

    A NAME is a name, or NAMESPACE/NAME, or a pod's uid. KIND/NAME does as well.

    \b
    Examples:
      restow get nodes
      restow get pods -n shop -o json
      restow get pods web-1 web-2 -o yaml
      restow get pod/shop/web-1
      restow get pods -l app=web -w
      restow get reservations -o wide     with owners, API and why
    """
    from restow.cli.chosen import Chosen

    kind, name = what
    if at is not None:
        raise click.UsageError(f"get lists what exists now; for another time: restow state {kind} --at {at}")
    chosen = Chosen(kind, (name, *names) if name else names, selector, namespace)
    if watch:
        from restow.cli.watched import watched

        return watched(where, chosen, output)
    _show(where, "now", kind, chosen, output)
    return None


@click.command()
@click.argument("what", type=Kind(("summary", *KINDS)), default="summary", metavar=f"[summary|{'|'.join(KINDS)}]")
@click.option("--at", "at", default="now", show_default=True, metavar="POINT", help="Sequence, time, now, or -5m.")
@view_options
@log_options
@view_output_option
def state(what: str, at: str, namespace: str | None, where: Where, output: str) -> None:
    """The cluster at any point of its log.

    POINT is a sequence (4711), a time in RFC 3339 (2026-01-31T12:00:00Z; without a zone it is UTC), `now` for the end of
    the log, or a time ago (-5m, -1h30m), counted from now, or for a file from its last commit.

    \b
    Examples:
      restow state                                  a summary of the present
      restow state --at 4711 pods                   the pods after sequence 4711
      restow state --at -10m nodes -o json
    """
    from restow.cli.chosen import Chosen

    _show(where, at, what, Chosen(what, (), None, namespace), output)


def _show(where: Where, at: str, what: str, chosen: Chosen, output: str) -> None:
    from restow.cli.views import COLUMNS, OPTIONAL, WIDE
    from restow.replay.snapshots import state_by_snapshot

    with where.source() as source, Progress("folding the log") as progress:
        point = where.point(at, source)
        folded = state_by_snapshot(source, seq=point.seq, time=point.time, progress=progress)
    values = chosen.of(folded)
    now = where.present(folded.time) if at == "now" else folded.time
    if output in ("json", "yaml"):
        written = values if what == "summary" else {"sequence": folded.seq, "time": _time(folded), "items": values}
        emit(written) if output == "json" else emit_yaml(written)
    elif output == "name":
        for value in values:
            click.echo(plain(chosen.path(value)))
    elif what == "summary":
        _summary(values)
    else:
        titles, row, right, flexible = (WIDE if output == "wide" and what in WIDE else COLUMNS)[what]
        if not values:
            click.echo(f"no {what}{chosen.said} at sequence {folded.seq}")
            return
        rows = [row(value, now) for value in values]
        kept = [i for i, name in enumerate(titles) if name not in OPTIONAL.get(what, ()) or any(r[i] != "-" for r in rows)]
        titles, rows = tuple(titles[i] for i in kept), [tuple(r[i] for i in kept) for r in rows]
        table(titles, rows, right=right, flexible=[name for name in flexible if name in titles], whole=output == "wide")


def _time(folded: ClusterState) -> str:
    from restow.contracts.times import rfc3339

    return rfc3339(folded.time)


def _summary(s: dict[str, Any]) -> None:
    from restow.cli.amounts import amount

    click.echo(f"sequence {s['sequence']}, {s['time'] or 'nothing yet'}, {number(s['events'])} events\n")

    def line(title: str, text: str) -> None:
        click.echo(f"  {title:<17} {text}")

    def counted(total: int, parts: dict[str, int]) -> str:
        return number(total) + (": " + ", ".join(f"{number(n)} {name}" for name, n in parts.items()) if parts else "")

    line("nodes", f"{number(s['nodes'])}, {number(s['nodesReady'])} ready")
    line("pods", counted(s["pods"], s["podsByStatus"]) + f"; {number(s['shapes'])} shapes")
    for name, total in s["resources"].items():
        if total["allocatable"]:
            used, held, all_ = (amount(name, total[key]) for key in ("used", "reserved", "allocatable"))
            percent = f"{100 * (total['used'] + total['reserved']) / total['allocatable']:.1f}".removesuffix(".0")
            title = "pod slots" if name == "pods" else name.removeprefix("restow.dev/").removesuffix("-milli")
            line(title, f"{used} used, {held} held, of {all_} ({percent} %)")
    if s["devices"]:
        line("whole gpus", f"{number(s['devicesFree'])} free of {number(s['devices'])}")
    for driver, many in s["claimDevices"].items():
        of = "" if many["wholes"] == many["devices"] else f"; {number(many['freeWholes'])} of {number(many['wholes'])} whole"
        line("by claim", f"{number(many['free'])} free of {number(many['devices'])} devices of {driver}{of}; {number(many['allocated'])} allocated")
    if s["podGroupsByPhase"]:
        line("podgroups", counted(sum(s["podGroupsByPhase"].values()), s["podGroupsByPhase"]) + f"; {number(s['queues'])} queue{'s' * (s['queues'] != 1)}")
    line("reservations", counted(s["reservations"], s["reservationsByPhase"]) + f"; {number(s['holds'])} slots held")
    line("migrations", counted(sum(s["migrationsByStep"].values()), s["migrationsByStep"]) + f"; {number(s['plans'])} plan{'s' * (s['plans'] != 1)}")
    for trouble in filter(None, (s["broken"], s["tooOld"])):
        line("log", colored(trouble, "red"))
    if (mode := s["mode"])["name"] != "automatic":
        since = f" since {mode['since']}" if mode["since"] else ""
        proposed = f"; {number(len(s['proposed']))} plan{'s' * (len(s['proposed']) != 1)} to approve or reject (`restow plans`)" if s["proposed"] else ""
        line("mode", f"{mode['name']}{since}, by {mode['by'] or 'the policy'}{': ' * bool(mode['reason'])}{mode['reason']}{proposed}")
    if s["closed"]:
        line("closed", f"no pod is moved: {s['closed']}")
    for one in sorted(s["budgets"], key=lambda one: one["left"])[:BUDGETS]:
        of, again = f" ({one['of']})" * bool(one["of"]), f", more from {one['again']} on" * bool(one["again"])
        line("eviction budget", f"{one['budget']}{of}: {max(one['left'], 0)} left of {one['evictions']} {'a day' if one['within'] == 'day' else 'within ' + one['within']}{again}")
    if paused := s["paused"]:
        why = f": {paused['reason']}" if paused["reason"] else ""
        line("paused", f"no pod is moved since {paused['since']}, by {paused['by'] or 'Restow itself'}{why}; `restow resume` ends that")
    for family, leader in s["leaders"].items():
        line(family, f"led by {leader['holder']}, epoch {leader['epoch']}, last commit {s['last'].get(family, 0)}")
    for title in ("void", "unknown"):
        if s[title]:
            line(f"{title} events", ", ".join(f"{n} {name}" for name, n in s[title].items()))
