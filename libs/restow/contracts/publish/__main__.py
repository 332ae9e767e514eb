"""`python -m restow.contracts.publish <folder>` writes; `--check` compares instead and exits 1 on a difference."""

import argparse
import sys
from pathlib import Path

from restow.contracts.publish.files import differences, write


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m restow.contracts.publish", description=__doc__)
    parser.add_argument("folder", type=Path, help="where the contract is published, usually `proto`")
    parser.add_argument("--check", action="store_true", help="change nothing; name every file that is not up to date")
    given = parser.parse_args(arguments)
    if given.check:
        found = differences(given.folder)
        for line in found:
            print(line, file=sys.stderr)
        if found:
            print("run `make proto` and commit the result", file=sys.stderr)
        return 1 if found else 0
    for line in write(given.folder):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main())
