"""`restow why`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from restow.cli.log_location import Where, log_options
from restow.cli.output import Progress, emit, faint, heading, output_option, plain, table, width

if TYPE_CHECKING:
    from restow.replay.story import Entry
    from restow.replay.why import Why


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="[KIND/][NAMESPACE/]NAME")
@click.option("--own", is_flag=True, help="Only events about the object itself, not about related objects.")
@log_options
@output_option
def why(what: tuple[str, ...], own: bool, where: Where, output: str) -> None:
    """Why a pod, PodGroup, reservation, migration, node or queue is as it is.

    Prints three parts: the verdict now; the chain of causes, from the latest step back to what started it; and the story, every
    event that concerns the object. For a waiting pod, the verdict names the rules that removed nodes, its gang, its queue, and
    any single change that would let it fit. For a placed pod, it compares the node with the next best. For a pod that was not
    moved, it says what the last plan found. Verdicts are computed from the log.

    \b
    Examples:
      restow why web-1                    any object of that name
      restow why pod/shop/web-1           a pod in a namespace; or a uid, or its first 8 letters
      restow why podgroup/shop/train      how much of a gang fits, and what it lacks
      restow why migration/p7k2m9-3
      restow why node/n-3                 what is free, and which pods came and went; also queue/NAME
      restow why deploy/shop/web          its pod; if there are several, all are listed
      restow why pod                      every waiting pod, and why; also podgroup, and so on
      restow why web-1 --log incident.jsonl.zst
    """
    from restow.replay.find import kind_of

    if len(what) == 1 and (kind := kind_of(what[0])):
        _list(kind, where, output)
    else:
        explain(what, own, where, output)


def explain(what: tuple[str, ...], own: bool, where: Where, output: str) -> None:
    """The verdict, the chain and the story of one thing, printed."""
    import msgspec

    from restow.replay.why import why

    with where.source() as source, Progress("reading the log") as progress:
        answer = why(source, "/".join(what), progress)
    if own:
        answer.story = [entry for entry in answer.story if entry.own]
    if output == "json":
        emit({"subject": answer.subject, **msgspec.to_builtins(answer)})
    else:
        _show(answer)


def _show(answer: Why) -> None:
    from restow.contracts.times import rfc3339

    subject = answer.subject
    uid = f"  {subject.id}" if subject.id != subject.name else ""
    click.echo(f"{heading(subject.label)}{faint(uid)}")
    for line in answer.verdict:
        _wrapped(line, "  ")
    if answer.unfit is not None and answer.unfit.status == "waiting" and answer.unfit != answer.present:
        from restow.replay.verdicts import waiting_lines

        _wrapped(f"decided again at sequence {answer.decided_at}:", "  ")
        for line in waiting_lines(answer.unfit, "would have fitted with"):
            _wrapped(line, "    ")
    if answer.stays is not None and answer.stays.removed:
        removed = ", ".join(f"{count} {rule}" for rule, count in answer.stays.removed.items())
        _wrapped(f"targets removed: {removed}", "    ")
    if answer.chain:
        click.echo(f"\n{heading('BECAUSE')}, latest first")
        rows = [(link.seq or "", link.family, link.text, link.by) for link in answer.chain]
        table(("SEQ", "FAMILY", "WHAT", "BY"), rows, right=("SEQ",), flexible=("WHAT", "BY"), wrap=("WHAT", "BY"))
    click.echo(f"\n{heading('STORY')}, as of sequence {answer.seq}")
    days = {rfc3339(entry.time)[:10] for entry in answer.story}
    short = slice(11, 23) if len(days) == 1 else slice(5, 23)
    story = [
        (entry.seq, rfc3339(entry.time)[short].replace("T", " "), entry.family, entry.text, _by(entry)) for entry in answer.story
    ]
    columns = ("SEQ", "TIME", "FAMILY", "WHAT", "BY ← CAUSE")
    table(columns, story, right=("SEQ",), flexible=columns[3:], wrap=columns[3:])


def _by(entry: Entry) -> str:
    return entry.by + (f" ← {entry.cause}" if entry.cause else "")


def _list(kind: str, where: Where, output: str) -> None:
    """What of this kind needs an explanation: pods and gangs that wait, Reservations without their slots, migrations not
    landed, nodes that take no pods, queues in which somebody waits."""
    from restow.cli.views import troubled
    from restow.replay.snapshots import state_by_snapshot

    with where.source() as source, Progress("folding the log") as progress:
        rows = troubled(state_by_snapshot(source, progress=progress), kind)
    if output == "json":
        emit(rows)
    elif not rows:
        click.echo(f"no {kind} needs an explanation. `restow why {kind}/NAME` tells the story of any")
    else:
        table(("NAME", "STATUS", "WHY"), [(r["name"], r["status"], r["why"]) for r in rows], flexible=("NAME", "WHY"), wrap=("WHY",))


def _wrapped(text: str, prefix: str) -> None:
    for line in textwrap.wrap(plain(text), width(), initial_indent=prefix, subsequent_indent=" " * (len(prefix) + 2), break_on_hyphens=False):
        click.echo(line)
