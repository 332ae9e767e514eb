"""`restow log refold`: the whole log folded anew, and stored as a snapshot."""

from __future__ import annotations

import asyncio

import click

from restow.cli.failures import UNUSABLE, Failure
from restow.cli.log_location import Where
from restow.cli.output import emit, number, output_option


@click.command()
@click.option("--archive", metavar="DIR|S3", help="Archive with what was truncated from the stream: a folder, or s3://BUCKET/PREFIX.  [default: the collector's, in its container]")
@click.option("--server", "--nats", "server", metavar="URL", help="Broker; default: RESTOW_NATS_URL.")
@click.option("--cluster", metavar="NAME", help="Name of the cluster in the log.")
@output_option
def refold(archive: str | None, server: str | None, cluster: str | None, output: str) -> None:
    """Fold archive and log anew, and store the state as a snapshot, whatever snapshots there are.

    The collector does this by itself where a log that was truncated has no snapshot that its release can read. Only the user `garbage_collector` may store
    snapshots, so run it in that service's container.

    \b
    Example:
      kubectl -n restow-system exec deploy/restow-garbage-collector -- restow log refold
    """
    from restow.domain.fold import FOLD_VERSION
    from restow.domain.state import ClusterState
    from restow.domain.too_old import too_old
    from restow.eventlog.jetstream import open_snapshots
    from restow.runtime import logs
    from restow.runtime.loading import Loading

    where = Where(None, server, cluster, archive)
    folder = where.collectors_archive

    def say(phase: str) -> None:
        if phase != "starting" and output != "json":
            click.echo(phase, err=True)

    async def run() -> ClusterState:
        async with where.opened(where.need_server(), where.login) as log:
            return await Loading(log, await open_snapshots(log), folder, say, logs.silent()).refold()

    state = asyncio.run(run())
    if why := too_old(state):
        raise Failure(f"no snapshot is stored: {why}", UNUSABLE)
    if state.broken:
        raise Failure("no snapshot is stored: the log has lost or changed records that others have read; see `restow log verify`", UNUSABLE)
    if output == "json":
        emit({"cluster": where.cluster, "seq": state.seq, "fold": FOLD_VERSION})
    else:
        click.echo(f"the log up to {number(state.seq)} is folded anew, and stored as a snapshot of fold {FOLD_VERSION}")
