"""`restow describe`: a Reservation in full. The other kinds: `describe_node`, `describe_batch`, `describe_plan`."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import click

from restow.cli.log_location import Where, log_options
from restow.cli.output import (
    Progress,
    colored,
    emit,
    faint,
    filled_table,
    heading,
    output_option,
    table,
    width,
)

if TYPE_CHECKING:
    from restow.contracts.ids import Millis
    from restow.replay.describe import Described
    from restow.replay.holds import SlotView

MOST = 40
"""Slots in the table; of more only those that say more than that they are held."""
_LABEL = 11
_SLOTS = ("NAME", "PHASE", "NODE", "ALLOCATED", "DEVICES", "WHAT")
_COLORS = {"Available": "green", "Succeeded": "green", "Failed": "red", "Pending": "yellow", "Waiting": "yellow"}
_APIS = {"volcano": "batch.volcano.sh", "koordinator": "scheduling.koordinator.sh"}


@click.command()
@click.argument("what", nargs=-1, required=True, metavar="[KIND/][NAMESPACE/]NAME")
@log_options
@output_option
def describe(what: tuple[str, ...], where: Where, output: str) -> None:
    """A Reservation, node, PodGroup, queue or plan in full, computed from the log.

    Of a Reservation: where it is held, who may use it, who does, what is left, and when and why it ends. Of one that waits: how many nodes each rule removes,
    and which single change would be enough.

    \b
    Examples:
      restow describe reservation/shop/like-web-mta5v
      restow describe like-web-mta5v          if no other namespace has one of that name
      restow describe reservation/gpu-hold    Koordinator's have no namespace
      restow describe node/n-3                capacity, devices, pods, holds, moves
      restow describe podgroup/shop/train     its members, and what it lacks
      restow describe queue/batch             what it may use and uses, and who waits in it
      restow describe plan/pk3x9m2            its moves, its worth and cost, who stays and why

    Of a node: what is free of each resource and device, who has the rest, for whom capacity is held there, and which moves lead there or away. Of a pod or a
    migration it prints what `restow why` does.
    """
    import msgspec

    from restow.cli import why
    from restow.replay.describe import described
    from restow.replay.find import parse

    text = "/".join(what)
    kind, _, name = text.partition("/")
    if kind.lower() in ("plan", "plans") and name:
        from restow.cli import describe_plan

        return describe_plan.show(name, where, output)
    kind = parse(text).kind
    if kind == "node":
        from restow.cli import describe_node

        return describe_node.show(text, where, output)
    if kind in ("podgroup", "queue"):
        from restow.cli import describe_batch

        return describe_batch.show(text, where, output)
    if kind not in ("", "reservation"):
        return why.explain(what, False, where, output)
    with where.source() as source, Progress("reading the log") as progress:
        answer = described(source, text, progress)
        now = where.present(answer.time)
    if output == "json":
        emit(msgspec.to_builtins(answer))
    else:
        _show(answer, now)


def _show(d: Described, now: Millis) -> None:
    subject = d.subject
    click.echo(f"{heading(subject.label)}{faint(f'  {subject.id}')}")
    why = f" ({d.reason})" if d.reason and d.phase in ("Pending", "Waiting", "Failed") else ""
    since = f" since {_moment(d.since, now)}" if d.since else ""
    if d.foreign:
        _wrapped(f"for scheduler {d.foreign}, which is not Restow's: it is never touched", "  ")
    if not d.foreign or d.accepted or d.reason:
        _wrapped(f"{d.phase}{why}{since}" + (f": {d.message}" if d.message else ""), "  ", (d.phase, _COLORS.get(d.phase, "white")))
    if not d.api:
        _latest(d)
        return
    click.echo()
    for label, text in _facts(d, now):
        _wrapped(text, f"  {label:<{_LABEL}}")
    if d.waits:
        click.echo(f"\n{heading('WAITS')}, decided again at sequence {d.seq}")
        for line in d.waits:
            _wrapped(line, "  ")
    _slots(d)
    for slot in d.slots:
        _missing(slot)
    if d.allocations:
        from restow.cli.amounts import concrete, listed

        click.echo(f"\n{heading('USED BY')}")
        rows = [(p.pod, p.slot, p.node, listed(p.amounts), concrete(p.devices, p.cores), "" if p.bound else "not bound yet") for p in d.allocations]
        filled_table(("POD", "SLOT", "NODE", "TAKEN OF IT", "DEVICES", "STATE"), rows, ("NODE", "TAKEN OF IT"))
    _latest(d)


def _facts(d: Described, now: Millis) -> list[tuple[str, str]]:
    from restow.cli.amounts import listed, pairs

    behind = "" if d.accepted in (0, d.generation) else f"; generation {d.accepted} is in force"
    found = [("API", f"{_APIS.get(d.api, d.api)}, created {_moment(d.created, now)}, generation {d.generation}{behind}")]
    if d.deleting:
        found.append(("deleting", f"since {_moment(d.deleting, now)}"))
    if d.migration:
        found.append(("migration", f"holds for {d.migration}: restow why migration/{d.migration}"))
    if d.foreign:
        pass
    elif d.phase == "Succeeded":
        found.append(("end", "it has served: nothing is held any more"))
    else:
        ends = "never" if not d.ends else f"{'ended' if d.expired else 'ends'} {_moment(d.ends, now)}"
        found.append(("end", ends + (f", {d.because}" if d.because else "")))
    found += [("or" if i else "for", owner) for i, owner in enumerate(d.owners)] or [("for", "nobody")]
    found.append(("how", "; ".join(d.policy)))
    if d.queue:
        found.append(("queue", d.queue))
    if d.allocatable:
        beyond = f"; {listed(d.beyond)} of that is beyond its present size, and the node's once it is left" if d.beyond else ""
        found.append(("allocated", pairs(d.allocated, d.allocatable) + beyond))
        found.append(("left", _left(d)))
    if d.unknown:
        found.append(("unknown", f"fields without a meaning: {', '.join(d.unknown)}"))
    return found


def _left(d: Described) -> str:
    """What owners may take. What a slot that waits has of its capacity is nobody's yet."""
    from restow.cli.amounts import listed

    left = listed(d.left) if any(d.left.values()) else "nothing"
    if not d.missing:
        return left
    has = f"{listed(d.waiting)} is there, " if d.waiting else ""
    return f"{left}{' yet' if left == 'nothing' else ''}: {has}{listed(d.missing)} is waited for"


def _slots(d: Described) -> None:
    phases = {phase: sum(slot.phase == phase for slot in d.slots) for phase in dict.fromkeys(p.phase for p in d.slots)}
    counts = ", ".join(f"{count} {phase}" for phase, count in phases.items())
    needed = f"; {d.min_available} needed" if d.min_available not in (0, len(d.slots)) else ""
    click.echo(f"\n{heading('SLOTS')}, {len(d.slots)}: {counts or 'none'}{needed}")
    shown = d.slots if len(d.slots) <= MOST else [p for p in d.slots if p.phase != "Available" or p.allocated][:MOST]
    rows = [_row(slot) for slot in shown]
    if rows:
        filled_table(_SLOTS, rows, ("NODE", "ALLOCATED", "WHAT"), ("WHAT",))
    if len(shown) < len(d.slots):
        on = ", ".join(dict.fromkeys(p.node for p in d.slots if p.node))
        _wrapped(f"and {len(d.slots) - len(shown)} more; nodes: {on}", "")


def _row(slot: SlotView) -> tuple[str, ...]:
    from restow.cli.amounts import concrete, listed, pairs
    from restow.domain.verdicts import explained

    on_node = slot.phase in ("Available", "Waiting", "Succeeded") or bool(slot.allocated)
    has = f"has {listed(slot.held)}, " if slot.held else ""
    what = {
        "Available": f"is to become {listed(slot.asked)}" if slot.asked else f"placeholder {slot.placeholder}" if slot.placeholder else "",
        "Waiting": _waits(slot, has),
        "Succeeded": f"used by {slot.pod}",
        "Failed": explained(slot.reason),
    }.get(slot.phase, slot.message)
    amounts = pairs(slot.allocated, slot.total) if on_node else listed(slot.total)
    return slot.name, slot.phase, slot.node or "-", amounts, concrete(slot.devices, slot.cores), what


def _waits(slot: SlotView, has: str) -> str:
    from restow.cli.amounts import listed
    from restow.domain.verdicts import BESIDE, PLACEHOLDER

    if slot.reason == PLACEHOLDER:
        return f"placeholder {slot.placeholder}" if slot.placeholder else BESIDE[PLACEHOLDER]
    return f"{has}waits for {listed(slot.missing)}" + (f" ({slot.reason})" if slot.reason else "")


def _missing(slot: SlotView) -> None:
    """What a slot that waits has not got, and who has it."""
    from restow.cli.amounts import listed

    if not slot.missing:
        return
    click.echo(f"\n{heading('CAPACITY')} that {slot.name} waits for on {slot.node}: {listed(slot.missing)}")
    if slot.users:
        rows = [(user.who, listed(user.amounts)) for user in slot.users]
        table(("IN USE BY", "AMOUNTS"), rows, flexible=("IN USE BY",))
    else:
        click.echo("  nobody has it: the node cannot have so much any more")


def _latest(d: Described) -> None:
    if not d.transitions:
        return
    from restow.contracts.times import rfc3339

    click.echo(f"\n{heading('LATEST')}, as of sequence {d.seq}; all of it: restow why {d.subject.path}")
    days = {rfc3339(entry.time)[:10] for entry in d.transitions}
    short = slice(11, 19) if len(days) == 1 else slice(5, 19)
    rows = [
        (t.seq, rfc3339(t.time)[short].replace("T", " "), t.text, t.by + (f" ← {t.cause}" if t.cause else "")) for t in d.transitions
    ]
    table(("SEQ", "TIME", "WHAT", "BY ← CAUSE"), rows, right=("SEQ",), flexible=("WHAT", "BY ← CAUSE"), wrap=("WHAT", "BY ← CAUSE"))


def _moment(at: Millis, now: Millis) -> str:
    """`2026-11-20T15:13:43Z (2m ago)`."""
    from restow.cli.amounts import when
    from restow.contracts.times import seconds

    return f"{seconds(at)} ({when(at, now)})"


def _wrapped(text: str, prefix: str, color: tuple[str, str] | None = None) -> None:
    """`color`: the text's first word, and how it is shown; said afterwards, so that lines are as wide as they look."""
    indent = " " * (len(prefix) if prefix.strip() else len(prefix) + 2)
    for line in textwrap.wrap(text, width(), initial_indent=prefix, subsequent_indent=indent, break_on_hyphens=False):
        if color is not None:
            line, color = line.replace(color[0], colored(*color), 1), None
        click.echo(line)
