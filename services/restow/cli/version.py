"""`restow version`."""

from __future__ import annotations

import platform

import click

from restow.cli.output import emit, output_option


@click.command()
@output_option
def version(output: str) -> None:
    """Versions of Restow, of its fold, and of the logic of its deciders.

    `restow verify` checks only decisions by the same logic, and only the same fold uses a snapshot.
    """
    from restow.domain.deciders import DECIDERS
    from restow.domain.fold import FOLD_VERSION
    from restow.eventlog.port import FORMAT
    from restow.runtime import release

    facts = {
        "restow": release.number(),
        "release": release.name(),
        "python": platform.python_version(),
        "fold": FOLD_VERSION,
        "logFormat": FORMAT,
        "logic": {family: decider.logic for family, decider in DECIDERS.items()},
    }
    if output == "json":
        emit(facts)
        return
    click.echo(f"restow {facts['release']} (python {facts['python']})")
    click.echo(f"fold {FOLD_VERSION}, log format {FORMAT}")
    click.echo("logic " + ", ".join(decider.logic for decider in DECIDERS.values()))
