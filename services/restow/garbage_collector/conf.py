"""The collector's file → GcConfig. Users write durations as Kubernetes does; a bare number is milliseconds."""

from typing import Any

from restow.domain.config import LONGEST, GcConfig
from restow.domain.duration import format_milliseconds
from restow.runtime.config_source import BadConfig, convert, with_durations

SECOND, HOUR = 1_000, 3_600_000
RAREST = 366 * 24 * HOUR


def read(said: Any) -> GcConfig:
    """Raises BadConfig with path, value and what is allowed."""
    said = with_durations(said or {}, ("retention", "period"))
    read = convert(GcConfig, said)
    if not 0 <= read.retention <= LONGEST:
        raise BadConfig(f"$.retention: {format_milliseconds(read.retention)}; allowed: 0s to {format_milliseconds(LONGEST)}")
    if read.period and not SECOND <= read.period <= RAREST:
        allowed = f"0 (each as soon as it may be deleted), or {format_milliseconds(SECOND)} to {format_milliseconds(RAREST)}"
        raise BadConfig(f"$.period: {format_milliseconds(read.period)}; allowed: {allowed}")
    for name, value, least in (("snapshotEvery", read.snapshot_every, 1), ("snapshotBytes", read.snapshot_bytes, 1), ("keep", read.keep, 0), ("keepBytes", read.keep_bytes, 0)):
        if value < least:
            raise BadConfig(f"$.{name}: {value}; allowed: {least} or more")
    return read
