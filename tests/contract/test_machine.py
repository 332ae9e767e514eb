"""Time and chance are asked for in one place: what a service runs can be simulated whole (issue 10)."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SIMULATED = (
    *(ROOT / "libs" / "restow" / part for part in ("contracts", "domain", "kube", "runtime")),
    *(ROOT / "services" / "restow" / name for name in ("cluster_watcher", "scheduler_session", "reservation_cache", "descheduler", "garbage_collector")),
    ROOT / "libs" / "restow" / "eventlog" / "memory.py",
)
"""What runs inside the simulator. The other adapters of the log, and the tools, talk to a real machine."""

MODULES = {"time", "random", "secrets", "uuid"}
CALLS = {"os.urandom", "os.fork", "datetime.now", "datetime.utcnow", "datetime.today", "datetime.datetime.now", "date.today"}
MAY = {
    ("runtime/tracer.py", "random"): "a generator that is seeded by the port: two thousand spans a second",
    ("runtime/offload.py", "os.fork"): "behind the port's `forks`",
}


def asked(source: str) -> Iterator[tuple[int, str]]:
    """Line and name of whatever asks the machine by itself."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES and not node.level:
            yield node.lineno, node.module
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in CALLS:
            yield node.lineno, ast.unparse(node)


def test_what_is_simulated_asks_the_port_for_time_and_chance():
    found, used = [], set()
    for part in SIMULATED:
        assert part.exists(), part
        for path in sorted(part.rglob("*.py")) if part.is_dir() else [part]:
            for line, name in asked(path.read_text()):
                key = ("/".join(path.parts[-2:]), name)
                if key in MAY:
                    used.add(key)
                else:
                    found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not found, "ask restow.machine instead"
    assert used == set(MAY), "an exception that nobody needs"


@pytest.mark.parametrize("line", ["import time", "from random import random", "import uuid as u", "when = datetime.now(UTC)", "os.urandom(4)"])
def test_the_check_can_fail(line):
    assert list(asked(line))


def test_another_machine_is_asked_from_then_on():
    from restow import machine
    from restow.runtime.clock import SystemClock

    class Stopped(machine.Machine):
        forks = False

        def wall(self) -> int:
            return 1_700_000_000_123_456_789

        def steady(self) -> float:
            return 7.0

        def bits(self, count: int) -> int:
            return 1

    before = machine.use(Stopped())
    try:
        assert SystemClock().now() == 1_700_000_000_123
        assert machine.now().isoformat() == "2023-11-14T22:13:20.123456+00:00"
        assert (machine.steady(), machine.token(2), machine.forks()) == (7.0, "0001", False)
    finally:
        assert isinstance(machine.use(before), Stopped)


def test_the_real_machine_gives_shares_and_names():
    from restow import machine

    assert all(0 <= machine.share() < 1 for _ in range(100))
    names = {machine.token(4) for _ in range(100)}
    assert len(names) == 100
    assert {len(name) for name in names} == {8}
