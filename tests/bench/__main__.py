"""`python -m tests.bench [names] [--quick] [-o table|json]`: ours beside a baseline, measured in the same run.

Every benchmark runs in a process of its own, so that none inherits another's memory.
"""

import argparse
import asyncio
import importlib
import subprocess
import sys
import time
from datetime import UTC, datetime

import msgspec

from .table import Machine, Meter, Result, Row, Size, machine, progress, render

NAMES = ("latency", "burst", "reservation", "migration", "migrations", "append", "replay", "session", "backlog", "holds", "quality", "plan", "plan_quality", "plan_gaps", "whatif", "cold_start", "failover")
ON_REQUEST = ("kubernetes", "first_list", "spans")
"""Each is a module with TITLE, BASELINE and `async def measure(size) -> list[Row]`. Those on request need what has to be built first, or are of no goal of the whole."""


class Report(msgspec.Struct):
    when: str
    command: str
    machine: Machine
    results: list[Result]


def run(name: str, size: Size) -> Result:
    """In this process."""
    import uvloop

    module = importlib.import_module(f"{__package__}.{name}")
    started = time.perf_counter()
    rows: list[Row] = uvloop.run(module.measure(size))
    return Result(name, module.TITLE, module.BASELINE, rows, time.perf_counter() - started)


def apart(name: str, size: Size) -> Result:
    """In a new process; a benchmark that fails says so in the table."""
    progress(f"{name} …")
    argv = [sys.executable, "-m", str(__package__), name, "--here", "--size", size]
    meter = Meter()
    done = subprocess.run(argv, capture_output=True)
    if done.returncode == 0:
        return msgspec.structs.replace(msgspec.json.decode(done.stdout, type=Result), others=meter.others())
    words = done.stderr.decode(errors="replace").strip().splitlines() or [f"exit code {done.returncode}"]
    return Result(name, name, "", [], failed=words[-1])


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    made.add_argument("names", nargs="*", metavar="name", help=f"of {', '.join(NAMES)} (default: all of these), and {', '.join(ON_REQUEST)}")
    made.add_argument("--quick", action="store_true", help="smaller sizes, under 90 s; their numbers are not the goals'")
    made.add_argument("--huge", action="store_true", help="only cold_start, with 15,000 nodes and 500,000 pods: ten minutes and more, 16 GB")
    made.add_argument("-o", "--output", choices=("table", "json"), default="table")
    made.add_argument("--settle", type=float, default=0, metavar="S", help="before each one wait at most S seconds for a machine that nobody else uses")
    made.add_argument("--size", type=Size, help=argparse.SUPPRESS)
    made.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    return made


def settle(patience: float) -> None:
    """Wait until others use less than a tenth of the cores, for at most so many seconds."""
    deadline = time.perf_counter() + patience
    while time.perf_counter() < deadline:
        meter = Meter()
        time.sleep(2.0)
        if meter.others() < 10:
            return


def main() -> int:
    given = parser().parse_args()
    if unknown := [name for name in given.names if name not in (*NAMES, *ON_REQUEST)]:
        parser().error(f"no benchmark {', '.join(unknown)}; there are {', '.join((*NAMES, *ON_REQUEST))}")
    size = given.size or (Size.HUGE if given.huge else Size.QUICK if given.quick else Size.FULL)
    names = ["cold_start"] if given.huge else given.names or NAMES
    if given.here:
        sys.stdout.write(msgspec.json.encode(run(names[0], size)).decode())
        return 0
    results = []
    for name in names:
        settle(given.settle)
        results.append(apart(name, size))
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    options = [*([f"--{size}"] if size in (Size.HUGE, Size.QUICK) else []), *([f"--settle {given.settle:g}"] if given.settle else [])]
    command = " ".join(["python -m tests.bench", *given.names, *options])
    if given.output == "json":
        report = Report(when, command, machine(), results)
        print(msgspec.json.format(msgspec.json.encode(report), indent=2).decode())
    else:
        print(render(results, machine(), command, when))
    return 1 if any(result.failed for result in results) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (KeyboardInterrupt, asyncio.CancelledError):
        sys.exit(130)
