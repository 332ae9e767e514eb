"""Ages as kubectl prints them (k8s.io/apimachinery/pkg/util/duration)."""

from __future__ import annotations

from datetime import datetime

from restow.kubesim.objects import parse_time


def human(seconds: float) -> str:
    """`5s`, `3m20s`, `15m`, `2h5m`, `3d4h`, `20d`, `2y40d`."""
    total = int(seconds)
    if total < -1:
        return "<invalid>"
    if total < 0:
        return "0s"
    if total < 120:
        return f"{total}s"
    minutes = total // 60
    if minutes < 10:
        rest = total % 60
        return f"{minutes}m{rest}s" if rest else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    hours = total // 3600
    if hours < 8:
        rest = minutes % 60
        return f"{hours}h{rest}m" if rest else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    days = hours // 24
    if hours < 192:
        rest = hours % 24
        return f"{days}d{rest}h" if rest else f"{days}d"
    if hours < 24 * 365 * 2:
        return f"{days}d"
    years = days // 365
    if hours < 24 * 365 * 8:
        rest = days % 365
        return f"{years}y{rest}d" if rest else f"{years}y"
    return f"{years}y"


def since(text: str | None, now: datetime) -> str:
    """How long ago a timestamp was."""
    if not text:
        return "<unknown>"
    try:
        return human((now - parse_time(text)).total_seconds())
    except ValueError:
        return "<unknown>"


def age(obj: dict[str, object], now: datetime) -> str:
    meta = obj["metadata"]
    assert isinstance(meta, dict)
    return since(meta.get("creationTimestamp"), now)
