"""`restow describe node/NAME`: a node in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from restow.cli.log_location import Where
from restow.cli.output import Progress, emit, filled_table, heading, table

if TYPE_CHECKING:
    from restow.replay.described_node import DescribedNode, Device, OnNode

MOST = 40
"""Rows of a table; of more it says how many there are, and how all of them are listed."""


def show(what: str, where: Where, output: str) -> None:
    import msgspec

    from restow.replay.described_node import described_node

    with where.source() as source, Progress("folding the log") as progress:
        answer = described_node(source, what, progress)
        now = where.present(answer.time)
    if output == "json":
        emit(msgspec.to_builtins(answer))
    else:
        _show(answer, now)


def _show(d: DescribedNode, now: int) -> None:
    click.echo(heading(d.subject.label))
    if d.gone:
        click.echo(f"  it is gone; its story: restow why {d.subject.path}")
        return
    for line in _status(d):
        click.echo(f"  {line}")
    _resources(d)
    if d.devices:
        click.echo(f"\n{heading('DEVICES')}, {sum(one.free == 1000 for one in d.devices)} of {len(d.devices)} free")
        table(("GPU", "FREE", "WHO HAS THE REST"), [(one.index, f"{one.free / 1000:g}", _who(one)) for one in d.devices], right=("FREE",), flexible=("WHO HAS THE REST",), wrap=("WHO HAS THE REST",))
    if d.claim_devices:
        _claim_devices(d)
    everything = f"all of them: restow describe {d.subject.path} -o json"
    _on_node("PODS", d.pods, everything)
    _on_node("HOLDS", d.holds, everything)
    if d.nominated:
        click.echo(f"\n{heading('RUN HERE NEXT')}, once their victims have gone: {', '.join(d.nominated)}")
    if d.moves:
        from restow.cli.amounts import when

        click.echo(f"\n{heading('MOVES')} under way")
        rows = [(one.migration, one.way, one.other, one.pod, one.step, when(one.since, now)) for one in d.moves[:MOST]]
        table(("ID", "WAY", "NODE", "POD", "STEP", "SINCE"), rows, flexible=("POD",))
        more(len(d.moves), everything)
    click.echo(f"\nas of sequence {d.seq}; who came and went: restow why {d.subject.path}")


def _status(d: DescribedNode) -> list[str]:
    state = ["Ready" if d.ready else "NotReady"]
    if d.unschedulable and not d.unreadable:
        state.append("cordoned: no pod is placed here")
    if d.unreadable:
        state.append(f"its object cannot be read, and no pod is placed here: {d.unreadable}")
    if d.do_not_disrupt:
        state.append("somebody asks Karpenter to leave it alone")
    lines = ["; ".join(state)]
    if d.labels:
        lines += [("labels  " if not i else "        ") + f"{name}={value}" for i, (name, value) in enumerate(sorted(d.labels.items()))]
    lines += [("taints  " if not i else "        ") + f"{one.key}{'=' * bool(one.value)}{one.value}:{one.effect}" for i, one in enumerate(d.taints)]
    lines += [("set by Restow  " if not i else "               ") + f"{name}={value}" for i, (name, value) in enumerate(sorted(d.marks.items()))]
    return lines


def _resources(d: DescribedNode) -> None:
    from restow.cli.amounts import amount, title

    click.echo(f"\n{heading('CAPACITY')}")
    columns = ("RESOURCE", "ALLOCATABLE", "USED", "OF IT ENDING", "HELD", "FREE")
    rows = [
        (title(one.name), *(amount(one.name, value) for value in (one.allocatable, one.used, one.releasing, one.reserved, one.free))) for one in d.resources
    ]
    table(columns, rows, right=columns[1:])


def _claim_devices(d: DescribedNode) -> None:
    """Those that somebody has come first: of a GPU that can be cut in many ways, each way is a device."""
    free = sum(not one.state for one in d.claim_devices)
    click.echo(f"\n{heading('DEVICES BY CLAIM')}, {free} of {len(d.claim_devices)} free")
    rows = [(one.driver, one.name, one.state or "free", ", ".join(one.claims), ", ".join(one.pods)) for one in sorted(d.claim_devices, key=lambda one: not one.claims)]
    table(("DRIVER", "DEVICE", "STATE", "CLAIM", "POD"), rows[:MOST], flexible=("CLAIM", "POD"))
    more(len(rows), f"all of them: restow describe {d.subject.path} -o json")


def _who(one: Device) -> str:
    parts = [f"{name} {milli / 1000:g}" for name, milli in one.used.items()] + [f"held: {name} {milli / 1000:g}" for name, milli in one.held.items()]
    return ", ".join(parts)


def _on_node(what: str, some: list[OnNode], otherwise: str) -> None:
    from restow.cli.amounts import concrete, listed

    click.echo(f"\n{heading(what)}, {len(some)}")
    if not some:
        return
    rows = [(one.name, one.slot, one.status, listed(one.requests), concrete(one.devices, one.cores)) for one in some[:MOST]]
    filled_table(("NAME", "SLOT", "STATUS", "AMOUNTS", "DEVICES"), rows, ("NAME", "AMOUNTS"))
    more(len(some), otherwise)


def more(count: int, otherwise: str) -> None:
    """How many rows are not in a table, and `otherwise` how all of them are listed."""
    if count > MOST:
        click.echo(f"and {count - MOST} more; {otherwise}")
