"""One mutant after the other in each of a few copies of the tree."""

import difflib
import os
import queue
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.mutation.mutants import Mutant

ROUNDS = (10.0, 90.0)
"""Seconds that the tests of a round take together, as measured without a mutant: most die at the quickest tests."""
START = 60.0
"""Seconds that pytest itself, and a machine that is busy, may take beside."""


class Fate(NamedTuple):
    """`how`: killed, timeout or survived. `tests`: how many were run at most; `change` is a diff of two lines."""

    mutant: Mutant
    how: str
    tests: int
    change: str


class Known(NamedTuple):
    """`tests`: (file, line) → tests that run it; `seconds` of each test."""

    tests: dict[tuple[str, int], list[str]]
    seconds: dict[str, float]

    def rounds(self, mutant: Mutant) -> list[list[str]]:
        """The quickest first; a test is in one round."""
        left = sorted(self.tests.get((str(mutant.file), mutant.line), ()), key=lambda test: (self.seconds.get(test, 1.0), test))
        found = []
        for most in ROUNDS:
            taken, spent = [], 0.0
            while left and (not taken or spent + self.seconds.get(left[0], 1.0) <= most):
                spent += self.seconds.get(left[0], 1.0)
                taken.append(left.pop(0))
            if taken:
                found.append(taken)
        return found


class Copy:
    """A copy of the tree that one mutant at a time is in."""

    def __init__(self, root: Path, at: Path) -> None:
        self._root, self._at = root, at
        for name in ("libs", "services", "tests", "proto", "deploy", "docs"):
            shutil.copytree(root / name, at / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "Makefile"):
            shutil.copy(root / name, at / name)

    def fate(self, mutant: Mutant, known: Known) -> Fate | None:
        """None where nothing would be changed."""
        before, after = mutant.file.read_text(), mutant.mutated()
        if after is None or after == before:
            return None
        change = "\n".join(line for line in difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0) if line[:1] in "+-" and line[:3] not in ("+++", "---"))
        place = self._at / mutant.file.relative_to(self._root)
        place.write_text(after)
        count = 0
        try:
            for tests in known.rounds(mutant):
                count += len(tests)
                how = self._run(tests, sum(known.seconds.get(test, 1.0) for test in tests))
                if how != "survived":
                    return Fate(mutant, how, count, change)
        finally:
            place.write_text(before)
        return Fate(mutant, "survived", count, change)

    def _run(self, tests: Sequence[str], seconds: float) -> str:
        path = os.pathsep.join(str(self._at / name) for name in ("libs", "services", "tests"))
        command = [sys.executable, "-m", "pytest", "-x", "-n", "0", "--no-header", *tests]
        env = os.environ | {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "CI": "true"}
        env.pop("RESTOW_CONTEXTS", None)
        try:
            done = subprocess.run(command, cwd=self._at, env=env, capture_output=True, timeout=START + 10 * seconds)
        except subprocess.TimeoutExpired:
            return "timeout"
        return "survived" if done.returncode == 0 else "killed"


def run(mutants: Sequence[Mutant], known: Known, root: Path, scratch: Path, jobs: int, told: Callable[[Fate], None]) -> list[Fate]:
    """In the order in which they come to their ends."""
    waiting: queue.SimpleQueue[Mutant] = queue.SimpleQueue()
    for mutant in mutants:
        waiting.put(mutant)
    fates: list[Fate] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        copy = Copy(root, scratch / f"copy-{number}")
        while True:
            try:
                mutant = waiting.get_nowait()
            except queue.Empty:
                return
            fate = copy.fate(mutant, known)
            if fate is not None:
                with lock:
                    fates.append(fate)
                    told(fate)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(jobs)]
    for worker in workers:
        worker.start()
        time.sleep(0.1)
    for worker in workers:
        worker.join()
    return fates
