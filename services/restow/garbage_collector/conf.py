"""The collector's file → GcConfig. Users write durations as Kubernetes does; a bare number is milliseconds."""

from typing import Any

import msgspec

from restow.domain.config import GcConfig
from restow.domain.duration import format_milliseconds
from restow.runtime.config_source import BadConfig, plain

SECOND, HOUR = 1_000, 3_600_000
LONGEST = 100 * 8_766 * HOUR
"""A hundred years: whoever never wants anything to be deleted says that."""
RAREST = 366 * 24 * HOUR

_plain = plain(GcConfig, durations=("retention", "period"))


def read(said: Any) -> GcConfig:
    """Raises BadConfig with path, value and what is allowed."""
    read = _plain(said)
    if not 0 <= read.retention <= LONGEST:
        raise BadConfig(f"$.retention: {_as_said(said, 'retention')}; allowed: 0s to {format_milliseconds(LONGEST)}")
    if read.period and not SECOND <= read.period <= RAREST:
        raise BadConfig(
            f"$.period: {_as_said(said, 'period')}; allowed: 0 (each as soon as it may be deleted), "
            f"or {format_milliseconds(SECOND)} to {format_milliseconds(RAREST)}"
        )
    for name, least in (("snapshotEvery", 1), ("keep", 0)):
        value = msgspec.to_builtins(read)[name]
        if value < least:
            raise BadConfig(f"$.{name}: {value}; allowed: {least} or more")
    return read


def _as_said(said: Any, name: str) -> str:
    return repr(said[name])
