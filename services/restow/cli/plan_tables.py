"""A plan as tables: its moves in waves, what it does to each group of nodes, and who stays and why."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from restow.cli.output import change, faint, heading, number, table, width

if TYPE_CHECKING:
    from restow.contracts.events import Planned
    from restow.contracts.values import Fitting, Move

MOST = 60
"""Moves that are shown on a terminal."""
_WIDE = 100
"""Columns of a terminal that holds the whole table of groups."""
_PACKING = (("FREE NODES", "free_nodes", 1), ("FREE GPUS", "free_devices", 1), ("IDLE GPUS", "idle", 1000), ("FRAGMENTED", "fragmented", 1000))
"""Column, field, and what one of it is. What is idle changes only where moves go from one group to another."""


def read(answer: Mapping[str, Any]) -> Planned | None:
    """The plan of an answer of the descheduler."""
    return next(iter(read_all(answer)), None)


def read_all(answer: Mapping[str, Any]) -> list[Planned]:
    """All plans of an answer, in order: a policy's plugins make one each."""
    import msgspec

    from restow.contracts.events import Planned
    from restow.contracts.values import Packing

    empty = dict.fromkeys(Packing.__struct_fields__, 0) | {"fits": (), "gangs": ()}
    # Of a descheduler of another version whatever it says is shown.
    made = (
        {"plugin": ""} | event | {key: empty | event.get(key, {}) for key in ("before", "after")}
        for event in answer.get("events") or ()
        if event.get("type") == "migration.planned"
    )
    return [msgspec.convert(one, Planned) for one in made]


def show(answer: Mapping[str, Any], planned: Planned, dry: bool) -> None:
    moves = planned.moves
    said(headline(planned, answer, dry))
    if planned.reason:
        said(f"  {planned.reason}")
    for warning in answer.get("warnings") or ():
        said(f"warning  {warning}")
    if moves:
        click.echo()
        _moves(moves)
    effect(answer, planned, dry)


def effect(answer: Mapping[str, Any], planned: Planned, dry: bool) -> None:
    """What a plan holds first, what it does to nodes and to who may come, what it is worth, and who stays. `dry`: with its dearest moves."""
    if planned.slots:
        click.echo(f"\n{heading('CAPACITY')} that is held first, for those who wait")
        rows = [(f"{slot.namespace}/{slot.name}", slot.node) for slot in planned.slots]
        table(("RESERVATION", "NODE"), rows, flexible=("RESERVATION", "NODE"))
    if planned.before.nodes or planned.before != planned.after:
        click.echo()
        groups(answer.get("groups") or (), planned)
    if any(one.pods or one.running for one in planned.before.fits):
        click.echo(f"\n{heading('FIT BESIDE')} what runs: pods of each size, each size taken alone")
        sizes(planned)
    if planned.before.gangs:
        click.echo()
        gangs(planned)
    _worth_and_bound(answer, planned, dry)
    if planned.kept:
        click.echo(f"\n{heading('STAY')} where they are")
        table(("PODS", "VERDICT", "WHY"), staying(planned.kept), right=("PODS",), flexible=("VERDICT", "WHY"), wrap=("WHY",))


def staying(kept: Mapping[str, int]) -> list[tuple[int, str, str]]:
    """How many stay by which verdict, and why: the most first. The rule of a verdict is in its sentence."""
    from restow.domain.verdicts import NO_TARGET, sentence

    rows = sorted(kept.items(), key=lambda one: (-one[1], one[0]))
    return [(count, NO_TARGET if verdict.startswith(f"{NO_TARGET}: ") else verdict, sentence(verdict)) for verdict, count in rows]


def _worth_and_bound(answer: Mapping[str, Any], planned: Planned, dry: bool) -> None:
    from restow.cli import plan_worth

    worth, bound = planned.worth, answer.get("bound")
    if worth is not None:
        click.echo()
        said(plan_worth.headline(worth))
        if worth.gangs:
            plan_worth.gangs(worth)
        if worth.missed is not None:
            said(plan_worth.missed(worth.missed, worth.unit))
    if bound is not None:
        said(plan_worth.bounded(bound))
    if worth is not None and worth.dearest and dry:
        click.echo()
        if (each := plan_worth.each(planned.moves, worth)) is not None:
            said(each)
        else:
            plan_worth.dearest(planned.moves, worth)


def headline(planned: Planned, answer: Mapping[str, Any], dry: bool) -> str:
    from restow.domain.planview import waves

    count = len(waves(planned.moves))
    dry = dry or bool(planned.mode)
    what = f"would move {counted(len(planned.moves), 'pod')}" if dry else f"plan {planned.plan} moves {counted(len(planned.moves), 'pod')}"
    where = f" off {counted(len(planned.sources), 'node')} in {counted(count, 'wave')}" if planned.moves else ""
    search = f" in {counted(planned.steps, 'step')}" if planned.steps else ""
    seq = answer.get("read") or answer.get("seq")
    return f"{what}{where}; planner {planned.planner}{search}" + (f", decided at sequence {seq}" if seq is not None else "")


def _moves(moves: Sequence[Move]) -> None:
    from restow.domain.planview import waves
    from restow.replay.sentences import devices_text

    names = {move.migration: move for move in moves}
    rows = []
    for i, wave in enumerate(waves(moves), 1):
        for move in wave:
            pod = f"{move.namespace}/{move.name}" if move.name or not move.follows else f"{_pod(names, move)}, moved on"
            rows.append((i, pod, move.source, move.target or "(evicted)", devices_text(move.devices) or "-", _waits(names, move)))
    shown = rows[:MOST] if sys.stdout.isatty() else rows
    columns = ["WAVE", "POD", "FROM", "TO", "DEVICES", "AFTER"]
    kept = [i for i in range(6) if i < 4 or any(row[i] not in ("-", "") for row in rows)]
    titles = [columns[i] for i in kept]
    flexible = [name for name in ("POD", "FROM", "TO", "AFTER") if name in titles]
    table(titles, [[row[i] for i in kept] for row in shown], right=("WAVE",), flexible=flexible)
    if len(shown) < len(rows):
        click.echo(faint(f"and {len(rows) - len(shown)} more; -o json has all of them"))


def _pod(names: Mapping[Any, Move], move: Move) -> str:
    first = names.get(move.follows)
    return f"{first.namespace}/{first.name}" if first is not None else str(move.follows)


def _waits(names: Mapping[Any, Move], move: Move) -> str:
    before = dict.fromkeys((*move.after, *((move.follows,) if move.follows else ())))
    found = [names[id].name or str(id) if id in names else str(id) for id in before]
    return ", ".join(found[:2]) + (f" and {len(found) - 2} more" if len(found) > 2 else "")


def groups(found: Sequence[Mapping[str, Any]], planned: Planned) -> None:
    """Before → after, per group and in all. Columns that nothing is of are left out, and in a narrow terminal what is idle:
    beside it no group would keep its name."""
    import msgspec

    before, after = msgspec.structs.asdict(planned.before), msgspec.structs.asdict(planned.after)
    changes = width() >= _WIDE and any(group["before"]["idle"] != group["after"]["idle"] for group in found)
    kept = [one for one in _PACKING if one[1] == "free_nodes" or (planned.before.total and (one[1] != "idle" or changes))]
    priced = any(group.get("worthBefore") or group.get("worthAfter") for group in found)
    rows = []
    for group in found:
        worth = (_worth(group.get("worthBefore", 0), group.get("worthAfter", 0)),) if priced else ()
        moved = f"-{group['leaves']} +{group['arrives']}" if group["leaves"] or group["arrives"] else ""
        rows.append((group["name"], group["nodes"], moved, *(_change(group["before"], group["after"], key, unit) for _, key, unit in kept), *worth))
    if len(rows) != 1:
        rows.append(("all nodes", planned.before.nodes or "", "", *(_change(before, after, key, unit) for _, key, unit in kept), *_all_worth(planned, priced)))
    titles = ("NODES", "COUNT", "PODS", *(title for title, _, _ in kept), *(("WORTH",) if priced else ()))
    table(titles, rows, right=titles[1:], flexible=("NODES",), wrap=("NODES",))


def _worth(before: int, after: int) -> str:
    from restow.cli.plan_worth import amount

    return amount(before) if before == after else f"{amount(before)} → {amount(after)}"


def _all_worth(planned: Planned, priced: bool) -> tuple[str, ...]:
    if not priced:
        return ()
    return (_worth(planned.worth.before, planned.worth.after) if planned.worth is not None else "",)


def sizes(planned: Planned) -> None:
    """How many pods of each size there are, waiting ones included, and could be run besides, before → after."""
    after = {(one.devices, one.milli, *one.requests.items()): one.pods for one in planned.after.fits}
    rows = []
    for one in planned.before.fits:
        will = after.get((one.devices, one.milli, *one.requests.items()), one.pods)
        rows.append((size_name(one), ask_text(one), number(one.running), change(number(one.pods), number(will))))
    kept = [i for i in range(4) if i != 1 or any(row[1] for row in rows)]
    titles = [("SIZE", "WITH", "PODS", "MORE FIT")[i] for i in kept]
    table(titles, [[row[i] for i in kept] for row in rows], right=("PODS", "MORE FIT"), flexible=("WITH",) if "WITH" in titles else ())


def gangs(planned: Planned) -> None:
    """How many gangs could be run besides in one block of each tier, before → after."""
    first = planned.before.gangs[0]
    size = next((f"{size_name(one)} each" for one in planned.before.fits if first.devices and (one.devices, one.milli) == (first.devices, first.milli)), "the largest size")
    click.echo(f"{heading('GANGS')} of {first.pods} pods of {size} that fit in one block")
    after = {one.tier: one.gangs for one in planned.after.gangs}
    rows = []
    for one in planned.before.gangs:
        will = after.get(one.tier, one.gangs)
        rows.append((str(one.tier), one.name, change(number(one.gangs), number(will))))
    table(("TIER", "BLOCKS", "MORE FIT"), rows, right=("TIER", "MORE FIT"), flexible=("BLOCKS",))


def size_name(one: Fitting) -> str:
    """`8 GPUs`, `half a GPU` as `0.5 GPU`; of pods without GPUs all that they ask for."""
    if not one.devices:
        return ", ".join(_amounts(one))
    share = f"{one.milli / 1000:g} GPU"
    if one.milli < 1000:
        return share if one.devices == 1 else f"{one.devices} × {share}"
    return f"{one.devices} GPU{'s' * (one.devices != 1)}"


def ask_text(one: Fitting) -> str:
    return ", ".join(_amounts(one)) if one.devices else ""


def _amounts(one: Fitting) -> list[str]:
    from restow.domain.quantity import CPU
    from restow.domain.resources import MEMORY, amount

    names = [name for name in (CPU, MEMORY) if name in one.requests]
    names += sorted(one.requests.keys() - {CPU, MEMORY})
    return [f"{amount(name, one.requests[name])} {name}" if name != MEMORY else amount(name, one.requests[name]) for name in names]


def _change(before: Mapping[str, Any], after: Mapping[str, Any], key: str, unit: int) -> str:
    return change(*(_value(packing.get(key, 0), unit) for packing in (before, after)))


def _value(value: int, unit: int) -> str:
    return number(value) if unit == 1 else f"{value / unit:.2f}"


def said(text: str) -> None:
    """In lines that fit."""
    click.echo("\n".join(wrapped(text)))


def wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, width(), subsequent_indent="  ", break_long_words=False, break_on_hyphens=False) or [""]


def counted(count: int, name: str) -> str:
    return f"{number(count)} {name}{'s' * (count != 1)}"
