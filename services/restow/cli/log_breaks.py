"""`restow log verify` and `restow log repair`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import click

from restow.cli.failures import BROKEN, UNUSABLE, Failure
from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, colored, emit, number, output_option, table
from restow.cli.person import person
from restow.contracts.ids import MOST

if TYPE_CHECKING:
    from restow.cli.log_repair import Found
    from restow.replay.breaks import Held, Wholeness
    from restow.replay.source import Source


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@log_options
@output_option
def verify(file: str | None, where: Where, output: str) -> None:
    """Check that the log is whole: no record is missing, and each follows from those before it.

    Every commit says the digest of what its writer had read. Where the log holds something else, the broker has lost records that it had
    acknowledged, or one was changed on its disk. Records that somebody else has written are named, too; they are void, and no break. FILE is an export, or an archive in a folder or a bucket (s3://...); without it, the running log is checked. With --archive it is compared
    with the archive, too: what does that hold that the log has not?

    \b
    Exit codes: 0 whole, or repaired, 1 broken, or the archive holds more, 2 the input cannot be
    used, 3 cannot connect.

    \b
    Examples:
      restow log verify                        the stack running here
      restow log verify ./archive              an archive folder
      restow log verify --archive ./archive    a running log, with what was truncated from it
    """
    import msgspec

    from restow.eventlog.port import LogMismatch

    where.log = file or where.log
    beside = None if where.log else where.archive
    try:
        found, held = _checked(where, "")
    except LogMismatch:
        # They do not join: the log ends before its archive, or has gone on with other records. What each of them holds is the question.
        if not beside:
            raise
        found, held = _checked(where, beside)
    else:
        if beside and (found.broken or where.named_archive):
            held = _checked(where, beside)[1]
    try:
        if output == "json":
            said = {"ok": not found.broken, "sentence": found.sentence, **msgspec.to_builtins(found)}
            emit(said | ({"archive": msgspec.to_builtins(held)} if held is not None else {}))
        else:
            _show(found)
            if held is not None:
                click.echo(held.sentence)
    finally:
        if found.broken or (held is not None and held.more):
            raise click.exceptions.Exit(BROKEN)


def _checked(where: Where, beside: str) -> tuple[Wholeness, Held | None]:
    """`beside`: an archive that the log is compared with, instead of read together."""
    from restow.eventlog.archive import open_archive
    from restow.replay.breaks import check, compare
    from restow.replay.source import ArchiveSource

    if not beside:
        with where.source() as source, Progress("reading") as progress:
            found = check(source, progress)
            _whose(found, source)
            return found, None
    source = where.live(archived=False)
    try:
        with Progress("reading") as progress:
            found = check(source, progress)
            _whose(found, source)
        with Progress("comparing") as progress:
            return found, compare(source, ArchiveSource(open_archive(beside, log_id=source.log_id)), progress)
    finally:
        source.close()


def _whose(found: Wholeness, source: Source) -> None:
    """Notes which of several brokers has shown a log that is broken, and by which snapshot services go on."""
    from restow.replay.snapshots import passed
    from restow.replay.source import LiveSource

    if found.broken and isinstance(source, LiveSource):
        found.shown_by = source.shown_by()
        found.passed = passed(source, found.broken)


def _show(found: Wholeness) -> None:
    click.echo(f"log {found.log_id} of cluster {found.cluster}, sequences {found.first} to {found.last}")
    click.echo(f"{number(found.records)} records, {number(found.said)} of them say what they follow from; {number(found.compared)} could be compared\n")
    if found.breaks:
        rows = [(str(one.seq), one.family or "-", str(one.repaired or "no"), one.what) for one in found.breaks]
        table(("RECORD", "FAMILY", "REPAIRED", "WHAT"), rows, right=("RECORD",), flexible=("WHAT",))
        if found.count > len(found.breaks):
            click.echo(f"… and {number(found.count - len(found.breaks))} more")
        click.echo()
    if found.void:
        table(("NOT OURS", "FAMILY", "WHAT"), [(str(one.seq), one.family, one.what) for one in found.strangers], right=("NOT OURS",), flexible=("WHAT",))
        if found.void > len(found.strangers):
            click.echo(f"… and {number(found.void - len(found.strangers))} more")
        click.echo("Somebody else has written these: they are void, and decide nothing (docs/runbooks.md, RestowForeignRecords)\n")
    click.echo(colored(found.sentence, "red" if found.broken else "green"))
    if found.broken:
        if found.shown_by:
            click.echo(f"Broker {found.shown_by} leads, and the others may have what it lacks: empty its volume, and it copies the log from them (docs/failures.md).")
        if found.passed:
            click.echo(f"Services go on from a snapshot up to {number(found.passed)} by who had read what is missing: no repair is needed (docs/failures.md).")
        else:
            click.echo("An archive or an export may still hold what is missing. To go on without it: restow log repair (docs/failures.md)")


@click.command()
@click.option("--lost", type=click.IntRange(0, MOST), default=0, metavar="SEQ", show_default=False, help="Last record that a service has read and the log lacks.")
@click.option("--reason", default="", metavar="TEXT", help="Why; goes into the log.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@log_options
@output_option
def repair(lost: int, reason: str, yes: bool, where: Where, output: str) -> None:
    """Go on with a log that is broken.

    What was lost stays lost, and what followed from it is void. The cut is marked in the log by an event, with your name; the watcher lists
    the whole cluster again, and services decide again. Nothing is deleted. Before, look whether an archive or an export holds what is
    missing (`restow log verify`): then restore that instead. A pause, a mode or an approval
    that is lost has to be given again.

    It writes as the garbage collector does. In a cluster, run it in its container, which has its password:

    \b
    Examples:
      restow log repair                        the stack running here
      kubectl -n restow-system exec -it deploy/restow-garbage-collector -- restow log repair
      restow log repair --lost 4711            a service has read up to 4711 (its /readyz says so)
    """
    from restow.cli.log_repair import in_archive, look, write
    from restow.eventlog.jetstream import open_snapshots

    if where.log:
        raise Failure(f"{where.log} is a file; only a running log can be repaired", UNUSABLE)
    who = os.environ.get("RESTOW_PERSON") or person()

    async def run() -> Found:
        async with where.opened(*where.writer()) as log:
            found = await look(log, await open_snapshots(log, create=False), where.collectors_archive, lost)
            if not found.what:
                return found
            if not yes:
                click.echo(f"{found.what}.")
                click.echo(f"What is kept: {number(found.state.seq)} records, of these {number(found.void)} are void because they follow from another history.")
                if await in_archive(log, where.collectors_archive, found):
                    click.echo("The archive holds what is missing: the garbage collector takes it from there within a minute, and services go on. No repair is needed.")
                click.confirm("Go on with the log as it is? What is lost cannot come back", abort=True)
            return await write(log, found, who, reason)

    found = asyncio.run(run())
    said: dict[str, Any] = {"repaired": found.seq, "what": found.what, "first": found.state.broken, "lost": found.lost}
    if output == "json":
        emit(said)
    elif not found.what:
        click.echo("the log shows no break: nothing was done. If a service says that it has read more than there is, name that record: --lost SEQ")
    elif not found.seq:
        click.echo("somebody else has repaired the log meanwhile: nothing was done")
    else:
        click.echo(f"repaired by record {found.seq}; the watcher lists the cluster again, and decisions go on.\nWhat people had said in what is lost is to be said again, too: a pause, a mode, an approval (`restow state`)")
