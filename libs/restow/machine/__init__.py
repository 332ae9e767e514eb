"""What a program gets from its machine beside files and sockets: time, chance, copies of itself.

Everything that runs in a service asks here, so that the simulator (`tests/simulation`) can give a hundred processes clocks
of their own, one chance for all of them, and no forks. `contract/test_machine.py` finds who asks elsewhere. The
command-line tools, which no simulation runs, may ask the machine directly.
"""

import secrets
import time
from datetime import UTC, datetime


class Machine:
    """The one we run on."""

    forks = True
    """Whether a long computation may run in a forked copy of the process."""

    def wall(self) -> int:
        """Nanoseconds since the epoch, UTC; may be wrong, and may jump."""
        return time.time_ns()

    def steady(self) -> float:
        """Seconds since some moment; never goes back."""
        return time.monotonic()

    def bits(self, count: int) -> int:
        """So many bits that nobody can guess."""
        return secrets.randbits(count)


_machine = Machine()


def use(machine: Machine) -> Machine:
    """From now on, everywhere in this process; returns the one before. Only the simulator has another one."""
    global _machine
    before, _machine = _machine, machine
    return before


def wall() -> int:
    """Nanoseconds since the epoch, UTC."""
    return _machine.wall()


def now() -> datetime:
    """The same, to the microsecond, for people and for the Kubernetes API."""
    seconds, rest = divmod(_machine.wall(), 10**9)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest // 1000)


def steady() -> float:
    """Seconds that never go back."""
    return _machine.steady()


def share() -> float:
    """At random: at least 0, less than 1."""
    return _machine.bits(53) / 2**53


def token(size: int) -> str:
    """`size` random bytes in hexadecimal: a name that is nobody else's, or a secret."""
    return f"{_machine.bits(8 * size):0{2 * size}x}"


def bits(count: int) -> int:
    """So many random bits."""
    return _machine.bits(count)


def forks() -> bool:
    """See Machine.forks."""
    return _machine.forks
