"""`restow whatif`."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, emit, heading, output_option, plain, table

if TYPE_CHECKING:
    from restow.replay.whatif.answer import Answer
    from restow.replay.whatif.meter import Measured
    from restow.replay.whatif.sweep import Swept

DEVICES = "wholly free devices"
VALUES = {"waited": "hours not waited", "waited-gpu": "GPU-hours not waited", "free-devices": DEVICES}


@click.command()
@click.argument("file", required=False, metavar="[FILE]")
@click.option("--from", "since", metavar="POINT", help="From here on, with what was there then: a sequence, a time, or -5m.  [default: the log's beginning]")
@click.option("--to", "until", default="now", show_default=True, metavar="POINT", help="Up to here.")
@click.option("--policy", "policy", type=click.Path(exists=True, dir_okay=False), help="This DeschedulerPolicy instead of the recorded ones, from the start.")
@click.option("--scheduler-config", "scheduler", type=click.Path(exists=True, dir_okay=False), help="This volcano-scheduler.conf instead of the recorded ones.")
@click.option("--nodes", multiple=True, metavar="±N:CLASS", help="So many more nodes, or fewer, like this one: a node's name, or the value of a label. May be given again.")
@click.option("--without", multiple=True, metavar="WORKLOAD", help="As if this workload (namespace/name) had never come. May be given again.")
@click.option("--plot", metavar="FILE.svg", help="Also draw waiting times and free devices over time into this file.")
@click.option("--sweep", "grid", type=click.Path(exists=True, dir_okay=False), help="Every combination of the settings that this YAML lists.")
@click.option("--value", type=click.Choice(["waited", "waited-gpu", "free-devices"]), help="With --sweep: what is set against moves.  [default: waited]")
@click.option("--jobs", type=click.IntRange(1, 256), metavar="N", help="With --sweep: processes at once.  [default: one a core]")
@log_options
@output_option
def whatif(
    file: str | None, since: str | None, until: str, policy: str | None, scheduler: str | None, nodes: tuple[str, ...], without: tuple[str, ...],
    plot: str | None, grid: str | None, value: str | None, jobs: int | None, where: Where, output: str,
) -> None:  # fmt: skip
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
      restow whatif log.jsonl.zst --nodes -20:t4 --plot fewer.svg
                                             with a picture
      restow whatif log.jsonl.zst --policy new.yaml --sweep grid.yaml
                                             with each combination of settings
    """
    import msgspec

    from restow.cli import whatif_changes, whatif_plot
    from restow.replay.snapshots import beginning
    from restow.replay.whatif.answer import Begin, answer
    from restow.replay.whatif.reading import Stretch
    from restow.replay.whatif.sweep import sweep

    change = whatif_changes.change_of(policy, scheduler, nodes, without)
    settings = whatif_changes.grid(grid, policy, scheduler, nodes, without) if grid else []
    where.log = file or where.log
    if (value or jobs) and not grid:
        raise click.UsageError("--value and --jobs are for --sweep FILE")
    if plot and (grid or not plot.endswith(".svg")):
        raise click.UsageError("--plot draws one answer, without --sweep" if grid else f"--plot {plot}: allowed: a file that ends in .svg")
    with where.source() as source, Progress("deciding anew") as progress:
        begin = Begin(Stretch(None if since is None else where.point(since, source), where.point(until, source)), beginning(source))
        swept = sweep(source, settings, value or "waited", jobs or os.cpu_count() or 1, progress, begin) if grid else None
        found = answer(source, change, progress, begin) if swept is None else None
    if plot and found is not None:
        whatif_plot.write(found, plot)
    said = found or swept
    assert said is not None
    if output == "json":
        emit({**msgspec.to_builtins(said), "percentTheSame": said.error.percent})
    elif found is not None:
        show(found)
    elif swept is not None:
        show_sweep(swept)


def _show_error(found: Answer | Swept) -> None:
    from restow.contracts.times import rfc3339

    error = found.error
    click.echo(f"{plain(found.name)}, {rfc3339(found.first)} to {rfc3339(found.last)}" + (f", from the state at sequence {found.seq} on" if found.seq else ""))
    click.echo(f"\n{error.told}, under the recorded configuration.")
    if error.others:
        click.echo(f"{error.others} decisions of this log are by other versions of the deciders than these.")


def show(found: Answer) -> None:
    """As tables."""
    _show_error(found)
    runs = [("recorded", found.recorded), ("model", found.model)]
    if found.changed is not None:
        runs.append(("what if", found.changed))
    click.echo(f"\n{heading('Waiting time')}")
    queues = sorted({waits.queue for _, one in runs for waits in one.waits})
    rows = [
        (queue, name, str(waits.pods), str(waits.gone), str(waits.waiting), *map(_seconds, (waits.p50, waits.p90, waits.longest)))
        for queue in queues for name, one in runs for waits in one.waits if waits.queue == queue
    ]  # fmt: skip
    columns = ("QUEUE", "", "PODS", "GONE", "STILL WAITING", "P50", "P90", "MAX")
    table(columns, rows, right=columns[2:])
    click.echo(f"\n{heading('Free devices and slots, mean over the time and at its end')}")
    names = [DEVICES, *sorted({name for _, one in runs for sample in one.samples for name in sample.slots}, key=largest_first)]
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
    _show_unknown(found.unknown)
    for name, times in found.unanswered.items():
        click.echo(f"* {name}: asked for {times} times and not carried out")


def largest_first(size: str) -> tuple[float, str]:
    """Sizes of slots (`2 devices`, `2 x 0.5 device`) in the order of a table."""
    return -math.prod(map(float, re.findall(r"[0-9.]+", size) or [0])), size


def show_sweep(found: Swept) -> None:
    """One table, what was recorded first."""
    _show_error(found)
    axes = list(found.tried[0].setting)
    columns = (*(axis.upper() for axis in axes), "STILL WAITING", "WAITED", "OF GPUS", "FREE DEVICES", "MOVED", "LOST", "BEST")
    rows = [(*(name if axis == axes[0] else "" for axis in axes), *_tried(one), "") for name, one in (("recorded", found.recorded), ("as recorded", found.model))]
    rows += [(*one.setting.values(), *_tried(one.measured), "*" if one.best else "") for one in found.tried]
    click.echo(f"\n{heading('Settings')}")
    table(columns, rows, right=columns[len(axes) :], flexible=columns[: len(axes)])
    click.echo(f"\n* no other setting has as much value ({VALUES[found.value]}) with fewer moves, or more with as many")
    click.echo("waited: hours of all pods, and times the devices that they ask for; free devices: mean over the time; lost: GPU-hours")
    for line in dict.fromkeys(line for one in found.tried for line in one.refused):
        click.echo(f"\nrefused in the model: {plain(line)}")
    _show_unknown(found.unknown)


def _tried(one: Measured) -> tuple[str, ...]:
    waiting = sum(waits.waiting for waits in one.waits)
    return str(waiting), _hours(one.waited_hours), _hours(one.waited_gpu_hours), f"{one.mean_free_devices:.1f}", str(one.moves), _hours(one.lost_gpu_hours)


def _hours(hours: float) -> str:
    return f"{hours:.0f}" if hours >= 100 else f"{hours:.3g}"


def _show_unknown(unknown: Iterable[str]) -> None:
    click.echo(f"\n{heading('What the model does not know')}")
    for line in unknown:
        click.echo(f"* {line}")


def _seconds(milliseconds: int) -> str:
    return f"{milliseconds / 1000:.1f}s"


def _over_time(one: Measured, name: str) -> str:
    """Of sizes that nobody asks for at a time, nothing is known then."""
    values = [sample.free_devices if name == DEVICES else sample.slots.get(name) for sample in one.samples]
    known = [value for value in values if value is not None]
    return f"{sum(known) / len(known):.1f}, {'-' if values[-1] is None else values[-1]}" if known else "-"
