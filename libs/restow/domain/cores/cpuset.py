"""Numbers of CPUs as text."""

from collections.abc import Iterable


def cpuset(cpus: Iterable[int]) -> str:
    """As Linux lists them: `0-3,8`; empty for none."""
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if ranges and ranges[-1][1] == cpu - 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)
