"""What a plan wins and costs in one unit, its dearest moves, and what would have made one worth while."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from restow.cli.output import change, heading, number, plain, table
from restow.replay.sentences import worth_text as amount

if TYPE_CHECKING:
    from restow.contracts.values import Dear, Missed, Move, Worth

PIECES = {"devices": ("whole free GPU", "whole free GPUs"), "nodes": ("free node", "free nodes"), "capacity": ("slot for the capacity", "slots for the capacity")}
"""What objectives count: one of it, and several."""


def each(moves: Sequence[Move], worth: Worth) -> str | None:
    """In one sentence, where all moves of the plan cost the same and for the same."""
    known = {move.migration for move in moves}
    costs = {(one.cost, tuple(sorted(one.parts.items()))) for one in worth.dearest if one.migration in known}
    if len(moves) < 2 or len(costs) != 1 or worth.cost != len(moves) * worth.dearest[0].cost:
        return None
    one = worth.dearest[0]
    return f"{heading('EACH')} of the {len(moves)} moves costs {amount(one.cost)} {plain(worth.unit)} ({_parts(one)})"


def dearest(moves: Sequence[Move], worth: Worth) -> None:
    """What each costs, and what of it for what."""
    known, rows = {move.migration: move for move in moves}, []
    for one in worth.dearest:
        if (move := known.get(one.migration)) is not None:
            rows.append((f"{move.namespace}/{move.name}", move.source, amount(one.cost), _parts(one)))
    click.echo(f"{heading('DEAREST')} moves, in {plain(worth.unit)}")
    table(("POD", "FROM", "COST", "FOR"), rows, right=("COST",), flexible=("POD", "FROM"))


def _parts(one: Dear) -> str:
    return ", ".join(f"{kind} {amount(part)}" for kind, part in one.parts.items())


def headline(worth: Worth) -> str:
    won, unit = worth.after - worth.before, plain(worth.unit)
    change = f"{amount(worth.before)} → {amount(worth.after)} {unit} ({amount(won, sign=True)})" if won else f"{amount(worth.before)} {unit}"
    cost = f"; the moves cost {amount(worth.cost)}" if worth.cost else ""
    return f"{heading('WORTH')} of what is free, for {worth.hours} h: {change}{cost}"


def gangs(worth: Worth) -> None:
    """What of it is for gangs that are to be near to each other, before → after."""
    click.echo(f"{heading('OF IT')} for whole gangs in one block")
    rows = []
    for one in worth.gangs:
        size = f" of {one.devices} × {one.milli / 1000:g} GPU" if one.devices else ""
        fit, worths = (change(number(one.before), number(one.after)), change(amount(one.was), amount(one.will)))
        rows.append((f"{one.pods} pods{size}", f"{one.tier} {one.name}", fit, worths))
    table(("GANG", "BLOCKS", "FIT", "WORTH"), rows, right=("FIT", "WORTH"), flexible=("BLOCKS",))


def missed(one: Missed, unit: str) -> str:
    """What would have been moved if it cost less."""
    unit = plain(unit)
    pods = f"{one.moves} pod{'s' * (one.moves != 1)}, the first off {plain(one.source)}"
    if one.objective == "value":
        need = f"that is {one.gain / max(one.cost, 1):.2f} times the cost"
        gain = f"{amount(one.gain)} {unit}"
    else:
        count = one.gain // 1000
        gain = f"{count} {PIECES[one.objective][count != 1]}"
        need = ""
    if one.objective == "value":
        with_ = f"minimumGain {one.least} would do" if one.least >= 0 else "the cost is larger than the gain"
    else:
        # 0 is taken for 1 (`Limits`).
        with_ = f"minimumGain {one.least} would do" if one.least > 0 else f"no minimumGain would do (1 allows {amount(1_000_000)} for one)"
    return f"nothing is worth its cost: moving {pods}, would gain {gain} and cost {amount(one.cost)} {unit}; " + (f"{need}; " if need else "") + with_


def bounded(bound: Mapping[str, Any]) -> str:
    """`BOUND  gained 206 of at most 240 whole free GPUs for what these moves cost (LP bound): gap 14.2 %; beyond the cost 136 of at most 170`."""
    kind = f"({bound['kind']} bound)"
    net, best = bound["gained"] - bound["cost"], bound["net"]
    if bound["objective"] == "value":
        # In millionths of a thousandth.
        what = unit = plain(bound["unit"])
        gained, most, beyond, least = (amount(n // 1_000_000) for n in (bound["gained"], bound["most"], net, best + 999_999))
    else:
        unit, several = PIECES[bound["objective"]]
        what = unit if bound["most"] // 1_000_000 == 1 else several
        gained, most = (number(bound[key] // 1_000_000) for key in ("gained", "most"))
        beyond, least = amount(net // 1000), amount(-(-best // 1000))
    if not bound["most"]:
        return f"{heading('BOUND')}  no {unit} can be gained by any plan that costs no more {kind}"
    return (
        f"{heading('BOUND')}  gained {gained} of at most {most} {what} for what these moves cost "
        f"{kind}: gap {bound['gap'] / 10:.1f} %; beyond the cost {beyond} of at most {least}"
    )
