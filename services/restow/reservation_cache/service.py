"""reservation_cache: which Reservations are valid and what they ask for; writes their status."""

from typing import Any

from restow.domain.config import LONGEST, ReservationConfig
from restow.domain.duration import format_milliseconds
from restow.domain.reservation import decider
from restow.reservation_cache.drift import Drift
from restow.reservation_cache.effects import executors
from restow.reservation_cache.gauges import Gauges
from restow.runtime.config_source import BadConfig, plain
from restow.runtime.service import Context, Parts, Service

_plain = plain(ReservationConfig, durations=("defaultTtl",))


def read(said: Any) -> ReservationConfig:
    """The service's file. Raises BadConfig with path, value and what is allowed."""
    read = _plain(said)
    assert isinstance(read, ReservationConfig)
    if not 1 <= read.default_ttl <= LONGEST:
        raise BadConfig(f"$.defaultTtl: {format_milliseconds(read.default_ttl)}; allowed: 1ms to {format_milliseconds(LONGEST)}")
    return read


def service() -> Service:
    return Service(
        name="reservation_cache",
        family="reservation",
        decider=decider,
        assemble=assemble,
        read_config=read,
        default_config=ReservationConfig(),
    )


def assemble(context: Context) -> Parts:
    context.metrics.labelled(Gauges(lambda: context.state).read)
    return Parts(executors=executors(context), tasks=[Drift(context).run()])
