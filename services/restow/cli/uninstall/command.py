"""`restow uninstall`: leaves nothing of Restow in a cluster."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import click

from restow.cli.failures import BROKEN, UNUSABLE, Failure
from restow.cli.kubeapi import Kube, kube_options
from restow.cli.log_location import Where
from restow.cli.output import emit, output_option, plain

if TYPE_CHECKING:
    from restow.cli.uninstall.removal import Done
    from restow.kube.client import Client

_PAST = {"delete": "deleted", "ungate": "ungated", "unmark": "unmarked", "keep": "kept"}
_WOULD = {"delete": "would delete", "ungate": "would ungate", "unmark": "would unmark", "keep": "would keep"}


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would go; change nothing.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option("--with-reservations", "reservations", is_flag=True, help="Delete CRDs, too, of which people have made objects, and these with them.")
@kube_options
@output_option
def uninstall(dry_run: bool, yes: bool, reservations: bool, kube: Kube, output: str) -> None:
    """Remove Restow from a cluster, and everything that it has made there: scheduling gates, placeholders, canaries,
    priority classes, Landings, admission policies, rights, services, the broker with the log, namespaces, CRDs.

    It needs the Kubernetes API only, and your own rights there; Restow may be running, broken or gone. Pods keep running, and those that
    a gate of Restow's held back are scheduled. It removes every installation in the cluster. If it is broken off, run it again.

    CRDs that Volcano or Koordinator has installed stay. A CRD of ours of which people have made objects stays, too, and is named,
    unless you say --with-reservations. To keep the log, export it first: `restow log export FILE`.

    \b
    Examples:
      restow uninstall --dry-run
      restow uninstall --kube ~/.kube/config --yes
    """
    found, api = _run(kube, dry=True, reservations=reservations, output="")
    if any(one.action != "keep" for one in found):
        click.echo(f"the cluster at {api}:", err=True)
    elif output == "table":
        return _nothing(found, api, _WOULD if dry_run else _PAST)
    if dry_run:
        return _emit(found) if output == "json" else _show(found, _WOULD)
    if not any(one.action != "keep" for one in found):
        return _emit(found)
    if not yes:
        _ask(found)
    done, _ = _run(kube, dry=False, reservations=reservations, output=output)
    if output == "json":
        _emit(done)


def _run(kube: Kube, *, dry: bool, reservations: bool, output: str) -> tuple[list[Done], str]:
    """What was done, and to which cluster."""
    from restow.cli.uninstall.removal import Removal, Stuck

    done: list[Done] = []
    where = Where(None, None, None, None)

    def say(one: Done) -> None:
        done.append(one)
        if output == "table":
            _show([one], _PAST)

    async def remove(client: Client) -> str:
        await Removal(client, say, dry=dry, reservations=reservations).run()
        return kube.shown(where, client.url)

    try:
        return done, kube.call(where, remove)
    except Stuck as stuck:
        raise Failure(f"{stuck}. Run it again once nothing else keeps them", BROKEN) from None


def _ask(found: list[Done]) -> None:
    """Raises Failure where nobody can be asked."""
    counts = Counter((one.action, one.kind) for one in found)
    for (action, kind), count in counts.items():
        click.echo(f"{_WOULD[action]:<12} {count:>4} {kind}", err=True)
    _warn(found)
    if not sys.stdin.isatty():
        raise Failure("nobody can be asked here; allowed: --yes, or --dry-run to see each object", UNUSABLE)
    click.confirm("Remove all of this? The log goes with its volume", abort=True, err=True)


def _warn(found: list[Done]) -> None:
    for one in found:
        if one.action == "keep":
            click.echo(plain(f"would keep {one.named}: {one.why} (--with-reservations does that)"), err=True)


def _show(found: list[Done], words: dict[str, str]) -> None:
    for one in found:
        click.echo(plain(f"{words[one.action]} {one.named}" + (f": {one.why}" if one.why else "")))


def _nothing(found: list[Done], api: str, words: dict[str, str]) -> None:
    click.echo(f"nothing of Restow is in the cluster at {api}" + ("" if not found else ", but for:"))
    _show(found, words)


def _emit(found: list[Done]) -> None:
    emit([one._asdict() for one in found])
