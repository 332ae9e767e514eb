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
