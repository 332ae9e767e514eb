"""How many examples a property is tried with: half in `make test`, which a change waits for, all in `make test-all`."""

import os

ALL = os.environ.get("RESTOW_TESTS") == "all"


def examples(count: int) -> int:
    return count if ALL else (count + 1) // 2
