"""`python -m simulation`, which `restow simulate` starts from a checkout. Exit codes: 0 every promise held, 1 one broke, 2 usage."""

import argparse
import itertools
import random
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from simulation import report
from simulation.draw import draw
from simulation.plan import Plan
from simulation.runner import LIMIT, Options, run_all
from simulation.shrink import shrink

FOLDER = ".restow/simulation"


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="restow simulate",
        description="Run the five services, their broker and a cluster on virtual time, with users and faults drawn from a seed; judge every commit.",
    )
    add = parser.add_argument
    add("--seed", type=int, metavar="N", help="the first seed (default: a fresh one)")
    add("--count", type=int, metavar="N", help="so many seeds from there (default: 1; with --minutes: as many as there is time for)")
    add("--minutes", type=float, metavar="M", help="go on for so long, on the clock of this machine")
    add("--jobs", type=int, default=2, metavar="N", help="processes at once (default: 2)")
    add("--nodes", type=int, default=0, metavar="N", help="nodes of each cluster (default: drawn, 3 to 50)")
    add("--play", type=float, default=0.0, metavar="M", help="minutes of users and faults in each run (default: drawn, 1 to 3)")
    add("--beside", action="store_true", help="moves beside the stock scheduler in each run (default: in one of twenty)")
    add("--tape", metavar="FILE", help="run this plan, as --shrink has written it, instead of a seed's")
    add("--until", type=int, default=0, metavar="SEQ", help="stop at this commit, and write the log to a file")
    add("--shrink", action="store_true", help="make the plan of a broken seed smaller, for as long as the same promise breaks")
    add("--ignore", action="append", default=[], metavar="PROMISE", help="go on past this promise, while it is being mended")
    add("--limit", type=int, default=LIMIT, metavar="S", help=f"seconds of processor time for one seed (default: {LIMIT})")
    add("-o", "--output", choices=("table", "json"), default="table")
    return parser


def main(argv: list[str] | None = None) -> int:
    args = parser().parse_args(argv)
    if args.jobs < 1 or args.nodes < 0 or args.limit < 1 or (args.count is not None and args.count < 1):
        parser().error("--jobs, --count and --limit must be 1 or more, --nodes 0 or more")
    if args.until and (args.count or 1) > 1:
        parser().error("--until looks at one seed")
    if args.tape and not Path(args.tape).is_file():
        parser().error(f"--tape {args.tape}: no such file")
    first = args.seed if args.seed is not None else random.SystemRandom().randrange(1_000_000)
    options = Options(limit=args.limit, until=args.until, export=FOLDER if args.until else "", ignore=tuple(args.ignore))
    totals, progress = report.Totals(), report.Progress()
    end = time.monotonic() + args.minutes * 60 if args.minutes else None
    say = (lambda text: None) if args.output == "json" else (lambda text: print(text, flush=True))
    broken: list[tuple[Plan, report.Result]] = []
    try:
        for plan, result in run_all(_plans(args, first, end), options, args.jobs):
            totals.add(result)
            progress.clear()
            if args.output == "json":
                print(msgspec.json.encode(result).decode(), flush=True)
            say(report.line(plan, result))
            if result.broken:
                broken.append((plan, result))
                say("\n".join(report.failure(plan, result, _asked(args))))
            if result.log:
                say(f"the log up to commit {result.commits}: {result.log}")
            progress.show(f"{totals.seeds} seeds, {len(totals.findings)} findings, {totals.landed} migrations landed, {totals.placements} placements")
    except KeyboardInterrupt:
        say("")
    progress.clear()
    if args.shrink:
        for plan, result in broken:
            small, again = shrink(plan, result, options, say=progress.show)
            progress.clear()
            tape = Path(FOLDER) / f"seed-{small.seed}.json"
            tape.parent.mkdir(parents=True, exist_ok=True)
            tape.write_bytes(msgspec.json.format(msgspec.json.encode(small), indent=1) + b"\n")
            say("\n".join(["made smaller:", *report.failure(small, again, ["--tape", str(tape)])]))
    if totals.seeds > 1:
        say("\n".join(totals.lines()))
    return 1 if totals.findings else 0


def _plans(args: argparse.Namespace, first: int, end: float | None) -> Iterator[Plan]:
    count = args.count or (None if args.minutes else 1)
    if args.tape:
        yield msgspec.json.decode(Path(args.tape).read_bytes(), type=Plan)
        return
    for seed in itertools.count(first) if count is None else range(first, first + count):
        if end is not None and time.monotonic() > end:
            return
        yield draw(seed, nodes=args.nodes, minutes=args.play, beside=args.beside)


def _asked(args: argparse.Namespace) -> list[str]:
    return [*(["--nodes", str(args.nodes)] if args.nodes else []), *(["--play", f"{args.play:g}"] if args.play else []), *(["--beside"] if args.beside else [])]


if __name__ == "__main__":
    sys.exit(main())
