"""`restow log`: tail, stats, export, import."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from restow.cli import log_breaks
from restow.cli.failures import UNUSABLE, Failure
from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, emit, emit_line, number, output_option, size, table
from restow.cli.refold import refold
from restow.cli.replicas import replicas, wanted
from restow.contracts.ids import FAMILIES

if TYPE_CHECKING:
    from restow.eventlog.port import Record
    from restow.replay.source import Source


@click.group()
def log() -> None:
    """Show the log, check it, write it to a file, or restore it from one."""


log.add_command(replicas)
log.add_command(refold)


@log.command()
@click.option("-f", "--follow", is_flag=True, help="Keep showing new commits until Ctrl-C.")
@click.option("--family", type=click.Choice(FAMILIES), help="Only this family's commits.")
@click.option("--from", "start", type=click.IntRange(1), metavar="SEQ", help="Start here instead of near the end.")
@click.option("-n", "count", type=click.IntRange(0), help="Commits to show.  [default: 20; with --from: all]")
@log_options
@output_option
def tail(follow: bool, family: str | None, start: int | None, count: int | None, where: Where, output: str) -> None:
    """Show the latest commits, one row per decision; with -o json, one line per commit with everything in it.

    \b
    Examples:
      restow log tail -f                           watch the cluster being scheduled
      restow log tail --family migration -n 5      the latest steps of migrations
      restow log tail --from 4711 -n 1 -o json     one commit in full
    """
    if follow and where.log:
        raise Failure(f"{where.log} is a file and will not grow; -f needs a running log", UNUSABLE)
    with where.source() as source:
        if start and not source.first <= start <= max(source.first, source.last + follow):
            lost = ". What was before is in the archive (--archive DIR)" if start < source.first and not where.log else ""
            raise Failure(f"{source.name} holds {source.first} to {source.last}; {start} is not one of them{lost}", UNUSABLE)
        first = start or source.last + 1
        records = _from(source, family, start, count) if start else _latest(source, family, 20 if count is None else count)
        show = _Rows(source.log_id) if output == "table" else _lines(source.log_id)
        for record in records:
            show(record)
            first = max(first, record.seq + 1)
        if follow:
            _follow(source, family, max(first, source.last + 1), show)


def _from(source: Source, family: str | None, start: int, count: int | None) -> Iterator[Record]:
    found = (r for batch in source.batches(start) for r in batch if family is None or r.family == family)
    return islice(found, count)


def _latest(source: Source, family: str | None, count: int) -> list[Record]:
    """The last `count`, looking back further and further."""
    window = count if family is None else 16 * count
    while True:
        start = max(source.first, source.last - window + 1)
        found = [r for batch in source.batches(start) for r in batch if family is None or r.family == family]
        if len(found) >= count or start == source.first:
            return found[max(0, len(found) - count) :]
        window *= 8


def _follow(source: Source, family: str | None, start: int, show: Any) -> None:
    from restow.replay.source import LiveSource

    assert isinstance(source, LiveSource)
    try:
        for batch in source.follow(start):
            for record in batch:
                if family is None or record.family == family:
                    show(record)
    except KeyboardInterrupt:
        raise click.exceptions.Exit(0) from None


class _Rows:
    """Prints rows as they come, so the columns cannot wait for the widest. Remembers the names that go by."""

    def __init__(self, log_id: str) -> None:
        self._titled, self._log_id = False, log_id
        self._names: dict[str, str] = {}

    def __call__(self, record: Record) -> None:
        from restow.cli.output import cut, heading, width
        from restow.contracts.times import rfc3339
        from restow.replay.sentences import command_text
        from restow.replay.state_at import examine_record, time_of

        if not self._titled:
            click.echo(heading(f"{'SEQ':>8}  {'TIME':<12}  {'FAMILY':<11}  {'COMMAND':<18}  WHAT"))
            self._titled = True
        time = rfc3339(time_of(record))[11:23]
        found = examine_record(record, self._log_id)
        if found.kind:
            click.echo(cut(f"{record.seq:>8}  {time:<12}  {record.family:<11}  {'not ours':<18}  void: {found.why}", width()))
        for decision in found.decisions:
            self._learn(decision.events)
            command = cut(command_text(decision.command), 18)
            line = f"{record.seq:>8}  {time:<12}  {record.family:<11}  {command:<18}  {summary(decision.events, self._names)}"
            click.echo(cut(line, width()))

    def _learn(self, events: Any) -> None:
        from restow.contracts.events import PodObserved, ReservationObserved

        if len(self._names) > _NAMES:
            self._names.clear()
        for event in events:
            if isinstance(event, PodObserved):
                self._names[event.pod] = f"{event.namespace}/{event.name}"
            elif isinstance(event, ReservationObserved):
                self._names[event.reservation] = f"{event.namespace}/{event.name}"


_NAMES = 200_000
"""Names that a tail remembers at most."""


def summary(events: Any, names: dict[str, str]) -> str:
    """One event as a sentence, several as counts."""
    from collections import Counter

    from restow.contracts.codec import name_of
    from restow.replay.sentences import sentence

    if len(events) == 1:
        return sentence(events[0], names)
    counts = Counter(name_of(event).partition(".")[2] for event in events)
    return ", ".join(f"{count} {name}" for name, count in counts.most_common()) or "nothing"


def _lines(log_id: str) -> Callable[[Record], None]:
    """A commit with its envelope as one line of JSON; of a record that is not ours what it is and how it came."""
    import msgspec

    from restow.contracts.times import rfc3339
    from restow.replay.state_at import examine_record, time_of

    def show(record: Record) -> None:
        envelope = record.envelope
        about = {
            "seq": record.seq,
            "family": record.family,
            "time": envelope.time or rfc3339(time_of(record)),
            "id": envelope.id,
            "source": envelope.source,
            "read": envelope.read,
            "logic": envelope.logic,
            "release": envelope.release,
        }
        if (found := examine_record(record, log_id)).kind:
            emit_line(about | {"void": found.kind, "why": found.why, "headers": envelope.headers(), "bytes": len(record.body)})
            return
        body = msgspec.json.decode(record.body, type=dict[str, msgspec.Raw])
        emit_line(about | {"decisions": body.get("decisions", [])})

    return show


@log.command()
@log_options
@output_option
def stats(where: Where, output: str) -> None:
    """Commits, decisions, events and bytes per family, and the most frequent events."""
    from restow.contracts.times import rfc3339
    from restow.replay.stats import collect

    with where.source() as source, Progress("counting") as progress:
        found = collect(source, progress)
    if output == "json":
        emit(found)
        return
    click.echo(f"log {found.log_id} of cluster {found.cluster}, sequences {found.first} to {found.last}\n")
    rows = [
        (
            f.family,
            number(f.commits),
            number(f.decisions),
            number(f.events),
            size(f.bytes),
            f"{f.per_second:.1f}" if f.per_second else "",
            rfc3339(f.began)[5:19].replace("T", " "),
            rfc3339(f.ended)[5:19].replace("T", " "),
        )
        for f in [*found.families.values(), found.all]
    ]
    columns = ("FAMILY", "COMMITS", "DECISIONS", "EVENTS", "BYTES", "EVENTS/S", "FIRST", "LAST")
    table(columns, rows, right=columns[1:6], flexible=("FIRST", "LAST"))
    click.echo()
    types = sorted(found.types.items(), key=lambda item: (-item[1], item[0]))
    table(("EVENT", "COUNT"), [(name, number(count)) for name, count in types[:15]], right=("COUNT",))
    if len(types) > 15:
        click.echo(f"… and {len(types) - 15} rarer ones")
    if found.foreign:
        click.echo("\nnot ours, void: " + ", ".join(f"{number(count)} {kind}" for kind, count in sorted(found.foreign.items())))


@log.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--from", "start", type=click.IntRange(1), metavar="SEQ", help="First sequence.  [default: the log's first]")
@click.option("--to", "stop", type=click.IntRange(1), metavar="SEQ", help="Last sequence.  [default: the log's last]")
@click.option("--format", "form", type=click.Choice(["jsonl", "parquet"]), help="Default: by the name of FILE.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@log_options
@output_option
def export(file: Path, start: int | None, stop: int | None, form: str | None, force: bool, where: Where, output: str) -> None:
    """Write the log, or part of it, to one file.

    FILE ends in .jsonl.zst (a packed archive segment), .jsonl (the same, readable with jq) or .parquet (one row per event, for
    SQL). The first two are sealed: reading them detects a changed bit.

    \b
    Examples:
      restow log export incident.jsonl.zst
      restow log export part.jsonl --from 4000 --to 4999
      restow log export events.parquet
    """
    form = form or _form(file)
    if form == "jsonl" and not file.name.endswith((".jsonl", ".jsonl.zst")):
        raise Failure(f"{file}: a JSON export must be called *.jsonl or *.jsonl.zst, so that it can be recognised later", UNUSABLE)
    if file.exists() and not force:
        raise Failure(f"{file} exists; --force replaces it", UNUSABLE)
    if not file.parent.is_dir():
        raise Failure(f"{file.parent} is not a folder; allowed: a file in an existing folder", UNUSABLE)
    with where.source() as source, _names_what_cannot_be_written(file):
        first, last = _range(source, start, stop)
        with Progress("exporting") as progress:
            if form == "parquet":
                from restow.eventlog.parquet import write_parquet

                rows = write_parquet((record for batch in source.batches(first, last) for record in batch), file)
                result = {"file": str(file), "first": first, "last": last, "rows": rows, "bytes": file.stat().st_size}
            else:
                from restow.replay.source import save

                written = save(source, file, first, last, lambda seq: progress(seq - first, last - first))
                result = {"file": str(file), "first": first, "last": last, "bytes": written}
    if output == "json":
        emit(result)
    else:
        click.echo(f"{file}: sequences {first} to {last}, {size(result['bytes'])}")  # type: ignore[arg-type]


_ONLY_OF_WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS}


@contextmanager
def _names_what_cannot_be_written(file: Path) -> Iterator[None]:
    """A full disk names no file, and a folder that nobody may write the temporary one in it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _ONLY_OF_WRITING:
            raise
        raise Failure(f"{file} cannot be written: {error.strerror}; allowed: a file where there is space for it", UNUSABLE) from error


def _form(file: Path) -> str:
    if file.name.endswith((".jsonl", ".jsonl.zst")):
        return "jsonl"
    if file.suffix == ".parquet":
        return "parquet"
    raise Failure(f"{file}: unknown format; allowed: *.jsonl.zst, *.jsonl, *.parquet", UNUSABLE)


def _range(source: Source, start: int | None, stop: int | None) -> tuple[int, int]:
    first, last = start or source.first, stop or source.last
    if source.last < source.first:
        raise Failure(f"{source.name} is empty: there is nothing to export", UNUSABLE)
    if not source.first <= first <= last <= source.last:
        raise Failure(f"{source.name} holds {source.first} to {source.last}; {first} to {last} is outside of it", UNUSABLE)
    return first, last


log.add_command(log_breaks.verify)
log.add_command(log_breaks.repair)


@contextmanager
def _says_what_helps(file: str) -> Iterator[None]:
    """What can be done where an export or an archive is refused. All of it is checked before anything is stored."""
    from restow.eventlog.segment import ArchiveError

    try:
        yield
    except ArchiveError as error:
        if not error.where:
            help_ = "allowed: an export (*.jsonl.zst, *.jsonl), or the folder or bucket of an archive"
        elif Path(file).is_file():
            help_ = "nothing is stored; take it from another copy, or export it again"
        else:
            help_ = (
                "nothing is stored; put back what is missing, damaged or renamed, from another copy of the archive. "
                "Without one, move this segment and all after it elsewhere: the log ends before it then"
            )
        raise Failure(f"{error}; {help_}", UNUSABLE) from error


@log.command(name="import")
@click.argument("file")
@click.option("--server", "--nats", "server", metavar="URL", help="Broker; default: the stack running here.")
@click.option("--cluster", metavar="NAME", help="Name of the cluster.  [default: the one in FILE]")
@click.option("--from", "start", type=click.IntRange(1), metavar="SEQ", help="First sequence: the rest stays in the archive.  [default: the first in FILE]")
@output_option
def import_(file: str, server: str | None, cluster: str | None, start: int | None, output: str) -> None:
    """Restore an export or an archive into an empty log, with its id, its sequences and every byte.

    FILE is an export, an archive's folder, or its bucket (s3://BUCKET/PREFIX/CLUSTER). The log must not exist at the broker yet, or must be empty and made for this import. Nothing is ever overwritten. Until all of it is
    there nobody else opens the log: services wait. If an import is interrupted, run the same command again.

    With --from it is a log whose beginning was truncated: the garbage collector folds that from its archive, where FILE's must be. A log in which records are missing can be put back from
    behind them on.

    \b
    Example:
      restow log import incident.jsonl.zst --server nats://127.0.0.1:4222 --cluster incident
    """
    import logging

    from restow.replay.restore import restore
    from restow.replay.source import open_path

    # What goes wrong is the answer.
    logging.getLogger("restow").setLevel(logging.CRITICAL)
    logging.getLogger("nats").setLevel(logging.CRITICAL)
    with _says_what_helps(file):
        source = open_path(file)
    if start is not None:
        source.first = _range(source, start, None)[0]  # type: ignore[misc]
    where = Where(None, server, cluster, None)
    with Progress("importing") as progress:
        count = restore(source, where.need_server().split(","), cluster or source.cluster, progress, replicas=wanted(), **where.login)
    if output == "json":
        emit({"file": file, "cluster": cluster or source.cluster, "logId": source.log_id, "records": count})
    else:
        click.echo(f"{number(count)} records of log {source.log_id} are restored as cluster {cluster or source.cluster}")
