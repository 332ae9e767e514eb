"""`restow simulate`: starts the simulator of a checkout. It is part of the tests, so that no installation carries it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click

from restow.cli.failures import UNUSABLE, Failure
from restow.cli.output import output_option

_HERE = Path("tests") / "simulation" / "__main__.py"

@click.command()
@click.option("--seed", type=click.IntRange(0), metavar="N", help="The first seed.  [default: a fresh one]")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Number of seeds from there.  [default: 1]")
@click.option("--minutes", type=click.FloatRange(0), metavar="M", help="Continue with the following seeds for this many minutes.")
@click.option("--jobs", type=click.IntRange(1), metavar="N", help="Processes at once.  [default: 2]")
@click.option("--nodes", type=click.IntRange(1), metavar="N", help="Nodes of each cluster.  [default: drawn, 3 to 50]")
@click.option("--play", type=click.FloatRange(0), metavar="M", help="Minutes of users and faults in each run.  [default: drawn, 1 to 3]")
@click.option("--beside", is_flag=True, help="Move pods of the stock scheduler in every run.  [default: in one of twenty]")
@click.option("--tape", metavar="FILE", help="Run this plan, written by --shrink, instead of a seed's.")
@click.option("--until", type=click.IntRange(1), metavar="SEQ", help="Stop at this commit and write the log to a file.")
@click.option("--shrink", is_flag=True, help="Shrink the plan of a broken seed as long as the same promise breaks.")
@click.option("--ignore", multiple=True, metavar="PROMISE", help="Ignore this promise, for example while it is being fixed.")
@click.option("--limit", type=click.IntRange(1), metavar="S", help="Seconds of processor time for one seed.  [default: 60]")
@output_option
def simulate(**asked: Any) -> None:
    """Run the whole system on virtual time, with users and faults drawn from a seed, and judge every commit.

    Each seed runs in one process: the real code of the five services, their HTTP and a cluster, with no clock and no network. The
    same seed gives the same bytes. A run stops at the first broken promise, and says which one, when, and how to inspect it. This needs a
    checkout of Restow, because the simulator is part of its tests.

    \b
    Exit codes: 0 every promise held, 1 one broke, 2 wrong usage, or no checkout.

    \b
    Examples:
      restow simulate --minutes 10                 fresh seeds, for ten minutes
      restow simulate --seed 42 --shrink           one seed again; the smallest plan that breaks it
      restow simulate --seed 42 --until 531        up to that commit, saved for
                                                   `restow state --log` and `restow why --log`
    """
    arguments: list[str] = []
    for name, value in asked.items():
        if value is True:
            arguments.append(f"--{name}")
        elif isinstance(value, tuple):
            arguments += [text for one in value for text in (f"--{name}", one)]
        elif value not in (None, False):
            arguments += [f"--{name}", str(value)]
    paths = [str(_tests()), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    running = subprocess.Popen(
        [sys.executable, "-m", "simulation", *arguments], env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    )
    try:
        code = running.wait()
    except KeyboardInterrupt:
        # The terminal has told it, too: it ends its children and says what it has.
        code = running.wait()
    sys.exit(code if code >= 0 else 128 - code)


def _tests() -> Path:
    """The folder of tests of the checkout that is worked in, or that this Restow was installed from."""
    for folder in (Path.cwd(), *Path.cwd().parents, Path(__file__).resolve().parents[3]):
        if (folder / _HERE).is_file():
            return folder / "tests"
    raise Failure(
        f"no checkout of Restow here: no folder from {Path.cwd()} upwards has {_HERE}. The simulator is part of Restow's tests, which are"
        " not installed: clone the repository, and run `make simulate` or `restow simulate` inside it", UNUSABLE,
    )  # fmt: skip
