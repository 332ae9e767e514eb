"""What every benchmark gives, and the one table that shows it."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

WIDTH = 100
LABEL, INDENT = 39, "  "
"""Columns of a row's name, and what stands before it: what is longer is cut."""
LESS_IS_BETTER = ("µs", "ms", "s", "GB", "MB", "times")


class Size(StrEnum):
    """`SMOKE` only shows that the benchmark runs; its numbers mean nothing. `HUGE` takes long and is only measured where asked for."""

    HUGE = "huge"
    FULL = "full"
    QUICK = "quick"
    SMOKE = "smoke"


class Row(msgspec.Struct, omit_defaults=True):
    """One line. `baseline` was measured in the same run; `known` elsewhere, and is marked. `goal` is in `unit`, too."""

    what: str
    ours: float
    unit: str
    baseline: float | None = None
    known: float | None = None
    goal: float | None = None

    @property
    def ratio(self) -> float | None:
        """How many times better ours is: above 1 is better, whatever the unit. None beside a figure of another run or machine."""
        other = self.baseline
        if not other or not self.ours:
            return None
        return other / self.ours if self.unit in LESS_IS_BETTER else self.ours / other

    @property
    def met(self) -> bool | None:
        if self.goal is None:
            return None
        return self.ours <= self.goal if self.unit in LESS_IS_BETTER else self.ours >= self.goal


class Result(msgspec.Struct):
    """One benchmark's rows, with what the baseline is. `others`: percent of the cores that processes which are not ours
    used meanwhile. `failed` says why there are no rows."""

    name: str
    title: str
    baseline: str
    rows: list[Row]
    seconds: float = 0.0
    others: float = 0.0
    failed: str = ""


class Machine(msgspec.Struct):
    cpu: str
    cores: int
    memory: str
    system: str
    python: str
    nats: str


def machine() -> Machine:
    """This one, as far as it tells."""
    return Machine(
        cpu=_first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        memory=_gib(_first("/proc/meminfo", "MemTotal")),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
        nats=_nats(),
    )


class Meter:
    """How much of the machine was used by others since it was made: what makes a benchmark's numbers worse."""

    def __init__(self) -> None:
        self._began, self._busy, self._ours = time.perf_counter(), _busy(), _ours()

    def others(self) -> float:
        """Percent of all cores."""
        seconds = (time.perf_counter() - self._began) * (os.cpu_count() or 1)
        return max(0.0, (_busy() - self._busy - (_ours() - self._ours)) / seconds * 100)


def _busy() -> float:
    """Seconds in which some core worked, ever; stolen ones, too."""
    try:
        user, nice, system, _, _, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    except (OSError, ValueError):
        return 0.0
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _ours() -> float:
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


def _first(path: str, key: str) -> str:
    try:
        with open(path) as file:
            for line in file:
                if line.startswith(key):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


def _gib(kilobytes: str) -> str:
    return f"{int(kilobytes.split()[0]) / (1 << 20):.0f} GiB" if kilobytes else "unknown"


def _nats() -> str:
    from restow.eventlog.server import find_binary

    said = subprocess.run([str(find_binary()), "--version"], capture_output=True, text=True, check=True).stdout
    return said.split()[-1].removeprefix("v")


def number(value: float, unit: str) -> str:
    """Three significant figures, thousands apart; of percentages four."""
    digits = 2 if unit == "%" else 0 if value >= 100 else 1 if value >= 10 else 2
    return f"{value:,.{digits}f} {unit}"


def render(results: Iterable[Result], here: Machine, command: str, when: str) -> str:
    """At most WIDTH columns."""
    results = list(results)
    lines = [
        f"Restow benchmarks, {when} · {command}",
        f"{here.cpu}, {here.cores} cores, {here.memory} · {here.system} · Python {here.python} · nats-server {here.nats}",
        "",
        _line("", "ours", "baseline", "ratio", "goal", "met"),
        "─" * WIDTH,
    ]
    for result in results:
        lines.append(f"{result.title}  ({result.seconds:.0f} s)")
        if result.others >= 10:
            lines.append(f"  disturbed: other processes used {result.others:.0f} % of the cores meanwhile")
        if result.baseline:
            lines += _wrapped(f"baseline: {result.baseline}")
        if result.failed:
            lines += _wrapped(f"FAILED: {result.failed}")
        lines += [_row(row) for row in result.rows]
        lines.append("")
    rows = [row for result in results for row in result.rows]
    judged = [row for row in rows if row.met is not None]
    lines.append("─" * WIDTH)
    lines.append(f"goals met: {sum(bool(row.met) for row in judged)} of {len(judged)} · ratio above 1: ours is better")
    if any(row.known is not None and row.baseline is None for row in rows):
        lines.append("* known elsewhere, not measured in this run")
    return "\n".join(lines)


def _row(row: Row) -> str:
    other = ""
    if row.baseline is not None:
        other = number(row.baseline, row.unit)
    elif row.known is not None:
        other = f"{number(row.known, row.unit)} *"
    ratio = row.ratio
    sign = "≤" if row.unit in LESS_IS_BETTER else "≥"
    digits = 2 if row.unit == "%" else 1
    goal = ""
    if row.goal is not None:
        goal = f"{sign} {f'{row.goal:,.{digits}f}'.removesuffix('.0')} {row.unit.partition('/')[0]}"
    met = {None: "", True: "yes", False: "NO"}[row.met]
    return _line(INDENT + row.what, number(row.ours, row.unit), other, "" if ratio is None else _times(ratio), goal, met)


def _times(ratio: float) -> str:
    return f"{ratio:,.0f}x" if ratio >= 1_000 else f"{ratio:.3g}x"


def _line(what: str, ours: str, baseline: str, ratio: str, goal: str, met: str) -> str:
    return f"{what:<{LABEL}.{LABEL}}{ours:>17}{baseline:>18}{ratio:>8}{goal:>14}{met:>4}".rstrip()


def _wrapped(text: str) -> list[str]:
    lines, line = [], "  "
    for word in text.split():
        if len(line) + len(word) + 1 > WIDTH:
            lines.append(line)
            line = "    "
        line += f" {word}" if line.strip() else word
    return [*lines, line]


def percentile(values: Iterable[float], percent: int) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) * percent // 100, len(ordered) - 1)]


def median(values: Iterable[float]) -> float:
    return percentile(values, 50)


def progress(text: str) -> None:
    """What is going on, for whoever waits; the table alone goes to stdout."""
    if sys.stderr.isatty():
        print(f"  {text}", file=sys.stderr, flush=True)
