"""Amounts for people."""

from restow.domain.resources import GPU_MILLI


def amount(resource: str, value: int) -> str:
    """For people: cores with at most two digits after the point, memory in binary units, others as they are."""
    if resource == "cpu" or resource == GPU_MILLI:
        return f"{value / 1000:.2f}".rstrip("0").rstrip(".")
    if resource == "memory" or "storage" in resource or resource.startswith("hugepages"):
        for unit in ("", "Ki", "Mi", "Gi"):
            if abs(value) < 1024:
                return f"{value:.0f}{unit}"
            value /= 1024  # type: ignore[assignment]
        return f"{value:.0f}Ti" if value >= 100 else f"{value:.1f}Ti"
    return str(value)


def of(used: dict[str, int], total: dict[str, int], resource: str) -> str:
    """`12/64`."""
    if not total.get(resource):
        return "-"
    return f"{amount(resource, used.get(resource, 0))}/{amount(resource, total[resource])}"


def pairs(used: dict[str, int], total: dict[str, int]) -> str:
    """`cpu 1/3, memory 1Gi/3Gi`, of all that there is of; `-` for nothing."""
    return ", ".join(f"{title(name)} {of(used, total, name)}" for name in total if total[name]) or "-"


def listed(amounts: dict[str, int]) -> str:
    """`cpu 1, memory 1Gi`; `-` for nothing."""
    return ", ".join(f"{title(name)} {amount(name, value)}" for name, value in amounts.items() if value) or "-"


def title(resource: str) -> str:
    """As people call it: `gpu` for `restow.dev/gpu-milli`."""
    return "gpu" if resource == GPU_MILLI else resource.rpartition("/")[2]


def span(milliseconds: int) -> str:
    """A time in one unit, as kubectl shows ages: `90s`, `45m`, `3h`, `9d`."""
    seconds = max(0, milliseconds) // 1000
    for unit, size, limit in (("s", 1, 120), ("m", 60, 180 * 60), ("h", 3600, 48 * 3600)):
        if seconds < limit:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86400}d"


def when(at: int, now: int) -> str:
    """`in 3h`, `5m ago`."""
    return f"in {span(at - now)}" if at > now else f"{span(now - at)} ago"


def concrete(devices: tuple, cores: tuple[int, ...]) -> str:
    """`gpu 0,1; CPUs 0-3`."""
    from restow.domain.cores import cpuset
    from restow.replay.sentences import devices_text

    return "; ".join(part for part in (devices_text(devices), f"CPUs {cpuset(cores)}" if cores else "") if part)
