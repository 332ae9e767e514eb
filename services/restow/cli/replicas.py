"""`restow log replicas`: on how many brokers the log is."""

from __future__ import annotations

import asyncio
import os

import click

from restow.cli.failures import UNREACHABLE, UNUSABLE, Failure
from restow.cli.log_location import Where
from restow.cli.output import emit, output_option

COUNTS = ("1", "3", "5")


def wanted() -> int | None:
    """As RESTOW_NATS_REPLICAS says; None where it says nothing. Raises Failure."""
    given = os.environ.get("RESTOW_NATS_REPLICAS") or None
    if given is not None and given not in COUNTS:
        raise Failure(f"RESTOW_NATS_REPLICAS is {given!r}; allowed: {', '.join(COUNTS)}", UNUSABLE)
    return int(given) if given else None


PATIENCE = 300.0
"""Seconds until the copies must be whole."""


@click.command()
@click.argument("count", type=click.Choice(COUNTS))
@click.option("--server", "--nats", "server", metavar="URL", help="Brokers; default: RESTOW_NATS_URL.")
@click.option("--cluster", metavar="NAME", help="Name of the cluster in the log.")
@output_option
def replicas(count: str, server: str | None, cluster: str | None, output: str) -> None:
    """Give the log and its snapshots COUNT copies, each on a broker of its own, while services run.

    Of three brokers one may be lost, of five two. Then set RESTOW_NATS_REPLICAS of the services to the same: they refuse to start on another number.
    Only the user `operator` may do this.

    \b
    Example:
      restow log replicas 3 --server nats://operator:PASSWORD@HOST:4222 --cluster main
    """
    from restow.eventlog.jetstream.replicas import set_replicas

    where = Where(None, server, cluster, None)
    said = ""

    def told(text: str) -> None:
        nonlocal said
        if text != said and output != "json":
            click.echo(text, err=True)
        said = text

    async def run() -> None:
        async with where.opened(where.need_server(), where.login) as log:
            await set_replicas(log, int(count), told, patience=PATIENCE)

    try:
        asyncio.run(run())
    except TimeoutError:
        raise Failure(f"not done within {PATIENCE:g} s ({said}). The brokers go on; run this again to see", UNREACHABLE) from None
    if output == "json":
        emit({"cluster": where.cluster, "replicas": int(count)})
    else:
        click.echo(f"the log of cluster {where.cluster} and its snapshots have {count} {'copy' if count == '1' else 'copies'}")
