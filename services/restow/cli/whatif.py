"""`restow whatif`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from restow.cli.failures import UNUSABLE, Failure
from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, emit, heading, output_option, plain, table

if TYPE_CHECKING:
    from restow.domain.config import Config
    from restow.replay.whatif.answer import Answer
    from restow.replay.whatif.meter import Measured

DEVICES = "wholly free devices"


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--from", "since", metavar="POINT", help="From here on, with what was there then: a sequence, a time, or -5m.  [default: the log's beginning]")
@click.option("--to", "until", default="now", show_default=True, metavar="POINT", help="Up to here.")
@click.option("--policy", "policy", type=click.Path(exists=True, dir_okay=False), help="This DeschedulerPolicy instead of the recorded ones, from the start.")
@click.option("--scheduler-config", "scheduler", type=click.Path(exists=True, dir_okay=False), help="This volcano-scheduler.conf instead of the recorded ones.")
@click.option("--nodes", multiple=True, metavar="±N:CLASS", help="So many more nodes, or fewer, like this one: a node's name, or the value of a label. May be given again.")
@click.option("--without", multiple=True, metavar="WORKLOAD", help="As if this workload (namespace/name) had never come. May be given again.")
@log_options
@output_option
def whatif(
    file: str | None, since: str | None, until: str, policy: str | None, scheduler: str | None, nodes: tuple[str, ...], without: tuple[str, ...], where: Where, output: str
) -> None:
    """Let the recorded pods come again and the deciders decide anew, on virtual time, beside what really happened.

    FILE is an export, or an archive in a folder or a bucket (s3://...); without it, the running log. An export or an archive must be there from its first record; a running
    log without its archive begins at its oldest snapshot. How many placements are the same as recorded is said first: that is the model's error.

    \b
    Exit codes: 0 done, 2 the input cannot be used, 3 cannot connect.

    \b
    Examples:
      restow whatif incident.jsonl.zst       an exported file
      restow whatif --from -24h --policy new.yaml
                                             the last day of the running log
      restow whatif log.jsonl.zst --policy new.yaml
                                             with another policy of the descheduler
      restow whatif log.jsonl.zst --nodes +8:h100
                                             with eight more nodes of that label
      restow whatif log.jsonl.zst --without team-a/batch
                                             as if that Deployment had never been
    """
    import msgspec

    from restow.replay.snapshots import beginning
    from restow.replay.whatif.answer import Change, answer
    from restow.replay.whatif.reading import Stretch

    change = Change(_policy(policy), _scheduler(scheduler), tuple(map(_more, nodes)), without)
    where.log = file or where.log
    with where.source() as source, Progress("deciding anew") as progress:
        stretch = Stretch(None if since is None else where.point(since, source), where.point(until, source))
        found = answer(source, change, progress, stretch=stretch, begin=beginning(source))
    if output == "json":
        emit({**msgspec.to_builtins(found), "percentTheSame": found.error.percent})
    else:
        show(found)


def _policy(file: str | None) -> str:
    from restow.runtime.policy_file import read

    return _text(file, read)


def _scheduler(file: str | None) -> str:
    from restow.runtime.scheduler_conf import read

    return _text(file, read)


def _text(file: str | None, read: Callable[[Any], Config]) -> str:
    """As the service would log it; empty where no file is named. Raises Failure."""
    from restow.domain.config import text_of
    from restow.runtime.config_source import BadConfig, read_file

    if file is None:
        return ""
    try:
        return text_of(read_file(file, read))
    except BadConfig as error:
        raise Failure(str(error), UNUSABLE) from None


def _more(said: str) -> tuple[int, str]:
    """`+8:h100`. Raises BadParameter."""
    match = re.fullmatch(r"([+-]\d{1,6}):(.+)", said, re.ASCII)
    if match is None or not int(match[1]):
        raise click.BadParameter(f"{said!r}; allowed: +8:CLASS or -8:CLASS", param_hint="--nodes")
    return int(match[1]), match[2]


def show(found: Answer) -> None:
    """As tables."""
    from restow.replay.whatif.answer import between

    error = found.error
    click.echo(f"{plain(found.name)}, {between(found)}" + (f", from the state at sequence {found.seq} on" if found.seq else ""))
    click.echo(f"\nThe model decides {error.same} of {error.placements} placements as recorded ({error.percent:g} %), under the recorded configuration.")
    if error.others:
        click.echo(f"{error.others} decisions of this log are by other versions of the deciders than these.")
    runs = [("recorded", found.recorded), ("model", found.model)]
    if found.changed is not None:
        runs.append(("what if", found.changed))
    click.echo(f"\n{heading('Waiting time')}")
    queues = sorted({waits.queue for _, one in runs for waits in one.waits})
    rows = [
        (queue, name, str(waits.pods), str(waits.waiting), *map(_seconds, (waits.p50, waits.p90, waits.longest)))
        for queue in queues for name, one in runs for waits in one.waits if waits.queue == queue
    ]  # fmt: skip
    columns = ("QUEUE", "", "PODS", "STILL WAITING", "P50", "P90", "MAX")
    table(columns, rows, right=columns[2:])
    click.echo(f"\n{heading('Free devices and slots, mean over the time and at its end')}")
    names = [DEVICES, *dict.fromkeys(name for _, one in runs for sample in one.samples for name in sample.slots)]
    heads = ("", *(name.upper() for name, _ in runs))
    table(heads, [(name if name == DEVICES else f"slots of {name}", *(_over_time(one, name) for _, one in runs)) for name in names], right=heads[1:])
    click.echo(f"\n{heading('Moves')}")
    moved = [
        (title, *(str(of(one)) for _, one in runs))
        for title, of in (
            ("placements", lambda one: one.placements), ("moved pods", lambda one: one.moves), ("landed", lambda one: one.landed), ("failed", lambda one: one.failed),
            ("preempted pods", lambda one: one.preempted), ("GPU-hours lost", lambda one: f"{one.lost_gpu_hours:.2f}"),
        )
    ]  # fmt: skip
    table(heads, moved, right=heads[1:])
    for line in found.refused:
        click.echo(f"\nrefused in the model: {plain(line)}")
    click.echo(f"\n{heading('What the model does not know')}")
    for line in found.unknown:
        click.echo(f"* {line}")
    for name, times in found.unanswered.items():
        click.echo(f"* {name}: asked for {times} times and not carried out")


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f}s"


def _over_time(one: Measured, name: str) -> str:
    """Of sizes that nobody asks for at a time, nothing is known then."""
    values = [sample.free_devices if name == DEVICES else sample.slots.get(name) for sample in one.samples]
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.1f}, {'-' if values[-1] is None else values[-1]}" if known else "-"
