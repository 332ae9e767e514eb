"""What is printed: one line a seed, a failure with all that is needed to look at it, and totals."""

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from simulation.plan import Plan
from simulation.world import Result

SHOWN = 40
"""Acts of a tape that are printed; the last ones, which are nearest to the end."""


class Totals(msgspec.Struct):
    """Of all seeds of one call. `findings`: seed → the first promise that broke."""

    seeds: int = 0
    first: int = 0
    last: int = 0
    simulated: float = 0.0
    cpu: float = 0.0
    commits: int = 0
    writes: int = 0
    placements: int = 0
    migrations: int = 0
    landed: int = 0
    beside: int = 0
    evictions: int = 0
    faults: int = 0
    acts: int = 0
    findings: dict[str, str] = {}

    def add(self, result: Result) -> None:
        self.first = result.seed if not self.seeds else min(self.first, result.seed)
        self.last = max(self.last, result.seed)
        self.seeds += 1
        for name in ("simulated", "cpu", "commits", "writes", "placements", "migrations", "landed", "beside", "evictions", "faults", "acts"):
            setattr(self, name, getattr(self, name) + getattr(result, name))
        if result.broken:
            self.findings[str(result.seed)] = result.promise

    def lines(self) -> list[str]:
        speed = self.simulated / self.cpu if self.cpu else 0.0
        return [
            f"{number(self.seeds)} seeds ({self.first} to {self.last}), {number(self.simulated)} simulated seconds in {number(self.cpu)} s"
            f" of one core: {speed:.0f} a second",
            f"{number(self.placements)} placements, {number(self.migrations)} migrations ({number(self.landed)} landed, {number(self.beside)} of them beside the stock scheduler),"
            f" {number(self.evictions)} evictions, {number(self.commits)} commits, {number(self.writes)} writes",
            f"{number(self.acts)} acts, {number(self.faults)} of them faults",
            f"findings: {len(self.findings)}" + "".join(f"\n  seed {seed}: {promise}" for seed, promise in self.findings.items()),
        ]


def number(value: float) -> str:
    return f"{value:,.0f}".replace(",", " ")


def line(plan: Plan, result: Result) -> str:
    """One seed."""
    said = f"BROKEN {result.promise}" if result.broken else "holds"
    return (
        f"seed {result.seed:<7} {said:<24} {len(plan.nodes):>3} nodes {result.simulated:>5.0f} s {result.commits:>5} commits"
        f" {result.placements:>5} placed {result.landed:>4} landed {result.faults:>4} faults {result.cpu:>5.1f} s {result.digest[:8]}"
    )


def failure(plan: Plan, result: Result, asked: Sequence[str] = ()) -> list[str]:
    """Seed, commit, promise, tape, and what to type. `asked`: options that the plan was allocated with."""
    at, seq, promise, sentence = result.broken[0]
    options = " ".join(asked if "--tape" in asked else ["--seed", str(result.seed), *asked])
    tape = sorted([*((act.at, "user ", act) for act in plan.users), *((act.at, "fault", act) for act in plan.faults)], key=lambda row: row[0])
    told = [f"  {who} {act}" for _, who, act in tape]
    if len(told) > SHOWN:
        told = [f"  ... {len(told) - SHOWN} acts before", *told[-SHOWN:]]
    look = [
        f"  restow simulate {options} --until {seq}",
        f"  restow state --log .restow/simulation/seed-{result.seed}.jsonl.zst",
        f"  restow why pod/play/NAME --log .restow/simulation/seed-{result.seed}.jsonl.zst",
    ]
    return [
        f"seed {result.seed}, at {at:.3f} s, after commit {seq}: {promise}", f"  {sentence}",
        *(f"  then {more[2]}: {more[3][:200]}" for more in result.broken[1:4]),
        f"tape ({len(plan.nodes)} nodes, {len(plan.workloads)} workloads, {len(plan.users)} acts of users, {len(plan.faults)} faults; seconds since all lead):",
        *told, "look at it:", *look,
    ]  # fmt: skip


class Progress:
    """One line that is written over while a terminal looks; nothing otherwise."""

    def __init__(self, stream: Any = None) -> None:
        self._stream = stream or sys.stderr
        self._shows = self._stream.isatty()
        self._width = 0

    def show(self, text: str) -> None:
        if self._shows:
            self._stream.write("\r" + text.ljust(self._width)[:100])
            self._stream.flush()
            self._width = len(text)

    def clear(self) -> None:
        if self._shows and self._width:
            self._stream.write("\r" + " " * min(self._width, 100) + "\r")
            self._stream.flush()
            self._width = 0
