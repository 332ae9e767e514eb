"""When the certificates end by which the broker and its clients know each other: connections that are open stay then, and no new one is made."""

from datetime import datetime, timedelta
from pathlib import Path

from restow.eventlog.access import AccessFiles, variable
from restow.kube.certificates import valid_times

PART, LONGEST = 6, timedelta(days=14)
"""Of its life a certificate has at most a sixth left, and 14 days, when it is spoken of: cert-manager renews its own with a third left."""


def of_broker(files: AccessFiles, now: datetime) -> str:
    """Which of the files is about to end, or has; empty where none is, or none can be read (who connects says so)."""
    said = {name: why for name in ("certificate", "ca") if (path := getattr(files, name)) and (why := _ends(name, path, now))}
    return "; ".join(f"the certificate in {variable(name)} {why}: renew it for brokers and services; who is connected stays so, and nobody new gets in" for name, why in said.items())


def _ends(name: str, path: str, now: datetime) -> str:
    """Of a certificate and what is above it the first one counts; of several that are believed the last one to end."""
    try:
        times = valid_times(Path(path).read_text())
    except (OSError, ValueError):
        return ""
    if not times:
        return ""
    begin, end = times[0] if name == "certificate" else max(times, key=lambda one: one[1])
    if end < now:
        return f"has ended at {end:%Y-%m-%d %H:%M} UTC"
    return f"ends at {end:%Y-%m-%d %H:%M} UTC, and is not renewed" if end - now < min((end - begin) / PART, LONGEST) else ""
