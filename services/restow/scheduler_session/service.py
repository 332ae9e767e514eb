"""scheduler_session: every change of who holds or uses capacity; binds pods."""

from restow.domain.session import decider
from restow.runtime.scheduler_conf import read
from restow.runtime.service import Context, Parts, Service
from restow.scheduler_session.effects import executors
from restow.scheduler_session.landing_leases import LandingLeases
from restow.scheduler_session.metrics import SessionMetrics
from restow.scheduler_session.nomination_checks import NominationChecks
from restow.scheduler_session.nominations import Nominations


def service() -> Service:
    return Service(
        name="scheduler_session",
        family="session",
        decider=decider,
        assemble=assemble,
        read_config=read,
        default_config=read(None),
    )


def assemble(context: Context) -> Parts:
    SessionMetrics(context)
    leases = LandingLeases(context)
    checks = NominationChecks(context, context.settings.placeholder_image)
    return Parts(executors=executors(context, leases), tasks=[checks.run(), Nominations(context).run(), leases.run()])
