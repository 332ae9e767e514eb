"""reservation_cache: which Reservations are valid and what they ask for; writes their status."""

from restow.domain.config import ReservationConfig
from restow.domain.reservation import decider
from restow.reservation_cache.drift import Drift
from restow.reservation_cache.effects import executors
from restow.reservation_cache.gauges import Gauges
from restow.runtime.config_source import plain
from restow.runtime.service import Context, Parts, Service


def service() -> Service:
    return Service(
        name="reservation_cache",
        family="reservation",
        decider=decider,
        assemble=assemble,
        read_config=plain(ReservationConfig, durations=("defaultTtl",)),
        default_config=ReservationConfig(),
    )


def assemble(context: Context) -> Parts:
    context.metrics.labelled(Gauges(lambda: context.state).read)
    return Parts(executors=executors(context), tasks=[Drift(context).run()])
