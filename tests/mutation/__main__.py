"""`python -m tests.mutation`: see the package."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tests.mutation.mutants import sample
from tests.mutation.runner import Fate, Known, run

ROOT = Path(__file__).resolve().parents[2]
TESTS = ("tests/domain", "tests/property", "tests/oracle", "tests/conformance")
GOAL = 90
"""Percent of the sample that must die."""


def known(folder: Path, under: str, tests: list[str], jobs: int) -> Known:
    """Runs the tests where that was not done before: `folder` keeps what was found, until the code or a test changes."""
    stamp = subprocess.run(["git", "stash", "create"], cwd=ROOT, capture_output=True, text=True).stdout.strip() or subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()  # fmt: skip
    tree = subprocess.run(["git", "rev-parse", f"{stamp}^{{tree}}"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    folder = folder / "-".join([tree[:12], *(name.replace("/", ".") for name in (under, *tests))])[:200]
    if not any(folder.glob("*.json")):
        print(f"running {', '.join(tests)} once, to learn which test runs which line of {under} ...", flush=True)
        env = os.environ | {"RESTOW_CONTEXTS": str(folder), "RESTOW_SOURCE": str(ROOT / under), "CI": "true"}
        command = [sys.executable, "-m", "pytest", "-n", str(jobs), "--dist", "worksteal", "-p", "tests.mutation.contexts", *tests]
        if subprocess.run(command, cwd=ROOT, env=env).returncode:
            sys.exit("the tests fail without a mutant; nothing can be learnt from them")
    running: dict[tuple[str, int], list[str]] = {}
    seconds: dict[str, float] = {}
    for file in sorted(folder.glob("*.json")):
        found = json.loads(file.read_text())
        seconds |= found["seconds"]
        for name, lines in found["lines"].items():
            for line, names in lines.items():
                running.setdefault((name, int(line)), []).extend(names)
    return Known(running, seconds)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("--count", type=int, default=300, help="mutants")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--under", default="libs/restow/domain", help="folder or file that is changed")
    parser.add_argument("--tests", nargs="+", default=list(TESTS), help="folders and files of tests")
    parser.add_argument("--keep", type=Path, default=ROOT / ".restow" / "mutation", help="folder for what is learnt of the tests")
    args = parser.parse_args()
    learnt = known(args.keep, args.under, args.tests, args.jobs)
    files = [ROOT / args.under] if args.under.endswith(".py") else [*(ROOT / args.under).rglob("*.py")]
    lines: dict[str, set[int]] = {}
    for name, line in learnt.tests:
        lines.setdefault(name, set()).add(line)
    drawn = sample(files, args.count, args.seed, lines)
    print(f"{len(drawn)} mutants of {len(files)} files, seed {args.seed}", flush=True)
    ended: list[Fate] = []

    def told(fate: Fate) -> None:
        ended.append(fate)
        if fate.how == "survived":
            print(f"[{len(ended)}/{len(drawn)}] survived {fate.tests} tests: {fate.mutant.file.relative_to(ROOT)}:{fate.mutant.line} {fate.mutant.name}\n{fate.change}", flush=True)
        elif len(ended) % 10 == 0:
            print(f"[{len(ended)}/{len(drawn)}]", flush=True)

    with tempfile.TemporaryDirectory(prefix="restow-mutants-") as scratch:
        fates = run(drawn, learnt, ROOT, Path(scratch), args.jobs, told)
    counts = Counter(fate.how for fate in fates)
    folders: dict[str, Counter[str]] = {}
    for fate in fates:
        folder = fate.mutant.file.parent.relative_to(ROOT / "libs" / "restow").as_posix()
        folders.setdefault(folder, Counter())[fate.how] += 1
    print(f"\n{'FOLDER':<60} {'MUTANTS':>8} {'DEAD':>6}")
    for folder, found in sorted(folders.items()):
        print(f"{folder:<60} {found.total():>8} {found.total() - found['survived']:>6}")
    share = 100 * (counts.total() - counts["survived"]) / max(1, counts.total())
    print(f"\n{counts.total()} mutants, {counts['killed']} killed, {counts['timeout']} out of time, {counts['survived']} survived: {share:.1f} % dead, goal {GOAL} %")
    sys.exit(share < GOAL)


if __name__ == "__main__":
    main()
